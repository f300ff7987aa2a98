"""Rows for tests of datasets: one int64 feature `x`, and a client that counts on it."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from app.codecs.columns import Records
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import Limits
from app.domain.manifest import Manifest
from app.domain.schema import Schema
from app.runtime.budget import Budget
from app.runtime.memory import MemoryPool
from app.runtime.spool import Spool
from app.runtime.streams import MemoryStream
from app.runtime.workspace import Workspace
from app.services.datasets.append.request import AppendBody, AppendRequest
from app.services.datasets.append.result import AppendResult
from app.services.datasets.datasets import Datasets
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.object_store import ObjectStore
from tests.support.arrow_rows import arrow_schema, as_arrow, from_arrow

SCHEMA = Schema.from_json({"features": {"x": {"dtype": "int64"}}})
PADDED = Schema.from_json({"features": {"x": {"dtype": "int64"}, "pad": {"dtype": "bytes"}}})


def records(values: Iterable[int], *, pad: int | None = None) -> Records:
    """A row for each value; with `pad`, each also has that many bytes of no meaning."""
    return from_arrow(SCHEMA if pad is None else PADDED, _batches(list(values), pad))


def _batches(values: list[int], pad: int | None) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(SCHEMA if pad is None else PADDED)
    step = 1000 if pad is None else max(1, 4_000_000 // (pad + 1))
    for begin in range(0, len(values), step):
        chunk = values[begin : begin + step]
        columns: list[pa.Array[Any]] = [pa.array(chunk, pa.int64())]
        if pad is not None:
            columns.append(pa.array([bytes([value % 256]) * pad for value in chunk], pa.binary()))
        yield pa.record_batch(columns, schema=schema)


@dataclass(frozen=True, slots=True)
class RowsBody(AppendBody):
    """A body whose rows need no decoding."""

    rows: Callable[[], Records]

    def read_rows(self, request: AppendRequest, stored: Schema | None) -> Records:
        return self.rows()


def rows_body(
    rows: Callable[[], Records], *, digest: Callable[[], str] = str, budget: Budget | None = None
) -> RowsBody:
    workspace = Workspace(budget or Budget(), Spool(None, 1 << 30))
    return RowsBody(MemoryStream(b""), digest, workspace, rows)


def store_rows(
    datasets: Datasets,
    name: str,
    split: str,
    rows: Records,
    *,
    key: str | None = None,
    digest: Callable[[], str] = str,
    options: RecordsEncodeOptions | None = None,
    budget: Budget | None = None,
    sequence: int | None = None,
    evolve: bool = False,
) -> AppendResult:
    """Store rows by a slot of their own."""
    request = AppendRequest(
        name,
        split,
        "json",
        RecordsDecodeOptions(),
        options or RecordsEncodeOptions(),
        key=key,
        sequence=sequence,
        evolve=evolve,
    )
    body = rows_body(lambda: rows, digest=digest, budget=budget)
    return datasets._appends.store(request, body, datasets._catalog.destination(name))


class Client:
    """One replica of the service and somebody who uses it: dataset `d`, split `train` unless said."""

    def __init__(
        self,
        store: ObjectStore,
        limits: Limits | None = None,
        executor: ThreadPoolExecutor | None = None,
        memory: MemoryPool | None = None,
    ) -> None:
        self.store = store
        self.datasets = Datasets(
            store, limits=limits or Limits(), spool=Spool(None, 1 << 30), memory=memory, executor=executor
        )

    def append(
        self,
        values: Iterable[int],
        *,
        key: str | None = None,
        digest: str | None = None,
        split: str = "train",
        name: str = "d",
        pad: int | None = None,
    ) -> AppendResult:
        values = list(values)
        rows = records(values, pad=pad)
        return store_rows(
            self.datasets, name, split, rows, key=key, digest=lambda: digest or f"{split}:{values}"
        )

    def publish(self, options: PublishOptions | None = None, *, wants: str | None = None) -> Manifest:
        return self.datasets.publish("d", options or PublishOptions(), wants=wants)

    def read(
        self, version: str = "latest", split: str = "train", *, offset: int = 0, length: int | None = None
    ) -> list[int]:
        rows = self.datasets.read_records("d", version, split, offset=offset, length=length, budget=Budget())
        values: list[Any] = [value for batch in as_arrow(rows) for value in batch.column("x").to_pylist()]
        return values
