"""Which store a URL names, what its failures become, and that uploads end cleanly."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import AzureStore, GCSStore

from app.errors import StorageError, StorageFull, StorageUnavailable
from app.storage.object_store import AlreadyExists, ObjectNotFound
from app.storage.obstore_store import open_store
from app.storage.remote import Timeouts
from tests.support.object_stores.fake_s3 import FakeS3

#: Long enough for a server on loopback that answers, short for one that does not.
QUICK = Timeouts(connect_s=0.5, request_s=0.5, retry_s=1, max_retries=2, first_wait_s=0.01)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    server = FakeS3()
    for name, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "canary",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


def test_s3_takes_its_configuration_from_the_environment(s3: FakeS3) -> None:
    open_store("s3://bucket/some/prefix", QUICK).put("a/b", b"x")
    assert s3.requests == [("PUT", "/bucket/some/prefix/a/b", None)]


def test_create_asks_for_a_key_that_is_free(s3: FakeS3) -> None:
    open_store("s3://bucket", QUICK).create("a", b"x")
    assert s3.requests == [("PUT", "/bucket/a", "*")]


@pytest.mark.parametrize("status", [409, 412])
def test_a_refused_create_is_a_taken_key(s3: FakeS3, status: int) -> None:
    s3.answers = lambda method, path: status
    with pytest.raises(AlreadyExists):
        open_store("s3://bucket", QUICK).create("a", b"x")


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (404, ObjectNotFound, "object_not_found"),
        (403, StorageError, "storage_denied"),
        (401, StorageError, "storage_denied"),
        (500, StorageUnavailable, "storage_unavailable"),
        (503, StorageUnavailable, "storage_unavailable"),
        (507, StorageFull, "storage_full"),
    ],
)
def test_a_status_becomes_an_error(s3: FakeS3, status: int, error: type[Exception], code: str) -> None:
    s3.answers = lambda method, path: status
    with pytest.raises(error) as caught:
        open_store("s3://bucket", QUICK).get("a")
    assert getattr(caught.value, "code", None) == code
    assert "canary" not in str(caught.value)


def test_reads_are_retried_until_the_deadline(s3: FakeS3) -> None:
    statuses = iter([500, 503])
    s3.answers = lambda method, path: next(statuses, 404)
    with pytest.raises(ObjectNotFound):
        open_store("s3://bucket", QUICK).get("a")
    assert len(s3.requests) == 3


def test_an_operation_on_a_store_that_hangs_ends(s3: FakeS3) -> None:
    released = threading.Event()
    s3.answers = lambda method, path: 200 if released.wait(20) else 500
    started = time.monotonic()
    with pytest.raises(StorageUnavailable):
        open_store("s3://bucket", QUICK).put("a", b"x")
    released.set()
    assert time.monotonic() - started < 20, "it waited for the store to let go"


def test_a_store_that_is_not_there_is_unavailable(s3: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageUnavailable):
        open_store("s3://bucket", QUICK).get("a")


def test_a_small_stream_is_one_put(s3: FakeS3) -> None:
    assert open_store("s3://bucket", QUICK).put_stream("a", [b"x" * 1000] * 5) == 5000
    assert s3.methods() == ["PUT /bucket/a"]


def test_a_large_stream_is_a_multipart_upload(s3: FakeS3) -> None:
    open_store("s3://bucket", QUICK).put_stream("a", [bytes(8 << 20)] * 5)
    methods = s3.methods()
    assert methods[0] == "POST /bucket/a?uploads"
    assert methods[1:-1] == ["PUT /bucket/a?partNumber"] * 3
    assert methods[-1] == "POST /bucket/a?uploadId"


def test_an_upload_whose_source_fails_is_aborted(s3: FakeS3) -> None:
    def chunks() -> Iterator[bytes]:
        yield from [bytes(8 << 20)] * 5
        raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        open_store("s3://bucket", QUICK).put_stream("a", chunks())
    # Parts that were under way may still arrive after it, so it need not be the last.
    assert "DELETE /bucket/a?uploadId" in s3.methods()
    assert "POST /bucket/a?uploadId" not in s3.methods()


def test_an_upload_of_which_a_part_fails_is_aborted(s3: FakeS3) -> None:
    s3.answers = lambda method, path: 500 if "partNumber=2" in path else None
    with pytest.raises(StorageUnavailable):
        open_store("s3://bucket", QUICK).put_stream("a", [bytes(8 << 20)] * 5)
    # Parts that were under way may still arrive after it, so it need not be the last.
    assert "DELETE /bucket/a?uploadId" in s3.methods()
    assert "POST /bucket/a?uploadId" not in s3.methods()


@pytest.mark.parametrize("request_of", ["POST /bucket/a?uploadId", "PUT /bucket/a?partNumber"])
def test_aborted_upload_is_not_a_missing_object(s3: FakeS3, request_of: str) -> None:
    method, path = request_of.split(" ")
    s3.answers = lambda of, at: 404 if of == method and at.startswith(path) else None
    with pytest.raises(StorageUnavailable):
        open_store("s3://bucket", QUICK).put_stream("a", [bytes(8 << 20)] * 5)


def test_chunks_may_come_from_the_same_store(s3: FakeS3) -> None:
    store = open_store("s3://bucket", QUICK)

    def chunks() -> Iterator[bytes]:
        for _ in range(3):
            store.put("other", b"x")  # a `put` that drove this iterator would panic here
            yield bytes(8 << 20)

    assert store.put_stream("a", chunks()) == 3 * (8 << 20)


def test_a_full_disk_is_said_to_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        # As LocalStore words it, seen on a full tmpfs.
        raise OSError("Generic LocalFileSystem error: No space left on device (os error 28)\n\nDebug source:")

    monkeypatch.setattr(obstore, "put", full)
    with pytest.raises(StorageFull) as caught:
        open_store(f"file://{tmp_path}").put("a", b"x")
    assert "Debug" not in caught.value.detail


def test_a_key_with_such_a_number_is_not_taken_for_a_full_store(s3: FakeS3) -> None:
    s3.answers = lambda method, path: 500
    with pytest.raises(StorageUnavailable):
        open_store("s3://bucket", QUICK).put("log/507.plan", b"x")


def test_a_failure_does_not_quote_a_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("Error performing PUT https://x.example/a?sig=canary&se=2 in 3 ms")

    monkeypatch.setattr(obstore, "put", fail)
    with pytest.raises(StorageUnavailable) as caught:
        open_store(f"file://{tmp_path}").put("a", b"x")
    assert "canary" not in caught.value.detail
    assert "https://x.example/a in 3 ms" in caught.value.detail


def test_a_relative_folder_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("file://./data/here").put("a", b"x")
    assert (tmp_path / "data" / "here" / "a").read_bytes() == b"x"


def test_a_folder_may_be_written_with_localhost_and_escapes(tmp_path: Path) -> None:
    open_store(f"file://localhost{tmp_path}/with%20space").put("a", b"x")
    assert (tmp_path / "with space" / "a").read_bytes() == b"x"


def test_memory_stores_are_separate() -> None:
    open_store("memory://").put("a", b"x")
    assert list(open_store("memory://").list("")) == []


@pytest.mark.parametrize(
    "url",
    ["", "memory", "/folder", "file://folder", "file://", "ftp://x/y", "http://x/y", "s3:/bucket", "az://"],
)
def test_anything_else_names_no_store(url: str) -> None:
    with pytest.raises(StorageError) as caught:
        open_store(url)
    assert caught.value.code == "invalid_storage_url"


def test_google_and_azure_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    google = open_store("gs://bucket/some/prefix")._backend
    azure = open_store("az://container/some/prefix")._backend
    assert isinstance(google, GCSStore)
    assert isinstance(azure, AzureStore)
    assert google.prefix == azure.prefix == "some/prefix"
