"""Datasets of SequenceExamples: the same road as Examples, without what TFDS could not read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from app.codecs.options import RecordsEncodeOptions
from app.domain.manifest import Manifest
from app.domain.schema import Schema
from app.errors import NotFound
from app.runtime.budget import Budget
from app.services.datasets.objects.layout import DATASET_INFO, FEATURES, PBTXT
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import ObstoreStore
from tests.support.arrow_rows import arrow_schema, as_arrow, from_arrow
from tests.support.dataset_rows import Client, store_rows
from tests.support.faulty_store import FaultStore

SCHEMA = Schema.from_json(
    {
        "features": {
            "id": {"dtype": "int64"},
            "words": {"dtype": "text", "shape": [None, None], "kind": "ragged", "nullable": True},
            "frame": {"dtype": "float32", "shape": [None, 2], "kind": "sequence", "nullable": True},
        }
    }
)
ROWS: list[dict[str, Any]] = [
    {"id": 0, "words": [[b"a"], []], "frame": [[1.0, 2.0], [3.0, 4.0]]},
    {"id": 1, "words": None, "frame": []},
    {"id": 2, "words": [], "frame": None},
]


def append(client: Client, rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SCHEMA))
    store_rows(
        client.datasets,
        "d", "train", from_arrow(SCHEMA, iter([batch])),
        key=None, digest=str, options=RecordsEncodeOptions(), budget=Budget(),
    )  # fmt: skip


def read(client: Client, offset: int = 0) -> list[dict[str, Any]]:
    records = client.datasets.read_records(
        "d", "latest", "train", offset=offset, length=None, budget=Budget()
    )
    assert records.schema == SCHEMA
    return [row for batch in as_arrow(records) for row in batch.to_pylist()]


def test_rows_are_appended_published_and_read_back(inner: ObstoreStore) -> None:
    client = Client(inner)
    append(client, ROWS)
    client.publish(PublishOptions(num_shards=2))
    assert read(client) == ROWS
    append(client, ROWS[:1])
    client.publish()
    assert read(Client(inner), offset=1) == [*ROWS[1:], ROWS[0]]


def test_no_files_are_written_for_a_reader_that_knows_no_sequence_examples(inner: ObstoreStore) -> None:
    client = Client(inner)
    append(client, ROWS)
    manifest: Manifest = client.publish()
    assert PBTXT in manifest.by_file
    for name in (FEATURES, DATASET_INFO):
        assert name not in manifest.by_file
        with pytest.raises(NotFound):
            client.datasets.open_file("d", "latest", name)
    assert not [info.key for info in inner.list("d/1.0.0") if info.key.endswith((FEATURES, DATASET_INFO))]


def test_publication_does_not_wait_for_absent_appends(inner: ObstoreStore) -> None:
    client = Client(inner)
    append(client, ROWS)
    client.publish()
    append(client, ROWS[:1])
    store = FaultStore(inner)
    Client(store).publish()
    assert not [key for _, key in store.requests if key.endswith(DATASET_INFO)]
