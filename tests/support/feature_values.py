"""Features and values for tests of what holds them: hypothesis strategies, and cells of Arrow columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.domain.dtypes import DTYPES, DType, parse_feature_dtype
from app.domain.feature import Encoding, Feature, FeatureKind
from app.domain.schema import Message, Schema
from tests.support.arrow_rows import arrow_schema

NAMES = [name for name in DTYPES if name != "string"] + ["text", "bytes"]


def scalars(dtype: DType) -> st.SearchStrategy[Any]:
    if dtype.name == "text":
        return st.text(max_size=5).map(str.encode)
    if dtype.is_string:
        return st.binary(max_size=200) if dtype.name == "bytes" else st.binary(max_size=5)
    if dtype.kind == "bool":
        return st.booleans()
    if dtype.kind in ("int", "uint"):
        low, high = dtype.bounds
        return st.integers(low, high) | st.integers(0, min(high, 100))
    # Any NaN but the usual one may change its payload on the way through Python's floats.
    halves = st.floats(width=16)
    wider = st.floats(width=32) if dtype.name == "float32" else st.floats(width=64)
    floats = (halves if dtype.itemsize == 2 else wider).map(
        lambda value: math.nan if math.isnan(value) else value
    )
    return st.builds(complex, floats, floats) if dtype.kind == "complex" else floats


def encodings(dtype: DType, shape: tuple[int | None, ...]) -> list[Encoding]:
    unknown = sum(dim is None for dim in shape)
    allowed: list[Encoding] = ["tensor"]
    if not dtype.is_string and unknown < 2 and not (unknown and 0 in shape):
        allowed.append("raw")
    if (
        dtype.kind != "complex"
        and dtype.has_kernel
        and dtype.name not in ("float64", "uint64")
        and unknown < 2
        and not (unknown and 0 in shape)
    ):
        allowed.append("list")
    return allowed


#: dtypes that a list of an Example holds without loss.
LISTED = [name for name in NAMES if "list" in encodings(parse_feature_dtype(name), ())]


@st.composite
def features(draw: st.DrawFn, name: str) -> Feature:
    dtype = parse_feature_dtype(draw(st.sampled_from(NAMES)))
    shape = tuple(draw(st.lists(st.sampled_from([None, 0, 1, 2, 3]), max_size=3)))
    encoding = draw(st.sampled_from(encodings(dtype, shape)))
    return Feature(name, dtype, shape, encoding=encoding, nullable=draw(st.booleans()))


@st.composite
def values(draw: st.DrawFn, feature: Feature) -> tuple[Any, tuple[int, ...]] | None:
    if feature.nullable and draw(st.integers(0, 3)) == 0:
        return None
    lost = feature.num_unknown == 1 and feature.known_values == 0
    shape = tuple((0 if lost else draw(st.integers(0, 3))) if dim is None else dim for dim in feature.shape)
    size = math.prod(shape)
    return draw(st.lists(scalars(feature.dtype), min_size=size, max_size=size)), shape


def array_of(feature: Feature, flat: list[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(flat, feature.dtype.numpy)


def storage_of(feature: Feature, flat: list[Any]) -> list[Any]:
    """As the closed set of column layouts stores it."""
    if feature.dtype.is_string:
        return flat
    array = array_of(feature, flat)
    if feature.dtype.kind == "bool":
        return list(array.view(np.uint8))
    if feature.dtype.name == "bfloat16":
        return list(array.view(np.uint16))
    if feature.dtype.is_float and feature.dtype.itemsize == 1:
        return list(array.view(np.uint8))
    if feature.dtype.is_narrow:
        return list(array.tolist())
    if feature.dtype.kind == "complex":
        return [value.tobytes() for value in array]
    return list(array)


def cell_of(feature: Feature, value: tuple[Any, tuple[int, ...]] | None) -> Any:
    if value is None:
        return None
    stored = storage_of(feature, value[0])
    if feature.is_scalar:
        return stored[0]
    return stored if feature.num_unknown < 2 else {"shape": list(value[1]), "values": stored}


@st.composite
def sequences(draw: st.DrawFn, name: str) -> Feature:
    step = draw(features(name))
    return replace(step, shape=(None, *step.shape), kind="sequence")


@st.composite
def steps_of(draw: st.DrawFn, feature: Feature) -> list[Any] | None:
    """By step, as `values` of it; None where the row lacks the feature."""
    if feature.nullable and draw(st.integers(0, 3)) == 0:
        return None
    return draw(st.lists(values(feature.step), max_size=4))


@st.composite
def ragged(draw: st.DrawFn, name: str) -> Feature:
    dtype = parse_feature_dtype(draw(st.sampled_from(LISTED)))
    dims = st.sampled_from([None, 1, 2, 3])
    shape = (*draw(st.lists(dims, min_size=1, max_size=3)), None, *draw(st.lists(dims, max_size=2)))
    return Feature(name, dtype, shape, "ragged", nullable=draw(st.booleans()))


@dataclass(frozen=True)
class RaggedValue:
    """A row's flat values, and the lengths of the pieces that each cut makes, outermost first."""

    values: list[Any]
    lengths: list[list[int]]
    outer: int

    def cell(self, feature: Feature) -> list[Any]:
        """Nested lists of storage values, as a column has them."""
        nested: list[Any] = storage_of(feature, self.values)
        inner = math.prod(feature.inner_shape)
        if feature.inner_shape:
            nested = [nested[begin : begin + inner] for begin in range(0, len(nested), inner)]
        for lengths in reversed(self.lengths):
            ends = list(accumulate(lengths, initial=0))
            nested = [nested[begin:end] for begin, end in pairwise(ends)]
        return nested


@st.composite
def ragged_values(draw: st.DrawFn, feature: Feature) -> RaggedValue | None:
    if feature.nullable and draw(st.integers(0, 3)) == 0:
        return None
    first, *cuts = feature.shape[: feature.num_partitions + 1]
    outer = draw(st.integers(0, 3)) if first is None else first
    pieces, lengths = outer, []
    for dim in cuts:
        lengths.append([draw(st.integers(0, 3)) if dim is None else dim for _ in range(pieces)])
        pieces = sum(lengths[-1])
    size = pieces * math.prod(feature.inner_shape)
    flat = draw(st.lists(scalars(feature.dtype), min_size=size, max_size=size))
    return RaggedValue(flat, lengths, outer)


@st.composite
def sparse(draw: st.DrawFn, name: str) -> Feature:
    dtype = parse_feature_dtype(draw(st.sampled_from(LISTED)))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    return Feature(name, dtype, shape, "sparse", nullable=draw(st.booleans()))


@dataclass(frozen=True)
class SparseValue:
    """A row's coordinates, each of the rank of the feature, and the values at them."""

    indices: list[tuple[int, ...]]
    values: list[Any]

    def cell(self, feature: Feature) -> dict[str, Any]:
        """The struct that a column has."""
        flat = [coordinate for index in self.indices for coordinate in index]
        return {"indices": flat, "values": storage_of(feature, self.values)}


@st.composite
def sparse_values(draw: st.DrawFn, feature: Feature) -> SparseValue | None:
    """In any order, and with duplicates."""
    if feature.nullable and draw(st.integers(0, 3)) == 0:
        return None
    index = st.tuples(*(st.integers(0, (dim or 1) - 1) for dim in feature.shape))
    indices = draw(st.lists(index, max_size=5))
    return SparseValue(
        indices, draw(st.lists(scalars(feature.dtype), min_size=len(indices), max_size=len(indices)))
    )


@dataclass(frozen=True)
class Table:
    """Features of all kinds, and rows; a value is what the strategy of its kind gives."""

    schema: Schema
    rows: list[list[Any]]

    def batch(self) -> pa.RecordBatch:
        arrow = arrow_schema(self.schema)
        if not self.schema.features:
            structs: Any = pa.array([{}] * len(self.rows), pa.struct([]))
            return pa.RecordBatch.from_struct_array(structs)
        columns = [
            pa.array([_any_cell(feature, row[index]) for row in self.rows], arrow.field(index).type)
            for index, feature in enumerate(self.schema)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=arrow)


def _any_cell(feature: Feature, value: Any) -> Any:
    if value is None:
        return None
    if feature.kind == "sequence":
        return [cell_of(feature.step, step) for step in value]
    return cell_of(feature, value) if feature.kind == "dense" else value.cell(feature)


_FEATURES: dict[FeatureKind, Callable[[str], st.SearchStrategy[Feature]]] = {
    "dense": features, "ragged": ragged, "sparse": sparse, "sequence": sequences,
}  # fmt: skip
_VALUES: dict[FeatureKind, Callable[[Feature], st.SearchStrategy[Any]]] = {
    "dense": values, "ragged": ragged_values, "sparse": sparse_values, "sequence": steps_of,
}  # fmt: skip


@st.composite
def tables_of(draw: st.DrawFn, *kinds: FeatureKind, message: Message = "example") -> Table:
    """Tables with features of these kinds."""
    names = draw(st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=4))
    schema = Schema(tuple(draw(_FEATURES[draw(st.sampled_from(kinds))](name)) for name in names), message)
    rows = draw(st.integers(0, 4))
    return Table(schema, [[draw(_VALUES[f.kind](f)) for f in schema] for _ in range(rows)])


def field(tag: int, payload: bytes) -> bytes:
    return bytes([tag]) + varint(len(payload)) + payload


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


UNKNOWN_FIELDS = st.sampled_from([b"\x20\x05", b"\x2a\x01x", b"\x35abcd", b"\x39abcdefgh", b"\xfa\x01\x00"])
_int_runs = st.one_of(
    st.lists(st.integers(0, 2**64 - 1).map(varint), max_size=12).map(
        lambda items: field(0x0A, b"".join(items))
    ),
    st.integers(0, 2**64 - 1).map(lambda value: b"\x08" + varint(value)),
    UNKNOWN_FIELDS,
)
_float_runs = st.one_of(
    st.lists(st.floats(width=32), max_size=4).map(
        lambda items: field(0x0A, np.array(items, "<f4").tobytes())
    ),
    st.floats(width=32).map(lambda value: b"\x0d" + np.float32(value).tobytes()),
    UNKNOWN_FIELDS,
)
_byte_runs = st.binary(max_size=200).map(lambda value: field(0x0A, value)) | UNKNOWN_FIELDS


def _feature_of(kind: int, runs: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    lists = st.lists(runs, max_size=4).map(lambda parts: field(kind << 3 | 2, b"".join(parts)))
    return st.lists(lists | UNKNOWN_FIELDS, max_size=3).map(b"".join)


#: Everything that protobuf allows in a Feature of one kind.
WIRE_FEATURES = st.one_of(_feature_of(1, _byte_runs), _feature_of(2, _float_runs), _feature_of(3, _int_runs))


@st.composite
def mutations(draw: st.DrawFn, messages: st.SearchStrategy[bytes]) -> bytes:
    """A message with a few bytes put in, taken out or changed."""
    message = bytearray(draw(messages))
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(message)))
        action = draw(st.integers(0, 3))
        if action == 0:
            message[position:position] = draw(st.binary(min_size=1, max_size=3))
        elif action == 1:
            del message[position : position + draw(st.integers(1, 3))]
        elif position < len(message):
            message[position] = (
                draw(st.integers(0, 255)) if action == 2 else message[position] ^ 1 << draw(st.integers(0, 7))
            )
    return bytes(message)
