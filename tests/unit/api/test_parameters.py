"""Query parameters become the options of codecs."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.api.dataset_parameters import AppendQuery, RowsQuery
from app.api.parameters import ExamplesQuery, RecordsQuery
from app.api.tensor_parameters import TensorsQuery
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


@pytest.mark.parametrize("model", [ExamplesQuery, RecordsQuery, AppendQuery])
def test_the_message_goes_into_the_declared_schema(model: type[ExamplesQuery] | type[AppendQuery]) -> None:
    query = model.model_validate({"message": "sequence_example"})
    decode: Any = query.decode_options
    arguments = {"json_bytes": None} if model is AppendQuery else {}
    options = decode(X, **arguments)
    assert options.message == "sequence_example"
    assert options.schema == X.with_message("sequence_example")
    assert decode(None, **arguments).schema is None
    plain: Any = model.model_validate({}).decode_options
    assert plain(STEPS, **arguments).schema is STEPS
    assert plain(STEPS, **arguments).message is None


def test_a_message_that_contradicts_the_schema_is_refused() -> None:
    with pytest.raises(UnprocessableInput, match="message=example"):
        records_query(message="example").decode_options(STEPS)


def test_records() -> None:
    query = records_query(b64="websafe")
    decode = query.decode_stream_options(None, output_form="json", json_bytes=9)
    assert decode.json_bytes == 9
    assert query.encode_options().b64 == "websafe"
    assert RowsQuery.model_validate({"b64": "websafe"}).encode_options().b64 == "websafe"
