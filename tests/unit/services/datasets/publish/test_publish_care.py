"""Publishing in trouble: appends left out, versions given up, what is consumed and for how long."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.limits import MIB
from app.errors import Conflict, CorruptData, MalformedInput, NotFound, UnprocessableInput
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.log import Aborted, Decided, PublishLog
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.objects.seen import Seen
from app.storage.obstore_store import ObstoreStore
from tests.support.checksummed_json import changed, sealed
from tests.support.dataset_rows import SCHEMA, Client
from tests.support.faulty_store import FaultStore, Killed, Operation, When, kill_at

LAYOUT = Layout("d", 1)


def log(store: ObstoreStore) -> PublishLog:
    return PublishLog(store, LAYOUT, Decided())


def seen(store: ObstoreStore) -> Seen:
    reader = log(store)
    return reader.seen(reader.newest_published(reader.newest()))


def die_publishing(inner: ObstoreStore, options: PublishOptions | None = None) -> None:
    """A replica plans, and dies before it writes the first shard."""
    store = FaultStore(inner)
    kill_at(store, "put_stream", "")
    with pytest.raises(Killed):
        Client(store).publish(options)


def later(inner: ObstoreStore, seconds: int) -> Client:
    """A replica to whose store that much time has passed since everything there was written."""
    store = FaultStore(inner)

    def fault(when: When, operation: Operation, key: str) -> None:
        store.clock_offset = timedelta(seconds=seconds if key.startswith("_probe") else 0)

    store.fault = fault
    return Client(store)


def lose(inner: ObstoreStore, append_id: str) -> None:
    slot = LAYOUT.slot(append_id)
    inner.put(slot, inner.get(slot)[:-1] + b"?")


def test_an_append_that_is_lost_is_left_out(client: Client, inner: ObstoreStore) -> None:
    lost = client.append([1]).append_id
    client.append([2])
    lose(inner, lost)
    with pytest.raises(CorruptData, match="exclude"):
        client.publish()
    manifest = client.publish(PublishOptions(exclude=(lost,)))
    assert (manifest.version, client.read()) == ("1.1.0", [2])
    state = client.datasets.get_append("d", lost)
    assert (state["state"], state["version"]) == ("excluded", "1.1.0")
    assert f"{lost} 2 excluded ".encode() in inner.get(log(inner).plan(2).seen.key)
    client.append([3])
    client.publish()
    assert client.read() == [2, 3]


def test_leaving_out_the_only_append_publishes_the_rest(client: Client) -> None:
    client.append([1])
    client.publish()
    other = client.append([2]).append_id
    manifest = client.publish(PublishOptions(exclude=(other,)))
    assert (manifest.version, client.read()) == ("1.1.0", [1])


def test_leaving_out_the_very_first_append_publishes_nothing_at_all(client: Client) -> None:
    only = client.append([1]).append_id
    assert client.publish(PublishOptions(exclude=(only,))).splits == {}
    client.append([2])
    client.publish()
    assert client.read() == [2]


def test_who_leaves_out_by_key_gets_the_same_version_again(client: Client) -> None:
    one = client.append([1]).append_id
    client.append([2])
    options = PublishOptions(exclude=(one,), publish_key="k")
    assert client.publish(options) == client.publish(options)


@pytest.mark.parametrize("fate", ["published", "excluded"])
def test_published_append_cannot_be_excluded(client: Client, fate: str) -> None:
    one = client.append([1]).append_id
    client.append([2])
    client.publish(PublishOptions(exclude=(one,) if fate == "excluded" else ()))
    client.append([3])
    with pytest.raises(Conflict, match=r"1\.0\.0") as caught:
        client.publish(PublishOptions(exclude=(one,)))
    assert (caught.value.code, caught.value.extra) == ("append_published", {"version": "1.0.0"})


def test_unknown_append_cannot_be_excluded(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    inner.put(LAYOUT.slot("f" * 32), sealed(b'{"fate":"dead","nonce":"x"}') + b"\n")
    before = sorted(info.key for info in inner.list(""))
    for append_id in ("0" * 32, "f" * 32):
        with pytest.raises(NotFound) as caught:
            client.publish(PublishOptions(exclude=(append_id,)))
        assert caught.value.code == "append_not_found"
    assert sorted(info.key for info in inner.list("")) == before


def test_required_append_cannot_be_excluded(client: Client) -> None:
    one = client.append([1]).append_id
    with pytest.raises(UnprocessableInput) as caught:
        client.publish(PublishOptions(exclude=(one,)), wants=one)
    assert caught.value.code == "contradictory_options"


def test_an_aborted_version_frees_its_appends(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    die_publishing(inner)
    with pytest.raises(Conflict) as caught:
        client.publish()
    assert caught.value.code == "publish_in_progress"
    reason = client.datasets.abort("d", "1.0.0")
    assert client.datasets.abort("d", "1.0.0") == reason
    assert client.publish().version == "1.1.0"
    assert client.read() == [1]


def test_only_what_was_begun_and_is_not_published_is_aborted(client: Client) -> None:
    client.append([1])
    for version in ("1.0.0", "2.0.0", "1.0.1", "0.0.0"):
        with pytest.raises(NotFound) as missing:
            client.datasets.abort("d", version)
        assert missing.value.code == "version_not_found"
    with pytest.raises(MalformedInput) as malformed:
        client.datasets.abort("d", "latest")
    assert malformed.value.code == "invalid_version"
    client.publish()
    with pytest.raises(Conflict) as caught:
        client.datasets.abort("d", "1.0.0")
    assert caught.value.code == "version_published"


def test_a_publisher_whose_version_is_given_up_hears_so(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    store = FaultStore(inner)

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and key == LAYOUT.manifest(1) and when == "before":
            store.fault = None
            client.datasets.abort("d", "1.0.0")

    store.fault = fault
    with pytest.raises(Conflict) as caught:
        Client(store).publish()
    assert (caught.value.code, caught.value.extra) == ("publish_aborted", {"version": "1.0.0"})
    assert client.publish().version == "1.1.0"


@pytest.mark.parametrize("wanted", [True, False])
def test_stalled_plan_of_another_release_is_aborted(
    client: Client, inner: ObstoreStore, wanted: bool
) -> None:
    client.append([1])
    die_publishing(inner)
    plan = inner.get(LAYOUT.plan(1))
    inner.put(LAYOUT.plan(1), changed(plan, fingerprint="another", shards="elsewhere"))
    wants = client.append([2]).append_id if wanted else None
    with pytest.raises(Conflict) as caught:
        later(inner, 59).publish(wants=wants)
    assert caught.value.code == ("encoder_mismatch" if wanted else "publish_in_progress")
    assert later(inner, 61).publish(wants=wants).version == "1.1.0"
    verdict = log(inner).verdict(1)
    assert isinstance(verdict, Aborted)
    assert not verdict.lost_data
    assert client.read() == [1, 2] if wanted else [1]


DAY = 24 * 3600


def test_published_append_is_remembered_with_its_slot_or_for_a_week(
    client: Client, inner: ObstoreStore
) -> None:
    collected = client.append([1]).append_id
    kept = client.append([2]).append_id
    client.publish(PublishOptions(publish_key="k1"))
    young = client.append([3]).append_id
    client.publish()
    inner.delete(LAYOUT.slot(collected))
    client.append([4])
    later(inner, 7 * DAY - 60).publish()
    assert {collected, kept, young} <= set(seen(inner).appends)
    client.append([5])
    later(inner, 7 * DAY + 60).publish()
    remembered = seen(inner)
    assert collected not in remembered.appends
    assert {kept, young} <= set(remembered.appends)
    assert remembered.publish_keys == {}
    assert client.read() == [1, 2, 3, 4, 5]


def test_without_a_slot_gone_nothing_is_asked_about_time(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    client.publish()
    client.append([2])
    store = FaultStore(inner)
    Client(store).publish()
    assert not [key for _, key in store.requests if key.startswith("_probe")]


def replace_slot(client: Client, inner: ObstoreStore, key: str, values: list[int]) -> str:
    """The slot was collected, and its key used again for other rows, a week later."""
    append_id = client.append([0], key=key).append_id
    client.publish()
    inner.delete(LAYOUT.slot(append_id))
    assert client.append(values, key=key).append_id == append_id
    return append_id


class Aged(FaultStore):
    """A store that lists the slots as written later than they were."""

    def list(self, prefix: str):  # type: ignore[no-untyped-def]

        return (
            replace(info, last_modified=info.last_modified + timedelta(days=8))
            for info in super().list(prefix)
        )


@pytest.mark.parametrize("wanted", [True, False])
def test_a_key_that_is_used_again_once_its_slot_was_collected_is_a_new_append(
    client: Client, inner: ObstoreStore, wanted: bool
) -> None:
    append_id = replace_slot(client, inner, "k", [1])
    assert client.datasets.get_append("d", append_id)["state"] == "acknowledged"
    aged = Client(Aged(inner))
    assert aged.publish(wants=append_id if wanted else None).version == "1.1.0"
    assert client.read() == [0, 1]
    assert client.datasets.get_append("d", append_id)["version"] == "1.1.0"
    with pytest.raises(Conflict, match="no rows"):
        client.publish()


def test_slots_that_only_look_newer_are_not_published_twice(client: Client, inner: ObstoreStore) -> None:
    """As after a copy of the whole bucket: the time is a reason to look, the nonce decides."""
    client.append([1])
    client.publish()
    with pytest.raises(Conflict, match="no rows"):
        Client(Aged(inner)).publish()


def test_appends_without_rows_are_published(client: Client) -> None:
    client.datasets.create("d", SCHEMA, DatasetOptions())
    client.append([], key="a")
    client.append([], key="b", split="test")
    manifest = client.publish(PublishOptions(num_shards=4))
    assert {split: entry.shards for split, entry in manifest.splits.items()} == {"train": (), "test": ()}
    client.append([], key="c")
    with pytest.raises(UnprocessableInput, match="a 0, b 0"):
        client.publish(PublishOptions(fractions={"a": "0.5", "b": "0.5"}))
    assert client.publish().version == "1.1.0"
    assert client.read(split="train") == []


def test_one_giant_record_is_a_shard(client: Client) -> None:
    client.append([7], pad=70 * MIB)
    client.append([8], pad=1)
    manifest = client.publish(PublishOptions(shard_bytes=1 * MIB))
    assert [shard.num_records for shard in manifest.splits["train"].shards] == [1, 1]
    assert client.read() == [7, 8]


def test_full_shards_of_the_base_are_planned_as_copies(client: Client, inner: ObstoreStore) -> None:
    client.append(range(16), pad=5 * MIB)
    client.append([1000], pad=1)
    first = client.publish(PublishOptions(num_shards=1, index=False))
    client.append([1001], pad=1)
    second = client.publish(PublishOptions(index=False))
    work = log(inner).plan(2).work
    assert work is not None
    assert [(shard.copy_of, shard.start, shard.stop) for shard in work.shards] == [
        (first.splits["train"].shards[0].file, 0, 17),
        (None, 17, 18),
    ]
    assert second.splits["train"].shards[0].sha256 == first.splits["train"].shards[0].sha256
    assert client.read() == [*range(16), 1000, 1001]


def test_the_plan_says_all_that_was_asked_for(inner: ObstoreStore, client: Client) -> None:
    client.append(range(10))
    die_publishing(inner, PublishOptions(compression="gzip", shuffle=True, seed=3, num_shards=2))
    work = log(inner).plan(1).work
    assert work is not None
    assert (work.compression, work.index, work.shuffle_seed) == ("gzip", False, 3)
    assert [shard.file for shard in work.shards] == [
        f"d-train.tfrecord-0000{i}-of-00002.gz" for i in range(2)
    ]
    client.datasets.abort("d", "1.0.0")
    die_publishing(inner)
    work = log(inner).plan(2).work
    assert work is not None
    assert (work.compression, work.index, work.shuffle_seed, work.division) == ("none", True, None, None)


def test_the_version_is_announced_before_it_is_written(client: Client, inner: ObstoreStore) -> None:
    client.append([1])
    announced: list[str] = []
    check: Callable[[str], None] = announced.append
    client.datasets.publish("d", PublishOptions(), on_plan=check)
    assert announced == ["1.0.0"]
    client.append([2])
    die_publishing(inner, PublishOptions(publish_key="k"))
    client.datasets.publish("d", PublishOptions(publish_key="k"), on_plan=check)
    assert announced == ["1.0.0", "1.1.0"]


def test_slot_collected_after_its_listing_is_ignored(
    inner: ObstoreStore,
) -> None:
    store = FaultStore(inner)
    client = Client(store)
    client.append([1])
    dead = LAYOUT.slot("f" * 32)
    inner.create(dead, sealed(b'{"fate":"dead","nonce":"x"}') + b"\n")

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "get_range" and key == dead:
            inner.delete(dead)

    store.fault = fault
    client.publish()
    assert client.read() == [1]


@pytest.mark.parametrize("hint", [2, 7, 10**9])
def test_a_hint_that_lies_misleads_neither_readers_nor_publishers(
    client: Client, inner: ObstoreStore, hint: int
) -> None:
    client.append([1])
    client.publish()
    inner.put(LAYOUT.hint, sealed(b'{"n":%d}' % hint))
    assert Client(inner).datasets.manifest("d", "latest").version == "1.0.0"
    client.append([2])
    inner.put(LAYOUT.hint, sealed(b'{"n":%d}' % hint))
    assert Client(inner).publish().version == "1.1.0"
    assert Client(inner).read() == [1, 2]


def test_a_publication_whose_dataset_is_deleted_and_removed_meanwhile_says_so(inner: ObstoreStore) -> None:
    store = FaultStore(inner)
    client, other = Client(store), Client(inner)
    client.append(range(20), pad=MIB)

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "put_stream":
            store.fault = None
            other.datasets.delete("d")
            other.datasets.collect("d")

    store.fault = fault
    with pytest.raises(Conflict) as caught:
        client.publish()
    assert caught.value.code == "dataset_deleted"


@pytest.mark.parametrize("wanted", [False, True])
def test_a_publication_of_what_is_deleted_and_collected_meanwhile_says_so(
    inner: ObstoreStore, client: Client, wanted: bool
) -> None:
    appended = client.append([1, 2])
    store = FaultStore(inner)

    def fault(when: When, operation: Operation, key: str) -> None:
        if (when, operation) == ("after", "put_stream") and key.endswith("-of-00001"):
            client.datasets.delete("d")
            client.datasets.collect("d")

    store.fault = fault
    with pytest.raises(Conflict) as caught:
        Client(store).publish(wants=appended.append_id if wanted else None)
    assert caught.value.code == "dataset_deleted"
