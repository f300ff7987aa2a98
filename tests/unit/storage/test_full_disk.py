"""A local store whose disk is full says so, shows no half object, and goes on once there is room."""

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from app.errors import StorageFull
from app.storage.object_store import ObjectNotFound, ObjectStore
from app.storage.obstore_store import open_store
from app.storage.probe import probe_store
from tests.support.mounts import mounted

TOO_LARGE = bytes(3 << 20)
ROOM = 2 << 20
WRITES: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("a/b", TOO_LARGE),
    "create": lambda store: store.create("a/b", TOO_LARGE),
    "put_stream": lambda store: store.put_stream("a/b", [bytes(1 << 20)] * 24),
}
Full = Callable[[Path], AbstractContextManager[None]]


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    with mounted(folder, f"size={ROOM}"):
        yield


@contextmanager
def small_files(folder: Path) -> Iterator[None]:
    """No file of this process may grow further: what a quota does, without any privilege."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("full", [small_disk, small_files], ids=lambda full: full.__name__)
@pytest.mark.parametrize("write", WRITES)
def test_a_full_disk_is_said_to_be_full(tmp_path: Path, full: Full, write: str) -> None:
    with full(tmp_path):
        store = open_store(f"file://{tmp_path}")
        store.put("before", b"was there")
        with pytest.raises(StorageFull) as caught:
            WRITES[write](store)
        assert caught.value.code == "storage_full"
        assert [info.key for info in store.list("")] == ["before"]
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["before"]
        with pytest.raises(ObjectNotFound):
            store.get("a/b")
        probe_store(store)


def test_store_recovers_when_space_is_freed(tmp_path: Path) -> None:
    with small_disk(tmp_path):
        store = open_store(f"file://{tmp_path}")
        store.put("filler", bytes(ROOM - (64 << 10)))
        for _ in range(2):
            with pytest.raises(StorageFull):
                store.create("a", bytes(1 << 20))
        store.delete("filler")
        store.create("a", bytes(1 << 20))
        assert store.head("a").size == 1 << 20


def test_object_on_a_full_disk_is_whole_or_absent(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    with small_files(tmp_path), pytest.raises(StorageFull):
        store.create("a", TOO_LARGE)
    store.create("a", TOO_LARGE)
    assert store.get("a") == TOO_LARGE
