"""The start-up probe refuses every kind of store that would lose data, and no other."""

import threading

import pytest

from app.errors import StorageError, StorageUnavailable
from app.runtime.streams import Buffer
from app.storage.object_store import AlreadyExists, ObjectNotFound
from app.storage.obstore_store import open_store
from app.storage.probe import probe_store
from tests.support.faulty_store import FaultStore, Operation, When


class IgnoringStore(FaultStore):
    """Takes `If-None-Match` for decoration, as `rclone serve s3` does."""

    def create(self, key: str, data: Buffer) -> None:
        self._inner.put(key, data)


class CheckingStore(FaultStore):
    """Looks first and writes then: two creators can both find nothing."""

    def __init__(self) -> None:
        super().__init__(open_store("memory://"))
        self._both = threading.Barrier(2)

    def create(self, key: str, data: Buffer) -> None:
        try:
            self._inner.head(key)
        except ObjectNotFound:
            try:
                self._both.wait(timeout=5)
            except threading.BrokenBarrierError:
                raise AlreadyExists("taken") from None
            self._inner.put(key, data)
            return
        raise AlreadyExists("taken")


class RefusingStore(FaultStore):
    """Says that everything exists and stores what it is given all the same."""

    def create(self, key: str, data: Buffer) -> None:
        self._inner.put(key, b"something else")
        raise AlreadyExists("taken")


@pytest.mark.parametrize(
    "store",
    [IgnoringStore(open_store("memory://")), CheckingStore(), RefusingStore(open_store("memory://"))],
    ids=lambda store: type(store).__name__,
)
def test_an_unsafe_store_is_refused(store: FaultStore) -> None:
    with pytest.raises(StorageError, match="does not honour create-only puts") as caught:
        probe_store(store)
    assert caught.value.code == "unsafe_store"


def test_a_store_that_cannot_be_reached_is_not_called_unsafe() -> None:
    def fault(when: When, operation: Operation, key: str) -> None:
        raise StorageUnavailable("down")

    with pytest.raises(StorageUnavailable, match="down"):
        probe_store(FaultStore(open_store("memory://"), fault))


def test_a_winner_whose_answer_was_lost_makes_no_store_unsafe() -> None:
    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and when == "after":
            raise AlreadyExists("found by the client's own retry")

    inner = open_store("memory://")
    probe_store(FaultStore(inner, fault))
    assert list(inner.list("")) == []
