"""One message as base64 in JSON, `{"b64": ...}`: the form in which TensorFlow Serving takes bytes."""

from __future__ import annotations

from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from ..columns import Records
from ..json.b64 import decode_b64
from ..json.text import parse_json
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .b64_messages import message_texts, read_messages
from .example import parse_example, serialize_example

__all__ = ["parse_example_b64", "serialize_example_b64"]


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
            f"{len(messages)} messages, but this route takes one; send them to /v1/records instead.",
            code="not_one_row",
        )
    return parse_example(decode_b64(messages[0][1]), options, budget)
