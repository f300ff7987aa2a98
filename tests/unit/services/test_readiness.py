"""Readiness: kernels warm, store and spool usable, and none of them ever waited for by a probe."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.errors import StorageError, StorageFull, StorageUnavailable
from app.runtime.spool import Spool
from app.runtime.streams import Buffer
from app.services import readiness as module
from app.services.readiness import Readiness
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import open_store
from tests.support.faulty_store import FaultStore, Operation, When
from tests.support.object_stores.fake_s3 import FakeS3
from tests.support.waiting import wait_for


@contextmanager
def running(
    store: ObjectStore, warm: Callable[[], object] = lambda: None, spool: Spool | None = None
) -> Iterator[Readiness]:
    readiness = Readiness(store, spool or Spool(None, 0), warm=warm)
    readiness.start()
    try:
        yield readiness
    finally:
        readiness.stop()


class Overwriting:
    """A store that ignores the condition of a conditional put, as some S3-alikes do."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create(self, key: str, data: Buffer) -> None:
        self._inner.put(key, data)


class Unreachable(Overwriting):
    """A store that cannot be reached until `back` is set."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.back = threading.Event()

    def create(self, key: str, data: Buffer) -> None:
        if not self.back.is_set():
            raise StorageUnavailable("The store does not answer.")
        self._inner.create(key, data)


def test_ready_once_kernels_are_warm_and_the_store_is_probed() -> None:
    warmed = threading.Event()
    with running(open_store("memory://"), warm=warmed.wait) as readiness:
        wait_for(lambda: readiness.checks()["storage"].ok)
        assert not readiness.started
        assert not readiness.checks()["kernels"].ok
        warmed.set()
        wait_for(lambda: all(check.ok for check in readiness.checks().values()))
        assert readiness.started


def test_callback_runs_after_warm_up() -> None:
    done: list[str] = []
    readiness = Readiness(
        open_store("memory://"),
        Spool(None, 0),
        warm=lambda: done.append("warm"),
        warmed=lambda: done.append("warmed"),
    )
    readiness.start()
    try:
        wait_for(lambda: readiness.started)
    finally:
        readiness.stop()
    assert done == ["warm", "warmed"]


def test_a_store_that_ignores_conditions_is_refused_by_name() -> None:
    store = Overwriting(open_store("memory://"))
    with running(store) as readiness:  # type: ignore[arg-type]  # the rest of the store is the inner one's
        wait_for(lambda: "create-only" in readiness.checks()["storage"].detail)
        assert not readiness.checks()["storage"].ok
        assert not readiness.started


class Failing(Overwriting):
    """A store that fails in other words each time."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.tries = 0

    def create(self, key: str, data: Buffer) -> None:
        self.tries += 1
        raise StorageError(f"There is no bucket for {key}.", code="bucket_not_found")


def test_a_store_that_goes_on_failing_is_named_by_code_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_RETRY_AFTER_S", 0.01)
    store = Failing(open_store("memory://"))
    with running(store) as readiness:  # type: ignore[arg-type]  # the rest of the store is the inner one's
        wait_for(lambda: store.tries > 100)
        assert readiness.checks()["storage"].code == "bucket_not_found"
    assert caplog.text.count("storage is not ready: bucket_not_found") == 1


def test_a_store_that_comes_back_makes_the_service_ready() -> None:
    store = Unreachable(open_store("memory://"))
    with running(store) as readiness:  # type: ignore[arg-type]  # the rest of the store is the inner one's
        wait_for(lambda: "does not answer" in readiness.checks()["storage"].detail)
        store.back.set()
        wait_for(lambda: readiness.checks()["storage"].ok)


def test_later_outage_is_not_a_new_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRUSTED_FOR_S", 0.01)
    store = open_store("memory://")
    with running(store) as readiness:
        wait_for(lambda: readiness.started)

        def unreachable(prefix: str) -> list[str]:
            raise StorageUnavailable("Gone.")

        monkeypatch.setattr(store, "list_children", unreachable)
        wait_for(lambda: not readiness.checks()["storage"].ok)
        assert readiness.started


@pytest.mark.parametrize(
    "error",
    [StorageError("read-only", code="storage_denied"), StorageFull("no room")],
    ids=lambda error: error.code,
)
def test_writes_that_fail_while_reads_succeed_are_seen_and_so_is_their_end(
    monkeypatch: pytest.MonkeyPatch, error: StorageError
) -> None:
    monkeypatch.setattr(module, "_TRUSTED_FOR_S", 0.01)
    monkeypatch.setattr(module, "_RETRY_AFTER_S", 0.01)
    store = FaultStore(open_store("memory://"))

    def refuse(when: When, operation: Operation, key: str) -> None:
        if operation == "create":
            raise error

    with running(store) as readiness:
        wait_for(lambda: readiness.started)
        store.fault = refuse
        wait_for(lambda: readiness.checks()["storage"].code == error.code)
        seen = len(store.requests)
        wait_for(lambda: len(store.requests) > seen + 10)
        # It stays so: a list that succeeds does not hide the write that fails.
        assert readiness.checks()["storage"].code == error.code
        assert {operation for operation, _ in store.requests[seen:]} == {"create"}
        store.fault = None
        wait_for(lambda: readiness.checks()["storage"].ok)


def test_a_watch_leaves_one_object_at_most_where_deletion_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRUSTED_FOR_S", 0.01)
    store = FaultStore(open_store("memory://"))

    def keep(when: When, operation: Operation, key: str) -> None:
        if operation == "delete":
            raise StorageError("never", code="storage_denied")

    with running(store) as readiness:
        wait_for(lambda: readiness.started)
        store.fault = keep
        wait_for(lambda: [operation for operation, _ in store.requests].count("delete") > 10)
        assert readiness.checks()["storage"].ok
    assert len(list(store.list("_probe"))) == 1


def test_a_store_that_denies_puts_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeS3()
    monkeypatch.setattr(module, "_RETRY_AFTER_S", 0.01)
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.answers = lambda method, path: 403 if method == "PUT" else None
        with running(open_store("s3://bucket")) as readiness:
            wait_for(lambda: readiness.checks()["storage"].code == "storage_denied")
            assert "AWS_ACCESS_KEY_ID" in readiness.checks()["storage"].detail
    finally:
        server.close()


def test_a_spool_that_cannot_be_written_is_named_and_recovers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_TRUSTED_FOR_S", 0.01)
    monkeypatch.setattr(module, "_RETRY_AFTER_S", 0.01)
    folder = tmp_path / "spool"
    folder.touch()  # no folder: what also root cannot write to
    with running(open_store("memory://"), spool=Spool(folder, 100)) as readiness:
        wait_for(lambda: readiness.checks()["spool"].code == "spool_unavailable")
        assert "SHARDSMITH_SPOOL_DIR" in readiness.checks()["spool"].detail
        wait_for(lambda: readiness.started)
        folder.unlink()  # missing: it is made
        wait_for(lambda: readiness.checks()["spool"].ok)
    assert list(folder.iterdir()) == []


def test_no_thread_outlives_the_watch() -> None:
    with running(open_store("memory://")) as readiness:
        wait_for(lambda: readiness.started)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("watch-")]


def test_kernels_that_cannot_be_compiled_are_said_to_be_so(caplog: pytest.LogCaptureFixture) -> None:
    def warm() -> None:
        raise RuntimeError("no compiler today")

    with running(open_store("memory://"), warm=warm) as readiness:
        wait_for(lambda: "cannot be compiled" in readiness.checks()["kernels"].detail)
    assert "no compiler today" in caplog.text
