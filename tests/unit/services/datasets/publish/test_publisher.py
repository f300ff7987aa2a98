"""Publishing: a plan belongs to one publisher, a version is whole or invisible, nothing comes twice."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from hashlib import sha256
from itertools import count, islice

import pytest

from app.domain.limits import MIB, Limits
from app.domain.manifest import Manifest
from app.errors import (
    Conflict,
    CorruptData,
    InputError,
    LimitExceeded,
    MalformedInput,
    NotFound,
    StorageError,
    StorageUnavailable,
    UnprocessableInput,
)
from app.services.datasets.objects.dataset_info import dataset_info
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish import executor, new_appends
from app.storage.object_store import ObjectInfo, ObjectStore
from app.storage.obstore_store import ObstoreStore
from tests.support.checksummed_json import changed, resealed
from tests.support.dataset_rows import SCHEMA, Client
from tests.support.faulty_store import FaultStore, Killed, Operation, When, keys, kill_at

LAYOUT = Layout("d", 1)


def test_versions_are_cumulative(client: Client) -> None:
    client.append([1, 2])
    first = client.publish()
    client.append([3])
    client.append([9], split="test")
    second = client.publish()
    assert (first.version, second.version) == ("1.0.0", "1.1.0")
    assert client.read("1.0.0") == [1, 2]
    assert client.read("1.1.0") == [1, 2, 3]
    assert client.read("1.1.0", "test") == [9]


class PausingStore(FaultStore):
    """Does what is in `events` while the slots are listed: before it comes to those of the last folder."""

    def __init__(self, inner: ObjectStore, events: list[Callable[[], None]]) -> None:
        super().__init__(inner)
        self._events = events

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if prefix == LAYOUT.all_slots:
            return self._pausing(prefix)
        if prefix == LAYOUT.slots("f"):
            self._pause()
        return super().list(prefix)

    def _pausing(self, prefix: str) -> Iterator[ObjectInfo]:
        first = [info for info in super().list(prefix) if info.key < LAYOUT.slots("f")]
        yield from first
        self._pause()
        yield from (info for info in super().list(prefix) if info.key > LAYOUT.slots("f"))

    def _pause(self) -> None:
        while self._events:
            self._events.pop()()


@pytest.mark.parametrize("page", [1, 1000])
@pytest.mark.parametrize("through_another", [False, True])
def test_an_append_made_while_slots_are_listed_comes_with_what_followed_it(
    inner: ObstoreStore, through_another: bool, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_appends, "_PAGE", page)
    events: list[Callable[[], None]] = []
    store = PausingStore(inner, events)
    with ThreadPoolExecutor(1) as one_at_a_time:
        client = Client(store, executor=one_at_a_time)
        other = Client(store)
        names = (f"key{i}" for i in count())
        early, late = (
            [name for name in islice(names, 200) if sha256(name.encode()).hexdigest()[0] == digit]
            for digit in "0f"
        )
        client.append([1], key=early[0])

        def event() -> None:
            (other if through_another else client).append([2], key=early[1])
            client.append([3], key=late[0])

        events.append(event)
        client.publish()
        assert not events
        assert client.read() == ([1, 3] if through_another else [1, 2, 3])


def test_a_publication_of_four_appends_takes_few_requests(client: Client, store: FaultStore) -> None:
    """Its slots are listed by one request, twice, however many folders they are in."""
    client.append([0])
    client.publish()
    for value in range(1, 5):
        client.append([value])
    store.requests.clear()
    client.publish()
    counts = Counter(operation for operation, _ in store.requests)
    lists = [key for operation, key in store.requests if operation == "list"]
    assert lists == [LAYOUT.all_slots] * 2
    assert sum(counts.values()) <= 40, counts


def test_a_version_without_a_base_holds_new_rows_alone(client: Client) -> None:
    client.append([1, 2])
    client.publish()
    client.append([3])
    client.publish(PublishOptions(base="none"))
    assert client.read("1.1.0") == [3]
    client.append([4])
    client.publish()
    assert client.read("1.2.0") == [3, 4]


@pytest.mark.parametrize("num_shards", [1, 3, 7, 12])
def test_the_number_of_shards_is_as_asked(client: Client, num_shards: int) -> None:
    for begin in range(0, 10, 2):
        client.append([begin, begin + 1])
    manifest = client.publish(PublishOptions(num_shards=num_shards))
    assert len(manifest.splits["train"].shards) == num_shards
    assert manifest.splits["train"].num_records == 10
    assert client.read() == list(range(10))


def test_shards_are_cut_again_when_rows_are_added(client: Client) -> None:
    client.append(range(1000), pad=5000)
    client.publish(PublishOptions(num_shards=3))
    client.append(range(1000, 1500), pad=5000)
    manifest = client.publish(PublishOptions(num_shards=2))
    assert [shard.num_records for shard in manifest.splits["train"].shards] == [750, 750]
    assert client.read() == list(range(1500))


def test_small_data_is_one_shard(client: Client) -> None:
    client.append(range(100))
    assert len(client.publish().splits["train"].shards) == 1


def test_shards_can_be_asked_for_by_split(client: Client) -> None:
    client.append(range(10))
    client.append(range(10), split="test")
    manifest = client.publish(PublishOptions(num_shards={"train": 3}))
    assert {name: len(split.shards) for name, split in manifest.splits.items()} == {"train": 3, "test": 1}


def test_shards_of_a_split_without_rows_are_refused(client: Client) -> None:
    client.append([1])
    with pytest.raises(UnprocessableInput, match="'tset'") as caught:
        client.publish(PublishOptions(num_shards={"tset": 3}))
    assert caught.value.code == "split_not_found"


@pytest.mark.parametrize("num_shards", [0, -1, 10_001, True, {"train": 0}])
def test_a_number_of_shards_has_bounds(num_shards: int | dict[str, int]) -> None:
    with pytest.raises(MalformedInput) as caught:
        PublishOptions(num_shards=num_shards)
    assert caught.value.code == "invalid_num_shards"


def test_a_manifest_names_so_many_shards_at_most(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    client.append([1], split="test")
    with pytest.raises(LimitExceeded) as caught:
        client.publish(PublishOptions(num_shards=6000))
    assert caught.value.code == "too_many_shards"
    assert keys(inner, ".plan") == []


@pytest.mark.parametrize("num_shards", [6000, {"tset": 3}])
def test_a_publish_that_is_refused_leaves_nothing(
    client: Client, inner: ObstoreStore, num_shards: int | dict[str, int]
) -> None:
    client.append([1])
    client.append([1], split="test")
    before = keys(inner, "")
    with pytest.raises(InputError):
        client.publish(PublishOptions(num_shards=num_shards))
    assert keys(inner, "") == before


def test_a_split_without_rows_has_no_shards(client: Client) -> None:
    client.datasets.create("d", SCHEMA, DatasetOptions())
    client.append([], split="empty")
    client.append([1])
    manifest = client.publish(PublishOptions(num_shards=2))
    assert manifest.splits["empty"].shards == ()
    assert client.read(split="empty") == []
    info = json.loads(client.store.get("d/1.0.0/dataset_info.json"))
    assert [split["name"] for split in info["splits"]] == ["train"]


def test_a_split_without_rows_stays_until_it_gets_some(client: Client) -> None:
    client.append([1])
    client.append([], split="val")
    client.publish(PublishOptions(num_shards=3))
    client.append([2])
    second = client.publish()
    assert list(second.splits) == ["train", "val"]
    assert client.read(split="val") == []
    client.append([3], split="val")
    assert client.publish().splits["val"].num_records == 1
    assert client.read(split="val") == [3]


def test_nothing_new_is_a_conflict(client: Client) -> None:
    client.append([1])
    client.publish()
    with pytest.raises(Conflict) as caught:
        client.publish()
    assert caught.value.code == "nothing_to_publish"
    assert list(client.datasets.versions("d")) == ["1.0.0"]


def test_a_dataset_that_is_not_there_cannot_be_published(client: Client) -> None:
    with pytest.raises(NotFound) as caught:
        client.publish()
    assert caught.value.code == "dataset_not_found"


def test_the_same_publish_key_gives_the_same_version(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    first = client.publish(PublishOptions(publish_key="k"))
    client.append([2])
    assert Client(inner).publish(PublishOptions(publish_key="k")) == first
    assert client.publish(PublishOptions(publish_key="k2")).version == "1.1.0"
    assert Client(inner).publish(PublishOptions(publish_key="k")) == first


def test_a_publish_key_is_good_for_one_request(client: Client) -> None:
    client.append([1])
    client.publish(PublishOptions(publish_key="k"))
    with pytest.raises(UnprocessableInput) as caught:
        client.publish(PublishOptions(publish_key="k", num_shards=3))
    assert caught.value.code == "idempotency_key_reused"


def test_who_wants_an_append_gets_the_version_that_holds_it(client: Client) -> None:
    first = client.append([1])
    published = client.publish(wants=first.append_id)
    second = client.append([2])
    assert client.publish(wants=first.append_id) == published
    assert client.publish(wants=second.append_id).version == "1.1.0"


@pytest.mark.parametrize(
    ("stored", "same"),
    [
        ({}, True),
        ({"base": "latest"}, True),
        ({"num_shards": None, "base": "latest", "group": "user"}, True),
        ({"num_shards": 2}, False),
        ({"base": "none"}, False),
    ],
)
def test_absent_stored_options_have_their_defaults(stored: dict[str, object], same: bool) -> None:
    assert PublishOptions().repeats(stored) is same


def test_an_append_whose_dataset_was_replaced_is_not_published(client: Client) -> None:
    gone = client.append([1], key="a")
    client.datasets.delete("d")
    client.append([9], key="b")
    with pytest.raises(Conflict) as caught:
        client.publish(wants=gone.append_id)
    assert caught.value.code == "dataset_deleted"
    assert list(client.datasets.versions("d")) == []


@pytest.mark.parametrize("created_anew", [True, False])
def test_a_destination_that_was_deleted_is_not_published(client: Client, created_anew: bool) -> None:
    destination = client.datasets._catalog.destination("d")
    result = client.append([1])
    client.datasets.delete("d")
    if created_anew:
        client.append([9])
    with pytest.raises(Conflict) as caught:
        client.datasets.publish("d", PublishOptions(), wants=result.append_id, destination=destination)
    assert caught.value.code == "dataset_deleted"


def test_external_objects_under_the_slots_are_ignored(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    for name in (".DS_Store", "0" * 32, "a" * 31, f"{'a' * 32}/x", f"{'A' * 32}"):
        inner.put(f"{LAYOUT.slots('a')}/{name}", b"junk")
    client.publish()
    assert client.read() == [1]


def test_a_slot_that_says_more_than_is_known_is_published(client: Client, inner: ObstoreStore) -> None:
    slot = LAYOUT.slot(client.append([1, 2, 3]).append_id)
    inner.put(slot, resealed(inner.get(slot), b'"time":', b'"sequence":5,"time":'))
    client.publish()
    assert client.read() == [1, 2, 3]


def test_append_of_one_replica_is_published_by_another(client: Client, inner: ObstoreStore) -> None:
    client.append([7], pad=20 * MIB)
    small = Client(inner, Limits(max_decoded_bytes=16 * MIB, max_record_bytes=1 * MIB))
    assert small.publish().version == "1.0.0"
    assert client.read() == [7]


def test_a_plan_in_progress_refuses_others_and_names_its_version(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    client.append([1])
    kill_at(store, "create", "_manifest")
    with pytest.raises(Killed):
        client.publish()
    other = Client(inner)
    with pytest.raises(Conflict, match=r"1\.0\.0") as caught:
        other.publish()
    assert caught.value.code == "publish_in_progress"
    assert caught.value.extra == {"version": "1.0.0"}
    assert list(other.datasets.versions("d")) == []


def test_the_same_publish_key_takes_a_plan_over(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    client.append([1])
    kill_at(store, "put_stream", "tfrecord")
    with pytest.raises(Killed):
        client.publish(PublishOptions(publish_key="k"))
    other = Client(inner)
    other.append([2])
    assert other.publish(PublishOptions(publish_key="k")).version == "1.0.0"
    assert other.read() == [1]


def test_a_plan_that_stood_still_for_a_minute_is_taken_over(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    client.append([1])
    kill_at(store, "put", "features.json")
    with pytest.raises(Killed):
        client.publish()
    later = FaultStore(inner)

    # `head` tells the age of the plan and of the fresh object; only the latter is in the future.
    def at(seconds: int) -> None:
        def fault(when: When, operation: Operation, key: str) -> None:
            later.clock_offset = timedelta(seconds=seconds if key.startswith("_probe") else 0)

        later.fault = fault

    other = Client(later)
    other.append([2])
    at(59)
    with pytest.raises(Conflict):
        other.publish()
    at(61)
    assert other.publish().version == "1.1.0"
    assert other.read("1.0.0") == [1]
    assert other.read("1.1.0") == [1, 2]


def test_the_loser_of_a_race_removes_its_files_and_publishes_next(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    client.append([1])
    mine = client.append([2])

    def fault(when: When, operation: Operation, key: str) -> None:
        if when == "before" and operation == "create" and key == LAYOUT.plan(1):
            store.fault = None
            rival = Client(inner)
            rival.publish()
            rival.append([3])

    store.fault = fault
    manifest = client.publish()
    assert manifest.version == "1.1.0"
    assert client.read() == [1, 2, 3]
    assert client.datasets.get_append("d", mine.append_id)["version"] == "1.0.0"
    assert len(keys(inner, ".inputs")) == len(keys(inner, ".seen")) == 2


def test_a_lost_answer_to_plan_and_manifest_is_resolved(client: Client, store: FaultStore) -> None:
    client.append([1, 2])
    lost = {LAYOUT.plan(1), LAYOUT.manifest(1)}

    def fault(when: When, operation: Operation, key: str) -> None:
        if when == "after" and operation == "create" and key in lost:
            lost.remove(key)
            raise StorageUnavailable("dropped")

    store.fault = fault
    assert client.publish().version == "1.0.0"
    assert lost == set()
    assert client.read() == [1, 2]


def test_bytes_do_not_depend_on_who_writes_them(
    inner: ObstoreStore, client: Client, store: FaultStore
) -> None:
    for begin in range(0, 3000, 300):
        client.append(range(begin, begin + 300), pad=5000)
    kill_at(store, "create", "_manifest")
    with pytest.raises(Killed):
        client.publish(PublishOptions(num_shards=3, publish_key="k"))
    files = {info.key: inner.get(info.key) for info in inner.list("d/1.0.0")}
    for key in [*files, *keys(inner, ".done/")]:
        inner.delete(key)
    Client(inner).publish(PublishOptions(num_shards=3, publish_key="k"))
    assert files
    assert {key: inner.get(key) for key in files} == files


def test_an_executor_of_another_release_leaves_the_plan_alone(
    client: Client, store: FaultStore, inner: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.append([1])
    kill_at(store, "put_stream", "tfrecord")
    with pytest.raises(Killed):
        client.publish(PublishOptions(publish_key="k"))
    before = {info.key: info.etag for info in inner.list("")}
    monkeypatch.setattr(executor, "fingerprint", lambda *_: "another")
    with pytest.raises(Conflict, match="another release") as caught:
        Client(inner).publish(PublishOptions(publish_key="k"))
    assert caught.value.code == "encoder_mismatch"
    assert {info.key: info.etag for info in inner.list("")} == before


def test_a_plan_whose_form_only_another_release_knows_is_left_to_it(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    client.append([1])
    kill_at(store, "put_stream", "tfrecord")
    with pytest.raises(Killed):
        client.publish(PublishOptions(publish_key="k"))
    plan = inner.get(LAYOUT.plan(1))
    inner.put(LAYOUT.plan(1), changed(plan, fingerprint="copy-9", shards="elsewhere"))
    with pytest.raises(Conflict) as caught:
        Client(inner).publish(PublishOptions(publish_key="k"))
    assert caught.value.code == "encoder_mismatch"


def test_a_plan_of_our_own_that_is_illegible_is_corrupt_but_not_aborted(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    client.append([1])
    kill_at(store, "put_stream", "tfrecord")
    with pytest.raises(Killed):
        client.publish(PublishOptions(publish_key="k"))
    whole = inner.get(LAYOUT.plan(1))
    inner.put(LAYOUT.plan(1), resealed(whole, b'"shards"', b'"sherds"'))
    with pytest.raises(CorruptData, match=r"log/1\.plan"):
        Client(inner).publish(PublishOptions(publish_key="k"))
    inner.put(LAYOUT.plan(1), whole)
    assert Client(inner).publish(PublishOptions(publish_key="k")).version == "1.0.0"


def test_only_lost_bytes_abort(client: Client, store: FaultStore, inner: ObstoreStore) -> None:
    """Records that do not add up, under the right checksum, are a fault to be mended, not to be kept."""
    result = client.append([1, 2])
    slot = LAYOUT.slot(result.append_id)
    whole = inner.get(slot)
    [[*size_and_digest, num_records]] = json.loads(whole.partition(b"\n")[0])["pieces"]
    assert num_records == 2
    inner.put(slot, changed(whole, num_records=3, pieces=[[*size_and_digest, 3]]))
    with pytest.raises(CorruptData, match="1 records fewer"):
        client.publish()
    assert keys(inner, "_manifest") == []


def test_a_resume_reads_no_shard_that_is_done(client: Client, store: FaultStore, inner: ObstoreStore) -> None:
    client.append(range(400), pad=1000)
    kill_at(store, "create", "_manifest")
    with pytest.raises(Killed):
        client.publish(PublishOptions(num_shards=3, publish_key="k"))
    counting = FaultStore(inner)
    manifest = Client(counting).publish(PublishOptions(num_shards=3, publish_key="k"))
    assert [request for request in counting.requests if request[0] in ("get_range", "put_stream")] == []
    heads = [key for operation, key in counting.requests if operation == "head" and "d-train" in key]
    assert len(heads) == 6  # each with its index
    assert manifest.splits["train"].num_records == len(Client(inner).read()) == 400


def test_a_corrupt_input_aborts_the_version_and_frees_the_others(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    client.publish()
    damaged = client.append([2])
    client.append([3])
    slot = LAYOUT.slot(damaged.append_id)
    whole = inner.get(slot)
    inner.put(slot, whole[:-1] + b"?")
    with pytest.raises(CorruptData, match=r"1\.1\.0 was aborted"):
        client.publish()
    assert json.loads(inner.get(LAYOUT.manifest(2)))["aborted"]
    assert list(client.datasets.versions("d")) == ["1.0.0"]
    assert client.read() == [1]
    with pytest.raises(NotFound):
        client.read("1.1.0")
    inner.put(slot, whole)
    assert client.publish().version == "1.2.0"
    assert client.read() == [1, 2, 3]
    assert list(client.datasets.versions("d")) == ["1.0.0", "1.2.0"]


def test_an_append_of_an_aborted_version_is_still_acknowledged(client: Client, inner: ObstoreStore) -> None:
    result = client.append([1])
    slot = LAYOUT.slot(result.append_id)
    inner.put(slot, inner.get(slot)[:-1] + b"?")
    with pytest.raises(CorruptData):
        client.publish()
    assert client.datasets.get_append("d", result.append_id)["state"] == "acknowledged"


def test_an_executor_that_finds_the_inputs_gone_accepts_what_was_published(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    """A slow executor wakes up after another has published the plan and deleted the parts."""
    client.append(range(400), pad=1000)
    result: list[Manifest] = []

    def fault(when: When, operation: Operation, key: str) -> None:
        if when == "before" and operation == "put_stream":
            store.fault = None
            result.append(Client(inner).publish(PublishOptions(publish_key="k")))

    store.fault = fault
    assert client.publish(PublishOptions(publish_key="k")) == result[0]
    assert keys(inner, "/parts/") == []
    assert client.read() == list(range(400))


def test_a_late_executor_only_repeats_bytes(client: Client, store: FaultStore, inner: ObstoreStore) -> None:
    client.append([1, 2, 3])
    before: dict[str, bytes] = {}

    def fault(when: When, operation: Operation, key: str) -> None:
        if when == "before" and operation == "create" and key == LAYOUT.manifest(1):
            store.fault = None
            other = Client(inner)
            other.publish(PublishOptions(publish_key="k"))
            before.update({info.key: inner.get(info.key) for info in inner.list("d/1.0.0")})

    store.fault = fault
    client.publish(PublishOptions(publish_key="k"))
    assert before
    assert {info.key: inner.get(info.key) for info in inner.list("d/1.0.0")} == before


@pytest.mark.parametrize("damage", ["short", "gone"])
def test_a_shard_that_is_not_as_noted_is_written_again(
    client: Client, store: FaultStore, inner: ObstoreStore, damage: str
) -> None:
    client.append(range(100))
    kill_at(store, "create", "_manifest")
    with pytest.raises(Killed):
        client.publish(PublishOptions(publish_key="k"))
    shard = LAYOUT.file(1, "d-train.tfrecord-00000-of-00001")
    data = inner.get(shard)
    inner.delete(shard)
    if damage != "gone":
        inner.put(shard, data[:-1])
    Client(inner).publish(PublishOptions(publish_key="k"))
    assert inner.get(shard) == data


def test_executors_that_disagree_abort(client: Client, store: FaultStore, inner: ObstoreStore) -> None:
    client.append(range(100))
    kill_at(store, "create", "_manifest")
    with pytest.raises(Killed):
        client.publish()
    done = keys(inner, ".done/")[0]
    inner.put(done, changed(inner.get(done), sha256="0" * 64))
    inner.delete(LAYOUT.file(1, "d-train.tfrecord-00000-of-00001"))
    other = Client(inner)
    wants = other.append([1]).append_id
    assert other.publish(wants=wants).version == "1.1.0"
    assert "different bytes" in json.loads(inner.get(LAYOUT.manifest(1)))["aborted"]


def test_a_publication_that_was_cut_short_is_finished_by_the_next_publish(
    client: Client, store: FaultStore, inner: ObstoreStore
) -> None:
    client.append(range(400), pad=1000)
    kill_at(store, "put", "dataset_info.json")
    with pytest.raises(Killed):
        client.publish()
    other = Client(inner)
    assert other.read() == list(range(400))
    assert keys(inner, "dataset_info.json") == []
    with pytest.raises(Conflict, match="no rows"):
        other.publish()
    assert keys(inner, "dataset_info.json") == ["d/1.0.0/dataset_info.json"]
    assert keys(inner, "/parts/") == []


@pytest.mark.parametrize("lost", ["dataset_info.json", "hint", "/parts/"])
def test_failure_after_the_manifest_fails_no_publication(
    client: Client, store: FaultStore, inner: ObstoreStore, lost: str
) -> None:
    client.append(range(400), pad=1000)

    def fault(when: When, operation: Operation, key: str) -> None:
        if when == "before" and operation in ("put", "delete") and lost in key:
            raise StorageError("denied")

    store.fault = fault
    client.append([1], pad=1)
    assert client.publish().version == "1.0.0"
    store.fault = None
    client.append([2], pad=1)
    assert client.publish().version == "1.1.0"
    assert len(keys(inner, "dataset_info.json")) == 2
    assert client.read() == [*range(400), 1, 2]


def test_a_release_that_would_write_another_dataset_info_leaves_it_out(
    client: Client, store: FaultStore, inner: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.append(range(400), pad=1000)
    kill_at(store, "put", "dataset_info.json")
    with pytest.raises(Killed):
        client.publish()
    with monkeypatch.context() as later:
        later.setattr(executor, "dataset_info", lambda *args: dataset_info(*args) + b"\n")
        with pytest.raises(Conflict, match="no rows"):
            Client(inner).publish()
    assert keys(inner, "dataset_info.json") == []
    assert keys(inner, "/parts/") == []
    with pytest.raises(Conflict, match="no rows"):
        Client(inner).publish()
    file = Client(inner).datasets.open_file("d", "1.0.0", "dataset_info.json")
    assert json.loads(file.read_at(0, file.size))["version"] == "1.0.0"


def test_consumed_parts_are_removed_and_those_of_others_stay(client: Client, inner: ObstoreStore) -> None:
    client.append(range(400), pad=1000)
    client.publish()
    assert keys(inner, "/parts/") == []
    client.append(range(400), pad=1000)
    assert len(keys(inner, "/parts/")) == 1


def test_dataset_info_is_as_the_manifest_says(client: Client) -> None:
    client.datasets.create("d", None, DatasetOptions("Some digits."))
    client.append([1])
    client.publish()
    file = client.datasets.open_file("d", "1.0.0", "dataset_info.json")
    info = json.loads(file.read_at(0, file.size))
    assert (info["name"], info["version"], info["description"]) == ("d", "1.0.0", "Some digits.")
