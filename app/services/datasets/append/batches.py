"""Small appends as they arrive: what waits together is decoded and encoded together.

A row costs little, but preparing to read rows does. So one thread takes whatever has arrived while it was
busy, as one body, and parts the records again. What cannot be taken in like that, be it refused or large, is
left to `append_rows`: one append never spoils another. Datasets are served in turn, each for a moment.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from ....codecs.json.rows.read import decode_bodies
from ....codecs.messages.frames import find_frames
from ....codecs.messages.messages import encode_messages
from ....codecs.records.large_integers import LargeIntegers
from ....domain.limits import KIB, MIB, Limits
from ....domain.rounded import RoundedFeatures
from ....errors import InputError, Overloaded, ShardsmithError
from ....runtime.amplification import Amplification
from ....runtime.budget import Budget
from ....runtime.spool import Spool
from ....runtime.streams import MemoryStream
from ...convert.records import bounded
from ...deferred import settle
from ..datasets import Datasets
from ..objects.catalog import Outdated
from ..objects.incarnation import Destination
from .groups import Member
from .request import Appended, AppendRequest, append_rows, stored_answer
from .result import AppendResult

__all__ = ["SmallAppend", "SmallAppends"]

#: So much is taken in at once, which takes some milliseconds.
_BATCH_BYTES: Final = 256 * KIB
#: So much waits, and half of it for one dataset; what comes then goes the ordinary way, which has a queue of
#: its own.
_WAITING_BYTES: Final = 4 * MIB
_WAITING_BYTES_OF_ONE: Final = _WAITING_BYTES // 2
#: What is taken in at once may become so much, decoded.
_BECOMES_BYTES: Final = 16 * MIB
#: What has waited longer is refused, as where it waits for a worker.
_LONGEST_WAIT_S: Final = 10.0
#: So many values, given or null, are taken in at once, which takes some tens of milliseconds: an empty row
#: has few bytes, and as many values as the dataset has features.
_BATCH_CELLS: Final = 1_000_000


@dataclass(eq=False, slots=True)
class SmallAppend:
    """One append that is to be stored with others.

    Attributes:
        request: what to do; it `may_be_grouped`, and its form is JSON.
        body: all of it.
        outcome: the answer; None where `append_rows` has to be asked, and nothing is stored.
        cells: at most so many values are in its rows.
        since: when it came.
    """

    request: AppendRequest
    body: bytes
    outcome: Future[Appended | None] = field(default_factory=Future)
    cells: int = 0
    since: float = field(default_factory=lambda: time.monotonic())


@dataclass(slots=True)
class _Queue:
    """What waits for one dataset."""

    appends: deque[SmallAppend] = field(default_factory=deque)
    num_bytes: int = 0


class SmallAppends:
    """Takes in small appends of JSON rows to datasets that are known here.

    Args:
        datasets: where to.
        limits: of what is decoded at once.
        spool: for what has to be done once more.
    """

    def __init__(self, datasets: Datasets, limits: Limits, spool: Spool) -> None:
        self._datasets = datasets
        self._limits = limits
        self._spool = spool
        self._pool = ThreadPoolExecutor(1, "small-appends")
        self._lock = threading.Lock()
        #: By dataset; the first is the next.
        self._waiting: dict[str, _Queue] = {}
        self._num_bytes = 0
        self._running = False

    def close(self) -> None:
        """Take in what waits, and nothing more."""
        self._pool.shutdown()

    def add(self, append: SmallAppend) -> bool:
        """Take in `append`, a moment later.

        False where it may take long, too much is waiting, or the dataset is not known.
        """
        dataset, size = append.request.dataset, len(append.body)
        destination = self._datasets.remembered(dataset)
        if destination is None or destination.schema is None:
            return False
        append.cells = append.body.count(b"{") * len(destination.schema)
        if append.cells > _BATCH_CELLS:
            return False
        with self._lock:
            queue = self._waiting.get(dataset) or _Queue()
            if self._num_bytes + size > _WAITING_BYTES or queue.num_bytes + size > _WAITING_BYTES_OF_ONE:
                return False
            self._waiting[dataset] = queue
            queue.appends.append(append)
            queue.num_bytes += size
            self._num_bytes += size
            if not self._running:
                self._pool.submit(self._run)
                self._running = True
        return True

    def is_quick(self, dataset: str, body: bytes) -> bool:
        """Whether the rows of a small body, in any form, are read in a moment."""
        destination = self._datasets.remembered(dataset)
        if destination is not None and destination.schema is not None:
            num_features = len(destination.schema)
        else:
            num_features = body.count(b":") + body.count(b",") + 1
        is_text = b"\0" not in body
        # A record of TFRecord takes 16 bytes at least.
        rows = 1 + max(map(body.count, (b"{", b"\n", b","))) if is_text else len(body) // 16
        return rows * num_features <= _BATCH_CELLS

    def _run(self) -> None:
        while batch := self._next_batch():
            not_before = time.monotonic() - _LONGEST_WAIT_S
            for append in batch:
                if append.since < not_before:
                    message = "The service is too busy; this append is not stored. Try again."
                    append.outcome.set_exception(Overloaded(message))
            if in_time := [append for append in batch if append.since >= not_before]:
                self._take_in(in_time)

    def _next_batch(self) -> list[SmallAppend]:
        """What waits for the next dataset, in one way first, as far as it may be taken in at once."""
        with self._lock:
            if not self._waiting:
                self._running = False
                return []
            dataset = next(iter(self._waiting))
            queue = self._waiting.pop(dataset)
            batch: list[SmallAppend] = []
            rest: deque[SmallAppend] = deque()
            num_bytes = cells = 0
            for append in queue.appends:
                if not batch or (
                    append.request == batch[0].request
                    and num_bytes < _BATCH_BYTES
                    and cells + append.cells <= _BATCH_CELLS
                ):
                    batch.append(append)
                    num_bytes += len(append.body)
                    cells += append.cells
                else:
                    rest.append(append)
            self._num_bytes -= num_bytes
            if rest:  # after all others
                self._waiting[dataset] = _Queue(rest, queue.num_bytes - num_bytes)
        return batch

    def _take_in(self, batch: Sequence[SmallAppend]) -> None:
        try:
            self._take_in_together(batch)
        except BaseException as error:  # carried to those who wait
            for append in batch:
                if not append.outcome.done():
                    append.outcome.set_exception(error)

    def _take_in_together(self, batch: Sequence[SmallAppend]) -> None:
        destination = self._datasets.remembered(batch[0].request.dataset)
        members = None if destination is None else self._encoded(batch, destination)
        if destination is None or (members is None and len(batch) == 1):
            for append in batch:
                append.outcome.set_result(None)
        elif members is None:
            for append in batch:
                self._take_in([append])
        else:
            for append, member in zip(batch, members, strict=True):
                self._join(append, member, destination)

    def _encoded(self, batch: Sequence[SmallAppend], destination: Destination) -> list[Member] | None:
        """The framed records of each; None where there is something to say against one of them."""
        request = batch[0].request
        # What becomes more than this would keep others waiting; it goes the ordinary way.
        budget = Budget(self._limits, amplification=Amplification(0, int, allowance=_BECOMES_BYTES))
        options = replace(request.decode, schema=destination.schema, schema_of_dataset=True)
        try:
            records, counts = decode_bodies([append.body for append in batch], options, budget)
            large = LargeIntegers(records.schema, destination.schema)
            records = replace(records, batches=large.watch(bounded(records.batches, budget)))
            rounded = RoundedFeatures(with_rows=True)
            encode = replace(request.encode, compression="none", rounded=rounded)
            blocks = list(encode_messages(records, encode, budget))
        except Exception as error:
            # Nothing is stored yet: by itself, one that meets a defect fails for itself.
            if len(batch) > 1 or isinstance(error, InputError):
                return None
            raise
        if large.found:
            return None  # which the dataset's schema has to say first
        data = b"".join(block.data for block in blocks)
        ends = find_frames(np.frombuffer(data, np.uint8), sum(counts))
        rows = [0, *accumulate(counts)]
        offsets = [int(ends[row - 1]) if row else 0 for row in rows]
        return [
            Member(data[begin:end], last - first, tuple(rounded.names_between(first, last)))
            for (begin, end), (first, last) in zip(pairwise(offsets), pairwise(rows), strict=True)
        ]

    def _join(self, append: SmallAppend, member: Member, destination: Destination) -> None:
        joined = self._datasets.join(destination, append.request.split, member)
        if joined is None:
            append.outcome.set_result(None)
        else:
            joined.add_done_callback(partial(self._joined, append))

    def _joined(self, append: SmallAppend, done: Future[AppendResult]) -> None:
        """In the thread that stored the group."""
        error = done.exception()
        if error is None:
            append.outcome.set_result(stored_answer(done.result()))
        elif isinstance(error, Outdated):
            self._again(append)
        else:
            append.outcome.set_exception(error)

    def _again(self, append: SmallAppend) -> None:
        """The dataset is not what it was taken for: by what is true now."""
        try:
            with ExitStack() as resources:
                again = append_rows(
                    self._datasets,
                    append.request,
                    MemoryStream(append.body),
                    str,  # asked for only where there is a key
                    _budget(append, self._limits),
                    self._spool,
                    resources,
                )
        except ShardsmithError as error:
            append.outcome.set_exception(error)
        else:
            again.add_done_callback(lambda done: settle(append.outcome, done.result))


def _budget(append: SmallAppend, limits: Limits) -> Budget:
    return Budget(limits, amplification=Amplification(limits.max_amplification, lambda: len(append.body)))
