"""What is read of the values in messages by a declared schema, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from app.domain.dtypes import DTYPES, DType
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
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

_PLAIN = bytes.fromhex("0805 1204 12020802 2204 01000200")  # int16 [1, 2], as TensorFlow writes it
_TYPED = bytes.fromhex("0805 1204 12020802 3a02 0102")  # the same in int_val
_LONGER = bytes.fromhex("0805 1204 12020803 2206 010002000300")
_SQUARE = bytes.fromhex("0805 1208 12020801 12020802 2204 01000200")
_NO_ROWS = bytes.fromhex("0805 1204 1200 1200")
_FIVE_OF_NO_ROWS = bytes.fromhex("0805 1206 1200 12020805")
_TEXT = b"\x08\x07\x12\x00\x42\x01a"

SPECIAL = [math.inf, -math.inf, math.nan, -0.0]

# A schema, values by row (None: absent), and what is read in them; every other row lacks a nullable feature.
FITTING: list[tuple[Schema, list[bytes], list[Any]]] = [
    (x("bool", [2]), [ints(0, 1)], [[False, True]]),
    (x("int8", [2]), [ints(-128, 127)], [[-128, 127]]),
    (x("uint8", [2]), [ints(0, 255)], [[0, 255]]),
    (x("int32", [2]), [ints(-(2**31), 2**31 - 1)], [[-(2**31), 2**31 - 1]]),
    (x("uint32", [2]), [ints(0, 2**32 - 1)], [[0, 2**32 - 1]]),
    (x("int64", [3]), [ints(-(2**63), 2**63 - 1, 300)], [[-(2**63), 2**63 - 1, 300]]),
    (x("uint64"), [ints(-1)], [2**64 - 1]),
    (x("float32", [4]), [floats(*SPECIAL)], [SPECIAL]),
    (x("float64"), [floats(0.1)], [float(np.float32(0.1))]),
    (x("float16", [7]), [floats(1.5, 65504.0, 2.0**-24, *SPECIAL)], [[1.5, 65504.0, 2.0**-24, *SPECIAL]]),
    (x("bfloat16", [6]), [floats(1.5, 2.0**127, *SPECIAL)], [[1.5, 2.0**127, *SPECIAL]]),
    (x("bytes"), [strings(b"\xff"), strings(b""), strings(b"a" * 300)], [b"\xff", b"", b"a" * 300]),
    (x("text"), [strings("é".encode())], ["é".encode()]),
    (x("text", [2]), [strings(b"a", b"")], [[b"a", b""]]),
    (x("int64"), [field(0x1A, b"\x08\x07"), ints(8)], [7, 8]),
    (x("float32", [2, 3]), [floats(*range(6))], [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]),
    (x("float32", [None, 3]), [floats(), floats(1, 2, 3)], [[], [[1.0, 2.0, 3.0]]]),
    (x("float32", [3, None]), [floats(1, 2, 3)], [[[1.0], [2.0], [3.0]]]),
    (x("float32", [0]), [floats()], [[]]),
    (x("float32", [None]), [floats(), floats(*range(5))], [[], [0.0, 1.0, 2.0, 3.0, 4.0]]),
    (x("int64", [None]), [ints(), ints(1, -1)], [[], [1, -1]]),
    (x("bytes", [None]), [strings(), strings(b"a", b"bc")], [[], [b"a", b"bc"]]),
    (x("int16", [2], encoding="raw"), [strings(b"\1\0\2\0")], [[1, 2]]),
    (x("int16", [None, 2], encoding="raw"), [strings(b""), strings(b"\1\0\2\0")], [[], [[1, 2]]]),
    (x("bool", [None], encoding="raw"), [strings(b"\1\0")], [[True, False]]),
    (x("int4", [2], encoding="raw"), [strings(b"\xff\x0f")], [[-1, -1]]),
    (x("int16", [2], encoding="tensor"), [strings(_PLAIN)], [[1, 2]]),
    (x("int16", [2], encoding="tensor"), [strings(_PLAIN), strings(_TYPED)], [[1, 2], [1, 2]]),
    (x("int16", [None], encoding="tensor"), [strings(_PLAIN), strings(_LONGER)], [[1, 2], [1, 2, 3]]),
    (x("int16", [None, None], encoding="tensor"), [strings(_SQUARE)], [[[1, 2]]]),
    (x("int16", [0, None], encoding="tensor"), [strings(_NO_ROWS)], [[]]),
    (x("text", encoding="tensor"), [strings(_TEXT)], [b"a"]),
]


@pytest.mark.parametrize(("schema", "values", "read_as"), FITTING, ids=lambda value: str(value)[:60])
def test_values_that_fit_are_read(schema: Schema, values: list[bytes], read_as: list[Any]) -> None:
    # Among features that come before and behind it, in every order.
    head, tail = example(x=values[0]), example({"y": ints(1), "x": values[-1], "a": ints(2)})
    drop = {"schema": schema, "undeclared": "drop"}
    found = tfrecord(head, *(example(x=value) for value in values), tail, pieces=PIECES, **drop)
    assert_rows(found, [{"x": cell} for cell in (read_as[0], *read_as, read_as[-1])])
    nullable = Schema.from_json({"features": {"x": {**schema.by_name["x"].to_json(), "nullable": True}}})
    messages, expected = [example()], [{"x": None}]
    for value, cell in zip(values, read_as, strict=True):
        messages += [example(x=value), example(x=b"")]
        expected += [{"x": cell}, {"x": None}]
    assert_rows(tfrecord(*messages, schema=nullable), expected)
    assert_rows(tfrecord(example(), b"", schema=nullable), [{"x": None}] * 2)


STEPS: list[tuple[Schema, list[bytes], list[Any]]] = [
    (xs("int8", [2]), [ints(1, 2), ints(-3, 4)], [[1, 2], [-3, 4]]),
    (xs("int64"), [ints(1), ints(300)], [1, 300]),
    (xs("int64", [None]), [b"", ints(1), b"\x20\x05"], [[], [1], []]),
    (xs("float32", [None]), [floats(), floats(0.5, 1.5)], [[], [0.5, 1.5]]),
    (xs("float16"), [floats(1.5)], [1.5]),
    (xs("text", [None]), [strings("é".encode(), b"")], [["é".encode(), b""]]),
    (xs("bytes"), [strings(b"a"), strings(b"")], [b"a", b""]),
    (xs("int16", [2], encoding="raw"), [strings(b"\1\0\2\0"), strings(b"\3\0\4\0")], [[1, 2], [3, 4]]),
    (xs("int16", [2], encoding="tensor"), [strings(_PLAIN), strings(_TYPED)], [[1, 2], [1, 2]]),
    (xs("int16", [None], encoding="tensor"), [strings(_PLAIN), strings(_LONGER)], [[1, 2], [1, 2, 3]]),
    (xs("int16", [None, None], encoding="tensor"), [strings(_SQUARE)], [[[1, 2]]]),
    (xs("float32"), [field(0x12, b"\x0d\0\0\0\0")], [0.0]),
    (
        xs("int64", [None]),
        [field(0x1A, b"\x0a\x03\xff\x01\x05"), ints(*range(200))],
        [[255, 5], [*range(200)]],
    ),
    (xs("float32", [31]), [floats(*[0] * 31)], [[0.0] * 31]),
]


@pytest.mark.parametrize(("schema", "steps", "read_as"), STEPS, ids=lambda value: str(value)[:60])
def test_steps_that_fit_are_read(schema: Schema, steps: list[bytes], read_as: list[Any]) -> None:
    messages = [lists(x=steps), lists(x=[]), lists(x=steps[::-1])]
    rows = [{"x": read_as}, {"x": []}, {"x": read_as[::-1]}]
    assert_rows(tfrecord(*messages, schema=schema, pieces=PIECES), rows)
    nullable = Schema.from_json({"features": {"x": {**schema.by_name["x"].to_json(), "nullable": True}}})
    found = tfrecord(lists(), *messages, b"", schema=nullable)
    assert_rows(found, [{"x": None}, *rows, {"x": None}])
    assert_rows(tfrecord(b"", lists(y=[ints(1)]), schema=nullable, undeclared="drop"), [{"x": None}] * 2)


# A schema, a value that fits it, those that do not, and why.
UNFITTING: list[tuple[Schema, bytes, list[bytes], str]] = [
    (
        x("int8"),
        ints(1),
        [b"", floats(1), floats(), strings(b"1"), ints(), ints(1, 2), ints(128), ints(-129)],
        "schema_conflict",
    ),
    (x("bool", [2]), ints(0, 1), [ints(-1, 0), ints(0, 2), ints(1), floats(0, 1)], "schema_conflict"),
    (x("uint8"), ints(0), [ints(-1), ints(256)], "schema_conflict"),
    (x("int32", [None]), ints(0), [ints(2**31), ints(0, -(2**31) - 1)], "schema_conflict"),
    (x("uint32"), ints(0), [ints(-1), ints(2**32)], "schema_conflict"),
    (x("float16"), floats(1), [floats(v) for v in (0.1, 65505.0, 1e9, 2.0**-25)], "lossy_encoding"),
    (x("bfloat16", [None]), floats(1), [floats(1, 0.1), floats(1.0 + 2.0**-8)], "lossy_encoding"),
    (x("float32"), floats(1), [ints(1), strings(b"1234"), floats(), floats(1, 2)], "schema_conflict"),
    (x("float32", [2, 3]), floats(*range(6)), [floats(*range(n)) for n in (0, 5, 7)], "schema_conflict"),
    (x("float32", [None, 3]), floats(), [floats(1), floats(*range(4))], "schema_conflict"),
    (x("float32", [3, None]), floats(), [floats(1, 2)], "schema_conflict"),
    (x("float32", [0]), floats(), [floats(1)], "schema_conflict"),
    (x("bytes"), strings(b""), [strings(), strings(b"", b""), ints(1)], "schema_conflict"),
    (x("bytes", [2]), strings(b"", b""), [strings(b"")], "schema_conflict"),
    (x("text"), strings(b"a"), [strings(b"\xff"), strings("é".encode()[:1])], "invalid_utf8"),
    (x("text", [None]), strings(b"a"), [strings(b"a", b"\xff")], "invalid_utf8"),
    (
        x("int16", [2], encoding="raw"),
        strings(b"\1\0\2\0"),
        [strings(b"\1\0\2"), strings(b"\1\0"), strings(), strings(b"\1\0\2\0", b""), ints(1, 2)],
        "schema_conflict",
    ),
    (x("int16", [None], encoding="raw"), strings(b""), [strings(b"\1")], "schema_conflict"),
    (x("bool", [2], encoding="raw"), strings(b"\0\1"), [strings(b"\0\2")], "schema_conflict"),
    (x("int4", [2], encoding="raw"), strings(b"\1\2"), [strings(b"\x01\x12")], "schema_conflict"),
    (
        x("int16", [2], encoding="tensor"),
        strings(_PLAIN),
        [strings(_LONGER), strings(_SQUARE), strings(), strings(_PLAIN, _PLAIN), floats(1)],
        "schema_conflict",
    ),
    (
        x("uint16", [3], encoding="tensor"),
        strings(_LONGER.replace(b"\x08\x05", b"\x08\x11")),
        [strings(_LONGER)],
        "schema_conflict",
    ),
    (
        x("int16", [0, None], encoding="tensor"),
        strings(_NO_ROWS),
        [strings(_FIVE_OF_NO_ROWS)],
        "schema_conflict",
    ),
    (x("text", encoding="tensor"), strings(_TEXT), [strings(_PLAIN)], "schema_conflict"),
    (x("text", encoding="tensor"), strings(_TEXT), [strings(_TEXT.replace(b"a", b"\xff"))], "invalid_utf8"),
]


@pytest.mark.parametrize(("schema", "fits", "wrong", "code"), UNFITTING, ids=lambda value: str(value)[:60])
def test_a_value_that_does_not_fit_is_named(
    schema: Schema, fits: bytes, wrong: list[bytes], code: str
) -> None:
    good = example(x=fits)
    for value in wrong:
        found = tfrecord(good, good, example(x=value), good, schema=schema)
        assert found == refused(code, 2, "x"), value
        # Under a key that is repeated, only the last value counts.
        found = tfrecord(good, example(x=value) + good, schema=schema)
        if value:
            assert isinstance(found, Rows), value
        assert tfrecord(good, good + example(x=value), schema=schema) == refused(code, 1, "x")
    declared = schema.by_name["x"].to_json()
    sequence = {**declared, "kind": "sequence", "shape": [None, *declared.get("shape", [])]}
    steps = schema_of(x=sequence)
    for value in wrong:
        row = lists(x=[fits, value])
        if value or steps.by_name["x"].shape[1:] != (None,):
            assert tfrecord(lists(x=[fits, fits]), row, schema=steps) == refused(code, 1, "x"), value


_INT8 = x("int8")
_STEPS = xs("int8")


@pytest.mark.parametrize(
    ("messages", "schema", "row", "feature", "says"),
    [
        ([ONE, example()], _INT8, 1, "x", "Declare the feature nullable"),
        ([ONE, b""], _INT8, 1, "x", "Declare the feature nullable"),
        ([STEP, b""], _STEPS, 1, "x", "lacks feature list 'x'. Declare the feature nullable"),
        ([ONE, example(x=ints(1), y=ints(1))], _INT8, 1, "y", "Declare it, or set undeclared=drop"),
        ([ONE], Schema(()), 0, "x", "Declare it"),
        ([STEP, lists(x=[ints(1)], y=[])], _STEPS, 1, "y", "Declare it"),
        ([STEP, example(x=ints(1)) + STEP], _STEPS, 1, "x", "Declare it"),
        ([ONE, example(x=ints(1, 2))], _INT8, 1, "x", "has 2 values where the schema's shape takes 1"),
        ([ONE, example(x=floats(1))], _INT8, 1, "x", "is a FloatList, but the schema expects an Int64List"),
        ([example(x=ints(300))], _INT8, 0, "x", "holds 300, but int8 takes values from -128 to 127"),
        ([lists(x=[ints(1), floats(1)])], _STEPS, 0, "x", "step 1, is a FloatList"),
        ([lists(x=[ints(1, 2), ints(3)])], xs("int8", [2]), 0, "x", "step 1, has 1 values"),
        ([example(x=strings(b"123"))], x("int16", [None], encoding="raw"), 0, "x", "no whole int16s"),
        ([example(x=floats(1)), b"\x0a"], _INT8, 1, None, None),  # all bytes are checked before any value
    ],
)  # fmt: skip
def test_the_error_says_what_does_not_fit(
    messages: list[bytes], schema: Schema, row: int, feature: str | None, says: str | None
) -> None:
    found = tfrecord(*messages, schema=schema)
    assert isinstance(found, Refusal)
    assert (found.row, found.feature) == (row, feature)
    assert found.code == ("malformed_example" if says is None else "schema_conflict")
    assert says is None or says in found.detail


def test_the_first_record_at_fault_is_named() -> None:
    assert tfrecord(ONE, example(x=ints(1), y=ints(1)), b"\x0a", schema=x("int64")) == refused(
        "schema_conflict", 1, "y"
    )


def test_undeclared_features_can_be_dropped_but_must_be_valid() -> None:
    message = example(a=strings(b"1"), x=ints(1), z=floats(1))
    assert_rows(tfrecord(message, schema=_INT8, undeclared="drop"), [{"x": 1}])
    # One without a kind is absent, whatever its name.
    assert_rows(tfrecord(example(x=ints(1), z=b""), schema=_INT8), [{"x": 1}])
    assert_rows(tfrecord(ONE, schema=Schema(()), undeclared="drop"), [{}])
    assert_rows(tfrecord(example(), b"", schema=Schema(())), [{}, {}])
    message = example(a=ints(1), x=ints(2)) + lists(a=[ints(1)], x=[ints(1)], z=[ints(1), floats(1)])
    assert_rows(tfrecord(message, schema=_STEPS, undeclared="drop"), [{"x": [1]}])
    assert_rows(tfrecord(STEP, b"", schema=Schema((), "sequence_example"), undeclared="drop"), [{}, {}])
    for part in (0x0A, 0x12):
        broken = field(part, entry(b"\xff", ints(1) if part == 0x0A else b""))
        schema = x("int8", nullable=True) if part == 0x0A else xs("int8", nullable=True)
        found = tfrecord(broken, schema=schema, undeclared="drop")
        assert isinstance(found, Refusal)
        assert (found.code, found.row) == ("malformed_example", 0)


# Bounds.


def test_declared_shapes_take_no_memory_before_the_rows_can_hold_them() -> None:
    schema = schema_of(a={"dtype": "int64", "shape": [2**40]}, b={"dtype": "float32", "shape": [10**6]})
    found = tfrecord(example(a=ints(1), b=floats(1)), schema=schema)
    assert found == refused("schema_conflict", 0, "a")
    assert isinstance(found, Refusal)


def test_batches_are_bounded() -> None:
    nullable = x("float32", [MIB], nullable=True)
    assert_rows(
        tfrecord(*[example()] * 20, schema=nullable, limits=Limits(max_decoded_bytes=64 * MIB)),
        [{"x": None}] * 20,
    )
    found = tfrecord(*(example(x=ints(n % 100)) for n in range(20_000)), schema=x("int64"))
    assert_rows(found, [{"x": n % 100} for n in range(20_000)])
    assert isinstance(found, Rows)
    assert max(found.batches) <= 8192
    assert len(found.batches) > 2
    found = tfrecord(*(lists(x=[ints(n % 100)] * (n % 3)) for n in range(10_000)), schema=xs("int64"))
    assert_rows(found, [{"x": [n % 100] * (n % 3)} for n in range(10_000)])


MANY_INTS = example(x=ints(*[1] * 300_000))


@pytest.mark.parametrize(
    ("messages", "options", "limits"),
    [
        # A step takes two bytes of a message and much more in memory.
        ([lists(x=[b""] * 100_000)], {"schema": xs("int64", [None])}, Limits(max_decoded_bytes=2 * MIB)),
        ([MANY_INTS], {"schema": x("int64", [None])}, Limits(max_decoded_bytes=2 * MIB)),
        ([MANY_INTS], {"schema": x("int64", [300_000])}, Limits(max_decoded_bytes=2 * MIB)),
        (
            [example(x=strings(b"b" * 30_000))] * 100,
            {"infer": "all"},
            Limits(max_decoded_bytes=2 * MIB, max_features=10),
        ),
    ],
)  # fmt: skip
def test_memory_is_charged(messages: list[bytes], options: dict[str, Any], limits: Limits) -> None:
    found = tfrecord(*messages, limits=limits, **options)
    assert isinstance(found, Refusal)
    assert found.code == "payload_too_large"
    assert isinstance(tfrecord(*messages, **options), Rows)


def test_many_features_are_found_in_any_order() -> None:
    names = [f"f{number:03}" for number in range(300)]
    schema = schema_of(**dict.fromkeys(reversed(names), "int64"))
    values = {name: ints(index) for index, name in enumerate(names)}
    rng = np.random.default_rng(0)
    messages = [example({name: values[name] for name in rng.permutation(names)}) for _ in range(20)]
    row = {name: names.index(name) for name in reversed(names)}
    assert_rows(tfrecord(*messages, schema=schema), [row] * 20)


def test_features_that_come_and_go_are_kept_apart() -> None:
    rng = np.random.default_rng(1)
    names = [f"f{number:02}" for number in range(24)]
    kinds: dict[str, tuple[Any, Any]] = {}
    for index, name in enumerate(names):
        kinds[name] = [
            ({"dtype": "int64"}, lambda n: (ints(n), n)),
            ({"dtype": "float32", "shape": [2]}, lambda n: (floats(n, 1), [float(n), 1.0])),
            ({"dtype": "bytes"}, lambda n: (strings(b"%d" % n), b"%d" % n)),
            ({"dtype": "int64", "shape": [None]}, lambda n: (ints(*range(n % 3)), [*range(n % 3)])),
        ][index % 4]
    schema = schema_of(**{name: {**kind, "nullable": True} for name, (kind, _) in kinds.items()})
    messages, rows = [], []
    for number in range(300):
        there = [name for name in names if rng.random() < 0.6]
        made = {name: kinds[name][1](number) for name in there}
        messages.append(example({name: value for name, (value, _) in made.items()}))
        rows.append({name: made[name][1] if name in made else None for name in names})
    assert_rows(tfrecord(*messages, schema=schema), rows)


_BYTES = [dtype for dtype in DTYPES.values() if not dtype.has_kernel and dtype.itemsize == 1]


@pytest.mark.parametrize("dtype", _BYTES, ids=str)
@pytest.mark.parametrize("encoding", ["raw", "tensor"])
def test_every_value_of_narrow_dtypes_is_read(dtype: DType, encoding: str) -> None:
    count = 1 << dtype.num_bits
    raw = np.arange(count).astype(np.uint8)
    if dtype.is_float:
        expected = raw.view(dtype.numpy).astype(np.float64).tolist()
    else:
        signed = dtype.bounds[0] < 0
        expected = [value - count if signed and 2 * value >= count else value for value in range(count)]
    value = raw.tobytes()
    if encoding == "tensor":
        shape = field(0x12, b"\x08" + varint(count))
        value = b"\x08" + varint(dtype.tf_enum) + field(0x12, shape) + field(0x22, value)
    for dim in (None, count):
        found = tfrecord(example(x=strings(value)), schema=x(dtype.name, [dim], encoding=encoding))
        assert_rows(found, [{"x": expected}])


def test_a_tensor_that_is_none_is_named_with_row_and_offset() -> None:
    first = example(x=strings(_LONGER))
    begin = len(file_of(first)) + 12
    found = tfrecord(first, example(x=strings(_PLAIN[:-1])), schema=x("int16", [None], encoding="tensor"))
    assert isinstance(found, Refusal)
    assert (found.code, found.row, found.feature) == ("truncated", 1, "x")
    assert found.offset is not None
    assert begin < found.offset < begin + 40


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_no_memory_is_asked_for_what_short_rows_cannot_hold(dtype: str) -> None:
    """The schema asks for 4 or 8 MB a row, the row holds one value: that is a conflict, not too large."""
    value = floats(1) if dtype == "float32" else ints(1)
    limits = Limits(max_decoded_bytes=2 * MIB)
    found = tfrecord(example(x=value), schema=x(dtype, [10**6]), limits=limits)
    assert found == refused("schema_conflict", 0, "x")
    raw = x("float32", [10**6], encoding="raw")
    found = tfrecord(example(x=strings(b"abcd")), schema=raw, limits=limits)
    assert found == refused("schema_conflict", 0, "x")
