"""Serialized SequenceExamples against `tf.train.SequenceExample` itself, in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # no stubs in the lock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import Limits
from app.domain.schema import Schema, message_keys
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import MemoryStream
from app.runtime.workspace import Workspace
from app.services.convert.examples import convert_row
from tests.support.arrow_rows import arrow_schema, as_arrow, from_arrow
from tests.support.feature_values import UNKNOWN_FIELDS, WIRE_FEATURES, Table, field, mutations, tables_of
from tests.support.format_cases import decode, encode
from tests.support.tensorflow_features import message_of
from tests.support.tfrecord_frames import frame, payloads

_SETTINGS = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
_TABLES = tables_of("dense", "ragged", "sparse", "sequence", "sequence", message="sequence_example")


def encoded(schema: Schema, *batches: pa.RecordBatch) -> bytes:
    return encode("tfrecord", from_arrow(schema, iter(batches)))


@_SETTINGS
@given(_TABLES)
def test_every_row_is_tensorflows_bytes_and_returns(table: Table) -> None:
    batch = table.batch()
    data = encoded(table.schema, batch)
    assert payloads(data) == [message_of(table.schema, row) for row in table.rows]
    records = decode("tfrecord", data, schema=table.schema)
    decoded = list(as_arrow(records))
    for part in decoded:
        part.validate(full=True)
        assert part.schema.equals(arrow_schema(table.schema))
    assert sum(part.num_rows for part in decoded) == len(table.rows)
    assert repr([row for part in decoded for row in part.to_pylist()]) == repr(batch.to_pylist())
    assert encoded(table.schema, *decoded) == data


@_SETTINGS
@given(_TABLES, st.integers(0, 4))
def test_a_slice_of_a_batch_is_its_rows(table: Table, begin: int) -> None:
    batch = table.batch()
    sliced = batch.slice(begin) if table.schema.features else batch
    rows = table.rows[begin:] if table.schema.features else table.rows
    assert payloads(encoded(table.schema, sliced)) == [message_of(table.schema, row) for row in rows]


@_SETTINGS
@given(_TABLES)
def test_one_row_is_one_bare_message(table: Table) -> None:
    for row in table.rows[:1]:
        message = message_of(table.schema, row)
        options = RecordsDecodeOptions(schema=table.schema), RecordsEncodeOptions()
        written, _ = convert_row(
            MemoryStream(message), "example", "example", *options, Workspace(Budget(), Spool(None, 0))
        )
        assert written == message


def test_a_row_without_anything_has_the_parts_of_its_schema() -> None:
    context = {"a": {"dtype": "int64", "nullable": True}}
    lists = {"b": {"dtype": "int64", "shape": [None], "kind": "sequence", "nullable": True}}
    parts = [({}, b""), (context, b"\x0a\0"), (lists, b"\x12\0"), (context | lists, b"\x0a\0\x12\0")]
    for features, message in parts:
        schema = Schema.from_json({"features": features, "message": "sequence_example"})
        table = Table(schema, [[None] * len(schema)])
        assert payloads(encoded(schema, table.batch())) == [message] == [message_of(schema, table.rows[0])]
    built = tf.train.SequenceExample(
        context=tf.train.Features(feature={}), feature_lists=tf.train.FeatureLists(feature_list={})
    )
    assert built.SerializeToString() == b"\x0a\0\x12\0"


@_SETTINGS
@given(
    st.lists(
        st.text(min_size=1, max_size=5) | st.text("ab", min_size=1, max_size=4), unique=True, max_size=12
    )
)
def test_feature_lists_are_ordered_as_tensorflow_orders_them(names: list[str]) -> None:
    feature = {"dtype": "int64", "shape": [None], "kind": "sequence"}
    schema = Schema.from_json({"features": dict.fromkeys(names, feature), "message": "sequence_example"})
    table = Table(schema, [[[([number], ())] for number in range(len(names))]])
    assert payloads(encoded(schema, table.batch())) == [message_of(schema, table.rows[0])]


# TensorFlow's parsers read what was declared.

_VIDEO = Schema.from_json(
    {
        "features": {
            "id": {"dtype": "bytes"},
            "size": {"dtype": "int64", "shape": [2]},
            "tags": {"dtype": "text", "shape": [None], "nullable": True},
            "words": {"dtype": "int64", "shape": [None, None], "kind": "ragged"},
            "hits": {"dtype": "float32", "shape": [5], "kind": "sparse"},
            "frame": {"dtype": "float32", "shape": [None, 2], "kind": "sequence"},
            "label": {"dtype": "int64", "shape": [None], "kind": "sequence", "nullable": True},
            "boxes": {"dtype": "float32", "shape": [None, None], "kind": "sequence", "nullable": True},
            "names": {"dtype": "text", "shape": [None, None], "kind": "sequence"},
            "jpeg": {"dtype": "uint8", "shape": [None, 2, 2], "kind": "sequence", "encoding": "raw"},
            "mask": {"dtype": "float64", "shape": [None, 2], "kind": "sequence", "encoding": "tensor"},
        }
    }
)
_VIDEOS: list[dict[str, Any]] = [
    {
        "id": b"one",
        "size": [3, 4],
        "tags": [b"a", "\u00e9".encode()],
        "words": [[1, 2], [], [3]],
        "hits": {"indices": [1, 4], "values": [0.5, 1.5]},
        "frame": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        "label": [7, -1, 2**40],
        "boxes": [[1.0], [], [2.0, 3.0, 4.0]],
        "names": [[b"x"], [b"y", b"z"]],
        "jpeg": [[1, 2, 3, 4], [5, 6, 7, 8]],
        "mask": [[0.1, 0.2]],
    },
    {
        "id": b"two",
        "size": [5, 6],
        "tags": None,
        "words": [],
        "hits": {"indices": [], "values": []},
        "frame": [],
        "label": None,
        "boxes": [[]],
        "names": [],
        "jpeg": [],
        "mask": [],
    },
]
_CONTEXT_SPEC = {
    "id": tf.io.FixedLenFeature([], tf.string),
    "size": tf.io.FixedLenFeature([2], tf.int64),
    "tags": tf.io.VarLenFeature(tf.string),
    "words": tf.io.RaggedFeature(
        tf.int64, "words/ragged_flat_values", [tf.io.RaggedFeature.RowLengths("words/ragged_row_lengths_0")],
        row_splits_dtype=tf.int64,
    ),
    # The parsers of SequenceExamples take no SparseFeature.
    "hits/indices_0": tf.io.VarLenFeature(tf.int64),
    "hits/values": tf.io.VarLenFeature(tf.float32),
}  # fmt: skip
_LISTS_SPEC = {
    "frame": tf.io.FixedLenSequenceFeature([2], tf.float32),
    "label": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
    "boxes": tf.io.RaggedFeature(tf.float32, row_splits_dtype=tf.int64),
    "names": tf.io.VarLenFeature(tf.string),
    "jpeg": tf.io.FixedLenSequenceFeature([], tf.string),
    "mask": tf.io.FixedLenSequenceFeature([], tf.string),
}


def videos() -> list[bytes]:
    arrow = arrow_schema(_VIDEO)
    return payloads(encoded(_VIDEO, pa.RecordBatch.from_pylist(_VIDEOS, schema=arrow)))


def test_parse_single_sequence_example_reads_what_was_declared() -> None:
    context, lists = tf.io.parse_single_sequence_example(
        videos()[0], context_features=_CONTEXT_SPEC, sequence_features=_LISTS_SPEC
    )
    row = _VIDEOS[0]
    assert context["id"].numpy() == row["id"]
    assert context["size"].numpy().tolist() == row["size"]
    assert context["tags"].values.numpy().tolist() == row["tags"]
    assert context["words"].to_list() == row["words"]
    assert context["hits/indices_0"].values.numpy().tolist() == [1, 4]
    assert context["hits/values"].values.numpy().tolist() == [0.5, 1.5]
    assert lists["frame"].numpy().tolist() == row["frame"]
    assert lists["label"].numpy().tolist() == row["label"]
    assert lists["boxes"].to_list() == row["boxes"]
    assert lists["names"].indices.numpy().tolist() == [[0, 0], [1, 0], [1, 1]]
    assert lists["names"].values.numpy().tolist() == [b"x", b"y", b"z"]
    frames = tf.io.decode_raw(lists["jpeg"], tf.uint8).numpy()
    assert frames.tolist() == row["jpeg"]
    assert tf.io.parse_tensor(lists["mask"][0], tf.float64).numpy().tolist() == [0.1, 0.2]


def test_parse_sequence_example_reads_a_batch() -> None:
    context, lists, lengths = tf.io.parse_sequence_example(
        videos(), context_features=_CONTEXT_SPEC, sequence_features=_LISTS_SPEC
    )
    assert context["words"].to_list() == [[[1, 2], [], [3]], []]
    assert context["hits/indices_0"].indices.numpy().tolist() == [[0, 0], [0, 1]]
    assert lengths["frame"].numpy().tolist() == [3, 0]
    assert lists["frame"].numpy().tolist() == [_VIDEOS[0]["frame"], [[0, 0]] * 3]
    assert lists["label"].numpy().tolist() == [[7, -1, 2**40], [0, 0, 0]]
    assert lists["boxes"].to_list() == [[[1], [], [2, 3, 4]], [[]]]
    assert lengths["jpeg"].numpy().tolist() == [2, 0]


# Reading: whatever bytes come, what is accepted means what TensorFlow reads in it.

_NAMES = st.sampled_from(["a", "b", "ab", "\u00e9"])


@st.composite
def _entries(draw: st.DrawFn, content: st.SearchStrategy[bytes]) -> bytes:
    parts = [field(0x0A, draw(_NAMES).encode()), field(0x12, draw(content))]
    return field(0x0A, b"".join(draw(st.permutations(parts))))


def _map(number: int, content: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    entries = st.lists(_entries(content) | UNKNOWN_FIELDS, max_size=3)
    return entries.map(lambda parts: field(number << 3 | 2, b"".join(parts)))


_feature_lists = st.lists(WIRE_FEATURES.map(lambda step: field(0x0A, step)) | UNKNOWN_FIELDS, max_size=3).map(
    b"".join
)
_beside = st.sampled_from([b"\x18\x05", b"\x2a\x01x", b"\x35abcd", b"\x08\x05", b"\x10\x05"])

#: Everything that protobuf allows and we read.
_messages = st.lists(_map(1, WIRE_FEATURES) | _map(2, _feature_lists) | _beside, max_size=5).map(b"".join)


def _values_of(feature: Any) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def tensorflow_reads(message: bytes) -> tuple[dict[str, Any], dict[str, Any]] | None:
    try:
        example = tf.train.SequenceExample.FromString(message)
    except DecodeError:
        return None
    context = {
        name: _values_of(feature)
        for name, feature in example.context.feature.items()
        if feature.WhichOneof("kind")
    }
    lists = {
        name: [_values_of(step) for step in found.feature]
        for name, found in example.feature_lists.feature_list.items()
    }
    return context, lists


def we_read(message: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    records = decode("tfrecord", frame(message), message="sequence_example")
    context: dict[str, Any] = {}
    lists: dict[str, Any] = {}
    keys = message_keys(records.schema)
    for batch in as_arrow(records):
        batch.validate(full=True)
        for feature, column in zip(records.schema, batch.columns, strict=True):
            if (value := column[0].as_py()) is not None:
                (lists if feature.kind == "sequence" else context)[keys[feature.name]] = value
    return context, lists


def canonical(parts: tuple[dict[str, Any], dict[str, Any]]) -> list[dict[str, str]]:
    return [{name: repr(value) for name, value in sorted(part.items())} for part in parts]


def we_read_or_refuse(message: bytes, codes: set[str]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What we read in the message, or None where it is refused for one of these reasons."""
    try:
        return we_read(message)
    except InputError as error:
        if error.code in codes and error.location.row in (0, None):
            return None
        raise


@settings(_SETTINGS, max_examples=200)
@given(_messages)
def test_every_valid_message_is_read_as_tensorflow_reads_it(message: bytes) -> None:
    expected = tensorflow_reads(message)
    assert expected is not None
    # Without a schema: a key that is repeated with another kind, steps of two kinds.
    codes = {"schema_conflict", *([] if any(expected) else ["not_an_example"])}
    found = we_read_or_refuse(message, codes)
    assert found is None or canonical(found) == canonical(expected)


_INT_1 = field(0x1A, field(0x0A, b"\x01"))
_INT_2 = field(0x1A, field(0x0A, b"\x02"))
_FLOAT_1 = field(0x12, field(0x0A, np.float32(1).tobytes()))
_KEY_A = field(0x0A, b"a")
_KEY_B = field(0x0A, b"b")


def lists_of(*entries: bytes) -> bytes:
    return field(0x12, b"".join(field(0x0A, entry) for entry in entries))


def steps(*features: bytes) -> bytes:
    return field(0x12, b"".join(field(0x0A, feature) for feature in features))


def context_of(*entries: bytes) -> bytes:
    return field(0x0A, b"".join(field(0x0A, entry) for entry in entries))


_CONTEXT_A = context_of(_KEY_A + field(0x12, _INT_1))
_CONTEXT_B = context_of(_KEY_B + field(0x12, _INT_2))

#: What TensorFlow reads in a SequenceExample and we refuse, beside what is refused in an Example's features.
DELIBERATE: list[tuple[str, bytes, str]] = [
    (
        "two kinds in one Feature: TensorFlow's parsers and protobuf read different values",
        lists_of(_KEY_A + steps(_INT_1 + _FLOAT_1)),
        "ambiguous_example",
    ),
    (
        "the same in the context",
        context_of(_KEY_A + field(0x12, _INT_1 + _FLOAT_1)),
        "ambiguous_example",
    ),
    (
        "a map entry with a second value",
        lists_of(_KEY_A + steps(_INT_1) + steps(_INT_2)),
        "malformed_example",
    ),
    ("a map entry with a second key", lists_of(_KEY_B + _KEY_A + steps(_INT_1)), "malformed_example"),
    (
        "a map entry with an unknown field",
        lists_of(_KEY_A + steps(_INT_1) + b"\x18\x05"),
        "malformed_example",
    ),
    ("a group beside the parts: nothing writes them", b"\x1b\x08\x01\x1c" + _CONTEXT_A, "malformed_example"),
    (
        "a group in a FeatureList: nothing writes them",
        lists_of(_KEY_A + field(0x12, b"\x2b\x08\x01\x2c" + field(0x0A, _INT_1))),
        "malformed_example",
    ),
    ("an empty name, without a schema", lists_of(steps(_INT_1)), "invalid_feature_name"),
    (
        "a name over limits.max_name_bytes, without a schema",
        lists_of(field(0x0A, b"n" * (Limits().max_name_bytes + 1)) + steps(_INT_1)),
        "invalid_feature_name",
    ),
    (
        "more feature lists than limits.max_features, without a schema",
        lists_of(*(field(0x0A, b"%d" % i) + steps(_INT_1) for i in range(Limits().max_features + 1))),
        "too_many_features",
    ),
    (
        "more features in both parts than limits.max_features, without a schema",
        _CONTEXT_A
        + lists_of(*(field(0x0A, b"%d" % i) + steps(_INT_1) for i in range(Limits().max_features))),
        "too_many_features",
    ),
    (
        "a key that is repeated with another kind, without a schema: which one to infer would be a guess",
        lists_of(_KEY_A + steps(_INT_1), _KEY_A + steps(_FLOAT_1)),
        "schema_conflict",
    ),
    (
        "steps of two kinds, which no column holds",
        lists_of(_KEY_A + steps(_INT_1, _FLOAT_1)),
        "schema_conflict",
    ),
    (
        "a feature list whose name stands for another one beside the context",
        _CONTEXT_A + lists_of(field(0x0A, b"feature_lists/a") + steps(_INT_1)),
        "duplicate_feature",
    ),
]
_REFUSALS = {"malformed_example", "not_an_example"} | {code for _, _, code in DELIBERATE}


@settings(_SETTINGS, max_examples=600)
@given(mutations(_messages) | st.binary(max_size=30))
def test_whatever_is_accepted_of_mutated_bytes_tensorflow_reads_alike(message: bytes) -> None:
    found = we_read_or_refuse(message, _REFUSALS)
    if found is not None:
        expected = tensorflow_reads(message)
        assert expected is not None
        assert canonical(found) == canonical(expected)


@pytest.mark.parametrize(
    "message",
    [
        _CONTEXT_A,  # an Example
        lists_of(_KEY_A),  # no value: an empty list
        lists_of(_KEY_A + steps()),
        lists_of(_KEY_A + steps(b"", _INT_1, b"")),  # steps without a kind
        lists_of(_KEY_A + steps(b"\x20\x05", b"\x18\x05")),
        lists_of(_KEY_A + steps(_INT_1), _KEY_A + steps(_INT_2, _INT_2)),  # the last one wins
        lists_of(_KEY_A + steps(_INT_1), _KEY_A),
        lists_of(_KEY_A + steps(_INT_1)) + lists_of(_KEY_B + steps(_FLOAT_1)),  # merged
        lists_of(_KEY_A + steps(_INT_1)) + lists_of(_KEY_A + steps(_INT_2)),
        lists_of(steps(_INT_1) + _KEY_A),
        lists_of(_KEY_A + steps(_INT_1)) + _CONTEXT_B,
        _CONTEXT_A + _CONTEXT_B,
        _CONTEXT_A + b"\x18\x05" + _CONTEXT_B + lists_of(),
        _CONTEXT_A + lists_of() + _CONTEXT_B,  # copied together
        _CONTEXT_A + lists_of(_KEY_B + steps(_INT_2)) + b"\x18\x05" + _CONTEXT_A + lists_of() + _CONTEXT_A,
        lists_of() + _CONTEXT_A + lists_of() + _CONTEXT_B + lists_of(),
        lists_of(_KEY_A + steps(field(0x1A, b"\x08\x01\x08\x02"))),
        lists_of(_KEY_A + steps(field(0x1A, field(0x0A, b"\x01") + b"\x08\x02"), _INT_1 + _INT_2)),
        lists_of(_KEY_A + field(0x12, b"\x10\x05" + field(0x0A, _INT_1))),
        b"\x92\x00" + lists_of(_KEY_A + steps(_INT_1))[1:],  # an overlong tag
        b"\x08\x05\x10\x05" + _CONTEXT_A,
        b"",
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


def test_a_record_that_is_cut_anywhere_is_refused() -> None:
    message = videos()[0]
    for cut in range(1, len(message)):
        if tensorflow_reads(message[:cut]) is None:
            with pytest.raises(InputError) as caught:
                list(as_arrow(decode("tfrecord", frame(message[:cut]), schema=_VIDEO)))
            assert caught.value.code == "malformed_example"
            assert caught.value.location.row == 0
