"""The schema that an error names, where rows came without one, is one under which the form holds them."""

import json
from typing import Any

import pytest

from app.codecs.forms import FormName
from app.domain.schema import Schema
from app.runtime.budget import Budget
from tests.support import format_cases
from tests.support.format_cases import Refusal

SCALARS: list[dict[str, Any]] = [{"id": "a", "y": 1}, {"id": "b", "y": 2}]
LISTS: list[dict[str, Any]] = [{"id": "a", "x": [1.5, 2.5]}, {"id": "b", "x": [0.5, 0.25]}]
BYTES = {"dtype": "bytes"}
LISTS_SCHEMA = {"features": {"id": BYTES, "x": {"dtype": "float32", "shape": [2]}}}


def write(form: FormName, rows: list[dict[str, Any]], **options: Any) -> bytes | Refusal:
    """The rows as a TFRecord, which has no schema, in another form."""
    data = format_cases.write("tfrecord", format_cases.records(rows, infer="all"))
    assert isinstance(data, bytes)
    return format_cases.write(form, format_cases.decode("tfrecord", data, Budget(), **options))


@pytest.mark.parametrize(
    ("form", "rows", "schema"),
    [
        ("csv", SCALARS, {"features": {"id": BYTES, "y": {"dtype": "int64"}}}),
        (
            "csv",
            [*SCALARS, {"id": "c", "y": None}],
            {"features": {"id": BYTES, "y": {"dtype": "int64", "nullable": True}}},
        ),
        ("npz", LISTS, LISTS_SCHEMA),
        (
            "safetensors",
            [{"x": row["x"]} for row in LISTS],
            {"features": {"x": LISTS_SCHEMA["features"]["x"]}},
        ),
        ("oip", LISTS, LISTS_SCHEMA),
    ],
)
def test_the_schema_that_would_help(form: FormName, rows: list[dict[str, Any]], schema: Any) -> None:
    found = write(form, rows)
    assert isinstance(found, Refusal)
    assert found == Refusal("not_expressible", feature=next(iter(rows[0])))
    begin = found.detail.index("{")
    suggested, end = json.JSONDecoder().raw_decode(found.detail[begin:])
    assert suggested == schema
    assert found.detail[begin + end :].startswith(f", with the lengths that the first {len(rows)} rows have")
    assert isinstance(write(form, rows, schema=Schema.from_json(suggested)), bytes)
    assert isinstance(write(form, rows, infer="all"), bytes)


def _lists(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [None], "nullable": True}


MIXED = {"id": {"dtype": "text"}, "x": _lists("float32"), "y": _lists("int64")}


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        ("csv", LISTS),
        ("npz", [{"id": "a", "x": [1.5]}, {"id": "b", "x": None}]),
        ("csv", [{"id": "a", "y": [1]}, {"id": "c", "y": [1, 2]}]),
        ("npz", [*LISTS, {"id": "c", "x": [1.5]}]),
        ("csv", []),
    ],
)
def test_where_no_schema_would_help(form: FormName, rows: list[dict[str, Any]]) -> None:
    data = format_cases.write("tfrecord", format_cases.records(rows, schema=format_cases.schema_of(**MIXED)))
    assert isinstance(data, bytes)
    known = None if rows else format_cases.schema_of(x={"dtype": "int64", "shape": [None]})
    found = format_cases.write(form, format_cases.decode("tfrecord", data, Budget(), schema=known))
    assert isinstance(found, Refusal)
    assert found.code == "not_expressible"
    assert "Choose another" in found.detail
    assert "{" not in found.detail


def test_a_later_row_that_does_not_fit_does_not_hide_what_is_wrong_with_the_form() -> None:
    found = write("csv", [*SCALARS * 600, {"id": "c", "z": 1}])
    assert isinstance(found, Refusal)
    assert (found.code, found.row) == ("not_expressible", None)


def test_a_schema_of_very_many_features_is_not_written_out() -> None:
    rows = [{f"feature {index:03}": 1 for index in range(300)}]
    found = write("csv", rows)
    assert isinstance(found, Refusal)
    assert "{" not in found.detail
    assert "Declare the lengths" in found.detail
    assert len(found.detail) < 500
