"""Rows in every format, each as the library writes it whose format it is."""

from __future__ import annotations

import io
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import safetensors.numpy
import tensorflow as tf
import webdataset
from numpy.typing import NDArray
from sklearn.datasets import dump_svmlight_file

from app.domain.dtypes import TEXT, DType
from app.domain.feature import Feature
from tests.golden.cases import ARRAYS, KINDS, SCALARS, SEQUENCES, Case, Row, dtypes, plain
from tests.golden.entries import Golden, json_bytes
from tests.golden.writers import (
    SPECIFIED,
    arrow_of,
    b64_lines,
    in_safetensors,
    inference_binary,
    inference_json,
    is_marked,
    save_npz,
    write_records,
)
from tests.support.archives import zip_of
from tests.support.tensorflow_features import message_of


def rows() -> Iterator[Golden]:
    every = dtypes()
    for case in (SCALARS, KINDS, SEQUENCES, every):
        yield from case.values()
        yield from _texts(case)
        yield from _messages(case)
        yield from _tables(case)
    yield from _delimited()
    yield from _arrays(every)
    yield from _labelled()
    yield from _samples()
    yield from _folders()


def _texts(case: Case) -> Iterator[Golden]:
    content = b"".join(json_bytes(row) + b"\n" for row in case.envelopes())
    yield case.file("ndjson", content, "ndjson", "json of Python")
    if not case.is_sequence:
        columns = {name: [row[name] for row in case.rows] for name in case.features}
        content = json_bytes({"columns": columns})
        yield case.file("columns.json", content, "json", "json of Python", options={"layout": "columns"})


def _messages(case: Case) -> Iterator[Golden]:
    """Examples or SequenceExamples, their maps sorted by key."""
    messages = [message_of(case.schema, cells) for cells in case.cells()]
    message = "tf.train.SequenceExample" if case.is_sequence else "tf.train.Example"
    yield case.file("b64.json", b64_lines(messages), "b64", f"{message} and base64 of Python")
    for compression in ("", "gzip", "zlib"):
        yield case.file(
            f"tfrecord{compression and f'.{compression}'}",
            write_records(messages, compression.upper()),
            "tfrecord",
            f"{message} and tf.io.TFRecordWriter",
            written="values" if compression else "bytes",
            options={"compression": compression} if compression else {},
        )


def _tables(case: Case) -> Iterator[Golden]:
    """Arrow and Parquet."""
    table = _table(case)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    yield case.file("arrow", sink.getvalue(), "arrow", "pyarrow.ipc.new_stream")
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    yield case.file("parquet", sink.getvalue(), "parquet", "pyarrow.parquet.write_table")


def _table(case: Case) -> pa.Table:
    columns: list[pa.Array[Any]] = []
    fields: list[pa.Field[Any]] = []
    for feature in case.schema:
        dtype, name = feature.dtype, feature.name
        column: pa.Array[Any]
        if case.name == "dtypes":
            column = pa.FixedSizeListArray.from_arrays(arrow_of(*ARRAYS[name]), 4)
        else:
            cells = [_nested(dtype, row.get(name)) for row in case.rows]
            column = pa.array(cells, _arrow_type(feature))
        marks = {"shardsmith:dtype": dtype.name} if is_marked(dtype) else None
        columns.append(column)
        fields.append(pa.field(name, column.type, metadata=marks))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _nested(dtype: DType, value: Any) -> Any:
    """A value as pyarrow takes it."""
    if isinstance(value, list):
        return [_nested(dtype, item) for item in value]
    if isinstance(value, dict) and "indices" in value:
        return {"indices": value["indices"], "values": _nested(dtype, value["values"])}
    if value is None or dtype is TEXT:
        return value
    return plain(dtype, value)


def _arrow_type(feature: Feature) -> pa.DataType:
    found: pa.DataType = arrow_of(feature.dtype, np.empty(0, feature.dtype.numpy)).type
    if feature.kind == "sparse":
        places = pa.list_(pa.list_(pa.int64(), len(feature.shape)))
        return pa.struct([("indices", places), ("values", pa.list_(found))])
    for dim in reversed(feature.shape):
        found = pa.list_(found, -1 if dim is None else dim)
    return found


def _delimited() -> Iterator[Golden]:
    table = _table(SCALARS)
    for suffix, delimiter, options in (("csv", ",", {}), ("tsv", "\t", {"delimiter": "tab"})):
        sink = io.BytesIO()
        pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(delimiter=delimiter))
        yield SCALARS.file(suffix, sink.getvalue(), "csv", "pyarrow.csv.write_csv", options=options)


def _arrays(case: Case) -> Iterator[Golden]:
    """One array for each feature, whose first axis counts the rows."""
    named = {name: _in_numpy(dtype, array) for name, (dtype, array) in ARRAYS.items() if dtype.in_numpy}
    content = save_npz(named)
    yield case.file("npz", content, "npz", "numpy.savez", names=tuple(named))
    named = {name: array for name, (dtype, array) in ARRAYS.items() if in_safetensors(dtype)}
    content = safetensors.numpy.save(named)
    made = "safetensors.numpy.save"
    yield case.file("safetensors", content, "safetensors", made, names=tuple(named))
    arrays = {name: _encoded(*array) for name, array in ARRAYS.items() if array[0].oip is not None}
    content, json_size = inference_binary(arrays)
    names, options = tuple(arrays), {"json_bytes": json_size}
    yield case.file("oip", content, "oip", SPECIFIED, names=names, options=options)
    content = inference_json(arrays)
    yield case.file("oip.json", content, "json", SPECIFIED, names=names, written=None)


def _in_numpy(dtype: DType, array: NDArray[Any]) -> NDArray[Any]:
    return array.astype("U" if dtype is TEXT else "S") if dtype.is_string else array


def _encoded(dtype: DType, array: NDArray[Any]) -> tuple[DType, NDArray[Any]]:
    """Text as bytes."""
    if dtype is not TEXT:
        return dtype, array
    values = [value.encode() for value in array.reshape(-1)]
    return dtype, np.array([*values, None], object)[:-1].reshape(array.shape)


def _labelled() -> Iterator[Golden]:
    """Rows of SVMlight: one sparse feature and what it counts for."""
    values = np.array([[0, 1.5, 0, -2], [0, 0, 0, 0], [0.25, 0, 0, 0]], np.float32)
    labels, groups = [1, -1, 0], [1, 1, 2]
    rows = []
    for label, group, row in zip(labels, groups, values, strict=True):
        places = np.flatnonzero(row)
        sparse = {"values": row[places].tolist(), "indices": places[:, None].tolist()}
        rows.append({"label": label, "qid": group, "x": {**sparse, "dense_shape": [4]}})
    features: dict[str, dict[str, Any]] = {
        "label": {"dtype": "int64"},
        "qid": {"dtype": "int64"},
        "x": {"dtype": "float32", "shape": [4], "kind": "sparse"},
    }
    case = Case("labelled", features, rows)
    yield from case.values()
    sink = io.BytesIO()
    dump_svmlight_file(values, labels, sink, query_id=groups)
    yield case.file("libsvm", sink.getvalue(), "libsvm", "sklearn.datasets.dump_svmlight_file")


def _samples() -> Iterator[Golden]:
    features: dict[str, dict[str, Any]] = {
        "__key__": {"dtype": "text"},
        "jpg": {"dtype": "bytes"},
        "cls": {"dtype": "int64"},
        "txt": {"dtype": "text"},
        "npy": {"dtype": "float32", "shape": [None, 2]},
    }
    rows: list[Row] = [
        {"__key__": "train/0", "jpg": {"b64": "/9gA"}, "cls": 3, "txt": "a cat", "npy": [[1.0, 2.0]]},
        {"__key__": "train/1", "jpg": {"b64": "/9gB"}, "cls": -4, "txt": "β", "npy": []},
    ]
    case = Case("samples", features, rows)
    yield from case.values()
    sink = io.BytesIO()
    with webdataset.TarWriter(sink, mtime=0) as writer:
        for row in rows:
            array = np.array(row["npy"], np.float32).reshape(-1, 2)
            writer.write({**row, "jpg": b64decode(row["jpg"]["b64"]), "npy": array})
    yield case.file("tar", sink.getvalue(), "tar", "webdataset.TarWriter")


def _folders() -> Iterator[Golden]:
    """Images in folders, which are their labels."""
    image: bytes = tf.io.encode_jpeg(np.full((6, 8, 3), 128, np.uint8)).numpy()
    files = [("cat/a.jpg", image), ("cat/b.jpg", b"\xff\xd8\xff"), ("dog/a.jpg", image)]
    rows = [
        {"path": path, "image": {"b64": b64encode(content).decode()}, "label": path[:3]}
        for path, content in files
    ]
    features = {"path": {"dtype": "text"}, "image": {"dtype": "bytes"}, "label": {"dtype": "text"}}
    case = Case("folders", features, rows)
    yield from case.values()
    yield case.file("zip", zip_of(*files), "zip", "zipfile of Python", written=None)
    boundary = "golden"
    request = httpx.Request(
        "POST",
        "http://localhost",
        files=[("file", (path, content, "image/jpeg")) for path, content in files],
        headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )
    options = {"boundary": boundary}
    yield case.file("form", request.read(), "multipart", "httpx", written=None, options=options)
