"""The schema of a dataset only widens, and only so that stored rows keep their meaning."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.evolution import widen
from app.domain.schema import Schema
from app.errors import SchemaConflict


def schema(**features: Any) -> Schema:
    """`x="int8"`, or the members of a feature."""
    members = {name: {"dtype": of} if isinstance(of, str) else of for name, of in features.items()}
    return Schema.from_json({"features": members})


def dense(dtype: str, shape: Sequence[int | None], **members: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), **members}


def test_widening_by_less_returns_the_same_schema() -> None:
    stored = schema(x="int64", y=dense("text", [], nullable=True))
    assert widen(stored, stored) is stored
    assert widen(stored, schema(x="int8", y="text")) is stored
    assert widen(stored, schema(x="int64")) is stored


def test_a_new_feature_comes_last_and_may_be_absent() -> None:
    found = widen(schema(x="int64", y="text"), schema(z="float32", y="text", a="int64", x="int64"))
    assert found.names == ("x", "y", "z", "a")
    assert [feature.nullable for feature in found] == [False, False, True, True]


def test_a_feature_that_rows_lack_becomes_nullable() -> None:
    found = widen(schema(x="int64", y="text"), schema(x=dense("int64", [], nullable=True)))
    assert found == schema(x=dense("int64", [], nullable=True), y=dense("text", [], nullable=True))


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ([2, 3], [5, 3], [None, 3]),
        ([2, 3], [2, 5], [2, None]),
        ([3], [None], [None]),
        ([None], [3], [None]),
        ([None, 3], [7, 3], [None, 3]),
        ([0], [4], [None]),
    ],
)
@pytest.mark.parametrize("encoding", ["list", "raw", "tensor"])
def test_a_dimension_becomes_unknown(
    old: list[int | None], new: list[int | None], both: list[int | None], encoding: str
) -> None:
    found = widen(
        schema(x=dense("float32", old, encoding=encoding)), schema(x=dense("float32", new, encoding=encoding))
    )
    assert found == schema(x=dense("float32", both, encoding=encoding))


def test_any_dimensions_of_a_tensor_become_unknown() -> None:
    old, new = (schema(x=dense("int64", shape, encoding="tensor")) for shape in ([2, 3], [4, 5]))
    assert widen(old, new) == schema(x=dense("int64", [None, None], encoding="tensor"))


def test_a_dimension_of_a_step_becomes_unknown() -> None:
    old, new = (schema(x=dense("int64", [None, size], kind="sequence")) for size in (2, 3))
    assert widen(old, new) == schema(x=dense("int64", [None, None], kind="sequence"))


@pytest.mark.parametrize(
    ("old", "new"),
    [("int8", "int64"), ("uint8", "int16"), ("uint32", "int64"), ("float16", "float32"), ("text", "bytes")],
)
def test_a_dtype_widens_and_stays_wide(old: str, new: str) -> None:
    assert widen(schema(x=old), schema(x=new)) == schema(x=new)
    assert widen(schema(x=new), schema(x=old)) == schema(x=new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int8", "uint8"),
        ("int64", "float32"),
        ("int8", "float32"),
        ("bool", "int64"),
        ("float16", "bfloat16"),
        ("uint8", dense("uint64", [], encoding="list")),
        ("float32", dense("float64", [], encoding="list")),
        ("bytes", "int64"),
        (dense("int8", [], encoding="raw"), dense("int16", [], encoding="raw")),
        (dense("int8", [], encoding="tensor"), dense("int16", [], encoding="tensor")),
        (dense("int8", []), dense("int8", [], encoding="raw")),
        (dense("int8", []), dense("int8", [1])),
        (dense("int8", [2]), dense("int8", [2, 1])),
        (dense("int8", [2, 3]), dense("int8", [3, 2])),
        (dense("int8", [2, 0]), dense("int8", [3, 0])),
        (dense("int8", [None, None], kind="ragged"), dense("int8", [2, None], kind="ragged")),
        (dense("int8", [4], kind="sparse"), dense("int8", [5], kind="sparse")),
        (dense("int8", [4], kind="sparse"), dense("int8", [4])),
    ],
)
def test_anything_else_is_refused(old: Any, new: Any) -> None:
    with pytest.raises(SchemaConflict, match="'x'") as caught:
        widen(schema(x=old), schema(x=new))
    assert caught.value.code == "schema_conflict"
    assert caught.value.location.feature == "x"
    assert caught.value.extra == {"schema": schema(x=old).to_json()}


def test_long_vocabularies_are_cut_in_what_an_error_quotes() -> None:
    names = [f"class {number}" for number in range(10_000)]
    old = {"dtype": "int64", "class_names": names}
    with pytest.raises(SchemaConflict) as caught:
        widen(schema(x=old), schema(x={**old, "class_names": [*names[:-1], "another"]}))
    detail = caught.value.detail
    assert '"class 9998","class 9999"]} in the dataset' in detail
    assert '"class 9998","another"]} in these rows' in detail
    assert len(detail) < 1500
    lookup = {"step": "lookup", "vocabulary": names, "oov_buckets": 0}
    made = {"transformed": {"from": {"dtype": "text"}, "steps": [lookup]}}
    with pytest.raises(SchemaConflict) as caught:
        widen(schema(x={**old, **made}), schema(x="text"))
    assert '"dtype":"text"' in caught.value.detail
    assert len(caught.value.detail) < 1500
    with pytest.raises(SchemaConflict, match=r"is {.*:null.*} in these rows"):
        widen(schema(x={**old, **made}), schema(x=old))


def test_a_refused_dtype_says_which_are_allowed() -> None:
    with pytest.raises(SchemaConflict, match="may become int64"):
        widen(schema(x="int32"), schema(x="float32"))


def test_two_features_of_one_stored_name_are_refused() -> None:
    stored = schema(x=dense("int64", [5], kind="sparse"))
    with pytest.raises(SchemaConflict, match="both be stored as"):
        widen(stored, Schema((*stored, *schema(**{"x/values": "int64"}))))


def test_a_feature_that_changes_the_key_of_a_stored_list_is_refused() -> None:
    steps = dense("int64", [None], kind="sequence")
    stored = schema(**{"feature_lists/x": steps})
    with pytest.raises(SchemaConflict, match="'x'") as caught:
        widen(stored, schema(**{"feature_lists/x": steps, "x": "int64"}))
    assert caught.value.location.feature == "x"
    assert widen(schema(x="int64", y=steps), schema(**{"x": "int64", "feature_lists/x": steps})).names == (
        "x",
        "y",
        "feature_lists/x",
    )


def test_another_message_is_refused() -> None:
    stored = schema(x="int64")
    with pytest.raises(SchemaConflict, match="sequence_example"):
        widen(stored, stored.with_message("sequence_example"))


DTYPES = st.sampled_from(["int8", "uint8", "int16", "int32", "int64", "float16", "float32", "text", "bytes"])
FEATURES = st.builds(
    lambda dtype, shape, nullable: dense(dtype, shape, nullable=nullable),
    DTYPES,
    st.sampled_from([[], [2], [3], [None], [2, 3], [None, 3]]),
    st.booleans(),
)
SCHEMAS = st.dictionaries(st.sampled_from(["x", "y", "z"]), FEATURES).map(lambda found: schema(**found))


@settings(max_examples=50, deadline=None)
@given(SCHEMAS, SCHEMAS)
def test_widened_schema_accepts_both(one: Schema, other: Schema) -> None:
    try:
        both = widen(one, other)
    except SchemaConflict:
        return
    assert widen(both, one) is both
    assert widen(both, other) is both


def stored(dtype: str, shape: Sequence[int | None] = (), **marks: bool) -> Schema:
    """x as a dataset has it on the store."""
    return Schema.from_json({"features": {"x": {**dense(dtype, shape), **marks}}}, stored=True)


def test_an_inferred_int64_becomes_float32_and_takes_integers_of_before() -> None:
    found = widen(stored("int64", inferred=True), schema(x="float32"))
    assert found.to_json(stored=True) == stored("float32", inferred=True, was_int64=True).to_json(stored=True)
    assert widen(found, schema(x="int64")) is found
    with pytest.raises(SchemaConflict):
        widen(found, stored("int64", beyond_float32=True))


@pytest.mark.parametrize("old", [stored("int64"), stored("int64", inferred=True, beyond_float32=True)])
def test_an_int64_that_was_declared_or_is_too_large_stays_one(old: Schema) -> None:
    with pytest.raises(SchemaConflict, match="new dataset"):
        widen(old, schema(x="float32"))


def test_a_float32_that_never_was_an_int64_takes_none() -> None:
    with pytest.raises(SchemaConflict):
        widen(stored("float32", inferred=True), schema(x="int64"))


def test_beyond_float32_is_noted_once() -> None:
    large = stored("int64", beyond_float32=True)
    found = widen(stored("int64", inferred=True), large)
    assert found.by_name["x"].beyond_float32
    assert widen(found, large) is found
    declared = stored("int64")
    assert widen(declared, large) is declared


def test_marks_survive_other_changes() -> None:
    found = widen(
        stored("float32", [2], inferred=True, was_int64=True), schema(x=dense("float32", [3]), y="int64")
    )
    assert found.by_name["x"].to_json(stored=True) == {
        **dense("float32", [None], kind="dense", encoding="list", nullable=False),
        "inferred": True,
        "was_int64": True,
    }
