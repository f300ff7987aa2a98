from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.codecs.messages.example_decode import parse_frames
from app.codecs.messages.framing import frame_footer, frame_header, iter_frames
from app.codecs.options import RecordsDecodeOptions
from app.domain.dtypes import DTYPES
from app.domain.limits import MIB, Limits
from app.domain.schema import Feature, Schema
from app.errors import InputError, LossyConversion, MalformedInput, SchemaConflict
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.arrow_rows import as_arrow


def field(tag: int, payload: bytes) -> bytes:
    assert len(payload) < 128
    return bytes([tag, len(payload)]) + payload


def example(**features: bytes) -> bytes:
    entries = (field(0x0A, field(0x0A, k.encode()) + field(0x12, v)) for k, v in features.items())
    return field(0x0A, b"".join(entries))


def floats(*values: float) -> bytes:
    return field(0x12, field(0x0A, np.array(values, "<f4").tobytes()))


def ints(*values: int) -> bytes:
    encoded = bytearray()
    for value in values:
        rest = value % 2**64
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
    return field(0x1A, field(0x0A, bytes(encoded)))


def strings(*values: bytes) -> bytes:
    return field(0x0A, b"".join(field(0x0A, value) for value in values))


def framed(*messages: bytes) -> bytes:
    return b"".join(frame_header(len(message)) + message + frame_footer(message) for message in messages)


def schema_of(**feature: Any) -> Schema:
    return Schema.from_json({"features": {"x": feature}})


def rows(
    *messages: bytes,
    schema: Schema | None = None,
    budget: Budget | None = None,
    chunk: int | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    budget = budget or Budget()
    frames = iter_frames(MemoryStream(framed(*messages), chunk=chunk), budget)
    records = parse_frames(frames, RecordsDecodeOptions(schema=schema, **options), budget)
    gathered: list[dict[str, Any]] = []
    for batch in as_arrow(records):
        batch.validate(full=True)
        gathered += batch.to_pylist() if batch.num_columns else [{}] * batch.num_rows
    return gathered


def refusal(*messages: bytes, schema: Schema, **options: Any) -> tuple[type, str, int | None, str | None]:
    with pytest.raises(InputError) as caught:
        rows(*messages, schema=schema, **options)
    error = caught.value
    return type(error), error.code, error.location.row, error.location.feature


GOOD = example(x=ints(1))


@pytest.mark.parametrize(
    ("message", "feature"),
    [
        (example(), "x"),
        (example(x=b""), "x"),  # a Feature without a kind
        (example(x=floats(1)), "x"),
        (example(x=floats()), "x"),
        (example(x=strings(b"1")), "x"),
        (example(x=ints()), "x"),  # no value for a scalar
        (example(x=ints(1, 2)), "x"),
        (example(x=ints(128)), "x"),  # beyond int8
        (example(x=ints(-129)), "x"),
        (example(x=ints(1), y=ints(1)), "y"),
    ],
)
def test_a_row_that_does_not_fit_is_named(message: bytes, feature: str) -> None:
    found = refusal(GOOD, GOOD, message, GOOD, schema=schema_of(dtype="int8"))
    assert found == (SchemaConflict, "schema_conflict", 2, feature)


def test_an_absent_feature_says_that_it_can_be_nullable() -> None:
    with pytest.raises(SchemaConflict, match="Declare the feature nullable"):
        rows(GOOD, example(), schema=schema_of(dtype="int8"))


def test_undeclared_features_can_be_dropped() -> None:
    message = example(a=strings(b"1"), x=ints(1), z=floats(1))
    assert rows(message, schema=schema_of(dtype="int8"), undeclared="drop") == [{"x": 1}]
    # One without a kind is absent, whatever its name.
    assert rows(example(x=ints(1), z=b""), schema=schema_of(dtype="int8")) == [{"x": 1}]


def test_what_is_dropped_must_still_be_valid() -> None:
    broken = field(0x0A, field(0x0A, field(0x0A, b"\xff") + field(0x12, ints(1))))
    assert (
        refusal(broken, schema=schema_of(dtype="int8", nullable=True), undeclared="drop")[1]
        == "malformed_example"
    )


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("bool", (0, 1)),
        ("int8", (-128, 127)),
        ("uint8", (0, 255)),
        ("int32", (-(2**31), 2**31 - 1)),
        ("uint32", (0, 2**32 - 1)),
        ("int64", (-(2**63), 2**63 - 1)),
    ],
)
def test_integers_are_checked_against_the_range_of_their_dtype(dtype: str, values: tuple[int, int]) -> None:
    schema = schema_of(dtype=dtype, shape=[2])
    assert rows(example(x=ints(*values)), schema=schema) == [{"x": list(values)}]
    if dtype != "int64":
        for wrong in ((values[0] - 1, 0), (0, values[1] + 1)):
            assert refusal(example(x=ints(*wrong)), schema=schema) == (
                SchemaConflict,
                "schema_conflict",
                0,
                "x",
            )


def test_uint64_is_read_as_twos_complement_and_float64_exactly() -> None:
    assert rows(example(x=ints(-1)), schema=schema_of(dtype="uint64")) == [{"x": 2**64 - 1}]
    assert rows(example(x=floats(0.1)), schema=schema_of(dtype="float64")) == [{"x": float(np.float32(0.1))}]


@pytest.mark.parametrize(
    ("dtype", "exact", "lost"),
    [
        ("float16", [1.5, 65504.0, 2.0**-24, -0.0], [0.1, 65505.0, 1e9, 2.0**-25]),
        ("bfloat16", [1.5, 2.0**127, -0.0], [0.1, 1.0 + 2.0**-8]),
    ],
)
def test_halves_are_read_only_where_exact(dtype: str, exact: list[float], lost: list[float]) -> None:
    schema = schema_of(dtype=dtype)
    special = [np.inf, -np.inf, np.nan]
    read = [row["x"] for row in rows(*(example(x=floats(value)) for value in exact + special), schema=schema)]
    numbers = np.array(read, np.uint16 if dtype == "bfloat16" else np.float16)
    expected = np.array(exact + special).astype(DTYPES[dtype].numpy)
    assert np.array_equal(numbers.view(np.uint16), expected.view(np.uint16))
    for value in lost:
        found = refusal(GOOD_FLOAT, example(x=floats(value)), schema=schema)
        assert found == (LossyConversion, "lossy_encoding", 1, "x")


GOOD_FLOAT = example(x=floats(1))


@pytest.mark.parametrize(
    ("shape", "counts", "wrong"),
    [
        ([2, 3], [6], [5, 7, 0]),
        ([None, 3], [0, 3, 6], [1, 4]),
        ([3, None], [0, 3], [2]),
        ([0], [0], [1]),
        ([None], [0, 5], []),
    ],
)
def test_the_count_must_fit_the_shape(shape: list[int | None], counts: list[int], wrong: list[int]) -> None:
    schema = schema_of(dtype="float32", shape=shape)
    for count in counts:
        message = example(x=floats(*range(count)))
        assert rows(message, schema=schema) == [{"x": [float(value) for value in range(count)]}]
    for count in wrong:
        message = example(x=floats(*range(count)))
        assert refusal(message, schema=schema) == (SchemaConflict, "schema_conflict", 0, "x")


@pytest.mark.parametrize("shape", [[], [2], [None]])
@pytest.mark.parametrize("dtype", ["int16", "float32", "text"])
def test_absent_features_are_null(dtype: str, shape: list[int | None]) -> None:
    count = 1 if not shape else 2
    value = {"int16": ints(*[5] * count), "float32": floats(*[5] * count), "text": strings(*[b"5"] * count)}[
        dtype
    ]
    there: Any = {"int16": 5, "float32": 5.0, "text": b"5"}[dtype]
    cell = there if not shape else [there] * 2
    schema = schema_of(dtype=dtype, shape=shape, nullable=True)
    found = rows(example(), example(x=value), example(x=b""), example(x=value), schema=schema)
    assert found == [{"x": None}, {"x": cell}, {"x": None}, {"x": cell}]


@pytest.mark.parametrize("encoding", ["list", "tensor"])
def test_text_must_be_utf8(encoding: str) -> None:
    schema = schema_of(dtype="text", encoding=encoding, nullable=True)

    def message(value: bytes) -> bytes:
        return example(x=strings(value if encoding == "list" else b"\x08\x07\x12\x00" + field(0x42, value)))

    assert rows(message("é".encode()), schema=schema) == [{"x": "é".encode()}]
    # Invalid by itself, and only valid together with the next row's value.
    for wrong in (b"\xff", "é".encode()[:1]):
        found = refusal(message(b"a"), example(), message(wrong), message("é".encode()[1:]), schema=schema)
        assert found[1:] == ("invalid_utf8", 2, "x")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (strings(b"\x01\0\x02\0"), None),
        (strings(b"\x01\0\x02"), "schema_conflict"),  # no whole elements
        (strings(b"\x01\0"), "schema_conflict"),
        (strings(), "schema_conflict"),
        (strings(b"\x01\0", b"\x02\0"), "schema_conflict"),
        (ints(1, 2), "schema_conflict"),
    ],
)
def test_raw_is_one_value_of_the_right_size(value: bytes, code: str | None) -> None:
    schema = schema_of(dtype="int16", shape=[2], encoding="raw", nullable=True)
    if code is None:
        assert rows(example(), example(x=value), schema=schema) == [{"x": None}, {"x": [1, 2]}]
    else:
        found = refusal(example(), example(x=value), schema=schema)
        assert found == (SchemaConflict, code, 1, "x")


def test_a_raw_bool_is_0_or_1() -> None:
    schema = schema_of(dtype="bool", shape=[None], encoding="raw")
    assert rows(example(x=strings(b"\1\0")), schema=schema) == [{"x": [1, 0]}]
    found = refusal(example(x=strings(b"\0")), example(x=strings(b"\0\2")), schema=schema)
    assert found == (SchemaConflict, "schema_conflict", 1, "x")


_PLAIN = bytes.fromhex("0805 1204 12020802 2204 01000200")  # int16 [1, 2], as TensorFlow writes it
_TYPED = bytes.fromhex("0805 1204 12020802 3a02 0102")  # the same in int_val
_LONGER = bytes.fromhex("0805 1204 12020803 2206 010002000300")


@pytest.mark.parametrize("shape", [[2], [None]])
def test_tensors_are_read_in_any_valid_form(shape: list[int | None]) -> None:
    schema = schema_of(dtype="int16", shape=shape, encoding="tensor", nullable=True)
    budget = Budget()
    found = rows(
        example(x=strings(_PLAIN)), example(), example(x=strings(_TYPED)), schema=schema, budget=budget
    )
    assert found == [{"x": [1, 2]}, {"x": None}, {"x": [1, 2]}]
    assert budget.remaining == budget.limits.max_decoded_bytes


def test_a_tensor_must_be_of_the_declared_dtype_and_shape() -> None:
    for schema in (
        schema_of(dtype="int16", shape=[3], encoding="tensor"),
        schema_of(dtype="int16", shape=[2, None], encoding="tensor"),
        schema_of(dtype="uint16", shape=[2], encoding="tensor"),
        schema_of(dtype="text", shape=[2], encoding="tensor"),
    ):
        found = refusal(example(x=strings(_PLAIN)), schema=schema)
        assert found == (SchemaConflict, "schema_conflict", 0, "x")


def test_a_tensor_that_is_none_is_named_with_row_and_offset() -> None:
    schema = schema_of(dtype="int16", shape=[None], encoding="tensor")
    first, second = example(x=strings(_LONGER)), example(x=strings(_PLAIN[:-1]))
    with pytest.raises(MalformedInput) as caught:
        rows(first, second, schema=schema)
    location = caught.value.location
    assert (location.row, location.feature) == (1, "x")
    assert location.offset is not None
    assert location.offset > len(framed(first)) + 12


def test_several_unknown_dimensions_keep_their_shapes() -> None:
    schema = schema_of(dtype="int16", shape=[None, None], encoding="tensor", nullable=True)
    square = bytes.fromhex("0805 1208 12020801 12020802 2204 01000200")
    assert rows(example(x=strings(square)), example(), schema=schema) == [
        {"x": {"shape": [1, 2], "values": [1, 2]}},
        {"x": None},
    ]


def test_a_dimension_that_a_list_cannot_tell_is_refused() -> None:
    schema = schema_of(dtype="int16", shape=[0, None], encoding="tensor")
    assert rows(example(x=strings(bytes.fromhex("0805 1204 1200 1200"))), schema=schema) == [{"x": []}]
    lost = bytes.fromhex("0805 1206 1200 12020805")
    assert refusal(example(x=strings(lost)), schema=schema)[1] == "schema_conflict"


@pytest.mark.parametrize(
    ("message", "position"),
    [
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
        (example(x=field(0x12, b"\x0dabc")), 12),
        (example(x=field(0x1A, b"\x0a\x01\x80")), 13),
        (example(x=field(0x1A, b"\x08\x80")), 12),
        (example(x=field(0x0A, b"\x0a\x01")), 12),
        (b"\x1b\x1c" + GOOD, 1),  # a group
    ],
)
def test_malformed_messages_are_named_with_row_and_offset(message: bytes, position: int) -> None:
    schema = schema_of(dtype="int64", nullable=True)
    with pytest.raises(MalformedInput) as caught:
        rows(GOOD, message, schema=schema)
    assert caught.value.code == "malformed_example"
    assert caught.value.location.row == 1
    assert caught.value.location.offset == len(framed(GOOD)) + 12 + position


def test_the_first_fault_is_the_one_that_is_named() -> None:
    schema = schema_of(dtype="int64")
    assert refusal(GOOD, example(x=ints(1), y=ints(1)), b"\x0a", schema=schema)[1:3] == (
        "schema_conflict",
        1,
    )


def test_the_rows_are_the_same_at_every_split() -> None:
    messages = [example(x=ints(*range(count)), y=strings(b"s" * count)) for count in range(10)]
    expected = rows(*messages)
    assert len(expected) == 10
    for chunk in range(1, 50):
        assert rows(*messages, chunk=chunk) == expected


def test_a_schema_without_features_reads_rows_without_columns() -> None:
    assert rows(example(), b"", schema=Schema(())) == [{}, {}]
    assert rows(GOOD, schema=Schema(()), undeclared="drop") == [{}]
    assert refusal(GOOD, schema=Schema(()))[1] == "schema_conflict"


def test_batches_are_small_where_rows_are_large() -> None:
    schema = Schema((Feature("x", DTYPES["float32"], (MIB,), nullable=True),))
    budget = Budget(Limits(max_decoded_bytes=64 * MIB))
    assert rows(*[example()] * 20, schema=schema, budget=budget) == [{"x": None}] * 20
    assert budget.remaining == 64 * MIB


def test_many_features_are_found_in_any_order() -> None:
    names = [f"f{number:03}" for number in range(300)]
    schema = Schema(tuple(Feature(name, DTYPES["int64"]) for name in reversed(names)))
    entries = [field(0x0A, field(0x0A, name.encode()) + field(0x12, ints(i))) for i, name in enumerate(names)]
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(20):
        body = b"".join(entries[index] for index in rng.permutation(300))
        messages.append(b"\x0a" + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body)
    assert rows(*messages, schema=schema) == [{name: i for i, name in enumerate(names)}] * 20


def test_rows_that_lack_a_large_feature_take_no_memory_for_it() -> None:
    schema = Schema((Feature("x", DTYPES["float32"], (8 * MIB,), nullable=True),))
    budget = Budget(Limits(max_decoded_bytes=1 * MIB))
    assert [row["x"] for row in rows(example(), schema=schema, budget=budget)] == [None]


def test_batches_do_not_share_what_is_reused() -> None:
    schema = schema_of(dtype="int64")
    frames = iter_frames(MemoryStream(framed(*(example(x=ints(n % 100)) for n in range(20_000)))), Budget())
    batches: list[pa.RecordBatch] = list(
        as_arrow(parse_frames(frames, RecordsDecodeOptions(schema=schema), Budget()))
    )
    assert [row["x"] for batch in batches for row in batch.to_pylist()] == [n % 100 for n in range(20_000)]
    assert max(batch.num_rows for batch in batches) <= 8192
