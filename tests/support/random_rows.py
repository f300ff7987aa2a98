"""Random rows of every kind of feature, in the layouts of `tests/support/arrow_rows.py`."""

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from app.codecs.columns import Records
from app.domain.dtypes import BYTES, DTYPES, TEXT, DType
from app.domain.feature import Feature, FeatureShape, default_encoding
from app.domain.schema import Schema
from app.domain.tensor import num_elements
from tests.support.arrow_rows import arrow_schema, as_arrow, column_type, from_arrow

_DTYPES = [dtype for name, dtype in DTYPES.items() if name != "string"] + [TEXT, BYTES]
_DIMS = st.integers(1, 3)


def _shapes(*, known: bool = False, min_size: int = 0) -> st.SearchStrategy[FeatureShape]:
    dim = _DIMS if known else st.one_of(st.none(), _DIMS)
    return st.lists(dim, min_size=min_size, max_size=3).map(tuple)


@st.composite
def features(draw: st.DrawFn, kinds: tuple[str, ...], dtypes: list[DType] | None = None) -> Feature:
    """A feature without a name."""
    kind: Any = draw(st.sampled_from(kinds))
    shape = draw(_shapes(known=kind == "sparse", min_size=1 if kind == "sparse" else 0))
    if kind == "scalar":
        kind, shape = "dense", ()
    if kind == "sequence":
        shape = (None, *shape[:2])
    if kind == "ragged" and None not in shape[1:]:
        shape = (*(shape or (2,)), None)
    # Ragged and sparse features are lists, which hold no complex numbers and none of the narrow dtypes.
    listed = [dtype for dtype in dtypes or _DTYPES if dtype.kind != "complex" and _in_list(dtype)]
    dtype = draw(st.sampled_from(listed if kind in ("ragged", "sparse") else dtypes or _DTYPES))
    encoding = default_encoding(dtype, shape, kind)
    return Feature("", dtype, shape, kind, encoding, nullable=draw(st.booleans()))


def _in_list(dtype: DType) -> bool:
    return dtype.has_kernel or dtype.is_string


def _value(draw: st.DrawFn, dtype: DType) -> Any:
    if dtype is TEXT:
        return draw(st.text(max_size=3)).encode()
    if dtype is BYTES:
        return draw(st.binary(max_size=3))
    if dtype.kind == "complex":
        return draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    if dtype.kind == "bool":
        return draw(st.integers(0, 1))
    if dtype.is_float and not dtype.in_numpy:  # the bits, in the storage of the column
        return draw(st.integers(0, 2**dtype.num_bits - 1))
    if dtype.is_float:
        width: Any = 8 * dtype.itemsize
        return draw(st.floats(width=width, allow_nan=False))
    return draw(st.integers(*dtype.bounds))


def _values(draw: st.DrawFn, dtype: DType, count: int) -> list[Any]:
    return [_value(draw, dtype) for _ in range(count)]


def _cut(draw: st.DrawFn, feature: Feature, axis: int) -> Any:
    """One list of a ragged value, down to the uniform values."""
    dim = feature.shape[axis]
    length = draw(st.integers(0, 3)) if dim is None else dim
    if axis < feature.num_partitions:
        return [_cut(draw, feature, axis + 1) for _ in range(length)]
    if not feature.inner_shape:
        return _values(draw, feature.dtype, length)
    return [_values(draw, feature.dtype, num_elements(feature.inner_shape)) for _ in range(length)]


def _cell(draw: st.DrawFn, feature: Feature) -> Any:
    if feature.kind == "ragged":
        return _cut(draw, feature, 0)
    if feature.kind == "sequence":
        return [_cell(draw, feature.step) for _ in range(draw(st.integers(0, 3)))]
    if feature.kind == "sparse":
        count = draw(st.integers(0, 3))
        places = [draw(st.integers(0, (dim or 1) - 1)) for _ in range(count) for dim in feature.shape]
        return {"indices": places, "values": _values(draw, feature.dtype, count)}
    shape = [draw(st.integers(0, 3)) if dim is None else dim for dim in feature.shape]
    values = _values(draw, feature.dtype, num_elements(shape))
    if feature.is_scalar:
        return values[0]
    return {"shape": shape, "values": values} if feature.num_unknown > 1 else values


@st.composite
def records(draw: st.DrawFn, kinds: tuple[str, ...], dtypes: list[DType] | None = None) -> Records:
    """Up to three features and two batches; drawing the batches again is the caller's to arrange."""
    found = draw(st.lists(features(kinds, dtypes), min_size=1, max_size=3))
    names = ["x", "y é", "z/z"]
    schema = Schema(
        tuple(
            Feature(name, one.dtype, one.shape, one.kind, one.encoding, one.nullable)
            for name, one in zip(names, found, strict=False)
        )
    )
    batches = []
    for _ in range(draw(st.integers(0, 2))):
        num_rows = draw(st.integers(1, 3))
        columns = [
            pa.array(
                [None if one.nullable and draw(st.booleans()) else _cell(draw, one) for _ in range(num_rows)],
                column_type(one),
            )
            for one in schema
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema)))
    return from_arrow(schema, iter(batches))


def again(found: Records) -> tuple[Records, pa.Table]:
    """The same records, and all their rows at once."""
    batches = list(as_arrow(found))
    table = pa.Table.from_batches(batches, arrow_schema(found.schema))
    return from_arrow(found.schema, iter(batches)), table
