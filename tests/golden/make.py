"""Bytes that TensorFlow writes, for tests without TensorFlow: python -m tests.golden.make

`tensorflow.json` beside this file holds them. `tests/differential/test_golden.py` fails when TensorFlow
writes something else.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from app.domain.dtypes import DTYPES
from tests.elements import element_bytes

GOLDEN: Final = Path(__file__).with_name("tensorflow.json")
#: What the rows of an Example are declared as, and rows as JSON.
EXAMPLE_FEATURES: Final[dict[str, dict[str, Any]]] = {
    "id": {"dtype": "int64"},
    "flag": {"dtype": "bool"},
    "x": {"dtype": "float32", "shape": [2]},
    "name": {"dtype": "text", "nullable": True},
    "tags": {"dtype": "text", "shape": [None]},
    "counts": {"dtype": "int64", "shape": [None]},
}
EXAMPLE_ROWS: Final[list[dict[str, Any]]] = [
    {"id": 1, "flag": True, "x": [0.5, -2.0], "name": "a", "tags": ["p", "q"], "counts": [1, 300, -1]},
    {"id": -(2**63), "flag": False, "x": [-0.0, 2.0**127], "name": None, "tags": [], "counts": []},
    {"id": 2**63 - 1, "flag": True, "x": [1e-45, 1.5], "name": "é\0", "tags": [""], "counts": [0] * 200},
]
SEQUENCE_FEATURES: Final[dict[str, dict[str, Any]]] = {
    "id": {"dtype": "int64"},
    "steps": {"dtype": "float32", "shape": [None, 2], "kind": "sequence"},
    "words": {"dtype": "text", "shape": [None, None], "kind": "sequence"},
}
SEQUENCE_ROWS: Final[list[dict[str, Any]]] = [
    {"context": {"id": 7}, "feature_lists": {"steps": [[1.5, 2], [-1, 0]], "words": [["a"], [], ["b", ""]]}},
    {"context": {"id": -8}, "feature_lists": {"steps": [], "words": []}},
]
SHAPES: Final[list[tuple[int, ...]]] = [(2, 3), (), (0, 3), (17,)]
STRINGS: Final = (b"", b"a", b"\xff\0", b"x" * 127, b"y" * 128, b"z" * 2000)


def make() -> dict[str, Any]:
    """What `tensorflow.json` holds; bytes are hexadecimal."""
    examples = [_example(row) for row in EXAMPLE_ROWS]
    sequences = [_sequence_example(row) for row in SEQUENCE_ROWS]
    return {
        "tensors": list(_tensors()),
        "example": {
            "schema": {"features": EXAMPLE_FEATURES},
            "rows": EXAMPLE_ROWS,
            "files": {name: _file(examples, name).hex() for name in ("", "GZIP", "ZLIB")},
        },
        "sequence_example": {
            "schema": {"message": "sequence_example", "features": SEQUENCE_FEATURES},
            "rows": SEQUENCE_ROWS,
            "files": {name: _file(sequences, name).hex() for name in ("", "GZIP", "ZLIB")},
        },
    }


def _tensors() -> Iterator[dict[str, Any]]:
    tf = importlib.import_module("tensorflow")
    for dtype in DTYPES.values():
        if not dtype.has_kernel:
            continue
        for shape in [(len(STRINGS),)] if dtype.is_string else SHAPES:
            if dtype.is_string:
                values: Any = np.array([*STRINGS, None], object)[:-1]  # of objects, whose ends are kept
                content: Any = [value.hex() for value in STRINGS]
            else:
                size = int(np.prod(shape)) * dtype.itemsize
                data = element_bytes(bytes(index * 37 + 11 & 0xFF for index in range(size)), dtype)
                values, content = np.frombuffer(data, dtype.numpy), data.hex()
            tensor = tf.reshape(tf.constant(values, tf.dtypes.as_dtype(dtype.tf_enum)), list(shape))
            message = tf.io.serialize_tensor(tensor).numpy().hex()
            yield {"dtype": dtype.name, "shape": list(shape), "content": content, "message": message}


def _feature(value: Any, dtype: str) -> Any:
    train = importlib.import_module("tensorflow").train
    items = value if isinstance(value, list) else [value]
    if dtype == "float32":
        return train.Feature(float_list=train.FloatList(value=items))
    if dtype == "text":
        return train.Feature(bytes_list=train.BytesList(value=[item.encode() for item in items]))
    return train.Feature(int64_list=train.Int64List(value=map(int, items)))


def _features(row: dict[str, Any], declared: dict[str, dict[str, Any]]) -> Any:
    train = importlib.import_module("tensorflow").train
    return train.Features(
        feature={
            name: _feature(value, declared[name]["dtype"]) for name, value in row.items() if value is not None
        }
    )


def _example(row: dict[str, Any]) -> bytes:
    train = importlib.import_module("tensorflow").train
    message: bytes = train.Example(features=_features(row, EXAMPLE_FEATURES)).SerializeToString(
        deterministic=True
    )
    return message


def _sequence_example(row: dict[str, Any]) -> bytes:
    train = importlib.import_module("tensorflow").train
    lists = {
        name: train.FeatureList(feature=[_feature(step, SEQUENCE_FEATURES[name]["dtype"]) for step in steps])
        for name, steps in row["feature_lists"].items()
    }
    message: bytes = train.SequenceExample(
        context=_features(row["context"], SEQUENCE_FEATURES),
        feature_lists=train.FeatureLists(feature_list=lists),
    ).SerializeToString(deterministic=True)
    return message


def _file(records: list[bytes], compression: str) -> bytes:
    tf = importlib.import_module("tensorflow")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for record in records:
                writer.write(record)
        return path.read_bytes()


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(make(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
