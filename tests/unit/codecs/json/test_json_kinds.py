"""Features of every kind as JSON: what is inferred, declared, refused and written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.columns import Records
from app.domain.schema import Schema
from app.errors import InputError, LossyConversion
from tests.support.arrow_rows import as_arrow, from_arrow
from tests.support.format_cases import Refusal, decode, encode, read
from tests.unit.codecs.cases.kinds import rows_of, schemas

SEQUENCES = "sequence_example"


def schema_of(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


def decoded(body: Any, **options: Any) -> Records:
    return decode("json", body if isinstance(body, bytes) else json.dumps(body).encode(), **options)


def encoded(records: Records, **options: Any) -> Any:
    return json.loads(encode("json", records, **options))


def refused(body: Any, **options: Any) -> Refusal:
    found = read("json", body if isinstance(body, bytes) else json.dumps(body).encode(), **options)
    assert isinstance(found, Refusal)
    return found


def shaped(row: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """A flat row as it stands in rows of JSON."""
    if schema.message == "example":
        return row
    lists = {feature.name for feature in schema if feature.kind == "sequence"}
    return {
        "context": {name: cell for name, cell in row.items() if name not in lists},
        "feature_lists": {name: cell for name, cell in row.items() if name in lists},
    }


SCHEMAS_WITH_ROWS = schemas().flatmap(lambda schema: st.tuples(st.just(schema), rows_of(schema)))


def exact(value: Any) -> str:
    """As text, in which 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True)


@settings(deadline=None, max_examples=25)
@given(case=SCHEMAS_WITH_ROWS)
def test_slices_write_their_own_rows(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    expected = [shaped(row, schema) for row in rows]
    for batch in as_arrow(decoded(expected, schema=schema)):
        for start in range(batch.num_rows):
            part = from_arrow(schema, iter([batch.slice(start, 2)]))
            assert exact(encoded(part)) == exact(expected[start : start + 2])


@settings(deadline=None, max_examples=50)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "a": st.recursive(st.just(1), lambda inner: st.lists(inner, max_size=3), max_leaves=6),
                "b": st.lists(st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2), max_size=2),
            }
        ),
        min_size=1,
        max_size=4,
    )
)
def test_inferred_schema_accepts_its_rows(rows: list[dict[str, Any]]) -> None:
    refusal = None
    try:
        records = decoded(rows)
    except InputError as error:
        refusal = error
    if refusal is not None:
        assert (refusal.code in ("ragged", "schema_conflict"), refusal.location.feature) == (True, "a")
        return
    assert all(feature.to_json() for feature in Schema.from_json(records.schema.to_json()))
    found = encoded(records)
    has_values = any(items for row in rows for lists in row["b"] for items in lists)
    assert [row.get("b") for row in found] == [row["b"] if has_values else None for row in rows]


def test_a_sequence_example_in_rows() -> None:
    body = b"""[{"context": {"id": "a"}, "feature_lists": {"f": [[1, 2], [3, 4]], "g": ["x"]}},
                {"context": {"id": "b"}, "feature_lists": {"f": [], "g": null}},
                {"context": {"id": "c"}, "feature_lists": {"f": [[5, 6.5]]}}]"""
    records = decoded(body, message=SEQUENCES)
    assert records.schema.to_json() == {
        "message": SEQUENCES,
        "features": {
            "id": {"dtype": "text", "shape": [], "kind": "dense", "encoding": "list", "nullable": False},
            "f": {
                "dtype": "float64",
                "shape": [None, 2],
                "kind": "sequence",
                "encoding": "list",
                "nullable": False,
            },
            "g": {"dtype": "text", "shape": [None], "kind": "sequence", "encoding": "list", "nullable": True},
        },
    }
    assert encoded(records) == [
        {"context": {"id": "a"}, "feature_lists": {"f": [[1.0, 2.0], [3.0, 4.0]], "g": ["x"]}},
        {"context": {"id": "b"}, "feature_lists": {"f": [], "g": None}},
        {"context": {"id": "c"}, "feature_lists": {"f": [[5.0, 6.5]], "g": None}},
    ]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([{"context": {"a": 1}}], ["a"]),
        ([{"context": {"a": 1}, "feature_lists": None}], ["a"]),
        ([{"context": None, "feature_lists": {"f": [1]}}], ["f"]),
        ([{"feature_lists": {"f": [1]}}, {}], ["f"]),
        ([{}], []),
        ([{"context": {"f": None}, "feature_lists": {"f": [1]}}], ["f"]),
    ],
)
def test_either_part_of_a_sequence_example_may_be_missing(rows: list[Any], names: list[str]) -> None:
    records = decoded(rows, message=SEQUENCES)
    assert (records.schema.message, list(records.schema.names)) == (SEQUENCES, names)
    assert len(encoded(records)) == len(rows)


def test_the_message_of_the_schema_is_enough() -> None:
    schema = Schema.from_json({"message": SEQUENCES, "features": {"a": {"dtype": "int64"}}})
    assert encoded(decoded([{"context": {"a": 1}}], schema=schema)) == [
        {"context": {"a": 1}, "feature_lists": {}}
    ]
    body = {"instances": [{"context": {"a": 1}}], "schema": schema.to_json()}
    assert encoded(decoded(body)) == [{"context": {"a": 1}, "feature_lists": {}}]


def test_columns_go_by_flat_names() -> None:
    schema = schema_of(a={"dtype": "int8"}, f={"dtype": "int8", "shape": [None], "kind": "sequence"})
    columns = {"a": [1, 2], "f": [[1, 2, 3], []]}
    assert encoded(decoded(columns, schema=schema), layout="columns") == columns
    inputs = [
        {"name": "a", "datatype": "INT8", "shape": [2], "data": [1, 2]},
        {"name": "f", "datatype": "INT8", "shape": [2, 2], "data": [1, 2, 3, 4]},
    ]
    assert encoded(decoded({"inputs": inputs}, schema=schema), layout="columns") == {
        "a": [1, 2],
        "f": [[1, 2], [3, 4]],
    }


def test_columns_without_a_schema_are_context() -> None:
    records = decoded({"a": [[1], [2, 3]]}, message=SEQUENCES)
    assert (records.schema.message, records.schema.by_name["a"].kind) == (SEQUENCES, "dense")
    inputs = [{"name": "a", "datatype": "INT8", "shape": [2], "data": [1, 2]}]
    assert decoded({"inputs": inputs}, message=SEQUENCES).schema.message == SEQUENCES


STEPS = {"dtype": "int64", "shape": [None], "kind": "sequence"}


@pytest.mark.parametrize(
    ("rows", "options", "code", "row"),
    [
        ([{"context": {"x": 1}, "feature_lists": {"x": [1]}}], {}, "duplicate_feature", 0),
        ([{"feature_lists": {"x": [1]}}, {"context": {"x": 1}}], {}, "duplicate_feature", 1),
        (
            [{"context": {"x": 1}}] * 1000 + [{"feature_lists": {"x": [1]}}],
            {},
            "schema_conflict",
            1000,
        ),
        ([{"context": {"x": [1]}}], {"schema": schema_of(x=STEPS)}, "schema_conflict", 0),
        (
            [{}, {"feature_lists": {"x": [1]}}],
            {"schema": schema_of(x={"dtype": "int64", "nullable": True})},
            "schema_conflict",
            1,
        ),
        (
            [{"feature_lists": {"y": [1]}}],
            {"schema": schema_of(x=STEPS | {"nullable": True})},
            "schema_conflict",
            0,
        ),
        ([{"feature_lists": {"x": 1}}], {}, "schema_conflict", 0),
        ([{"feature_lists": {"x": 1}}], {"schema": schema_of(x=STEPS)}, "schema_conflict", 0),
        ([{"feature_lists": {"x": [1, None]}}], {}, "null_value", 0),
        ([{"feature_lists": {"x": [1]}}, {}], {"schema": schema_of(x=STEPS)}, "schema_conflict", 1),
        ([{"context": {}}, {"context": 1}], {}, "invalid_sequence_example", 1),
        ([{"feature_lists": []}], {}, "invalid_sequence_example", 0),
        ([{"context": {}, "x": 1}], {}, "invalid_sequence_example", 0),
        ([{"x": 1}], {"schema": schema_of(x=STEPS)}, "invalid_sequence_example", 0),
    ],
)
def test_row_that_is_not_a_sequence_example_is_refused(
    rows: list[Any], options: Any, code: str, row: int
) -> None:
    error = refused(rows, **({"message": SEQUENCES} | options))
    assert (error.code, error.row) == (code, row)


def test_undeclared_feature_is_dropped_on_request() -> None:
    rows = [{"context": {"y": 1}, "feature_lists": {"x": [1], "z": [2]}}]
    records = decoded(rows, schema=schema_of(x=STEPS), undeclared="drop")
    assert encoded(records) == [{"context": {}, "feature_lists": {"x": [1]}}]


def test_a_sequence_in_an_example_is_refused() -> None:
    error = refused([{"x": [1]}], schema=schema_of(x=STEPS), message="example")
    assert (error.code, error.feature) == ("invalid_feature", "x")


def test_otherwise_a_row_of_context_and_feature_lists_is_refused() -> None:
    error = refused([{"context": {}, "feature_lists": {}}])
    assert (error.code, error.row) == ("unsupported_kind", 0)
    assert "message=sequence_example" in error.detail
    declared = schema_of(a={"dtype": "int64", "nullable": True})
    assert refused([{"context": {}, "feature_lists": {}}], schema=declared).code == "unsupported_kind"


def test_no_name_is_reserved_where_the_schema_declares_it() -> None:
    schema = schema_of(
        context={"dtype": "int8", "shape": [3], "kind": "sparse"}, feature_lists={"dtype": "bytes"}
    )
    rows = [
        {
            "context": {"values": [1], "indices": [[2]], "dense_shape": [3]},
            "feature_lists": {"b64": "YQ=="},
        }
    ]
    assert encoded(decoded(rows, schema=schema)) == rows


@pytest.mark.parametrize("kind", ["ragged", "sparse", "sequence"])
@pytest.mark.parametrize("dtype", ["float64", "uint64"])
def test_wide_values_of_every_kind_are_lossy_in_a_list(kind: str, dtype: str) -> None:
    shapes: dict[str, list[int | None]] = {"ragged": [None, None], "sparse": [3], "sequence": [None]}
    value: Any = {
        "ragged": [[1], [2]],
        "sparse": {"values": [1], "indices": [[0]]},
        "sequence": [1],
    }[kind]
    schema = schema_of(x={"dtype": dtype, "shape": shapes[kind], "kind": kind})
    rows = [{"feature_lists": {"x": value}}] if kind == "sequence" else [{"x": value}]
    with pytest.raises(LossyConversion) as caught:
        decoded(rows, schema=schema).schema.require_lossless()
    assert (caught.value.code, caught.value.location.feature) == ("lossy_encoding", "x")


@pytest.mark.parametrize(
    ("later", "code"),
    [
        ([[1], 2], "schema_conflict"),
        ([1], "schema_conflict"),
        ([[1], [2], [3]], "schema_conflict"),
        ([["a"], []], "schema_conflict"),
        ([[None], [2]], "null_value"),
        ({"values": [1], "row_splits": [[0, 1, 1]]}, None),
    ],
)
def test_rows_after_the_head_have_to_fit_an_inferred_ragged_feature(later: Any, code: str | None) -> None:
    rows = [{"x": [[1], [2, 3]]}] * 1000 + [{"x": later}]
    if code is None:
        assert encoded(decoded(rows))[-1] == {"x": [[1], []]}
        return
    error = refused(rows)
    assert (error.code, error.row, error.feature) == (code, 1000, "x")


def test_a_ragged_row_conflicts_with_an_inferred_dense_shape() -> None:
    rows = [{"x": [[1, 2]]}, {"x": [[1, 2], [3, 4]]}] * 500 + [{"x": [[1, 2], [3]]}]
    error = refused(rows)
    assert (error.code, error.row) == ("schema_conflict", 1000)


@pytest.mark.parametrize(
    "value",
    [
        {"values": [1], "indices": [0]},
        {"values": [1], "indices": [[0]], "dense_shape": [1], "dtype": "int64"},
        {"values": [1], "row_splits": [[0, 1]]},
    ],
)
def test_sparse_and_ragged_objects_need_a_schema(value: Any) -> None:
    error = refused([{"x": value}])
    assert (error.code, error.row, error.feature) == ("unsupported_kind", 0, "x")
    assert "schema declares" in error.detail


def test_the_deepest_nesting_that_a_shape_has() -> None:
    value: Any = [1, 2]
    other: Any = [3]
    for _ in range(252):
        value, other = [value], [other]
    rows = [{"x": [value]}, {"x": [other]}]
    records = decoded(rows)
    assert (len(records.schema.by_name["x"].shape), records.schema.by_name["x"].kind) == (254, "ragged")
    assert encoded(records) == rows


def test_options_of_spelling_reach_every_kind() -> None:
    schema = schema_of(
        r={"dtype": "int64", "shape": [None, None], "kind": "ragged"},
        s={"dtype": "bytes", "shape": [2], "kind": "sparse"},
        q={"dtype": "float32", "shape": [None], "kind": "sequence"},
    )
    row = {
        "context": {"r": [[1]], "s": {"values": [{"b64": "__8"}], "indices": [1]}},
        "feature_lists": {"q": ["NaN"]},
    }
    found = encoded(decoded([row], schema=schema), int64="string", b64="websafe", nonfinite="null")
    assert found == [
        {
            "context": {
                "r": [["1"]],
                "s": {"values": [{"b64": "__8"}], "indices": [[1]], "dense_shape": [2]},
            },
            "feature_lists": {"q": [None]},
        }
    ]


@pytest.mark.parametrize("kind", ["ragged", "sparse", "sequence"])
def test_a_value_without_text_names_its_row(kind: str) -> None:
    shapes: dict[str, list[int | None]] = {"ragged": [None, None, 2], "sparse": [3], "sequence": [None, 2]}
    good, bad = {
        "ragged": ([[], [[1, 2]]], [[[1, 2]], [], [[1, 2], [3, "NaN"]]]),
        "sparse": ({"values": [1], "indices": [0]}, {"values": [1, "NaN"], "indices": [0, 1]}),
        "sequence": ([[1, 2]], [[1, 2], [3, "NaN"]]),
    }[kind]
    schema = schema_of(x={"dtype": "float32", "shape": shapes[kind], "kind": kind, "nullable": True})
    columns = {"x": [good, None, good, bad, good]}
    with pytest.raises(InputError) as caught:
        encoded(decoded(columns, schema=schema), nonfinite="error", layout="columns")
    assert (caught.value.code, caught.value.location.row) == ("nonfinite_value", 3)


def in_kind(kind: str, dtype: str, token: str) -> tuple[bytes, Schema]:
    """One row with a value of that kind, written as `token`, and its schema."""
    cell = {
        "dense": f"[{token}]",
        "ragged": f"[[], [{token}]]",
        "sparse": f'{{"values": [{token}], "indices": [2]}}',
        "sequence": f"[{token}]",
    }[kind]
    shapes = {"dense": [1], "ragged": [None, None], "sparse": [3], "sequence": [None]}
    schema = schema_of(x={"dtype": dtype, "shape": shapes[kind], "kind": kind})
    row = f'{{"feature_lists": {{"x": {cell}}}}}' if kind == "sequence" else f'{{"x": {cell}}}'
    return f"[{row}]".encode(), schema


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse", "sequence"])
@pytest.mark.parametrize(
    ("dtype", "token", "code"),
    [
        ("float32", "NaN", "nonfinite_token"),
        ("float32", "1e400", "out_of_range"),
        ("float32", "3.5e38", "out_of_range"),
        ("float16", "65520", "out_of_range"),
        ("float32", "16777217", "inexact_integer"),
        ("bfloat16", "257", "inexact_integer"),
        ("float64", "9007199254740993", "inexact_integer"),
        ("int64", "9223372036854775808", "out_of_range"),
        ("int64", '"9223372036854775808"', "out_of_range"),
        ("uint64", "18446744073709551616", "out_of_range"),
        ("uint64", '"18446744073709551616"', "out_of_range"),
        ("uint64", "-1", "out_of_range"),
        ("int8", "128", "out_of_range"),
        ("int64", "1.5", "inexact_integer"),
        ("int64", "9007199254740993.0", "inexact_integer"),
        ("int64", '"01"', "inexact_integer"),
        ("int64", "1" * 5000, "integer_too_large"),
        ("int64", "true", "schema_conflict"),
        ("bool", "1", "schema_conflict"),
        ("float32", '"1.0"', "schema_conflict"),
        ("text", "1", "schema_conflict"),
        ("text", '"\\ud800"', "lone_surrogate"),
        ("text", '{"b64": "/w"}', "invalid_utf8"),
        ("text", '{"b64": "7aCA"}', "invalid_utf8"),
        ("bytes", '{"b64": "_+8"}', "invalid_base64"),
        ("bytes", '{"b64": "YQ", "b64": "YQ"}', "duplicate_key"),
        ("bytes", '{"b64": "YQ", "x": 1}', "schema_conflict"),
        ("int64", "null", "null_value"),
        ("int64", "[" * 600 + "]" * 600, "json_too_deep"),
    ],
)
def test_faulty_values_of_every_kind(kind: str, dtype: str, token: str, code: str) -> None:
    body, schema = in_kind(kind, dtype, token)
    assert refused(body, schema=schema).code == code


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse", "sequence"])
@pytest.mark.parametrize(
    ("dtype", "token", "written"),
    [
        ("int64", "9223372036854775807", "9223372036854775807"),
        ("int64", '"-9223372036854775808"', "-9223372036854775808"),
        ("int64", "9007199254740993", "9007199254740993"),
        ("uint64", '"18446744073709551615"', "18446744073709551615"),
        ("int8", "1.0", "1"),
        ("float32", "-0", "-0.0"),
        ("float32", "-0.0", "-0.0"),
        ("float32", "0.1", "0.1"),
        ("float64", "0.1", "0.1"),
        ("float16", '"-Infinity"', '"-Infinity"'),
        ("bool", "true", "true"),
        ("text", '"\\u00e9\\u0000"', '"é\\u0000"'),
        ("text", '{"b64": "w6k"}', '"é"'),
        ("bytes", '"é"', '{"b64":"w6k="}'),
        ("bytes", '{"b64": "_-8"}', '{"b64":"/+8="}'),
        ("bytes", '{"b64": "/+8="}', '{"b64":"/+8="}'),
    ],
)
def test_exact_values_of_every_kind(kind: str, dtype: str, token: str, written: str) -> None:
    body, schema = in_kind(kind, dtype, token)
    assert f"[{written}]" in encode("json", decoded(body, schema=schema)).decode()


ANY_JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 5), st.just(2**70), st.just(0.5), st.text(max_size=2)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["values", "indices", "row_splits", "dense_shape", "dtype", "b64", "context"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=50)
@given(schema=schemas(), cells=st.lists(ANY_JSON, min_size=1, max_size=3), data=st.data())
def test_any_cell_is_read_or_refused(schema: Schema, cells: list[Any], data: st.DataObject) -> None:
    rows = data.draw(rows_of(schema)) + [dict.fromkeys(schema.names, cell) for cell in cells]
    for body in ([shaped(row, schema) for row in rows], rows):
        for options in ({"schema": schema}, {"message": schema.message}):
            try:
                encoded(decoded(body, **options))
            except InputError as error:
                assert error.detail  # noqa: PT017 (either outcome is fine)
