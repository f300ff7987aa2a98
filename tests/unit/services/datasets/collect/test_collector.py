"""Collection: leftovers go, what is acknowledged or published stays, whoever else is at work."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from app.errors import Conflict, NotFound, StorageError, StorageUnavailable
from app.runtime.streams import Buffer
from app.services.datasets.collect import leftover_appends
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.objects.slot import Dead, read_slot
from app.storage.create_once import create_once
from app.storage.object_store import AlreadyExists
from app.storage.obstore_store import open_store
from tests.support.checksummed_json import sealed
from tests.support.dataset_rows import SCHEMA, Client
from tests.support.faulty_store import FaultStore, KillAt, Killed, Operation, TimedStore, When, keys, kill_at

LAYOUT = Layout("d", 1)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
LARGE = 400_000


@pytest.fixture
def inner() -> TimedStore:
    return TimedStore(open_store("memory://"))


def append_that_dies(client: Client, store: FaultStore, *, key: str | None = None) -> None:
    """Leaves parts, but no slot."""
    kill_at(store, "create", "/slots/")
    with pytest.raises(Killed):
        client.append([1, 2], pad=LARGE, key=key)
    store.fault = None


def collect(client: Client, **options: Any) -> dict[str, Any]:
    return {**client.datasets.collect("d", **options).to_json()}


def only_slot(store: TimedStore) -> str:
    (key,) = keys(store, "/slots/")
    return key.rsplit("/", 1)[1]


def test_parts_of_an_attempt_that_died_are_fenced_and_deleted_after_a_day(
    client: Client, store: FaultStore, inner: TimedStore
) -> None:
    append_that_dies(client, store)
    inner.advance(23 * HOUR)
    assert collect(client)["deleted"] == {}
    inner.advance(2 * HOUR)
    report = collect(client)
    assert (report["closed_slots"], report["deleted"]["parts"]["objects"]) == (1, 1)
    assert report["deleted"]["parts"]["bytes"] > 2 * LARGE
    assert isinstance(read_slot(inner, LAYOUT, only_slot(inner)), Dead)
    assert keys(inner, "/parts/") == []
    assert (report["num_failures"], collect(client)["deleted"]) == (0, {})


def test_attempt_after_the_fence_stores_nothing(client: Client, store: FaultStore, inner: TimedStore) -> None:
    other = Client(inner)

    def sleep_for_days(at: When, operation: Operation, key: str) -> None:
        if at == "before" and operation == "create" and "/slots/" in key:
            store.fault = None
            inner.advance(25 * HOUR)
            assert collect(other)["closed_slots"] == 1

    store.fault = sleep_for_days
    with pytest.raises(Conflict) as caught:
        client.append([1, 2], pad=LARGE)
    assert caught.value.code == "append_expired"
    assert keys(inner, "/parts/") == []


class LateStore(FaultStore):
    """Holds back the first slot that is created: the put lands later, its writer never learns of it."""

    held: tuple[str, bytes] | None = None

    def create(self, key: str, data: Buffer) -> None:
        if "/slots/" in key and self.held is None:
            self.held = key, bytes(data)
            raise Killed
        super().create(key, data)


def test_a_commit_that_lands_just_before_the_fence_keeps_its_parts(inner: TimedStore) -> None:
    late = LateStore(inner)
    with pytest.raises(Killed):
        Client(late).append([1, 2], pad=LARGE)
    inner.advance(25 * HOUR)
    collector = FaultStore(inner)

    def land(at: When, operation: Operation, key: str) -> None:
        if at == "before" and operation == "create" and "/slots/" in key and late.held is not None:
            collector.fault = None
            inner.create(*late.held)

    collector.fault = land
    report = collect(Client(collector))
    assert (report["closed_slots"], report["deleted"]) == (0, {})
    client = Client(inner)
    client.publish()
    assert client.read() == [1, 2]


def test_commit_after_the_fence_is_never_published(inner: TimedStore) -> None:
    late = LateStore(inner)
    with pytest.raises(Killed):
        Client(late).append([1, 2], pad=LARGE)
    inner.advance(25 * HOUR)
    client = Client(inner)
    assert collect(client)["closed_slots"] == 1
    assert late.held is not None
    with pytest.raises(AlreadyExists):
        inner.create(*late.held)
    client.append([3], pad=1)
    client.publish()
    assert client.read() == [3]


def test_parts_of_a_losing_attempt_go_and_those_of_the_winner_stay(
    client: Client, store: FaultStore, inner: TimedStore
) -> None:
    append_that_dies(client, store, key="k")
    inner.advance(DAY)
    collector = FaultStore(inner)

    def retry(at: When, operation: Operation, key: str) -> None:
        if at == "before" and operation == "create" and "/slots/" in key:
            collector.fault = None
            client.append([1, 2], pad=LARGE, key="k")

    collector.fault = retry
    inner.advance(HOUR)
    report = collect(Client(collector))
    assert (report["closed_slots"], report["deleted"]["parts"]["objects"]) == (0, 1)
    inner.advance(2 * DAY)
    assert collect(client)["deleted"] == {}
    client.publish()
    assert client.read() == [1, 2]


def test_a_young_attempt_keeps_the_slot_free_for_itself(
    client: Client, store: FaultStore, inner: TimedStore
) -> None:
    append_that_dies(client, store, key="k")
    inner.advance(25 * HOUR)
    append_that_dies(client, store, key="k")
    assert collect(client)["deleted"] == {}
    assert client.append([1, 2], pad=LARGE, key="k").num_records == 2


def test_an_unknown_outcome_leaves_everything(
    client: Client, store: FaultStore, inner: TimedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftover_appends, "create_once", partial(create_once, deadline_s=0.05))
    append_that_dies(client, store)
    inner.advance(25 * HOUR)

    def hang(at: When, operation: Operation, key: str) -> None:
        if at == "after" and "/slots/" in key and operation in ("create", "get"):
            raise StorageUnavailable("no answer")

    store.fault = hang
    report = collect(client)
    assert (report["deleted"], report["closed_slots"], report["outcome_unknown"]) == ({}, 0, 1)
    assert [failure["code"] for failure in report["failures"]] == ["outcome_unknown"]
    store.fault = None
    assert collect(client)["deleted"]["parts"]["objects"] == 1


def test_consumed_parts_that_their_publisher_left_go_at_once(
    client: Client, store: FaultStore, inner: TimedStore
) -> None:
    client.append([1, 2], pad=LARGE)
    kill_at(store, "delete", "/parts/")
    with pytest.raises(Killed):
        client.publish()
    store.fault = None
    assert collect(client)["deleted"]["parts"]["objects"] == 1
    assert client.read() == [1, 2]


def test_excluded_append_is_deleted_with_its_slot(client: Client, inner: TimedStore) -> None:
    bad = client.append([1, 2], pad=LARGE)
    client.append([3], pad=1)
    client.publish(PublishOptions(exclude=(bad.append_id,)))
    inner.advance(6 * DAY)
    assert collect(client)["deleted"] == {}
    inner.advance(2 * DAY)
    assert collect(client)["deleted"]["slots"]["objects"] == 2
    assert collect(client)["deleted"]["parts"]["objects"] == 1
    assert client.read() == [3]


def test_an_acknowledged_append_is_kept_for_ever_until_it_is_published(
    client: Client, inner: TimedStore
) -> None:
    client.append([1, 2], pad=LARGE)
    client.append([3], pad=1)
    inner.advance(400 * DAY)
    assert collect(client)["deleted"] == {}
    client.publish()
    assert sorted(client.read()) == [1, 2, 3]


def test_slots_go_a_week_after_their_version_was_published(client: Client, inner: TimedStore) -> None:
    client.append([1], key="k")
    inner.advance(30 * DAY)
    client.publish()
    inner.advance(7 * DAY - HOUR)
    assert collect(client)["deleted"] == {}
    assert client.append([1], key="k").replayed
    inner.advance(2 * HOUR)
    assert collect(client)["deleted"]["slots"]["objects"] == 1
    assert client.read() == [1]
    client.append([2])
    client.publish()
    assert client.read() == [1, 2]


def test_slot_reused_after_its_week_is_kept(client: Client, inner: TimedStore) -> None:
    client.append([1], key="k", pad=1)
    client.publish()
    inner.advance(8 * DAY)
    collect(client)
    client.append([5], key="k", pad=LARGE)
    inner.advance(8 * DAY)
    assert collect(client)["deleted"] == {}
    client.publish()
    assert client.read() == [1, 5]


def test_a_slot_replaced_since_it_was_listed_is_kept(
    client: Client, store: FaultStore, inner: TimedStore
) -> None:
    """Another collector deletes it, and a client uses the key again, while this one is asleep."""
    client.append([1], key="k")
    client.publish()
    inner.advance(8 * DAY)

    def sleep(at: When, operation: Operation, key: str) -> None:
        if at == "before" and operation == "get_range" and "/slots/" in key:
            store.fault = None
            assert collect(Client(inner))["deleted"]["slots"]["objects"] == 1
            client.append([5], key="k")

    store.fault = sleep
    assert "slots" not in collect(client)["deleted"]
    assert only_slot(inner)


def test_dead_slots_go_a_week_after_they_died(client: Client, store: FaultStore, inner: TimedStore) -> None:
    append_that_dies(client, store, key="k")
    inner.advance(25 * HOUR)
    collect(client)
    inner.advance(7 * DAY - HOUR)
    assert collect(client)["deleted"] == {}
    with pytest.raises(Conflict):
        client.append([1, 2], pad=LARGE, key="k")
    inner.advance(2 * HOUR)
    assert collect(client)["deleted"]["slots"]["objects"] == 1
    assert client.append([1, 2], pad=LARGE, key="k").num_records == 2


def test_files_of_a_publisher_that_lost_the_race_go_once_the_plan_exists(
    client: Client, store: FaultStore, inner: TimedStore
) -> None:
    client.append([1])
    kill_at(store, "create", ".plan")
    with pytest.raises(Killed):
        client.publish()
    store.fault = None
    assert collect(client)["deleted"] == {}
    assert len(keys(inner, "/log/1.")) == 2
    client.publish()
    assert collect(client)["deleted"]["log_files"]["objects"] == 2
    inner.advance(DAY)
    client.append([2])
    client.publish()
    assert client.read() == [1, 2]


def test_an_undecided_plan_keeps_everything(client: Client, store: FaultStore, inner: TimedStore) -> None:
    client.append([1, 2], pad=LARGE)
    kill_at(store, "create", "_manifest.json")
    with pytest.raises(Killed):
        client.publish()
    store.fault = None
    inner.advance(100 * DAY)
    before = keys(inner)
    assert collect(client)["deleted"] == {}
    assert keys(inner) == before
    client.publish(wants=only_slot(inner))
    assert client.read() == [1, 2]


def aborted(client: Client, store: FaultStore, inner: TimedStore) -> None:
    """Version 1.0.0 is aborted, and left its shard."""
    client.append([1, 2], pad=LARGE)
    client.append([3], pad=1)
    kill_at(store, "create", "_manifest.json")
    with pytest.raises(Killed):
        client.publish()
    store.fault = None
    inner.create(LAYOUT.manifest(1), sealed(b'{"nonce":"x","aborted":"by an operator"}'))


def test_files_of_an_aborted_version_go_and_its_appends_stay(
    client: Client, store: FaultStore, inner: TimedStore
) -> None:
    aborted(client, store, inner)
    report = collect(client)
    assert report["deleted"]["aborted_version_files"]["objects"] == 5
    assert report["deleted"]["log_files"]["objects"] == 1
    assert keys(inner, "d/1.0.0/") == ["d/1.0.0/_manifest.json"]
    inner.put(LAYOUT.file(1, "d-train.tfrecord-00000-of-00001"), b"an executor that woke up")
    assert collect(client)["deleted"]["aborted_version_files"]["objects"] == 1
    assert client.publish().version == "1.1.0"
    assert sorted(client.read()) == [1, 2, 3]


def two_versions(client: Client) -> None:
    client.append([1])
    client.publish()
    client.append([2])
    client.publish()


def test_the_latest_version_is_never_deleted(client: Client) -> None:
    two_versions(client)
    for version in ("1.1.0", "latest"):
        with pytest.raises(Conflict) as caught:
            client.datasets.delete_version("d", version)
        assert caught.value.code == "version_is_latest"
    with pytest.raises(NotFound):
        client.datasets.delete_version("d", "1.2.0")


def test_a_version_that_an_undecided_plan_builds_on_cannot_be_deleted(
    client: Client, store: FaultStore, inner: TimedStore
) -> None:
    two_versions(client)
    client.append([3])
    kill_at(store, "create", "_manifest.json")
    with pytest.raises(Killed):
        client.publish()
    store.fault = None
    with pytest.raises(Conflict) as caught:
        client.datasets.delete_version("d", "1.1.0")
    assert caught.value.code == "version_is_latest"
    client.datasets.delete_version("d", "1.0.0")
    inner.advance(2 * HOUR)
    collect(client)
    client.publish(wants=sorted(keys(inner, "/slots/"))[0].rsplit("/", 1)[1])
    assert client.read() == [1, 2, 3]


def test_a_deleted_version_is_not_found_and_its_bytes_go_after_an_hour(
    client: Client, inner: TimedStore
) -> None:
    two_versions(client)
    client.datasets.delete_version("d", "1.0.0")
    datasets = client.datasets
    for read in (
        lambda: datasets.manifest("d", "1.0.0"),
        lambda: datasets.open_file("d", "1.0.0", "features.json"),
        lambda: client.read("1.0.0"),
        lambda: datasets.delete_version("d", "1.0.0"),
    ):
        with pytest.raises(NotFound) as caught:
            read()
        assert caught.value.code == "version_not_found"
    assert datasets.versions("d") == ["1.1.0"]
    assert collect(client)["deleted"] == {}
    inner.advance(HOUR)
    report = collect(client)
    assert report["deleted"]["deleted_version_files"]["objects"] == 6
    assert report["deleted"]["log_files"]["objects"] == 1
    assert keys(inner, "d/1.0.0/") == ["d/1.0.0/_deleted.json", "d/1.0.0/_manifest.json"]
    assert client.read() == [1, 2]
    client.append([3])
    client.publish()
    assert client.read() == [1, 2, 3]


def test_versions_beyond_the_newest_that_are_to_be_kept_are_retired(
    store: FaultStore, inner: TimedStore
) -> None:
    client = Client(store)
    client.datasets.create("d", SCHEMA, DatasetOptions(keep_versions=2))
    for value in range(4):
        client.append([value])
        client.publish()
    assert collect(client, dry_run=True)["retired_versions"] == ["1.0.0", "1.1.0"]
    assert len(client.datasets.versions("d")) == 4
    assert collect(client)["retired_versions"] == ["1.0.0", "1.1.0"]
    assert collect(client)["retired_versions"] == []
    assert client.datasets.versions("d") == ["1.2.0", "1.3.0"]
    inner.advance(HOUR)
    assert collect(client)["deleted"]["deleted_version_files"]["objects"] == 12
    assert client.read() == [0, 1, 2, 3]


def test_a_deleted_dataset_is_removed_with_what_comes_late(client: Client, inner: TimedStore) -> None:
    two_versions(client)
    client.append([1, 2], pad=None)
    client.datasets.delete("d")
    assert collect(client, dry_run=True)["deleted"]["deleted_dataset_files"]["objects"] > 10
    assert collect(client)["deleted"]["deleted_dataset_files"]["objects"] > 10
    assert keys(inner) == ["d/_gen/1.end", "d/_gen/1.json"]
    inner.put(LAYOUT.part("0" * 32, "a", 0), b"late")
    inner.put(LAYOUT.file(3, "d-train.tfrecord-00000-of-00001"), b"late")
    client.append([7])
    client.publish()
    assert collect(client)["deleted"] == {"deleted_dataset_files": {"objects": 2, "bytes": 8}}
    assert client.read("2.0.0") == [7]


@pytest.mark.parametrize("pad", [None, LARGE], ids=["inline", "parts"])
def test_similar_names_are_left_alone(client: Client, inner: TimedStore, pad: int | None) -> None:
    """Lives 1 and 10, versions 1.0.0, 10.0.0 and 1.10.0, and a dataset named as another begins."""
    for n in range(9):
        client.append([n])
        if n == 0:
            for _ in range(11):
                client.append([n])
                client.publish()
        client.datasets.delete("d")
    client.append([5], name="d-2", pad=pad)
    client.append([5], name="d", pad=pad)
    client.publish()
    client.append([6], pad=pad)
    others = [key for key in keys(inner) if key.startswith(("d-2/", "d/_g10/", "d/10.", "d/_gen/"))]
    inner.advance(9 * DAY)
    collect(client)
    assert [key for key in keys(inner) if key.startswith("d-2/")] == [
        key for key in others if key.startswith("d-2/")
    ]
    left = {key.split("/")[1] for key in keys(inner) if key.startswith("d/")}
    assert left == {"_gen", "_g10", "10.0.0"}
    other = Client(inner)
    assert other.publish().version == "10.1.0"
    assert other.read("10.0.0") == [5]
    assert other.read() == [5, 6]
    assert list(other.datasets.list()) == ["d", "d-2"]


def test_an_append_that_failed_to_begin_a_dataset_leaves_nothing(
    client: Client, store: FaultStore, inner: TimedStore
) -> None:
    kill_at(store, "create", "/_gen/")
    with pytest.raises(Killed):
        client.append([1], pad=LARGE)
    store.fault = None
    inner.advance(25 * HOUR)
    assert client.datasets.collectable() == ["d"]
    assert collect(client)["deleted"]["parts"]["objects"] == 1
    inner.advance(8 * DAY)
    collect(client)
    assert keys(inner) == []
    with pytest.raises(NotFound):
        collect(client)


def test_unfinished_publication_is_finished(client: Client, store: FaultStore, inner: TimedStore) -> None:
    client.append([1])
    kill_at(store, "put", "dataset_info.json")
    with pytest.raises(Killed):
        client.publish()
    store.fault = None
    collect(client, dry_run=True)
    assert keys(inner, "dataset_info.json") == []
    collect(client)
    assert len(keys(inner, "dataset_info.json")) == 1


def test_probes_that_were_left_go_after_an_hour(client: Client, inner: TimedStore) -> None:
    client.append([1])
    inner.put("_probe/x", b"")
    assert collect(client)["deleted"] == {}
    inner.advance(2 * HOUR)
    assert collect(client)["deleted"] == {"probes": {"objects": 1, "bytes": 0}}


def test_probes_are_collected_in_an_empty_store(client: Client, inner: TimedStore) -> None:
    inner.put("_probe/x", b"")
    inner.advance(2 * HOUR)
    with pytest.raises(NotFound):
        collect(client)
    assert keys(inner, "_probe") == []


def littered(store: FaultStore, inner: TimedStore) -> Client:
    """A dataset with leftovers of every kind, and rows 1 to 4 in its latest version, 5 acknowledged."""
    client = Client(store)
    aborted(client, store, inner)
    client.publish()
    client.append([4], pad=1)
    client.publish()
    append_that_dies(client, store)
    client.datasets.delete_version("d", "1.1.0")
    inner.put("_probe/x", b"")
    inner.advance(8 * DAY)
    client.append([5], pad=LARGE)
    return client


def test_a_dry_run_says_what_a_run_does_and_changes_nothing(store: FaultStore, inner: TimedStore) -> None:
    client = littered(store, inner)
    before = keys(inner)
    dry = collect(client, dry_run=True)
    assert keys(inner) == before
    assert collect(client) == {**dry, "dry_run": False}
    assert collect(client)["deleted"] == {}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_collector_killed_at_any_write_is_finished_by_the_next(when: When) -> None:
    index = 0
    while True:
        inner = TimedStore(open_store("memory://"))
        store = FaultStore(inner)
        client = littered(store, inner)
        kill = KillAt(index, when)
        store.fault = kill
        with contextlib.suppress(Killed):
            collect(client)
        store.fault = None
        survivor = Client(inner)
        collect(survivor)
        assert collect(survivor)["deleted"] == {}
        assert sorted(survivor.read()) == [1, 2, 3, 4]
        survivor.publish()
        assert sorted(survivor.read()) == [1, 2, 3, 4, 5]
        if kill.killed is None:
            break
        index += 1
    assert index > 10


def test_collectors_at_work_together_do_what_one_does(store: FaultStore, inner: TimedStore) -> None:
    littered(store, inner)
    before = keys(inner)
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: collect(Client(inner)), range(4)))
    assert len(keys(inner)) < len(before)
    assert sum(report["closed_slots"] for report in reports) == 1
    client = Client(inner)
    assert collect(client)["deleted"] == {}
    client.publish()
    assert sorted(client.read()) == [1, 2, 3, 4, 5]


def test_a_request_that_fails_leaves_its_object_and_no_other(store: FaultStore, inner: TimedStore) -> None:
    client = littered(store, inner)

    def fault(at: When, operation: Operation, key: str) -> None:
        if at == "before" and operation == "delete" and "/parts/" in key:
            raise StorageError("refused", code="storage_denied")

    store.fault = fault
    report = collect(client)
    assert [failure["code"] for failure in report["failures"]] == ["storage_denied"]
    assert "parts" not in report["deleted"]
    assert report["deleted"]["deleted_version_files"]["objects"] == 6
    store.fault = None
    assert collect(client)["deleted"]["parts"]["objects"] == 1


@pytest.mark.parametrize("part", ["/parts", "/slots", "/log", "d/1.0.0", "_probe", "hint", ".seen"])
def test_a_listing_or_object_that_cannot_be_read_stops_its_step_alone(
    store: FaultStore, inner: TimedStore, part: str
) -> None:
    client = littered(store, inner)

    def fault(at: When, operation: Operation, key: str) -> None:
        if at == "before" and operation in ("list", "get") and key.endswith(part):
            raise StorageUnavailable("no answer")

    store.fault = fault
    report = collect(client)
    assert report["num_failures"] == 1
    store.fault = None
    collect(client)
    assert collect(client)["deleted"] == {}
    client.publish()
    assert sorted(client.read()) == [1, 2, 3, 4, 5]


def test_a_run_that_is_stopped_does_nothing_more(store: FaultStore, inner: TimedStore) -> None:
    client = littered(store, inner)
    before = keys(inner)
    client.datasets.collect("d", stopped=lambda: True)
    assert keys(inner) == before


def test_only_so_many_failures_are_named(client: Client, store: FaultStore, inner: TimedStore) -> None:
    client.append([1])
    for index in range(150):
        inner.put(f"_probe/{index}", b"")
    inner.advance(2 * HOUR)

    def fault(at: When, operation: Operation, key: str) -> None:
        if at == "before" and operation == "delete":
            raise StorageUnavailable("no answer")

    store.fault = fault
    report = collect(client)
    assert (report["num_failures"], len(report["failures"])) == (150, 100)
