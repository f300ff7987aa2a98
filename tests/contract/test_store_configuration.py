"""What an operator reads who has configured a real store wrongly: the cause, what to set, and no secret."""

import os
import traceback
from collections.abc import Callable

import pytest

from app.errors import StorageError, StorageUnavailable
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import open_store
from app.storage.probe import probe_store
from app.storage.remote import Timeouts
from tests.support.object_stores.running import RunningStore

CANARY = "Y2FuYXJ5LVp4OQ=="  # Base64, as Azure's keys are
QUICK = Timeouts(max_retries=1, first_wait_s=0.01)
NOTHING_LISTENS = "http://127.0.0.1:9"
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY")


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.stores) for name in ("ceph_rgw", "azurite")])
def server(request: pytest.FixtureRequest) -> RunningStore:
    running: RunningStore = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def configure(server: RunningStore, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ObjectStore]:
    """Open that store with some of its variables changed."""

    def opened(url: str | None = None, **changes: str) -> ObjectStore:
        for name in list(os.environ):
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
                monkeypatch.delenv(name)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, changes.get(name, value))
        return open_store(url or f"{server.url}/configuration", QUICK)

    return opened


def refusal(look: Callable[[], object], *secrets: str) -> StorageError:
    """The error that `look` ends with, after a search for the secrets in it and in a log of it."""
    with pytest.raises(StorageError) as caught:
        look()
    logged = "".join(traceback.format_exception(caught.value))
    for secret in secrets:
        assert secret not in caught.value.detail
        assert secret not in logged
    return caught.value


LOOKS: dict[str, Callable[[ObjectStore], object]] = {
    "probe": probe_store,
    "get": lambda store: store.get("a"),
    "list": lambda store: list(store.list("")),
    "list_children": lambda store: store.list_children(""),
    "put_stream": lambda store: store.put_stream("a", [b"x" * (9 << 20)] * 2),
}


def test_the_providers_variables_are_all_it_needs(configure: Callable[..., ObjectStore]) -> None:
    probe_store(configure())


@pytest.mark.parametrize("look", LOOKS)
def test_a_wrong_key_is_refused(
    server: RunningStore, configure: Callable[..., ObjectStore], look: str
) -> None:
    name = next(name for name in SECRETS if name in server.environment)
    store = configure(**{name: CANARY})
    error = refusal(lambda: LOOKS[look](store), CANARY, server.environment[name])
    assert error.code == "storage_denied"
    assert name in error.detail


@pytest.mark.parametrize("look", LOOKS)
def test_a_bucket_that_is_not_there_is_named(
    server: RunningStore, configure: Callable[..., ObjectStore], look: str
) -> None:
    store = configure(f"{server.url}-not-there/prefix")
    error = refusal(lambda: LOOKS[look](store))
    assert error.code == "bucket_not_found"
    assert "SHARDSMITH_STORAGE_URL" in error.detail
    assert "create it" in error.detail


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.waits
def test_an_endpoint_that_does_not_answer_is_named(
    server: RunningStore, configure: Callable[..., ObjectStore], look: str
) -> None:
    name = next(name for name in ("AWS_ENDPOINT_URL", "AZURE_ENDPOINT") if name in server.environment)
    store = configure(**{name: NOTHING_LISTENS})
    error = refusal(lambda: LOOKS[look](store), *server.environment.values())
    assert isinstance(error, StorageUnavailable)
    assert f"{NOTHING_LISTENS}/" in error.detail
    assert name in error.detail


def test_rclone_is_refused(rclone_s3: RunningStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes `If-None-Match` without a word and overwrites all the same."""
    for name, value in rclone_s3.environment.items():
        monkeypatch.setenv(name, value)
    error = refusal(lambda: probe_store(open_store(f"{rclone_s3.url}/refused")))
    assert error.code == "unsafe_store"
    assert "does not honour create-only puts" in error.detail
