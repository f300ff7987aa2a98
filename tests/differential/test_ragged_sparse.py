"""Ragged and sparse features against what `tf.io.parse_example` reads in our bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings

from app.domain.feature import Feature
from app.domain.schema import Schema
from tests.support.arrow_rows import arrow_schema, as_arrow, from_arrow
from tests.support.feature_values import Table, tables_of
from tests.support.format_cases import decode, encode
from tests.support.tensorflow_features import message_of
from tests.support.tfrecord_frames import payloads

_SETTINGS = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
_TABLES = tables_of("dense", "ragged", "sparse")


def encoded(schema: Schema, *batches: pa.RecordBatch) -> list[bytes]:
    return payloads(encode("tfrecord", from_arrow(schema, iter(batches))))


@_SETTINGS
@given(_TABLES)
def test_every_row_is_tensorflows_bytes_and_returns(table: Table) -> None:
    batch = table.batch()
    data = encode("tfrecord", from_arrow(table.schema, iter([batch])))
    assert payloads(data) == [message_of(table.schema, row) for row in table.rows]
    records = decode("tfrecord", data, schema=table.schema)
    decoded = list(as_arrow(records))
    for part in decoded:
        part.validate(full=True)
        assert part.schema.equals(arrow_schema(table.schema))
    assert repr([row for part in decoded for row in part.to_pylist()]) == repr(batch.to_pylist())


def column(feature: dict[str, Any], rows: list[Any]) -> tuple[Schema, list[bytes]]:
    schema = Schema.from_json({"features": {"x": feature}})
    kind = arrow_schema(schema).field(0).type
    batch = pa.RecordBatch.from_arrays([pa.array(rows, kind)], schema=arrow_schema(schema))
    return schema, encoded(schema, batch)


def ragged_spec(feature: Feature) -> Any:
    """The spec of a ragged feature, as a client writes it."""
    partitions: list[Any] = [
        tf.io.RaggedFeature.RowLengths(f"x/ragged_row_lengths_{cut}") for cut in range(feature.num_partitions)
    ]
    partitions += [tf.io.RaggedFeature.UniformRowLength(dim) for dim in feature.inner_shape]
    dtype = tf.string if feature.dtype.is_string else tf.float32 if feature.dtype.is_float else tf.int64
    return tf.io.RaggedFeature(dtype, "x/ragged_flat_values", partitions, row_splits_dtype=tf.int64)


@pytest.mark.parametrize(
    ("dtype", "shape", "rows"),
    [
        ("float32", [None, None], [[[1.5], [], [2.5, 3.5]], [], [[]], None]),
        ("int32", [2, None], [[[1], [2, 3]], [[], []]]),
        ("text", [None, None, None], [[[["a"], []], [], [["b", "c"]]], []]),
        ("bytes", [None, 2, None], [[[[b"a"], []], [[b"b"], [b"c", b"d"]]], []]),
    ],
)
def test_ragged_feature_reads_nested_lists(dtype: str, shape: list[int | None], rows: list[Any]) -> None:
    schema, messages = column({"dtype": dtype, "shape": shape, "kind": "ragged", "nullable": True}, rows)
    parsed = tf.io.parse_example(messages, {"x": ragged_spec(schema.features[0])})["x"]
    expected = [row or [] for row in rows]
    if dtype == "text":
        expected = [[[[text.encode() for text in c] for c in b] for b in row] for row in expected]
    assert parsed.to_list() == expected


def test_ragged_feature_reads_uniform_inner_dimensions() -> None:
    rows = [[[[1, 2, 3, 4, 5, 6]], []], [[]]]
    schema, messages = column({"dtype": "int64", "shape": [None, None, 3, 2], "kind": "ragged"}, rows)
    parsed = tf.io.parse_example(messages, {"x": ragged_spec(schema.features[0])})["x"]
    assert parsed.to_list() == [[[[[1, 2], [3, 4], [5, 6]]], []], [[]]]
    assert parsed.shape.as_list()[-2:] == [3, 2]
    single = tf.io.parse_single_example(messages[0], {"x": ragged_spec(schema.features[0])})["x"]
    assert single.to_list() == [[[[1, 2], [3, 4], [5, 6]]], []]


@pytest.mark.parametrize(
    ("shape", "rows", "dense"),
    [
        ([4], [([1, 3], [0.5, 1.5]), ([], []), None], [[0, 0.5, 0, 1.5], [0] * 4, [0] * 4]),
        ([2, 2], [([0, 1, 1, 0], [0.5, 1.5])], [[[0, 0.5], [1.5, 0]]]),
        ([2, 1, 2], [([0, 0, 1, 1, 0, 0], [0.5, 1.5])], [[[[0, 0.5]], [[1.5, 0]]]]),
    ],
)
def test_sparse_feature_reads_coordinates(shape: list[int], rows: list[Any], dense: list[Any]) -> None:
    cells = [None if row is None else {"indices": row[0], "values": row[1]} for row in rows]
    _, messages = column({"dtype": "float32", "shape": shape, "kind": "sparse", "nullable": True}, cells)
    keys = [f"x/indices_{axis}" for axis in range(len(shape))]
    spec = tf.io.SparseFeature(keys, "x/values", tf.float32, shape)
    parsed = tf.io.parse_example(messages, {"x": spec})["x"]
    assert tf.sparse.to_dense(parsed).numpy().tolist() == dense


def test_coordinates_stay_in_their_order_and_tensorflow_sorts_them() -> None:
    rows = [{"x": {"indices": [7, 2, 2], "values": [1, 2, 3]}}]
    feature = {"dtype": "int64", "shape": [9], "kind": "sparse"}
    schema, messages = column(feature, [row["x"] for row in rows])
    spec = tf.io.SparseFeature("x/indices_0", "x/values", tf.int64, 9)
    parsed = tf.io.parse_example(messages, {"x": spec})["x"]
    assert parsed.indices.numpy()[:, 1].tolist() == [2, 2, 7]
    as_is = tf.io.SparseFeature("x/indices_0", "x/values", tf.int64, 9, already_sorted=True)
    assert tf.io.parse_example(messages, {"x": as_is})["x"].indices.numpy()[:, 1].tolist() == [7, 2, 2]
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))
    data = encode("tfrecord", from_arrow(schema, iter([batch])))
    (decoded,) = as_arrow(decode("tfrecord", data, schema=schema))
    assert decoded.to_pylist() == rows


def test_fixed_length_lists_are_read_with_every_spec() -> None:
    _, messages = column({"dtype": "float32", "shape": [None, 2]}, [[1.0, 2.0, 3.0, 4.0], []])
    spec = tf.io.FixedLenSequenceFeature([2], tf.float32, allow_missing=True)
    assert tf.io.parse_example(messages, {"x": spec})["x"].numpy().tolist() == [
        [[1, 2], [3, 4]],
        [[0, 0], [0, 0]],
    ]
    parsed = tf.io.parse_example(messages, {"x": tf.io.VarLenFeature(tf.float32)})["x"]
    assert parsed.values.numpy().tolist() == [1, 2, 3, 4]
    flat = tf.io.parse_example(messages, {"x": tf.io.RaggedFeature(tf.float32)})["x"]
    assert flat.to_list() == [[1, 2, 3, 4], []]
    fixed = tf.io.parse_example(messages[:1], {"x": tf.io.FixedLenFeature([2, 2], tf.float32)})["x"]
    assert fixed.numpy().tolist() == [[[1, 2], [3, 4]]]
