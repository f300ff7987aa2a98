"""Imports: every row once and in order, however objects are cut, and whoever does which range how often."""

import base64
import gzip
import itertools
import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import (
    Conflict,
    InputError,
    LimitExceeded,
    MalformedInput,
    NotFound,
    StorageUnavailable,
    UnprocessableInput,
)
from app.runtime.budget import Budget
from app.runtime.memory import MemoryPool
from app.runtime.spool import Spool
from app.services.datasets.append.attempt import id_of_key
from app.services.datasets.imports.drive import drive
from app.services.datasets.imports.engines import HereEngine
from app.services.datasets.imports.imports import Imports
from app.services.datasets.imports.plan import open_plan, read_page
from app.services.datasets.imports.ranges import Range
from app.services.datasets.imports.reading import CountedSource
from app.services.datasets.imports.request import ImportRequest, form_of
from app.services.datasets.imports.status import ImportStatus
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.objects.slot import Dead, close_slot, read_slot
from app.storage.obstore_store import open_store
from app.storage.source_objects import SourceObject
from tests.support.arrow_rows import as_arrow
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, TimedStore
from tests.support.tfrecord_frames import frame
from tests.support.waiting import PATIENCE_S
from tests.support.zstandard import zstd

#: Texts that hold what a careless cut would take for the end of a row.
TEXT = 'a "quoted" text,\nof two lines'


def _rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": first + i, "t": TEXT * (i % 3)} for i in range(count)]


def write_ndjson(path: Path, first: int, count: int) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in _rows(first, count)))


def write_csv(path: Path, first: int, count: int) -> None:
    lines = ["id,t\n"]
    for row in _rows(first, count):
        text = row["t"].replace('"', '""')
        lines.append(f'{row["id"]},"{text}"\n')
    path.write_text("".join(lines))


def write_parquet(path: Path, first: int, count: int) -> None:
    pq.write_table(pa.Table.from_pylist(_rows(first, count)), path, row_group_size=7)


def write_libsvm(path: Path, first: int, count: int) -> None:
    path.write_text("".join(f"{first + i} 1:{i}\n" for i in range(count)))


def write_json(path: Path, first: int, count: int) -> None:
    path.write_text(json.dumps(_rows(first, count)))


def write_npz(path: Path, first: int, count: int) -> None:
    with path.open("wb") as file:
        np.savez(file, id=np.arange(first, first + count))


WRITERS: dict[str, Callable[[Path, int, int], None]] = {
    "ndjson": write_ndjson,
    "csv": write_csv,
    "parquet": write_parquet,
    "json": write_json,
    "npz": write_npz,
}


class World:
    """A folder to import from, and a store to import into."""

    def __init__(self, folder: Path, client: Client) -> None:
        self.folder = folder
        self.client = client
        self.imports = self.replica()

    def replica(self, allowed: list[str] | None = None) -> Imports:
        """Another process at the same store."""
        datasets = Client(self.client.store).datasets
        return Imports(
            datasets, limits=Limits(), spool=Spool(None, 1 << 30), memory=MemoryPool(1 << 30), allowed=allowed
        )

    def request(self, pattern: str = "*", **given: Any) -> ImportRequest:
        return ImportRequest(source=f"file://{self.folder}/{pattern}", **{"range_bytes": 300, **given})

    def run(self, request: ImportRequest, *, name: str = "d", key: str = "k") -> ImportStatus:
        import_id, _ = self.imports.begin(name, request, key)
        return drive(self.imports, name, import_id, HereEngine(self.imports))

    def read(self, name: str = "d", feature: str = "id") -> list[Any]:
        rows = self.client.datasets.read_records(name, "latest", "train", budget=Budget())
        return [value for batch in as_arrow(rows) for value in batch.column(feature).to_pylist()]

    def shards(self, name: str) -> list[bytes]:
        """The bytes of all shards."""
        manifest = self.client.datasets.manifest(name, "latest")
        names = [shard.file for split in manifest.splits.values() for shard in split.shards]
        assert names
        return [self.client.store.get(f"{name}/{manifest.version}/{file}") for file in names]


@pytest.fixture
def world(tmp_path: Path, client: Client) -> World:
    return World(tmp_path, client)


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("range_bytes", [1, 90, 1000, 10**6])
def test_every_row_is_there_once_and_in_order(world: World, form: str, range_bytes: int) -> None:
    for k in range(3):
        WRITERS[form](world.folder / f"part-{k}.{form}", 100 * k, 40)
    status = world.run(world.request(range_bytes=range_bytes))
    assert (status.state, status.num_records, status.failures) == ("done", 120, ())
    assert world.read() == [100 * k + i for k in range(3) for i in range(40)]
    if form in ("ndjson", "csv", "parquet") and range_bytes == 90:
        assert status.plan.num_ranges > 10


def test_tfrecords_are_cut_between_records(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 50)
    world.run(world.request("*.ndjson", publish=PublishOptions(num_shards=2)))
    for k, data in enumerate(world.shards("d")):
        (world.folder / f"x.tfrecord-{k:05}-of-00002").write_bytes(data)
    status = world.run(world.request("x*", range_bytes=200), name="e")
    assert status.plan.num_ranges > 10
    assert world.read("e") == [[i] for i in range(50)]


@pytest.mark.parametrize(("at", "ranges", "left_out"), [(20, 10, 1), (0, 4, 1), (None, 10, 0)])
def test_a_damaged_record_costs_its_range_and_a_damaged_length_what_follows(
    world: World, at: int | None, ranges: int, left_out: int
) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    world.run(world.request("*.ndjson", schema=Schema.from_json({"features": {"id": {"dtype": "int64"}}}),
                            undeclared="drop"))  # fmt: skip
    [data] = world.shards("d")
    size = len(data) // 100
    damaged = bytearray(data)
    if at is not None:
        damaged[35 * size + at] ^= 1
    (world.folder / "a.tfrecord").write_bytes(damaged)
    status = world.run(world.request("*.tfrecord", range_bytes=10 * size, on_error="skip"), name="e")
    assert (status.plan.num_ranges, status.left_out) == (ranges, left_out)
    lost = range(0) if at is None else range(30, 40) if at else range(30, 100)
    assert [i for [i] in world.read("e")] == [i for i in range(100) if i not in lost]


def test_a_record_that_looks_like_records_is_not_cut_in_two(world: World) -> None:
    inner = b"".join(frame(bytes([k]) * 50) for k in range(20))
    rows = [{"b": {"b64": base64.b64encode(value).decode()}} for value in (inner, b"after")]
    (world.folder / "a.json").write_text(json.dumps(rows))
    world.run(world.request())
    [data] = world.shards("d")
    (world.folder / "a.tfrecord").write_bytes(data)
    status = world.run(world.request("*.tfrecord", range_bytes=100), name="e")
    assert status.plan.num_ranges == 2
    assert [value for [value] in world.read("e", "b")] == [inner, b"after"]


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_objects_are_read_whole(world: World, ending: str) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    data = (world.folder / "a.ndjson").read_bytes()
    packed = gzip.compress(data) if ending == "gz" else zstd.compress(data)
    (world.folder / f"b.ndjson.{ending}").write_bytes(packed)
    status = world.run(world.request(f"*.{ending}", range_bytes=10))
    assert (status.plan.num_ranges, status.num_records) == (1, 100)


def test_many_processes_in_any_order_make_the_same_shards(world: World) -> None:
    for k in range(3):
        write_ndjson(world.folder / f"{k}.ndjson", 100 * k, 40)
    request = world.request(publish=PublishOptions(shuffle=True, seed=7, num_shards=3))
    world.run(request, name="one")
    of = 3
    for index in (2, 0, 1):
        imports = world.replica()
        import_id, _ = imports.begin("many", request, "k")
        status = drive(imports, "many", import_id, HereEngine(imports), index=index, of=of)
        assert (status.state == "done") == (index == 1)
    imports = world.replica()
    import_id, is_new = imports.begin("again", request, "k")
    tasks = imports.tasks("again", import_id)
    assert is_new
    random.Random(1).shuffle(tasks)
    for task in [*tasks, *tasks[:9]]:  # some of them twice
        assert world.replica().work(task).state == "done"
    imports.finish("again", import_id)
    assert world.shards("one") == world.shards("many") == world.shards("again")


def test_interrupted_import_continues(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    request = world.request()
    import_id, is_new = world.imports.begin("d", request, "k")
    tasks = world.imports.tasks("d", import_id)
    for task in tasks[::2]:
        world.imports.work(task)
    other = world.replica()
    assert is_new
    assert other.begin("d", request, "k") == (import_id, False)
    assert [task.index for task in other.tasks("d", import_id)] == [task.index for task in tasks[1::2]]
    half = other.follow("d", import_id)
    assert (half.state, half.done, half.is_decided) == ("running", len(tasks[::2]), False)
    assert other.finish("d", import_id).state == "running"
    assert drive(other, "d", import_id, HereEngine(other)).version == "1.0.0"
    assert world.read() == list(range(100))
    assert drive(other, "d", import_id, HereEngine(other)).version == "1.0.0"


def test_an_append_whose_note_is_lost_is_not_repeated(world: World, store: FaultStore) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    import_id, _ = world.imports.begin("d", world.request(), "k")
    task = world.imports.tasks("d", import_id)[0]

    def fail(when: str, operation: str, key: str) -> None:
        if when == "before" and operation == "put" and ".done." in key:
            raise StorageUnavailable("gone")

    store.fault = fail
    with pytest.raises(StorageUnavailable):
        world.imports.work(task)
    store.fault = None
    assert drive(world.imports, "d", import_id, HereEngine(world.imports)).num_records == 100
    assert world.read() == list(range(100))


def test_key_identifies_one_import(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 10)
    import_id, _ = world.imports.begin("d", world.request(), "k")
    with pytest.raises(UnprocessableInput) as caught:
        world.imports.begin("d", world.request(split="test"), "k")
    assert caught.value.code == "idempotency_key_reused"
    assert world.imports.begin("d", world.request(), "other")[0] != import_id


@pytest.mark.parametrize("change", ["touched", "longer", "gone"])
def test_a_changed_object_is_an_error_that_names_it(world: World, change: str) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 50)
    path = world.folder / "b.ndjson"
    write_ndjson(path, 100, 50)
    state = path.stat()
    import_id, _ = world.imports.begin("d", world.request(), "k")
    if change == "touched":
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    elif change == "longer":
        path.write_text(path.read_text() + '{"id": 7, "t": ""}\n')
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    else:
        path.unlink()
    status = drive(world.imports, "d", import_id, HereEngine(world.imports))
    assert status.state == "stopped"
    assert [failure["code"] for failure in status.failures] == ["source_changed"]
    assert "'b.ndjson'" in status.failures[0]["detail"]
    # Put back, it goes on.
    write_ndjson(path, 100, 50)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert drive(world.imports, "d", import_id, HereEngine(world.imports)).num_records == 100
    assert world.read() == [*range(50), *range(100, 150)]


def test_unreadable_range_is_skipped_and_reported(world: World) -> None:
    rows = [json.dumps(row) for row in _rows(0, 100)]
    rows[57] = '{"id": "no number", "t": ""}'
    (world.folder / "a.ndjson").write_text("\n".join(rows) + "\n")
    status = world.run(world.request(on_error="skip"))
    assert status.state == "done"
    assert status.left_out == 1
    [failure] = status.failures
    assert (failure["code"], failure["object"]) == ("inexact_integer", "a.ndjson")
    text = (world.folder / "a.ndjson").read_bytes()[failure["start"] : failure["stop"]]
    lost = [json.loads(line) for line in text.splitlines()]
    assert lost[failure["row"]]["id"] == "no number"
    ids = {57, *(row["id"] for row in lost)}
    assert world.read() == [i for i in range(100) if i not in ids]
    assert status.num_records == 100 - len(lost)


def test_an_import_that_has_stopped_at_a_range_may_go_on_without_it(world: World) -> None:
    rows = [json.dumps(row) for row in _rows(0, 100)]
    rows[57] = '{"id": "no number", "t": ""}'
    (world.folder / "a.ndjson").write_text("\n".join(rows) + "\n")
    stopped = world.run(world.request())
    assert (stopped.state, stopped.left_out) == ("stopped", 0)
    assert 0 < stopped.num_records < 57
    status = world.run(world.request(on_error="skip"))
    assert (status.state, status.left_out, len(status.failures)) == ("done", 1, 1)
    assert status.plan.import_id == stopped.plan.import_id
    ids = world.read()
    assert (len(ids), len(set(ids))) == (status.num_records, status.num_records)
    assert world.run(world.request()).state == "done"


def test_the_time_left_goes_by_what_was_done_last(tmp_path: Path, client: Client) -> None:
    store = TimedStore(client.store)
    world = World(tmp_path, Client(store))
    rows = [f'{{"id":{1000 + i}}}'.ljust(5999) + "\n" for i in range(60)]
    rows[30] = '{"id":"aa"}'.ljust(5999) + "\n"
    (world.folder / "a.ndjson").write_text("".join(rows))
    import_id, _ = world.imports.begin("d", world.request(range_bytes=6000, on_error="skip"), "k")
    tasks = world.imports.tasks("d", import_id)
    assert len(tasks) == 60
    assert "seconds_left" not in world.imports.follow("d", import_id).to_json()
    for index, task in enumerate(tasks[:50]):
        # It stood still for a night.
        store.advance(timedelta(hours=10) if index == 20 else timedelta(seconds=1000 if index > 20 else 1))
        world.imports.work(task)
    told = world.imports.follow("d", import_id).to_json()
    assert told["bytes_per_second"] == pytest.approx(6, rel=0.1)
    assert told["seconds_left"] == pytest.approx(10 * 1000, rel=0.1)


def test_stored_range_is_never_reported_as_skipped(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    import_id, _ = world.imports.begin("d", world.request(on_error="skip"), "k")
    for task in world.imports.tasks("d", import_id):
        world.imports.work(task)
    folder = f"d/_g1/imports/{import_id}/ranges"
    for info in list(world.client.store.list(folder)):  # all notes are lost, and so is the source
        world.client.store.delete(info.key)
    (world.folder / "a.ndjson").unlink()
    status = drive(world.imports, "d", import_id, HereEngine(world.imports))
    assert (status.left_out, status.num_records) == (0, 100)


def test_a_range_that_another_process_stores_meanwhile_is_not_left_out(
    world: World, store: FaultStore
) -> None:
    path = world.folder / "a.ndjson"
    write_ndjson(path, 0, 10)
    import_id, _ = world.imports.begin("d", world.request(on_error="skip", range_bytes=10**6), "k")
    [task] = world.imports.tasks("d", import_id)
    slot = world.client.datasets.open("d").layout.slot(id_of_key(f"{import_id}.0.0"))
    moved = path.rename(world.folder / "elsewhere")

    def come_first(when: str, operation: str, key: str) -> None:
        if (when, operation, key) == ("before", "create", slot) and moved.exists():
            moved.rename(path)
            assert world.replica().work(task).state == "done"

    store.fault = come_first
    assert world.imports.work(task).state == "done"
    status = drive(world.imports, "d", import_id, HereEngine(world.imports))
    assert (status.left_out, status.failures) == (0, ())
    assert world.read() == list(range(10))


def test_a_range_whose_slot_is_dead_is_appended_by_another_attempt(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    import_id, _ = world.imports.begin("d", world.request(), "k")
    dataset = world.client.datasets.open("d")
    first = id_of_key(f"{import_id}.0.0")
    close_slot(dataset.store, dataset.layout, first)  # as collection does, a day later
    tasks = world.imports.tasks("d", import_id)
    assert world.imports.work(tasks[0]).state == "done"
    assert isinstance(read_slot(dataset.store, dataset.layout, first), Dead)
    status = drive(world.imports, "d", import_id, HereEngine(world.imports))
    assert status.num_records == 100
    assert world.read() == list(range(100))


def test_the_next_attempt_is_known_when_the_dead_slot_is_gone(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    import_id, _ = world.imports.begin("d", world.request(), "k")
    dataset = world.client.datasets.open("d")
    first = id_of_key(f"{import_id}.0.0")
    close_slot(dataset.store, dataset.layout, first)
    world.imports.work(world.imports.tasks("d", import_id)[0])
    dataset.store.delete(dataset.layout.slot(first))  # a week later
    for info in list(dataset.store.list(f"d/_g1/imports/{import_id}/ranges")):
        if ".done." in info.key:
            dataset.store.delete(info.key)
    assert world.imports.tasks("d", import_id)[0].attempt == 1
    drive(world.imports, "d", import_id, HereEngine(world.imports))
    assert world.read() == list(range(100))


def test_a_range_that_was_left_out_is_not_tried_again(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    path = world.folder / "a.ndjson"
    import_id, _ = world.imports.begin("d", world.request(on_error="skip"), "k")
    [task, *_] = world.imports.tasks("d", import_id)
    moved = path.rename(world.folder / "elsewhere")
    assert world.imports.work(task).state == "left"
    moved.rename(path)
    assert world.replica().work(task).state == "left"
    assert drive(world.imports, "d", import_id, HereEngine(world.imports)).left_out == 1


def test_a_cancelled_import_does_nothing_more(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    import_id, _ = world.imports.begin("d", world.request(), "k")
    tasks = world.imports.tasks("d", import_id)
    world.imports.work(tasks[0])
    assert world.imports.cancel("d", import_id).state == "cancelled"
    assert world.replica().work(tasks[1]).state == "ended"
    assert world.imports.tasks("d", import_id) == []
    status = world.imports.finish("d", import_id)
    assert (status.state, status.version, status.done) == ("cancelled", None, 1)


def test_ended_import_cannot_be_cancelled(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 10)
    status = world.run(world.request())
    assert world.imports.cancel("d", status.plan.import_id).state == "done"


def test_cancellation_reports_the_outcome(world: World, store: FaultStore) -> None:
    """At each request of the process that publishes."""
    write_ndjson(world.folder / "a.ndjson", 0, 20)
    told: list[str] = []
    for number in itertools.count():
        name, left = f"d{number}", [number]
        import_id, _ = world.imports.begin(name, world.request(), "k")
        for task in world.imports.tasks(name, import_id):
            world.imports.work(task)

        def cancel(when: str, operation: str, key: str, name: str = name, left: list[int] = left) -> None:
            left[0] -= when == "before"
            if left[0] < 0:
                store.fault = None
                told.append(_cancel(world.replica(), name))

        store.fault = cancel
        status = world.imports.finish(name, import_id)
        if len(told) == number:  # it had no further request
            break
        versions = world.client.datasets.versions(name)
        assert (told[-1], status.state, versions) in (
            ("cancelled", "cancelled", []),
            ("import_publishing", "done", ["1.0.0"]),
            ("done", "done", ["1.0.0"]),
        )
    store.fault = None
    answers = [answer for answer, _ in itertools.groupby(told)]
    assert answers == ["cancelled", "import_publishing", "done"]
    # A draft that was dropped leaves nothing behind.
    assert not [info.key for info in store.list("d0") if "/log/" in info.key]


def _cancel(imports: Imports, name: str) -> str:
    try:
        return imports.cancel(name, id_of_key("k")).state
    except Conflict as error:
        return error.code


def test_rows_that_cannot_be_dealt_out_by_a_feature_are_not_planned(world: World) -> None:
    rows = ({"id": number, "x": number + 0.5} for number in range(40))
    (world.folder / "a.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def request(by: str, **given: Any) -> ImportRequest:
        publish = PublishOptions(by=by, fractions={"train": "0.5", "test": "0.5"})
        return world.request(publish=publish, **given)

    def refusal(request: ImportRequest) -> str:
        with pytest.raises(UnprocessableInput) as caught:
            world.imports.begin("d", request, "k")
        return caught.value.code

    assert [refusal(request(by)) for by in ("x", "y")] == ["invalid_division"] * 2
    assert world.client.store.list_children("") == []
    world.run(request("id"), key="other")
    assert [refusal(request(by)) for by in ("x", "y")] == ["invalid_division"] * 2
    # Later rows may bring it.
    world.imports.begin("d", request("y", evolve=True), "k")


def test_others_may_publish_the_rows_meanwhile(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    import_id, _ = world.imports.begin("d", world.request(), "k")
    for task in world.imports.tasks("d", import_id):
        world.imports.work(task)
    world.client.publish()
    # A later version has other rows only.
    world.run(world.request(publish=PublishOptions(base="none")), key="other")
    assert world.client.datasets.manifest("d", "latest").version == "1.1.0"
    assert world.imports.finish("d", import_id).version == "1.0.0"


def test_the_schema_does_not_depend_on_which_range_comes_first(world: World) -> None:
    (world.folder / "a.ndjson").write_text('{"x": 1.5}\n{"x": 2}\n' * 50)
    (world.folder / "b.ndjson").write_text('{"x": 1}\n' * 50)
    import_id, _ = world.imports.begin("d", world.request(), "k")
    for task in reversed(world.imports.tasks("d", import_id)):
        assert world.imports.work(task).state == "done"
    world.imports.finish("d", import_id)
    assert world.read(feature="x") == [1.5, 2] * 50 + [1] * 50


def test_other_formats_are_passed_over_and_counted(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 10)
    (world.folder / "_SUCCESS").touch()
    (world.folder / "notes.txt").write_text("x")
    status = world.run(world.request())
    assert (status.plan.num_objects, status.plan.passed_over) == (1, 2)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ([], "source_not_found"),
        (["a.ndjson", "b.csv"], "unknown_source_format"),
        (["a.bin"], "unknown_source_format"),
        (["a.ndjson"], "no_records"),
    ],
    ids=["nothing", "several", "unknown", "empty"],
)
def test_a_source_that_cannot_be_imported_is_refused(world: World, names: list[str], code: str) -> None:
    for name in names:
        (world.folder / name).touch()
    with pytest.raises(InputError) as caught:
        world.imports.begin("d", world.request(), "k")
    assert caught.value.code == code
    with pytest.raises(NotFound):
        world.client.datasets.open("d")


def test_a_first_object_that_cannot_be_read_is_named_or_left_out(world: World) -> None:
    (world.folder / "a.csv").touch()
    write_csv(world.folder / "b.csv", 0, 10)
    with pytest.raises(MalformedInput) as caught:
        world.run(world.request())
    assert caught.value.code == "no_header"
    assert caught.value.detail.startswith("'a.csv', from byte 0: The body is empty")
    status = world.run(world.request(on_error="skip"))
    assert (status.state, status.num_records) == ("done", 10)
    assert [(item["object"], item["code"]) for item in status.failures] == [("a.csv", "no_header")]


def test_where_no_object_can_be_read_the_first_one_is_named(world: World) -> None:
    for name in ("a.parquet", "b.parquet"):
        (world.folder / name).touch()
    with pytest.raises(MalformedInput) as caught:
        world.run(world.request(on_error="skip"))
    assert caught.value.code == "invalid_parquet"
    assert caught.value.detail.startswith("'a.parquet', from byte 0: ")


def test_a_format_that_is_said_goes_before_endings_that_all_tell_another(world: World) -> None:
    write_ndjson(world.folder / "a.json", 0, 10)
    assert world.run(world.request(form="ndjson")).num_records == 10
    write_ndjson(world.folder / "b.ndjson", 0, 5)
    status = world.run(world.request(form="ndjson"), key="other")
    assert (status.num_records, status.plan.passed_over) == (5, 1)


def test_an_object_that_is_named_itself_is_not_passed_over(world: World) -> None:
    write_ndjson(world.folder / "_a.ndjson", 0, 10)
    assert world.run(world.request("_a.ndjson")).num_records == 10
    with pytest.raises(UnprocessableInput, match="begin with _ or a dot"):
        world.run(world.request(), key="other")


def test_folder_marker_is_not_imported(world: World) -> None:
    write_csv(world.folder / "rows", 0, 10)
    (world.folder / "mark").touch()
    status = world.run(world.request(form="csv"))
    assert (status.num_records, status.plan.passed_over) == (10, 1)


def test_a_question_mark_in_the_name_of_a_file_begins_no_query(world: World) -> None:
    (world.folder / "a?.ndjson.gz").write_bytes(gzip.compress(b'{"id": 1}\n'))
    (world.folder / "b?.tsv").write_text("id\tx\n2\t3\n")
    assert world.run(world.request("*.gz")).num_records == 1
    world.run(world.request("*.tsv"), name="e")
    assert world.read("e") == [2]


def test_an_import_of_too_many_ranges_is_refused_before_all_are_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def cut(_: object, item: SourceObject, *__: object) -> Iterator[Range]:
        begun.append(item.name)
        return itertools.repeat(Range(item, 0, 1))

    monkeypatch.setattr("app.services.datasets.imports.imports.MAX_RANGES", 100)
    monkeypatch.setattr("app.services.datasets.imports.imports.cut", cut)
    for k in range(50):
        write_ndjson(world.folder / f"{k}.ndjson", 0, 10)
    with pytest.raises(LimitExceeded) as caught:
        world.imports.begin("d", world.request(), "k")
    assert caught.value.code == "too_many_ranges"
    assert len(begun) < 10


def test_unfinished_files_are_skipped(world: World) -> None:
    for name in ("_temporary/0", ".old", "_day=1", "a_b"):
        (world.folder / name).mkdir(parents=True)
        write_ndjson(world.folder / name / "a.ndjson", 0, 10)
    status = world.run(world.request())
    assert (status.num_records, status.plan.num_objects, status.plan.passed_over) == (20, 2, 2)


def test_only_sources_that_are_allowed_are_read(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 10)
    outside = world.replica(allowed=["s3://bucket/in", f"file://{world.folder}/other"])
    with pytest.raises(MalformedInput) as caught:
        outside.begin("d", world.request(), "k")
    assert caught.value.code == "source_not_allowed"
    inside = world.replica(allowed=[f"file://{world.folder}"])
    assert inside.begin("d", world.request(), "k")[1]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a/b.jsonl.gz", "ndjson"),
        ("x-train.tfrecord-00003-of-00010", "tfrecord"),
        ("x.tfrecords", "tfrecord"),
        ("part-0.snappy.parquet", "parquet"),
        ("a.tsv", "csv"),
        ("a.tfrecord.json", "json"),
        ("README", None),
    ],
)
def test_names_tell_the_format(name: str, form: str | None) -> None:
    assert form_of(name) == form


def test_a_plan_holds_many_ranges_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.datasets.imports.plan.PAGE", 7)
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    status = world.run(world.request(range_bytes=100))
    assert len(status.plan.pages) == -(-status.plan.num_ranges // 7) > 3
    assert world.read() == list(range(100))


def test_a_planner_that_came_second_takes_the_plan_of_the_first(world: World, store: FaultStore) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 100)
    ids: list[str] = []

    def race(when: str, operation: str, key: str) -> None:
        if when == "before" and operation == "create" and key.endswith("/plan") and not ids:
            ids.append("")
            ids[0] = world.replica().begin("d", world.request(), "k")[0]

    store.fault = race
    import_id, _ = world.imports.begin("d", world.request(), "k")
    assert ids == [import_id]
    plan = world.imports.follow("d", import_id).plan
    pages = [info.key for info in store.list(f"d/_g1/imports/{import_id}") if "/ranges/" not in info.key]
    assert sorted(pages) == sorted([*(page.key for page in plan.pages), f"d/_g1/imports/{import_id}/plan"])


def test_a_store_in_a_folder_takes_an_import(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_csv(tmp_path / "in" / "a.csv", 0, 40)
    world = World(tmp_path / "in", Client(open_store(f"file://{tmp_path}/data")))
    assert world.run(world.request()).version == "1.0.0"
    assert world.read() == list(range(40))


def test_the_transforms_of_a_schema_are_checked_and_written_out_before_anything_is_planned(
    world: World,
) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 3)

    def request(*steps: object) -> ImportRequest:
        features = {"id": {"dtype": "int64", "transforms": list(steps)}, "t": {"dtype": "text"}}
        return world.request(schema=Schema.from_json({"features": features}))

    with pytest.raises(InputError) as caught:
        world.imports.begin("d", request({"step": "nothing"}), "k")
    assert (caught.value.code, caught.value.location.feature) == ("invalid_transform", "id")
    assert world.client.store.list_children("") == []
    import_id, _ = world.imports.begin("d", request({"step": "cast", "dtype": "float32"}), "k")
    stored = world.imports.follow("d", import_id).plan.request.schema
    assert stored is not None
    assert '"unfit"' in next(iter(stored)).transforms, "as it is by default"
    assert world.imports.begin("d", request({"step": "cast", "dtype": "float32"}), "k") == (import_id, False)


def test_ranges_keep_the_order_of_objects_that_are_cut_at_the_same_time(world: World) -> None:
    sizes = [60 if k % 3 else 5 for k in range(12)]
    for k, size in enumerate(sizes):
        write_csv(world.folder / f"{k:02}.csv", 100 * k, size)
    import_id, _ = world.imports.begin("d", world.request(range_bytes=200), "k")
    plan = open_plan(world.client.datasets.open("d"), import_id)
    ranges = [part for page in plan.pages for part in read_page(world.client.datasets.open("d"), page)]
    places = [(part.source.name, part.start) for part in ranges]
    assert places == sorted(places)
    assert len(ranges) > 40
    for k in range(12):
        of_object = [part for part in ranges if part.source.name == f"{k:02}.csv"]
        assert [part.start for part in of_object] == [0, *(part.stop for part in of_object[:-1])]
        assert of_object[-1].stop == of_object[-1].source.size


def test_several_objects_are_cut_at_the_same_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(3):
        write_csv(world.folder / f"{k}.csv", 0, 60)
    together = threading.Barrier(3)
    read = CountedSource.read

    def wait_for_the_others(source: CountedSource, item: SourceObject, offset: int, length: int) -> Any:
        if threading.current_thread().name.startswith("cut"):
            together.wait(PATIENCE_S)
        return read(source, item, offset, length)

    monkeypatch.setattr(CountedSource, "read", wait_for_the_others)
    world.imports.begin("d", world.request(range_bytes=1000), "k")
    assert not together.broken


def test_impossible_publication_names_its_reason(world: World) -> None:
    write_ndjson(world.folder / "a.ndjson", 0, 30)
    divided = PublishOptions(fractions={"train": "0.5", "test": "0.5"}, divide="other")
    request = world.request(publish=divided)
    with pytest.raises(UnprocessableInput) as refused:
        world.run(request)
    import_id, _ = world.imports.begin("d", request, "k")
    told = world.replica().follow("d", import_id).to_json()
    assert (told["state"], told["rows"], told["failures"]) == ("stopped", 30, [])
    assert told["refusal"] == {"code": "split_not_found", "detail": refused.value.detail}
    # Once it can be, the same again goes on; another one, cancelled, stays as it ended.
    with pytest.raises(UnprocessableInput):
        world.run(request, name="e")
    assert world.imports.cancel("e", import_id).state == "cancelled"
    world.run(world.request(split="other", publish=None), key="other")
    assert "refusal" not in world.run(request).to_json()
    assert world.imports.follow("d", import_id).state == "done"
