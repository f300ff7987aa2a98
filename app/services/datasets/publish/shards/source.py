"""The records of one shard, in order: found among the pieces of its split, verified, and cut out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .....codecs.messages.framing import FrameBlock, iter_frames
from .....domain.sharding.shard_plan import ShardPlan, record_offsets
from .....errors import CorruptData, MalformedInput
from .....runtime.budget import Budget
from .....runtime.buffer_pool import BufferPool
from .....storage.object_store import ObjectStore
from ...pieces.pieces import SplitPieces, StoredPiece
from ...pieces.stream import PieceStream


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Whole framed records, one after the other; record i ends before byte `ends[i]` of `data`."""

    data: memoryview
    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PieceBlock:
    """Some of the records that begin in one piece.

    Attributes:
        index: of the piece among those that are read.
        first: number of the first of these records in the piece.
        block: the records.
    """

    index: int
    first: int
    block: FrameBlock


@dataclass(frozen=True, slots=True)
class ShardSource:
    """Where a shard's records lie: in `pieces`, after the first `skip` that count, `take` of them."""

    pieces: tuple[StoredPiece, ...]
    skip: int
    take: int

    @classmethod
    def of(cls, plan: ShardPlan, split: SplitPieces) -> ShardSource:
        """What `plan` takes of the records of its split."""
        if plan.start == plan.stop:
            return cls((), 0, 0)
        pieces, skip = split.covering(plan.start, plan.stop)
        return cls(tuple(pieces), skip, plan.num_records)

    def runs(
        self,
        store: ObjectStore,
        budget: Budget,
        pool: ThreadPoolExecutor | None = None,
        buffers: BufferPool | None = None,
    ) -> Iterator[RecordRun]:
        """The shard's records and no others.

        Raises:
            LostData: an input is missing or does not match its checksum.
            CorruptData: an input holds other records than were counted, or none.
        """
        skip, left = self.skip, self.take
        if left:
            for run in self._select(store, budget, pool, buffers):
                first, stop = min(skip, len(run.ends)), min(skip + left, len(run.ends))
                skip -= first
                left -= stop - first
                if first < stop:
                    yield _part(run, first, stop)
                if not left:
                    return
        if left:
            raise CorruptData(f"The inputs of a shard hold {left} records fewer than were counted.")

    def _select(
        self,
        store: ObjectStore,
        budget: Budget,
        pool: ThreadPoolExecutor | None,
        buffers: BufferPool | None,
    ) -> Iterator[RecordRun]:
        """Those records of the pieces that count."""
        if all(stored.taken is None for stored in self.pieces):
            for block in _frames(store, self.pieces, budget, pool, buffers):
                yield _run(block)
            return
        expected, index = 0, -1
        for found in iter_piece_blocks(store, self.pieces, budget, pool, buffers):
            taken = self.pieces[found.index].taken
            if found.index != index:
                _require_counted(expected)
                expected, index = self.pieces[found.index].num_records, found.index
            mask = None if taken is None else taken.mask(found.block, found.first)
            run = _run(found.block) if mask is None or mask.all() else _gather(found.block, mask)
            expected -= len(run.ends)
            if len(run.ends):
                yield run
        _require_counted(expected)


def iter_piece_blocks(
    store: ObjectStore,
    pieces: Sequence[StoredPiece],
    budget: Budget,
    pool: ThreadPoolExecutor | None = None,
    buffers: BufferPool | None = None,
) -> Iterator[PieceBlock]:
    """All records of `pieces`, each with the piece in which it begins.

    Raises:
        LostData: a piece is missing or does not match its checksum.
        CorruptData: the pieces hold other records than were counted.
    """
    offsets = np.array(record_offsets(stored.piece.num_records for stored in pieces), np.int64)
    for block in _frames(store, pieces, budget, pool, buffers):
        done = 0
        while done < block.num_records:
            record = block.first_record + done
            index = int(np.searchsorted(offsets, record, side="right")) - 1
            if index == len(pieces):
                raise CorruptData("The inputs of a shard hold more records than were counted.")
            stop = min(block.num_records, int(offsets[index + 1]) - block.first_record)
            yield PieceBlock(index, record - int(offsets[index]), block.part(done, stop))
            done = stop


def _frames(
    store: ObjectStore,
    pieces: Sequence[StoredPiece],
    budget: Budget,
    pool: ThreadPoolExecutor | None,
    buffers: BufferPool | None,
) -> Iterator[FrameBlock]:
    try:
        yield from iter_frames(PieceStream(store, pieces, pool, buffers), budget, compression="none")
    except MalformedInput as error:
        raise CorruptData(f"The records for a shard cannot be read: {error.detail}") from error


def _require_counted(missing: int) -> None:
    if missing:
        raise CorruptData("The inputs of a shard hold other rows of its split than were counted.")


def _run(block: FrameBlock) -> RecordRun:
    return RecordRun(block.data, block.ends)


def _part(run: RecordRun, first: int, stop: int) -> RecordRun:
    """The records `first` to `stop` of a run."""
    begin = int(run.ends[first - 1]) if first else 0
    return RecordRun(run.data[begin : int(run.ends[stop - 1])], run.ends[first:stop] - begin)


def _gather(block: FrameBlock, mask: NDArray[np.bool_]) -> RecordRun:
    """The records of a block that `mask` marks, moved together."""
    ends = block.ends
    lengths = np.diff(ends, prepend=0)
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    bounds = np.concatenate([[0], ends])[edges].tolist()
    data = b"".join(block.data[begin:end] for begin, end in zip(bounds[::2], bounds[1::2], strict=True))
    return RecordRun(memoryview(data), np.cumsum(lengths[mask], dtype=np.int64))
