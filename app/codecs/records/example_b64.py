"""One Example as base64 in JSON, `{"b64": ...}`: the form in which TensorFlow Serving takes bytes."""

from __future__ import annotations

from ...domain.limits import Budget
from ...domain.streams import Buffer
from ...errors import AmbiguousInput
from ..json_convert import decode_b64
from ..json_out import b64_text
from ..json_text import parse_json
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .columns import Records
from .example import parse_example, serialize_example

__all__ = ["parse_example_b64", "serialize_example_b64"]


def serialize_example_b64(records: Records, options: RecordsEncodeOptions, budget: Budget) -> bytes:
    """`{"b64": ...}` of the one row.

    Raises:
        InputError: as `serialize_example`.
    """
    digits = "".join(b64_text([serialize_example(records, options, budget)]))
    return f'{{"b64": "{digits}"}}\n'.encode()


def parse_example_b64(data: Buffer, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The one row that the message in `{"b64": ...}` holds.

    Raises:
        AmbiguousInput: not of that form.
        MalformedInput: not JSON, not base64, or not an Example.
    """
    body = parse_json(bytes(data), budget).value
    if not isinstance(body, dict) or body.keys() != {"b64"}:
        raise AmbiguousInput('One serialized Example is sent as {"b64": "..."}.')
    return parse_example(decode_b64(body["b64"]), options, budget)
