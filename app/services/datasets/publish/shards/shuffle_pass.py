"""One pass of a shuffle over its inputs: what is bound for some buckets, on the spool and back in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .....codecs.messages.frames import find_frames, gather_frames
from .....domain.limits import MIB
from .....domain.sharding.permutation import Permutation
from .....errors import MalformedInput, SpoolUnavailable
from .....runtime.budget import Budget
from .....runtime.spool import SpoolFile
from .source import RecordRun

#: What is ordered in memory at a time, going to the spool.
_BATCH_BYTES: Final = 16 * MIB
#: Of small records, their places and offsets take more than they do: 2 MiB an array.
BATCH_RECORDS: Final = 256 * 1024
#: Places are computed for so many records at a time.
_PLACES: Final = 64 * 1024
#: What is handed on at a time.
_RUN_BYTES: Final = 1 * MIB

_Ints = NDArray[np.int64]
_Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Bucket:
    """The places `start` to `stop` of the split."""

    start: int
    stop: int


class Pass:
    """One reading of the inputs: what of them is bound for `buckets`, on the spool.

    `_first_numbers` has the number of the first record of each batch, `_slices` where in the file its
    slices begin, one a bucket, and end.
    """

    def __init__(self, permutation: Permutation, buckets: Sequence[Bucket], file: SpoolFile) -> None:
        self.buckets = {bucket: index for index, bucket in enumerate(buckets)}
        self._permutation = permutation
        self._starts = np.array([bucket.start for bucket in buckets], np.int64)
        self._stops = np.array([bucket.stop for bucket in buckets], np.int64)
        self._file = file
        self._first_numbers: list[int] = []
        self._slices: list[_Ints] = []
        self._known_from = 0
        self._known = np.empty(0, np.int64)

    def close(self) -> None:
        """Free the room on the spool."""
        self._file.close()

    def scatter(self, runs: Iterator[RecordRun], budget: Budget) -> None:
        """Take from all records of the split those of these buckets."""
        batch = _Batch(0)
        budget.charge(2 * _BATCH_BYTES, "The records to be shuffled")
        gathered, ordered = np.empty(_BATCH_BYTES, np.uint8), np.empty(_BATCH_BYTES, np.uint8)
        number = 0
        for run in runs:
            kept = self._kept(run, number)
            if not batch.has_room(kept):
                self._flush(batch, gathered, ordered)
                batch = _Batch(number)
            if kept.num_bytes > len(gathered):  # a large record
                budget.charge(2 * kept.num_bytes, "A record to be shuffled")
                alone = _Batch(number)
                alone.add(kept, large := np.empty(kept.num_bytes, np.uint8))
                self._flush(alone, large, np.empty(kept.num_bytes, np.uint8))
                budget.release(2 * kept.num_bytes)
                batch = _Batch(number + len(run.ends))
            else:
                batch.add(kept, gathered)
            number += len(run.ends)
        self._flush(batch, gathered, ordered)
        budget.release(2 * _BATCH_BYTES)

    def _kept(self, run: RecordRun, number: int) -> _Kept:
        """The records of `run`, the first of which is the record `number`, that these buckets take."""
        places = self._places(number, number + len(run.ends))
        begins = np.concatenate(([0], run.ends[:-1]))
        bucket = np.searchsorted(self._starts, places, side="right") - 1
        mask = (bucket >= 0) & (places < self._stops[bucket])
        data = np.frombuffer(run.data, np.uint8)
        if mask.all():
            return _Kept(data, begins, run.ends, places)
        return _Kept(data, begins[mask], run.ends[mask], places[mask])

    def _places(self, start: int, stop: int) -> _Ints:
        """Where the records `start` to `stop` are bound; computed for many at a time, which is faster."""
        if start < self._known_from or stop > self._known_from + len(self._known):
            self._known_from = start
            ahead = min(self._permutation.size, max(stop, start + _PLACES))
            self._known = self._permutation.positions(np.arange(start, ahead))
        return self._known[start - self._known_from : stop - self._known_from]

    def _flush(self, batch: _Batch, gathered: _Bytes, ordered: _Bytes) -> None:
        """Write a batch, ordered by place, and note where each bucket's slice begins."""
        self._first_numbers.append(batch.first_number)
        places, sizes = batch.places, batch.sizes
        order = np.argsort(places)
        ends = np.cumsum(sizes)
        num_bytes = gather_frames(gathered, (ends - sizes)[order], ends[order], ordered)
        offset = self._file.append(ordered.data[:num_bytes])
        offsets = np.concatenate(([0], np.cumsum(sizes[order])))
        first = np.searchsorted(places[order], self._starts)
        self._slices.append(offset + np.append(offsets[first], num_bytes))

    def read(self, bucket: Bucket, budget: Budget) -> Iterator[RecordRun]:
        """The records of a bucket in their order.

        Raises:
            SpoolUnavailable: the spool gives back something else than was written to it.
        """
        index = self.buckets[bucket]
        spans = [(int(slices[index]), int(slices[index + 1])) for slices in self._slices]
        num_bytes = sum(end - begin for begin, end in spans)
        budget.charge(num_bytes, "Records in a new order")
        data = np.empty(num_bytes, np.uint8)
        at = 0
        for begin, end in spans:
            data[at : at + end - begin] = np.frombuffer(self._file.read_at(begin, end - begin), np.uint8)
            at += end - begin
        try:
            ends = find_frames(data, bucket.stop - bucket.start)
        except MalformedInput as error:
            raise SpoolUnavailable(f"The spool gave back other bytes: {error.detail}") from error
        order = self._order(bucket)
        begins = np.concatenate(([0], ends[:-1]))[order]
        yield from _reorder(data, begins, ends[order], budget)
        budget.release(num_bytes)

    def _order(self, bucket: Bucket) -> _Ints:
        """Of each place, which of the records it takes, as they lie in the bucket's slices.

        There they are ordered by batch, and within a batch by place.
        """
        numbers = self._permutation.numbers(np.arange(bucket.start, bucket.stop))
        batches = np.searchsorted(np.array(self._first_numbers), numbers, side="right")
        places = np.argsort(batches, kind="stable")
        order = np.empty(len(places), np.int64)
        order[places] = np.arange(len(places))
        return order


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """Some records of a run, and the places they are bound for."""

    data: _Bytes
    begins: _Ints
    ends: _Ints
    places: _Ints

    @property
    def num_bytes(self) -> int:
        return int((self.ends - self.begins).sum())


@dataclass(slots=True)
class _Batch:
    """What is gathered of the records from `first_number` on."""

    first_number: int
    num_bytes: int = 0
    num_records: int = 0
    _places: list[_Ints] = field(default_factory=list)
    _sizes: list[_Ints] = field(default_factory=list)

    def has_room(self, kept: _Kept) -> bool:
        return (
            self.num_bytes + kept.num_bytes <= _BATCH_BYTES
            and self.num_records + len(kept.places) <= BATCH_RECORDS
        )

    def add(self, kept: _Kept, gathered: _Bytes) -> None:
        self.num_bytes += gather_frames(kept.data, kept.begins, kept.ends, gathered[self.num_bytes :])
        self.num_records += len(kept.places)
        self._places.append(kept.places)
        self._sizes.append(kept.ends - kept.begins)

    @property
    def places(self) -> _Ints:
        return _concatenate(self._places)

    @property
    def sizes(self) -> _Ints:
        return _concatenate(self._sizes)


def _concatenate(arrays: Sequence[_Ints]) -> _Ints:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def _reorder(data: _Bytes, begins: _Ints, ends: _Ints, budget: Budget) -> Iterator[RecordRun]:
    """The records from `begins` to `ends`, in runs of about `_RUN_BYTES`."""
    totals = np.cumsum(ends - begins).tolist()
    first, before = 0, 0
    while first < len(totals):
        stop = max(first + 1, bisect_right(totals, before + _RUN_BYTES, lo=first))
        num_bytes = totals[stop - 1] - before
        budget.charge(num_bytes, "Records in a new order")
        out = np.empty(num_bytes, np.uint8)
        gather_frames(data, begins[first:stop], ends[first:stop], out)
        run_ends = np.array(totals[first:stop], np.int64) - before
        yield RecordRun(out.data.toreadonly(), run_ends)
        budget.release(num_bytes)
        first, before = stop, totals[stop - 1]
