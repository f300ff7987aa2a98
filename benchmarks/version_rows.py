"""A published version on a disk in memory, for benchmarks that read one. A row is

- `numbers`: 20 float32 and an int64;
- `articles`: an int64 that counts, two float32, 16 float32, one of ten labels, and a text of some 150 bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Final

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
from tests.support.arrow_rows import arrow_schema

__all__ = ["NAME", "WIDTH", "Version", "published"]

WIDTH = 20
NAME = "rows"
_NUMBERS: Final = Schema.from_json(
    {"features": {"x": {"dtype": "float32", "shape": [WIDTH]}, "label": {"dtype": "int64"}}}
)
_ARTICLES: Final = Schema.from_json(
    {
        "features": {
            "id": {"dtype": "int64"},
            "price": {"dtype": "float32"},
            "score": {"dtype": "float32"},
            "embedding": {"dtype": "float32", "shape": [16]},
            "label": {"dtype": "text"},
            "text": {"dtype": "text"},
        }
    }
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
def published(num_rows: int, num_shards: int, kind: str = "numbers") -> Iterator[Version]:
    """A version of so many rows."""
    schema, columns = _KINDS[kind]
    with memory_folder() as folder:
        datasets = Datasets(open_store(f"file://{folder}"), limits=Limits(), spool=Spool(None, 1 << 30))
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, arrow_schema(schema)) as writer:
            for batch in _batches(num_rows, schema, columns()):
                writer.write_batch(batch)
        request = AppendRequest(
            NAME, "train", "arrow", RecordsDecodeOptions(schema=schema), RecordsEncodeOptions()
        )
        body = AppendBody.in_memory(sink.getvalue(), Limits(), Spool(None, 1 << 30))
        datasets.append(request, body).result()
        manifest = datasets.publish(NAME, PublishOptions(num_shards=num_shards))
        shards = manifest.splits["train"].shards
        yield Version(datasets, [str(Path(folder) / NAME / manifest.version / s.file) for s in shards])


def _numbers() -> Iterator[list[pa.Array[Any]]]:
    values = np.random.default_rng(0).random(MAX_BATCH_ROWS * WIDTH, np.float32)
    return repeat([pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH)])


def _articles() -> Iterator[list[pa.Array[Any]]]:
    random = np.random.default_rng(0)
    words = np.array([f"word{word}" for word in range(5000)])
    count = MAX_BATCH_ROWS
    while True:
        embedding = random.normal(size=16 * count).astype(np.float32)
        texts = words[random.zipf(1.3, (count, 20)) % len(words)]
        yield [
            pa.array(random.lognormal(3, 1, count).astype(np.float32)),
            pa.array(np.round(random.random(count), 2).astype(np.float32)),
            pa.FixedSizeListArray.from_arrays(pa.array(embedding), 16),
            pa.array([f"label {label}".encode() for label in random.integers(10, size=count)]),
            pa.array([" ".join(text).encode() for text in texts.tolist()]),
        ]


_KINDS: Final[dict[str, tuple[Schema, Callable[[], Iterator[list[pa.Array[Any]]]]]]] = {
    "numbers": (_NUMBERS, _numbers),
    "articles": (_ARTICLES, _articles),
}


def _batches(
    num_rows: int, schema: Schema, columns: Iterator[list[pa.Array[Any]]]
) -> Iterator[pa.RecordBatch]:
    """The columns, beside an integer that counts, which comes where the schema has it."""
    (place,) = (place for place, feature in enumerate(schema) if feature.dtype.name == "int64")
    for begin in range(0, num_rows, MAX_BATCH_ROWS):
        count = min(MAX_BATCH_ROWS, num_rows - begin)
        counted = [column.slice(0, count) for column in next(columns)]
        counted.insert(place, pa.array(np.arange(begin, begin + count)))
        yield pa.RecordBatch.from_arrays(counted, schema=arrow_schema(schema))
