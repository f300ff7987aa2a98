"""A create-only put ends with a definite outcome, whatever answers get lost on the way."""

from types import SimpleNamespace

import pytest

from app.errors import OutcomeUnknown, StorageError, StorageFull, StorageUnavailable
from app.storage.create_once import create_once, new_nonce, store_time
from app.storage.object_store import AlreadyExists, ObjectNotFound
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.faulty_store import Fault, FaultStore, Operation, When


@pytest.fixture
def inner() -> ObstoreStore:
    return open_store("memory://")


def times(count: int, when: When, operation: Operation, error: StorageError) -> Fault:
    """Raise `error` around the first `count` of these requests."""
    left = [count]

    def fault(at: When, requested: Operation, key: str) -> None:
        if at == when and requested == operation and left[0]:
            left[0] -= 1
            raise error

    return fault


def create(store: FaultStore, data: bytes = b"ours", deadline_s: float = 5.0) -> bytes | None:
    return create_once(store, "key", data, deadline_s=deadline_s, sleep=lambda _: None)


def test_a_fresh_key_is_ours(inner: ObstoreStore) -> None:
    assert create(FaultStore(inner)) is None
    assert inner.get("key") == b"ours"


def test_a_taken_key_gives_what_is_there(inner: ObstoreStore) -> None:
    inner.put("key", b"theirs")
    assert create(FaultStore(inner)) == b"theirs"
    assert inner.get("key") == b"theirs"


def test_our_own_object_is_not_taken_for_anothers_where_it_is_read_wrongly(
    inner: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner.create("key", b"ours")
    store = FaultStore(inner)
    answers = iter([b"0urs"])
    monkeypatch.setattr(store, "get", lambda key: next(answers, None) or inner.get(key))
    assert create(store) is None


def test_our_own_object_is_recognised_after_the_answer_was_lost(inner: ObstoreStore) -> None:
    store = FaultStore(inner, times(1, "after", "create", StorageUnavailable("dropped")))
    assert create(store) is None
    assert inner.get("key") == b"ours"


def test_a_create_that_never_arrived_is_repeated(inner: ObstoreStore) -> None:
    store = FaultStore(inner, times(2, "before", "create", StorageUnavailable("timeout")))
    assert create(store) is None
    assert [operation for operation, _ in store.requests].count("create") == 3


def test_a_lost_answer_to_a_lost_race_is_a_lost_race(inner: ObstoreStore) -> None:
    inner.put("key", b"theirs")
    store = FaultStore(inner, times(1, "before", "create", StorageUnavailable("timeout")))
    assert create(store) == b"theirs"


def test_conflict_with_nothing_stored_is_retried(inner: ObstoreStore) -> None:
    store = FaultStore(inner, times(1, "before", "create", AlreadyExists("409")))
    assert create(store) is None
    assert inner.get("key") == b"ours"


def test_reading_back_is_repeated_too(inner: ObstoreStore) -> None:
    inner.put("key", b"theirs")
    store = FaultStore(inner, times(2, "before", "get", StorageUnavailable("timeout")))
    assert create(store) == b"theirs"


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_outcome_that_stays_unknown_is_said_to_be(inner: ObstoreStore, when: When) -> None:
    def fault(at: When, operation: Operation, key: str) -> None:
        if at == when:
            raise StorageUnavailable("down")

    with pytest.raises(OutcomeUnknown):
        create(FaultStore(inner, fault), deadline_s=0.1)


@pytest.mark.parametrize("error", [StorageFull("no room"), StorageError("denied")])
def test_a_refusal_is_definite(inner: ObstoreStore, error: StorageError) -> None:
    with pytest.raises(type(error)) as caught:
        create(FaultStore(inner, times(99, "before", "create", error)))
    assert caught.value is error
    with pytest.raises(ObjectNotFound):
        inner.get("key")


def test_a_refusal_after_a_lost_answer_is_not_definite(inner: ObstoreStore) -> None:
    errors = iter([StorageUnavailable("dropped")])

    def fault(at: When, operation: Operation, key: str) -> None:
        if operation == "create":
            raise next(errors, StorageFull("no room"))

    with pytest.raises(OutcomeUnknown):
        create(FaultStore(inner, fault), deadline_s=0.1)


@pytest.mark.parametrize("first", [StorageUnavailable("timeout"), AlreadyExists("its own")])
@pytest.mark.parametrize(
    "readback", [StorageError("403"), StorageUnavailable("503"), ObjectNotFound("404")], ids=str
)
@pytest.mark.parametrize("refusal", [StorageError("403"), StorageFull("507"), ObjectNotFound("404")], ids=str)
def test_nothing_takes_back_what_may_be_stored(
    inner: ObstoreStore,
    first: StorageError,
    readback: StorageError | ObjectNotFound,
    refusal: StorageError | ObjectNotFound,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first create is applied and answered by `first`; nothing can be read; the rest is refused."""
    answered: list[bool] = []
    read: list[bool] = []

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "get":
            read.append(True)
            raise readback
        if when == "after" and not answered:
            answered.append(True)
            raise first
        if when == "before" and read:
            raise refusal

    slept = [0.0]
    monkeypatch.setattr("app.storage.create_once.time", SimpleNamespace(monotonic=lambda: sum(slept)))
    with pytest.raises(OutcomeUnknown):
        create_once(FaultStore(inner, fault), "key", b"ours", deadline_s=0.1, sleep=slept.append)
    assert read
    assert inner.get("key") == b"ours"


def test_the_waits_grow_and_end_at_the_deadline(inner: ObstoreStore) -> None:
    waits: list[float] = []

    def fault(at: When, operation: Operation, key: str) -> None:
        raise StorageUnavailable("down")

    with pytest.raises(OutcomeUnknown):
        create_once(FaultStore(inner, fault), "key", b"ours", deadline_s=0.5, sleep=waits.append)
    assert max(waits) <= 1.0
    assert waits[0] <= 0.05
    assert max(waits) > waits[0]


def test_nonces_differ() -> None:
    assert len({new_nonce() for _ in range(1000)}) == 1000


def test_store_time_is_the_stores_and_leaves_nothing(inner: ObstoreStore) -> None:
    inner.put("before", b"")
    now = store_time(inner)
    inner.put("after", b"")
    assert inner.head("before").last_modified <= now <= inner.head("after").last_modified
    assert {info.key for info in inner.list("")} == {"before", "after"}
