"""Suggest a schema if rows came without one and the format needs to know their lengths."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ...domain.feature import default_encoding
from ...domain.schema import Schema
from ...errors import InputError
from ..columns import Batch, Records

#: A longer schema is not written into an error.
_MAX_CHARACTERS: Final = 4000


#: The advice if no schema would help.
OTHER_FORM: Final = "Choose another output format."


def suggest_schema(records: Records, fits: Callable[[Schema], bool]) -> str:
    """The advice of an error: which schema to declare, so that the form can hold the rows.

    Draws the first batch, which tells whether a schema would help.

    Args:
        fits: whether the form holds rows of a schema.
    """
    try:
        batch = next(records.batches, None)
    except InputError:
        return OTHER_FORM
    schema = None if batch is None else _measure(records.schema, batch)
    if batch is None or schema is None or not fits(schema):
        return OTHER_FORM
    text = json.dumps(_without_defaults(schema), ensure_ascii=False)
    lengths = "the lengths" if len(text) > _MAX_CHARACTERS else f"the schema {text}, with the lengths"
    return (
        f"Declare {lengths} that the first {batch.num_rows} rows have; of TFRecord, infer=all finds them. "
        "Choose another output format if later rows differ."
    )


def _without_defaults(schema: Schema) -> dict[str, Any]:
    """The JSON of the schema, as short as possible."""
    found: dict[str, Any] = {**schema.to_json(), "features": {}}
    for feature in schema:
        encoding = default_encoding(feature.dtype, feature.shape, feature.kind)
        defaults = {"shape": [], "kind": "dense", "encoding": encoding, "nullable": False}
        members = feature.to_json().items()
        found["features"][feature.name] = {
            key: value for key, value in members if key not in defaults or value != defaults[key]
        }
    return found


def _measure(schema: Schema, batch: Batch) -> Schema | None:
    """The schema with the lengths that are the same in all rows of the batch; None where one is not."""
    features = []
    for feature, column in zip(schema, batch.columns, strict=True):
        shape = feature.shape
        if shape == (None,) and feature.kind == "dense":
            lengths = np.unique(np.diff(column.value_bounds(batch.num_rows)))
            if len(lengths) != 1:
                return None
            shape = () if lengths[0] == 1 else (int(lengths[0]),)
        nullable = column.present is not None and not column.present.all()
        features.append(replace(feature, shape=shape, nullable=nullable))
    return Schema(tuple(features), schema.message)
