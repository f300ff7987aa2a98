"""Readiness: kernels warm, store probed, and neither ever waited for by a probe."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from app.domain.streams import Buffer
from app.errors import StorageError, StorageUnavailable
from app.services import readiness as module
from app.services.readiness import Readiness
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import open_store
from tests.waiting import wait_for


@contextmanager
def running(store: ObjectStore, warm: Callable[[], object] = lambda: None) -> Iterator[Readiness]:
    readiness = Readiness(store, warm=warm)
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
        wait_for(lambda: readiness.started)
        assert all(check.ok for check in readiness.checks().values())


def test_what_is_to_follow_the_warm_up_does() -> None:
    done: list[str] = []
    readiness = Readiness(
        open_store("memory://"), warm=lambda: done.append("warm"), warmed=lambda: done.append("warmed")
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
    assert caplog.text.count("storage is not ready") == 1


def test_a_store_that_comes_back_makes_the_service_ready() -> None:
    store = Unreachable(open_store("memory://"))
    with running(store) as readiness:  # type: ignore[arg-type]  # the rest of the store is the inner one's
        wait_for(lambda: "does not answer" in readiness.checks()["storage"].detail)
        store.back.set()
        wait_for(lambda: readiness.checks()["storage"].ok)


def test_an_outage_later_is_no_new_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRUSTED_FOR_S", 0.01)
    store = open_store("memory://")
    with running(store) as readiness:
        wait_for(lambda: readiness.started)

        def unreachable(prefix: str) -> list[str]:
            raise StorageUnavailable("Gone.")

        monkeypatch.setattr(store, "list_children", unreachable)
        wait_for(lambda: not readiness.checks()["storage"].ok)
        assert readiness.started


def test_no_thread_outlives_the_watch() -> None:
    with running(open_store("memory://")) as readiness:
        wait_for(lambda: readiness.started)
    assert not [thread for thread in threading.enumerate() if thread.name == "watch-store"]


def test_kernels_that_cannot_be_compiled_are_said_to_be_so(caplog: pytest.LogCaptureFixture) -> None:
    def warm() -> None:
        raise RuntimeError("no compiler today")

    with running(open_store("memory://"), warm=warm) as readiness:
        wait_for(lambda: "cannot be compiled" in readiness.checks()["kernels"].detail)
    assert "no compiler today" in caplog.text
