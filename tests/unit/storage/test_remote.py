"""A store that hangs, storms or refuses: each request ends, and the error says what to do."""

import contextlib
import json
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from app.errors import OutcomeUnknown, StorageError, StorageUnavailable
from app.storage import create_once as create_once_module
from app.storage import unfinished_uploads
from app.storage.create_once import create_once
from app.storage.object_store import AlreadyExists, ObjectStore
from app.storage.obstore_store import open_store
from app.storage.remote import Timeouts
from tests.support.object_stores.fake_s3 import FakeS3
from tests.unit.storage.operations import OPERATIONS

QUICK = Timeouts(connect_s=0.5, request_s=0.5, retry_s=1, max_retries=2, first_wait_s=0.01)
IMPATIENT = Timeouts(connect_s=0.2, request_s=0.2, retry_s=0.2, max_retries=2, first_wait_s=0.01)
#: An operation is one or two requests; the factor is for a machine with other things to do.
ENDS_WITHIN_S = 30 * IMPATIENT.total_s
CANARY = "canary-Zx9"
EXPIRED = f"<Error><Code>ExpiredToken</Code><Message>m</Message><Token-0>{CANARY}</Token-0></Error>".encode()
PART_OF_AN_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nETag: e\r\n"
    b"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n\r\n<part"
)


class Hanging:
    """A server that takes what it is sent, says the beginning of an answer at most, and never ends it."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            if self._socket.fileno() == -1 or not connection.recv(1 << 16):
                connection.close()
                return
            self._held.append(connection)
            with contextlib.suppress(OSError):
                connection.sendall(self._answer)

    def close(self) -> None:
        # A connection without a word ends the thread, which `accept` would not leave.
        socket.create_connection(self._socket.getsockname()).close()
        self._thread.join()
        self._socket.close()
        for connection in self._held:
            connection.close()


def use_s3(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "AWS_SESSION_TOKEN": CANARY,
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(unfinished_uploads, "_CONNECT_S", IMPATIENT.connect_s)
    monkeypatch.setattr(unfinished_uploads, "_ANSWER_S", IMPATIENT.request_s)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    server = FakeS3()
    try:
        use_s3(monkeypatch, server.url)
        yield server
    finally:
        server.close()


@pytest.fixture
def store(s3: FakeS3) -> ObjectStore:
    return open_store("s3://bucket/prefix", QUICK)


@pytest.fixture(params=[b"", PART_OF_AN_ANSWER], ids=["silent", "stops in mid-answer"])
def hanging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    server = Hanging(request.param)
    try:
        use_s3(monkeypatch, server.url)
        yield open_store("s3://bucket", IMPATIENT)
    finally:
        server.close()


def test_no_request_outlasts_half_of_what_proxies_wait() -> None:
    assert Timeouts().total_s < 30


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_on_a_store_that_hangs_ends(hanging: ObjectStore, operation: str) -> None:
    started = time.monotonic()
    with contextlib.suppress(StorageError):
        OPERATIONS[operation](hanging)
    assert time.monotonic() - started < ENDS_WITHIN_S


@pytest.mark.parametrize("operation", ["get", "get_range", "read_into", "list", "list_children", "sweep"])
def test_half_an_answer_is_none(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    server = Hanging(PART_OF_AN_ANSWER)
    try:
        use_s3(monkeypatch, server.url)
        with pytest.raises(StorageUnavailable):
            OPERATIONS[operation](open_store("s3://bucket", IMPATIENT))
    finally:
        server.close()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_store_that_asks_to_slow_down_is_asked_a_few_times_only(
    s3: FakeS3, store: ObjectStore, operation: str
) -> None:
    s3.answers = lambda method, path: (503, b"<Error><Code>SlowDown</Code></Error>")
    with pytest.raises(StorageUnavailable):
        OPERATIONS[operation](store)
    assert len(s3.requests) <= 1 + QUICK.max_retries


def test_a_storm_that_passes_is_waited_out(s3: FakeS3, store: ObjectStore) -> None:
    answers = iter([503, 503])
    s3.answers = lambda method, path: next(answers, None)
    store.put("a", b"x")
    assert len(s3.requests) == 3


def test_a_create_is_sent_once(s3: FakeS3, store: ObjectStore) -> None:
    s3.answers = lambda method, path: 503
    with pytest.raises(StorageUnavailable):
        store.create("a", b"x")
    assert len(s3.requests) == 1
    answers = iter([503, 503])
    s3.answers = lambda method, path: next(answers, None)
    assert create_once(store, "a", b"x") is None
    assert len(s3.requests) == 4


@pytest.mark.parametrize("status", [403, 404, 507])
def test_a_refusal_takes_back_nothing_that_an_error_before_may_have_stored(
    s3: FakeS3, store: ObjectStore, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([500])  # applied, for all that anybody knows
    s3.answers = lambda method, path: next(answers, status)
    clock = SimpleNamespace(monotonic=lambda: 100.0 * (len(s3.requests) > 2), sleep=lambda _: None)
    monkeypatch.setattr(create_once_module, "time", clock)
    with pytest.raises(OutcomeUnknown):
        create_once(store, "slot", b"nonce")
    assert len(s3.requests) == 3


def test_an_upload_whose_success_is_an_error_has_failed(s3: FakeS3, store: ObjectStore) -> None:
    """S3 begins to answer before it knows the outcome, and then says 200 to an error."""
    refused = b"<Error><Code>InternalError</Code><Message>m</Message></Error>"
    # Any success will do: in one of 200 the stand-in would put a body of its own.
    s3.answers = lambda method, path: (201, refused) if method == "POST" and "uploadId" in path else None
    with pytest.raises(StorageUnavailable):
        store.put_stream("a", [bytes(8 << 20)] * 5)


@pytest.mark.parametrize("status", [400, 403])
def test_credentials_that_expire_in_mid_upload_end_it(s3: FakeS3, store: ObjectStore, status: int) -> None:
    s3.answers = lambda method, path: (status, EXPIRED) if "partNumber=2" in path else None
    with pytest.raises(StorageError) as caught:
        store.put_stream("a", [bytes(8 << 20)] * 5)
    assert caught.value.code == "storage_denied"
    assert "ExpiredToken" in caught.value.detail
    assert "AWS_SESSION_TOKEN" in caught.value.detail
    assert "DELETE /bucket/prefix/a?uploadId" in s3.methods()
    assert "POST /bucket/prefix/a?uploadId" not in s3.methods()
    check_for_secrets(caught.value)


@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_succeeds_with_expired_credentials(
    s3: FakeS3, store: ObjectStore, operation: str, status: int
) -> None:
    s3.answers = lambda method, path: (status, b"" if method == "HEAD" else EXPIRED)
    with pytest.raises(StorageError) as caught:
        OPERATIONS[operation](store)
    if (operation, status) not in (("head", 400), ("copy", 400)):  # without a body a 400 says nothing
        assert caught.value.code == "storage_denied"
    check_for_secrets(caught.value)


@pytest.mark.parametrize("status", [400, 403])
def test_create_with_expired_credentials_has_a_definite_outcome(
    s3: FakeS3, store: ObjectStore, status: int
) -> None:
    s3.answers = lambda method, path: (status, EXPIRED)
    with pytest.raises(StorageError) as caught:
        create_once(store, "slot", b"nonce")
    assert caught.value.code == "storage_denied"
    assert len(s3.requests) == 1


def test_a_conflict_with_nothing_stored_is_a_taken_key(s3: FakeS3, store: ObjectStore) -> None:
    body = b"<Error><Code>ConditionalRequestConflict</Code></Error>"
    s3.answers = lambda method, path: (409, body)
    with pytest.raises(AlreadyExists):
        store.create("a", b"x")


def test_a_store_without_a_list_of_uploads_has_none(s3: FakeS3, store: ObjectStore) -> None:
    s3.answers = lambda method, path: (501, b"<Error><Code>NotImplemented</Code></Error>")
    assert OPERATIONS["sweep"](store) == 0


def test_an_upload_that_ends_meanwhile_is_not_counted(s3: FakeS3, store: ObjectStore) -> None:
    listed = (
        b"<ListMultipartUploadsResult><Upload><Key>prefix/a</Key><UploadId>u</UploadId>"
        b"<Initiated>2015-10-21T07:28:00.000Z</Initiated></Upload></ListMultipartUploadsResult>"
    )
    s3.answers = lambda method, path: (
        (200, listed) if method == "GET" else (404, b"<Error><Code>NoSuchUpload</Code></Error>")
    )
    assert OPERATIONS["sweep"](store) == 0
    assert [method for method, _, _ in s3.requests] == ["GET", "DELETE"]


VIRTUAL = {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "http://127.0.0.1:1/bucket?uploads=&prefix=a"),
        (
            {**VIRTUAL, "AWS_ENDPOINT_URL": "http://bucket.s3.here:1"},
            "http://bucket.s3.here:1/?uploads=&prefix=a",
        ),
        ({"AWS_ENDPOINT_URL_S3": "http://first:1"}, "http://first:1/bucket?uploads=&prefix=a"),
        (
            {"AWS_ENDPOINT_URL": None, "AWS_ENDPOINT": "http://other:1"},
            "http://other:1/bucket?uploads=&prefix=a",
        ),
        (
            {"AWS_ENDPOINT_URL": None, "AWS_REGION": None, "AWS_DEFAULT_REGION": "eu-west-1"},
            "https://s3.eu-west-1.amazonaws.com/bucket?uploads=&prefix=a",
        ),
        (
            {**VIRTUAL, "AWS_ENDPOINT_URL": None, "AWS_REGION": "eu-west-1"},
            "https://bucket.s3.eu-west-1.amazonaws.com/?uploads=&prefix=a",
        ),
        ({"AWS_PROFILE": "of AWS's own tools"}, "http://127.0.0.1:1/bucket?uploads=&prefix=a"),
    ],
)
def test_a_sweep_goes_where_the_objects_are(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str | None], expected: str
) -> None:
    use_s3(monkeypatch, "http://127.0.0.1:1")
    for name, value in environment.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    client = unfinished_uploads._client("bucket")
    url = client.generate_presigned_url("list_multipart_uploads", {"Bucket": "bucket", "Prefix": "a"})
    assert url.startswith(f"{expected}&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=id%2F")
    assert f"&X-Amz-Security-Token={CANARY}" in url


def test_a_bucket_for_everyone_is_swept_without_a_signature(
    s3: FakeS3, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    authorizations: list[str | None] = []
    s3.on_headers = lambda headers: authorizations.append(headers.get("Authorization"))
    s3.answers = lambda method, path: (200, b"<ListMultipartUploadsResult></ListMultipartUploadsResult>")
    assert OPERATIONS["sweep"](store) == 0
    assert authorizations == [None]


def test_without_botocore_the_start_and_each_sweep_say_what_is_missed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_s3(monkeypatch, "http://127.0.0.1:1")
    open_store("s3://bucket")
    assert caplog.messages == []
    for name in ("botocore", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    open_store("memory://")
    assert caplog.messages == []

    store = open_store("s3://bucket")

    advice = r"Install shardsmith\[botocore\], or give the bucket a lifecycle rule"
    [warning] = caplog.messages
    assert re.search(advice, warning)
    with pytest.raises(StorageError, match=advice) as caught:
        OPERATIONS["sweep"](store)
    assert caught.value.code == "botocore_missing"


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"])
@pytest.mark.parametrize("value", ["", "127.0.0.1:9000", "ftp://host", "http://", "http://[::1"])
def test_malformed_endpoint_is_named(
    s3: FakeS3, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match=f"^{name} is no URL") as caught:
        open_store("s3://bucket")
    assert caught.value.code == "invalid_storage_endpoint"


def test_an_endpoint_in_the_clear_has_to_be_meant(s3: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(StorageError, match="Set AWS_ALLOW_HTTP=true") as caught:
        open_store("s3://bucket")
    assert caught.value.code == "invalid_storage_endpoint"


def test_google_takes_its_configuration_from_the_environment(
    s3: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the stand-in: no emulator of Google Cloud Storage is known that can be used."""
    key = {"gcs_base_url": s3.url, "disable_oauth": True, "client_email": "", "private_key": ""}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps({**key, "private_key_id": ""}))
    conditions: list[str | None] = []
    s3.on_headers = lambda headers: conditions.append(headers.get("x-goog-if-generation-match"))
    store = open_store("gs://bucket/some/prefix", QUICK)
    store.create("a", b"x")
    store.put("b", b"x")
    assert [(method, path) for method, path, _ in s3.requests] == [
        ("PUT", "/bucket/some%2Fprefix%2Fa"),
        ("PUT", "/bucket/some%2Fprefix%2Fb"),
    ]
    assert conditions == ["0", None]
    s3.answers = lambda method, path: (404, b"<Error><Code>NoSuchBucket</Code></Error>")
    with pytest.raises(StorageError, match="SHARDSMITH_STORAGE_URL names does not exist"):
        store.put("a", b"x")
    assert OPERATIONS["sweep"](store) == 0


@pytest.mark.parametrize(
    ("url", "environment", "named"),
    [
        ("gs://bucket", {"GOOGLE_SERVICE_ACCOUNT_KEY": CANARY}, "GOOGLE_SERVICE_ACCOUNT"),
        ("gs://bucket", {"GOOGLE_SERVICE_ACCOUNT": "/not/there"}, "GOOGLE_SERVICE_ACCOUNT"),
        ("az://container", {}, "AZURE_STORAGE_ACCOUNT_NAME"),
        (
            "az://container",
            {"AZURE_STORAGE_ACCOUNT_NAME": "name", "AZURE_STORAGE_ACCOUNT_KEY": f"{CANARY}!"},
            "AZURE_STORAGE_ACCOUNT_KEY",
        ),
    ],
)
def test_incomplete_store_settings_name_the_variable(
    monkeypatch: pytest.MonkeyPatch, url: str, environment: dict[str, str], named: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match=named) as caught:
        open_store(url)
    assert caught.value.code == "invalid_storage_url"
    check_for_secrets(caught.value)


def check_for_secrets(error: StorageError) -> None:
    """Neither what the error says nor what a log of it would hold."""
    assert CANARY not in error.detail
    assert CANARY not in "".join(traceback.format_exception(error))
