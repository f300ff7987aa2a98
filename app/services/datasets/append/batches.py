"""Small appends of JSON rows as they arrive: what waits together is decoded and encoded together.

A row costs little, but preparing to read rows does. So one thread takes whatever has arrived while it was
busy, decodes it as one body, and parts the records again. What cannot be taken in like that, because it is
refused or large, is left to `Appends.append`: one append never spoils another. Datasets take turns.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
from ....errors import InputError, Overloaded
from ....runtime.amplification import Amplification
from ....runtime.budget import Budget
from ....tracing import Mark, mark, shared_span, stage
from ...convert.records import bound_batches
from ...deferred import settle
from ..objects.catalog import Catalog
from ..objects.incarnation import Destination
from .groups import Member
from .request import AppendRequest
from .result import AppendResult

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

#: Told what gives the result of an append.
Tell = Callable[[Callable[[], AppendResult]], None]
#: Stores one body as a member of a group; false if it has to go its own way, and nothing is stored.
StoreMember = Callable[[AppendRequest, bytes, Destination, Member, Tell], bool]


@dataclass(eq=False, slots=True)
class _Waiting:
    """One append that is to be decoded with others.

    Attributes:
        cells: at most so many values are in its rows.
        outcome: None if `Appends.append` has to be asked, and nothing is stored.
        since: when it came.
        mark: of the request.
    """

    request: AppendRequest
    body: bytes
    cells: int
    outcome: Future[AppendResult | None] = field(default_factory=Future)
    since: float = field(default_factory=lambda: time.monotonic())
    mark: Mark = field(default_factory=mark)


@dataclass(slots=True)
class _Queue:
    """What waits for one dataset."""

    appends: deque[_Waiting] = field(default_factory=deque)
    num_bytes: int = 0


class Batches:
    """Takes in small appends of JSON rows to datasets that are known here. Safe to use from several threads.

    Args:
        catalog: remembers datasets.
        limits: of what is decoded at once.
        store_member: stores what was decoded.
    """

    def __init__(self, catalog: Catalog, limits: Limits, store_member: StoreMember) -> None:
        self._catalog = catalog
        self._limits = limits
        self._store_member = store_member
        self._pool = ThreadPoolExecutor(1, "small-appends")
        self._lock = threading.Lock()
        #: By dataset; the first is the next.
        self._waiting: dict[str, _Queue] = {}
        self._num_bytes = 0
        self._running = False

    def close(self) -> None:
        """Take in what waits, and nothing more."""
        self._pool.shutdown()

    def add(self, request: AppendRequest, body: bytes) -> Future[AppendResult | None] | None:
        """Take in an append, a moment later.

        None if it may take long, too much is waiting, or the dataset is not known here. None as the result
        if it has to go its own way.

        Args:
            request: one that `may_be_grouped`, of JSON.
            body: all of it.
        """
        destination = self._catalog.remembered(request.dataset)
        if destination is None or destination.schema is None:
            return None
        append = _Waiting(request, body, body.count(b"{") * len(destination.schema))
        if append.cells > _BATCH_CELLS:
            return None
        dataset, size = request.dataset, len(body)
        with self._lock:
            queue = self._waiting.get(dataset) or _Queue()
            if self._num_bytes + size > _WAITING_BYTES or queue.num_bytes + size > _WAITING_BYTES_OF_ONE:
                return None
            self._waiting[dataset] = queue
            queue.appends.append(append)
            queue.num_bytes += size
            self._num_bytes += size
            if not self._running:
                self._pool.submit(self._run)
                self._running = True
        return append.outcome

    def _run(self) -> None:
        while batch := self._next_batch():
            not_before = time.monotonic() - _LONGEST_WAIT_S
            for append in batch:
                if append.since < not_before:
                    message = "The service is too busy; this append is not stored. Try again."
                    append.outcome.set_exception(Overloaded(message, short="threads"))
            if in_time := [append for append in batch if append.since >= not_before]:
                self._take_in(in_time)

    def _next_batch(self) -> list[_Waiting]:
        """What waits for the next dataset, in one way first, as far as it may be taken in at once."""
        with self._lock:
            if not self._waiting:
                self._running = False
                return []
            dataset = next(iter(self._waiting))
            queue = self._waiting.pop(dataset)
            batch: list[_Waiting] = []
            rest: deque[_Waiting] = deque()
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

    def _take_in(self, batch: Sequence[_Waiting]) -> None:
        try:
            self._take_in_together(batch)
        except BaseException as error:  # carried to those who wait
            for append in batch:
                if not append.outcome.done():
                    append.outcome.set_exception(error)

    def _take_in_together(self, batch: Sequence[_Waiting]) -> None:
        destination = self._catalog.remembered(batch[0].request.dataset)
        if destination is not None and destination.schema is not None and destination.schema.is_transformed:
            destination = None  # transforms may wait for other processes
        with shared_span("decode appends", [append.mark for append in batch]):
            members = None if destination is None else self._encoded(batch, destination)
        if destination is None or (members is None and len(batch) == 1):
            for append in batch:
                append.outcome.set_result(None)
        elif members is None:
            for append in batch:
                self._take_in([append])
        else:
            for append, member in zip(batch, members, strict=True):
                self._store(append, member, destination)

    def _encoded(self, batch: Sequence[_Waiting], destination: Destination) -> list[Member] | None:
        """The framed records of each; None if one of them is refused."""
        request = batch[0].request
        # What becomes more than this would keep others waiting; it goes the ordinary way.
        budget = Budget(self._limits, amplification=Amplification(0, int, allowance=_BECOMES_BYTES))
        options = replace(request.decode, schema=destination.schema, schema_of_dataset=True)
        try:
            with stage("decode", "json") as decoding:
                records, counts = decode_bodies([append.body for append in batch], options, budget)
            large = LargeIntegers(records.schema, destination.schema)
            batches = decoding.drawn(bound_batches(records.batches, budget))
            records = replace(records, batches=large.watch(batches))
            rounded = RoundedFeatures(with_rows=True)
            encode = replace(request.encode, compression="none", rounded=rounded)
            with stage("encode", "tfrecord") as encoding:
                blocks = list(encode_messages(records, encode, budget))
                encoding.count(sum(counts), sum(len(block.data) for block in blocks))
            with decoding:
                decoding.count(sum(counts), sum(len(append.body) for append in batch))
        except Exception as error:
            # Nothing is stored yet: by itself, one that meets a defect fails for itself.
            if len(batch) > 1 or isinstance(error, InputError):
                return None
            raise
        if large.found or records.dropped:
            return None  # the schema changes, or the answers differ
        data = b"".join(block.data for block in blocks)
        ends = find_frames(np.frombuffer(data, np.uint8), sum(counts))
        rows = [0, *accumulate(counts)]
        offsets = [int(ends[row - 1]) if row else 0 for row in rows]
        return [
            Member(data[begin:end], last - first, tuple(rounded.names_between(first, last)), mark=append.mark)
            for append, (begin, end), (first, last) in zip(
                batch, pairwise(offsets), pairwise(rows), strict=True
            )
        ]

    def _store(self, append: _Waiting, member: Member, destination: Destination) -> None:
        tell = partial(settle, append.outcome)
        if not self._store_member(append.request, append.body, destination, member, tell):
            append.outcome.set_result(None)
