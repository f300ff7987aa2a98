"""Rows to Examples and SequenceExamples: bytes, what float lists round, what is refused, and how much memory.

That the bytes are TensorFlow's own is shown by tests/differential; here they stand in the open.
"""

from __future__ import annotations

import json
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.columns import Batch, Column, Records, Strings, join_batches
from app.codecs.forms import RECORDS_CODECS
from app.codecs.options import RecordsEncodeOptions
from app.domain.limits import MIB, Limits
from app.domain.rounded import RoundedFeatures
from app.domain.schema import Schema
from app.errors import LimitExceeded, LossyConversion
from app.runtime.budget import Budget
from tests.support.arrow_rows import from_arrow
from tests.support.feature_values import Table, field, tables_of
from tests.support.format_cases import Refusal, decode, read, records, schema_of, write
from tests.support.tfrecord_frames import payloads


def message(schema: Schema, row: Any, **options: Any) -> bytes | Refusal:
    """The message that one row becomes."""
    found = write("tfrecord", records([row], schema=schema), **options)
    return found if isinstance(found, Refusal) else payloads(found)[0]


def entry(name: str, value: bytes) -> bytes:
    return field(0x0A, field(0x0A, name.encode()) + field(0x12, value))


def hexed(text: str) -> bytes:
    return bytes.fromhex(text)


INT: dict[str, Any] = {"dtype": "int64"}
FLOAT: dict[str, Any] = {"dtype": "float32"}
TEXT: dict[str, Any] = {"dtype": "text"}
LIST: dict[str, Any] = {"shape": [None]}
INT4: dict[str, Any] = {"dtype": "int4", "encoding": "tensor"}
OCTETS: dict[str, Any] = {"dtype": "uint8", "encoding": "tensor"}
#: feature, value, the Feature that it becomes
FEATURES: list[tuple[dict[str, Any], Any, str]] = [
    (INT, 0, "1a03 0a01 00"),
    (INT, -1, "1a0c 0a0a ffffffffffffffffff01"),
    (INT | LIST, [1, 300, 2**62], "1a0e 0a0c 01 ac02 808080808080808040"),
    (INT | LIST, [], "1a00"),
    (INT | {"shape": [0]}, [], "1a00"),
    (INT | {"shape": [2, 2]}, [[1, 2], [3, 4]], "1a06 0a04 01020304"),
    ({"dtype": "bool"} | LIST, [True, False], "1a04 0a02 0100"),
    ({"dtype": "uint8"} | LIST, [255], "1a04 0a02 ff01"),
    ({"dtype": "int8"}, -2, "1a0c 0a0a feffffffffffffffff01"),
    ({"dtype": "uint32"}, 2**32 - 1, "1a07 0a05 ffffffff0f"),
    (FLOAT, 1.5, "1206 0a04 0000c03f"),
    (FLOAT | LIST, [], "1200"),
    ({"dtype": "float16"} | LIST, [1.5, -2], "120a 0a08 0000c03f 000000c0"),
    ({"dtype": "bfloat16"}, 1.5, "1206 0a04 0000c03f"),
    (TEXT, "é", "0a04 0a02 c3a9"),
    (TEXT | LIST, ["", "ab"], "0a06 0a00 0a02 6162"),
    (TEXT | LIST, [], "0a00"),
    (TEXT | {"shape": [2]}, ["a", "b"], "0a06 0a01 61 0a01 62"),
    ({"dtype": "bytes"}, {"b64": "/w=="}, "0a03 0a01 ff"),
    (INT | {"encoding": "raw"}, 1, "0a0a 0a08 0100000000000000"),
    ({"dtype": "uint16", "encoding": "raw"} | LIST, [1, 2], "0a06 0a04 0100 0200"),
    ({"dtype": "int4", "encoding": "raw", "shape": [2]}, [-1, 7], "0a04 0a02 ff07"),
    (
        {"dtype": "uint8", "encoding": "tensor", "shape": [2]},
        [1, 2],
        "0a0e 0a0c 0804 1204 12020802 2202 0102",
    ),
    (OCTETS | LIST, [1], "0a0d 0a0b 0804 1204 12020801 2201 01"),
    (
        INT4 | {"shape": [2]},
        [-1, 7],
        "0a0e 0a0c 081d 1204 12020802 2202 0f07",
    ),
    (INT4 | LIST, [-1, 7], "0a0e 0a0c 081d 1204 12020802 2202 0f07"),
    (
        OCTETS | {"shape": [None, None]},
        [[1], [2]],
        "0a12 0a10 0804 1208 12020802 12020801 2202 0102",
    ),
    (TEXT | LIST | {"encoding": "tensor"}, ["ab"], "0a0e 0a0c 0807 1204 12020801 4202 6162"),
]


@pytest.mark.parametrize(("feature", "value", "expected"), FEATURES)
def test_a_value_becomes_a_feature_of_a_message_and_a_step_of_a_list(
    feature: dict[str, Any], value: Any, expected: str
) -> None:
    alone = schema_of(x=feature)
    assert message(alone, {"x": value}) == field(0x0A, entry("x", hexed(expected)))
    steps = feature | {"kind": "sequence", "shape": [None, *feature.get("shape", [])]}
    for count in (0, 1, 3):
        row = {"context": {}, "feature_lists": {"x": [value] * count}}
        listed = b"".join(field(0x0A, hexed(expected)) for _ in range(count))
        assert message(schema_of(x=steps), row) == field(0x12, entry("x", listed))


COMPONENTS: list[tuple[dict[str, Any], Any, dict[str, str]]] = [
    (
        INT | {"shape": [None, None], "kind": "ragged"},
        [[1], [], [2, 3]],
        {"x/ragged_flat_values": "1a05 0a03 010203", "x/ragged_row_lengths_0": "1a05 0a03 010002"},
    ),
    (
        TEXT | {"shape": [2, None, 1], "kind": "ragged"},
        [[["a"]], []],
        {"x/ragged_flat_values": "0a03 0a01 61", "x/ragged_row_lengths_0": "1a04 0a02 0100"},
    ),
    (
        FLOAT | {"shape": [4, 2], "kind": "sparse"},
        {"values": [1.5], "indices": [[3, 1]]},
        {"x/indices_0": "1a03 0a01 03", "x/indices_1": "1a03 0a01 01", "x/values": "1206 0a04 0000c03f"},
    ),
]


@pytest.mark.parametrize(("feature", "value", "lists"), COMPONENTS)
def test_ragged_and_sparse_values_are_several_lists(
    feature: dict[str, Any], value: Any, lists: dict[str, str]
) -> None:
    expected = field(0x0A, b"".join(entry(name, hexed(text)) for name, text in sorted(lists.items())))
    schema = schema_of(x=feature | {"nullable": True}, n=INT | {"nullable": True})
    assert message(schema, {"x": value}) == expected
    assert message(schema, {"x": None, "n": 0}) == field(0x0A, entry("n", hexed(FEATURES[0][2])))


def test_keys_are_ordered_by_bytes_and_longer_first() -> None:
    names = ["b", "a", "ab", "é", "a/b"]
    one = hexed("1a03 0a01 01")
    expected = b"".join(entry(name, one) for name in ["a/b", "ab", "a", "b", "é"])
    assert message(schema_of(**dict.fromkeys(names, "int64")), dict.fromkeys(names, 1)) == field(
        0x0A, expected
    )


def test_missing_value_writes_no_feature() -> None:
    optional = {"nullable": True}
    lists = INT | optional | {"shape": [None], "kind": "sequence"}
    assert message(schema_of(c=INT | optional), {"c": None}) == hexed("0a00")
    assert message(schema_of(), {}) == hexed("0a00")
    both = schema_of(c=INT | optional, x=lists)
    rows: list[tuple[Any, Any]] = [({}, {}), ({}, {"x": []}), ({"c": 1}, {})]
    found = [message(both, {"context": context, "feature_lists": steps}) for context, steps in rows]
    one = entry("c", hexed("1a03 0a01 01"))
    assert found == [
        hexed("0a00 1200"),
        hexed("0a00 1207 0a05 0a0178 1200"),
        field(0x0A, one) + hexed("1200"),
    ]
    empty = Schema((), "sequence_example")
    assert message(empty, {"context": {}, "feature_lists": {}}) == b""


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(tables_of("dense", "ragged", "sparse", "sequence"), st.integers(0, 4), st.booleans())
def test_rows_written_together_are_those_written_one_by_one(table: Table, cut: int, plain: bool) -> None:
    """In one batch or more, by the compiled kernel or the plain one; and reading gives them back."""
    batch = table.batch()

    def written(*batches: Any) -> bytes | Refusal:
        return write("tfrecord", from_arrow(table.schema, batches), lossy=True)

    alone = [written(batch.slice(row, 1)) for row in range(batch.num_rows)]
    if any(isinstance(one, Refusal) for one in alone):
        assert isinstance(written(batch), Refusal)
        return
    whole = b"".join(one for one in alone if isinstance(one, bytes))
    assert written(batch.slice(0, cut), batch.slice(cut)) == whole
    with mock.patch.object(kernels, "_loaded", kernels.Kernels(lambda f: f) if plain else kernels.load()):
        assert written(batch) == whole
    found = read("tfrecord", whole, schema=table.schema)
    assert isinstance(found, Refusal) or len(found.rows) == batch.num_rows


# -- float64 in a FloatList -----------------------------------------------------------------------

RULE: dict[str, Any] = {}
EXACT: dict[str, Any] = {"exact": True}
ALLOW: dict[str, Any] = {"lossy": True}
KINDS: dict[str, Any] = {
    "scalar": ({}, lambda value: value),
    "fixed": ({"shape": [2]}, lambda value: [0.5, value]),
    "varying": ({"shape": [None]}, lambda value: [0.5] * (value != 0.5) + [value]),
    "ragged": ({"shape": [None, None], "kind": "ragged"}, lambda value: [[], [0.5, value], [2.0]]),
    "sparse": ({"shape": [9], "kind": "sparse"}, lambda value: {"values": [0.5, value], "indices": [1, 2]}),
    "sequence": ({"shape": [None, 2], "kind": "sequence"}, lambda value: [[0.5, 0.5], [value, 0.5]]),
}


def floats(values: list[float | None], kind: str = "scalar") -> Records:
    """Rows of an inferred float64 feature x, three a batch."""
    feature, cell = KINDS[kind]
    stored = {"dtype": "float64", "nullable": True, "inferred": True, **feature}
    schema = Schema.from_json({"features": {"x": stored}}, stored=True)
    rows = [{"x": None if value is None else cell(value)} for value in values]
    if kind == "sequence":
        rows = [{"context": {}, "feature_lists": row} for row in rows]
    text = json.dumps(rows).encode()
    found = decode("json", text, Budget(), schema=schema, nonfinite="bare")
    parts = (part for batch in found.batches for part in _threes(batch))
    return Records(schema, parts)


def _threes(batch: Any) -> Any:
    for first in range(0, batch.num_rows, 3):
        yield batch.rows(first, min(first + 3, batch.num_rows))


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (0.1, "rule allow"),
        (0.5, "rule exact allow"),
        (1e-300, "rule allow"),
        (2.0**24 - 0.3, "rule allow"),
        (2.0**24, "rule exact allow"),
        (2.0**24 + 0.25, "allow"),
        (2.0**24 + 1, "allow"),
        (2.0**24 + 2, "rule exact allow"),
        (-123456789.12, "allow"),
        (2.0**100, "rule exact allow"),
        (3.5e38, ""),
        (-1e300, ""),
        (math.inf, "rule exact allow"),
        (math.nan, "rule exact allow"),
    ],
)
def test_which_values_a_float_list_takes(value: float, taken: str) -> None:
    for name, options in (("rule", RULE), ("exact", EXACT), ("allow", ALLOW)):
        found = write("tfrecord", floats([1.5, value]), **options)
        if name not in taken.split():
            assert found == Refusal("lossy_encoding", 1, "x")
            assert isinstance(found, Refusal)
            assert str(value) in found.detail
            continue
        assert isinstance(found, bytes)
        assert payloads(found)[1].endswith(np.float32(value).tobytes())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_names_the_rows_that_are_rounded_or_refused(kind: str) -> None:
    values = [0.5, None, 0.1, 0.5, None, 0.3, 0.5]
    rounded = RoundedFeatures(with_rows=True)
    assert isinstance(write("tfrecord", floats(values, kind), rounded=rounded), bytes)
    assert (rounded.names, rounded.candidates) == (["x"], ["x"])
    assert sorted(np.concatenate(rounded.rows["x"]).tolist()) == [2, 5]
    refused = write("tfrecord", floats([*values[:5], 123456789.12, 0.5], kind))
    assert refused == Refusal("lossy_encoding", 5, "x")
    assert isinstance(refused, Refusal)
    assert "123456789.12 would become 123456792.0" in refused.detail
    rounded = RoundedFeatures()
    exact = [0.5, None, 2.0**30, math.nan, -math.inf]
    assert isinstance(write("tfrecord", floats(exact, kind), rounded=rounded, exact=True), bytes)
    assert rounded.names == []


@pytest.mark.parametrize("dtype", ["float64", "uint64"])
@pytest.mark.parametrize("kind", KINDS)
def test_declared_lossy_dtype_needs_lossy_allow(kind: str, dtype: str) -> None:
    schema = schema_of(x=KINDS[kind][0] | {"dtype": dtype})
    for options in (RULE, EXACT):
        with pytest.raises(LossyConversion, match="lossy=allow"):  # before the first batch
            encoder()(Records(schema, iter(())), RecordsEncodeOptions(**options), Budget())
    assert write("tfrecord", Records(schema, iter(())), **ALLOW) == b""


# -- rows, blocks and memory ----------------------------------------------------------------------


def encoder() -> Any:
    return RECORDS_CODECS["tfrecord"].encode


@pytest.mark.parametrize(
    ("feature", "value", "wrong"),
    [({}, 0.5, 1e300), ({"shape": [None], "kind": "sequence"}, [0.5], [0.5, 1e300])],
)
def test_rows_are_numbered_through_batches(feature: dict[str, Any], value: Any, wrong: Any) -> None:
    schema = schema_of(x={"dtype": "float64"} | feature)
    rows: list[dict[str, Any]] = [{"x": value}] * 9_000 + [{"x": wrong}]
    if feature:
        rows = [{"context": {}, "feature_lists": row} for row in rows]
    assert write("tfrecord", records(rows, schema=schema), lossy=True) == Refusal(
        "lossy_encoding", 9_000, "x"
    )


STEP = {"shape": [None], "kind": "sequence"}


@pytest.mark.parametrize("steps", [False, True])
def test_blocks_are_of_bounded_size_and_hold_whole_rows(steps: bool) -> None:
    sizes = [10, 300_000, 10, 1_000_000, 5, 100_000, 300_000, 300_000]
    values = ["abcdefgh"[index] * size for index, size in enumerate(sizes)]
    feature, rows = TEXT, [dict[str, Any](x=value) for value in values]
    if steps:
        feature, rows = TEXT | STEP, [{"context": {}, "feature_lists": {"x": [value]}} for value in values]
    schema, budget = schema_of(x=feature), Budget()
    batch = join_batches(list(records(rows, schema=schema).batches))
    pieces = encoder()(Records(schema, iter([batch])), RecordsEncodeOptions(), budget)
    blocks = [bytes(piece) for piece in pieces]
    assert [len(payloads(block)) for block in blocks] == [3, 1, 3, 1]
    assert max(len(block) for block in blocks if len(block) < 1_000_000) < 512 * 1024
    found = read("tfrecord", b"".join(blocks), schema=schema)
    assert not isinstance(found, Refusal)
    listed = [[value.encode()] if steps else value.encode() for value in values]
    assert [row["x"] for row in found.rows] == listed
    assert budget.remaining == budget.limits.max_decoded_bytes


@pytest.mark.parametrize("steps", [False, True])
def test_large_rows_are_taken_a_few_at_a_time(steps: bool) -> None:
    """100 rows of 100 kB, each of which is 800 kB once its integers are widened."""
    feature: dict[str, Any] = {"dtype": "uint8", "shape": [100_000]}
    if steps:
        feature = {"dtype": "uint8", "shape": [None, 1000], "kind": "sequence"}
    schema = schema_of(x=feature)
    steps_of = np.arange(0, 101 * 100, 100)
    values = np.full(100 * 100_000, 200, np.uint8)
    column = Column(values, (steps_of,), width=1000) if steps else Column(values, width=100_000)
    budget = Budget()
    rows = Records(schema, iter([Batch(100, (column,))]))
    data = b"".join(map(bytes, encoder()(rows, RecordsEncodeOptions(), budget)))
    assert budget.peak < 24 * MIB
    found = payloads(data)
    assert len(found) == 100
    assert len(set(map(len, found))) == 1


def test_a_row_beyond_the_budget_is_refused() -> None:
    limits = Limits(max_decoded_bytes=MIB // 2)
    alone: dict[str, Any] = {"x": "x" * MIB}
    step: dict[str, Any] = {"context": {}, "feature_lists": {"x": ["x" * MIB]}}
    for feature, row in ((TEXT, alone), (TEXT | STEP, step)):
        found = write("tfrecord", records([row], schema=schema_of(x=feature)), limits=limits)
        assert found == Refusal("payload_too_large")
        assert isinstance(found, Refusal)
        assert found.error is LimitExceeded


@pytest.mark.parametrize("steps", [False, True])
def test_a_message_of_two_gibibytes_is_refused(steps: bool) -> None:
    """Values of a MiB that share their memory: the message is measured before a byte of it is written."""
    feature = {"dtype": "bytes", "shape": [None]} | ({"kind": "sequence"} if steps else {})
    count = 2048
    data = np.zeros(count * MIB, np.uint8)  # nothing touches it
    strings = Strings(data, np.arange(count + 1) * MIB)
    batch = Batch(2, (Column(strings, (np.array([0, 0, count]),)),))
    rows = Records(schema_of(x=feature), iter([batch]))
    found = write("tfrecord", rows, limits=Limits(max_decoded_bytes=2**34))
    assert found == Refusal("example_too_large", 1)
