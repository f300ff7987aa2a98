"""Appending: one slot is the acknowledgement; before it nothing is visible, after it nothing is lost."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from app.codecs.columns import Batch, Records
from app.codecs.options import RecordsEncodeOptions
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.errors import (
    Conflict,
    InProgress,
    LimitExceeded,
    MalformedInput,
    OutcomeUnknown,
    SchemaConflict,
    StorageError,
    StorageFull,
    StorageUnavailable,
    UnprocessableInput,
)
from app.runtime.budget import Budget
from app.runtime.buffer_pool import BufferPool
from app.runtime.streams import Buffer
from app.services.datasets.append import key_locks
from app.services.datasets.append import slots as slots_module
from app.services.datasets.append.result import AppendResult
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.objects.slot import Commit, read_slot
from app.storage import create_once as create_once_module
from app.storage.object_store import AlreadyExists, ObjectNotFound
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.arrow_rows import from_arrow
from tests.support.checksummed_json import sealed
from tests.support.dataset_rows import PADDED, SCHEMA, Client, records, store_rows
from tests.support.faulty_store import WRITES, FaultStore, Operation, When, keys

LAYOUT = Layout("d", 1)


def append_records(
    client: Client, rows: Records, *, key: str | None = None, evolve: bool = False
) -> AppendResult:
    return store_rows(
        client.datasets,
        "d",
        "train",
        rows,
        key=key,
        digest=lambda: "",
        options=RecordsEncodeOptions(),
        budget=Budget(),
        evolve=evolve,
    )


def test_the_result_tells_what_was_stored(client: Client) -> None:
    result = client.append([1, 2, 3], split="test")
    assert (result.dataset, result.split, result.num_records, result.replayed) == ("d", "test", 3, False)
    assert set(result.to_json()) == {"dataset", "split", "append_id", "num_records", "num_bytes"}
    client.publish()
    assert client.datasets.manifest("d", "latest").splits["test"].num_bytes == result.num_bytes


def test_few_rows_are_one_object(client: Client, inner: ObstoreStore) -> None:
    client.datasets.create("d", SCHEMA, DatasetOptions())
    before = keys(inner)
    result = client.append([1, 2, 3])
    assert set(keys(inner)) - set(before) == {LAYOUT.slot(result.append_id)}


def test_many_rows_are_parts_of_at_most_16_mib(client: Client, inner: ObstoreStore) -> None:
    result = client.append(range(400), pad=100_000)
    parts = [info for info in inner.list("") if "/parts/" in info.key]
    assert sum(part.size for part in parts) == result.num_bytes
    assert [part.size <= 16 * MIB for part in parts] == [True] * 3
    client.publish()
    assert client.read() == list(range(400))


def test_a_part_is_stored_while_rows_still_come(client: Client, inner: ObstoreStore) -> None:
    seen: list[int] = []

    def watched(batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            seen.append(len(keys(inner, "/parts/")))
            yield batch

    rows = records(range(800), pad=100_000)
    store_rows(
        client.datasets,
        "d",
        "train",
        replace(rows, batches=watched(rows.batches)),
        key=None,
        digest=lambda: "",
        options=RecordsEncodeOptions(),
        budget=Budget(Limits(max_decoded_bytes=64 * MIB)),
    )
    assert seen[0] == 0
    assert seen[-1] >= 2  # of the four that are full, the others may be under way


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is used again does not look as it did: whoever still reads it would tell."""
    take = BufferPool.take

    def poisoned_take(pool: BufferPool, size: int) -> NDArray[np.uint8]:
        buffer = take(pool, size)
        buffer[:] = 0xDB
        return buffer

    monkeypatch.setattr(BufferPool, "take", poisoned_take)


class LateStore(FaultStore):
    """Its puts end, and what they were given is sent once more when the next one has begun."""

    late: tuple[str, Buffer] | None = None

    def put(self, key: str, data: Buffer) -> None:
        super().put(key, bytes(data))
        late, self.late = self.late, (key, data) if "/parts/" in key else None
        if late is not None:
            super().put(late[0], bytes(late[1]))


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("late", [True, False])
def test_parts_that_a_store_still_holds_do_not_change(late: bool) -> None:
    inner = open_store("memory://")  # which keeps what it is given, not a copy
    client = Client(LateStore(inner) if late else inner)
    client.append(range(1200), pad=100_000)
    assert len(keys(inner, "/parts/")) == 8
    client.publish()
    assert client.read() == list(range(1200))


def test_an_append_without_a_key_is_not_compared_with_any(client: Client, inner: ObstoreStore) -> None:
    def digest() -> str:
        raise AssertionError("nobody needs it")

    result = store_rows(
        client.datasets,
        "d",
        "train",
        records([1]),
        key=None,
        digest=digest,
        options=RecordsEncodeOptions(),
        budget=Budget(),
    )
    slot = read_slot(inner, LAYOUT, result.append_id)
    assert isinstance(slot, Commit)
    assert slot.digest == sha256(slot.pieces[0].sha256.encode()).hexdigest()


def test_a_row_larger_than_a_part_spans_several(client: Client, inner: ObstoreStore) -> None:
    client.append([7], pad=40 * MIB)
    assert len(keys(inner, "/parts/")) == 3
    client.publish()
    assert client.read() == [7]


def test_rows_create_the_dataset_with_their_schema(client: Client) -> None:
    assert client.datasets.schema("d") is None
    client.append([1])
    assert client.datasets.schema("d") == SCHEMA


def test_no_rows_give_no_schema(client: Client, inner: ObstoreStore) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        append_records(client, Records(Schema(()), iter([])))
    assert caught.value.code == "no_records"
    assert keys(inner) == []


def test_no_rows_under_a_declared_schema_create_the_dataset(client: Client) -> None:
    assert client.append([]).num_records == 0
    assert client.datasets.schema("d") == SCHEMA
    client.append([1])
    client.publish()
    assert client.read() == [1]


@pytest.mark.parametrize("created", [True, False])
def test_rows_without_a_feature_give_no_schema(client: Client, inner: ObstoreStore, created: bool) -> None:
    if created:
        client.datasets.create("d", None, DatasetOptions())
    before = keys(inner)
    empty_row = pa.record_batch([pa.nulls(1)], names=["x"]).select([])
    with pytest.raises(UnprocessableInput, match="Declare a schema") as caught:
        store_rows(
            client.datasets,
            "d",
            "train",
            from_arrow(Schema(()), [empty_row]),
            key=None,
            digest=lambda: "",
            options=RecordsEncodeOptions(),
            budget=Budget(),
        )
    assert caught.value.code == "no_features"
    assert keys(inner) == before


@pytest.mark.parametrize(("max_record_bytes", "row"), [(2000, 7), (1_000_000, 9)])
def test_a_row_larger_than_allowed_is_refused(
    store: FaultStore, inner: ObstoreStore, max_record_bytes: int, row: int
) -> None:
    """Row 7 has 3,000 bytes and comes in a block with others, row 9 has 2 MB and a block of its own."""
    sizes = [10, 20, 10, 20, 10, 20, 1900, 3000, 10, 2_000_000]
    batch = pa.record_batch([[b"x" * size for size in sizes]], names=["pad"])
    client = Client(store, Limits(max_record_bytes=max_record_bytes))
    with pytest.raises(LimitExceeded) as caught:
        store_rows(
            client.datasets,
            "d",
            "train",
            from_arrow(Schema.from_json({"features": {"pad": {"dtype": "bytes"}}}), [batch]),
            key=None,
            digest=lambda: "",
            options=RecordsEncodeOptions(),
            budget=Budget(),
        )
    assert (caught.value.code, caught.value.location.row) == ("record_too_large", row)
    assert keys(inner) == []


def test_a_row_as_large_as_allowed_is_published(inner: ObstoreStore) -> None:
    result = Client(inner).append([7], pad=100_000)
    assert result.num_bytes > 100_016
    payload = result.num_bytes - 16
    exact = Client(open_store("memory://"), Limits(max_record_bytes=payload))
    exact.append([7], pad=100_000)
    exact.publish()
    assert exact.read() == [7]
    less = Client(open_store("memory://"), Limits(max_record_bytes=payload - 1))
    with pytest.raises(LimitExceeded):
        less.append([7], pad=100_000)


def test_no_rows_for_a_dataset_with_a_schema_are_fine(client: Client) -> None:
    client.datasets.create("d", SCHEMA, DatasetOptions())
    assert client.append([]).num_records == 0


def test_a_store_that_fails_is_not_asked_to_remove_each_part(client: Client, store: FaultStore) -> None:
    def fault(when: When, operation: Operation, key: str) -> None:
        if when == "before" and (operation == "delete" or key.endswith("/2")):
            raise StorageUnavailable("down")

    store.fault = fault
    with pytest.raises(StorageUnavailable):
        client.append(range(400), pad=100_000)
    assert [operation for operation, _ in store.requests].count("delete") == 1


def test_rows_of_another_schema_are_refused_before_they_are_read(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    before = keys(inner)
    with pytest.raises(SchemaConflict, match="'pad'"):
        client.append([1], pad=3)
    assert keys(inner) == before


def test_of_two_first_appends_with_different_schemas_one_is_refused(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    rival = Client(inner)

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and when == "before" and key == LAYOUT.incarnation:
            store.fault = None
            rival.append([1], key="rival")

    store.fault = fault
    with pytest.raises(SchemaConflict):
        client.append([2] * 400, pad=1000)
    assert keys(inner, "/parts/") == []
    rival.publish()
    assert rival.read() == [1]


@pytest.mark.parametrize("pad", [None, 1000])
def test_the_same_key_and_body_again_give_the_first_result(
    client: Client, inner: ObstoreStore, pad: int | None
) -> None:
    first = client.append(range(400), key="k", pad=pad)
    objects = keys(inner)
    again = Client(inner).append(range(400), key="k", pad=pad)
    assert again == replace(first, replayed=True)
    assert keys(inner) == objects


def test_a_replay_draws_all_rows_before_it_asks_for_the_digest(client: Client) -> None:
    client.append([1, 2], key="k", digest="same")
    rows = records([1, 2])
    drawn: list[bool] = []

    def watched() -> Iterator[Batch]:
        yield from rows.batches
        drawn.append(True)

    def digest() -> str:
        assert drawn
        return "same"

    result = store_rows(
        client.datasets,
        "d",
        "train",
        Records(rows.schema, watched()),
        key="k",
        digest=digest,
        options=RecordsEncodeOptions(),
        budget=Budget(),
    )
    assert result.replayed


def test_a_key_is_good_for_one_body(client: Client) -> None:
    client.append([1], key="k")
    with pytest.raises(UnprocessableInput) as caught:
        client.append([2], key="k")
    assert caught.value.code == "idempotency_key_reused"
    client.publish()
    assert client.read() == [1]


def test_a_key_counts_for_one_dataset(client: Client) -> None:
    assert client.append([1], key="k").append_id == client.append([2], key="k", name="e").append_id
    assert client.datasets.schema("e") == SCHEMA


def test_appends_without_a_key_are_all_stored(client: Client) -> None:
    assert client.append([1]).append_id != client.append([1]).append_id
    client.publish()
    assert client.read() == [1, 1]


@pytest.mark.parametrize("same", [True, False])
def test_of_racing_attempts_with_one_key_the_second_learns_the_outcome(
    client: Client, store: FaultStore, inner: ObstoreStore, same: bool
) -> None:
    client.datasets.create("d", None, DatasetOptions())
    rows = list(range(400))

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and "/slots/" in key and when == "before":
            store.fault = None
            Client(inner).append(rows if same else [7] * 400, key="k", pad=1000)

    store.fault = fault
    if same:
        assert client.append(rows, key="k", pad=1000).replayed
    else:
        with pytest.raises(UnprocessableInput):
            client.append(rows, key="k", pad=1000)
    assert len(keys(inner, "/parts/")) == 1
    client.publish()
    assert client.read() == (rows if same else [7] * 400)


@pytest.mark.parametrize("lost", ["after", "before"])
def test_a_lost_answer_to_the_slot_is_resolved(
    client: Client, store: FaultStore, inner: ObstoreStore, lost: When
) -> None:
    errors = [StorageUnavailable("dropped")]

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and "/slots/" in key and when == lost and errors:
            raise errors.pop()

    store.fault = fault
    result = client.append([1, 2], key="k")
    assert not result.replayed
    client.publish()
    assert client.read() == [1, 2]


def test_conflict_with_nothing_stored_is_retried(client: Client, store: FaultStore) -> None:
    errors = [AlreadyExists("409")]

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and "/slots/" in key and errors:
            raise errors.pop()

    store.fault = fault
    assert not client.append([1], key="k").replayed


def test_an_unknown_outcome_keeps_the_parts_and_the_key_finds_out(
    client: Client, store: FaultStore, inner: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        slots_module,
        "create_once",
        lambda store, key, data: create_once_module.create_once(store, key, data, deadline_s=0.05),
    )

    def fault(when: When, operation: Operation, key: str) -> None:
        if "/slots/" in key and when == "after" and operation != "get_range":
            raise StorageUnavailable("dropped")

    store.fault = fault
    with pytest.raises(OutcomeUnknown):
        client.append(range(400), key="k", pad=1000)
    store.fault = None
    assert client.append(range(400), key="k", pad=1000).replayed
    client.publish()
    assert client.read() == list(range(400))


@pytest.mark.parametrize("first", [StorageUnavailable("timeout"), AlreadyExists("its own")])
@pytest.mark.parametrize("readback", [StorageError("403"), StorageUnavailable("503"), ObjectNotFound("404")])
@pytest.mark.parametrize("refusal", [StorageError("403"), StorageFull("507")])
def test_a_slot_that_may_be_there_keeps_its_parts(
    client: Client,
    store: FaultStore,
    monkeypatch: pytest.MonkeyPatch,
    first: StorageError,
    readback: StorageError | ObjectNotFound,
    refusal: StorageError,
) -> None:
    monkeypatch.setattr(
        slots_module,
        "create_once",
        lambda store, key, data: create_once_module.create_once(store, key, data, deadline_s=0.1),
    )
    client.datasets.create("d", PADDED, DatasetOptions())
    state = {"created": False, "read": False}

    def fault(when: When, operation: Operation, key: str) -> None:
        if "/slots/" not in key or operation == "get_range":
            return
        if operation == "get":
            state["read"] = True
            raise readback
        if when == "after" and not state["created"]:
            state["created"] = True
            raise first
        if when == "before" and state["read"]:
            raise refusal

    store.fault = fault
    with pytest.raises(OutcomeUnknown):
        client.append(range(400), key="k", pad=1000)
    store.fault = None
    assert client.append(range(400), key="k", pad=1000).replayed
    client.publish()
    assert client.read() == list(range(400))


@pytest.mark.parametrize(
    "error", [StorageUnavailable("down"), StorageFull("full"), MalformedInput("row"), KeyboardInterrupt()]
)
def test_rows_that_break_off_leave_nothing(client: Client, inner: ObstoreStore, error: BaseException) -> None:
    rows = records(range(400), pad=100_000)

    def breaking() -> Iterator[Batch]:
        for index, batch in enumerate(rows.batches):
            if index == 9:
                raise error
            yield batch

    with pytest.raises(type(error)) as caught:
        store_rows(
            client.datasets,
            "d",
            "train",
            Records(rows.schema, breaking()),
            key="k",
            digest=lambda: "",
            options=RecordsEncodeOptions(),
            budget=Budget(),
        )
    assert caught.value is error
    assert keys(inner) == []


@pytest.mark.parametrize("refused", ["put", "create"])
def test_a_full_store_leaves_nothing(
    client: Client, store: FaultStore, inner: ObstoreStore, refused: Operation
) -> None:
    client.datasets.create("d", None, DatasetOptions())
    left = [1]

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == refused and ("/parts/" in key or "/slots/" in key):
            left[0] -= 1
            if left[0] < 0 or operation == "create":
                raise StorageFull("full")

    store.fault = fault
    with pytest.raises(StorageFull):
        client.append(range(400), key="k", pad=100_000)
    assert keys(inner, "/parts/") == []
    assert keys(inner, "/slots/") == []


def test_a_dead_slot_refuses_its_append(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    rival = client.append([2], key="k")
    inner.put(LAYOUT.slot(rival.append_id), sealed(b'{"nonce":"x","fate":"dead"}') + b"\n")
    with pytest.raises(Conflict) as caught:
        client.append([2], key="k")
    assert caught.value.code == "append_expired"
    client.publish()
    assert client.read() == [1]


def test_an_attempt_of_more_than_an_hour_gives_up(
    client: Client, inner: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, late = time.monotonic, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock() + late)

    def digest() -> str:
        nonlocal late
        late = 3601.0
        return ""

    with pytest.raises(Conflict) as caught:
        store_rows(
            client.datasets,
            "d",
            "train",
            records(range(400), pad=1000),
            key="k",
            digest=digest,
            options=RecordsEncodeOptions(),
            budget=Budget(),
        )
    assert caught.value.code == "append_expired"
    assert keys(inner) == []


def test_a_dataset_deleted_meanwhile_takes_no_rows(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "put" and "/parts/" in key and when == "before":
            store.fault = None
            other = Client(inner)
            other.append([1], pad=0)
            other.datasets.delete("d")

    store.fault = fault
    with pytest.raises(Conflict) as caught:
        client.append(range(400), key="k", pad=1000)
    assert caught.value.code == "dataset_deleted"
    assert keys(inner, "/parts/") == []


@pytest.mark.parametrize("created_anew", [True, False])
def test_rows_sent_while_their_dataset_was_deleted_are_not_acknowledged(
    client: Client, inner: ObstoreStore, created_anew: bool
) -> None:
    client.append([0])
    rows = records([1])
    other = Client(inner)

    def deleting() -> Iterator[Batch]:
        yield from rows.batches
        other.datasets.delete("d")
        if created_anew:
            other.append([9])

    with pytest.raises(Conflict) as caught:
        store_rows(
            client.datasets,
            "d",
            "train",
            Records(rows.schema, deleting()),
            key="k",
            digest=lambda: "",
            options=RecordsEncodeOptions(),
            budget=Budget(),
        )
    assert caught.value.code == "dataset_deleted"
    assert len(keys(inner, "_g1/slots/")) == 1
    assert len(keys(inner, "_g2/slots/")) == created_anew


def test_the_end_is_looked_for_right_before_the_slot(client: Client, store: FaultStore) -> None:
    client.append([0])
    store.requests.clear()
    result = client.append([1])
    assert store.requests == [
        ("head", LAYOUT.end),
        ("get", LAYOUT.schema(1)),
        ("head", LAYOUT.end),
        ("create", LAYOUT.slot(result.append_id)),
    ]


def test_appends_through_one_replica_keep_their_order(client: Client) -> None:
    for value in range(30):
        client.append([value])
    client.publish()
    assert client.read() == list(range(30))


def test_order_survives_a_clock_that_goes_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100, 50, 50, 10])
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    for value in range(4):
        client.append([value])
    client.publish()
    assert client.read() == [0, 1, 2, 3]


def test_shards_are_never_compressed(client: Client) -> None:
    store_rows(
        client.datasets,
        "d",
        "train",
        records([1, 2]),
        key=None,
        digest=lambda: "",
        options=RecordsEncodeOptions(compression="gzip"),
        budget=Budget(),
    )
    client.publish(PublishOptions())
    assert client.read() == [1, 2]


def test_the_budget_is_whole_again_afterwards(client: Client) -> None:
    budget = Budget()
    store_rows(
        client.datasets,
        "d",
        "train",
        records(range(300), pad=100_000),
        key=None,
        digest=lambda: "",
        options=RecordsEncodeOptions(),
        budget=budget,
    )
    assert budget.remaining == budget.limits.max_decoded_bytes
    assert 16 * MIB < budget.peak < 64 * MIB


@pytest.mark.parametrize(
    ("split", "key", "code"),
    [("a/b", None, "invalid_split_name"), ("train", "a b", "invalid_idempotency_key")],
)
def test_names_are_checked_before_anything_is_asked_of_the_store(
    client: Client, store: FaultStore, split: str, key: str | None, code: str
) -> None:
    with pytest.raises(MalformedInput) as caught:
        client.append([1], split=split, key=key)
    assert caught.value.code == code
    assert [request for request in store.requests if request[0] in WRITES] == []


def test_a_key_that_this_replica_is_at_is_refused_until_it_is_done(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_locks, "_PATIENCE_S", 0.0)
    rows = records([1])

    def asking_again() -> Iterator[Batch]:
        with pytest.raises(InProgress) as caught:
            client.append([1], key="k")
        assert caught.value.code == "append_in_progress"
        client.append([2], key="other")
        client.append([3], key="k", name="e")
        yield from rows.batches

    append_records(client, Records(rows.schema, asking_again()), key="k")
    assert append_records(client, records([1]), key="k").replayed


def test_a_key_whose_first_attempt_is_about_to_end_is_waited_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_locks, "_PATIENCE_S", 1e9)
    rows = records([1])
    waiting: list[Future[AppendResult]] = []

    def joined() -> Iterator[Batch]:
        waiting.append(threads.submit(append_records, client, records([1]), key="k"))
        yield from rows.batches

    with ThreadPoolExecutor(1) as threads:
        first = append_records(client, Records(rows.schema, joined()), key="k")
        assert waiting[0].result() == replace(first, replayed=True)


def test_a_key_is_free_again_after_a_failure(client: Client) -> None:
    rows = records([1])

    def breaking() -> Iterator[Batch]:
        yield from rows.batches
        raise MalformedInput("row")

    with pytest.raises(MalformedInput):
        append_records(client, Records(SCHEMA, breaking()), key="k")
    assert not client.append([1], key="k").replayed


def test_sequence_orders_before_time(client: Client) -> None:
    for value, sequence in [(5, 7), (0, None), (4, 2**63 - 1), (1, -3), (2, 0), (3, 7)]:
        store_rows(
            client.datasets,
            "d",
            "train",
            records([value]),
            key=None,
            digest=lambda: "",
            options=RecordsEncodeOptions(),
            budget=Budget(),
            sequence=sequence,
        )
    client.publish()
    assert client.read() == [1, 0, 2, 5, 3, 4]


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_a_part_that_fails_while_the_next_is_gathered_fails_the_append(
    client: Client, store: FaultStore, inner: ObstoreStore, fails: int
) -> None:
    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "put" and key.endswith(f"/{fails}") and when == "after":
            raise StorageUnavailable("dropped")

    store.fault = fault
    with pytest.raises(StorageUnavailable):
        client.append(range(400), key="k", pad=100_000)
    assert keys(inner) == []
    store.fault = None
    client.append(range(400), key="k", pad=100_000)
    client.publish()
    assert client.read() == list(range(400))


def test_parts_are_stored_one_at_a_time_and_all_before_the_slot(client: Client, store: FaultStore) -> None:
    under_way: list[str] = []

    def fault(when: When, operation: Operation, key: str) -> None:
        if "/parts/" in key:
            if when == "before":
                assert under_way == []
                under_way.append(key)
            else:
                under_way.remove(key)
        elif "/slots/" in key:
            assert under_way == []

    store.fault = fault
    client.append(range(800), pad=100_000)


@pytest.mark.parametrize("lost", ["before", "after", "conflict"])
@pytest.mark.parametrize("pad", [None, 1000])
def test_after_a_restart_a_key_finds_out_what_came_of_it(
    client: Client,
    store: FaultStore,
    inner: ObstoreStore,
    lost: str,
    pad: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first process never learns the outcome; another one does, by the key, and stores nothing twice."""
    monkeypatch.setattr(
        slots_module,
        "create_once",
        lambda store, key, data: create_once_module.create_once(store, key, data, deadline_s=0.05),
    )
    client.datasets.create("d", SCHEMA if pad is None else PADDED, DatasetOptions())

    def fault(when: When, operation: Operation, key: str) -> None:
        if "/slots/" in key and operation != "get_range":
            if lost == "conflict" and when == "before":
                raise AlreadyExists("409") if operation == "create" else StorageUnavailable("503")
            if when == lost:
                raise StorageUnavailable("dropped")

    store.fault = fault
    with pytest.raises(OutcomeUnknown):
        client.append(range(400), key="k", pad=pad)
    restarted = Client(inner)
    assert restarted.append(range(400), key="k", pad=pad).replayed is (lost == "after")
    with pytest.raises(UnprocessableInput):
        restarted.append(range(399), key="k", pad=pad)
    restarted.publish()
    assert restarted.read() == list(range(400))
