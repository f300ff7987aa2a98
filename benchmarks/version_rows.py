"""A published version on a disk in memory, for benchmarks that read one: 20 float32 and an int64 a row."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from app.codecs.columns import MAX_BATCH_ROWS, Records
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.services.datasets.append.request import AppendBody, AppendRequest
from app.services.datasets.datasets import Datasets
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import open_store
from benchmarks.measure import memory_folder
from tests.arrow_rows import arrow_schema

__all__ = ["NAME", "WIDTH", "Version", "published"]

WIDTH = 20
NAME = "rows"
_SCHEMA = Schema.from_json(
    {"features": {"x": {"dtype": "float32", "shape": [WIDTH]}, "label": {"dtype": "int64"}}}
)


@dataclass(frozen=True)
class Version:
    """The version, and its shards in order."""

    datasets: Datasets
    files: list[str]

    def rows(self, **parameters: Any) -> Records:
        """As `Datasets.read_records`."""
        return self.datasets.read_records(NAME, "latest", "train", budget=Budget(), **parameters)


@contextmanager
def published(num_rows: int, num_shards: int) -> Iterator[Version]:
    """A version of so many rows."""
    with memory_folder() as folder:
        datasets = Datasets(open_store(f"file://{folder}"), limits=Limits(), spool=Spool(None, 1 << 30))
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, arrow_schema(_SCHEMA)) as writer:
            for batch in _batches(num_rows):
                writer.write_batch(batch)
        request = AppendRequest(
            NAME, "train", "arrow", RecordsDecodeOptions(schema=_SCHEMA), RecordsEncodeOptions()
        )
        body = AppendBody.in_memory(sink.getvalue(), Limits(), Spool(None, 1 << 30))
        datasets.append(request, body).result()
        manifest = datasets.publish(NAME, PublishOptions(num_shards=num_shards))
        shards = manifest.splits["train"].shards
        yield Version(datasets, [str(Path(folder) / NAME / manifest.version / s.file) for s in shards])


def _batches(num_rows: int) -> Iterator[pa.RecordBatch]:
    values = np.random.default_rng(0).random(MAX_BATCH_ROWS * WIDTH, np.float32)
    x = pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH)
    for begin in range(0, num_rows, MAX_BATCH_ROWS):
        count = min(MAX_BATCH_ROWS, num_rows - begin)
        label = pa.array(np.arange(begin, begin + count))
        yield pa.RecordBatch.from_arrays([x.slice(0, count), label], schema=arrow_schema(_SCHEMA))
