"""Every operation of a store is counted once, with what became of it, and its bytes."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

import pytest

from app.errors import StorageError, StorageFull, StorageUnavailable
from app.runtime.streams import Buffer
from app.storage.object_store import AlreadyExists, ObjectNotFound
from app.storage.observed import ObservedStore
from app.storage.obstore_store import ObstoreStore, open_store
from app.telemetry.metrics import REGISTRY

COUNT = "shardsmith_store_operation_duration_seconds_count"


@pytest.fixture
def store() -> ObservedStore:
    observed = ObservedStore(open_store("memory://"))
    observed.put("a/b", b"12345")
    return observed


def count(operation: str, outcome: str) -> float:
    return REGISTRY.get_sample_value(COUNT, {"operation": operation, "outcome": outcome}) or 0.0


def value(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


OPERATIONS: list[tuple[str, Callable[[ObservedStore], object], int, int]] = [
    ("put", lambda store: store.put("x", b"123"), 0, 3),
    ("create", lambda store: store.create("x", memoryview(b"1234")), 0, 4),
    ("put_stream", lambda store: store.put_stream("x", iter([b"12", b"3"])), 0, 3),
    ("get", lambda store: store.get("a/b"), 5, 0),
    ("get_range", lambda store: store.get_range("a/b", 1, 2), 2, 0),
    ("read_into", lambda store: store.read_into("a/b", 2, memoryview(bytearray(9))), 3, 0),
    ("head", lambda store: store.head("a/b"), 0, 0),
    ("list", lambda store: list(store.list("a")), 0, 0),
    ("list_children", lambda store: store.list_children(""), 0, 0),
    ("delete", lambda store: store.delete("a/b"), 0, 0),
    ("copy", lambda store: store.copy("a/b", "c"), 0, 0),
    ("sweep", lambda store: store.sweep("a", datetime.now(UTC)), 0, 0),
]


@pytest.mark.parametrize(
    ("name", "do", "num_read", "num_written"), OPERATIONS, ids=[o[0] for o in OPERATIONS]
)
def test_an_operation_is_counted_with_its_bytes(
    store: ObservedStore, name: str, do: Callable[[ObservedStore], object], num_read: int, num_written: int
) -> None:
    before = count(name, "ok")
    read, written = value("shardsmith_store_read_bytes_total"), value("shardsmith_store_written_bytes_total")
    do(store)
    assert count(name, "ok") == before + 1
    assert value("shardsmith_store_read_bytes_total") == read + num_read
    assert value("shardsmith_store_written_bytes_total") == written + num_written


class _Failing(ObstoreStore):
    """Raises the same error in every operation."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def put(self, key: str, data: Buffer) -> None:
        raise self._error


FAILURES = [
    (ObjectNotFound("x"), "not_found"),
    (AlreadyExists("x"), "exists"),
    (StorageFull("x"), "full"),
    (StorageUnavailable("x"), "unavailable"),
    (StorageError("x", code="storage_denied"), "denied"),
    (StorageError("x"), "error"),
    (ValueError("x"), "error"),
]


@pytest.mark.parametrize(("error", "outcome"), FAILURES)
def test_a_failure_is_counted_as_what_it_is(error: Exception, outcome: str) -> None:
    before, ok = count("put", outcome), count("put", "ok")
    written = value("shardsmith_store_written_bytes_total")
    with pytest.raises(type(error)):
        ObservedStore(_Failing(error)).put("x", b"1")
    assert count("put", outcome) == before + 1
    assert count("put", "ok") == ok
    assert value("shardsmith_store_written_bytes_total") == written


def test_failing_source_is_not_counted_as_a_store_failure(store: ObservedStore) -> None:
    def chunks() -> Iterable[Buffer]:
        yield b"1"
        raise StorageUnavailable("another object could not be read")

    abandoned, failed = count("put_stream", "abandoned"), count("put_stream", "unavailable")
    with pytest.raises(StorageUnavailable):
        store.put_stream("x", chunks())
    assert count("put_stream", "abandoned") == abandoned + 1
    assert count("put_stream", "unavailable") == failed


def test_a_listing_that_is_not_drawn_to_its_end_is_counted_once(store: ObservedStore) -> None:
    before = count("list", "ok")
    listing: Iterator[object] = store.list("a")
    next(listing)
    del listing
    assert count("list", "ok") == before + 1


def test_wait_for_the_source_is_not_store_time(store: ObservedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("app.storage.observed.time.monotonic", lambda: now)

    def chunks() -> Iterable[Buffer]:
        nonlocal now
        now += 100
        yield b"1"
        now += 100

    labels = {"operation": "put_stream", "outcome": "ok"}
    name = COUNT.replace("_count", "_sum")
    before = REGISTRY.get_sample_value(name, labels) or 0.0
    store.put_stream("x", chunks())
    assert REGISTRY.get_sample_value(name, labels) == before
