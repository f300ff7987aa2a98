"""Schemas of others, as their libraries write them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import tensorflow_datasets as tfds

from tests.golden.entries import Golden, json_bytes

_NULLABLE: Final = {"nullable": True}
#: What TensorFlow Metadata says below.
METADATA: Final[dict[str, Any]] = {
    "id": {"dtype": "int64"},
    "flag": {"dtype": "bool", **_NULLABLE},
    "x": {"dtype": "float32", "shape": [2, 3]},
    "word": {"dtype": "text", **_NULLABLE},
    "tags": {"dtype": "bytes", "shape": [None], **_NULLABLE},
}
#: What TFDS says below, which sorts by name.
FEATURES: Final[dict[str, Any]] = {
    "box/size": {"dtype": "uint8", "shape": [2]},
    "counts": {"dtype": "int32", "shape": [None]},
    "id": {"dtype": "int64"},
    "image": {"dtype": "bytes", "image": {"format": "png", "shape": [4, 4, 3]}},
    "label": {"dtype": "int64"},
    "name": {"dtype": "text"},
    "x": {"dtype": "float32", "shape": [2, 3]},
}


def schemas() -> Iterator[Golden]:
    for name, form, content, features, made in (
        ("metadata", "pbtxt", _metadata(), METADATA, "tensorflow_metadata and protobuf"),
        ("features", "features", _features(), FEATURES, "tfds.features.FeaturesDict.save_config"),
    ):
        of = f"schemas/{name}.schema.json"
        yield Golden(of, json_bytes({"features": features}), "schema", "schema", "json of Python")
        suffix = {"pbtxt": "pbtxt", "features": "json"}[form]
        yield Golden(f"schemas/{name}.{suffix}", content, form, "schema", made, of)


def _metadata() -> bytes:
    schema_pb2: Any = importlib.import_module("tensorflow_metadata.proto.v0.schema_pb2")
    schema = schema_pb2.Schema()
    for name, kind in (
        ("id", schema_pb2.INT),
        ("flag", schema_pb2.INT),
        ("x", schema_pb2.FLOAT),
        ("word", schema_pb2.BYTES),
        ("tags", schema_pb2.BYTES),
    ):
        feature = schema.feature.add(name=name, type=kind)
        if name in ("id", "x"):
            feature.presence.min_fraction = 1
        if name == "x":
            feature.shape.dim.add(size=2)
            feature.shape.dim.add(size=3)
        elif name == "tags":
            feature.value_count.min = 0
        else:
            feature.value_count.min = feature.value_count.max = 1
        if name == "flag":
            feature.bool_domain.SetInParent()
        if name == "word":
            feature.natural_language_domain.SetInParent()
    text_format: Any = importlib.import_module("google.protobuf.text_format")
    text: str = text_format.MessageToString(schema)
    return text.encode()


def _features() -> bytes:
    features = tfds.features.FeaturesDict(
        {
            "id": np.int64,
            "x": tfds.features.Tensor(shape=(2, 3), dtype=np.float32),
            "name": tfds.features.Text(),
            "image": tfds.features.Image(shape=(4, 4, 3), encoding_format="png"),
            "label": tfds.features.ClassLabel(num_classes=3),
            "counts": tfds.features.Sequence(np.int32),
            "box": {"size": tfds.features.Tensor(shape=(2,), dtype=np.uint8)},
        }
    )
    with TemporaryDirectory() as folder:
        features.save_config(folder)
        return (Path(folder) / "features.json").read_bytes()
