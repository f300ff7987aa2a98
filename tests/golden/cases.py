"""The rows in the golden files as JSON, and what they are declared as."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.domain.dtypes import BYTES, DTYPES, TEXT, DType
from app.domain.feature import Feature
from app.domain.schema import Schema
from tests.golden.entries import Golden, json_bytes, json_lines
from tests.golden.values import array_of, json_values
from tests.support.feature_values import RaggedValue, SparseValue

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Some rows as JSON, and what they are declared as."""

    name: str
    features: dict[str, dict[str, Any]]
    rows: list[Row]

    @property
    def schema(self) -> Schema:
        return Schema.from_json({"features": self.features})

    @property
    def is_sequence(self) -> bool:
        return self.schema.message == "sequence_example"

    def file(self, suffix: str, content: bytes, form: str, made_with: str, **more: Any) -> Golden:
        schema = f"rows/{self.name}.schema.json"
        path, of = f"rows/{self.name}.{suffix}", f"rows/{self.name}.json"
        return Golden(path, content, form, "rows", made_with, of, schema=schema, **more)

    def values(self) -> Iterator[Golden]:
        """The schema and the rows."""
        path, content = f"rows/{self.name}.schema.json", json_bytes(self.schema.to_json())
        yield Golden(path, content, "schema", "schema", "json of Python")
        yield self.file("json", json_lines(self.envelopes()), "json", "json of Python")

    def envelopes(self) -> list[Row]:
        """The rows as JSON has them: of SequenceExamples the steps apart from the context."""
        if not self.is_sequence:
            return self.rows
        steps = {feature.name for feature in self.schema if feature.kind == "sequence"}
        return [
            {
                "context": {name: value for name, value in row.items() if name not in steps},
                "feature_lists": {name: value for name, value in row.items() if name in steps},
            }
            for row in self.rows
        ]

    def cells(self) -> list[list[Any]]:
        """The values by row, in the order of the schema."""
        return [[_cell(feature, row.get(feature.name)) for feature in self.schema] for row in self.rows]


SCALARS: Final = Case(
    "scalars",
    {
        "id": {"dtype": "int64"},
        "ok": {"dtype": "bool"},
        "x": {"dtype": "float32"},
        "word": {"dtype": "text"},
        "note": {"dtype": "text", "nullable": True},
        "weight": {"dtype": "float32", "nullable": True},
    },
    [
        {"id": 1, "ok": True, "x": 0.5, "word": "a", "note": 'say "hi", twice', "weight": -1.5},
        {"id": -(2**63), "ok": False, "x": -2.0, "word": "é\nβ", "note": None, "weight": None},
        {"id": 2**63 - 1, "ok": True, "x": 2.0**-20, "word": "", "note": "", "weight": 2.0**60},
    ],
)
KINDS: Final = Case(
    "kinds",
    {
        "id": {"dtype": "int64"},
        "x": {"dtype": "float32", "shape": [2]},
        "name": {"dtype": "text", "nullable": True},
        "tags": {"dtype": "text", "shape": [None]},
        "counts": {"dtype": "int64", "shape": [None]},
        "image": {"dtype": "bytes", "nullable": True},
        "ragged": {"dtype": "float32", "shape": [None, None], "kind": "ragged"},
        "sparse": {"dtype": "int64", "shape": [3, 4], "kind": "sparse"},
    },
    [
        {
            "id": 1,
            "x": [0.5, -2.0],
            "name": "a",
            "tags": ["p", "q"],
            "counts": [1, 300, -1],
            "image": {"b64": "/9gA"},
            "ragged": [[1.0, 2.0], [], [3.0]],
            "sparse": {"values": [5, -6], "indices": [[0, 1], [2, 3]], "dense_shape": [3, 4]},
        },
        {
            "id": -(2**63),
            "x": [-0.0, 2.0**127],
            "name": None,
            "tags": [],
            "counts": [],
            "image": None,
            "ragged": [],
            "sparse": {"values": [], "indices": [], "dense_shape": [3, 4]},
        },
        {
            "id": 2**63 - 1,
            "x": ["NaN", "-Infinity"],
            "name": "é\0",
            "tags": [""],
            "counts": [0] * 200,
            "image": {"b64": ""},
            "ragged": [[], [0.25]],
            "sparse": {"values": [2**62], "indices": [[1, 0]], "dense_shape": [3, 4]},
        },
    ],
)
SEQUENCES: Final = Case(
    "sequences",
    {
        "id": {"dtype": "int64"},
        "steps": {"dtype": "float32", "shape": [None, 2], "kind": "sequence"},
        "words": {"dtype": "text", "shape": [None, None], "kind": "sequence"},
    },
    [
        {"id": 7, "steps": [[1.5, 2.0], [-1.0, 0.0]], "words": [["a"], [], ["b", ""]]},
        {"id": -8, "steps": [], "words": []},
    ],
)
#: The second axis of the arrays is that of one row.
ARRAYS: Final[dict[str, tuple[DType, NDArray[Any]]]] = {
    **{dtype.name: (dtype, array_of(dtype)) for dtype in DTYPES.values() if not dtype.is_string},
    "text": (TEXT, np.array([["a", "", "é", "x"], ["NaN", "1", "β", '"']], object)),
    "bytes": (BYTES, array_of(DTYPES["string"])),
}
#: Lists of an Example do not hold all of their values.
RAW: Final = frozenset({"float64", "uint64"})


def dtypes() -> Case:
    features = {
        name: {"dtype": name, "shape": [4], **({"encoding": "raw"} if name in RAW else {})} for name in ARRAYS
    }
    rows = [{name: json_values(array[index]) for name, (_, array) in ARRAYS.items()} for index in range(2)]
    return Case("dtypes", features, rows)


def _cell(feature: Feature, value: Any) -> Any:
    """A value as `message_of` takes it."""
    if value is None:
        return None
    if feature.kind == "sequence":
        return [_cell(feature.step, step) for step in value]
    if feature.kind == "sparse":
        indices = [tuple(place) for place in value["indices"]]
        return SparseValue(indices, [plain(feature.dtype, item) for item in value["values"]])
    if feature.kind == "ragged":  # of two dimensions
        flat = [plain(feature.dtype, item) for part in value for item in part]
        return RaggedValue(flat, [[len(part) for part in value]], len(value))
    items = value if feature.shape else [value]  # of one dimension
    shape = (len(items),) if feature.shape else ()
    return [plain(feature.dtype, item) for item in items], shape


def plain(dtype: DType, value: Any) -> Any:
    """An element of JSON as a value of Python."""
    if isinstance(value, dict):
        return b64decode(value["b64"])
    if dtype.is_string:
        return value.encode()
    if dtype.kind == "complex":
        return complex(*map(float, value))
    return float(value) if dtype.is_float else value
