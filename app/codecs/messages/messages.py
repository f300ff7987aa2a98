"""Rows <-> the messages that hold them: Examples or SequenceExamples, by what the schema says.

The one entry for whoever reads or writes messages; here ragged and sparse features meet their components.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from ...domain.feature import stored_features
from ...domain.schema import Schema
from ...errors import InputError
from ...runtime.budget import Budget
from ..columns import Records
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from ..records.components import from_stored, parsed_schema, to_stored
from .byte_records import encode_byte_records, parse_byte_records
from .examples.read import parse_frames
from .examples.write import RecordBlock, encode_blocks
from .framing import FrameBlock

PieceT = TypeVar("PieceT")


def encode_messages(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[RecordBlock]:
    """One message a row, as `records.schema.message` says, byte for byte TensorFlow's own, framed.

    With `options.as_bytes` a record is the row's one value instead.

    Raises:
        LossyConversion: a value that a FloatList would change too much.
        UnprocessableInput: a row of 2 GiB or more (`example_too_large`), or two features that are stored
            under one name (`duplicate_feature`).
    """
    if options.as_bytes:
        return encode_byte_records(records, budget)
    if not options.lossy:
        records.schema.require_lossless()
    owners = _owners(records.schema)
    if options.rounded is not None:
        options.rounded.owners = owners
        options.rounded.candidates = sorted(feature.name for feature in records.schema if feature.may_round)
    blocks = encode_blocks(to_stored(records, budget), options, budget)
    return _name_owners(blocks, owners) if owners else blocks


def parse_messages(frames: Iterator[FrameBlock], options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the messages in `frames`: what `options.message` says, else the schema, else Examples.

    With `options.as_bytes` a row is one value, the bytes of a record.

    Raises:
        UnprocessableInput: a declared `sequence` in an Example (`invalid_feature`), or two features
            that are stored under one name (`duplicate_feature`).
        InputError: records that are no such messages, or do not fit the schema; see `parse_frames`.
    """
    if options.as_bytes:
        return parse_byte_records(frames, options, budget)
    if options.schema is None:
        return parse_frames(frames, options, budget)
    schema = options.schema.with_message(options.message)
    records = parse_frames(frames, replace(options, schema=parsed_schema(schema)), budget)
    named = replace(records, batches=_name_owners(records.batches, _owners(schema)))
    return from_stored(named, schema, budget)


def _owners(schema: Schema) -> Mapping[str, str]:
    """Stored name -> feature, where they differ."""
    return {
        stored.name: feature.name
        for feature in schema
        for stored in stored_features(feature)
        if stored is not feature
    }


def _name_owners(pieces: Iterator[PieceT], owners: Mapping[str, str]) -> Iterator[PieceT]:
    """The pieces; errors name the feature that the client knows, their text the list at fault."""
    try:
        yield from pieces
    except InputError as error:
        feature = error.location.feature
        error.location = replace(error.location, feature=owners.get(feature or "", feature))
        raise
