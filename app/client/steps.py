"""The steps of an epoch: where they begin, and the batches of them over one connection."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .arrow import ArrowStream, Batch
from .connection import Answer, Connection, Passing
from .transport import run

#: Steps that threads which read ahead are from one another, at most.
_MAX_SKIPPED: Final = 64


@dataclass(frozen=True)
class Steps:
    """The steps of an epoch.

    Attributes:
        num_rows: of the epoch.
        size: rows of a step, over all workers.
        drop_remainder: rows that do not fill a last step are left out.
    """

    num_rows: int
    size: int
    drop_remainder: bool

    def left(self, row: int) -> int:
        """How many steps there are from a row of the epoch on."""
        rows = max(0, self.num_rows - row)
        return rows // self.size if self.drop_remainder else -(-rows // self.size)

    def after(self, epoch: int, row: int, steps: int) -> tuple[int, int]:
        """The epoch and the row at which the next step begins, `steps` after those at `row` of `epoch`."""
        left = self.left(row)
        if steps < left:
            return epoch, row + steps * self.size
        epochs, steps = divmod(steps - left, self.left(0))
        return epoch + 1 + epochs, steps * self.size

    def rows_of(self, row: int, worker: int, num_workers: int) -> int:
        """How many rows a worker gets of the step that begins at `row`."""
        size = min(self.size, self.num_rows - row)
        return size * (worker + 1) // num_workers - size * worker // num_workers


class StepReader:
    """Reads the batch of any step; those of steps that follow one another come out of one answer.

    A connection that breaks is opened again at the step that is read. Several threads may read.

    Args:
        open_step: asks the service for the steps from a row of an epoch on.
        size: rows from one step to the next.
    """

    def __init__(
        self, connection: Connection, open_step: Callable[[int, int], Coroutine[Any, Any, Answer]], size: int
    ) -> None:
        self._connection = connection
        self._open_step = open_step
        self._size = size
        self._stream: Generator[Batch, None, None] | None = None
        self._process = os.getpid()
        #: Where the stream that is open goes on.
        self._stream_at: tuple[int, int] | None = None
        self._lock = threading.Lock()
        #: Batches that came before one that was asked for first.
        self._skipped: dict[tuple[int, int], Batch] = {}

    def read(self, epoch: int, row: int) -> Batch:
        """The batch of the step that begins at a row of an epoch."""
        with self._lock:
            batch = self._skipped.pop((epoch, row), None)
            if batch is None:
                self._skip_to(epoch, row)
                batch = self._read_patiently(epoch, row)
            return batch

    def forget(self) -> None:
        """Read nothing of what was asked for before."""
        self.close()
        self._skipped.clear()

    def close(self) -> None:
        """Close the answer that is being read."""
        if self._stream is not None:
            self._stream.close()
        self._stream = self._stream_at = None

    def __getstate__(self) -> dict[str, Any]:
        """For other processes: without the answer."""
        nothing = dict.fromkeys(("_stream", "_stream_at", "_lock"))
        return {**self.__dict__, **nothing, "_skipped": {}}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _skip_to(self, epoch: int, row: int) -> None:
        """Read on to a step a little later in the stream; threads that read ahead ask in any order."""
        if self._stream_at is None or self._stream_at[0] != epoch:
            return
        begin = self._stream_at[1]
        if (row - begin) % self._size == 0 and 0 < row - begin <= _MAX_SKIPPED * self._size:
            for passed in range(begin, row, self._size):
                self._skipped[epoch, passed] = self._read_patiently(epoch, passed)
            while len(self._skipped) > _MAX_SKIPPED:
                del self._skipped[next(iter(self._skipped))]

    def _read_patiently(self, epoch: int, row: int) -> Batch:
        async def attempt() -> Batch:
            try:
                return self._next(epoch, row)
            except Passing:
                self.close()
                raise

        return run(self._connection.patiently(attempt))

    def _next(self, epoch: int, row: int) -> Batch:
        if self._process != os.getpid():
            # A process that was forked must not read from the connection of its parent.
            self._process, self._stream = os.getpid(), None
        if self._stream is None or self._stream_at != (epoch, row):
            self.close()
            self._stream = self._batches(epoch, row)
        batch = next(self._stream, None)
        if batch is None:
            raise Passing(f"The answer ended at row {row} of epoch {epoch}, before the epoch did.")
        self._stream_at = (epoch, row + self._size)
        return batch

    def _batches(self, epoch: int, row: int) -> Generator[Batch, None, None]:
        answer = run(self._open_step(epoch, row))
        try:
            yield from ArrowStream(lambda n: run(answer.read(n)))
        finally:
            run(answer.close())
