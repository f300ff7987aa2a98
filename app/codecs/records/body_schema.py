"""A schema that stands in the body: beside the rows, or in the metadata of Arrow and Parquet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...domain.limits import Limits
from ...domain.schema import Schema
from ...errors import MalformedInput, SchemaConflict
from ..options import RecordsDecodeOptions
from ..schemas.declared import schema_from_value


def with_body_schema(
    value: Any,
    options: RecordsDecodeOptions,
    limits: Limits,
    *,
    place: str = "the body",
    pointer: str | None = "/schema",
    repeats_types: bool = False,
) -> RecordsDecodeOptions:
    """The options with the schema of the body's member `schema`.

    Args:
        place: where it stands instead, for errors; `pointer` is then None.
        repeats_types: where the columns say themselves that they are float64, it asks for nothing by that.

    Raises:
        InputError: not a schema in any of its forms (`schema_from_value`), or one that contradicts the
            message that was asked for.
        MalformedInput: a second one (`schema_twice`).
        SchemaConflict: not the schema of the dataset.
    """
    if options.body_schema_seen:
        return options
    schema = schema_from_value(value, limits).with_message(options.message)
    if repeats_types:
        schema = schema.with_doubles_inferred()
    if options.transforms is not None:
        schema = options.transforms.check(schema)
    if options.schema is None:
        return replace(options, schema=schema)
    if not options.schema_of_dataset:
        raise MalformedInput(
            f"The schema is given in {place} and elsewhere too. Give it once.",
            code="schema_twice",
            pointer=pointer,
        )
    if not _results(schema.as_stored(), options).same_features(_results(options.schema, options)):
        raise SchemaConflict(
            f"The schema in {place} is not that of the dataset. Leave it out, set evolve=widen where it "
            f"only adds to that, or append to another dataset.",
            pointer=pointer,
        )
    done = {feature.name for feature in schema if feature.made_from is not None}
    features = (
        schema.by_name[feature.name] if feature.name in done else feature for feature in options.schema
    )
    known = Schema(tuple(features), options.schema.message)
    return replace(options, schema=known.with_declarations_of(schema))


def _results(schema: Schema, options: RecordsDecodeOptions) -> Schema:
    return schema if options.transforms is None else options.transforms.result(schema)
