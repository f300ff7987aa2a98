"""TFDS's files, byte by byte; tests/differential/test_tfds.py has TFDS itself read them."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.schemas.features_json import (
    class_files,
    parse_features,
    serialize_dataset_info,
    serialize_features,
)
from app.domain.schema import Schema
from app.errors import InputError, UnprocessableInput
from tests.support.random_features import NAMES, features

CORE = "tensorflow_datasets.core.features"


def written(**feature: Any) -> Any:
    schema = Schema.from_json({"features": {"x": feature}})
    value = json.loads(serialize_features(schema))["content"]["features"]["x"]
    value.pop("description", None)
    return value


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


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (
            {"format": "jpeg", "shape": [4, None, 3]},
            {"dimensions": ["4", "-1", "3"], "encodingFormat": "jpeg"},
        ),
        ({"format": "png", "shape": [None, None, None]}, {"dimensions": ["-1", "-1", "-1"]}),
        ({"format": "bmp", "shape": [4, 4, 1]}, {"dimensions": ["4", "4", "1"]}),
        ({"format": None}, {"dimensions": ["-1", "-1", "-1"]}),
        ({"format": "webp"}, None),
        ({"format": "gif"}, None),
        ({"format": "png", "shape": [4, 4, 2]}, None),
    ],
)
def test_an_encoded_image_that_tfds_decodes_is_an_image(image: Any, expected: Any) -> None:
    if expected is None:
        assert written(dtype="bytes", image=image) == scalar("string")
    else:
        shape = {"dimensions": expected.pop("dimensions")}
        content = {"shape": shape, "dtype": "uint8", **expected}
        assert written(dtype="bytes", image=image) == {
            "pythonClassName": f"{CORE}.image_feature.Image",
            "image": content,
        }
    assert written(dtype="bytes", nullable=True, image=image) == scalar("string", optional=True)


def test_a_number_with_names_is_a_class_label_and_they_have_a_file() -> None:
    names = {"class_names": ["cat", "très bien"]}
    label = {
        "pythonClassName": f"{CORE}.class_label_feature.ClassLabel",
        "classLabel": {"numClasses": "2"},
    }
    assert written(dtype="int64", **names) == label
    assert written(dtype="uint8", **names) == label
    assert written(dtype="int64", shape=[2], **names) == tensor("int64", ["2"])
    assert written(dtype="int64", nullable=True, **names) == scalar("int64", optional=True)
    features = {
        "a/b": {"dtype": "int64", **names},
        "several": {"dtype": "int64", "shape": [2], **names},
        "empty": {"dtype": "int64", "class_names": ["a", ""]},
        "spaces": {"dtype": "int64", "class_names": [" a"]},
        "lines": {"dtype": "int64", "class_names": ["a\nb"]},
        "../x": {"dtype": "int64", **names},
        "é": {"dtype": "int64", **names},
        "n" * 300: {"dtype": "int64", **names},
    }
    assert class_files(Schema.from_json({"features": features})) == {
        "a.b.labels.txt": "cat\ntrès bien\n".encode()
    }


def test_the_languages_of_a_translation_are_names_of_features() -> None:
    value = of_class("translation_feature", "Translation", "translation", languages=["en", "de"])
    assert parse_features(value).names == ("en", "de")


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
def test_feature_that_tfds_cannot_decode_is_bytes(feature: dict[str, Any]) -> None:
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


def sequence(feature: Any, length: str = "-1") -> Any:
    return {
        "pythonClassName": f"{CORE}.sequence_feature.Sequence",
        "sequence": {"feature": feature, "length": length},
    }


def features_dict(**features: Any) -> Any:
    return {
        "pythonClassName": f"{CORE}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }


def test_ragged_of_several_unknown_dimensions_is_nested_sequences() -> None:
    assert written(dtype="text", shape=[None, None], kind="ragged") == sequence(sequence(scalar("string")))
    assert written(dtype="int8", shape=[None, 2, None, 3], kind="ragged", nullable=True) == sequence(
        sequence(sequence(tensor("int8", ["3"])), "2")
    )


def test_ragged_of_one_unknown_dimension_is_its_components() -> None:
    lengths = tensor("int64", ["-1"])
    assert written(dtype="int8", shape=[2, None], kind="ragged") == features_dict(
        ragged_flat_values=tensor("int8", ["-1"]), ragged_row_lengths_0=lengths
    )


def test_sparse_is_its_components() -> None:
    assert written(dtype="float32", shape=[4, 5], kind="sparse") == features_dict(
        indices_0=tensor("int64", ["-1"]), indices_1=tensor("int64", ["-1"]), values=tensor("float32", ["-1"])
    )


def test_tfds_has_no_feature_lists() -> None:
    schema = Schema.from_json({"features": {"x": {"dtype": "int64"}}, "message": "sequence_example"})
    with pytest.raises(UnprocessableInput) as caught:
        serialize_features(schema)
    assert caught.value.code == "inexpressible_schema"


def test_lost_detail_is_kept_in_the_description() -> None:
    schema = Schema.from_json({"features": {"x": {"dtype": "text"}, "y": {"dtype": "bytes"}}})
    described = json.loads(serialize_features(schema))["content"]["features"]
    assert described["x"]["description"] == (
        'shardsmith: {"x":{"dtype":"text","shape":[],"kind":"dense","encoding":"list","nullable":false}}'
    )
    assert "description" not in described["y"]


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(NAMES, features(sequences=False), min_size=1, max_size=5))
def test_every_schema_of_examples_comes_back(drawn: dict[str, Any]) -> None:
    schema = Schema.from_json({"features": drawn})
    assert parse_features(json.loads(serialize_features(schema))) == schema


def read(feature: Any, **more: Any) -> dict[str, Any]:
    """What `x`, and what stands beside it, become; only the members that say something."""
    plain = {"shape": [], "kind": "dense", "encoding": "list", "nullable": False}
    value = features_dict(x=feature, **more)
    return {
        name: {key: member for key, member in feature.items() if plain.get(key) != member}
        for name, feature in parse_features(value).to_json()["features"].items()
    }


def of_class(module: str, name: str, member: str = "", **content: Any) -> Any:
    return {"pythonClassName": f"{CORE}.{module}.{name}", **({member: content} if member else {})}


BYTES_TENSOR = of_class(
    "tensor_feature", "Tensor", "tensor", dtype="float32", encoding="bytes", shape={"dimensions": ["-1", "2"]}
)


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (scalar("float64", optional=True), {"x": {"dtype": "float64", "nullable": True}}),
        (tensor("string", ["-1", "2"]), {"x": {"dtype": "bytes", "shape": [None, 2]}}),
        (BYTES_TENSOR, {"x": {"dtype": "float32", "shape": [None, 2], "encoding": "raw"}}),
        (tensor("int64", ["3"], "zlib"), {"x": {"dtype": "bytes"}}),
        (
            tensor("int64", ["-1", "-1"], "bytes"),
            {"x/shape": {"dtype": "int32", "shape": [2]}, "x/value": {"dtype": "bytes"}},
        ),
        (
            of_class("class_label_feature", "ClassLabel", "classLabel", numClasses="10"),
            {"x": {"dtype": "int64"}},
        ),
        (of_class("class_label_feature", "ClassLabel", "class_label"), {"x": {"dtype": "int64"}}),
        (of_class("text_feature", "Text", "text"), {"x": {"dtype": "text"}}),
        (
            of_class(
                "image_feature", "Image", "image", dtype="uint8", shape={"dimensions": ["28", "28", "1"]}
            ),
            {"x": {"dtype": "bytes", "image": {"format": None, "shape": [28, 28, 1]}}},
        ),
        (
            of_class(
                "image_feature",
                "Image",
                "image",
                dtype="uint8",
                shape={"dimensions": ["-1", "-1", "3"]},
                encodingFormat="jpeg",
            ),
            {"x": {"dtype": "bytes", "image": {"format": "jpeg", "shape": [None, None, 3]}}},
        ),
        (of_class("image_feature", "Image", "image", dtype="float32"), {"x": {"dtype": "bytes"}}),
        (
            of_class("image_feature", "Image", "image", shape={"dimensions": ["-1", "2", "2", "3"]}),
            {"x": {"dtype": "bytes"}},
        ),
        (of_class("bounding_boxes", "BBoxFeature"), {"x": {"dtype": "float32", "shape": [4]}}),
        (
            of_class("translation_feature", "Translation", "translation", languages=["en", "de"]),
            {"x/en": {"dtype": "text"}, "x/de": {"dtype": "text"}},
        ),
        (sequence(scalar("int64")), {"x": {"dtype": "int64", "shape": [None]}}),
        (sequence(tensor("int64", ["2"]), "3"), {"x": {"dtype": "int64", "shape": [3, 2]}}),
        (sequence(BYTES_TENSOR), {"x": {"dtype": "bytes", "shape": [None]}}),
        (
            sequence(sequence(tensor("int64", ["2"]))),
            {"x": {"dtype": "int64", "shape": [None, None, 2], "kind": "ragged"}},
        ),
        (
            sequence(features_dict(a=scalar("int64"), b=of_class("image_feature", "Image"))),
            {"x/a": {"dtype": "int64", "shape": [None]}, "x/b": {"dtype": "bytes", "shape": [None]}},
        ),
        (
            {"type": "my.FeaturesDict", "content": {"y": {"type": "Text", "content": {}}}},
            {"x/y": {"dtype": "text"}},
        ),
        (
            {
                "type": "Tensor",
                "proto_cls": "tensorflow_datasets.TensorFeature",
                "content": '{"dtype": "int64", "shape": {"dimensions": ["2"]}}',
            },
            {"x": {"dtype": "int64", "shape": [2]}},
        ),
        (
            {"type": "Tensor", "content": {"dtype": "int64", "shape": [None]}},
            {"x": {"dtype": "int64", "shape": [None]}},
        ),
    ],
)
def test_features_of_others(feature: Any, expected: dict[str, Any]) -> None:
    assert read(feature) == expected


@pytest.mark.parametrize(
    ("feature", "code", "named"),
    [
        (of_class("video_feature", "Video", "video"), "inexpressible_feature", "Video"),
        (of_class("audio_feature", "Audio", "audio"), "inexpressible_feature", "Audio"),
        (of_class("dataset_feature", "Dataset", "sequence"), "inexpressible_feature", "Dataset"),
        (
            of_class("translation_feature", "Translation", "translation", variableLanguagesPerExample=True),
            "inexpressible_feature",
            "TranslationVariableLanguages",
        ),
        (tensor("int64", ["-1", "-1"]), "inexpressible_feature", "unknown dimensions"),
        (sequence(sequence(scalar("int64"), "2"), "2"), "inexpressible_feature", "one known length"),
        (sequence(sequence(scalar("int64"), "2")), "inexpressible_feature", "one known length"),
        (scalar("complex64"), "inexpressible_feature", "complex64"),
        (scalar("float7"), "inexpressible_feature", "float7"),
        (tensor("int64", ["-1"], "rot13"), "invalid_schema", "rot13"),
        (tensor("int64", ["x"]), "invalid_schema", "'x'"),
        (tensor("int64", [str(2**63)]), "invalid_schema", "64-bit"),
        ({"type": "Tensor", "content": {"shape": []}}, "invalid_schema", "no dtype"),
        ({"type": "Tensor", "content": {"dtype": "int64", "shape": 3}}, "invalid_schema", "shape"),
        ({"type": "Tensor", "content": "{"}, "invalid_schema", "no JSON"),
        ({"type": "FeaturesDict", "content": '{"a": {}, "a": {}}'}, "invalid_schema", "twice"),
        ({"type": "Tensor", "content": []}, "invalid_schema", "no object"),
        (
            {"type": "FeaturesDict", "proto_cls": "p", "content": {"features": []}},
            "invalid_schema",
            "no object",
        ),
        ({}, "invalid_schema", "its class"),
        (3, "invalid_schema", "not an object"),
        ({**scalar("int64"), "description": "shardsmith: {}"}, "schema_note", "cannot be read"),
        (
            {**scalar("int64"), "description": 'shardsmith: {"x": {"dtype": "text"}}'},
            "schema_note",
            "was changed",
        ),
    ],
)
def test_unsupported_feature_is_refused_by_name(feature: Any, code: str, named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        read(feature)
    assert caught.value.code == code


def test_two_features_of_one_name_are_refused() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        read(features_dict(y=scalar("int64")), **{"x/y": scalar("int64")})
    assert caught.value.code == "duplicate_feature"


def test_too_deep_feature_is_refused() -> None:
    feature = scalar("int64")
    for _ in range(100):
        feature = sequence(feature)
    with pytest.raises(InputError, match="64 deep"):
        read(feature)
