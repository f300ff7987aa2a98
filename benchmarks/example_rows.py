"""The rows that Examples are written of and read into, and how ours does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from app.codecs.columns import MAX_BATCH_ROWS, Batch, Records
from app.codecs.messages.tfrecord import decode, encode
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.schema import Schema
from app.runtime.budget import Budget
from app.runtime.streams import Buffer, MemoryStream
from tests.support.arrow_rows import arrow_schema, batches_from_arrow

COLUMNS, LISTS = "tf.train.Example from columns", "tf.train.Example from Python lists"
PARSE, VALUES, ALONE = "parse_example", "FromString with its values", "FromString alone"


@dataclass(frozen=True)
class Case:
    """Columns of one shape, and the least ratios aimed at, by peer."""

    name: str
    features: dict[str, Any]
    columns: dict[str, Any]
    targets: dict[str, float] = field(default_factory=dict)
    #: Rows that the slow peers take.
    peer_rows: int = 2000

    @property
    def schema(self) -> Schema:
        return Schema.from_json({"features": self.features})

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def num_peer_rows(self) -> int:
        return min(self.peer_rows, self.num_rows)

    def peer_columns(self) -> Iterator[dict[str, Any]]:
        """The rows that the slow peers take, out of the columns."""
        for row in range(self.num_peer_rows):
            yield {name: values[row] for name, values in self.columns.items()}

    def batches(self) -> list[Batch]:
        arrow = arrow_schema(self.schema)
        arrays = [_fixed(self.columns[column.name], column.type) for column in arrow]
        batch = pa.RecordBatch.from_arrays(arrays, schema=arrow)
        batches = [batch.slice(begin, MAX_BATCH_ROWS) for begin in range(0, self.num_rows, MAX_BATCH_ROWS)]
        return list(batches_from_arrow(self.schema, batches))


def _fixed(values: Any, kind: pa.DataType) -> Any:
    if isinstance(kind, pa.FixedSizeListType):
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), kind.list_size)
    return pa.array(values, kind)


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    rows = 200_000
    yield Case(
        "20 float32 + int64 + 16 bytes",
        {"x": {"dtype": "float32", "shape": [20]}, "label": {"dtype": "int64"}, "id": {"dtype": "bytes"}},
        {
            "x": rng.standard_normal((rows, 20), np.float32),
            "label": rng.integers(0, 1000, rows),
            "id": [rng.bytes(16) for _ in range(rows)],
        },
        {COLUMNS: 150, PARSE: 20, VALUES: 200},
    )
    yield Case(
        "64x64x3 float32 image, raw + int64",
        {
            "image": {"dtype": "float32", "shape": [64, 64, 3], "encoding": "raw"},
            "label": {"dtype": "int64"},
        },
        {"image": rng.standard_normal((1000, 64, 64, 3), np.float32), "label": rng.integers(0, 10, 1000)},
        {COLUMNS: 10, VALUES: 2},
        500,
    )
    yield Case(
        "40 float32 columns",
        {f"f{index:02}": {"dtype": "float32"} for index in range(40)},
        {f"f{index:02}": rng.standard_normal(4 * MAX_BATCH_ROWS, np.float32) for index in range(40)},
    )
    yield Case(
        "512 token ids",
        {"tokens": {"dtype": "int64", "shape": [512]}},
        {"tokens": rng.integers(0, 50_000, (16 * 1024, 512))},
    )
    yield Case(
        "100 kB of bytes",
        {"image": {"dtype": "bytes"}},
        {"image": [rng.bytes(100_000) for _ in range(500)]},
        peer_rows=500,
    )


def write(case: Case, batches: list[Batch]) -> Iterator[Buffer]:
    """As ours does."""
    return encode(Records(case.schema, iter(batches)), RecordsEncodeOptions(), Budget())


def read(case: Case, data: bytes) -> int:
    """How many rows there are."""
    records = decode(MemoryStream(data), RecordsDecodeOptions(schema=case.schema), Budget())
    return sum(batch.num_rows for batch in records.batches)
