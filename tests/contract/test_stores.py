"""What every object store must do; each implementation inherits the suite.

`raw_get` and `raw_set` go around the code under test.
"""

import functools
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import botocore.session
import httpx
import numpy as np
import obstore
import pytest
from botocore.config import Config
from obstore.store import AzureStore, MemoryStore, S3Store

from app.errors import StorageError, StorageUnavailable
from app.storage import obstore_store, unfinished_uploads
from app.storage.object_store import AlreadyExists, ObjectNotFound
from app.storage.obstore_store import ObstoreStore, open_store
from app.storage.probe import probe_store
from tests.support.object_stores.running import BUCKET, RunningStore

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
A_DAY = timedelta(days=1)
#: Two parts of a multipart upload, the first of which is on its way after three chunks.
LARGE = [bytes([value]) * (6 << 20) for value in range(4)]


class StoreContract:
    @pytest.fixture
    def store(self) -> ObstoreStore:
        raise NotImplementedError

    def raw_get(self, key: str) -> bytes:
        raise NotImplementedError

    def raw_set(self, key: str, data: bytes) -> None:
        raise NotImplementedError

    def raw_set_all(self, keys: Iterable[str]) -> None:
        """Make empty objects, many of them."""
        for key in keys:
            self.raw_set(key, b"")

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
        def create(key: str, body: bytes) -> bool:
            try:
                store.create(key, body)
            except AlreadyExists:
                return False
            return True

        bodies = [bytes([i]) * 1000 for i in range(16)]
        with ThreadPoolExecutor(16) as pool:
            for race in range(60):
                won = list(pool.map(create, [f"race/{race}"] * 16, bodies))
                assert won.count(True) == 1
                assert store.get(f"race/{race}") == bodies[won.index(True)]

    @pytest.mark.parametrize("chunks", [[], [b""], [b"x"], [b"ab", b"", b"c"], [b"z" * (9 << 20)] * 2])
    def test_put_stream_stores_the_chunks_in_order(self, store: ObstoreStore, chunks: list[bytes]) -> None:
        assert store.put_stream("a/b", iter(chunks)) == sum(map(len, chunks))
        assert self.raw_get("a/b") == b"".join(chunks)

    def test_put_stream_copies_each_chunk_before_it_draws_the_next(self, store: ObstoreStore) -> None:
        def chunks() -> Iterator[memoryview]:
            buffer = bytearray(1 << 20)
            for value in range(20):
                buffer[:] = bytes([value]) * len(buffer)
                yield memoryview(buffer)

        store.put_stream("a", chunks())
        assert self.raw_get("a") == b"".join(bytes([value]) * (1 << 20) for value in range(20))

    @pytest.mark.parametrize("size", [1, 20 << 20])
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

    def test_two_writers_may_stream_the_same_bytes_to_one_key(self, store: ObstoreStore) -> None:
        def chunks() -> Iterator[bytes]:
            yield from LARGE[:3]
            store.put_stream("a/b", LARGE)  # another executor of the same plan, which is faster
            yield from LARGE[3:]

        assert store.put_stream("a/b", chunks()) == 24 << 20
        assert self.raw_get("a/b") == b"".join(LARGE)
        self.check_no_leftovers()

    @pytest.mark.parametrize("chunks", [[], [b"x"], LARGE], ids=["empty", "small", "large"])
    def test_copy_stores_the_same_bytes(self, store: ObstoreStore, chunks: list[bytes]) -> None:
        store.put_stream("a/b", chunks)
        self.raw_set("c", b"what was there")
        store.copy("a/b", "c")
        assert self.raw_get("c") == self.raw_get("a/b") == b"".join(chunks)

    def test_copy_may_be_repeated(self, store: ObstoreStore) -> None:
        self.raw_set("a", b"bytes")
        for _ in range(3):
            store.copy("a", "b/c")
        assert {info.key for info in store.list("")} == {"a", "b/c"}
        self.check_no_leftovers()

    def test_a_copy_outlives_its_source(self, store: ObstoreStore) -> None:
        self.raw_set("a", b"bytes")
        store.copy("a", "b")
        store.put("a", b"other bytes")
        store.delete("a")
        assert self.raw_get("b") == b"bytes"

    def test_large_object_is_copied_in_parts(
        self, store: ObstoreStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(obstore_store, "_LARGEST_COPY", 1 << 20)
        store.put_stream("a", LARGE)
        store.copy("a", "b")
        assert self.raw_get("b") == b"".join(LARGE)

    def test_copy_of_what_is_not_there_is_not_found(self, store: ObstoreStore) -> None:
        with pytest.raises(ObjectNotFound):
            store.copy("missing", "b")
        assert list(store.list("")) == []
        self.check_no_leftovers()

    def test_store_that_cannot_sign_returns_no_url(self, store: ObstoreStore) -> None:
        self.raw_set("a", b"bytes")
        assert store.sign("a", 60) is None

    def test_sweep_removes_unfinished_uploads_and_nothing_else(self, store: ObstoreStore) -> None:
        self.raw_set("a/b", b"whole")
        for key in ("a/b", "a/c/d", "ab/c"):
            self.begin_upload(store, key)
        soon = datetime.now(UTC) + A_DAY
        unfinished = self.unfinished_below("a/")
        assert store.sweep("a", LONG_AGO) == 0
        assert store.sweep("a", soon) == len(unfinished)
        assert store.sweep("a", soon) == 0
        self.check_swept("a/", "ab/c")
        assert self.raw_get("a/b") == b"whole"
        store.sweep("", soon)
        self.check_no_leftovers()

    def begin_upload(self, store: ObstoreStore, key: str) -> None:
        """Leave behind what a writer leaves that is killed."""

    def unfinished_below(self, prefix: str) -> list[str]:
        """What `begin_upload` was given below that prefix, as far as this store can tell."""
        return []

    def check_swept(self, prefix: str, other: str) -> None:
        """Nothing is left below the prefix, and `other` still is."""

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
        target = bytearray(b"_" * length)
        assert store.read_into("a", offset, memoryview(target)) == len(expected)
        assert target == expected + b"_" * (length - len(expected))

    def test_a_large_range_is_read_into_memory_that_is_there(self, store: ObstoreStore) -> None:
        data = np.random.default_rng(0).bytes(3_000_000)
        self.raw_set("a", data)
        target = bytearray(2_500_000)
        assert store.read_into("a", 100_000, memoryview(target)) == len(target)
        assert target == data[100_000:2_600_000]

    def test_head_tells_size_and_time(self, store: ObstoreStore) -> None:
        self.raw_set("a/b", b"12345")
        info = store.head("a/b")
        assert (info.key, info.size) == ("a/b", 5)
        assert abs((datetime.now(UTC) - info.last_modified).total_seconds()) < 60

    @pytest.mark.parametrize("operation", ["get", "head", "get_range", "read_into"])
    @pytest.mark.parametrize("key", ["missing", "folder/missing", "folder"])
    def test_missing_object_is_not_found(self, store: ObstoreStore, operation: str, key: str) -> None:
        self.raw_set("folder/object", b"x")
        arguments = {"get_range": (0, 1), "read_into": (0, memoryview(bytearray(1)))}.get(operation, ())
        with pytest.raises(ObjectNotFound):
            getattr(store, operation)(key, *arguments)

    def test_list_finds_everything_below_a_folder(self, store: ObstoreStore) -> None:
        for key in ("a/x", "a/b/y", "ab/z", "c"):
            self.raw_set(key, key.encode())
        assert {info.key for info in store.list("")} == {"a/x", "a/b/y", "ab/z", "c"}
        assert {(info.key, info.size) for info in store.list("a")} == {("a/x", 3), ("a/b/y", 5)}
        assert list(store.list("nowhere")) == []

    def test_list_goes_past_one_page(self, store: ObstoreStore) -> None:
        keys = {f"many/{i:04d}" for i in range(2100)}
        self.raw_set_all(keys)
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
    def test_key_that_is_not_a_path_is_refused(self, store: ObstoreStore, key: str) -> None:
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
        assert [path for path in self.root.rglob("*#*") if path.is_file()] == []

    def begin_upload(self, store: ObstoreStore, key: str) -> None:
        for number in (1, 23):
            self.raw_set(f"{key}#{number}", b"half of i")

    def unfinished_below(self, prefix: str) -> list[str]:
        return [f"{prefix}{name}" for name in ("b#1", "b#23", "c/d#1", "c/d#23")]

    def check_swept(self, prefix: str, other: str) -> None:
        assert {str(path.relative_to(self.root)) for path in self.root.rglob("*#*")} == {
            f"{other}#1",
            f"{other}#23",
        }

    def test_a_killed_writers_file_is_not_listed(self, store: ObstoreStore) -> None:
        self.raw_set("a/b", b"whole")
        self.raw_set("a/c#1", b"half of i")
        assert [info.key for info in store.list("")] == ["a/b"]

    def test_sweep_leaves_a_file_that_was_written_to_lately(self, store: ObstoreStore) -> None:
        self.raw_set("a#1", b"still being wri")
        assert store.sweep("", datetime.now(UTC) - timedelta(hours=1)) == 0
        assert self.raw_get("a#1") == b"still being wri"


class RemoteContract(StoreContract):
    """A store behind HTTP, in a prefix of its own; keys are set and got by signed requests."""

    put_headers: ClassVar[dict[str, str]] = {}

    @pytest.fixture
    def server(self) -> RunningStore:
        raise NotImplementedError

    def raw_store(self, prefix: str) -> "S3Store | AzureStore":
        raise NotImplementedError

    @pytest.fixture
    def store(self, server: RunningStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObstoreStore]:
        for name in list(os.environ):
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
                monkeypatch.delenv(name)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        self.prefix = f"{type(self).__name__}/{secrets.token_hex(8)}"
        self.raw = self.raw_store(self.prefix)
        with httpx.Client(timeout=60) as self.http:
            yield open_store(f"{server.url}/{self.prefix}")

    def signed(self, method: Any, key: str) -> str:
        url: str = obstore.sign(self.raw, method, key, timedelta(minutes=5))
        return url

    def raw_get(self, key: str) -> bytes:
        return self.http.get(self.signed("GET", key)).raise_for_status().content

    def raw_set(self, key: str, data: bytes) -> None:
        self.http.put(self.signed("PUT", key), content=data, headers=self.put_headers).raise_for_status()

    def raw_set_all(self, keys: Iterable[str]) -> None:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: obstore.put(self.raw, key, b"", use_multipart=False), keys))

    def test_store_that_cannot_sign_returns_no_url(self, store: ObstoreStore) -> None:
        """Everything can."""

    def test_anyone_may_get_what_is_signed(self, store: ObstoreStore) -> None:
        self.raw_set("a/b", b"bytes")
        url = store.sign("a/b", 600)
        assert url is not None
        assert httpx.get(url).content == b"bytes"
        assert httpx.get(url, headers={"Range": "bytes=1-2"}).content == b"yt"

    def test_a_signed_url_is_good_for_one_key_and_to_read(self, store: ObstoreStore) -> None:
        self.raw_set("a", b"mine")
        self.raw_set("b", b"other")
        url = store.sign("a", 600)
        assert url is not None
        assert httpx.get(url.replace("/a?", "/b?")).status_code == 403
        assert httpx.get(url.partition("?")[0]).status_code in (401, 403, 404)
        assert httpx.put(url, content=b"x", headers=self.put_headers).status_code == 403
        assert self.raw_get("a") == b"mine"

    def test_a_signed_url_expires(self, store: ObstoreStore) -> None:
        self.raw_set("a", b"bytes")
        url = store.sign("a", 1)
        assert url is not None
        give_up = time.monotonic() + 30
        while (status := httpx.get(url).status_code) == 200 and time.monotonic() < give_up:
            time.sleep(0.2)
        assert status == 403

    def test_a_larger_object_is_got_whole(self, store: ObstoreStore) -> None:
        store.put_stream("a", LARGE)
        assert store.get("a") == b"".join(LARGE)
        assert store.get_range("a", (12 << 20) - 1, 2) == b"\x01\x02"


class TestCephRgw(RemoteContract):
    @pytest.fixture
    def server(self, ceph_rgw: RunningStore) -> RunningStore:
        self.client = s3_client(ceph_rgw.endpoint)
        return ceph_rgw

    def raw_store(self, prefix: str) -> S3Store:
        return S3Store(BUCKET, prefix=prefix, client_options={"allow_http": True})

    def uploads(self) -> list[str]:
        """The keys of the multipart uploads that are under way in this test's prefix."""
        pages = self.client.get_paginator("list_multipart_uploads").paginate(
            Bucket=BUCKET, Prefix=f"{self.prefix}/"
        )
        found = [upload["Key"] for page in pages for upload in page.get("Uploads", [])]
        return [key.removeprefix(f"{self.prefix}/") for key in found]

    def check_no_leftovers(self) -> None:
        assert self.uploads() == []

    def begin_upload(self, store: ObstoreStore, key: str) -> None:
        key = f"{self.prefix}/{key}"
        begun = self.client.create_multipart_upload(Bucket=BUCKET, Key=key)
        self.client.upload_part(
            Bucket=BUCKET, Key=key, UploadId=begun["UploadId"], PartNumber=1, Body=b"a part"
        )

    def unfinished_below(self, prefix: str) -> list[str]:
        found = [key for key in self.uploads() if key.startswith(prefix)]
        assert found
        return found

    def check_swept(self, prefix: str, other: str) -> None:
        assert self.uploads() == [other]

    def test_sweep_goes_past_one_page(self, store: ObstoreStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(unfinished_uploads, "_PAGE", 2)
        for number in range(7):
            self.begin_upload(store, f"many/{number}")
            self.begin_upload(store, "many/times the same")
        assert store.sweep("many", datetime.now(UTC) + A_DAY) == 14
        assert self.uploads() == []

    def test_an_upload_that_was_swept_cannot_be_completed(self, store: ObstoreStore) -> None:
        def chunks() -> Iterator[bytes]:
            yield from LARGE
            assert store.sweep("", datetime.now(UTC) + A_DAY) == 1

        with pytest.raises((StorageError, ObjectNotFound)):
            store.put_stream("a", chunks())
        assert list(store.list("")) == []


class TestAzurite(RemoteContract):
    put_headers: ClassVar = {"x-ms-blob-type": "BlockBlob"}

    @pytest.fixture
    def server(self, azurite: RunningStore) -> RunningStore:
        return azurite

    def raw_store(self, prefix: str) -> AzureStore:
        return AzureStore(BUCKET, prefix=prefix, client_options={"allow_http": True})

    def test_another_writers_other_bytes_are_not_taken_for_ours(self, store: ObstoreStore) -> None:
        def chunks() -> Iterator[bytes]:
            yield from LARGE[:3]
            store.put_stream("a", LARGE[::-1])
            yield from LARGE[3:]

        with pytest.raises(StorageUnavailable):
            store.put_stream("a", chunks())
        assert self.raw_get("a") == b"".join(LARGE[::-1])


@functools.cache
def s3_client(endpoint: str) -> Any:
    """AWS's own client of a server of S3."""
    return botocore.session.Session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="testkey",
        aws_secret_access_key="testsecret",  # noqa: S106  # of a server on loopback, for one test run
        config=Config(s3={"addressing_style": "path"}),
    )
