"""The records of one shard, in order: found among the pieces of its split, verified, and cut out."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...codecs.records.framing import FrameBlock, iter_frames
from ...domain.limits import Budget
from ...domain.shard_plan import ShardPlan
from ...errors import CorruptData, MalformedInput
from ...storage.object_store import ObjectStore
from .pieces import PieceStream, SplitPieces, StoredPiece

__all__ = ["RecordRun", "ShardSource"]

#: A frame's last checksum.
_FOOTER_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Whole framed records, one after the other; record i ends before byte `ends[i]` of `data`."""

    data: memoryview
    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ShardSource:
    """Where a shard's records lie: in `pieces`, after the first `skip` records, `take` of them."""

    pieces: tuple[StoredPiece, ...]
    skip: int
    take: int

    @classmethod
    def of(cls, plan: ShardPlan, split: SplitPieces) -> ShardSource:
        """What `plan` takes of the records of its split."""
        pieces, skip = split.covering(plan.start, plan.stop)
        return cls(tuple(pieces), skip, plan.num_records)

    def runs(
        self, store: ObjectStore, budget: Budget, pool: ThreadPoolExecutor | None = None
    ) -> Iterator[RecordRun]:
        """The shard's records and no others.

        Raises:
            LostData: an input is missing or does not match its checksum.
            CorruptData: an input holds other records than were counted, or none.
        """
        skip, left = self.skip, self.take
        try:
            stream = PieceStream(store, self.pieces, pool)
            for block in iter_frames(stream, budget, compression="none"):
                first, stop = min(skip, block.num_records), min(skip + left, block.num_records)
                skip -= first
                left -= stop - first
                if first < stop:
                    ends = block.starts[first:stop] + block.sizes[first:stop] + _FOOTER_BYTES
                    begin = (
                        int(block.starts[first - 1] + block.sizes[first - 1]) + _FOOTER_BYTES if first else 0
                    )
                    yield RecordRun(block.data[begin : int(ends[-1])], ends - begin)
                if not left:
                    break
        except MalformedInput as error:
            raise CorruptData(f"The records for a shard cannot be read: {error.detail}") from error
        if left:
            raise CorruptData(f"The inputs of a shard hold {left} records fewer than were counted.")


def _run(block: FrameBlock, first: int, stop: int) -> RecordRun:
    """The records `first` to `stop` of a block."""
    all_ends = block.starts[:stop] + block.sizes[:stop] + _FOOTER_BYTES
    begin = int(all_ends[first - 1]) if first else 0
    ends = all_ends[first:]
    return RecordRun(block.data[begin : int(ends[-1])], ends - begin)
