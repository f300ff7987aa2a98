"""One bare `tf.train.Example` or `SequenceExample`: a row without TFRecord's frame."""

from __future__ import annotations

import numpy as np

from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from ..columns import Records
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .framing import HEADER_BYTES, OVERHEAD_BYTES, FrameBlock
from .messages import encode_messages, parse_messages

__all__ = ["parse_example", "serialize_example"]


def serialize_example(records: Records, options: RecordsEncodeOptions, budget: Budget) -> bytes:
    """The one row as `SerializeToString(deterministic=True)` gives it.

    Raises:
        UnprocessableInput: not exactly one row (`not_one_row`).
        InputError: as `encode_messages`.
    """
    message: bytes | None = None
    for block in encode_messages(records, options, budget):
        if message is not None or block.num_records != 1:
            raise _not_one_row("more than one row")
        message = bytes(block.data[HEADER_BYTES : HEADER_BYTES - OVERHEAD_BYTES])
    if message is None:
        raise _not_one_row("no row")
    return message


def _not_one_row(found: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"A message holds exactly one row, but there is {found}. Ask for TFRecord instead.",
        code="not_one_row",
    )


def parse_example(data: Buffer, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The one row of a message; its offsets count from the message's first byte.

    Raises:
        InputError: as `parse_messages`.
    """
    view = memoryview(data).cast("B").toreadonly()
    frame = FrameBlock(view, np.zeros(1, np.int64), np.array([len(view)], np.int64), 0, 0)
    return parse_messages(iter((frame,)), options, budget)
