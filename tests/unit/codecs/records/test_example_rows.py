"""Reading rows of one layout the quick way finds what the general way finds, and refuses what it refuses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.messages.example_decode import parse_frames
from app.codecs.messages.example_rows import RowReader
from app.codecs.messages.framing import FrameBlock
from app.codecs.messages.protobuf import serialize_varint
from app.codecs.options import RecordsDecodeOptions
from app.domain.schema import Schema
from app.errors import InputError
from app.runtime.budget import Budget
from tests.arrow_rows import as_arrow

_PLAIN = kernels.Kernels(lambda function: function)
_SETTINGS = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])


def field(number: int, payload: bytes) -> bytes:
    return serialize_varint(number << 3 | 2) + serialize_varint(len(payload)) + payload


def floats(*values: float) -> bytes:
    return field(2, field(1, np.array(values, "<f4").tobytes()) if values else b"")


def ints(*values: int) -> bytes:
    return field(3, field(1, b"".join(serialize_varint(v % 2**64) for v in values)) if values else b"")


def strings(*values: bytes) -> bytes:
    return field(1, b"".join(field(1, value) for value in values))


def message(features: dict[str, bytes]) -> bytes:
    return field(1, b"".join(field(1, field(1, k.encode()) + field(2, v)) for k, v in features.items()))


def block_of(messages: list[bytes]) -> FrameBlock:
    sizes = np.array([len(data) for data in messages], np.int64)
    starts = np.cumsum(sizes) - sizes
    return FrameBlock(memoryview(b"".join(messages)), starts, sizes, 7, 100)


def outcome(blocks: list[list[bytes]], options: RecordsDecodeOptions) -> list[Any]:
    """The batches, and the error in full."""
    found: list[Any] = []
    budget = Budget()
    try:
        records = parse_frames(iter([block_of(messages) for messages in blocks]), options, budget)
        for batch in as_arrow(records):
            batch.validate(full=True)
            # As text, in which a NaN is as good as another.
            found.append((batch.schema, repr(batch.to_pydict()), batch.num_rows))
    except InputError as error:
        found.append((type(error), error.code, str(error), error.location))
    assert budget.remaining == budget.limits.max_decoded_bytes
    return found


def both(blocks: list[list[bytes]], options: RecordsDecodeOptions) -> tuple[list[Any], list[Any]]:
    quick = outcome(blocks, options)
    with mock.patch.object(RowReader, "read", return_value=None):
        return quick, outcome(blocks, options)


def reads(blocks: list[list[bytes]], schema: Schema) -> list[bool]:
    """Of each batch, whether it was read the quick way."""
    taken: list[bool] = []
    read = RowReader.read

    def noted(*args: Any) -> Any:
        taken.append((columns := read(*args)) is not None)
        return columns

    with mock.patch.object(RowReader, "read", noted):
        outcome(blocks, RecordsDecodeOptions(schema=schema))
    return taken


@dataclass(frozen=True)
class Kind:
    """A feature as its schema says, and how its values are stored."""

    schema: dict[str, Any]
    value: st.SearchStrategy[bytes]


def _lists(dtypes: list[str], one: st.SearchStrategy[Any], write: Any) -> st.SearchStrategy[Kind]:
    def kind(dtype: str, shape: list[int | None], nullable: bool) -> Kind:
        width = None if None in shape else math.prod(dim for dim in shape if dim is not None)
        sizes = st.integers(0, 4) if width is None else st.just(width)
        values = sizes.flatmap(lambda size: st.lists(one, min_size=size, max_size=size))
        schema = {"dtype": dtype, "shape": shape, "nullable": nullable, "encoding": "list"}
        return Kind(schema, values.map(lambda items: write(*items)))

    shapes: list[list[int | None]] = [[], [1], [3], [2, 2], [0], [None]]
    return st.builds(kind, st.sampled_from(dtypes), st.sampled_from(shapes), st.booleans())


def _content(dtype: str, nullable: bool, encoding: str) -> Kind:
    schema = {"dtype": dtype, "shape": [2], "nullable": nullable, "encoding": encoding}
    size = 2 * {"uint8": 1, "bool": 1, "float32": 4}[dtype]
    enum = {"uint8": 4, "bool": 10, "float32": 1}[dtype]
    head = bytes([8, enum, 0x12, 4, 0x12, 2, 8, 2, 0x22, size]) if encoding == "tensor" else b""
    content = st.binary(min_size=size, max_size=size) | st.just(bytes(size))
    return Kind(schema, content.map(lambda data: strings(head + data)))


_KINDS = st.one_of(
    _lists(
        ["float32", "float64", "float16", "bfloat16"],
        st.sampled_from([0.0, 1.5, -2.0]) | st.floats(width=16, allow_nan=False),
        floats,
    ),
    _lists(
        ["int64", "int32", "uint8", "bool", "uint64"],
        st.integers(0, 1) | st.integers(0, 300) | st.integers(-(2**63), 2**63 - 1),
        ints,
    ),
    _lists(["bytes", "text"], st.binary(max_size=3) | st.just(b"x" * 200), strings),
    st.builds(
        _content,
        st.sampled_from(["uint8", "bool", "float32"]),
        st.booleans(),
        st.sampled_from(["raw", "tensor"]),
    ),
)
_NAMES = ["a", "ab", "x", "label", "k" * 60, "\u00e9"]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[list[dict[str, bytes]]]]:
    names = draw(st.lists(st.sampled_from(_NAMES), unique=True, max_size=4))
    kinds = {name: draw(_KINDS) for name in names}
    schema = Schema.from_json({"features": {name: kind.schema for name, kind in kinds.items()}})
    order = draw(st.permutations(names))
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        rows = []
        for _ in range(draw(st.integers(1, 5))):
            there = [n for n in order if not kinds[n].schema["nullable"] or draw(st.integers(0, 3))]
            rows.append({name: draw(kinds[name].value) for name in there})
        blocks.append(rows)
    return schema, blocks


@_SETTINGS
@given(tables())
def test_rows_are_read_alike_either_way(table: tuple[Schema, list[list[dict[str, bytes]]]]) -> None:
    schema, rows = table
    blocks = [[message(row) for row in block] for block in rows]
    quick, general = both(blocks, RecordsDecodeOptions(schema=schema))
    assert quick == general
    quick, general = both(blocks, RecordsDecodeOptions())
    assert quick == general


@_SETTINGS
@given(tables(), st.data())
def test_mutated_rows_are_read_or_refused_alike_either_way(
    table: tuple[Schema, list[list[dict[str, bytes]]]], data: st.DataObject
) -> None:
    schema, rows = table
    blocks = [[bytearray(message(row)) for row in block] for block in rows]
    for _ in range(data.draw(st.integers(1, 3))):
        target = data.draw(st.sampled_from(data.draw(st.sampled_from(blocks))))
        at = data.draw(st.integers(0, len(target)))
        what = data.draw(st.sampled_from(["change", "nudge", "insert", "remove", "double"]))
        if what == "insert":
            target[at:at] = data.draw(st.binary(min_size=1, max_size=3))
        elif what == "double":  # each entry twice, or lists joined
            target.extend(bytes(target))
        elif at < len(target):
            byte = data.draw(st.integers(0, 255)) if what == "change" else (target[at] + 1) % 256
            target[at : at + 1] = b"" if what == "remove" else bytes([byte])
    frozen = [[bytes(row) for row in block] for block in blocks]
    for undeclared in ("error", "drop"):
        quick, general = both(frozen, RecordsDecodeOptions(schema=schema, undeclared=undeclared))
        assert quick == general


@_SETTINGS
@given(tables(), st.data())
def test_compiled_and_plain_kernels_read_the_same(
    table: tuple[Schema, list[list[dict[str, bytes]]]], data: st.DataObject
) -> None:
    schema, rows = table
    blocks = [[bytearray(message(row)) for row in block] for block in rows]
    target = data.draw(st.sampled_from(data.draw(st.sampled_from(blocks))))
    if data.draw(st.booleans()) and target:
        target[data.draw(st.integers(0, len(target) - 1))] ^= data.draw(st.integers(1, 255))
    frozen = [[bytes(row) for row in block] for block in blocks]
    options = RecordsDecodeOptions(schema=schema)
    compiled = outcome(frozen, options)
    with mock.patch.object(kernels, "_loaded", _PLAIN):
        assert outcome(frozen, options) == compiled


def schema_of(**features: dict[str, Any]) -> Schema:
    return Schema.from_json({"features": features})


TWO = schema_of(a={"dtype": "int64"}, b={"dtype": "float32", "shape": [2]})


def test_the_order_of_the_features_is_learnt() -> None:
    backward = message({"b": floats(1, 2), "a": ints(1)})
    forward = message({"a": ints(300), "b": floats(3, 4)})
    assert reads([[forward] * 3] * 2, TWO) == [True, True]
    assert reads([[backward] * 3] * 3, TWO) == [False, True, True]


def test_absent_features_do_not_leave_the_quick_way() -> None:
    schema = schema_of(a={"dtype": "int64", "nullable": True}, b={"dtype": "bytes", "nullable": True})
    rows = [message({"a": ints(1)}), message({"b": strings(b"x")}), message({}), message({"a": ints(-1)})]
    assert reads([rows], schema) == [True]


@pytest.mark.parametrize(
    "odd",
    [
        message({"a": ints(1)}),
        message({"a": ints(1), "b": floats(1, 2), "c": ints(1)}),
        message({"a": ints(1), "b": floats(1)}),
        message({"a": ints(1, 2), "b": floats(1, 2)}),
        message({"a": ints(1), "b": ints(1, 2)}),
        message({"a": ints(1), "b": floats(1, 2)}) * 2,
        message({"a": ints(1), "b": floats(1, 2)}) + b"\x18\x01",
        message({"a": field(3, b"\x08\x01"), "b": floats(1, 2)}),
        message({"a": field(3, b"\x0a\x01\x81"), "b": floats(1, 2)}),
        b"",
    ],
)
def test_a_row_of_another_layout_is_left_to_the_general_way(odd: bytes) -> None:
    usual = message({"a": ints(1), "b": floats(1, 2)})
    assert reads([[usual, odd, usual]], TWO) == [False]


def test_rows_that_are_never_alike_are_not_tried_each_time() -> None:
    odd = message({"a": field(3, b"\x08\x01"), "b": floats(1, 2)})
    with mock.patch.object(
        kernels.load(), "read_examples", side_effect=kernels.load().read_examples
    ) as read_examples:
        assert not any(reads([[odd]] * 100, TWO))
    assert read_examples.call_count < 12


def test_a_declared_shape_takes_no_memory_before_the_rows_can_hold_it() -> None:
    schema = schema_of(a={"dtype": "int64", "shape": [2**40]}, b={"dtype": "float32", "shape": [10**6]})
    quick, general = both([[message({"a": ints(1), "b": floats(1)})]], RecordsDecodeOptions(schema=schema))
    assert quick == general
    assert quick[0][1] == "schema_conflict"
