"""The rows of a split, or of several in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ....codecs.columns import Records
from ....codecs.messages.frame_order import mix_frames
from ....codecs.messages.framing import FrameBlock
from ....domain.schema import Schema
from ....domain.sharding.mixture import MixedPart, Mixture
from ....domain.sharding.row_order import Part, RowOrder
from ....errors import UnprocessableInput
from ....runtime.budget import Budget
from ....storage.object_store import ObjectStore
from ..pieces.pieces import SplitPieces
from .row_plan import plan_rows
from .rows import parse_stored, read_frames


@dataclass(frozen=True, slots=True)
class StoredSplit:
    """A split of a published version.

    Attributes:
        schema: of its rows.
        num_records: how many there are.
        pieces: where they lie; asks the store.
    """

    schema: Schema
    num_records: int
    pieces: Callable[[], SplitPieces]
    store: ObjectStore
    pool: ThreadPoolExecutor

    def read(self, offset: int, length: int | None, order: RowOrder, budget: Budget) -> Records:
        """The rows `offset` to `offset + length`, across shards, as `order` says.

        Raises:
            UnprocessableInput: a negative offset or length (`invalid_range`).
            CorruptData: the stored rows do not match their checksums; also as batches are drawn.
        """
        if offset < 0 or (length is not None and length < 0):
            raise UnprocessableInput("offset and length must not be negative.", code="invalid_range")
        stop = self.num_records if length is None else min(self.num_records, offset + length)
        part = order.part(max(0, stop - offset))
        if not part.num_rows:
            return Records(self.schema, iter(()), 0)
        frames = self.frames(offset, stop, order, part, budget)
        return Records(self.schema, parse_stored(frames, self.schema, budget), part.num_rows)

    def frames(
        self, start: int, stop: int, order: RowOrder, part: Part | MixedPart, budget: Budget
    ) -> Iterator[FrameBlock]:
        """The records of `part`, which has some, of the rows `start` to `stop` in `order`."""
        plan = plan_rows(self.pieces(), start, stop, order, part)
        return read_frames(plan, order, self.store, self.pool, budget)


def read_mixture(
    splits: Sequence[StoredSplit], weights: Sequence[int], order: RowOrder, budget: Budget
) -> Records:
    """The rows of several splits in turns, until one that has its turn has no more rows.

    Args:
        splits: each in `order` by itself.
        weights: how many rows of each come in a round.

    Raises:
        UnprocessableInput: their features differ (`mixed_schemas`).
        CorruptData: the stored rows do not match their checksums; also as batches are drawn.
    """
    schema = splits[0].schema
    if any(split.schema != schema for split in splits):
        raise UnprocessableInput(
            "The features of what is to be mixed differ. Mix splits whose versions have the same schema.",
            code="mixed_schemas",
        )
    mixture = Mixture(tuple(weights))
    whole = order.part(mixture.num_places([split.num_records for split in splits]))
    sources: list[Iterator[FrameBlock]] = []
    for number, split in enumerate(splits):
        part = MixedPart(mixture, number, whole)
        has_rows = part.num_rows > 0
        sources.append(split.frames(0, split.num_records, order, part, budget) if has_rows else iter(()))
    frames = mix_frames(sources, mixture.iter_turns(whole), budget)
    return Records(schema, parse_stored(frames, schema, budget), whole.num_rows)
