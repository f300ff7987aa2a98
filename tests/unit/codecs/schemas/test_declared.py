"""One schema in the three forms in which clients may declare it, told apart by what stands in them."""

import json

import pytest

from app.codecs.schemas.declared import parse_schema, schema_from_value
from app.codecs.schemas.features_json import serialize_features
from app.codecs.schemas.pbtxt import serialize_pbtxt
from app.domain.schema import Schema
from app.errors import InputError

SCHEMA = Schema.from_json({"features": {"x": {"dtype": "uint8", "shape": [2]}, "y": {"dtype": "text"}}})
JSON = json.dumps(SCHEMA.to_json()).encode()
FEATURES = serialize_features(SCHEMA)
PBTXT = serialize_pbtxt(SCHEMA)


@pytest.mark.parametrize("data", [JSON, b"\n " + JSON, FEATURES, PBTXT, b"# mine\n\n" + PBTXT])
def test_bytes_of_each_form(data: bytes) -> None:
    assert parse_schema(data) == SCHEMA


def test_a_member_of_each_form() -> None:
    assert schema_from_value(SCHEMA.to_json()) == SCHEMA
    assert schema_from_value(json.loads(FEATURES)) == SCHEMA
    assert schema_from_value(PBTXT.decode()) == SCHEMA


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_schema"),
        (b"[]", "invalid_schema"),
        (b"3", "invalid_pbtxt"),
        (b"{", "invalid_json"),
        (b'{"x": {"dtype": "int64"}}', "invalid_schema"),
        (b"message: EXAMPLE", "invalid_schema"),
        (b"\xff", "invalid_pbtxt"),
        (b'"feature { name: 1 }"', "invalid_schema"),
    ],
)
def test_schema_of_another_form_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_schema(data)
    assert caught.value.code == code
