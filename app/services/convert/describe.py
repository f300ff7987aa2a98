"""What is in records or in tensors: schema, counts, statistics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, cycle, repeat
from typing import Final, Literal, NotRequired, Required

import numpy as np
from typing_extensions import TypedDict

from ...codecs.array import AnyTensor, Array, ElementReader, RaggedTensor, SparseTensor
from ...codecs.columns import Batch, Column, Records
from ...codecs.messages.examples.infer import shape_of_length
from ...codecs.schemas.features_json import serialize_features
from ...codecs.schemas.pbtxt import serialize_pbtxt
from ...codecs.schemas.python_source import serialize_python
from ...codecs.schemas.torch_source import serialize_torch
from ...domain.compression import Compression
from ...domain.dtypes import DTypeName
from ...domain.feature import Feature
from ...domain.schema import Schema, SchemaJson
from ...domain.tensor import num_elements
from .distribution import Detail
from .statistics import (
    FeatureStatistics,
    FeatureStatisticsJson,
    LengthStatistics,
    NumberStatistics,
    Range,
    StatisticsJson,
)

#: What records can be described as; the short names are of that route alone.
Description = Literal["json", "schema", "pbtxt", "features", "python", "torch"]

DESCRIPTIONS: Final[dict[Description, tuple[str, ...]]] = {
    "json": ("application/json",),
    "schema": ("application/json",),
    "pbtxt": ("text/plain",),
    "features": ("application/json",),
    "python": ("text/x-python",),
    "torch": ("text/x-python",),
}

#: Elements of an arriving array that are looked at together.
_TAKEN: Final = 64 * 1024

_SERIALIZERS: Final[dict[str, Callable[[Schema], bytes]]] = {
    "schema": lambda schema: _json(schema.to_json()),
    "pbtxt": serialize_pbtxt,
    "features": serialize_features,
    "python": serialize_python,
    "torch": serialize_torch,
}


class RecordsDescriptionJson(TypedDict):
    """What records are: their schema, and the statistics of each feature; `container` is of a TFRecord."""

    num_records: int
    schema: SchemaJson
    features: dict[str, FeatureStatisticsJson]
    container: NotRequired[Compression]


#: By name: `json`, `schema`, and `features`, which is as TFDS has it.
DescriptionJson = RecordsDescriptionJson | SchemaJson | dict[str, object]


class TensorDescriptionJson(StatisticsJson, total=False):
    """What a tensor is. Of a ragged one, null stands for a length that varies."""

    name: Required[str | None]
    kind: Required[Literal["dense", "sparse", "ragged"]]
    dtype: Required[DTypeName]
    shape: Required[list[int | None]]
    num_elements: Required[int]
    num_bytes: Required[int]


def describe_records(
    records: Records,
    description: Description,
    *,
    find_lengths: bool = False,
    compression: Compression = "none",
) -> bytes:
    """Draw all rows, and say what they are. Memory is that of one batch.

    The schema in the forms of others, and the source that loads it, are of the Examples that the rows become.

    Args:
        find_lengths: as of `survey_records`.
        compression: of the file that they are read from.

    Raises:
        InputError: as the rows are drawn; or a schema that the description cannot express.
    """
    if not find_lengths and description != "json":
        serialize_schema(
            records.schema, description
        )  # what it cannot express is refused before any row is drawn
    wants_statistics = description == "json"
    schema, found = survey_records(records, find_lengths=find_lengths, wants_statistics=wants_statistics)
    if compression != "none":
        found["container"] = compression
    return _json(found) if wants_statistics else serialize_schema(schema, description, compression)


def survey_records(
    records: Records,
    *,
    find_lengths: bool = False,
    wants_statistics: bool = True,
    details: Sequence[Detail] = (),
) -> tuple[Schema, RecordsDescriptionJson]:
    """Draw all rows: their schema, and what is said of them.

    Args:
        find_lengths: the schema is that of the first messages, which came without one: it is given the
            lengths that all rows turn out to have, as inference from all of them would.
        details: how closely the first features are looked at.

    Raises:
        InputError: as the rows are drawn.
    """
    schema, num_records = records.schema, 0
    lengths = [_Lengths() for _ in schema] if find_lengths else []
    looks = zip(schema, chain(details, repeat(None)), strict=False)
    statistics = [FeatureStatistics(*each) for each in looks] if wants_statistics else []
    seen: list[_Lengths | FeatureStatistics] = [*lengths, *statistics]
    for batch in records.batches:
        num_records += batch.num_rows
        for column, of_feature in zip(cycle(batch.columns), seen, strict=False):
            of_feature.add(column, batch.num_rows)
    if find_lengths:
        schema = _narrow(schema, lengths)
    of_features: dict[str, FeatureStatisticsJson] = {
        feature.name: of_feature.to_json(feature)
        for feature, of_feature in zip(schema, statistics, strict=False)
    }
    return schema, {"num_records": num_records, "schema": schema.to_json(), "features": of_features}


def find_lengths_of(batch: Batch, schema: Schema) -> Schema:
    """The schema of messages that came without one, with the lengths that all rows of the batch have."""
    lengths = [_Lengths() for _ in schema]
    for column, of_feature in zip(batch.columns, lengths, strict=True):
        of_feature.add(column, batch.num_rows)
    return _narrow(schema, lengths)


def _narrow(schema: Schema, lengths: Iterable[_Lengths]) -> Schema:
    features = [of_feature.narrow(feature) for of_feature, feature in zip(lengths, schema, strict=True)]
    return Schema(tuple(features), schema.message)


def serialize_schema(schema: Schema, description: Description, compression: Compression = "none") -> bytes:
    """A schema as others read it, that of the Examples which the rows become; or, as `schema`, as it is.

    Args:
        compression: of the files that the source reads by default.

    Raises:
        InputError: it cannot be expressed so.
    """
    text = _SERIALIZERS[description](schema if description == "schema" else schema.as_stored())
    if compression == "none":
        return text
    load = b'\ndef load(pattern, batch_size=None, compression_type="'
    return text.replace(load, load + compression.upper().encode())


def describe_tensors(tensors: Iterable[AnyTensor]) -> bytes:
    """Name, kind, dtype, shape, size and statistics of each tensor, in their order.

    An array that is still arriving is drawn to its end.

    The shape of a sparse one is its dense_shape; of a ragged one, null stands for a length that varies.
    The elements are those that are there.
    """
    return _json(list(map(_describe, tensors)))


def _describe(tensor: AnyTensor) -> TensorDescriptionJson:
    kind: Literal["dense", "sparse", "ragged"]
    if isinstance(tensor, RaggedTensor):
        kind, values = "ragged", tensor.values
        num_rows = len(tensor.row_splits[0]) - 1
        shape: Sequence[int | None] = (num_rows, *[None] * len(tensor.row_splits), *tensor.values.shape[1:])
    elif isinstance(tensor, SparseTensor):
        kind, values, shape = "sparse", tensor.values, tensor.dense_shape
    else:
        kind, values, shape = "dense", tensor, tensor.shape
    return {
        "name": tensor.name,
        "kind": kind,
        "dtype": tensor.dtype.name,
        "shape": list(shape),
        "num_elements": num_elements(values.shape),
        "num_bytes": tensor.num_bytes,
        **_statistics_of(values).to_json(),
    }


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n"


class _Lengths:
    """The numbers of values of one column, batch by batch: of its rows, or of a sequence's steps."""

    def __init__(self) -> None:
        self._found: Range[int] = Range()
        self._is_lacked = False

    def add(self, column: Column, num_rows: int) -> None:
        self._is_lacked |= column.count(num_rows) < num_rows
        self._found.add(np.diff(column.splits[-1]))

    def narrow(self, feature: Feature) -> Feature:
        """The feature with the length that all have, if they have one."""
        length = self._found.least if self._found.least == self._found.greatest else None
        shape = shape_of_length(feature.kind, length, nullable=self._is_lacked)
        return replace(feature, shape=shape, nullable=self._is_lacked)


def _statistics_of(array: Array) -> LengthStatistics | NumberStatistics:
    if array.dtype.is_string:
        lengths = LengthStatistics()
        lengths.add(np.diff(array.strings.offsets))
        return lengths
    numbers = NumberStatistics(array.dtype)
    if not array.is_arriving:
        numbers.add(array.values)
        return numbers
    elements, left = ElementReader(array), num_elements(array.shape)
    while left:
        numbers.add(elements.take(min(left, _TAKEN)))
        left -= min(left, _TAKEN)
    elements.close()
    return numbers
