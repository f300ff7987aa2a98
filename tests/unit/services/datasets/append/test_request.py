"""A request that appends and publishes: one incarnation of the dataset from its first step to its last."""

import io
from collections.abc import Callable
from typing import Literal

import pyarrow as pa
import pytest

from app.codecs.forms import FormName
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import MIB
from app.domain.manifest import Manifest
from app.domain.schema import Message, Schema
from app.errors import (
    Conflict,
    LossyConversion,
    Overloaded,
    SchemaConflict,
    ShardsmithError,
    StreamInterrupted,
)
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import MemoryStream
from app.runtime.workspace import Workspace
from app.services.datasets import publications
from app.services.datasets.append.request import AppendBody, AppendRequest
from app.services.datasets.datasets import Appended
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import ObstoreStore
from tests.support.arrow_rows import as_arrow
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, Operation, When, keys

X = Schema.from_json({"features": {"x": {"dtype": "float32"}}})


class Deleting(MemoryStream):
    """A body during whose arrival something happens."""

    def __init__(self, data: bytes, event: Callable[[], None]) -> None:
        super().__init__(data)
        self._event = event

    def read(self, n: int, /) -> bytes:
        piece = super().read(n)
        if not piece:
            self._event()
        return piece


def append(
    client: Client,
    body: bytes = b'[{"x": 1}]',
    *,
    schema: Schema | None = None,
    message: Message | None = None,
    publish: bool = False,
    key: str | None = None,
    evolve: bool = False,
    form: FormName = "json",
    undeclared: Literal["error", "drop"] = "error",
    event: Callable[[], None] = lambda: None,
    digest: str = "digest",
) -> Appended:
    request = AppendRequest(
        dataset="d",
        split="train",
        form=form,
        key=key,
        decode=RecordsDecodeOptions(schema=schema, message=message, undeclared=undeclared),
        encode=RecordsEncodeOptions(),
        publish=PublishOptions() if publish else None,
        evolve=evolve,
    )
    with Workspace(Budget(), Spool(None, 16 * MIB)) as workspace:
        arriving = AppendBody(Deleting(body, event), lambda: digest, workspace)
        return client.datasets.append(request, arriving).result()


def test_rows_are_stored_and_published(client: Client) -> None:
    stored = append(client)
    assert (stored.stored.dataset, stored.published) == ("d", None)
    published = append(client, publish=True)
    assert isinstance(published.published, Manifest)
    assert published.published.version == "1.0.0"
    assert published.published.splits["train"].num_records == 2
    assert published.stored.num_records == 1


def test_rows_whose_reader_stops_before_the_end_are_stored_once_the_body_is_whole(client: Client) -> None:
    table = pa.table({"x": pa.array([1, 2], pa.int64())})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)

    def leave() -> None:
        raise StreamInterrupted("The client went away.")

    with pytest.raises(StreamInterrupted):
        append(client, sink.getvalue(), form="arrow", publish=True, event=leave)
    assert keys(client.store, "/slots/") == keys(client.store, "/parts/") == []


def test_rows_are_read_by_the_schema_of_the_dataset(client: Client) -> None:
    client.datasets.create("d", X, DatasetOptions())
    append(client, publish=True)
    assert client.read() == [1.0]
    assert isinstance(client.read()[0], float)


def test_a_declared_schema_may_name_the_features_in_another_order(client: Client) -> None:
    y = Schema.from_json({"features": {"y": {"dtype": "int64"}}})
    client.datasets.create("d", Schema((*X, *y)), DatasetOptions())
    append(client, b'[{"x": 1, "y": 2}]', schema=Schema((*y, *X)))
    with pytest.raises(SchemaConflict) as caught:
        append(client, schema=X)
    assert caught.value.extra == {"schema": Schema((*X, *y)).to_json()}


@pytest.mark.parametrize("created_anew", [True, False])
def test_the_schema_of_a_deleted_dataset_is_not_handed_on(client: Client, created_anew: bool) -> None:
    client.datasets.create("d", X, DatasetOptions())

    def event() -> None:
        if client.datasets.schema("d") == X:
            client.datasets.delete("d")
            if created_anew:
                client.datasets.create("d", None, DatasetOptions())

    with pytest.raises(Conflict) as caught:
        append(client, key="k", event=event)
    assert caught.value.code == "dataset_deleted"
    assert client.datasets.schema("d") is None
    assert (client.datasets.list() == ["d"]) is created_anew


@pytest.mark.parametrize("created_anew", [True, False])
def test_publication_of_another_dataset_is_not_returned(inner: ObstoreStore, created_anew: bool) -> None:
    other = Client(inner)

    def fault(when: When, operation: Operation, key: str) -> None:
        if when == "after" and operation == "create" and "/slots/" in key:
            other.datasets.delete("d")
            if created_anew:
                other.append([9])

    with pytest.raises(ShardsmithError) as caught:
        append(Client(FaultStore(inner, fault)), publish=True)
    assert caught.value.code == "dataset_deleted"
    assert caught.value.extra.keys() == {"append_id"}
    if created_anew:
        assert list(other.datasets.versions("d")) == []


@pytest.mark.parametrize("body", [b"[{}]", b'[{"x": null}]'])
def test_rows_without_a_value_create_no_dataset(client: Client, body: bytes) -> None:
    with pytest.raises(ShardsmithError) as caught:
        append(client, body)
    assert caught.value.code == "no_features"
    assert list(client.datasets.list()) == []


def test_a_message_other_than_that_of_the_dataset_is_refused(client: Client) -> None:
    append(client)
    append(client, message="example")
    with pytest.raises(SchemaConflict, match="those of the dataset are examples"):
        append(client, message="sequence_example")


Y = Schema.from_json({"features": {"y": {"dtype": "int64"}}})


def other_replica_widens(client: Client) -> None:
    append(Client(client.store), b'[{"x": 1, "y": 2}]', key="wide", evolve=True)


def test_small_append_goes_to_the_recreated_dataset(client: Client, inner: ObstoreStore) -> None:
    append(client, b'[{"x": 1}]')
    append(client, b'[{"x": 1}]')  # its schema is remembered from here on
    other = Client(inner)
    other.datasets.delete("d")
    other.datasets.create("d", X, DatasetOptions())
    append(client, b'[{"x": 2}]', publish=False)
    client.publish()
    assert client.read() == [2.0]
    assert client.datasets.get("d").generation == 2


def test_a_small_append_creates_the_dataset_that_was_deleted_meanwhile(
    client: Client, inner: ObstoreStore
) -> None:
    append(client)
    append(client)
    Client(inner).datasets.delete("d")
    append(client, b'[{"y": 7}]')
    assert client.datasets.schema("d") == Y


def test_rows_are_refused_by_the_schema_that_there_is_and_not_by_the_remembered_one(client: Client) -> None:
    append(client)
    append(client)
    other_replica_widens(client)
    append(client, b'[{"x": 3, "y": 4}]')
    client.publish()
    rows = client.datasets.read_records("d", "latest", "train", budget=Budget())
    assert [batch.column("y").to_pylist() for batch in as_arrow(rows)] == [[None, None, 2, 4]]


def test_a_small_append_that_is_outdated_when_it_is_stored_is_read_again(
    inner: ObstoreStore,
) -> None:
    store = FaultStore(inner)
    client = Client(store)
    append(client)
    append(client)

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "head" and key.endswith(".end"):
            store.fault = None
            other_replica_widens(client)

    store.fault = fault
    append(client, b'[{"x": 3}]')
    client.publish()
    assert sorted(client.read()) == [1.0, 1.0, 1.0, 3.0]


def test_a_small_append_asks_the_store_only_what_its_group_asks(inner: ObstoreStore) -> None:
    store = FaultStore(inner)
    client = Client(store)
    append(client)
    append(client)
    store.requests.clear()
    append(client)
    assert [operation for operation, _ in store.requests] == ["head", "head", "create"]


@pytest.mark.parametrize("length", [1, 100_000])
def test_append_goes_to_the_dataset_recreated_elsewhere(
    client: Client, inner: ObstoreStore, length: int
) -> None:
    """Whether they share a slot or take one of their own."""
    body = b'[{"x": "%s"}]' % (b"a" * length)
    first = append(client, body)
    client.datasets.schema("d")  # which is remembered
    other = Client(inner)
    other.datasets.delete("d")
    append(other, body)
    stored = append(client, body)
    assert stored.stored.append_id != first.stored.append_id
    assert other.publish().splits["train"].num_records == 2


@pytest.mark.parametrize("size", [300_000, 3_000_000])
def test_a_body_that_is_not_small_goes_alone(client: Client, size: int) -> None:
    append(client)
    row = b'{"x": 1}'
    body = b"[" + b" " * size + row + b"]"
    assert append(client, body).stored.num_records == 1


def test_a_repetition_gets_its_answer_also_where_its_schema_has_been_widened_since(client: Client) -> None:
    declared = Schema.from_json({"features": {"x": {"dtype": "int64"}}})
    stored = append(client, schema=declared, key="k")
    append(client, b'[{"x": 1, "y": 2}]', key="wide", evolve=True)
    with pytest.raises(SchemaConflict):
        append(client, schema=declared, key="another")
    assert append(client, schema=declared, key="k").stored.to_json() == stored.stored.to_json()
    published = append(client, schema=declared, key="k", publish=True)
    assert published.stored.to_json() == stored.stored.to_json()
    assert sorted(client.read()) == [1, 1]


def test_a_key_that_was_used_for_something_else_does_not_hide_what_is_wrong(client: Client) -> None:
    append(client, key="k")
    with pytest.raises(LossyConversion):
        append(client, b'[{"x": "text"}]', key="k", digest="another")


def test_rows_without_a_key_are_not_stored_where_they_cannot_be_published(
    store: FaultStore, inner: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publications, "_CAPACITY", 0)
    with pytest.raises(Overloaded):
        append(Client(store), publish=True)
    assert list(inner.list("")) == []


def test_keyed_append_is_stored_when_publication_is_refused(
    store: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(store)
    with monkeypatch.context() as full:
        full.setattr(publications, "_CAPACITY", 0)
        with pytest.raises(Overloaded) as caught:
            append(client, publish=True, key="k")
    assert client.datasets.get_append("d", str(caught.value.extra["append_id"]))["state"] == "acknowledged"
    assert append(client, publish=True, key="k").stored.num_records == 1
