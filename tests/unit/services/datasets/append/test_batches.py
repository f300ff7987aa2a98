"""Small appends that are decoded together: each is answered for itself, and none spoils another."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import KIB
from app.errors import Overloaded, StorageError
from app.services.datasets.append import batches
from app.services.datasets.append.batches import Batches
from app.services.datasets.append.request import AppendRequest
from app.services.datasets.append.result import AppendResult
from app.services.datasets.objects.incarnation import DatasetOptions
from tests.support.dataset_rows import SCHEMA, Client
from tests.support.faulty_store import FaultStore, Operation, When
from tests.unit.services.datasets.append.test_request import append as store_rows


@pytest.fixture
def appends(client: Client) -> Iterator[Batches]:
    client.datasets.create("d", SCHEMA, DatasetOptions())
    client.datasets._catalog.destination("d")
    yield client.datasets._appends._batches
    client.datasets.close()


@dataclass
class Small:
    """A small append; its outcome, once it was added."""

    request: AppendRequest
    body: bytes
    outcome: "Future[AppendResult | None]" = field(default_factory=Future)


def small(body: bytes, *, dataset: str = "d", split: str = "train") -> Small:
    return Small(AppendRequest(dataset, split, "json", RecordsDecodeOptions(), RecordsEncodeOptions()), body)


def add(appends: Batches, append: Small) -> bool:
    outcome = appends.add(append.request, append.body)
    if outcome is not None:
        append.outcome = outcome
    return outcome is not None


@contextmanager
def held_back(appends: Batches) -> Iterator[None]:
    """Whatever is added meanwhile waits, and is taken in together."""
    going_on = threading.Event()
    appends._pool.submit(going_on.wait)
    try:
        yield
    finally:
        going_on.set()


def answered(outcome: "Future[AppendResult | None]") -> dict[str, Any] | None:
    found = outcome.result(timeout=30)
    return None if found is None else {**found.to_json()}


def test_appends_that_wait_together_are_answered_each_for_itself(appends: Batches, client: Client) -> None:
    bodies = [b'[{"x": 0}]', b'[{"x": 1}, {"x": 2}]', b'{"instances": [{"x": 3}]}', b'[{"x": 400}]']
    with held_back(appends):
        waiting = [small(body) for body in bodies]
        assert all(add(appends, one) for one in waiting)
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
def test_one_that_is_refused_does_not_spoil_the_others(appends: Batches, client: Client, bad: bytes) -> None:
    with held_back(appends):
        waiting = [small(body) for body in (b'[{"x": 1}]', bad, b'[{"x": 2}]')]
        assert all(add(appends, one) for one in waiting)
    found = [answered(append.outcome) for append in waiting]
    assert [body is None for body in found] == [False, True, False]
    client.publish()
    assert client.read() == [1, 2]


def test_one_that_meets_a_defect_does_not_spoil_the_others(
    appends: Batches, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode_bodies = vars(batches)["decode_bodies"]

    def defective(bodies: list[bytes], *rest: Any) -> Any:
        if any(b"666" in body for body in bodies):
            raise RuntimeError("a defect")
        return decode_bodies(bodies, *rest)

    monkeypatch.setattr(batches, "decode_bodies", defective)
    with held_back(appends):
        waiting = [small(body) for body in (b'[{"x": 1}]', b'[{"x": 666}]', b'[{"x": 2}]')]
        assert all(add(appends, one) for one in waiting)
    assert answered(waiting[0].outcome)
    with pytest.raises(RuntimeError, match="a defect"):
        answered(waiting[1].outcome)
    assert answered(waiting[2].outcome)
    client.publish()
    assert client.read() == [1, 2]


def test_other_datasets_and_splits_are_kept_apart(appends: Batches, client: Client) -> None:
    client.datasets.create("e", SCHEMA, DatasetOptions())
    client.datasets._catalog.destination("e")
    with held_back(appends):
        waiting = [
            small(b'[{"x": 1}]'),
            small(b'[{"x": 2}]', dataset="e"),
            small(b'[{"x": 3}]', split="test"),
            small(b'[{"x": 4}]'),
        ]
        assert all(add(appends, one) for one in waiting)
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
    appends: Batches, client: Client, store: FaultStore
) -> None:
    client.datasets.create("fresh", None, DatasetOptions())
    store.requests.clear()
    assert not add(appends, small(b'[{"x": 1}]', dataset="nobody"))
    assert not add(appends, small(b'[{"x": 1}]', dataset="fresh"))
    assert store.requests == []


def test_waiting_appends_are_bounded(appends: Batches) -> None:
    body = b'[{"x": 1}]' + b" " * (32 * KIB)
    with held_back(appends):
        waiting = [small(body) for _ in range(200)]
        added = [add(appends, append) for append in waiting]
    assert added[0]
    assert not added[-1]
    for append, is_added in zip(waiting, added, strict=True):
        assert not is_added or answered(append.outcome)


def test_recreated_dataset_gets_the_rows(appends: Batches, client: Client, store: FaultStore) -> None:
    other = Client(store)
    other.datasets.delete("d")
    other.append([0])
    append = small(b'[{"x": 7}]')
    assert add(appends, append)
    assert answered(append.outcome)
    other.publish()
    assert other.read() == [0, 7]


def test_a_store_that_fails_is_the_answer(appends: Batches, store: FaultStore) -> None:
    def fail(when: When, operation: Operation, _: str) -> None:
        if when == "before" and operation == "create":
            raise StorageError("no", code="storage_denied")

    store.fault = fail
    append = small(b'[{"x": 1}]')
    assert add(appends, append)
    with pytest.raises(StorageError):
        append.outcome.result(timeout=30)


def test_an_integer_that_float32_does_not_hold_is_left_to_who_notes_it(client: Client) -> None:
    store_rows(client, b'[{"x": 1}]')
    client.datasets._catalog.destination("d")
    appends = client.datasets._appends._batches
    try:
        with held_back(appends):
            waiting = [small(body) for body in (b'[{"x": 2}]', b'[{"x": 16777217}]', b'[{"x": 3}]')]
            assert all(add(appends, one) for one in waiting)
        found = [answered(waits.outcome) for waits in waiting]
    finally:
        client.datasets.close()
    assert [body is None for body in found] == [False, True, False]
    client.publish()
    assert client.read() == [1, 2, 3]


def test_datasets_are_served_in_turn(
    appends: Batches, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.datasets.create("e", SCHEMA, DatasetOptions())
    client.datasets._catalog.destination("e")
    order: list[list[bytes]] = []

    decode_bodies = vars(batches)["decode_bodies"]

    def seen(bodies: list[bytes], *rest: Any) -> Any:
        order.append(bodies)
        return decode_bodies(bodies, *rest)

    monkeypatch.setattr(batches, "decode_bodies", seen)
    monkeypatch.setattr(batches, "_BATCH_CELLS", 2)
    many = [small(b'[{"x": %d}]' % x) for x in range(4)]
    with held_back(appends):
        other = small(b'[{"x": 9}]', dataset="e")
        assert all(add(appends, one) for one in [*many, other])
    assert answered(other.outcome)
    assert all(answered(append.outcome) for append in many)
    assert order == [[b'[{"x": 0}]', b'[{"x": 1}]'], [b'[{"x": 9}]'], [b'[{"x": 2}]', b'[{"x": 3}]']]


def test_one_that_may_take_long_goes_the_ordinary_way(
    appends: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_BATCH_CELLS", 100)
    body = b"[" + b",".join([b"{}"] * 101) + b"]"
    assert not add(appends, small(body))


def test_one_dataset_leaves_half_of_the_queue_to_others(
    appends: Batches, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.datasets.create("e", SCHEMA, DatasetOptions())
    client.datasets._catalog.destination("e")
    monkeypatch.setattr(batches, "_WAITING_BYTES_OF_ONE", 15)
    with held_back(appends):
        assert add(appends, small(b'[{"x": 1}]'))
        assert not add(appends, small(b'[{"x": 2}]'))
        assert add(appends, small(b'[{"x": 3}]', dataset="e"))


def test_one_that_waited_too_long_is_refused_and_not_stored(
    appends: Batches, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_back(appends):
        late, in_time = small(b'[{"x": 1}]'), small(b'[{"x": 2}]')
        assert add(appends, late)
        appends._waiting["d"].appends[0].since -= batches._LONGEST_WAIT_S + 1
        assert add(appends, in_time)
    with pytest.raises(Overloaded, match="not stored"):
        late.outcome.result(timeout=30)
    assert answered(in_time.outcome)
    client.publish()
    assert client.read() == [2]
