"""Small appends that are decoded together: each is answered for itself, and none spoils another."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import KIB, Limits
from app.errors import Overloaded, StorageError
from app.runtime.spool import Spool
from app.services.datasets.append import batches as small_appends
from app.services.datasets.append.batches import SmallAppend, SmallAppends
from app.services.datasets.append.request import Appended, AppendRequest
from app.services.datasets.objects.incarnation import DatasetOptions
from tests.rows import SCHEMA, Client
from tests.stores import FaultStore, Operation, When
from tests.unit.services.datasets.append.test_request import append as store_rows


@pytest.fixture
def appends(client: Client) -> Iterator[SmallAppends]:
    client.datasets.create("d", SCHEMA, DatasetOptions())
    client.datasets.destination("d")
    opened = SmallAppends(client.datasets, Limits(), Spool(None, 1 << 30))
    yield opened
    opened.close()


def small(body: bytes, *, dataset: str = "d", split: str = "train") -> SmallAppend:
    request = AppendRequest(dataset, split, "json", None, RecordsDecodeOptions(), RecordsEncodeOptions())
    return SmallAppend(request, body)


@contextmanager
def held_back(appends: SmallAppends) -> Iterator[None]:
    """Whatever is added meanwhile waits, and is taken in together."""
    going_on = threading.Event()
    appends._pool.submit(going_on.wait)
    try:
        yield
    finally:
        going_on.set()


def answered(outcome: "Future[Appended | None]") -> dict[str, Any] | None:
    found = outcome.result(timeout=30)
    return None if found is None else {**found.append}


def test_appends_that_wait_together_are_answered_each_for_itself(
    appends: SmallAppends, client: Client
) -> None:
    bodies = [b'[{"x": 0}]', b'[{"x": 1}, {"x": 2}]', b'{"instances": [{"x": 3}]}', b'[{"x": 400}]']
    with held_back(appends):
        waiting = [small(body) for body in bodies]
        assert all(map(appends.add, waiting))
    found = [answered(append.outcome) for append in waiting]
    assert [body and body["num_records"] for body in found] == [1, 2, 1, 1]
    assert len({body["append_id"] for body in found if body}) == 1
    sizes = [body["num_bytes"] for body in found if body]
    assert sizes[3] - 1 == sizes[0] == sizes[2] == sizes[1] // 2
    client.publish()
    assert client.read() == [0, 1, 2, 3, 400]


@pytest.mark.parametrize(
    "bad", [b"[", b'[{"x": "text"}]', b'[{"y": 1}]', b"[]", b'{"x": [1]}', b'[{"x": 1.5}]', b'{"schema": {}}']
)
def test_one_that_is_refused_does_not_spoil_the_others(
    appends: SmallAppends, client: Client, bad: bytes
) -> None:
    with held_back(appends):
        waiting = [small(body) for body in (b'[{"x": 1}]', bad, b'[{"x": 2}]')]
        assert all(map(appends.add, waiting))
    found = [answered(append.outcome) for append in waiting]
    assert [body is None for body in found] == [False, True, False]
    client.publish()
    assert client.read() == [1, 2]


def test_one_that_meets_a_defect_does_not_spoil_the_others(
    appends: SmallAppends, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode_bodies = vars(small_appends)["decode_bodies"]

    def defective(bodies: list[bytes], *rest: Any) -> Any:
        if any(b"666" in body for body in bodies):
            raise RuntimeError("a defect")
        return decode_bodies(bodies, *rest)

    monkeypatch.setattr(small_appends, "decode_bodies", defective)
    with held_back(appends):
        waiting = [small(body) for body in (b'[{"x": 1}]', b'[{"x": 666}]', b'[{"x": 2}]')]
        assert all(map(appends.add, waiting))
    assert answered(waiting[0].outcome)
    with pytest.raises(RuntimeError, match="a defect"):
        answered(waiting[1].outcome)
    assert answered(waiting[2].outcome)
    client.publish()
    assert client.read() == [1, 2]


def test_other_datasets_and_splits_are_kept_apart(appends: SmallAppends, client: Client) -> None:
    client.datasets.create("e", SCHEMA, DatasetOptions())
    client.datasets.destination("e")
    with held_back(appends):
        waiting = [
            small(b'[{"x": 1}]'),
            small(b'[{"x": 2}]', dataset="e"),
            small(b'[{"x": 3}]', split="test"),
            small(b'[{"x": 4}]'),
        ]
        assert all(map(appends.add, waiting))
    found = [answered(append.outcome) for append in waiting]
    assert [(body["dataset"], body["split"]) for body in found if body] == [
        ("d", "train"),
        ("e", "train"),
        ("d", "test"),
        ("d", "train"),
    ]
    client.publish()
    assert (client.read(), client.read(split="test")) == ([1, 4], [3])


def test_a_dataset_that_is_not_known_here_is_not_asked_for(
    appends: SmallAppends, client: Client, store: FaultStore
) -> None:
    client.datasets.create("fresh", None, DatasetOptions())
    store.requests.clear()
    assert not appends.add(small(b'[{"x": 1}]', dataset="nobody"))
    assert not appends.add(small(b'[{"x": 1}]', dataset="fresh"))
    assert store.requests == []


def test_what_waits_is_bounded(appends: SmallAppends) -> None:
    body = b'[{"x": 1}]' + b" " * (32 * KIB)
    with held_back(appends):
        waiting = [small(body) for _ in range(200)]
        added = [appends.add(append) for append in waiting]
    assert added[0]
    assert not added[-1]
    for append, is_added in zip(waiting, added, strict=True):
        assert not is_added or answered(append.outcome)


def test_a_dataset_made_anew_meanwhile_gets_the_rows(
    appends: SmallAppends, client: Client, store: FaultStore
) -> None:
    other = Client(store)
    other.datasets.delete("d")
    other.append([0])
    append = small(b'[{"x": 7}]')
    assert appends.add(append)
    assert answered(append.outcome)
    other.publish()
    assert other.read() == [0, 7]


def test_a_store_that_fails_is_the_answer(appends: SmallAppends, store: FaultStore) -> None:
    def fail(when: When, operation: Operation, _: str) -> None:
        if when == "before" and operation == "create":
            raise StorageError("no", code="storage_denied")

    store.fault = fail
    append = small(b'[{"x": 1}]')
    assert appends.add(append)
    with pytest.raises(StorageError):
        append.outcome.result(timeout=30)


def test_an_integer_that_float32_does_not_hold_is_left_to_who_notes_it(client: Client) -> None:
    store_rows(client, b'[{"x": 1}]')
    client.datasets.destination("d")
    appends = SmallAppends(client.datasets, Limits(), Spool(None, 1 << 30))
    try:
        with held_back(appends):
            waiting = [small(body) for body in (b'[{"x": 2}]', b'[{"x": 16777217}]', b'[{"x": 3}]')]
            assert all(map(appends.add, waiting))
        found = [answered(waits.outcome) for waits in waiting]
    finally:
        appends.close()
    assert [body is None for body in found] == [False, True, False]
    client.publish()
    assert client.read() == [1, 2, 3]


def test_datasets_are_served_in_turn(
    appends: SmallAppends, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.datasets.create("e", SCHEMA, DatasetOptions())
    client.datasets.destination("e")
    order: list[list[bytes]] = []

    decode_bodies = vars(small_appends)["decode_bodies"]

    def seen(bodies: list[bytes], *rest: Any) -> Any:
        order.append(bodies)
        return decode_bodies(bodies, *rest)

    monkeypatch.setattr(small_appends, "decode_bodies", seen)
    monkeypatch.setattr(small_appends, "_BATCH_CELLS", 2)
    many = [small(b'[{"x": %d}]' % x) for x in range(4)]
    with held_back(appends):
        other = small(b'[{"x": 9}]', dataset="e")
        assert all(map(appends.add, [*many, other]))
    assert answered(other.outcome)
    assert all(answered(append.outcome) for append in many)
    assert order == [[b'[{"x": 0}]', b'[{"x": 1}]'], [b'[{"x": 9}]'], [b'[{"x": 2}]', b'[{"x": 3}]']]


def test_one_that_may_take_long_goes_the_ordinary_way(
    appends: SmallAppends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_appends, "_BATCH_CELLS", 100)
    body = b"[" + b",".join([b"{}"] * 101) + b"]"
    assert not appends.add(small(body))
    assert not appends.is_quick("d", body)
    assert not appends.is_quick("d", b"x\n" + b"\n" * 101)
    assert not appends.is_quick("d", bytes(16 * 101))
    assert not appends.is_quick("unknown", b"[" + b",".join([b'{"a": 1}'] * 20) + b"]")
    assert appends.is_quick("d", b'[{"x": 1}]')
    assert appends.is_quick("unknown", b'[{"x": 1}]')


def test_one_dataset_leaves_half_of_the_queue_to_others(
    appends: SmallAppends, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.datasets.create("e", SCHEMA, DatasetOptions())
    client.datasets.destination("e")
    monkeypatch.setattr(small_appends, "_WAITING_BYTES_OF_ONE", 15)
    with held_back(appends):
        assert appends.add(small(b'[{"x": 1}]'))
        assert not appends.add(small(b'[{"x": 2}]'))
        assert appends.add(small(b'[{"x": 3}]', dataset="e"))


def test_one_that_waited_too_long_is_refused_and_not_stored(
    appends: SmallAppends, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_back(appends):
        late, in_time = small(b'[{"x": 1}]'), small(b'[{"x": 2}]')
        late.since -= small_appends._LONGEST_WAIT_S + 1
        assert all(map(appends.add, [late, in_time]))
    with pytest.raises(Overloaded, match="not stored"):
        late.outcome.result(timeout=30)
    assert answered(in_time.outcome)
    client.publish()
    assert client.read() == [2]
