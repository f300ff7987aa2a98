"""The schema of messages that come without one."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.limits import Limits
from app.runtime.budget import Budget
from tests.support.example_messages import (
    ONE,
    STEP,
    example,
    file_of,
    floats,
    inferred,
    ints,
    lists,
    refused,
    strings,
    tfrecord,
)
from tests.support.feature_values import field, varint
from tests.support.format_cases import PIECES, Refusal, Rows, assert_rows, decode, read, schema_of, write


def test_the_schema_is_the_union_in_order_of_first_appearance() -> None:
    found = tfrecord(example(z=ints(7), b=floats(0)), example(a=strings(b"b"), b=floats(0)), pieces=PIECES)
    assert list(inferred(found).items()) == [
        ("z", "int64[null]?"),
        ("b", "float32[null]?"),
        ("a", "bytes[null]?"),
    ]
    assert_rows(found, [{"z": [7], "b": [0.0], "a": None}, {"z": None, "b": [0.0], "a": [b"b"]}])
    first = lists(z=[ints(7), ints(7)], b=[floats(0)]) + example(c=strings(b"b"))
    found = tfrecord(
        first, example(a=ints(7)) + lists(y=[strings(b"b")]), message="sequence_example", pieces=PIECES
    )
    assert list(inferred(found).items()) == [
        ("c", "bytes[null]?"),
        ("a", "int64[null]?"),
        ("z", "sequence int64[null,null]?"),
        ("b", "sequence float32[null,null]?"),
        ("y", "sequence bytes[null,null]?"),
    ]
    assert_rows(
        found,
        [
            {"c": [b"b"], "a": None, "z": [[7], [7]], "b": [[0.0]], "y": None},
            {"c": None, "a": [7], "z": None, "b": None, "y": [[b"b"]]},
        ],
    )


def test_feature_without_a_kind_decides_no_dtype() -> None:
    found = tfrecord(example(x=b"", y=ints(7)), example(x=floats(0)))
    assert inferred(found) == {"y": "int64[null]?", "x": "float32[null]?"}
    assert_rows(found, [{"y": [7], "x": None}, {"y": None, "x": [0.0]}])
    assert inferred(tfrecord(example(x=b""))) == inferred(tfrecord()) == {}
    found = tfrecord(lists(x=[], y=[b""]), lists(x=[b"", ints(7)]), message="sequence_example")
    assert inferred(found) == {"x": "sequence int64[null,null]?", "y": "sequence float32[null,null]?"}
    assert_rows(found, [{"x": [], "y": [[]]}, {"x": [[], [7]], "y": None}])


INT, FLOAT = ints(7), floats(0)


@pytest.mark.parametrize("message", ["example", "sequence_example"])
@pytest.mark.parametrize("beside", [0, 700])
def test_exactly_the_first_1000_records_count(message: str, beside: int) -> None:
    """In one block of records, and in some of which none ends there."""
    unknown = field(0x7A, bytes(beside)) if beside else b""

    def make(**named: bytes) -> bytes:
        if message == "example":
            return example(named) + unknown
        return lists(**{name: [value] for name, value in named.items()}) + unknown

    head = [make(x=INT)] * 999
    found = tfrecord(*head, make(x=INT, y=INT), make(y=INT), message=message)
    assert list(inferred(found)) == ["x", "y"]
    late = [*head, make(x=INT), make(x=INT, y=INT)]
    found = tfrecord(*late, message=message)
    assert found == refused("schema_conflict", 1000, "y")
    assert isinstance(found, Refusal)
    assert "infer=all" in found.detail
    assert list(inferred(tfrecord(*late, message=message, infer="all"))) == ["x", "y"]
    for infer in ("head", "all"):
        for row in (1, 999, 1000, 2500):
            found = tfrecord(*[make(x=INT)] * row, *[make(x=FLOAT)] * 2, message=message, infer=infer)
            assert found == refused("schema_conflict", row, "x")


def test_steps_of_two_kinds_are_refused() -> None:
    for first in (b"", STEP):
        found = tfrecord(first, lists(x=[INT, FLOAT]), message="sequence_example")
        assert found == refused("schema_conflict", 1, "x")
        assert isinstance(found, Refusal)
        assert "has steps of two kinds" in found.detail


def _as_features(names: list[str]) -> bytes:
    return example(dict.fromkeys(names, INT))


def _as_lists(names: list[str]) -> bytes:
    return lists(**{name: [INT] for name in names})


@pytest.mark.parametrize(
    ("make", "options"), [(_as_features, {}), (_as_features, {"message": "sequence_example"}),
                          (_as_lists, {"message": "sequence_example"})],
)  # fmt: skip
def test_features_are_counted(make: Any, options: dict[str, Any]) -> None:
    names = [f"f{number}" for number in range(12)]
    options = {**options, "limits": Limits(max_features=10)}
    assert len(inferred(tfrecord(make(names[:10]), **options))) == 10
    one_by_one = [make([name]) for name in names[:11]]
    one_name = make(["x"])[:1] + varint(12 * (len(make(["x"])) - 2)) + make(["x"])[2:] * 12
    for messages in ([make(names[:11])], one_by_one, [one_name]):
        found = tfrecord(*messages, **options)
        assert isinstance(found, Refusal)
        assert found.code == "too_many_features"
    for name in ("", "x" * 5000):
        found = tfrecord(make([name]), **options)
        assert isinstance(found, Refusal)
        assert found.code == "invalid_feature_name"
    many = [f"feature{number}" for number in range(2000)]
    del options["limits"]
    empty = [make([])] * 199
    found = tfrecord(make(many), *empty, make(["more"]), **options)
    assert list(inferred(found)) == [*many, "more"]
    changed = example({many[7]: FLOAT}) if make is _as_features else lists(**{many[7]: [FLOAT]})
    assert tfrecord(make(many), *empty, changed, **options) == refused("schema_conflict", 200, many[7])


def test_a_broken_record_with_a_new_feature_is_refused_at_once() -> None:
    full = example({f"f{index}": INT for index in range(500)})
    broken = example(new=INT) + b"\x0a\xff\x01"
    found = tfrecord(full, full, broken, limits=Limits(max_features=600))
    assert isinstance(found, Refusal)
    assert (found.code, found.row) == ("malformed_example", 2)


@pytest.mark.parametrize(
    ("rows", "features"),
    [
        ([{"x": ints(7)}, {"x": ints(8)}], {"x": "int64"}),
        ([{"x": floats(*range(6))}] * 2, {"x": "float32[6]"}),
        ([{"x": strings(b"a", b"b")}], {"x": "bytes[2]"}),
        ([{"x": ints(7)}, {"x": ints(7, 8)}], {"x": "int64[null]"}),
        ([{"x": ints()}], {"x": "int64[null]"}),
        ([{"x": ints()}, {"x": ints(1)}], {"x": "int64[null]"}),
        ([{"x": ints(7)}, {}], {"x": "int64?"}),
        ([{"x": ints(7), "y": floats(1)}, {"y": floats(2)}], {"x": "int64?", "y": "float32"}),
        ([], {}),
    ],
)
def test_lengths_that_all_rows_have_are_found_where_all_are_looked_at(
    rows: list[dict[str, bytes]], features: dict[str, str]
) -> None:
    assert inferred(tfrecord(*map(example, rows), infer="all")) == features
    as_steps = [lists(**{name: [value, value] for name, value in row.items()}) for row in rows]
    found = inferred(tfrecord(*as_steps, infer="all", message="sequence_example"))
    steps = {name: kind.replace("[null]", "") if "," not in kind else kind for name, kind in found.items()}
    steps = {name: kind.replace("[null,", "[") for name, kind in steps.items()}
    assert steps == {name: f"sequence {kind}" for name, kind in features.items()}


def test_a_list_that_few_rows_have_gives_the_others_no_room() -> None:
    messages = [example(x=ints(*range(10_000))), *[example()] * 5000]
    found = tfrecord(*messages, infer="all")
    assert inferred(found) == {"x": "int64[null]?"}
    assert isinstance(found, Rows)
    assert found.batches == [5001]
    assert found.rows == [{"x": [*range(10_000)]}, *[{"x": None}] * 5000]
    found = tfrecord(lists(), lists(x=[ints(7, 8)]), infer="all", message="sequence_example")
    assert inferred(found) == {"x": "sequence int64[null,2]?"}


def test_last_value_of_a_repeated_key_counts() -> None:
    messages = [example(x=ints(1, 2)) + ONE, ONE, ONE + example(x=b"")]
    found = tfrecord(*messages, infer="all")
    assert inferred(found) == {"x": "int64?"}
    assert_rows(found, [{"x": 1}, {"x": 1}, {"x": None}])
    found = tfrecord(lists(x=[]), lists(x=[ints(1)]), lists(), infer="all", message="sequence_example")
    assert inferred(found) == {"x": "sequence int64[null]?"}
    assert_rows(found, [{"x": []}, {"x": [1]}, {"x": None}])
    found = tfrecord(lists(x=[b"", ints(1)]), infer="all", message="sequence_example")
    assert inferred(found) == {"x": "sequence int64[null,null]"}


BOTH = example(x=ints(7), y=ints(1)) + lists(x=[floats(0.5), floats(1.5, 2.5)], z=[ints(3)])


def test_a_list_with_a_name_of_the_context_is_kept_apart_and_written_back() -> None:
    found = tfrecord(BOTH, message="sequence_example", pieces=PIECES)
    assert inferred(found) == {
        "x": "int64[null]?",
        "y": "int64[null]?",
        "feature_lists/x": "sequence float32[null,null]?",
        "z": "sequence int64[null,null]?",
    }
    assert_rows(found, [{"x": [7], "y": [1], "feature_lists/x": [[0.5], [1.5, 2.5]], "z": [[3]]}])
    found = tfrecord(BOTH, message="sequence_example", infer="all")
    assert inferred(found)["feature_lists/x"] == "sequence float32[null,null]"
    made = decode("tfrecord", file_of(BOTH), Budget(), message="sequence_example")
    assert write("tfrecord", made) == file_of(BOTH)


def test_the_name_in_the_other_part_may_come_late() -> None:
    first, late = example(x=ints(7)) + lists(z=[]), lists(x=[ints(1)])
    expected = {"x": "int64[null]?", "z": "sequence float32[null,null]?"}
    found = tfrecord(first, first, message="sequence_example")
    assert inferred(found) == expected
    for rows in ((first, late), (late, first)):
        found = tfrecord(*rows, message="sequence_example")
        assert inferred(found) == {**expected, "feature_lists/x": "sequence int64[null,null]?"}


def test_declared_list_with_the_name_of_a_context_feature_is_read() -> None:
    steps = {"dtype": "float32", "shape": [None, None], "kind": "sequence"}
    schema = schema_of(**{"x": {"dtype": "int64"}, "feature_lists/x": steps})
    found = tfrecord(BOTH, schema=schema, undeclared="drop")
    assert_rows(found, [{"x": 7, "feature_lists/x": [[0.5], [1.5, 2.5]]}])
    # Without the context the name is the key.
    alone = schema_of(**{"feature_lists/x": steps})
    found = tfrecord(lists(**{"feature_lists/x": [floats(1)]}), schema=alone)
    assert_rows(found, [{"feature_lists/x": [[1.0]]}])
    only_context = schema_of(x="int64", y="int64").with_message("sequence_example")
    refusal = tfrecord(BOTH, schema=only_context)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.feature) == ("schema_conflict", "x")
    assert "'feature_lists/x'" in refusal.detail


def test_json_names_a_list_as_the_schema_does() -> None:
    steps = {"dtype": "float32", "shape": [None, None], "kind": "sequence"}
    schema = schema_of(**{"x": {"dtype": "int64"}, "feature_lists/x": steps})
    line = b'{"context": {"x": 7}, "feature_lists": {"%s": [[0.5], [1.5, 2.5]]}}\n'
    row = {"x": 7, "feature_lists/x": [[0.5], [1.5, 2.5]]}
    assert_rows(read("ndjson", line % b"feature_lists/x", schema=schema), [row])
    for declared, code in ((schema, "schema_conflict"), (None, "duplicate_feature")):
        refusal = read("ndjson", line % b"x", message="sequence_example", schema=declared)
        assert isinstance(refusal, Refusal)
        assert (refusal.code, refusal.row, refusal.feature) == (code, 0, "x")
        assert "list as 'feature_lists/x'" in refusal.detail


@pytest.mark.parametrize(
    "message",
    [
        example(x=ints(7)) + lists(**{"feature_lists/x": [ints(1)]}),
        example(x=ints(7)) + lists(**{"x": [ints(1)], "feature_lists/x": [ints(1)]}),
        example({"x": ints(7), "feature_lists/x": ints(7)}) + lists(x=[ints(1)]),
    ],
)
def test_name_of_two_features_is_refused(message: bytes) -> None:
    for infer in ("head", "all"):
        found = tfrecord(message, message="sequence_example", infer=infer)
        assert found == Refusal("duplicate_feature", feature="feature_lists/x")
