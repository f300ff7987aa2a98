"""The rows that a plan keeps: read, verified, put in order; and decoded."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ....codecs.columns import Batch
from ....codecs.messages.frame_order import pick_frames, shuffle_frames
from ....codecs.messages.framing import FrameBlock, iter_frames
from ....codecs.messages.messages import parse_messages
from ....codecs.options import RecordsDecodeOptions
from ....domain.schema import Schema
from ....domain.sharding.row_order import RowOrder
from ....errors import CorruptData, MalformedInput, UnprocessableInput
from ....runtime.budget import Budget
from ....storage.object_store import ObjectStore
from ..pieces.stream import STORED_LIMITS, PieceStream, held_while_read
from .row_plan import Kept, RowPlan


def read_frames(
    plan: RowPlan, order: RowOrder, store: ObjectStore, pool: ThreadPoolExecutor, budget: Budget
) -> Iterator[FrameBlock]:
    """The records of `plan`, in `order`.

    Raises, as they are drawn:
        CorruptData: the stored rows do not match their checksums, or are fewer than were counted.
        LimitExceeded: the shuffle buffer takes more than the budget has.

    Raises:
        Overloaded: no memory to read them ahead; nothing was done.
    """
    budget.reserve(held_while_read(plan.pieces()))
    stream = PieceStream(store, plan.pieces(), pool)
    frames = _keep(iter_frames(stream, budget.anew(STORED_LIMITS), compression="none"), plan.kept())
    if plan.windows is None:
        return pick_frames(frames, plan.part, budget)
    return shuffle_frames(frames, order, plan.windows, plan.part, budget)


def _keep(frames: Iterator[FrameBlock], wanted: Iterator[Kept]) -> Iterator[FrameBlock]:
    """Of the records in `frames` those that are wanted, all of them, with the numbers of their rows."""
    taken = next(wanted)
    for block in frames:
        passed, end = block.first_record, block.first_record + block.num_records
        while taken.begin < end:
            first = max(taken.begin, passed)
            part = block.part(first - passed, min(taken.end, end) - passed)
            yield replace(part, first_record=taken.row + first - taken.begin)
            if taken.end > end:
                break
            following = next(wanted, None)
            if following is None:
                return
            taken = following
    raise CorruptData("The stored shards hold fewer rows than their manifest says.")


def parse_stored(frames: Iterator[FrameBlock], schema: Schema, budget: Budget) -> Iterator[Batch]:
    """Stored records as rows.

    Raises:
        CorruptData: they cannot be read.
    """
    try:
        yield from parse_messages(frames, RecordsDecodeOptions(schema=schema), budget).batches
    except (MalformedInput, UnprocessableInput) as error:
        raise CorruptData(f"The stored rows cannot be read: {error.detail}") from error
