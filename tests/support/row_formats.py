"""Rows in every form, written and read without the service."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy
from numpy.typing import NDArray

from tests.support.archives import File, files_of, form_of, npy_of, tar_of, zip_of
from tests.support.feature_values import field, varint
from tests.support.tensor_formats import (
    Request,
    arrays_of_npz,
    arrays_of_oip,
    b64_of,
    fields,
    framed,
    messages_of,
    npz_of,
    oip_of,
    unframed,
    varints,
)

Rows = list[dict[str, Any]]

#: Of each kind: what is declared, and rows as JSON has them.
FEATURES: dict[str, dict[str, Any]] = {
    "dense": {"x": {"dtype": "float32", "shape": [2]}, "n": {"dtype": "int64"}},
    "ragged": {"x": {"dtype": "int64", "shape": [None, None], "kind": "ragged"}},
    "sparse": {"x": {"dtype": "float32", "shape": [2, 3], "kind": "sparse"}},
    "sequence": {"n": {"dtype": "int64"}, "x": {"dtype": "int64", "shape": [None, 2], "kind": "sequence"}},
}
ROWS: dict[str, Rows] = {
    "dense": [{"x": [1.5, -2.0], "n": 1}, {"x": [0.25, 4.0], "n": -7}],
    "ragged": [{"x": [[1, 2], [], [3]]}, {"x": [[-4]]}],
    "sparse": [
        {"x": {"values": [1.5, 2.5], "indices": [[0, 2], [1, 0]], "dense_shape": [2, 3]}},
        {"x": {"values": [-1.0], "indices": [[1, 1]], "dense_shape": [2, 3]}},
    ],
    "sequence": [{"n": 1, "x": [[1, 2], [3, 4]]}, {"n": -7, "x": [[5, 6], [7, 8]]}],
}
_COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "dense": {"x": pa.list_(pa.float32(), 2), "n": pa.int64()},
    "ragged": {"x": pa.list_(pa.list_(pa.int64()))},
    "sparse": {"n": pa.int64()},
    "sequence": {"n": pa.int64(), "x": pa.list_(pa.list_(pa.int64(), 2))},
}


#: Forms of one array a column: a ragged feature comes from one where all its rows are alike.
ARRAYS = frozenset({"npz", "oip", "safetensors"})


def sample(kind: str, *forms: str) -> tuple[dict[str, Any], Rows]:
    """Features and rows that the forms can hold if they hold the kind at all."""
    features, rows = FEATURES[kind], ROWS[kind]
    if kind == "dense" and "csv" in forms:  # whose fields are single values
        return {"n": features["n"]}, [{"n": row["n"]} for row in rows]
    if kind == "sparse" and "libsvm" in forms:  # whose rows are a label and one dimension
        features = {"n": {"dtype": "int64"}, "x": {"dtype": "float32", "shape": [6], "kind": "sparse"}}
        places = [[[2], [3]], [[4]]]
        return features, [
            {"n": n, "x": {"values": row["x"]["values"], "indices": indices, "dense_shape": [6]}}
            for n, (row, indices) in enumerate(zip(rows, places, strict=True))
        ]
    if kind == "ragged" and ARRAYS.intersection(forms):
        return features, [{"x": [[1, 2], [3, 4]]}, {"x": [[5, 6], [7, 8]]}]
    return features, rows


def written(form: str, kind: str, rows: Rows) -> Request:
    """The request that carries the rows: content and headers."""
    request = _WRITERS[form](kind, rows)
    return request if isinstance(request, dict) else {"content": request}


def read(form: str, kind: str, answer: httpx.Response) -> Rows:
    """The rows of an answer."""
    return _READERS[form](kind, answer)


def messages(kind: str, rows: Rows) -> list[bytes]:
    """One Example or SequenceExample a row."""
    return [_message(kind, row) for row in rows]


def rows_of_messages(kind: str, found: list[bytes]) -> Rows:
    """What `messages` was given."""
    return [_row(kind, message) for message in found]


def envelope(kind: str, row: dict[str, Any]) -> dict[str, Any]:
    """The row as JSON has it."""
    if kind != "sequence":
        return row
    return {"context": {"n": row["n"]}, "feature_lists": {"x": row["x"]}}


def opened(kind: str, row: dict[str, Any]) -> dict[str, Any]:
    """What `envelope` was given."""
    return row if kind != "sequence" else {**row["context"], **row["feature_lists"]}


def _lists(kind: str, row: dict[str, Any]) -> dict[str, list[Any]]:
    """The features of an Example, in the names of the contract."""
    x: Any = row.get("x")
    if kind == "ragged":
        lengths = [len(cut) for cut in x]
        return {"x/ragged_flat_values": [v for cut in x for v in cut], "x/ragged_row_lengths_0": lengths}
    if kind == "sparse":
        axes = dict(enumerate(zip(*x["indices"], strict=True)))
        label = {"n": [row["n"]]} if "n" in row else {}
        return {**label, **{f"x/indices_{axis}": [*axes[axis]] for axis in axes}, "x/values": x["values"]}
    return {name: value if isinstance(value, list) else [value] for name, value in row.items()}


def _feature(values: list[Any]) -> bytes:
    if any(isinstance(value, float) for value in values):
        return field(0x12, field(0x0A, np.array(values, "<f4").tobytes()))
    return field(0x1A, field(0x0A, b"".join(varint(value % 2**64) for value in values)))


def _values(feature: bytes) -> list[Any]:
    (kind, (values,)), *others = fields(feature).items()
    assert not others
    packed = fields(values).get(1, [b""])[0]
    if kind == 2:
        return [float(value) for value in np.frombuffer(packed, "<f4")]
    return [value - (value >> 63 << 64) for value in varints(packed)]


def _map(entries: dict[str, bytes]) -> bytes:
    return b"".join(
        field(0x0A, field(0x0A, name.encode()) + field(0x12, value)) for name, value in entries.items()
    )


def _entries(message: bytes) -> dict[str, bytes]:
    pairs = [fields(entry) for entry in fields(message)[1]]
    return {pair[1][0].decode(): pair[2][0] for pair in pairs}


def _message(kind: str, row: dict[str, Any]) -> bytes:
    if kind == "sequence":
        steps = b"".join(field(0x0A, _feature(step)) for step in row["x"])
        return field(0x0A, _map({"n": _feature([row["n"]])})) + field(0x12, _map({"x": steps}))
    return field(0x0A, _map({name: _feature(values) for name, values in _lists(kind, row).items()}))


def _row(kind: str, message: bytes) -> dict[str, Any]:
    found = fields(message)
    features = {name: _values(feature) for name, feature in _entries(found[1][0]).items()}
    if kind == "sequence":
        (steps,) = _entries(found[2][0]).values()
        return {"n": features["n"][0], "x": [_values(step) for step in fields(steps)[1]]}
    if kind == "ragged":
        left = iter(features["x/ragged_flat_values"])
        return {"x": [[next(left) for _ in range(size)] for size in features["x/ragged_row_lengths_0"]]}
    if kind == "sparse":
        axes = [features[name] for name in sorted(features) if name.startswith("x/indices_")]
        label = {"n": features["n"][0]} if "n" in features else {}
        return {
            **label,
            "x": _sparse(features["x/values"], [list(place) for place in zip(*axes, strict=True)]),
        }
    return {name: values if name == "x" else values[0] for name, values in features.items()}


def _sparse(values: list[float], indices: list[list[int]]) -> dict[str, Any]:
    return {"values": values, "indices": indices, "dense_shape": [2, 3] if len(indices[0]) == 2 else [6]}


def _arrays(kind: str, rows: Rows) -> dict[str, NDArray[Any]]:
    """One array a column; of coordinates as good as any other."""
    if kind == "sparse":
        x = np.zeros((len(rows), *rows[0]["x"]["dense_shape"]), "<f4")
        return {"x": x, **{name: np.zeros(len(rows), "<i8") for name in rows[0] if name != "x"}}
    dtypes = {"x": "<f4" if kind == "dense" else "<i8", "n": "<i8"}
    return {name: np.array([row[name] for row in rows], dtypes[name]) for name in rows[0]}


def _rows_of_arrays(found: dict[str, NDArray[Any]]) -> Rows:
    columns = {name: array.tolist() for name, array in found.items()}
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _table(kind: str, rows: Rows) -> pa.Table:
    columns: dict[str, Any] = {}
    for name in rows[0]:
        cells = [row[name] for row in rows]
        if kind == "sparse" and name == "x":
            cells = [{name: x[name] for name in ("indices", "values")} for x in cells]
            rank = len(cells[0]["indices"][0])
            places = pa.list_(pa.list_(pa.int64(), rank))
            columns[name] = pa.array(
                cells, pa.struct([("indices", places), ("values", pa.list_(pa.float32()))])
            )
        else:
            columns[name] = pa.array(cells, _COLUMNS[kind][name])
    return pa.table(columns)


def _rows_of_table(kind: str, table: pa.Table) -> Rows:
    rows = table.to_pylist()
    if kind == "sparse":
        for row in rows:
            row["x"] = _sparse(row["x"]["values"], row["x"]["indices"])
    return rows


def _arrow_of(kind: str, rows: Rows) -> bytes:
    table, sink = _table(kind, rows), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _parquet_of(kind: str, rows: Rows) -> bytes:
    sink = io.BytesIO()
    pq.write_table(_table(kind, rows), sink)
    return sink.getvalue()


def _csv_of(kind: str, rows: Rows) -> bytes:
    sink = io.StringIO()
    lines = csv.DictWriter(sink, list(rows[0]))
    lines.writeheader()
    lines.writerows(rows)
    return sink.getvalue().encode()


def _read_csv(_: str, answer: httpx.Response) -> Rows:
    return [{"n": int(row["n"])} for row in csv.DictReader(io.StringIO(answer.text))]


def _libsvm_of(kind: str, rows: Rows) -> bytes:
    lines = []
    for row in rows if kind == "sparse" else ():  # of other kinds the schema alone is refused
        pairs = zip(row["x"]["indices"], row["x"]["values"], strict=True)
        lines.append(" ".join([str(row["n"]), *(f"{index}:{value}" for (index,), value in pairs)]))
    return "\n".join(lines).encode()


def _read_libsvm(_: str, answer: httpx.Response) -> Rows:
    # Imported where it is needed: it takes longer than all the other imports here.
    from sklearn.datasets import load_svmlight_file

    data, labels = load_svmlight_file(io.BytesIO(answer.content), n_features=6, zero_based=True)
    return [
        {
            "n": int(label),
            "x": _sparse(row.data.tolist(), row.indices[:, None].tolist()),
        }
        for label, row in zip(labels, data, strict=True)
    ]


def _json_rows(kind: str, rows: Rows) -> list[str]:
    return [json.dumps(envelope(kind, row)) for row in rows]


def _files_of(kind: str, rows: Rows) -> list[File]:
    files = []
    for number, row in enumerate(rows if kind == "dense" else ()):  # of other kinds the schema is refused
        files.append((f"{number:09d}.n.cls", str(row["n"]).encode()))
        if "x" in row:
            files.append((f"{number:09d}.x.npy", npy_of(np.array(row["x"], "<f4"))))
    return files


def _zip_of(kind: str, rows: Rows) -> Request:
    return {"content": zip_of(*_files_of(kind, rows)), "params": {"archive": "samples"}}


def _form_of(kind: str, rows: Rows) -> Request:
    return {
        "content": form_of(*(_files_of(kind, rows) or [("0.n.cls", b"1")])),
        "params": {"archive": "samples"},
        "headers": {"Content-Type": "multipart/form-data; boundary=b"},
    }


def _read_tar(_: str, answer: httpx.Response) -> Rows:
    rows: dict[str, dict[str, Any]] = {}
    for name, content in files_of(answer.content):
        key, feature, _kind = name.split(".")
        rows.setdefault(key, {})[feature] = (
            int(content) if feature == "n" else np.load(io.BytesIO(content)).tolist()
        )
    return list(rows.values())


_WRITERS: dict[str, Callable[[str, Rows], bytes | Request]] = {
    "json": lambda kind, rows: f"[{','.join(_json_rows(kind, rows))}]".encode(),
    "ndjson": lambda kind, rows: "\n".join(_json_rows(kind, rows)).encode(),
    "npz": lambda kind, rows: npz_of(_arrays(kind, rows)),
    "oip": lambda kind, rows: oip_of(_arrays(kind, rows)),
    "safetensors": lambda kind, rows: safetensors.numpy.save(_arrays(kind, rows)),
    "arrow": _arrow_of,
    "parquet": _parquet_of,
    "csv": _csv_of,
    "libsvm": _libsvm_of,
    "tar": lambda kind, rows: tar_of(*_files_of(kind, rows)),
    "zip": _zip_of,
    "multipart": _form_of,
    "tfrecord": lambda kind, rows: framed(*messages(kind, rows)),
    "b64": lambda kind, rows: b64_of(messages(kind, rows)),
}
_READERS: dict[str, Callable[[str, httpx.Response], Rows]] = {
    "json": lambda kind, answer: [opened(kind, row) for row in answer.json()],
    "ndjson": lambda kind, answer: [opened(kind, json.loads(line)) for line in answer.text.splitlines()],
    "npz": lambda _, answer: _rows_of_arrays(arrays_of_npz(answer)),
    "oip": lambda _, answer: _rows_of_arrays(arrays_of_oip(answer)),
    "safetensors": lambda _, answer: _rows_of_arrays(safetensors.numpy.load(answer.content)),
    "arrow": lambda kind, answer: _rows_of_table(kind, pa.ipc.open_stream(answer.content).read_all()),
    "parquet": lambda kind, answer: _rows_of_table(kind, pq.read_table(io.BytesIO(answer.content))),
    "csv": _read_csv,
    "libsvm": _read_libsvm,
    "tar": _read_tar,
    "tfrecord": lambda kind, answer: rows_of_messages(kind, unframed(answer.content)),
    "b64": lambda kind, answer: rows_of_messages(kind, messages_of(answer.json())),
}
