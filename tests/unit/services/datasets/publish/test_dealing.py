"""Dealing out: each row to one split, in order, and to the same one whoever deals and however often."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.codecs.options import RecordsEncodeOptions
from app.domain.limits import MIB
from app.domain.schema import Schema
from app.domain.sharding.division import Division
from app.errors import Conflict, CorruptData, UnprocessableInput
from app.runtime.budget import Budget
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.log import Decided, PublishLog
from app.services.datasets.objects.plan import Plan
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.objects.slot import Commit, read_slot
from app.services.datasets.publish.dealing import Dealer, parse_dealt, serialize_dealt, taken_pieces
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.arrow_rows import arrow_schema, as_arrow, from_arrow
from tests.support.dataset_rows import SCHEMA, Client, store_rows
from tests.support.faulty_store import FaultStore, Killed, Operation, When, kill_at

LAYOUT = Layout("d", 1)
FRACTIONS = {"train": "0.7", "test": "0.2", "val": "0.1"}
DIVIDED = PublishOptions(fractions=FRACTIONS)


def plan_of(store: ObstoreStore, n: int) -> Plan:
    return PublishLog(store, LAYOUT, Decided()).plan(n)


def by_split(client: Client, version: str = "latest") -> dict[str, list[int]]:
    manifest = client.datasets.manifest("d", version)
    return {split: client.read(version, split) for split in manifest.splits}


def expected(append_id: str, values: list[int], division: Division) -> dict[str, list[int]]:
    dealt = division.deal(division.hash_rows(append_id, 0, len(values)))
    return {
        split: [value for value, to in zip(values, dealt, strict=True) if to == index]
        for index, split in enumerate(division.splits)
    }


def test_rows_are_dealt_out_by_append_and_place(client: Client) -> None:
    first = client.append(range(500), key="a")
    second = client.append(range(500, 600), key="b")
    client.publish(DIVIDED)
    division = Division("train", FRACTIONS)
    one = expected(first.append_id, list(range(500)), division)
    other = expected(second.append_id, list(range(500, 600)), division)
    assert by_split(client) == {split: one[split] + other[split] for split in FRACTIONS}
    assert min(map(len, one.values())) > 20


def test_rows_of_later_blocks_are_divided_by_their_place_in_the_append(
    client: Client, inner: ObstoreStore
) -> None:
    append_id = client.append(range(24), pad=2 * MIB, key="a").append_id
    assert len(commit_of(inner, append_id).pieces) > 2
    client.publish(DIVIDED)
    division = Division("train", FRACTIONS)
    assert by_split(client) == expected(append_id, list(range(24)), division)


def test_rows_of_other_splits_and_of_the_base_stay(client: Client) -> None:
    client.append(range(100), key="a")
    client.append([1000], split="test")
    client.publish()
    client.append(range(100, 200), key="b")
    client.append([1001], split="extra")
    client.publish(DIVIDED)
    rows = by_split(client)
    assert list(rows) == ["train", "test", "val", "extra"]
    assert rows["train"][:100] == list(range(100))
    assert rows["test"][0] == 1000
    assert rows["extra"] == [1001]
    assert sorted(rows["train"] + rows["test"] + rows["val"]) == [*range(200), 1000]
    client.append(range(200, 210), key="c")
    client.publish(PublishOptions(fractions={"test": "1"}))
    assert by_split(client) == {**rows, "test": [*rows["test"], *range(200, 210)]}


def test_a_split_that_nothing_is_dealt_to_is_refused_unless_it_has_rows(client: Client) -> None:
    client.append([1])
    options = PublishOptions(fractions={"a": "0.999999999", "b": "0.000000001"})
    with pytest.raises(UnprocessableInput, match="a 1, b 0") as caught:
        client.publish(options)
    assert caught.value.code == "invalid_division"
    client.append([2], split="b")
    client.publish(options)
    assert by_split(client) == {"a": [1], "b": [2]}


def test_another_seed_deals_otherwise(client: Client) -> None:
    client.append(range(200), key="a")
    client.publish(DIVIDED)
    other = Client(open_store("memory://"))
    other.append(range(200), key="a")
    other.publish(PublishOptions(fractions=FRACTIONS, seed=1))
    assert by_split(client) != by_split(other)


def test_rows_go_where_they_went_after_an_abort_and_in_another_company(
    client: Client, inner: ObstoreStore
) -> None:
    client.append(range(300), key="a")
    store = FaultStore(inner)
    kill_at(store, "put_stream", "")
    with pytest.raises(Killed):
        Client(store).publish(DIVIDED)
    client.datasets.abort("d", "1.0.0")
    client.append(range(1000, 1100), key="b")
    client.publish(DIVIDED)
    alone = Client(open_store("memory://"))
    alone.append(range(300), key="a")
    alone.publish(PublishOptions(fractions=FRACTIONS, base="none"))
    assert {split: [x for x in rows if x < 300] for split, rows in by_split(client).items()} == by_split(
        alone
    )


def test_another_executor_finishes_a_division(client: Client, inner: ObstoreStore) -> None:
    client.append(range(400), pad=1000, key="a")
    store = FaultStore(inner)
    left = [2]

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "put_stream" and when == "before":
            left[0] -= 1
        if left[0] < 0:
            raise Killed

    store.fault = fault
    options = PublishOptions(fractions=FRACTIONS, num_shards=3, publish_key="k")
    with pytest.raises(Killed):
        Client(store).publish(options)
    Client(inner).publish(options)
    rows = by_split(client)
    assert sorted(value for split in rows.values() for value in split) == list(range(400))


def test_a_row_larger_than_a_piece_goes_to_one_split(client: Client) -> None:
    for value in range(4):
        client.append([10 * value], pad=17 * MIB, key=f"big{value}")
        client.append([10 * value + 1], pad=1, key=f"small{value}")
    client.publish(PublishOptions(fractions={"a": "0.5", "b": "0.5"}, seed=1))
    rows = by_split(client)
    assert rows["a"]
    assert rows["b"]
    assert sorted(rows["a"] + rows["b"]) == sorted(10 * v + i for v in range(4) for i in (0, 1))
    assert all(split == sorted(split) for split in rows.values())


appends = st.lists(st.lists(st.integers(0, 3), max_size=40), min_size=1, max_size=5)


@given(
    appends=appends,
    by=st.sampled_from([None, "x"]),
    num_shards=st.none() | st.integers(1, 5),
    seed=st.integers(0, 9),
)
@settings(max_examples=25, deadline=None)
def test_every_row_is_in_one_split_and_in_order(
    appends: list[list[int]], by: str | None, num_shards: int | None, seed: int
) -> None:
    client = Client(open_store("memory://"))
    rows = list(range(-60, 0))  # some for each split
    client.append(rows, key="first")
    for index, values in enumerate(appends):
        # Which append, which row, and a value that repeats.
        numbered = [value + 4 * (row + 100 * index) for row, value in enumerate(values)]
        client.append(numbered, key=str(index))
        rows += numbered
    client.publish(PublishOptions(fractions=FRACTIONS, by=by, num_shards=num_shards, seed=seed))
    dealt = by_split(client)
    order = {value: place for place, value in reversed(list(enumerate(rows)))}
    assert sorted(value for split in dealt.values() for value in split) == sorted(rows)
    assert all([order[v] for v in split] == sorted(order[v] for v in split) for split in dealt.values())


USERS = Schema.from_json(
    {
        "features": {
            "user": {"dtype": "text", "nullable": True},
            "n": {"dtype": "int32"},
            "b": {"dtype": "bool"},
            "u": {"dtype": "int64", "encoding": "raw"},
            "f": {"dtype": "float32"},
            "v": {"dtype": "int64", "shape": [2]},
        }
    }
)


def append_users(client: Client, users: list[bytes | None], key: str) -> None:
    count = len(users)
    columns: list[Any] = [
        pa.array(users, pa.binary()),
        pa.array(np.arange(count) % 7 - 3, pa.int32()),
        pa.array(np.arange(count) % 2, pa.uint8()),
        pa.array(np.arange(count) % 5, pa.int64()),
        pa.array(np.zeros(count), pa.float32()),
        pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * count, np.int64)), 2),
    ]
    batch = pa.record_batch(columns, schema=arrow_schema(USERS))
    store_rows(
        client.datasets,
        "d", "train", from_arrow(USERS, iter([batch])), key=key, digest=lambda: key,
        options=RecordsEncodeOptions(), budget=Budget(),
    )  # fmt: skip


def read_column(client: Client, split: str, name: str) -> list[Any]:
    rows = client.datasets.read_records("d", "latest", split, budget=Budget())
    return [value for batch in as_arrow(rows) for value in batch.column(name).to_pylist()]


def hash_of(division: Division, value: Any, *, is_text: bool) -> NDArray[np.uint64]:
    if value is None:
        return division.hash_null()
    if is_text:
        return division.hash_bytes([value])
    return division.hash_integers(np.array([value], np.int64).astype(np.uint64))


@pytest.mark.parametrize(
    ("by", "is_text"),
    [("user", True), ("n", False), ("b", False), ("u", False)],
)
def test_equal_values_go_together(client: Client, by: str, is_text: bool) -> None:
    users = [None if i % 11 == 0 else f"user-{i % 50}".encode() for i in range(400)]
    append_users(client, users, "a")
    client.publish(PublishOptions(fractions={"train": "0.5", "test": "0.5"}, by=by))
    append_users(client, users, "b")
    client.publish(PublishOptions(fractions={"train": "0.5", "test": "0.5"}, by=by))
    division = Division("train", {"train": "0.5", "test": "0.5"}, by)
    total = 0
    for index, split in enumerate(division.splits):
        values = read_column(client, split, by)
        total += len(values)
        hashes = [hash_of(division, value, is_text=is_text) for value in values]
        dealt = division.deal(np.concatenate(hashes))
        assert set(dealt.tolist()) <= {index}
    assert total == 800


@pytest.mark.parametrize("by", ["f", "v", "none"])
def test_only_single_discrete_values_decide(client: Client, inner: ObstoreStore, by: str) -> None:
    append_users(client, [b"a"], "a")
    before = sorted(info.key for info in inner.list(""))
    with pytest.raises(UnprocessableInput) as caught:
        client.publish(PublishOptions(fractions=FRACTIONS, by=by))
    assert caught.value.code == "invalid_division"
    assert caught.value.location.feature == by
    assert sorted(info.key for info in inner.list("")) == before


def test_a_split_to_divide_has_to_be_there(client: Client) -> None:
    client.append(range(100), split="pool")
    with pytest.raises(UnprocessableInput) as caught:
        client.publish(DIVIDED)
    assert caught.value.code == "split_not_found"
    client.publish(PublishOptions(fractions=FRACTIONS, divide="pool"))
    assert set(by_split(client)) == set(FRACTIONS)


def test_values_that_cannot_be_read_stop_the_planning(client: Client, inner: ObstoreStore) -> None:
    result = client.append([1, 2], key="a")
    slot = LAYOUT.slot(result.append_id)
    inner.put(slot, inner.get(slot)[:-1] + b"?")
    with pytest.raises(CorruptData):
        client.publish(PublishOptions(fractions=FRACTIONS, by="x"))
    assert not [info for info in inner.list("") if ".plan" in info.key]


def test_counts_that_are_not_as_the_plan_names_them_are_lost(client: Client, inner: ObstoreStore) -> None:
    client.append(range(10), key="a")
    store = FaultStore(inner)

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "put" and key.endswith(".dealt") and when == "after":
            inner.put(key, inner.get(key).replace(b"[[", b"[[1"))

    store.fault = fault
    with pytest.raises(CorruptData, match=r"1\.0\.0 was aborted: .*dealt"):
        Client(store).publish(DIVIDED)


def commit_of(store: ObstoreStore, append_id: str) -> Commit:
    slot = read_slot(store, LAYOUT, append_id)
    assert isinstance(slot, Commit)
    return slot


@pytest.mark.parametrize("counts", [(), [[1, 1, 1]], [[10, 0, 0], [0, 0, 0]]])
def test_counts_that_are_not_those_of_the_append_are_corrupt(
    client: Client, inner: ObstoreStore, counts: list[list[int]]
) -> None:
    commit = commit_of(inner, client.append(range(10), key="a").append_id)
    with pytest.raises(CorruptData, match=commit.append_id):
        taken_pieces(commit, LAYOUT, Dealer(Division("train", FRACTIONS), SCHEMA), counts)


def test_the_plan_counts_what_the_division_says(client: Client, inner: ObstoreStore) -> None:
    append_id = client.append(range(20), key="a").append_id
    client.publish(DIVIDED)
    work = plan_of(inner, 1).work
    assert work is not None
    assert work.dealt is not None
    division = Division("train", FRACTIONS)
    counts = np.bincount(division.deal(division.hash_rows(append_id, 0, 20)), minlength=3).tolist()
    assert parse_dealt(inner.get(work.dealt.key), "key") == {append_id: [counts]}


def test_sequences_are_dealt_out_by_a_feature_of_their_context() -> None:
    schema = Schema.from_json(
        {
            "features": {
                "user": {"dtype": "int64"},
                "steps": {"dtype": "int64", "shape": [None], "kind": "sequence"},
            }
        }
    )
    users = [row % 10 for row in range(100)]
    columns: list[Any] = [
        pa.array(users, pa.int64()),
        pa.array([[row] for row in users], pa.list_(pa.int64())),
    ]
    batch = pa.record_batch(columns, schema=arrow_schema(schema))
    client = Client(open_store("memory://"))
    store_rows(
        client.datasets,
        "d", "train", from_arrow(schema, iter([batch])), key="a", digest=lambda: "a",
        options=RecordsEncodeOptions(), budget=Budget(),
    )  # fmt: skip
    client.publish(PublishOptions(fractions={"train": "0.5", "test": "0.5"}, by="user"))
    train, test = (read_column(client, split, "user") for split in ("train", "test"))
    assert len(train) + len(test) == 100
    assert not set(train) & set(test)


def test_counts_both_ways() -> None:
    dealt = {"a1": [[1, 2], [0, 3]], "b2": []}
    data = b'a1 {"counts":[[1,2],[0,3]]}\nb2 {"counts":[]}\n'
    assert serialize_dealt(dealt) == data
    assert parse_dealt(data, "key") == dealt


@pytest.mark.parametrize("data", [b"a1\n", b"a1 {}\n", b'\xff {"counts":[]}\n'])
def test_malformed_count_is_corrupt_data(data: bytes) -> None:
    with pytest.raises(CorruptData, match="key"):
        parse_dealt(data, "key")


def test_the_plan_says_how_rows_are_dealt(client: Client, inner: ObstoreStore) -> None:
    client.append(range(10), key="a")
    client.publish(PublishOptions(fractions=FRACTIONS, seed=4))
    plan = json.loads(inner.get(LAYOUT.plan(1)))
    assert plan["division"] == {"source": "train", "fractions": FRACTIONS, "by": None, "seed": 4}
    assert plan["dealt"]["key"].endswith(".dealt")


def test_rows_taken_by_another_publisher_are_not_corrupt_data(
    inner: ObstoreStore,
) -> None:
    store = FaultStore(inner)
    client = Client(store)
    client.append(range(3), pad=200_000)
    raced: list[str] = []

    def publish_first(when: When, operation: Operation, key: str) -> None:
        if when == "before" and "/parts/" in key and not raced:
            raced.append(key)
            Client(inner).publish()

    store.fault = publish_first
    with pytest.raises(Conflict) as caught:
        client.publish(PublishOptions(fractions={"train": "0.5", "test": "0.5"}, by="x"))
    assert raced
    assert caught.value.code == "nothing_to_publish"
