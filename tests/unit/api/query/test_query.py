"""Query parameters become the options of codecs."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from app.api.query.datasets import AppendQuery, RowsQuery
from app.api.query.rows import DescribeRecordsQuery, ExamplesQuery, RecordsQuery
from app.api.query.tensors import TensorsQuery
from app.codecs.options import RecordsDecodeOptions
from app.domain.schema import Schema
from app.errors import UnprocessableInput

STEPS = Schema.from_json({"features": {"x": {"dtype": "int64", "shape": [None], "kind": "sequence"}}})
X = Schema.from_json({"features": {"x": {"dtype": "int64"}}})


def records_query(**parameters: Any) -> RecordsQuery:
    return RecordsQuery.model_validate(parameters)


def test_tensors() -> None:
    query = TensorsQuery.model_validate(
        {"order": "F", "kind": "sparse", "sparse": "many", "b64": "websafe", "dtype": "int8", "shape": "2,3"}
    )
    decode = query.decode_options(input_form="raw", output_form="json", json_bytes=7)
    assert (decode.order, decode.kind, decode.json_bytes, decode.shape) == ("F", "sparse", 7, (2, 3))
    encode = query.encode_options()
    assert (encode.order, encode.sparse, encode.b64) == ("F", "many", "websafe")


@pytest.mark.parametrize(
    ("text", "shape"), [("", ()), ("2,3", (2, 3)), ("0,1", (0, 1)), ("0" * 30 + "17", (17,))]
)
def test_shapes(text: str, shape: tuple[int, ...]) -> None:
    query = TensorsQuery.model_validate({"shape": text})
    assert query.decode_options(input_form="raw", output_form="json", json_bytes=None).shape == shape


@pytest.mark.parametrize("parameters", [{"order": "K"}, {"kind": "coo"}, {"sparse": ""}, {"b64": "url"}])
def test_other_values_are_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        TensorsQuery.model_validate(parameters)


def decoding(parameters: dict[str, str]) -> list[Callable[[Schema | None], RecordsDecodeOptions]]:
    """What each kind of query makes of a declared schema."""
    records, append = records_query(**parameters), AppendQuery.model_validate(parameters)
    return [
        ExamplesQuery.model_validate(parameters).decode_options,
        lambda schema: records.decode_stream_options(schema, output_form="json", json_bytes=None),
        lambda schema: append.decode_options(schema, json_bytes=None),
    ]


def test_the_message_goes_into_the_declared_schema() -> None:
    for decode in decoding({"message": "sequence_example"}):
        options = decode(X)
        assert options.message == "sequence_example"
        assert options.schema == X.with_message("sequence_example")
        assert decode(None).schema is None
    for decode in decoding({}):
        assert decode(STEPS).schema is STEPS
        assert decode(STEPS).message is None


def test_a_message_that_contradicts_the_schema_is_refused() -> None:
    with pytest.raises(UnprocessableInput, match="message=example"):
        records_query(message="example").decode_stream_options(STEPS, output_form="json", json_bytes=None)


def test_message_bytes_selects_no_message() -> None:
    query = records_query(message="bytes")
    described = DescribeRecordsQuery.model_validate({"message": "bytes"})
    for options in (
        query.decode_stream_options(X, output_form="json", json_bytes=None),
        described.decode_options(X, json_bytes=None),
    ):
        assert (options.message, options.as_bytes, options.schema) == (None, True, X)
    assert query.encode_options().as_bytes
    for model in (ExamplesQuery, AppendQuery):
        with pytest.raises(ValidationError):
            model.model_validate({"message": "bytes"})


def test_records() -> None:
    query = records_query(b64="websafe")
    decode = query.decode_stream_options(None, output_form="json", json_bytes=9)
    assert decode.json_bytes == 9
    assert query.encode_options().b64 == "websafe"
    assert RowsQuery.model_validate({"b64": "websafe"}).encode_options().b64 == "websafe"
