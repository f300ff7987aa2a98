"""TensorFlow Metadata's `schema.pbtxt`: a `tensorflow.metadata.v0.Schema` in protobuf's text format.

pbtxt_write.py and pbtxt_read.py say what becomes of each feature. With the notes (note.py) every schema of
ours comes back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...domain.feature import Feature
from ...domain.limits import Limits
from ...domain.schema import Schema
from ...errors import MalformedInput
from .note import comes_back, format_note, is_note, schema_with_notes
from .pbtxt_read import plain_features
from .pbtxt_write import pbtxt_lines
from .text_format import Message, message_of, messages, parse_text_format, text


def serialize_pbtxt(schema: Schema) -> bytes:
    """The schema as TensorFlow Metadata reads it, in the order of its features."""
    notes = {
        feature.name: format_note(feature)
        for feature in schema
        if not comes_back(_without_note(feature), feature)
    }
    return "".join(line + "\n" for line in pbtxt_lines(schema, notes)).encode()


def parse_pbtxt(data: bytes, limits: Limits | None = None) -> Schema:
    """The schema that a `schema.pbtxt` describes.

    Raises:
        MalformedInput: not text format (`invalid_pbtxt`), or not a schema in it (`invalid_schema`).
        UnprocessableInput: a feature that no row of ours can have, by name; a comment of ours that does
            not fit the feature beside it (`schema_note`).
        LimitExceeded: nested too deep, or too many fields.
    """
    message = parse_text_format(data)
    if not message.keys() & {"feature", "sparse_feature"}:
        raise MalformedInput(
            "The schema is neither JSON nor a schema.pbtxt: no `feature { ... }` stands in it.",
            code="invalid_schema",
        )
    plain, is_sequence = plain_features(message)
    return schema_with_notes(
        plain,
        _notes(message),
        _without_note,
        limits or Limits(),
        "sequence_example" if is_sequence else "example",
    )


def _without_note(feature: Feature) -> Iterable[Feature]:
    lines = pbtxt_lines(Schema((feature,)), {})
    return plain_features(parse_text_format("\n".join(lines).encode()))[0]


def _notes(message: Message) -> Iterator[str]:
    for item in messages(message, "feature"):
        for comment in message_of(item, "annotation").get("comment", []):
            if is_note(text(comment)):
                yield text(comment)
        for domain in messages(item, "struct_domain"):
            yield from _notes(domain)
