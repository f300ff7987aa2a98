"""What every object store must do; each implementation inherits the suite.

`raw_get` and `raw_set` go around the code under test.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from app.errors import StorageError
from app.storage.object_store import AlreadyExists, ObjectNotFound
from app.storage.obstore_store import ObstoreStore, open_store
from app.storage.probe import probe_store


class StoreContract:
    @pytest.fixture
    def store(self) -> ObstoreStore:
        raise NotImplementedError

    def raw_get(self, key: str) -> bytes:
        raise NotImplementedError

    def raw_set(self, key: str, data: bytes) -> None:
        raise NotImplementedError

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 1000])
    def test_put_stores_the_bytes(self, store: ObstoreStore, data: bytes) -> None:
        store.put("a/b", data)
        assert self.raw_get("a/b") == data

    def test_put_replaces_what_is_there(self, store: ObstoreStore) -> None:
        self.raw_set("a", b"old and longer")
        store.put("a", b"new")
        assert self.raw_get("a") == b"new"

    def test_put_does_not_keep_the_buffer(self, store: ObstoreStore) -> None:
        buffer = bytearray(b"before")
        store.put("a", memoryview(buffer))
        buffer[:] = b"after!"
        assert self.raw_get("a") == b"before"

    def test_create_stores_the_bytes(self, store: ObstoreStore) -> None:
        store.create("a/b", b"first")
        assert self.raw_get("a/b") == b"first"

    def test_create_leaves_what_is_there(self, store: ObstoreStore) -> None:
        self.raw_set("a", b"first")
        with pytest.raises(AlreadyExists):
            store.create("a", b"second")
        assert self.raw_get("a") == b"first"

    def test_of_racing_creators_one_wins(self, store: ObstoreStore) -> None:
        def create(body: bytes) -> bool:
            try:
                store.create("race", body)
            except AlreadyExists:
                return False
            return True

        bodies = [bytes([i]) * 1000 for i in range(16)]
        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(create, bodies))
        assert won.count(True) == 1
        assert self.raw_get("race") == bodies[won.index(True)]

    @pytest.mark.parametrize("chunks", [[], [b""], [b"x"], [b"ab", b"", b"c"], [b"z" * (9 << 20)] * 4])
    def test_put_stream_stores_the_chunks_in_order(self, store: ObstoreStore, chunks: list[bytes]) -> None:
        assert store.put_stream("a/b", iter(chunks)) == sum(map(len, chunks))
        assert self.raw_get("a/b") == b"".join(chunks)

    def test_put_stream_copies_each_chunk_before_it_draws_the_next(self, store: ObstoreStore) -> None:
        def chunks() -> Iterator[memoryview]:
            buffer = bytearray(1 << 20)
            for value in range(40):
                buffer[:] = bytes([value]) * len(buffer)
                yield memoryview(buffer)

        store.put_stream("a", chunks())
        assert self.raw_get("a") == b"".join(bytes([value]) * (1 << 20) for value in range(40))

    @pytest.mark.parametrize("size", [1, 40 << 20])
    def test_a_stream_that_breaks_leaves_nothing(self, store: ObstoreStore, size: int) -> None:
        def chunks() -> Iterator[bytes]:
            for _ in range(0, size, 1 << 20):
                yield b"x" * min(size, 1 << 20)
            raise LookupError("broken")

        with pytest.raises(LookupError, match="broken"):
            store.put_stream("a/b", chunks())
        assert list(store.list("")) == []
        self.check_no_leftovers()

    def check_no_leftovers(self) -> None:
        """Nothing that a list would hide is left either."""

    def test_get_returns_the_bytes(self, store: ObstoreStore) -> None:
        self.raw_set("a/b", b"0123456789")
        assert store.get("a/b") == b"0123456789"

    @pytest.mark.parametrize(
        ("offset", "length", "expected"),
        [(0, 10, b"0123456789"), (2, 3, b"234"), (8, 5, b"89"), (4, 0, b""), (10, 1, b""), (99, 1, b"")],
    )
    def test_get_range_ends_where_the_object_ends(
        self, store: ObstoreStore, offset: int, length: int, expected: bytes
    ) -> None:
        self.raw_set("a", b"0123456789")
        assert store.get_range("a", offset, length) == expected

    def test_head_tells_size_and_time(self, store: ObstoreStore) -> None:
        self.raw_set("a/b", b"12345")
        info = store.head("a/b")
        assert (info.key, info.size) == ("a/b", 5)
        assert abs((datetime.now(UTC) - info.last_modified).total_seconds()) < 60

    @pytest.mark.parametrize("operation", ["get", "head", "get_range"])
    @pytest.mark.parametrize("key", ["missing", "folder/missing", "folder"])
    def test_what_is_not_there_is_not_found(self, store: ObstoreStore, operation: str, key: str) -> None:
        self.raw_set("folder/object", b"x")
        arguments = (key, 0, 1) if operation == "get_range" else (key,)
        with pytest.raises(ObjectNotFound):
            getattr(store, operation)(*arguments)

    def test_list_finds_everything_below_a_folder(self, store: ObstoreStore) -> None:
        for key in ("a/x", "a/b/y", "ab/z", "c"):
            self.raw_set(key, key.encode())
        assert {info.key for info in store.list("")} == {"a/x", "a/b/y", "ab/z", "c"}
        assert {(info.key, info.size) for info in store.list("a")} == {("a/x", 3), ("a/b/y", 5)}
        assert list(store.list("nowhere")) == []

    def test_list_goes_past_one_page(self, store: ObstoreStore) -> None:
        keys = {f"many/{i:04d}" for i in range(2100)}
        for key in keys:
            self.raw_set(key, b"")
        listed = [info.key for info in store.list("many")]
        assert len(listed) == len(keys)
        assert set(listed) == keys

    def test_list_children_names_folders_only(self, store: ObstoreStore) -> None:
        for key in ("b/x", "a/b/y", "a/c/z", "a/object", "object"):
            self.raw_set(key, b"")
        assert list(store.list_children("")) == ["a", "b"]
        assert list(store.list_children("a")) == ["b", "c"]
        assert list(store.list_children("nowhere")) == []

    def test_delete_removes(self, store: ObstoreStore) -> None:
        self.raw_set("a/b", b"x")
        store.delete("a/b")
        with pytest.raises(ObjectNotFound):
            store.get("a/b")

    def test_delete_of_what_is_not_there_is_fine(self, store: ObstoreStore) -> None:
        self.raw_set("a/c", b"x")
        store.delete("a/b")
        store.delete("nowhere/b")
        assert self.raw_get("a/c") == b"x"

    @pytest.mark.parametrize("key", ["../a", "a/../b", "a\0b", "a//b"])
    def test_a_key_that_is_no_path_is_refused(self, store: ObstoreStore, key: str) -> None:
        with pytest.raises(StorageError):
            store.put(key, b"x")
        assert list(store.list("")) == []

    def test_the_probe_trusts_it_and_leaves_nothing(self, store: ObstoreStore) -> None:
        probe_store(store)
        assert list(store.list("")) == []


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObstoreStore:
        self.backend = MemoryStore()
        return ObstoreStore(self.backend)

    def raw_get(self, key: str) -> bytes:
        return bytes(obstore.get(self.backend, key).bytes())

    def raw_set(self, key: str, data: bytes) -> None:
        obstore.put(self.backend, key, data)


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObstoreStore:
        self.root = tmp_path / "not" / "there yet"
        return open_store(f"file://{self.root}")

    def raw_get(self, key: str) -> bytes:
        return (self.root / key).read_bytes()

    def raw_set(self, key: str, data: bytes) -> None:
        (self.root / key).parent.mkdir(parents=True, exist_ok=True)
        (self.root / key).write_bytes(data)

    def check_no_leftovers(self) -> None:
        assert [path for path in self.root.rglob("*") if path.is_file()] == []

    def test_a_killed_writers_file_is_not_listed(self, store: ObstoreStore) -> None:
        self.raw_set("a/b", b"whole")
        self.raw_set("a/c#1", b"half of i")
        assert [info.key for info in store.list("")] == ["a/b"]
