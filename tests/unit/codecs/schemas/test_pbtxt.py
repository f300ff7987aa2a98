"""schema.pbtxt, byte by byte, and as TensorFlow Metadata's own parser reads it."""

import importlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.schemas.pbtxt import serialize_pbtxt
from app.domain.schema import Schema


def written(**feature: Any) -> str:
    return serialize_pbtxt(Schema.from_json({"features": {"x": feature}})).decode()


def test_a_feature_that_is_always_there() -> None:
    assert written(dtype="float32", shape=[2, 3]) == (
        "feature {\n"
        '  name: "x"\n'
        "  type: FLOAT\n"
        "  presence { min_fraction: 1 min_count: 1 }\n"
        "  shape { dim { size: 2 } dim { size: 3 } }\n"
        "}\n"
    )


def test_a_scalar_has_an_empty_shape() -> None:
    assert "  shape { }\n" in written(dtype="int64")


def test_a_feature_that_may_be_absent_has_a_count_instead_of_a_shape() -> None:
    assert written(dtype="int64", shape=[2, 3], nullable=True) == (
        'feature {\n  name: "x"\n  type: INT\n  value_count { min: 6 max: 6 }\n}\n'
    )


def test_a_length_that_varies_is_not_bounded() -> None:
    assert "  value_count { min: 0 }\n" in written(dtype="bytes", shape=[None, 3])


@pytest.mark.parametrize(
    ("feature", "line"),
    [
        ({"dtype": "bool"}, "bool_domain { }"),
        ({"dtype": "uint8"}, "int_domain { min: 0 max: 255 }"),
        ({"dtype": "int16"}, "int_domain { min: -32768 max: 32767 }"),
        ({"dtype": "uint32"}, "int_domain { min: 0 max: 4294967295 }"),
        (
            {"dtype": "float64", "shape": [None, 3], "encoding": "raw"},
            'annotation { comment: "tf.io.decode_raw, float64, shape [None, 3]" }',
        ),
        (
            {"dtype": "text", "encoding": "tensor"},
            'annotation { comment: "tf.io.parse_tensor, string, shape []" }',
        ),
    ],
)
def test_what_the_type_does_not_say(feature: dict[str, Any], line: str) -> None:
    assert f"  {line}\n" in written(**feature)


def test_encoded_features_are_single_byte_strings() -> None:
    text = written(dtype="float64", shape=[None, 3], encoding="raw")
    assert "  type: BYTES\n" in text
    assert "  shape { }\n" in text


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_tensorflow_metadata_reads_every_schema(data: st.DataObject) -> None:
    text_format = importlib.import_module("google.protobuf.text_format")
    schema_pb2 = importlib.import_module("tensorflow_metadata.proto.v0.schema_pb2")
    names = data.draw(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, unique=True))
    feature = st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["bool", "uint8", "int64", "float16", "float32", "text", "bytes"]),
            "shape": st.lists(st.integers(0, 5), max_size=3),
            "nullable": st.booleans(),
            "encoding": st.sampled_from(["list", "tensor"]),
        }
    )
    value = {"features": {name: data.draw(feature) for name in names}}
    parsed = text_format.Parse(serialize_pbtxt(Schema.from_json(value)), schema_pb2.Schema())
    assert [feature.name for feature in parsed.feature] == names
    for written_feature, asked in zip(parsed.feature, value["features"].values(), strict=True):
        assert written_feature.HasField("shape") is not asked["nullable"]
        if written_feature.HasField("shape"):
            sizes = [dim.size for dim in written_feature.shape.dim]
            assert sizes == (asked["shape"] if asked["encoding"] == "list" else [])
            assert written_feature.presence.min_fraction == 1
