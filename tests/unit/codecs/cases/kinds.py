"""Features of every kind with JSON values that fit them, for hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from app.domain.dtypes import BYTES, DTYPES, TEXT, DType
from app.domain.feature import Feature, FeatureKind, FeatureShape, default_encoding
from app.domain.schema import Schema

NUMBERS = [
    dtype for dtype in DTYPES.values() if dtype.kind in ("bool", "int", "uint", "float") and dtype.has_kernel
]
#: Of one byte or less, and quantized; neither is in a list of an Example.
NARROW = [
    dtype for dtype in DTYPES.values() if dtype.kind in ("int", "uint", "float") and not dtype.has_kernel
]
COMPLEX = [dtype for dtype in DTYPES.values() if dtype.kind == "complex"]
_SMALL = st.integers(0, 3)


def _shapes(kind: FeatureKind) -> st.SearchStrategy[FeatureShape]:
    known = st.integers(1, 3)
    any_dim = st.one_of(st.none(), known)
    if kind == "ragged":
        shapes = st.tuples(any_dim, st.none(), st.lists(any_dim, max_size=2))
        return st.one_of(
            shapes.map(lambda parts: (parts[0], parts[1], *parts[2])),
            st.tuples(known, known, st.none()),
        )
    if kind == "sparse":
        return st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
    # A 0 beside an unknown dimension: the column does not keep that dimension.
    steps = st.one_of(st.lists(any_dim, max_size=3), st.lists(_SMALL, max_size=3))
    return steps.map(lambda dims: (None, *dims) if kind == "sequence" else tuple(dims))


def features(name: str) -> st.SearchStrategy[Feature]:
    """A feature of any kind, dtype and shape that a schema can declare."""
    kinds: list[FeatureKind] = ["dense", "ragged", "sparse", "sequence"]

    def of_kind(kind: FeatureKind) -> st.SearchStrategy[Feature]:
        dtypes = st.sampled_from(
            [*NUMBERS, TEXT, BYTES, *([*COMPLEX, *NARROW] if kind in ("dense", "sequence") else [])]
        )
        made = st.tuples(dtypes, _shapes(kind), st.booleans())
        return made.map(lambda parts: _feature(name, kind, *parts))

    return st.sampled_from(kinds).flatmap(of_kind)


def _feature(name: str, kind: FeatureKind, dtype: DType, shape: FeatureShape, nullable: bool) -> Feature:
    encoding = default_encoding(dtype, shape, kind)
    return Feature.from_json(name, Feature(name, dtype, shape, kind, encoding, nullable).to_json())


def schemas() -> st.SearchStrategy[Schema]:
    """One to three features; rows of SequenceExamples where one is a sequence."""
    names = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3, unique=True)
    chosen = names.flatmap(lambda found: st.tuples(*(features(name) for name in found)))
    return chosen.map(Schema)


def _scalars(dtype: DType) -> st.SearchStrategy[Any]:
    """JSON values as they leave again: floats as float32 tokens, words for what is not finite."""
    if dtype.kind == "bool":
        return st.booleans()
    if dtype.is_integer:
        return st.integers(*dtype.bounds)
    if dtype.is_float and dtype.itemsize == 1:
        every = np.arange(1 << dtype.num_bits, dtype=np.uint8).view(dtype.numpy).astype(np.float64)
        return st.sampled_from([float(str(np.float32(value))) for value in every[np.isfinite(every)]])
    if dtype.is_float:
        words = st.sampled_from(["NaN", "Infinity", "-Infinity", -0.0])
        return st.one_of(st.integers(-128, 128).map(lambda number: number / 2), words)
    if dtype.kind == "complex":
        part = _scalars(DTYPES["float32"])
        return st.tuples(part, part).map(list)
    if dtype is TEXT:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
    return st.sampled_from([{"b64": ""}, {"b64": "/w=="}, {"b64": "YWJj"}])


def _nested(scalar: st.SearchStrategy[Any], dims: list[int]) -> st.SearchStrategy[Any]:
    value = scalar
    for dim in reversed(dims):
        value = st.lists(value, min_size=dim, max_size=dim)
    return value


def _dense(feature: Feature) -> st.SearchStrategy[Any]:
    scalar = _scalars(feature.dtype)
    dims = st.tuples(*(_SMALL if dim is None else st.just(dim) for dim in feature.shape))
    return dims.flatmap(lambda found: _nested(scalar, list(found)))


def _ragged(feature: Feature) -> st.SearchStrategy[Any]:
    value = _scalars(feature.dtype)
    for dim in reversed(feature.shape):
        value = st.lists(value, max_size=3) if dim is None else st.lists(value, min_size=dim, max_size=dim)
    return value


def _sparse(feature: Feature) -> st.SearchStrategy[Any]:
    place = st.tuples(*(st.integers(0, (dim or 1) - 1) for dim in feature.shape)).map(list)
    pairs = st.lists(st.tuples(place, _scalars(feature.dtype)), max_size=4)
    return pairs.map(
        lambda found: {
            "values": [value for _, value in found],
            "indices": [index for index, _ in found],
            "dense_shape": list(feature.shape),
        }
    )


def _cells(feature: Feature) -> st.SearchStrategy[Any]:
    if feature.kind == "sequence":
        value = st.lists(_dense(feature.step), max_size=3)
    else:
        value = {"dense": _dense, "ragged": _ragged, "sparse": _sparse}[feature.kind](feature)
    return st.one_of(st.none(), value) if feature.nullable else value


def rows_of(schema: Schema) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Flat rows of the schema, null where a feature is absent."""
    return st.lists(st.fixed_dictionaries({feature.name: _cells(feature) for feature in schema}), max_size=4)
