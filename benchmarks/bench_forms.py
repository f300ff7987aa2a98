"""How fast do rows go in and out of Arrow, Parquet, CSV, NPZ and safetensors, next to the library of each?

200,000 rows of 20 float32, an int64 and a text (safetensors holds no text; CSV has a column for each of the
20). Reading: bytes in memory to batches, which ours checks and hands out 8,192 rows at a time, against the
library's reader of the same bytes, to an Arrow table. Writing: Arrow columns to bytes in memory, against its
writer. All on one core. Arrow's reader copies nothing and looks at no value, so it is also measured with a
stream that it reads from and a full validation behind it.
Run: python -m benchmarks.bench_forms [part of a form's name]
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
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
from app.codecs.columns import MAX_BATCH_ROWS, Batch, Records
from app.codecs.forms import RECORDS_CODECS, FormName
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.schema import Schema
from app.runtime.budget import Budget
from app.runtime.streams import Buffer, MemoryFile, MemoryStream
from tests.support.arrow_rows import arrow_schema, batches_from_arrow

ROWS = 200_000
WIDTH = 20


@dataclass(frozen=True)
class Case:
    """One form: the rows, and how its library writes and reads the same."""

    form: FormName
    columns: str
    features: dict[str, Any]
    table: pa.Table
    writer: tuple[str, Callable[[pa.Table], Any]]
    readers: tuple[tuple[str, Callable[[bytes], Any]], ...]
    #: How many times as fast as the first reader ours aims to be.
    target: float | None = None

    @property
    def schema(self) -> Schema:
        return Schema.from_json({"features": self.features})

    def batches(self) -> list[Batch]:
        batches = self.table.cast(arrow_schema(self.schema)).to_batches(MAX_BATCH_ROWS)
        return list(batches_from_arrow(self.schema, batches))


def table_of(arrays: dict[str, Any]) -> pa.Table:
    """One-dimensional arrays, and those of rows."""
    columns: dict[str, Any] = {}
    for name, values in arrays.items():
        column = pa.array(values.reshape(-1))
        columns[name] = pa.FixedSizeListArray.from_arrays(column, WIDTH) if values.ndim > 1 else column
    return pa.table(columns)


def arrays_of(table: pa.Table) -> dict[str, Any]:
    """The columns as numpy arrays, texts as its "U"."""
    arrays: dict[str, Any] = {}
    for name in table.column_names:
        column: Any = table.column(name).combine_chunks()
        if isinstance(column.type, pa.FixedSizeListType):
            arrays[name] = column.flatten().to_numpy().reshape(-1, WIDTH)
        elif column.type == pa.string():
            arrays[name] = column.to_numpy(zero_copy_only=False).astype(np.str_)
        else:
            arrays[name] = column.to_numpy()
    return arrays


def write_arrow(table: pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, MAX_BATCH_ROWS)
    return sink.getvalue()


def read_arrow(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.BufferReader(data)).read_all()


def read_arrow_checked(data: bytes) -> pa.Table:
    table = pa.ipc.open_stream(io.BytesIO(data)).read_all()
    table.validate(full=True)
    return table


def write_parquet(table: pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(table, sink, row_group_size=128 * 1024)
    return sink.getvalue()


def read_parquet(data: bytes) -> pa.Table:
    return pa.parquet.read_table(pa.BufferReader(data), use_threads=False)


def write_csv(table: pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(table, sink)
    return sink.getvalue()


def read_csv(data: bytes) -> pa.Table:
    source: Any = pa.BufferReader(data)
    return pa.csv.read_csv(source, read_options=pa.csv.ReadOptions(use_threads=False))


def write_npz(table: pa.Table) -> Any:
    sink = io.BytesIO()
    np.savez(sink, **arrays_of(table))
    return sink.getvalue()


def read_npz(data: bytes) -> pa.Table:
    with np.load(io.BytesIO(data)) as archive:
        return table_of({name: archive[name] for name in archive.files})


def write_safetensors(table: pa.Table) -> Any:
    return safetensors.numpy.save(arrays_of(table))


def read_safetensors(data: bytes) -> pa.Table:
    return table_of(safetensors.numpy.load(data))


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    floats = rng.standard_normal((ROWS, WIDTH), np.float32)
    labels = rng.integers(0, 1000, ROWS)
    texts = np.array([f"sample-{row:08}" for row in range(ROWS)])
    label: dict[str, Any] = {"label": {"dtype": "int64"}}
    numbers: dict[str, Any] = {"x": {"dtype": "float32", "shape": [WIDTH]}} | label
    text: dict[str, Any] = {"id": {"dtype": "text"}}
    table = table_of({"x": floats, "label": labels, "id": texts})
    what = f"{WIDTH} float32 + int64"
    yield Case(
        "arrow",
        f"{what} + text",
        numbers | text,
        table,
        ("pyarrow's writer", write_arrow),
        (
            ("pyarrow's reader, without a copy", read_arrow),
            ("pyarrow's reader + validate", read_arrow_checked),
        ),
    )
    yield Case(
        "parquet",
        f"{what} + text",
        numbers | text,
        table,
        ("pyarrow's writer", write_parquet),
        (("pyarrow's reader", read_parquet),),
        0.8,
    )
    scalars = {f"x{index:02}": floats[:, index].copy() for index in range(WIDTH)}
    yield Case(
        "csv",
        f"{what} + text",
        {name: {"dtype": "float32"} for name in scalars} | label | text,
        table_of(scalars | {"label": labels, "id": texts}),
        ("pyarrow's writer", write_csv),
        (("pyarrow's reader", read_csv),),
        0.7,
    )
    yield Case(
        "npz",
        f"{what} + text",
        numbers | text,
        table,
        ("numpy.savez + pyarrow", write_npz),
        (("numpy.load + pyarrow", read_npz),),
        0.9,
    )
    yield Case(
        "safetensors",
        what,
        numbers,
        table.drop_columns(["id"]),
        ("safetensors + pyarrow", write_safetensors),
        (("safetensors + pyarrow", read_safetensors),),
    )


def measure_case(session: Session, case: Case) -> None:
    codec, batches, schema = RECORDS_CODECS[case.form], case.batches(), case.schema
    encode, decode = codec.encode, codec.decode

    def pieces() -> Iterator[Buffer]:
        return encode(Records(schema, iter(batches), ROWS), RecordsEncodeOptions(), Budget())

    data = b"".join(pieces())
    source: Any = MemoryFile if codec.needs == "file" else MemoryStream

    def read() -> int:
        records = decode(source(data), RecordsDecodeOptions(), Budget())
        return sum(batch.num_rows for batch in records.batches)

    def reader(name: str, run: Callable[[bytes], Any], target: float | None) -> Peer:
        return Peer(name, counted(lambda: run(data), ROWS), target)

    name = f"{case.form}, {case.columns}"
    readers = [reader(*named, None if index else case.target) for index, named in enumerate(case.readers)]
    session.ask("Forms to rows", name, "rows", read, readers, num_bytes=len(data), runs=5)
    writer, run = case.writer
    writers = [Peer(writer, counted(lambda: run(case.table), ROWS))]
    session.ask(
        "Rows to forms",
        name,
        "rows",
        lambda: drained(pieces(), ROWS),
        writers,
        num_bytes=len(data),
        runs=5,
    )


def measure(session: Session) -> None:
    kernels.compile_all()
    for case in cases():
        if session.wants(case.form):
            measure_case(session, case)


if __name__ == "__main__":
    main(measure)
