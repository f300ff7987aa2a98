"""schema.pbtxt, byte by byte, and as TensorFlow Metadata's own parser reads it."""

import contextlib
import importlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.schemas import text_format
from app.codecs.schemas.pbtxt import parse_pbtxt, serialize_pbtxt
from app.domain.schema import Schema
from app.errors import InputError, UnprocessableInput
from tests.support.peak_memory import peak_bytes
from tests.support.random_features import NAMES, features


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
    assert written(dtype="int64", shape=[6], nullable=True) == (
        'feature {\n  name: "x"\n  type: INT\n  value_count { min: 6 max: 6 }\n}\n'
    )
    assert "  value_count { min: 6 max: 6 }\n" in written(dtype="int64", shape=[2, 3], nullable=True)


def test_a_length_that_varies_is_not_bounded() -> None:
    assert "  value_count { min: 0 }\n" in written(dtype="bytes", shape=[None, 3])


def test_lost_detail_is_kept_in_a_comment() -> None:
    assert written(dtype="text") == (
        'feature {\n  name: "x"\n  type: BYTES\n  presence { min_fraction: 1 min_count: 1 }\n  shape { }\n'
        r'  annotation { comment: "shardsmith: {\"x\":{\"dtype\":\"text\",\"shape\":[],\"kind\":\"dense\",'
        r'\"encoding\":\"list\",\"nullable\":false}}" }'
        "\n}\n"
    )
    for plain in (
        {"dtype": "int64", "nullable": True},
        {"dtype": "bytes", "shape": [None]},
        {"dtype": "bool"},
    ):
        assert "annotation" not in written(**plain)


@pytest.mark.parametrize(
    ("feature", "line"),
    [
        ({"dtype": "bool"}, "bool_domain { }"),
        ({"dtype": "uint8"}, "int_domain { min: 0 max: 255 }"),
        ({"dtype": "int16"}, "int_domain { min: -32768 max: 32767 }"),
        ({"dtype": "uint32"}, "int_domain { min: 0 max: 4294967295 }"),
        (
            {"dtype": "float64", "shape": [None, 3], "encoding": "raw"},
            'annotation { comment: "tf.io.decode_raw, float64, shape [None, 3]" comment: "shardsmith: ',
        ),
        (
            {"dtype": "text", "encoding": "tensor"},
            'annotation { comment: "tf.io.parse_tensor, string, shape []" comment: "shardsmith: ',
        ),
    ],
)
def test_detail_beyond_the_type_is_written(feature: dict[str, Any], line: str) -> None:
    assert f"  {line}" in written(**feature)


def test_encoded_features_are_single_byte_strings() -> None:
    text = written(dtype="float64", shape=[None, 3], encoding="raw")
    assert "  type: BYTES\n" in text
    assert "  shape { }\n" in text


RAGGED = """\
feature {
  name: "x/ragged_flat_values"
  type: INT
  presence { min_fraction: 1 min_count: 1 }
  value_count { min: 0 }
}
feature {
  name: "x/ragged_row_lengths_0"
  type: INT
  presence { min_fraction: 1 min_count: 1 }
  value_count { min: 0 }
}
tensor_representation_group {
  key: ""
  value {
    tensor_representation {
      key: "x"
      value {
        ragged_tensor {
          feature_path { step: "x/ragged_flat_values" }
          partition { row_length: "x/ragged_row_lengths_0" }
          partition { uniform_row_length: 3 }
        }
      }
    }
  }
}
"""


def test_ragged() -> None:
    assert written(dtype="int64", shape=[None, None, 3], kind="ragged") == RAGGED


def test_sparse() -> None:
    assert written(dtype="float32", shape=[4], kind="sparse", nullable=True) == (
        'feature {\n  name: "x/indices_0"\n  type: INT\n  value_count { min: 0 }\n'
        "  int_domain { min: 0 max: 3 }\n}\n"
        'feature {\n  name: "x/values"\n  type: FLOAT\n  value_count { min: 0 }\n}\n'
        'sparse_feature {\n  name: "x"\n  dense_shape { dim { size: 4 } }\n'
        '  index_feature { name: "x/indices_0" }\n  value_feature { name: "x/values" }\n}\n'
    )


def test_feature_lists() -> None:
    assert written(dtype="int64", shape=[None, 2], kind="sequence") == (
        'feature {\n  name: "##SEQUENCE##"\n  type: STRUCT\n  struct_domain {\n    feature {\n'
        '      name: "x"\n      type: INT\n      presence { min_fraction: 1 min_count: 1 }\n'
        "      value_count { min: 2 max: 2 }\n    }\n  }\n}\n"
    )


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(NAMES, features(), min_size=1, max_size=5))
def test_every_schema_comes_back(drawn: dict[str, Any]) -> None:
    schema = Schema.from_json({"features": drawn})
    read = parse_pbtxt(serialize_pbtxt(schema))
    # The feature lists of a SequenceExample stand together.
    assert read.same_features(schema)
    if schema.message == "example":
        assert read == schema


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(NAMES, features(), min_size=1, max_size=5))
@pytest.mark.tensorflow
def test_schema_printed_by_tensorflow_metadata_is_read(drawn: dict[str, Any]) -> None:
    text_format = importlib.import_module("google.protobuf.text_format")
    schema_pb2 = importlib.import_module("tensorflow_metadata.proto.v0.schema_pb2")
    schema = Schema.from_json({"features": drawn})
    message = text_format.Parse(serialize_pbtxt(schema), schema_pb2.Schema())
    for options in ({}, {"as_one_line": True}, {"pointy_brackets": True}, {"as_utf8": True}):
        assert parse_pbtxt(text_format.MessageToString(message, **options).encode()).same_features(schema)


@settings(deadline=None, max_examples=60)
@given(st.data())
@pytest.mark.tensorflow
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


def read(text: str) -> dict[str, Any]:
    """The members of each feature that differ from those of a scalar that is always there."""
    plain = {"shape": [], "kind": "dense", "encoding": "list", "nullable": False}
    features = parse_pbtxt(text.encode()).to_json()["features"]
    return {
        name: {key: value for key, value in feature.items() if plain.get(key) != value}
        for name, feature in features.items()
    }


#: As TensorFlow Data Validation infers it, and as people write it.
FOREIGN = """
# A comment.
feature {
  name: "fare"
  value_count { min: 1 max: 1 }
  type: FLOAT
  presence { min_fraction: 1.0 min_count: 1 }
  float_domain { min: 0.0 max: inf }
  skew_comparator { infinity_norm { threshold: 0.01 } }
}
feature < name: 'pay' 'ment' type: BYTES domain: "payment" presence: { min_count: 1 }; >
feature { name: "tags" type: BYTES natural_language_domain { } presence { min_fraction: 1 } }
feature { name: "image" type: BYTES image_domain { } shape { } presence { min_fraction: 1 } }
feature { name: "hour" type: INT int_domain { min: 0 max: 23 is_categorical: true }
  value_count { min: 1 max: 1 } }
feature { name: "flag" bool_domain { } shape { } presence { min_fraction: 1 } }
feature { name: "old" type: INT deprecated: true shape { dim { size: 2 } } presence { min_fraction: 1 } }
feature { name: "gone" type: INT lifecycle_stage: DEPRECATED shape { } presence { min_fraction: 1 } }
feature { name: "m" type: INT shape { dim { size: -1 } dim { size: 0x2 } } presence { min_fraction: 1 } }
sparse_feature { name: "s" index_feature { name: "hour" } value_feature { name: "fare" }
  dense_shape { dim { size: 9 } } }
string_domain { name: "payment" value: "Cash" value: "\\101\\x41\\u0041\\n" }
default_environment: ["TRAINING", "SERVING"]
[some.extension] { anything: 1e-5f other: [1, -2] }
"""


def test_one_name_in_both_parts_comes_back() -> None:
    for dtype in ("int64", "text"):
        features = {
            "feature_lists/x": {"dtype": dtype, "shape": [None], "kind": "sequence"},
            "x": {"dtype": "int64"},
            "feature_lists/y": {"dtype": dtype, "shape": [None], "kind": "sequence"},
        }
        schema = Schema.from_json({"features": features})
        text = serialize_pbtxt(schema)
        assert text.decode().count('name: "x"') == 2
        assert text.decode().count('name: "feature_lists/y"') == 1
        assert parse_pbtxt(text).same_features(schema)


def test_schemas_of_others() -> None:
    assert read(FOREIGN) == {
        "fare": {"dtype": "float32"},
        "payment": {"dtype": "text", "shape": [None], "nullable": True},
        "tags": {"dtype": "text", "shape": [None]},
        "image": {"dtype": "bytes"},
        "hour": {"dtype": "int64", "nullable": True},
        "flag": {"dtype": "bool"},
        "old": {"dtype": "int64", "shape": [2], "nullable": True},
        "gone": {"dtype": "int64", "nullable": True},
        "m": {"dtype": "int64", "shape": [None, 2]},
    }


def test_components_under_other_names_stay_what_they_are() -> None:
    text = RAGGED.replace("x/ragged_flat_values", "flat")
    assert read(text) == {
        "flat": {"dtype": "int64", "shape": [None]},
        "x/ragged_row_lengths_0": {"dtype": "int64", "shape": [None]},
    }
    assert read(RAGGED) == {"x": {"dtype": "int64", "shape": [None, None, 3], "kind": "ragged"}}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_schema"),
        ("hello: 1", "invalid_schema"),
        ("feature { name: }", "invalid_pbtxt"),
        ("feature { name: 'x' type: INT", "invalid_pbtxt"),
        ("feature { name: 'x\ny' type: INT }", "invalid_pbtxt"),
        ("feature { name: '\\q' type: INT }", "invalid_pbtxt"),
        ("feature { name: '\\uD800' type: INT }", "invalid_pbtxt"),
        ("feature { name: '\\377' type: INT }", "invalid_pbtxt"),
        ("feature { type INT }", "invalid_pbtxt"),
        ("feature [ { } { } ]", "invalid_pbtxt"),
        ("[a", "invalid_pbtxt"),
        ("feature { name: 'x' type: INT } \x00", "invalid_pbtxt"),
        ("feature { } }", "invalid_pbtxt"),
        ("a {" * 100, "too_deep"),
        ("feature { type: INT }", "invalid_schema"),
        ("feature { name: 'x' }", "invalid_schema"),
        ("feature { name: 'x' type: DOUBLE }", "invalid_schema"),
        ("feature { name: 'x' type: INT presence { min_fraction: x } }", "invalid_schema"),
        ("feature { name: 'x' type: INT value_count { min: 1.5 } }", "invalid_schema"),
        ("feature { name: 'x' type: INT shape { dim { size: 9223372036854775808 } } }", "invalid_schema"),
        ("feature { name: 'x' type: STRUCT struct_domain { } }", "inexpressible_feature"),
        ("feature { name: 'x' type: INT shape { dim { } dim { } } }", "inexpressible_feature"),
        (
            "feature { name: 'x' type: INT value_counts { value_count { } value_count { } } }",
            "inexpressible_feature",
        ),
        ("feature { name: 'x' type: INT } feature { name: 'x' type: INT }", "duplicate_feature"),
        ("feature { name: 'x' type: INT annotation { comment: 'shardsmith: {}' } }", "schema_note"),
        ("feature { name: 'x' type: INT annotation { comment: 'shardsmith: [' } }", "schema_note"),
    ],
)
def test_pbtxt_that_is_not_a_schema_of_rows_is_refused(text: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_pbtxt(text.encode())
    assert caught.value.code == code


@pytest.mark.parametrize("text", ["a: 1 " * 201, "a: [" + "1, " * 301, "[" + "a " * 601])
def test_a_schema_has_a_bounded_number_of_words(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert text_format._MAX_TOKENS == 600_000
    monkeypatch.setattr(text_format, "_MAX_TOKENS", 600)
    with pytest.raises(InputError) as caught:
        parse_pbtxt(text.encode())
    assert caught.value.code == "schema_too_large"


@pytest.mark.parametrize(
    "text",
    [
        "feature { name: '" + "a" * 2**18,
        "feature { name: '" + "a" * 2**18 + "'",
        "feature { name: '" + "\\n" * 2**17 + "'",
        'feature { name: "' + "\\n" * 2**17 + '"',
        "#\n" * 2**17 + "x",
    ],
    ids=["open", "plain", "escapes", "double", "comments"],
)
def test_long_tokens_take_little_memory(text: str) -> None:
    data = text.encode()

    def parse() -> None:
        with pytest.raises(InputError):
            parse_pbtxt(data)

    assert peak_bytes(parse) < 8 * len(data)


def test_feature_that_contradicts_its_note_is_refused() -> None:
    text = written(dtype="uint8", shape=[2])
    assert read(text) == {"x": {"dtype": "uint8", "shape": [2]}}
    with pytest.raises(UnprocessableInput, match="was changed, but the comment"):
        read(text.replace("size: 2", "size: 3"))


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet="feature{}<>[]:;,'\"\\ \n#nametypINT-10.", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_pbtxt(text.encode())
