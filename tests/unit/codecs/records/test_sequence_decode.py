from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.codecs.arrow.batches import arrow_schema
from app.codecs.messages.framing import frame_footer, frame_header, iter_frames
from app.codecs.messages.sequence_decode import parse_sequences
from app.codecs.options import RecordsDecodeOptions
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.errors import InputError, LossyConversion, MalformedInput, SchemaConflict, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.arrow_rows import as_arrow
from tests.feature_values import field, varint


def context(**features: bytes) -> bytes:
    entries = (field(0x0A, field(0x0A, k.encode()) + field(0x12, v)) for k, v in features.items())
    return field(0x0A, b"".join(entries))


def lists(**steps: list[bytes]) -> bytes:
    entries = (
        field(0x0A, field(0x0A, k.encode()) + field(0x12, b"".join(field(0x0A, step) for step in v)))
        for k, v in steps.items()
    )
    return field(0x12, b"".join(entries))


def floats(*values: float) -> bytes:
    return field(0x12, field(0x0A, np.array(values, "<f4").tobytes()))


def ints(*values: int) -> bytes:
    return field(0x1A, field(0x0A, b"".join(varint(value % 2**64) for value in values)))


def strings(*values: bytes) -> bytes:
    return field(0x0A, b"".join(field(0x0A, value) for value in values))


def framed(*messages: bytes) -> bytes:
    return b"".join(frame_header(len(message)) + message + frame_footer(message) for message in messages)


def schema_of(**feature: Any) -> Schema:
    feature = {"shape": [None], "kind": "sequence"} | feature
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
    records = parse_sequences(frames, RecordsDecodeOptions(schema=schema, **options), budget)
    gathered: list[dict[str, Any]] = []
    for batch in as_arrow(records):
        batch.validate(full=True)
        if batch.num_columns:
            assert batch.schema.equals(arrow_schema(records.schema))
        gathered += batch.to_pylist() if batch.num_columns else [{}] * batch.num_rows
    assert budget.remaining == budget.limits.max_decoded_bytes
    return gathered


def refusal(*messages: bytes, schema: Schema, **options: Any) -> tuple[type, str, int | None, str | None]:
    with pytest.raises(InputError) as caught:
        rows(*messages, schema=schema, **options)
    error = caught.value
    return type(error), error.code, error.location.row, error.location.feature


GOOD = lists(x=[ints(1)])


def test_a_message_of_both_parts_is_read() -> None:
    schema = Schema.from_json(
        {
            "features": {
                "x": {"dtype": "int8", "shape": [None, 2], "kind": "sequence", "nullable": True},
                "c": {"dtype": "text", "nullable": True},
                "y": {"dtype": "float32", "shape": [None, None], "kind": "sequence"},
            }
        }
    )
    found = rows(
        context(c=strings(b"a")) + lists(x=[ints(1, 2), ints(-3, 4)], y=[]),
        lists(y=[floats(), floats(0.5, 1.5)]),
        lists(y=[floats(2)], x=[]) + context(c=strings(b"b")),
        schema=schema,
    )
    assert found == [
        {"x": [[1, 2], [-3, 4]], "c": b"a", "y": []},
        {"x": None, "c": None, "y": [[], [0.5, 1.5]]},
        {"x": [], "c": b"b", "y": [[2.0]]},
    ]


def test_an_absent_list_is_null_and_an_empty_one_an_empty_list() -> None:
    schema = schema_of(dtype="int64", nullable=True)
    assert rows(b"", lists(), lists(x=[]), GOOD, schema=schema) == [
        {"x": None}, {"x": None}, {"x": []}, {"x": [1]},
    ]  # fmt: skip
    found = refusal(GOOD, b"", schema=schema_of(dtype="int64"))
    assert found == (SchemaConflict, "schema_conflict", 1, "x")


def test_a_step_without_a_kind_holds_no_values() -> None:
    schema = schema_of(dtype="int64", shape=[None, None])
    assert rows(lists(x=[b"", ints(1), b"\x20\x05"]), schema=schema) == [{"x": [[], [1], []]}]
    found = refusal(GOOD, lists(x=[ints(1), b""]), schema=schema_of(dtype="int64"))
    assert found == (SchemaConflict, "schema_conflict", 1, "x")


@pytest.mark.parametrize(
    ("message", "feature"),
    [
        (lists(x=[floats(1)]), "x"),
        (lists(x=[ints(1), floats()]), "x"),
        (lists(x=[ints(1), strings(b"1")]), "x"),
        (lists(x=[ints()]), "x"),  # no value for a scalar
        (lists(x=[ints(1), ints(1, 2)]), "x"),
        (lists(x=[ints(1), ints(128)]), "x"),  # beyond int8
        (lists(x=[ints(1)], y=[ints(1)]), "y"),
        (lists(x=[ints(1)], y=[]), "y"),
        (context(x=ints(1)) + GOOD, "x"),  # not in the context
    ],
)
def test_a_row_that_does_not_fit_is_named(message: bytes, feature: str) -> None:
    found = refusal(GOOD, lists(x=[]), message, GOOD, schema=schema_of(dtype="int8"))
    assert found == (SchemaConflict, "schema_conflict", 2, feature)


def test_the_step_that_does_not_fit_is_named() -> None:
    message = lists(x=[ints(1, 2), ints(3)])
    with pytest.raises(SchemaConflict, match="Record 1: feature 'x', step 1, has 1 values"):
        rows(lists(x=[ints(1, 2)]), message, schema=schema_of(dtype="int64", shape=[None, 2]))
    with pytest.raises(SchemaConflict, match="Record 0: feature 'x', step 1, is a FloatList"):
        rows(lists(x=[ints(1), floats(1)]), schema=schema_of(dtype="int64"))


def test_undeclared_features_can_be_dropped() -> None:
    message = context(a=ints(1), x=ints(2)) + lists(a=[ints(1)], x=[ints(1)], z=[ints(1), floats(1)])
    assert rows(message, schema=schema_of(dtype="int8"), undeclared="drop") == [{"x": [1]}]
    broken = field(0x12, field(0x0A, field(0x0A, b"\xff")))
    found = refusal(broken, schema=schema_of(dtype="int8", nullable=True), undeclared="drop")
    assert found[1] == "malformed_example"


def test_text_halves_and_their_rows() -> None:
    schema = schema_of(dtype="text", shape=[None, None])
    assert rows(lists(x=[strings("é".encode(), b"")]), schema=schema) == [{"x": [["é".encode(), b""]]}]
    found = refusal(lists(x=[strings(b"a")]), lists(x=[strings(), strings(b"\xff")]), schema=schema)
    assert found == (UnprocessableInput, "invalid_utf8", 1, "x")
    schema = schema_of(dtype="float16")
    assert rows(lists(x=[floats(1.5)]), schema=schema) == [{"x": [np.float16(1.5)]}]
    found = refusal(lists(x=[floats(1.5)] * 3), lists(x=[floats(1), floats(0.1)]), schema=schema)
    assert found == (LossyConversion, "lossy_encoding", 1, "x")


_TENSOR = bytes.fromhex("0805 1204 12020802 2204 01000200")  # int16 [1, 2], as TensorFlow writes it
_TYPED = bytes.fromhex("0805 1204 12020802 3a02 0102")  # the same in int_val


def test_steps_are_raw_bytes_or_tensors() -> None:
    raw = schema_of(dtype="int16", shape=[None, 2], encoding="raw")
    message = lists(x=[strings(b"\1\0\2\0"), strings(b"\3\0\4\0")])
    assert rows(message, lists(x=[]), schema=raw) == [{"x": [[1, 2], [3, 4]]}, {"x": []}]
    for wrong in (strings(b"\1\0"), strings(b"\1\0\2\0", b"\1\0\2\0"), strings(), b""):
        assert refusal(message, lists(x=[wrong]), schema=raw)[1:3] == ("schema_conflict", 1)
    for shape in ([None, 2], [None, None]):
        tensor = schema_of(dtype="int16", shape=shape, encoding="tensor")
        found = rows(lists(x=[strings(_TENSOR), strings(_TYPED)]), lists(x=[]), schema=tensor)
        assert found == [{"x": [[1, 2], [1, 2]]}, {"x": []}]
        with pytest.raises(MalformedInput) as caught:
            rows(message, lists(x=[strings(_TENSOR), strings(_TENSOR[:-1])]), schema=tensor)
        assert caught.value.location.row in (0, 1)
    several = schema_of(dtype="int16", shape=[None, None, None], encoding="tensor", nullable=True)
    square = bytes.fromhex("0805 1208 12020801 12020802 2204 01000200")
    assert rows(lists(x=[strings(square)]), b"", schema=several) == [
        {"x": [{"shape": [1, 2], "values": [1, 2]}]}, {"x": None},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "position"),
    [
        (b"\x0a", 1),  # no length
        (b"\x12\x05", 1),  # a length beyond the end
        (b"\x00\x00", 0),  # field 0
        (GOOD + b"\x12\x80", len(GOOD) + 1),
        (field(0x12, b"\x0a\x09"), 3),
        (field(0x12, field(0x0A, b"\x0a\x09x")), 5),  # the key
        (field(0x12, field(0x0A, b"\x0a\x01x\x12\x7f")), 8),  # the FeatureList
        (field(0x12, field(0x0A, b"\x0a\x01x" + field(0x12, b"\x0a\x7f"))), 10),  # a step
        (lists(x=[b"\x12\x7f"]), 12),  # the list
        (lists(x=[ints(1), field(0x12, b"\x0a\x03abc")]), 20),  # no whole floats
        (lists(x=[field(0x1A, b"\x0a\x01\x80")]), 15),
        (context(c=field(0x1A, b"\x0a\x01\x80")), 13),
        (b"\x1b\x1c" + GOOD, 1),  # a group
    ],
)
def test_malformed_messages_are_named_with_row_and_offset(message: bytes, position: int) -> None:
    schema = schema_of(dtype="int64", nullable=True)
    with pytest.raises(MalformedInput) as caught:
        rows(GOOD, message, schema=schema)
    assert caught.value.code == "malformed_example"
    assert "tf.train.SequenceExample" in caught.value.detail
    assert caught.value.location.row == 1
    assert caught.value.location.offset == len(framed(GOOD)) + 12 + position


def test_what_is_wrong_in_scattered_contexts_is_named_by_its_record() -> None:
    good, broken = context(c=ints(1)), context(c=field(0x1A, b"\x0a\x01\x80"))
    ambiguous = context(c=ints(1) + floats(1))
    schema = Schema.from_json({"features": {"c": {"dtype": "int64"}}, "message": "sequence_example"})
    assert rows(good + lists() + context(c=ints(2)), schema=schema) == [{"c": 2}]
    for wrong, code in ((broken, "malformed_example"), (ambiguous, "ambiguous_example")):
        with pytest.raises(InputError) as caught:
            rows(good, good + lists() + wrong, schema=schema)
        assert caught.value.code == code
        assert caught.value.location.row == 1
        assert caught.value.location.offset == len(framed(good)) + 12


def test_the_rows_are_the_same_at_every_split() -> None:
    messages = [
        context(c=strings(b"s" * count))
        + lists(x=[ints(*range(n)) for n in range(count)], y=[floats(1)] * count)
        for count in range(10)
    ]
    expected = rows(*messages)
    assert len(expected) == 10
    assert expected[2] == {"c": [b"ss"], "x": [[], [0]], "y": [[1.0], [1.0]]}
    for chunk in range(1, 50):
        assert rows(*messages, chunk=chunk) == expected


def test_a_schema_without_features_reads_rows_without_columns() -> None:
    schema = Schema((), "sequence_example")
    assert rows(context(), b"", lists(), schema=schema) == [{}, {}, {}]
    assert rows(GOOD, schema=schema, undeclared="drop") == [{}]
    assert refusal(GOOD, schema=schema)[1] == "schema_conflict"


def test_steps_count_against_the_budget() -> None:
    """A step takes two bytes of a message and much more in memory."""
    message = lists(x=[b""] * 100_000)
    budget = Budget(Limits(max_decoded_bytes=2 * MIB))
    assert len(rows(message, schema=schema_of(dtype="int64", shape=[None, None]))[0]["x"]) == 100_000
    with pytest.raises(InputError) as caught:
        rows(message, schema=schema_of(dtype="int64", shape=[None, None]), budget=budget)
    assert caught.value.code == "payload_too_large"


def test_many_rows_come_in_batches_that_do_not_share_what_is_reused() -> None:
    schema = schema_of(dtype="int64")
    data = framed(*(lists(x=[ints(n % 100)] * (n % 3)) for n in range(10_000)))
    records = parse_sequences(
        iter_frames(MemoryStream(data), Budget()), RecordsDecodeOptions(schema=schema), Budget()
    )
    batches = list(as_arrow(records))
    assert len(batches) > 1
    found = [row["x"] for batch in batches for row in batch.to_pylist()]
    assert found == [[n % 100] * (n % 3) for n in range(10_000)]
