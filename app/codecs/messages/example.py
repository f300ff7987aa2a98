"""One bare `tf.train.Example` or `SequenceExample`, one row without a frame; also as base64."""

from __future__ import annotations

import numpy as np

from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from ..columns import Records
from ..json.b64 import decode_b64
from ..json.text import parse_json
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .b64 import message_texts, read_messages
from .framing import HEADER_BYTES, OVERHEAD_BYTES, FrameBlock
from .messages import encode_messages, parse_messages


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


def serialize_example_b64(records: Records, options: RecordsEncodeOptions, budget: Budget) -> bytes:
    """`{"b64": ...}` of the one row.

    Raises:
        InputError: as `serialize_example`.
    """
    message = serialize_example(records, options, budget)
    return "".join(message_texts([(message,)], options.b64)).encode()


def parse_example_b64(data: Buffer, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The one row that the message in `{"b64": ...}` holds.

    Raises:
        AmbiguousInput: not of that form.
        UnprocessableInput: several messages.
        MalformedInput: not JSON, not base64, or no such message.
    """
    messages = read_messages(parse_json(bytes(data), budget).value)
    if len(messages) != 1:
        raise UnprocessableInput(
            f"{len(messages)} messages, but one row is expected here. Convert them as records instead.",
            code="not_one_row",
        )
    return parse_example(decode_b64(messages[0][1]), options, budget)
