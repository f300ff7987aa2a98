"""TFDS's files, byte by byte; tests/differential/test_tfds.py has TFDS itself read them."""

import json
from typing import Any

import pytest

from app.codecs.schemas.features_json import serialize_dataset_info, serialize_features
from app.domain.schema import Schema

CORE = "tensorflow_datasets.core.features"


def written(**feature: Any) -> Any:
    schema = Schema.from_json({"features": {"x": feature}})
    return json.loads(serialize_features(schema))["content"]["features"]["x"]


def scalar(dtype: str, **more: Any) -> Any:
    return {
        "pythonClassName": f"{CORE}.scalar.Scalar",
        "tensor": {"shape": {}, "dtype": dtype, "encoding": "none", **more},
    }


def tensor(dtype: str, dimensions: list[str], encoding: str = "none", **more: Any) -> Any:
    return {
        "pythonClassName": f"{CORE}.tensor_feature.Tensor",
        "tensor": {
            "shape": {"dimensions": dimensions} if dimensions else {},
            "dtype": dtype,
            "encoding": encoding,
            **more,
        },
    }


def test_the_whole_file() -> None:
    schema = Schema.from_json(
        {"features": {"y": {"dtype": "int64"}, "x": {"dtype": "float32", "shape": [2, 3]}}}
    )
    value = json.loads(serialize_features(schema))
    assert value == {
        "type": f"{CORE}.features_dict.FeaturesDict",
        "proto_cls": "tensorflow_datasets.FeaturesDict",
        "content": {"features": {"y": scalar("int64"), "x": tensor("float32", ["2", "3"])}},
    }
    assert list(value["content"]["features"]) == ["y", "x"]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "int64", "float16", "bfloat16", "float32"])
def test_a_listed_number_keeps_its_dtype(dtype: str) -> None:
    assert written(dtype=dtype) == scalar(dtype)
    assert written(dtype=dtype, shape=[4]) == tensor(dtype, ["4"])


@pytest.mark.parametrize("dtype", ["text", "bytes"])
def test_strings(dtype: str) -> None:
    assert written(dtype=dtype) == scalar("string")
    assert written(dtype=dtype, shape=[None]) == tensor("string", ["-1"])


def test_an_unknown_dimension_is_minus_one() -> None:
    assert written(dtype="int64", shape=[3, None]) == tensor("int64", ["3", "-1"])


def test_a_nullable_feature_is_optional() -> None:
    assert written(dtype="int64", nullable=True) == scalar("int64", optional=True)
    assert written(dtype="float32", shape=[2], nullable=True) == tensor("float32", ["2"], optional=True)


def test_a_nullable_feature_of_unknown_length_is_empty_instead() -> None:
    assert written(dtype="int64", shape=[None], nullable=True) == tensor("int64", ["-1"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_floats_without_a_default_are_read_as_float32(dtype: str) -> None:
    assert written(dtype=dtype, nullable=True) == scalar("float32", optional=True)
    assert written(dtype=dtype) == scalar(dtype)


@pytest.mark.parametrize("dtype", ["float64", "uint64", "bool", "complex64"])
def test_raw_bytes_are_decoded_by_tfds(dtype: str) -> None:
    assert written(dtype=dtype, shape=[2], encoding="raw") == tensor(dtype, ["2"], "bytes")
    assert written(dtype=dtype, encoding="raw") == tensor(dtype, [], "bytes")


@pytest.mark.parametrize(
    "feature",
    [
        {"dtype": "float32", "shape": [2], "encoding": "tensor"},
        {"dtype": "text", "encoding": "tensor"},
        {"dtype": "float32", "shape": [None, None]},
        {"dtype": "uint32", "shape": [2], "encoding": "raw"},
    ],
)
def test_what_tfds_cannot_decode_is_opaque_bytes(feature: dict[str, Any]) -> None:
    assert written(**feature) == scalar("string")
    assert written(**feature, nullable=True) == scalar("string", optional=True)


def test_raw_bytes_that_may_be_absent_are_opaque() -> None:
    assert written(dtype="float64", shape=[2], encoding="raw", nullable=True) == scalar(
        "string", optional=True
    )


def test_dataset_info() -> None:
    data = serialize_dataset_info(
        "my_ds", "1.1.0", {"train": [3, 0, 2], "empty": [], "test": [1]}, {"train": 250, "test": 50}, "Text."
    )
    assert json.loads(data) == {
        "name": "my_ds",
        "version": "1.1.0",
        "description": "Text.",
        "fileFormat": "tfrecord",
        "splits": [
            {"name": "train", "shardLengths": ["3", "0", "2"], "numBytes": "250"},
            {"name": "test", "shardLengths": ["1"], "numBytes": "50"},
        ],
    }


def test_equal_schemas_give_equal_bytes() -> None:
    value = {"features": {"x": {"dtype": "int64"}, "é": {"dtype": "text"}}}
    first, second = Schema.from_json(value), Schema.from_json(json.loads(json.dumps(value)))
    assert serialize_features(first) == serialize_features(second)
    assert serialize_features(first).isascii()
