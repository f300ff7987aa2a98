"""How fast do rows go in and out of Arrow, Parquet, CSV, NPZ and safetensors, next to the library of each?

200,000 rows of 20 float32, an int64 and a text (safetensors holds no text; CSV has a column for each of the
20). Reading: bytes in memory to batches, which ours checks and hands out 8,192 rows at a time, against the
library's reader of the same bytes. Writing: batches to bytes in memory, against its writer. Both on one
core. Arrow's and safetensors' readers copy nothing and look at no value: next to them one sees what it costs
to believe nothing. Run: python -m benchmarks.bench_forms [part of a form's name]
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Peer, Session, counted, drained, main, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import safetensors.numpy

from app.codecs import kernels
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.codecs.records.columns import MAX_BATCH_ROWS, Records, arrow_schema
from app.codecs.registry import RECORDS_CODECS, FormName
from app.domain.limits import Budget
from app.domain.schema import Schema
from app.domain.streams import MemoryFile, MemoryStream

ROWS = 200_000
WIDTH = 20

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One form: what the rows are, and how its library reads and writes the same."""

    form: FormName
    columns: str
    library: str
    features: dict[str, Any]
    arrays: Arrays
    read: Callable[[bytes], object]
    write: Callable[[Arrays], object]

    @property
    def schema(self) -> Schema:
        return Schema.from_json({"features": self.features})

    def batches(self) -> list[pa.RecordBatch]:
        arrow = arrow_schema(self.schema)
        columns = [_column(self.arrays[column.name], column.type) for column in arrow]
        batch = pa.RecordBatch.from_arrays(columns, schema=arrow)
        return [batch.slice(begin, MAX_BATCH_ROWS) for begin in range(0, ROWS, MAX_BATCH_ROWS)]


def _column(values: Any, layout: pa.DataType) -> Any:
    if values.ndim > 1:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    return (
        pa.array(values.tolist(), pa.string()).cast(layout) if values.dtype.kind == "U" else pa.array(values)
    )


def table_of(arrays: Arrays) -> pa.Table:
    """As people who use pyarrow hold it."""
    columns = {
        name: _column(values, pa.string() if values.dtype.kind == "U" else pa.null())
        for name, values in arrays.items()
    }
    return pa.table(columns)


def write_arrow(table: pa.Table) -> object:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, MAX_BATCH_ROWS)
    return sink.getvalue()


def write_parquet(table: pa.Table) -> object:
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(table, sink, row_group_size=128 * 1024)
    return sink.getvalue()


def write_csv(table: pa.Table) -> object:
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(table, sink)
    return sink.getvalue()


def write_npz(arrays: Arrays) -> object:
    sink = io.BytesIO()
    np.savez(sink, **arrays)
    return sink.getvalue()


def read_npz(data: bytes) -> object:
    with np.load(io.BytesIO(data)) as archive:
        return [archive[name] for name in archive.files]


def cases() -> list[Case]:
    rng = np.random.default_rng(0)
    floats = rng.standard_normal((ROWS, WIDTH), np.float32)
    numbers = {"x": floats, "label": rng.integers(0, 1000, ROWS)}
    texts = {"id": np.array([f"sample-{row:08}" for row in range(ROWS)])}
    arrays = numbers | texts
    scalars = {f"x{index:02}": floats[:, index].copy() for index in range(WIDTH)}
    numeric: dict[str, Any] = {"x": {"dtype": "float32", "shape": [WIDTH]}, "label": {"dtype": "int64"}}
    features = numeric | {"id": {"dtype": "text"}}
    flat = {name: {"dtype": "float32"} for name in scalars} | {
        "label": {"dtype": "int64"},
        "id": {"dtype": "text"},
    }
    flat_arrays = scalars | {"label": numbers["label"]} | texts
    table, flat_table = table_of(arrays), table_of(flat_arrays)
    single = pa.csv.ReadOptions(use_threads=False)
    rows = f"{WIDTH} float32 + int64"
    return [
        Case(
            "arrow",
            f"{rows} + text",
            "pyarrow",
            features,
            arrays,
            lambda data: pa.ipc.open_stream(pa.BufferReader(data)).read_all(),
            lambda _: write_arrow(table),
        ),
        Case(
            "parquet",
            f"{rows} + text",
            "pyarrow",
            features,
            arrays,
            lambda data: pa.parquet.read_table(pa.BufferReader(data), use_threads=False),
            lambda _: write_parquet(table),
        ),
        Case(
            "csv",
            f"{rows} + text",
            "pyarrow",
            flat,
            flat_arrays,
            lambda data: pa.csv.read_csv(pa.BufferReader(data), read_options=single),
            lambda _: write_csv(flat_table),
        ),
        Case("npz", f"{rows} + text", "numpy", features, arrays, read_npz, write_npz),
        Case(
            "safetensors",
            rows,
            "safetensors",
            numeric,
            numbers,
            safetensors.numpy.load,
            safetensors.numpy.save,
        ),
    ]


def measure_case(session: Session, case: Case) -> None:
    codec, batches = RECORDS_CODECS[case.form], case.batches()
    encode, decode = codec.encode, codec.decode
    assert encode is not None and decode is not None

    def pieces() -> Any:
        return encode(Records(case.schema, iter(batches), ROWS), RecordsEncodeOptions(), Budget())

    data = b"".join(pieces())
    source: Any = MemoryFile if codec.needs == "file" else MemoryStream

    def read() -> int:
        records = decode(source(data), RecordsDecodeOptions(), Budget())
        return sum(batch.num_rows for batch in records.batches)

    name = f"{case.form}, {case.columns}"
    reader = Peer(f"{case.library}'s reader", counted(lambda: case.read(data), ROWS))
    writer = Peer(f"{case.library}'s writer", counted(lambda: case.write(case.arrays), ROWS))
    session.ask("Forms to rows", name, "rows", read, [reader], num_bytes=len(data), runs=5)
    session.ask(
        "Rows to forms", name, "rows", lambda: drained(pieces(), ROWS), [writer], num_bytes=len(data), runs=5
    )


def measure(session: Session) -> None:
    kernels.load()
    for case in cases():
        if session.wants(case.form):
            measure_case(session, case)


if __name__ == "__main__":
    main(measure)
