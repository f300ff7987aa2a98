"""Collection in the background: every dataset in turn, until it is stopped."""

import logging
import threading
from datetime import timedelta

import pytest

from app.errors import StorageUnavailable
from app.services.datasets.background import BackgroundCollection
from app.storage.obstore_store import open_store
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, Operation, TimedStore, When
from tests.support.waiting import wait_for


def leftover(client: Client, inner: TimedStore, name: str) -> str:
    client.append([1], name=name)
    key = f"{name}/_g1/parts/{'0' * 32}/attempt/0"
    inner.put(key, b"part")
    return key


def test_every_dataset_is_collected_and_a_failing_one_leaves_the_others_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = TimedStore(open_store("memory://"))
    store = FaultStore(inner)
    client = Client(store)
    keys = {name: leftover(client, inner, name) for name in ("a", "b", "c")}
    client.datasets.delete("c")
    inner.advance(timedelta(hours=25))

    def fault(at: When, operation: Operation, key: str) -> None:
        if operation == "list" and key == "a":
            raise StorageUnavailable("no answer")

    store.fault = fault
    with caplog.at_level(logging.INFO, "app.services.datasets.background"):
        BackgroundCollection(client.datasets, 1).run_once()
    left = [info.key for info in inner.list("") if "/parts/" in info.key]
    assert left == [keys["a"]]
    assert "collection of a failed" in caplog.text
    assert "'dataset': 'b'" in caplog.text


def test_collection_runs_until_stopped() -> None:
    inner = TimedStore(open_store("memory://"))
    client = Client(inner)
    key = leftover(client, inner, "d")
    inner.advance(timedelta(hours=25))
    collection = BackgroundCollection(client.datasets, 0.01)
    collection.start()
    wait_for(lambda: key not in [info.key for info in inner.list("d")])
    collection.stop()
    assert "collect" not in [thread.name for thread in threading.enumerate()]


def test_collection_survives_a_failing_store() -> None:
    inner = TimedStore(open_store("memory://"))
    store = FaultStore(inner)
    client = Client(store)
    failures: list[Exception] = [StorageUnavailable("no answer"), ValueError("a defect")]
    met = threading.Event()

    def fault(at: When, operation: Operation, key: str) -> None:
        if at == "before" and (operation, key) == ("list", ""):
            if failures:
                raise failures.pop()
            met.set()

    store.fault = fault
    collection = BackgroundCollection(client.datasets, 0.01)
    collection.start()
    assert met.wait(20)
    collection.stop()


def test_switched_off_it_does_nothing() -> None:
    client = Client(open_store("memory://"))
    collection = BackgroundCollection(client.datasets, 0)
    collection.start()
    assert "collect" not in [thread.name for thread in threading.enumerate()]
    collection.stop()
