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
    """The one row that there is, as `SerializeToString(deterministic=True)` gives it.

    Raises:
        LossyConversion: a value that a FloatList would change too much.
        UnprocessableInput: a row of 2 GiB or more (`example_too_large`).
    """
    (message,) = (
        bytes(block.data[HEADER_BYTES : HEADER_BYTES - OVERHEAD_BYTES])
        for block in encode_messages(records, options, budget)
    )
    return message


def parse_example(data: Buffer, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The one row of a message; its offsets count from the message's first byte.

    Raises:
        InputError: no such message, or values that do not fit the schema; see `parse_frames`.
    """
    view = memoryview(data).cast("B").toreadonly()
    frame = FrameBlock(view, np.zeros(1, np.int64), np.array([len(view)], np.int64), 0, 0)
    return parse_messages(iter((frame,)), options, budget)


def serialize_example_b64(records: Records, options: RecordsEncodeOptions, budget: Budget) -> bytes:
    """`{"b64": ...}` of the one row.

    Raises:
        LossyConversion: a value that a FloatList would change too much.
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
