"""A store that ends its own process at a named step, or freezes it there.

The supervisor arms failpoints by files; production code knows nothing of them.
"""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeVar

from app.runtime.streams import Buffer
from app.storage.create_once import PROBE_PREFIX
from app.storage.object_store import ObjectInfo, ObjectStore
from tests.campaign.steps import Moment, step_of
from tests.support.faulty_store import FaultStore, Operation

__all__ = ["Failpoint", "FailpointStore", "Failpoints"]

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Failpoint:
    """At the `count`-th time that `step` comes to `moment`, kill or freeze the process."""

    step: str
    moment: Moment
    count: int = 1
    action: Literal["kill", "freeze"] = "kill"

    def serialize(self) -> str:
        return "|".join([self.step, self.moment, str(self.count), self.action])

    @classmethod
    def parse(cls, text: str) -> "Failpoint":
        step, moment, count, action = text.split("|")
        assert moment in ("before", "during", "after")
        assert action in ("kill", "freeze")
        return cls(step, moment, int(count), action)  # type: ignore[arg-type]  # asserted above


class Failpoints:
    """Those of one process.

    Args:
        armed: a folder with a file for each failpoint that has not struck yet.
        fired: a file with a line for each that has.
    """

    def __init__(self, armed: Path, fired: Path) -> None:
        self._armed = armed
        self._fired = fired
        self._lock = threading.Lock()
        self._passed: Counter[str] = Counter()

    def pass_by(self, step: str | None, moment: Moment) -> None:
        """The process comes by `step`; it may go no further."""
        if step is None:
            return
        with self._lock:
            for file in self._armed.glob("*"):
                try:
                    failpoint = Failpoint.parse(file.read_text(encoding="ascii"))
                except FileNotFoundError:  # disarmed since the folder was listed
                    continue
                if (failpoint.step, failpoint.moment) == (step, moment):
                    self._passed[file.name] += 1
                    if self._passed[file.name] == failpoint.count:
                        self._strike(file, failpoint)
                        return

    def _strike(self, file: Path, failpoint: Failpoint) -> None:
        try:
            file.unlink()
        except FileNotFoundError:  # disarmed just now
            return
        with self._fired.open("a", encoding="ascii") as log:
            log.write(failpoint.serialize() + "\n")
        # To this thread: another one may take a signal to the process, and this one run on for a moment.
        number = signal.SIGKILL if failpoint.action == "kill" else signal.SIGSTOP
        signal.pthread_kill(threading.get_ident(), number)


class FailpointStore(FaultStore):
    """An `ObjectStore` over `inner` that passes by its failpoints.

    Args:
        clock_offset: added to what the store says the time is; ages it gives stay as they are.
    """

    def __init__(self, inner: ObjectStore, failpoints: Failpoints, clock_offset: timedelta) -> None:
        super().__init__(inner)
        self._failpoints = failpoints
        self._store_clock_offset = clock_offset

    def _do(self, operation: Operation, key: str, request: Callable[[], ResultT]) -> ResultT:
        return self._passing(step_of(operation, key), request)

    def _passing(self, step: str | None, request: Callable[[], ResultT]) -> ResultT:
        self._failpoints.pass_by(step, "before")
        result = request()
        self._failpoints.pass_by(step, "after")
        return result

    def create(self, key: str, data: Buffer) -> None:
        self._passing(step_of("create", key, bytes(data[:1000])), lambda: self._inner.create(key, data))

    def put_stream(self, key: str, chunks: Iterable[Buffer]) -> int:
        step = step_of("put_stream", key)
        return self._passing(step, lambda: self._inner.put_stream(key, self._drawn(step, chunks)))

    def _drawn(self, step: str | None, chunks: Iterable[Buffer]) -> Iterator[Buffer]:
        for index, chunk in enumerate(chunks):
            yield chunk
            if index == 0:
                self._failpoints.pass_by(step, "during")

    def head(self, key: str) -> ObjectInfo:
        info = super().head(key)
        if not key.startswith(PROBE_PREFIX):
            return info
        return ObjectInfo(info.key, info.size, info.last_modified + self._store_clock_offset, info.etag)
