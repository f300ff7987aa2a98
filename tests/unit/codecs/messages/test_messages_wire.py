"""Messages as every writer may write them, and those that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.example_messages import (
    ONE,
    STEP,
    entry,
    example,
    file_of,
    floats,
    ints,
    lists,
    refused,
    strings,
    tfrecord,
    x,
    xs,
)
from tests.support.feature_values import field, varint
from tests.support.format_cases import PIECES, Refusal, Rows, assert_rows, schema_of

_SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
_INT8 = x("int8")
_STEPS = xs("int8")

# Everything that protobuf allows: each message is read as if it were the plain one.
_VALUES = {
    "i": ints(300, 5),
    "f": floats(1, 2),
    "s": strings(b"a"),
    "v": ints(7, 8, 9),
    "r": strings(b"\1\0"),
}
_ODD_INTS = [
    field(0x1A, b"\x08\xac\x02\x08\x05"),
    field(0x1A, b"\x08\xac\x02\x0a\x01\x05"),
    field(0x1A, b"\x0a\x02\xac\x02") + field(0x1A, b"\x0a\x01\x05"),
    field(0x1A, b"\x0a\x02\xac\x02") + b"\x20\x05" + field(0x1A, b"\x08\x05\x20\x01"),
    field(0x1A, b"\x0a\x02\xac\x02\x0a\x00\x0a\x01\x05"),
    field(0x1A, b"\x0a\x04\xac\x82\x00\x05"),  # more bytes than needed
    b"\x1a\x85\x00\x0a\x03\xac\x02\x05",
    b"\x9a\x00\x05\x0a\x03\xac\x02\x05",
]
_ODD_FLOATS = [
    field(0x12, b"\x0d" + np.float32(1).tobytes() + b"\x0d" + np.float32(2).tobytes()),
    floats(1) + floats(2),
    field(0x12, b"\x20\x01" + field(0x0A, np.float32(1).tobytes()) + b"\x0d" + np.float32(2).tobytes()),
]
_ODD_STRINGS = [strings() + strings(b"a"), field(0x0A, b"\x10\x05\x0a\x01a"), b"\x0a\x83\x00\x0a\x01a"]
_PLAIN_ROW = example(_VALUES)


def _swapped(key: str, value: bytes) -> bytes:
    return field(0x0A, field(0x12, value) + field(0x0A, key.encode()))


ODD_MESSAGES: list[bytes] = [
    *(example({**_VALUES, "i": value}) for value in _ODD_INTS),
    *(example({**_VALUES, "f": value}) for value in _ODD_FLOATS),
    *(example({**_VALUES, "s": value}) for value in _ODD_STRINGS),
    example({**_VALUES, "r": strings() + field(0x0A, b"\x20\x05\x0a\x02\1\0")}),
    example({**_VALUES, "v": ints(7) + ints(8, 9)}),
    example(dict(reversed(_VALUES.items()))),
    b"".join(example({name: value}) for name, value in _VALUES.items()),
    example({name: ints(1) for name in _VALUES}) + _PLAIN_ROW,  # the last one of a key wins
    example(dict.fromkeys(_VALUES, b"")) + _PLAIN_ROW,
    _PLAIN_ROW + _PLAIN_ROW,
    field(0x0A, b"".join(_swapped(key, value) for key, value in _VALUES.items())),
    b"\x18\x01" + _PLAIN_ROW + b"\x22\x02ab\x2d1234\x3112345678",
    field(0x0A, b"\x18\x01" + _PLAIN_ROW[2:] + b"\x22\x02ab"),
    b"\x8a\x00" + _PLAIN_ROW[1:],
    example({**_VALUES, "i": ints(300, 5) + b"\x20\x05\x2a\x01x"}),
]


@pytest.mark.parametrize("odd", ODD_MESSAGES, ids=lambda odd: odd.hex()[:40])
def test_a_message_is_read_however_it_is_written(odd: bytes) -> None:
    schema = schema_of(
        i={"dtype": "int64", "shape": [2]},
        f={"dtype": "float32", "shape": [2]},
        s="text",
        v={"dtype": "int32", "shape": [None]},
        r={"dtype": "int16", "shape": [1], "encoding": "raw"},
    )
    row = {"i": [300, 5], "f": [1.0, 2.0], "s": b"a", "v": [7, 8, 9], "r": [1]}
    assert_rows(tfrecord(_PLAIN_ROW, odd, _PLAIN_ROW, odd, schema=schema), [row] * 4)
    assert_rows(tfrecord(*[odd] * 40, schema=schema), [row] * 40)
    listed = {"i": [300, 5], "f": [1.0, 2.0], "s": [b"a"], "v": [7, 8, 9], "r": [b"\1\0"]}
    if b"\x12\x05\x1a\x03\x0a\x01\x01" not in odd:  # without a schema, a key does not change its kind
        found = tfrecord(_PLAIN_ROW, odd, message="sequence_example")
        assert_rows(found, [listed] * 2)


def test_a_key_whose_last_value_has_no_kind_is_absent() -> None:
    for schema in (x("int64", nullable=True), x("float32", [2], nullable=True), x("bytes", nullable=True)):
        value = {"int64": ints(1), "float32": floats(1, 2), "bytes": strings(b"a")}[
            schema.by_name["x"].dtype.name
        ]
        cell: Any = {"int64": 1, "float32": [1.0, 2.0], "bytes": b"a"}[schema.by_name["x"].dtype.name]
        there, gone = example(x=value), example(x=value) + example(x=b"\x20\x05")
        found = tfrecord(there, gone, there, gone, there, schema=schema)
        assert_rows(found, [{"x": cell}, {"x": None}, {"x": cell}, {"x": None}, {"x": cell}])


def test_both_parts_of_a_sequence_example_are_read_wherever_they_lie() -> None:
    schema = schema_of(
        x={"dtype": "int8", "shape": [None, 2], "kind": "sequence", "nullable": True},
        c={"dtype": "text", "nullable": True},
        d={"dtype": "int64", "nullable": True},
        y={"dtype": "float32", "shape": [None, None], "kind": "sequence"},
    )
    found = tfrecord(
        example(c=strings(b"a")) + lists(x=[ints(1, 2), ints(-3, 4)], y=[]),
        lists(y=[floats(), floats(0.5, 1.5)]),
        lists(y=[floats(2)], x=[]) + example(c=strings(b"b")),
        example(c=strings(b"a")) + lists(y=[floats(9)]) + example(d=ints(1), c=strings(b"c")) + lists(y=[]),
        schema=schema,
        pieces=PIECES,
    )
    assert_rows(
        found,
        [
            {"x": [[1, 2], [-3, 4]], "c": b"a", "d": None, "y": []},
            {"x": None, "c": None, "d": None, "y": [[], [0.5, 1.5]]},
            {"x": [], "c": b"b", "d": None, "y": [[2.0]]},
            {"x": None, "c": b"c", "d": 1, "y": []},
        ],
    )


MALFORMED: list[tuple[bytes, int]] = [
    (b"\x0a", 1),  # no length
    (b"\x0a\x05", 1),  # a length beyond the end
    (b"\x0a\x80", 1),
    (b"\x0a\xff\xff\xff\xff\x0f", 1),
    (b"\xff" * 6, 0),  # no tag
    (b"\x00\x00", 0),  # field 0
    (field(0x0A, b"\x0a\x09"), 3),
    (field(0x0A, field(0x0A, b"\x0a\x09x")), 5),  # the key
    (field(0x0A, field(0x0A, b"\x0a\x01x\x12\x7f")), 8),  # the Feature
    (example(x=b"\x12\x7f"), 10),  # the list
    (example(x=field(0x12, b"\x0a\x7f")), 12),  # the values
    (example(x=field(0x12, b"\x0a\x03abc")), 11),  # no whole floats
    (example(x=field(0x12, b"\x0a\x02ab")), 11),
    (example(x=field(0x12, b"\x0dabc")), 12),
    (example(x=field(0x1A, b"\x0a\x01\x80")), 13),
    (example(x=field(0x1A, b"\x08\x80")), 12),
    (example(x=field(0x0A, b"\x0a\x01")), 12),
    (field(0x0A, field(0x0A, b"\x0a\x01x\x12\x00\x12\x00")), 9),  # a second value
    (field(0x0A, field(0x0A, b"\x0a\x01x\x0a\x01x")), 7),  # a second key
    (field(0x0A, field(0x0A, b"\x0a\x01x\x18\x05")), 7),  # an unknown field in an entry
    (b"\x1b\x1c" + ONE, 1),  # a group
    (example(x=b"\x2b\x2c" + ints(1)), 10),
]
MALFORMED_LISTS: list[tuple[bytes, int]] = [
    (b"\x12\x05", 1),
    (b"\x00\x00", 0),
    (STEP + b"\x12\x80", len(STEP) + 1),
    (field(0x12, b"\x0a\x09"), 3),
    (field(0x12, field(0x0A, b"\x0a\x09x")), 5),
    (field(0x12, field(0x0A, b"\x0a\x01x\x12\x7f")), 8),  # the FeatureList
    (field(0x12, field(0x0A, b"\x0a\x01x" + field(0x12, b"\x0a\x7f"))), 10),  # a step
    (lists(x=[b"\x12\x7f"]), 12),  # the list
    (lists(x=[ints(1), field(0x12, b"\x0a\x03abc")]), 20),  # no whole floats
    (lists(x=[field(0x1A, b"\x0a\x01\x80")]), 15),
    (lists(x=[b"\x0a\x03\x0a\x02a"]), 14),
    (example(c=field(0x1A, b"\x0a\x01\x80")), 13),
    (b"\x1b\x1c" + STEP, 1),
]


@pytest.mark.parametrize(("message", "position"), MALFORMED, ids=lambda value: str(value)[:40])
def test_malformed_messages_are_named_with_row_and_offset(message: bytes, position: int) -> None:
    for good, schema, what in (
        (ONE, x("int64", nullable=True), "tf.train.Example"),
        (STEP, xs("int64", nullable=True), "tf.train.SequenceExample"),
    ):
        expected = refused("malformed_example", 1, offset=len(file_of(good)) + 12 + position)
        for options in ({"schema": schema, "pieces": PIECES}, {"message": schema.message}):
            found = tfrecord(good, message, good, **options)
            assert found == expected, options
            assert isinstance(found, Refusal)
            assert what in found.detail


@pytest.mark.parametrize(("message", "position"), MALFORMED_LISTS, ids=lambda value: str(value)[:40])
def test_malformed_feature_lists_are_named_with_row_and_offset(message: bytes, position: int) -> None:
    expected = refused("malformed_example", 1, offset=len(file_of(STEP)) + 12 + position)
    for options in ({"schema": xs("int64", nullable=True)}, {"message": "sequence_example"}):
        assert tfrecord(STEP, message, STEP, **options) == expected, options


def test_ambiguous_message_is_refused() -> None:
    two_kinds = example(x=ints(1) + floats(1))
    assert tfrecord(ONE, two_kinds, schema=_INT8).code == "ambiguous_example"  # type: ignore[union-attr]  # a Refusal
    for message, options in (
        (two_kinds, {}),
        (two_kinds, {"message": "sequence_example"}),
        (lists(x=[ints(1) + strings(b"a")]), {"message": "sequence_example"}),
        (lists(x=[ints(1) + strings(b"a")]), {"schema": _STEPS}),
    ):
        found = tfrecord(b"", message, **options)
        assert isinstance(found, Refusal)
        assert (found.code, found.row) == ("ambiguous_example", 1)
        assert found.offset is not None
        assert "Write one list a Feature" in found.detail


def test_a_sequence_example_is_not_read_as_an_example() -> None:
    for schema in (None, _INT8):
        found = tfrecord(ONE, ONE + lists(), schema=schema)
        assert found == refused("sequence_example", 1, offset=len(file_of(ONE)) + 12 + len(ONE))
        assert isinstance(found, Refusal)
        assert "Set message=sequence_example" in found.detail
    assert_rows(tfrecord(ONE, ONE + lists(), schema=_INT8.with_message("sequence_example")), [{"x": 1}] * 2)


@st.composite
def spelled(draw: st.DrawFn, kind: int, values: list[Any]) -> bytes:
    """The values as a Feature, in any of the ways that mean the same."""

    def run(part: list[Any]) -> bytes:
        if kind == 1:
            return b"".join(field(0x0A, value) for value in part)
        whole = [np.float32(v).tobytes() if kind == 2 else varint(v % 2**64) for v in part]
        if draw(st.booleans()):
            return b"".join((b"\x0d" if kind == 2 else b"\x08") + value for value in whole)
        return field(0x0A, b"".join(whole))

    if draw(st.integers(0, 2)):  # plainly
        return strings(*values) if kind == 1 else floats(*values) if kind == 2 else ints(*values)
    cut = draw(st.integers(0, len(values)))
    runs = [run(values[:cut]), run(values[cut:])]
    unknown = draw(st.sampled_from([b"", b"\x20\x05", b"\x2a\x01x"]))
    tag = kind << 3 | 2
    if draw(st.booleans()):
        return field(tag, runs[0] + unknown + runs[1])
    return field(tag, runs[0]) + unknown + field(tag, runs[1])


_ITEMS: dict[int, st.SearchStrategy[Any]] = {
    1: st.binary(max_size=3) | st.just(b"x" * 200),
    2: st.sampled_from([0.0, 1.5, -2.0]),
    3: st.integers(0, 300) | st.integers(-(2**63), 2**63 - 1),
}
_DTYPES = {1: "bytes", 2: "float32", 3: "int64"}
_NAMES = ["a", "ab", "x", "label", "k" * 60, "é"]


@_SETTINGS
@given(st.data())
def test_rows_are_the_same_however_each_feature_of_each_row_is_spelled(data: st.DataObject) -> None:
    draw = data.draw
    names = draw(
        st.permutations(draw(st.lists(st.sampled_from(_NAMES), unique=True, min_size=1, max_size=4)))
    )
    kinds = {name: draw(st.integers(1, 3)) for name in names}
    widths = {name: draw(st.sampled_from([1, 3, 0, None])) for name in names}
    shapes: dict[str, Any] = {name: [] if width == 1 else [width] for name, width in widths.items()}
    schema = schema_of(
        **{name: {"dtype": _DTYPES[kinds[name]], "shape": shapes[name], "nullable": True} for name in names}
    )
    messages, rows = [], []
    for _ in range(draw(st.integers(1, 12))):
        order = names if draw(st.integers(0, 3)) else draw(st.permutations(names))
        row: dict[str, Any] = dict.fromkeys(names)
        parts = []
        for name in order:
            if not draw(st.integers(0, 4)):
                continue
            width = widths[name]
            size = draw(st.integers(0, 4)) if width is None else width
            values = draw(st.lists(_ITEMS[kinds[name]], min_size=size, max_size=size))
            row[name] = values[0] if widths[name] == 1 else values
            parts.append(entry(name.encode(), draw(spelled(kinds[name], values))))
            if not draw(st.integers(0, 9)):
                parts.insert(0, entry(name.encode(), ints(1, 2, 3, 4, 5)))
        body = b"".join(parts)
        messages.append(field(0x0A, body) if draw(st.booleans()) else b"".join(field(0x0A, p) for p in parts))
        rows.append(row)
    assert_rows(tfrecord(*messages, schema=schema), rows)
    assert_rows(tfrecord(*messages, schema=schema.with_message("sequence_example")), rows)


_ALIKE = schema_of(
    b="bytes",
    c={"dtype": "int64", "shape": [None]},
    d={"dtype": "bytes", "shape": [None]},
    f={"dtype": "float32", "shape": [3]},
    i={"dtype": "int64", "shape": [2]},
    o={"dtype": "int64", "nullable": True},
    pq={"dtype": "int64", "nullable": True},
    r={"dtype": "int16", "shape": [2], "encoding": "raw"},
    t={"dtype": "float32", "shape": [1], "encoding": "tensor"},
)
_OF_THE_WALK = ("malformed_example", "ambiguous_example", "not_an_example", "sequence_example")


@st.composite
def alike_rows(draw: st.DrawFn) -> list[bytes]:
    """Rows of a few layouts, with other values in each; some differ from their layout in one place."""
    layouts = draw(st.lists(st.sampled_from([(), ("o",), ("o", "o"), ("pq",)]), min_size=1, max_size=3))
    small = st.integers(0, draw(st.sampled_from([99, 300])))
    rows = []
    for _ in range(draw(st.integers(2, 30))):
        odd = draw(st.integers(0, 30))
        numbers = draw(st.lists(small, min_size=6, max_size=6))
        dtype, shape = b"\x08\x01", b"\x12\x04\x12\x02\x08\x01"
        header = shape + dtype if odd == 1 else dtype + shape
        features = {
            "b": strings(b"%03d" % numbers[1]),
            "c": ints(*numbers[2:4]),
            "d": strings(b"%03d" % numbers[4], b"e"),
            "f": floats(*numbers[:3]),
            "i": ints(numbers[4], numbers[5]),
            "r": strings(np.array(numbers[:2], "<i2").tobytes()),
            "t": strings(header + b"\x22\x04" + np.float32(numbers[0]).tobytes()),
        }
        entries = [entry(name.encode(), value) for name, value in features.items()]
        for number, name in enumerate(draw(st.sampled_from(layouts))):
            entries.insert(2 * number, entry(name.encode(), ints(numbers[number])))
        row = bytearray(field(0x0A, b"".join(entries)))
        if odd == 2:  # as if it were of the size of another row: 16 bytes more
            row += example(o=ints(5)) + b"\x18\x01"
        if odd == 3:
            row[draw(st.integers(0, len(row) - 1))] = draw(st.integers(0, 255))
        rows.append(bytes(row))
    return rows


@_SETTINGS
@given(alike_rows())
def test_rows_that_are_laid_out_alike_are_read_as_each_alone(rows: list[bytes]) -> None:
    together = tfrecord(*rows, schema=_ALIKE)
    alone = [tfrecord(row, schema=_ALIKE) for row in rows]
    good = [found.rows[0] for found in alone if isinstance(found, Rows)]
    if len(good) == len(rows):
        assert_rows(together, good)
        return
    # What a walk refuses comes before what a column refuses, and a column before the next one.
    position, expected = 0, []
    for number, (row, found) in enumerate(zip(rows, alone, strict=True)):
        if isinstance(found, Refusal):
            offset = None if found.offset is None else found.offset + position
            expected.append(Refusal(found.code, number, found.feature, offset))
        position += len(row) + 16
    walked = [refusal for refusal in expected if refusal.code in _OF_THE_WALK]
    if walked:
        assert together == walked[0]
    else:
        assert together in expected


_ONE_PART = example(x=ints(1))
_TWO_PARTS = _ONE_PART + example(x=ints(5)) + b"\x18\x01"  # 16 bytes more
_INTS = schema_of(**{name: {"dtype": "int64", "nullable": True} for name in ("a", "bb", "q", "x")})


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([example(a=ints(1)), example(bb=ints(2))], [{"a": 1}, {"bb": 2}]),
        ([example(a=ints(1)), example(q=ints(2))], [{"a": 1}, {"q": 2}]),
        ([_ONE_PART, _TWO_PARTS], [{"x": 1}, {"x": 5}]),
    ],
    ids=["other features", "other name", "one more part"],
)
def test_rows_of_two_layouts_in_turn_are_kept_apart(
    messages: list[bytes], found: list[dict[str, Any]]
) -> None:
    rows = [{**dict.fromkeys(_INTS.names), **row} for row in found * 6]
    assert_rows(tfrecord(*messages * 6, schema=_INTS), rows)


def test_texts_of_one_size_are_read_without_their_headers() -> None:
    texts = [b"%02d" % row for row in range(9)]
    found = tfrecord(*(example(b=strings(text)) for text in texts), schema=schema_of(b="bytes"))
    assert_rows(found, [{"b": text} for text in texts])


@pytest.mark.parametrize(
    "foreign",
    [
        b"\x18\x05",
        b"\x1a\x02ab\x20\x01",
        b"\x0a\x02\x18\x05",  # field 1 is a message, but not of features
        b"\x0a\x00\x18\x05",
    ],
)
def test_messages_of_another_kind_are_refused(foreign: bytes) -> None:
    for good, schema in ((ONE, x("int64", nullable=True)), (STEP, xs("int64", nullable=True))):
        expected = refused("not_an_example", 1, offset=len(file_of(good)) + 12)
        for options in (
            {"message": schema.message},
            {"schema": schema},
            {"schema": schema, "undeclared": "drop"},
        ):
            assert tfrecord(good, foreign, good, **options) == expected
    for message in (b"", b"\x0a\x00"):
        assert_rows(tfrecord(ONE, message), [{"x": [1]}, {"x": None}])
    for message in (b"\x12\x00", b"\x0a\x00\x12\x00"):
        assert_rows(tfrecord(STEP, message, message="sequence_example"), [{"x": [[1]]}, {"x": None}])


MALFORMED_ENTRIES = {
    "nothing behind the key": field(0x0A, b"k")[:-1] + b"k\x12",
    "a value that is too long": field(0x0A, b"k") + b"\x12\x7f",
    "a field behind the value": field(0x0A, b"k") + field(0x12, ints(1)) + field(0x1A, b""),
    "a second value": field(0x0A, b"k") + field(0x12, ints(1)) * 2,
    "a key that is no text": field(0x0A, b"\xff") + field(0x12, ints(1)),
    "a varint that does not end": field(0x0A, b"k") + field(0x12, field(0x1A, field(0x0A, b"\x80"))),
    "half a float": field(0x0A, b"k") + field(0x12, field(0x12, field(0x0A, b"\0\0\0"))),
    "a list that is too long": field(0x0A, b"k") + field(0x12, b"\x1a\x7f"),
    "a group": field(0x0A, b"k") + field(0x12, b"\x0b\x0c"),
}


@pytest.mark.parametrize("name", MALFORMED_ENTRIES)
def test_dropped_feature_is_validated(name: str) -> None:
    bad = field(0x0A, field(0x0A, MALFORMED_ENTRIES[name]))
    for message in (bad, example(x=ints(1)) + bad, example(a=floats(1), b=strings(b"c", b"")) + bad):
        found = tfrecord(message, schema=x("int64", nullable=True), undeclared="drop")
        assert isinstance(found, Refusal)
        assert (found.code, found.row) == ("malformed_example", 0)
        assert found == tfrecord(message)
    two = field(0x0A, field(0x0A, field(0x0A, b"k") + field(0x12, ints(1) + floats(1))))
    found = tfrecord(two, schema=x("int64", nullable=True), undeclared="drop")
    assert isinstance(found, Refusal)
    assert found.code == "ambiguous_example"


def test_well_formed_feature_is_dropped_in_any_spelling() -> None:
    long = strings(*[b"a" * 200] * 3)
    unpacked = field(0x1A, b"\x08\x01" + b"\x08\x02")
    for dropped in (
        ints(*range(300)),
        floats(1, 2),
        long,
        unpacked,
        ints(1) + ints(2),
        b"",
        ints(),
        floats(),
    ):
        message = example(a=dropped, x=ints(7), zz=dropped)
        for rows in ((message,), (message, example(x=ints(8)), message)):
            found = tfrecord(*rows, schema=x("int64"), undeclared="drop")
            assert isinstance(found, Rows)
            assert [row["x"] for row in found.rows] == [7, 8, 7][: len(rows)]


def test_undeclared_feature_is_refused_in_every_row() -> None:
    for message in (example(q=ints(1), x=ints(7)), example(x=ints(7), q=ints(1))):
        for rows in ((message,), (ONE, message), (ONE, ONE, message, message)):
            found = tfrecord(*rows, schema=x("int64"))
            assert found == refused("schema_conflict", rows.index(message), "q")
