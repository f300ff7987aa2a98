"""Small appends share a slot: each is answered for itself, and none is stored twice or spoilt by another."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.evolution import widen
from app.domain.limits import KIB, MIB
from app.errors import Conflict, OutcomeUnknown, Overloaded, StorageFull, StorageUnavailable
from app.services.datasets.append import appends as appends_module
from app.services.datasets.append import groups as groups_module
from app.services.datasets.append import slots as slots_module
from app.services.datasets.append.groups import Groups, Member
from app.services.datasets.append.request import AppendRequest
from app.services.datasets.append.result import AppendResult
from app.services.datasets.objects.catalog import Outdated
from app.services.datasets.objects.incarnation import DatasetOptions, Destination
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.slot import Commit, read_slot
from app.storage import create_once as create_once_module
from app.storage.obstore_store import ObstoreStore
from tests.support.dataset_rows import PADDED, SCHEMA, Client, records, rows_body
from tests.support.faulty_store import FaultStore, Operation, When

LAYOUT = Layout("d", 1)
HERE = Destination(LAYOUT, SCHEMA)


class Held(ThreadPoolExecutor):
    """Runs nothing until it is told to, then all that was submitted, in order."""

    def __init__(self) -> None:
        super().__init__(1)
        self.waiting: list[Callable[[], Any]] = []

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.waiting.append(lambda: function(*args, **kwargs))
        return Future()

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "_PAUSE_S", 0.0)


@pytest.fixture
def client(store: FaultStore) -> Client:
    """A replica of which groups are stored when the test says so."""
    client = Client(store)
    client.datasets.create("d", SCHEMA, DatasetOptions())
    client.datasets._appends._groups._pool = Held()
    return client


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> AppendResult:
        raise Outdated("It would be stored once more.")

    monkeypatch.setattr(appends_module.Appends, "_append_anew", refuse)


def submit(
    client: Client, values: list[int], *, split: str = "train", pad: int | None = None
) -> "Future[AppendResult]":
    """Store rows in a group, and not once more if the dataset is not what it was."""
    request = AppendRequest("d", split, "json", RecordsDecodeOptions(), RecordsEncodeOptions())
    body = rows_body(lambda: records(values, pad=pad))
    return client.datasets._appends._group_or_store(
        request, body, client.datasets._catalog.destination("d"), b""
    )


def run(client: Client) -> None:
    pool = client.datasets._appends._groups._pool
    assert isinstance(pool, Held)
    pool.run()


def slots(store: FaultStore) -> list[str]:
    return [key for operation, key in store.requests if operation == "create" and "/slots/" in key]


def test_appends_at_one_time_are_one_put(client: Client, store: FaultStore, inner: ObstoreStore) -> None:
    answers = [submit(client, [2 * i, 2 * i + 1]) for i in range(100)]
    store.requests.clear()
    run(client)
    found = [answer.result() for answer in answers]
    assert len(slots(store)) == 1
    # One look at the dataset's end and one at its schema for all of them.
    assert [operation for operation, _ in store.requests] == ["head", "head", "create"]
    assert len({result.append_id for result in found}) == 1
    assert {(result.num_records, result.split, result.dataset) for result in found} == {(2, "train", "d")}
    slot = read_slot(inner, LAYOUT, found[0].append_id)
    assert isinstance(slot, Commit)
    assert (slot.num_records, slot.num_bytes) == (200, sum(result.num_bytes for result in found))
    client.publish()
    assert client.read() == list(range(200))


def test_a_group_has_at_most_4_mib(client: Client, store: FaultStore) -> None:
    client.datasets.delete("d")
    client.datasets.create("d", PADDED, DatasetOptions())
    size = submit(client, [0], pad=60_000)
    answers = [size, *(submit(client, [i], pad=60_000) for i in range(1, 200))]
    run(client)
    num_bytes = [answer.result().num_bytes for answer in answers]
    in_one = 4 * MIB // num_bytes[0]
    assert len(slots(store)) == -(-200 // in_one) == len({answer.result().append_id for answer in answers})
    client.publish()
    assert sorted(client.read()) == list(range(200))


@pytest.mark.parametrize("pad", [65 * KIB, 300 * KIB])
def test_larger_appends_go_alone(client: Client, store: FaultStore, pad: int) -> None:
    client.datasets.delete("d")
    client.datasets.create("d", PADDED, DatasetOptions())
    answers = [submit(client, [i], pad=pad) for i in range(2)]
    assert [answer.done() for answer in answers] == [True, True]
    assert len(slots(store)) == 2


def test_splits_have_groups_of_their_own(client: Client, store: FaultStore) -> None:
    answers = [submit(client, [i], split=split) for i, split in enumerate(["train", "test", "train"])]
    run(client)
    assert [answer.result().split for answer in answers] == ["train", "test", "train"]
    assert len(slots(store)) == 2
    client.publish()
    assert (client.read(), client.read(split="test")) == ([0, 2], [1])


def test_the_first_rows_of_a_dataset_go_alone(store: FaultStore) -> None:
    client = Client(store)
    assert submit(client, [1]).done()
    assert client.datasets.schema("d") == SCHEMA


def test_appends_one_after_the_other_keep_their_order(client: Client) -> None:
    for value in range(20):
        answer = submit(client, [value])
        run(client)
        answer.result()
    client.publish()
    assert client.read() == list(range(20))


def test_appends_of_no_rows_are_acknowledged(client: Client) -> None:
    answer = submit(client, [])
    run(client)
    assert answer.result().num_records == 0


def test_every_member_hears_of_an_unknown_outcome(
    client: Client, store: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        slots_module,
        "create_once",
        lambda store, key, data: create_once_module.create_once(store, key, data, deadline_s=0.05),
    )

    def fault(when: When, operation: Operation, key: str) -> None:
        if "/slots/" in key and when == "after":
            raise StorageUnavailable("dropped")

    answers = [submit(client, [i]) for i in range(3)]
    store.fault = fault
    run(client)
    errors = [answer.exception() for answer in answers]
    assert [type(error) for error in errors] == [OutcomeUnknown] * 3
    assert len({id(error) for error in errors}) == 3
    assert {error.code for error in errors if isinstance(error, OutcomeUnknown)} == {"outcome_unknown"}
    store.fault = None
    client.publish()  # it was stored, and is there once
    assert client.read() == [0, 1, 2]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_is_resolved_for_all(client: Client, store: FaultStore, when: When) -> None:
    errors = [StorageUnavailable("dropped")]

    def fault(moment: When, operation: Operation, key: str) -> None:
        if operation == "create" and "/slots/" in key and moment == when and errors:
            raise errors.pop()

    answers = [submit(client, [i]) for i in range(3)]
    store.fault = fault
    run(client)
    assert [answer.result().num_records for answer in answers] == [1, 1, 1]
    client.publish()
    assert client.read() == [0, 1, 2]


def test_a_refused_put_is_a_definite_no_for_all(client: Client, store: FaultStore) -> None:
    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create":
            raise StorageFull("full")

    answers = [submit(client, [i]) for i in range(3)]
    store.fault = fault
    run(client)
    for answer in answers:
        with pytest.raises(StorageFull):
            answer.result()
    store.fault = None
    with pytest.raises(Conflict):
        client.publish()


@pytest.mark.parametrize("elsewhere", [True, False])
def test_nothing_is_stored_for_a_dataset_that_is_gone(
    client: Client, store: FaultStore, inner: ObstoreStore, elsewhere: bool
) -> None:
    answers = [submit(client, [i]) for i in range(3)]
    (Client(inner) if elsewhere else client).datasets.delete("d")
    run(client)
    for answer in answers:
        with pytest.raises(Outdated):
            answer.result()
    assert slots(store) == []


def test_nothing_is_acknowledged_once_this_replica_has_deleted_the_dataset(
    client: Client, store: FaultStore
) -> None:
    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and "/slots/" in key and when == "before":
            store.fault = None
            client.datasets.delete("d")

    answer = submit(client, [1])
    store.fault = fault
    run(client)
    with pytest.raises(Conflict) as caught:
        answer.result()
    assert caught.value.code == "dataset_deleted"


def test_nothing_is_stored_under_a_schema_that_has_been_widened(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    answer = submit(client, [1])
    other = Client(inner)
    other.datasets._catalog.settle(LAYOUT, widen(SCHEMA, PADDED), evolve=True)
    run(client)
    with pytest.raises(Outdated):
        answer.result()
    assert slots(store) == []


def test_where_much_is_waiting_appends_go_alone(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "_WAITING_BYTES", 100)
    answers = [submit(client, [i]) for i in range(10)]
    grouped = [answer for answer in answers if not answer.done()]
    assert 0 < len(grouped) < 10
    run(client)
    assert len({answer.result().append_id for answer in answers}) == 11 - len(grouped)
    assert not submit(client, [10]).done()  # there is room again
    run(client)
    client.publish()
    assert sorted(client.read()) == list(range(11))


def test_threads_that_join_at_once_are_all_stored_once(inner: ObstoreStore) -> None:
    client = Client(inner)
    client.datasets.create("d", SCHEMA, DatasetOptions())
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda value: submit(client, [value]).result(), range(200)))
    assert len(answers) == 200
    client.publish()
    assert sorted(client.read()) == list(range(200))


def test_members_that_nobody_can_store_hear_of_it() -> None:
    def fails(*_: object) -> str:
        raise ValueError("a bug")

    pool = Held()
    groups = Groups(pool, fails)
    member = Member(b"x", 1)
    assert groups.add(HERE, "train", member)
    pool.run()
    assert isinstance(member.outcome.exception(), ValueError)
    assert groups._waiting == 0


def test_a_group_that_no_thread_took_up_in_time_is_refused(
    client: Client, store: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [submit(client, [i]) for i in range(3)]
    monkeypatch.setattr(groups_module, "_LONGEST_WAIT_S", -1.0)
    run(client)
    for answer in answers:
        with pytest.raises(Overloaded):
            answer.result()
    assert slots(store) == []
    monkeypatch.undo()
    again = submit(client, [3])
    run(client)
    assert again.result().num_records == 1


def test_an_error_that_cannot_be_copied_reaches_every_member() -> None:
    class Awkward(Exception):
        def __init__(self, first: str, second: str) -> None:
            super().__init__(first + second)

    def fails(*_: object) -> str:
        raise Awkward("a", "bug")

    pool = Held()
    groups = Groups(pool, fails)
    members = [Member(b"x", 1) for _ in range(2)]
    assert all(groups.add(HERE, "train", member) for member in members)
    pool.run()
    assert [type(member.outcome.exception(timeout=0)) for member in members] == [Awkward, Awkward]


def test_members_that_have_to_be_read_again_do_not_wait_for_one_another() -> None:
    def outdated(*_: object) -> str:
        raise Outdated("widened")

    pool = Held()
    groups = Groups(pool, outdated)
    members = [Member(b"x", 1) for _ in range(3)]
    assert all(groups.add(HERE, "train", member) for member in members)
    pool.waiting.pop(0)()
    assert len(pool.waiting) == 3
    assert not any(member.outcome.done() for member in members)
    pool.run()
    assert all(isinstance(member.outcome.exception(timeout=0), Outdated) for member in members)
