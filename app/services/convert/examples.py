"""One row <-> one bare `tf.train.Example` or `SequenceExample`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from ...codecs.columns import Records
from ...codecs.forms import MEDIA_TYPES
from ...codecs.json.rows import read as records_json
from ...codecs.json.rows import write as write_rows
from ...codecs.messages import example
from ...codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ...runtime.workspace import Workspace
from ...tracing import stage
from .whole_bodies import whole_body

RowForm = Literal["json", "example", "b64"]

#: Form -> media types. A message has no media type of its own: here protobuf is one of the two messages.
ROW_FORMS: Final[dict[RowForm, tuple[str, ...]]] = {
    "json": MEDIA_TYPES["json"],
    "example": MEDIA_TYPES["tensorproto"],
    "b64": MEDIA_TYPES["b64"],
}

_READ: Final[dict[RowForm, Callable[[Buffer, RecordsDecodeOptions, Budget], Records]]] = {
    "json": records_json.parse_row,
    "example": example.parse_example,
    "b64": example.parse_example_b64,
}


_WRITE: Final[dict[RowForm, Callable[[Records, RecordsEncodeOptions, Budget], bytes]]] = {
    "json": write_rows.format_row,
    "example": example.serialize_example,
    "b64": example.serialize_example_b64,
}


def convert_row(
    source: ByteStream,
    input_form: RowForm,
    output_form: RowForm,
    decode: RecordsDecodeOptions,
    encode: RecordsEncodeOptions,
    workspace: Workspace,
    transform: Callable[[Records], Records] = lambda row: row,
) -> tuple[bytes, list[str]]:
    """The one row of `source` in another format, and the features that are left out, as of `Records`.

    `encode.rounded` has the features that were rounded.

    Args:
        workspace: closed by the caller.
        transform: what is done to the row in between.

    Raises:
        InputError: not one row of that form, or one that the output format does not hold.
        StorageFull: there is no room to spool it.
    """
    body = whole_body(source, workspace)
    with stage("decode", input_form, workspace.budget.received) as decoding:
        row = _READ[input_form](body.view(), decode, workspace.budget)
        decoding.count(1)
    row = replace(row, schema=row.schema.with_message(decode.message))
    row = transform(row)
    with stage("encode", output_form) as encoding:
        written = _WRITE[output_form](row, encode, workspace.budget)
        encoding.count(1, len(written))
    return written, row.dropped
