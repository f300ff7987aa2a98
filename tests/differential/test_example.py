"""Serialized Examples against `tf.train.Example` itself, in both directions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # no stubs in the lock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.dtypes import DTYPES, parse_feature_dtype
from app.domain.feature import Feature
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import MemoryStream
from app.runtime.workspace import Workspace
from app.services.convert.examples import convert_row
from tests.support.arrow_rows import arrow_schema, as_arrow, from_arrow
from tests.support.feature_values import (
    UNKNOWN_FIELDS,
    WIRE_FEATURES,
    cell_of,
    features,
    field,
    mutations,
    values,
)
from tests.support.format_cases import decode, encode
from tests.support.tensorflow_features import tensorflow_feature
from tests.support.tfrecord_frames import frame, payloads

_SETTINGS = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Table:
    """Features and rows; a value is a flat list and a shape, or None."""

    schema: Schema
    rows: list[list[tuple[Any, tuple[int, ...]] | None]]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    names = draw(st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=5))
    schema = Schema(tuple(draw(features(name)) for name in names))
    rows = draw(st.integers(0, 5))
    return Table(schema, [[draw(values(feature)) for feature in schema] for _ in range(rows)])


def batch_of(table: Table) -> pa.RecordBatch:
    schema = arrow_schema(table.schema)
    if not table.schema.features:
        structs: Any = pa.array([{}] * len(table.rows), pa.struct([]))
        return pa.RecordBatch.from_struct_array(structs)
    columns = [
        pa.array([cell_of(feature, row[index]) for row in table.rows], schema.field(index).type)
        for index, feature in enumerate(table.schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def tensorflow_example(schema: Schema, row: list[tuple[Any, tuple[int, ...]] | None]) -> bytes:
    present = {
        feature.name: tensorflow_feature(feature, *value)
        for feature, value in zip(schema, row, strict=True)
        if value is not None
    }
    example = tf.train.Example(features=tf.train.Features(feature=present))
    serialized: bytes = example.SerializeToString(deterministic=True)
    return serialized


def encoded(schema: Schema, *batches: pa.RecordBatch, lossy: bool = False) -> bytes:
    return encode("tfrecord", from_arrow(schema, iter(batches)), lossy=lossy)


@_SETTINGS
@given(tables())
def test_every_row_is_tensorflows_bytes_and_returns(table: Table) -> None:
    batch = batch_of(table)
    data = encoded(table.schema, batch)
    assert payloads(data) == [tensorflow_example(table.schema, row) for row in table.rows]
    records = decode("tfrecord", data, schema=table.schema)
    decoded = list(as_arrow(records))
    for part in decoded:
        part.validate(full=True)
        assert part.schema.equals(arrow_schema(table.schema))
    rows = [row for part in decoded for row in part.to_pylist()]
    assert sum(part.num_rows for part in decoded) == len(table.rows)
    assert repr(rows) == repr(batch.to_pylist())
    assert encoded(table.schema, *decoded) == data


@_SETTINGS
@given(tables(), st.integers(0, 5))
def test_a_slice_of_a_batch_is_its_rows(table: Table, begin: int) -> None:
    batch = batch_of(table)
    sliced = batch.slice(begin) if table.schema.features else batch
    rows = table.rows[begin:] if table.schema.features else table.rows
    assert payloads(encoded(table.schema, sliced)) == [tensorflow_example(table.schema, row) for row in rows]


@_SETTINGS
@given(
    st.lists(
        st.text(min_size=1, max_size=5) | st.text("ab", min_size=1, max_size=4), unique=True, max_size=12
    )
)
def test_keys_are_ordered_as_tensorflow_orders_them(names: list[str]) -> None:
    schema = Schema(tuple(Feature(name, DTYPES["int64"]) for name in names))
    columns = [pa.array([number]) for number in range(len(names))]
    table = Table(schema, [[([number], ()) for number in range(len(names))]])
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema)) if names else batch_of(table)
    assert payloads(encoded(schema, batch)) == [tensorflow_example(schema, table.rows[0])]


@given(st.lists(st.floats(width=64, allow_nan=False, max_value=3e38, min_value=-3e38), max_size=5))
@_SETTINGS
def test_lossy_float64_is_what_a_floatlist_makes_of_it(values: list[float]) -> None:
    schema = Schema((Feature("x", DTYPES["float64"], (None,)),))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([values], pa.list_(pa.float64()))], schema=arrow_schema(schema)
    )
    example = tf.train.Example()
    example.features.feature["x"].float_list.value[:] = values
    assert payloads(encoded(schema, batch, lossy=True)) == [example.SerializeToString()]


@given(
    st.lists(
        st.lists(st.floats(width=64, min_value=-(2.0**24), max_value=2.0**24), max_size=5),
        min_size=1,
        max_size=4,
    ).filter(any)  # empty lists alone decide no dtype
)
@_SETTINGS
def test_decimals_of_json_are_what_tensorflow_makes_of_python_floats(rows: list[list[float]]) -> None:
    body = b"".join(json.dumps({"x": floats}).encode() + b"\n" for floats in rows)
    records = decode("ndjson", body)
    examples = []
    for floats in rows:
        example = tf.train.Example()
        example.features.feature["x"].float_list.value[:] = floats
        examples.append(example.SerializeToString())
    assert payloads(encode("tfrecord", records)) == examples


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5))
@_SETTINGS
def test_lossy_uint64_keeps_its_bits(values: list[int]) -> None:
    schema = Schema((Feature("x", DTYPES["uint64"], (None,)),))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([values], pa.list_(pa.uint64()))], schema=arrow_schema(schema)
    )
    data = encoded(schema, batch, lossy=True)
    example = tf.train.Example.FromString(payloads(data)[0])
    assert [value % 2**64 for value in example.features.feature["x"].int64_list.value] == values
    records = decode("tfrecord", data, schema=schema)
    assert next(as_arrow(records)).to_pylist() == [{"x": values}]


@_SETTINGS
@given(tables())
def test_one_row_is_one_bare_message(table: Table) -> None:
    for row in table.rows[:1]:
        message = tensorflow_example(table.schema, row)
        options = RecordsDecodeOptions(schema=table.schema), RecordsEncodeOptions()
        written, _ = convert_row(
            MemoryStream(message), "example", "example", *options, Workspace(Budget(), Spool(None, 0))
        )
        assert written == message


def test_parse_example_reads_what_was_declared() -> None:
    schema = Schema.from_json(
        {
            "features": {
                "image": {"dtype": "float32", "shape": [2, 3]},
                "label": {"dtype": "uint8"},
                "tags": {"dtype": "text", "shape": [None]},
                "when": {"dtype": "float64", "encoding": "tensor"},
            }
        }
    )
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], pa.list_(pa.float32(), 6)),
            pa.array([7], pa.uint8()),
            pa.array([[b"a", b"b"]], pa.list_(pa.binary())),
            pa.array([0.1], pa.float64()),
        ],
        schema=arrow_schema(schema),
    )
    parsed = tf.io.parse_single_example(
        payloads(encoded(schema, batch))[0],
        {
            "image": tf.io.FixedLenFeature([2, 3], tf.float32),
            "label": tf.io.FixedLenFeature([], tf.int64),
            "tags": tf.io.VarLenFeature(tf.string),
            "when": tf.io.FixedLenFeature([], tf.string),
        },
    )
    assert parsed["image"].numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert parsed["label"].numpy() == 7
    assert parsed["tags"].values.numpy().tolist() == [b"a", b"b"]
    assert tf.io.parse_tensor(parsed["when"], tf.float64).numpy() == 0.1


# Reading: whatever bytes come, what is accepted means what TensorFlow reads in it.


_names = st.sampled_from(["a", "b", "ab", "é"])


@st.composite
def _entries(draw: st.DrawFn) -> bytes:
    parts = [field(0x0A, draw(_names).encode()), field(0x12, draw(WIRE_FEATURES))]
    return field(0x0A, b"".join(draw(st.permutations(parts))))


#: Everything that protobuf allows and we read.
_messages = st.lists(
    st.lists(_entries() | UNKNOWN_FIELDS, max_size=4).map(lambda parts: field(0x0A, b"".join(parts)))
    | UNKNOWN_FIELDS,
    max_size=3,
).map(b"".join)


def tensorflow_reads(message: bytes) -> dict[str, Any] | None:
    try:
        example = tf.train.Example.FromString(message)
    except DecodeError:
        return None
    found: dict[str, Any] = {}
    for name, feature in example.features.feature.items():
        if kind := feature.WhichOneof("kind"):
            found[name] = list(getattr(feature, kind).value)
    return found


def we_read(message: bytes) -> dict[str, Any]:
    records = decode("tfrecord", frame(message))
    (row,) = [row for batch in as_arrow(records) for row in rows_of(batch)]
    return {name: value for name, value in row.items() if value is not None}


def we_read_or_refuse(message: bytes, codes: set[str]) -> dict[str, Any] | None:
    """What we read in the message, or None where it is refused for one of these reasons."""
    try:
        return we_read(message)
    except InputError as error:
        if error.code in codes:
            return None
        raise


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    batch.validate(full=True)
    yield from batch.to_pylist() if batch.num_columns else [{}] * batch.num_rows


@_SETTINGS
@given(_messages)
def test_every_valid_message_is_read_as_tensorflow_reads_it(message: bytes) -> None:
    expected = tensorflow_reads(message)
    assert expected is not None
    # Without a schema, a key that is repeated must not change its kind; protobuf drops the first.
    found = we_read_or_refuse(message, {"schema_conflict", *([] if expected else ["not_an_example"])})
    assert found is None or canonical(found) == canonical(expected)


def canonical(row: dict[str, Any]) -> dict[str, str]:
    return {name: repr(value) for name, value in sorted(row.items())}


_INT_1 = field(0x12, field(0x1A, field(0x0A, b"\x01")))
_INT_2 = field(0x12, field(0x1A, field(0x0A, b"\x02")))
_FLOAT_1 = field(0x12, field(0x12, field(0x0A, np.float32(1).tobytes())))
_KEY_A = field(0x0A, b"a")
_KEY_B = field(0x0A, b"b")


def example_of(*entries: bytes) -> bytes:
    return field(0x0A, b"".join(field(0x0A, entry) for entry in entries))


#: What TensorFlow reads in an Example (`tf.train.Example.FromString`) and we refuse: the complete list,
#: beside the limit on the bytes of a record. Each with the reason, a message, and our code.
DELIBERATE: list[tuple[str, bytes, str]] = [
    (
        "two kinds in one Feature: tf.io.parse_example reads the first, protobuf the last",
        example_of(_KEY_A + field(0x12, _INT_1[2:] + _FLOAT_1[2:] + _INT_2[2:])),
        "ambiguous_example",
    ),
    (
        "a map entry with a second value: tf.io.parse_example refuses it, too",
        example_of(_KEY_A + _INT_1 + _INT_2),
        "malformed_example",
    ),
    (
        "a map entry with a second key: tf.io.parse_example refuses it, too",
        example_of(_KEY_B + _KEY_A + _INT_1),
        "malformed_example",
    ),
    (
        "a map entry with an unknown field: tf.io.parse_example refuses it, too",
        example_of(_KEY_A + _INT_1 + b"\x18\x05"),
        "malformed_example",
    ),
    (
        "a group beside the features: nothing writes them",
        b"\x1b\x08\x01\x1c" + example_of(_KEY_A + _INT_1),
        "malformed_example",
    ),
    (
        "a group inside a Feature: nothing writes them",
        example_of(_KEY_A + field(0x12, b"\x2b\x08\x01\x2c" + _INT_1[2:])),
        "malformed_example",
    ),
    (
        "feature_lists, which make it a SequenceExample: as an Example it would lose them",
        example_of(_KEY_A + _INT_1) + field(0x12, b""),
        "sequence_example",
    ),
    (
        "fields, but no feature: a message of another kind, of which nothing would be read",
        b"\x18\x05" + example_of() + b"\x22\x00",
        "not_an_example",
    ),
    (
        "an empty name, without a schema: no schema can declare it",
        example_of(_INT_1),
        "invalid_feature_name",
    ),
    (
        "a name over limits.max_name_bytes, without a schema: no schema can declare it",
        example_of(field(0x0A, b"n" * (Limits().max_name_bytes + 1)) + _INT_1),
        "invalid_feature_name",
    ),
    (
        "more features than limits.max_features, without a schema: no schema can declare them",
        example_of(*(field(0x0A, b"%d" % i) + _INT_1 for i in range(Limits().max_features + 1))),
        "too_many_features",
    ),
    (
        "a key that is repeated with another kind, without a schema: which one to infer would be a guess",
        example_of(_KEY_A + _INT_1, _KEY_A + _FLOAT_1),
        "schema_conflict",
    ),
]

_REFUSALS = {"malformed_example"} | {code for _, _, code in DELIBERATE}


@settings(_SETTINGS, max_examples=600)
@given(mutations(_messages) | st.binary(max_size=30))
def test_whatever_is_accepted_of_mutated_bytes_tensorflow_reads_alike(message: bytes) -> None:
    found = we_read_or_refuse(message, _REFUSALS)
    if found is not None:
        expected = tensorflow_reads(message)
        assert expected is not None
        assert canonical(found) == canonical(expected)


# Read as protobuf reads them; the comment says what tf.io.parse_example makes of it, where that is another.
@pytest.mark.parametrize(
    "message",
    [
        example_of(_KEY_A + _INT_1, _KEY_A + _INT_2),  # the last one wins
        example_of(_KEY_A + _INT_1, _KEY_A + field(0x12, b"")),  # the last one wins, and is absent
        example_of(_KEY_A + field(0x12, b""), _KEY_A + _INT_1),
        example_of(_INT_1 + _KEY_A),
        example_of(_KEY_A),  # refused there
        example_of(_KEY_A + _INT_1) + example_of(_KEY_B + _INT_2),
        example_of(_KEY_A + field(0x12, field(0x1A, b"\x08\x01\x08\x02"))),
        example_of(_KEY_A + field(0x12, field(0x1A, field(0x0A, b"\x01") + field(0x0A, b"\x02")))),  # [1]
        example_of(_KEY_A + field(0x12, field(0x1A, field(0x0A, b"\x01") + b"\x08\x02"))),  # [1]
        example_of(_KEY_A + field(0x12, field(0x1A, b"\x08\x01" + field(0x0A, b"\x02")))),  # refused there
        example_of(
            _KEY_A + field(0x12, field(0x1A, field(0x0A, b"\x01")) + field(0x1A, field(0x0A, b"\x02")))
        ),  # [1]
        example_of(_KEY_A + field(0x12, b"\x20\x05" + field(0x1A, field(0x0A, b"\x01")))),  # refused there
        example_of(_KEY_A + field(0x12, b"\x18\x05")),  # a list that is no message; refused there
        field(0x0A, b"\x18\x05" + field(0x0A, _KEY_A + _INT_1)),  # refused there
        example_of(_KEY_A + field(0x12, field(0x1A, field(0x0A, b"\xff" * 9 + b"\x7f")))),
        b"\x8a\x00" + example_of(_KEY_A + _INT_1)[1:],  # an overlong tag; unknown there
        b"\x10\x05" + example_of(_KEY_A + _INT_1),
    ],
)
def test_odd_messages_are_read_as_protobuf_reads_them(message: bytes) -> None:
    assert we_read(message) == tensorflow_reads(message)


@pytest.mark.parametrize(("reason", "message", "code"), DELIBERATE, ids=[reason for reason, *_ in DELIBERATE])
def test_the_deliberate_refusals(reason: str, message: bytes, code: str) -> None:
    assert tensorflow_reads(message) is not None, reason
    with pytest.raises(InputError) as caught:
        we_read(message)
    assert caught.value.code == code
    assert caught.value.location.row in (0, None)


def test_a_name_is_refused_from_the_first_byte_over_the_limit() -> None:
    longest = b"n" * Limits().max_name_bytes
    assert we_read(example_of(field(0x0A, longest) + _INT_1)) == {longest.decode(): [1]}


def test_a_sequence_example_is_not_read_as_an_example() -> None:
    sequence = tf.train.SequenceExample()
    sequence.context.feature["a"].int64_list.value.append(1)
    sequence.feature_lists.feature_list["b"].feature.add().int64_list.value.append(2)
    with pytest.raises(InputError) as caught:
        we_read(sequence.SerializeToString())
    assert (caught.value.code, caught.value.location.row) == ("sequence_example", 0)


def test_a_record_that_is_cut_anywhere_is_refused_or_read_alike() -> None:
    message = tensorflow_example(
        Schema((Feature("abc", DTYPES["float32"], (3,)), Feature("d", parse_feature_dtype("bytes")))),
        [([1.0, 2.0, 3.0], (3,)), ([b"xyz"], ())],
    )
    for cut in range(1, len(message)):
        assert tensorflow_reads(message[:cut]) is None
        with pytest.raises(InputError) as caught:
            we_read(message[:cut])
        assert caught.value.code == "malformed_example"


def test_bfloat16_is_widened_exactly() -> None:
    schema = Schema((Feature("x", DTYPES["bfloat16"], (256,)),))
    bits = np.arange(0, 65536, 257, dtype=np.uint16)[:256]
    bits[(bits & 0x7F80) == 0x7F80] = 0
    fixed: Any = pa.FixedSizeListArray.from_arrays(pa.array(bits), 256)
    batch = pa.RecordBatch.from_arrays([fixed], schema=arrow_schema(schema))
    example = tf.train.Example.FromString(payloads(encoded(schema, batch))[0])
    expected = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(np.array(example.features.feature["x"].float_list.value, np.float32), expected)
