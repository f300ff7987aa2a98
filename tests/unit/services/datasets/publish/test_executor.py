"""kill -9 around every single write: what was acknowledged is published once, all else at most once."""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from hashlib import sha256

import pytest

from app.domain.manifest import Manifest
from app.domain.schema import Schema
from app.errors import CorruptData, ShardsmithError
from app.services.datasets.objects.fingerprint import FINGERPRINT, fingerprint
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.log import Aborted
from app.services.datasets.objects.plan import Plan
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.objects.slot import Commit
from app.services.datasets.objects.stored_json import seal_json
from app.services.datasets.pieces.pieces import Piece
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support import publish_plans
from tests.support.checksummed_json import sealed
from tests.support.dataset_rows import Client
from tests.support.faulty_store import WRITES, FaultStore, KillAt, Killed, Operation, When

#: Two shards, an append in its slot and one in parts, a base, and a row of a rival throughout.
LARGE = range(100, 500)
OPTIONS = PublishOptions(num_shards=2)


def scenario(client: Client, acknowledged: set[str], options: PublishOptions = OPTIONS) -> None:
    """What the process that dies was doing; notes each acknowledgement as it comes."""
    for key, values, pad in (("small", [1], 1), ("large", LARGE, 1000)):
        client.append(values, key=key, pad=pad)
        acknowledged.add(key)
    client.publish(options)
    client.append([2], key="more", pad=1)
    acknowledged.add("more")
    client.publish(options)


def retry(client: Client, options: PublishOptions = OPTIONS) -> None:
    """What its clients do afterwards, against another replica."""
    small = client.append([1], key="small", pad=1)
    client.append(LARGE, key="large", pad=1000)
    client.publish(options, wants=small.append_id)
    more = client.append([2], key="more", pad=1)
    client.publish(options, wants=more.append_id)


def writes_of_a_run() -> list[str]:
    store = FaultStore(open_store("memory://"))
    scenario(Client(store), set())
    return [
        f"{operation} {re.sub('[0-9a-f]{32}', '*', key)}"
        for operation, key in store.requests
        if operation in WRITES
    ]


WRITES_OF_A_RUN = writes_of_a_run()


def published_rows(client: Client, version: str) -> Counter[int]:
    return Counter(client.read(version))


def check_versions(inner: ObstoreStore) -> None:
    """Every version that readers see is whole: its files are there, its rows come once."""
    reader = Client(inner)
    if "d" not in reader.datasets.list():
        return
    for version in reader.datasets.versions("d"):
        manifest = reader.datasets.manifest("d", version)
        for name, entry in manifest.by_file.items():
            if name != "dataset_info.json":
                file = reader.datasets.open_file("d", version, name)
                assert len(file.read_at(0, file.size)) == entry.num_bytes
        rows = published_rows(reader, version)
        assert set(rows.values()) == {1}
        assert sum(rows.values()) == manifest.splits["train"].num_records


def test_the_run_writes_at_every_point_of_the_protocol() -> None:
    for point in (
        "put d/_g1/parts/",
        "create d/_gen/1.json",
        "create d/_g1/slots/",
        ".inputs",
        ".seen",
        "create d/_g1/log/1.plan",
        "put_stream d/1.0.0/d-train.tfrecord-00000-of-00002",
        "put_stream d/1.0.0/d-train.tfrecord-00001-of-00002",
        "put d/_g1/log/1.done/",
        "put d/1.0.0/features.json",
        "create d/1.0.0/_manifest.json",
        "put d/1.0.0/dataset_info.json",
        "put d/_g1/log/hint",
        "delete d/_g1/parts/",
        "create d/_g1/log/2.plan",
        "create d/1.1.0/_manifest.json",
    ):
        assert any(point in write for write in WRITES_OF_A_RUN), point


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("index", range(len(WRITES_OF_A_RUN)), ids=lambda index: WRITES_OF_A_RUN[index])
def test_a_process_killed_at_any_write_loses_and_repeats_nothing(index: int, when: When) -> None:
    inner = open_store("memory://")
    kill = KillAt(index, when)
    acknowledged: set[str] = set()
    with pytest.raises(Killed):
        scenario(Client(FaultStore(inner, kill)), acknowledged)
    assert kill.killed is not None
    check_versions(inner)

    # Another replica resumes; nothing but what was acknowledged may have become visible.
    witness = Client(inner)
    for key, values in (("small", [1]), ("more", [2])):
        if key in acknowledged:
            assert witness.append(values, key=key, pad=1).replayed
    survivor = Client(inner)
    retry(survivor)
    latest = survivor.datasets.manifest("d", "latest").version
    assert published_rows(survivor, latest) == Counter([1, 2, *LARGE])
    check_versions(inner)


@pytest.mark.sampled
@pytest.mark.parametrize("index", range(0, len(WRITES_OF_A_RUN), 3), ids=lambda index: WRITES_OF_A_RUN[index])
def test_several_processes_killed_one_after_the_other(index: int) -> None:
    inner = open_store("memory://")
    for step in range(4):
        try:
            scenario(
                Client(FaultStore(inner, KillAt(index + step, "after" if step % 2 else "before"))), set()
            )
        except (Killed, ShardsmithError):
            continue
    survivor = Client(inner)
    retry(survivor)
    assert published_rows(survivor, "latest") == Counter([1, 2, *LARGE])
    check_versions(inner)


#: What every release with a fingerprint makes of `frozen_inputs`. Where this test fails, give the
#: bytes a fingerprint of their own and note them here: two releases must not share a plan and differ.
GOLDEN = {
    "copy-2 pieces-4194304 schemas-2 shuffle-1": {
        "_d-test-00000-of-00001.idx": ("d3f0efa60d67b21a1dee3b67967b5ec808dacc5619d3b4fbfc40d01fee8867d7"),
        "_d-train-00000-of-00002.idx": ("d7ad1c1e4ad1920b86d992e9292997dd08aa900d967de7f8fc3cc00028946028"),
        "_d-train-00001-of-00002.idx": ("7e59e6a449d74e1ab5b5b6672dc8835c80addaa7af315d704aaf9135f27a518a"),
        "_index.json": "8d7270d50fc101ff24ee32b8496fcfd58711b2b93d00f801536ea5317089f753",
        "d-test.tfrecord-00000-of-00001": "3bfa930ab3d7072fe8fed6e416284016ae22115050aedf51e22e39ac4d97c00e",
        "d-train.tfrecord-00000-of-00002": "f8de442638d4d0adcec780d061087b55e05a17dd47e1c31b01aecd7cfe1dd343",
        "d-train.tfrecord-00001-of-00002": "2697e831d9a57c8a73d2c40ddad0022bce1d838a518577bbb92b24bfbe9b11c2",
        "dataset_info.json": "ed85df2219658d189773ae0ba2045f81511a90a3b83f1ec9e56eebf7b2394ab2",
        "features.json": "17ac00b34a9e5306346fae72d33b12d6f3033dd27509b26d0d9cceb640782de8",
        "schema.pbtxt": "450dd6a2c74bd0c9730376c324cd7c27edf2f7b0204cee4e221b94420f35d086",
    }
}
#: Frames of the payloads b"", b"a" and b"bc", as TensorFlow writes them.
FRAMES = [
    bytes.fromhex("000000000000000029039807d8ea82a2"),
    bytes.fromhex("01000000000000000175de4161786ee428"),
    bytes.fromhex("020000000000000078270b3462633433dba7"),
]


def frozen_inputs(inner: ObstoreStore) -> None:
    """A dataset with one feature of each kind and three records, none of them encoded here."""
    features = {
        "flag": {"dtype": "bool"},
        "image": {"dtype": "uint8", "shape": [2, 3], "encoding": "raw"},
        "name": {"dtype": "text", "nullable": True},
        "points": {"dtype": "float32", "shape": [None, 2]},
        "spectrum": {"dtype": "complex64", "shape": [None, None], "nullable": True},
        "weights": {"dtype": "bfloat16", "shape": [4]},
    }
    client = Client(inner)
    client.datasets.create("d", Schema.from_json({"features": features}), DatasetOptions("Frozen."))
    layout = Layout("d", 1)
    for time, (split, frames) in enumerate([("train", FRAMES[:2]), ("test", FRAMES[2:]), ("empty", [])]):
        data = b"".join(frames)
        pieces = (Piece.of(data, len(frames)),) if data else ()
        append_id = f"{time:032x}"
        commit = Commit(append_id, "n", "a", split, "", len(frames), len(data), time, pieces)
        inner.put(layout.slot(append_id), commit.serialize(data))


def test_the_bytes_of_a_version_change_only_with_the_fingerprint() -> None:
    inner = open_store("memory://")
    frozen_inputs(inner)
    Client(inner).publish(PublishOptions(num_shards={"train": 2}))
    written = {
        info.key.removeprefix("d/1.0.0/"): sha256(inner.get(info.key)).hexdigest()
        for info in inner.list("d/1.0.0")
        if not info.key.endswith("_manifest.json")
    }
    assert written == GOLDEN[FINGERPRINT]


#: A record with `x` as an Int64List, and what is published of it once `x` is float32, by fingerprint; both as
#: TensorFlow writes them.
INTEGERS = bytes.fromhex(
    "2700000000000000bbe1b1460a250a0d0a046e616d6512050a030a01610a140a"
    "0178120f1a0d0a0b03808080f8ffffffffff01cb2bfbe6"
)
FLOATS = {
    "copy-2 pieces-4194304 schemas-2 shuffle-1 encode-1": bytes.fromhex(
        "2400000000000000422b804d0a220a0d0a046e616d6512050a030a01610a110a"
        "0178120c120a0a0800004040000080cbe0fbb542"
    )
}


def test_reencoded_records_change_only_with_the_fingerprint() -> None:
    inner = open_store("memory://")
    client = Client(inner)
    x = {"dtype": "float32", "shape": [2], "inferred": True, "was_int64": True}
    schema = Schema.from_json({"features": {"x": x, "name": {"dtype": "text"}}}, stored=True)
    client.datasets.create("d", schema, DatasetOptions())
    commit = Commit("0" * 32, "n", "a", "train", "", 1, len(INTEGERS), 0, (Piece.of(INTEGERS, 1),))
    inner.put(Layout("d", 1).slot(commit.append_id), commit.serialize(INTEGERS))
    client.publish()
    published = inner.get("d/1.0.0/d-train.tfrecord-00000-of-00001")
    assert published == FLOATS[fingerprint("none", schema)]


def test_an_integer_that_no_float_holds_is_never_altered() -> None:
    inner = open_store("memory://")
    Client(inner).append([2**24 + 1])
    x = {"dtype": "float32", "inferred": True, "was_int64": True}
    schema = Schema.from_json({"features": {"x": x}}, stored=True)
    step = {"nonce": "n", "schema": schema.to_json(stored=True)}  # as no writer widens it
    inner.put(Layout("d", 1).schema(1), seal_json(step))
    with pytest.raises(CorruptData, match="16777217"):
        Client(inner).publish()


def test_sequence_examples_have_no_side_files_for_tfds_which_could_not_read_them() -> None:
    inner = open_store("memory://")
    client = Client(inner)
    schema = Schema.from_json({"features": {"x": {"dtype": "int64"}}, "message": "sequence_example"})
    client.datasets.create("d", schema, DatasetOptions())
    layout = Layout("d", 1)
    append_id = "0" * 32
    commit = Commit(append_id, "n", "a", "train", "", 1, len(FRAMES[0]), 0, (Piece.of(FRAMES[0], 1),))
    inner.put(layout.slot(append_id), commit.serialize(FRAMES[0]))
    manifest = client.datasets.publish("d", PublishOptions())
    assert sorted(manifest.by_file) == sorted(
        [
            "_d-train-00000-of-00001.idx",
            "_index.json",
            "d-train.tfrecord-00000-of-00001",
            "schema.pbtxt",
        ]
    )
    files = {info.key.rpartition("/")[2] for info in inner.list("d/1.0.0")}
    assert files == {*manifest.by_file, "_manifest.json"}


#: Other forms of shards.
FORMS = [
    pytest.param(PublishOptions(num_shards=2, shuffle=True, seed=3), id="shuffled"),
    pytest.param(PublishOptions(num_shards=2, compression="gzip"), id="gzip"),
    pytest.param(PublishOptions(num_shards=2, compression="zlib", shuffle=True), id="zlib-shuffled"),
    pytest.param(PublishOptions(num_shards=2, index=False), id="no-index"),
]


def writes_of_a_version(options: PublishOptions) -> list[int]:
    """The writes from the first plan to the first manifest."""
    store = FaultStore(open_store("memory://"))
    scenario(Client(store), set(), options)
    writes = [key for operation, key in store.requests if operation in WRITES]
    return list(range(writes.index("d/_g1/log/1.plan"), writes.index("d/1.0.0/_manifest.json") + 1))


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("options", FORMS)
def test_shards_of_every_form_survive_a_kill_at_any_of_their_writes(
    options: PublishOptions, when: When
) -> None:
    for index in writes_of_a_version(options):
        inner = open_store("memory://")
        with pytest.raises(Killed):
            scenario(Client(FaultStore(inner, KillAt(index, when))), set(), options)
        check_versions(inner)
        survivor = Client(inner)
        retry(survivor, options)
        assert published_rows(survivor, "latest") == Counter([1, 2, *LARGE])
        check_versions(inner)


class Interrupt:
    """Around the `index`-th write of an executor, something else happens once."""

    def __init__(self, index: int, when: When, event: Callable[[], object]) -> None:
        self._left = index
        self._when = when
        self._event: Callable[[], object] | None = event

    def __call__(self, when: When, operation: Operation, key: str) -> None:
        if self._event is not None and operation in WRITES and when == self._when:
            self._left -= 1
            if self._left < 0:
                event, self._event = self._event, None
                event()


def planned(inner: ObstoreStore, options: PublishOptions, *, copies: bool) -> Plan:
    """A plan that nobody has executed, of a version whose rows are `LARGE` and 2."""
    client = Client(inner)
    client.append(LARGE, pad=1000)
    base = client.publish(options)
    client.append([2], pad=1)
    changes = [publish_plans.copying(base)] if copies else []
    return publish_plans.lay_down(client.datasets, *changes, options=options)


def execute(store: ObjectStore, plan: Plan) -> Manifest:
    verdict = publish_plans.executor(Client(store).datasets).execute(plan)
    assert isinstance(verdict, Manifest)
    return verdict


@pytest.mark.sampled
@pytest.mark.parametrize("copies", [False, True], ids=["written", "copied"])
@pytest.mark.parametrize("options", [pytest.param(OPTIONS, id="plain"), *FORMS])
def test_an_executor_that_wakes_up_late_changes_nothing(options: PublishOptions, *, copies: bool) -> None:
    """At each write of one executor, a second one does all that is left, and publishes; then it goes on."""
    if copies and options.shuffle:
        return  # what is shuffled is never copied
    inner = open_store("memory://")
    counted = FaultStore(inner)
    execute(counted, planned(inner, options, copies=copies))
    num_writes = sum(operation in WRITES for operation, _ in counted.requests)
    for index in range(num_writes):
        inner = open_store("memory://")
        plan = planned(inner, options, copies=copies)
        late = Interrupt(index, "after" if index % 2 else "before", partial(execute, inner, plan))
        manifest = execute(FaultStore(inner, late), plan)
        for name, entry in manifest.by_file.items():
            assert sha256(inner.get(f"d/1.1.0/{name}")).hexdigest() == entry.sha256
        assert published_rows(Client(inner), "latest") == Counter([2, *LARGE])


def test_a_note_of_a_shard_that_is_not_there_is_not_believed() -> None:
    inner = open_store("memory://")
    plan = planned(inner, OPTIONS, copies=False)
    killed = FaultStore(inner, KillAt(5, "before"))
    with pytest.raises(Killed):
        execute(killed, plan)
    [note, *_] = [info.key for info in inner.list("d/_g1/log/2.done")]
    shard = f"d/1.1.0/{note.rpartition('/')[2]}"
    for damage in (partial(inner.delete, shard), partial(inner.put, shard, b"short")):
        damage()
        with pytest.raises(Killed):
            execute(FaultStore(inner, KillAt(3, "before")), plan)
    execute(inner, plan)
    check_versions(inner)
    assert published_rows(Client(inner), "latest") == Counter([2, *LARGE])


def test_a_note_of_other_bytes_aborts() -> None:
    inner = open_store("memory://")
    plan = planned(inner, OPTIONS, copies=False)
    assert plan.work is not None
    shard = plan.work.shards[0].file
    note = {"num_records": 1, "num_bytes": 1, "sha256": "0" * 64, "pieces": []}
    inner.put(f"d/_g1/log/2.done/{shard}", sealed(json.dumps(note).encode()))
    verdict = publish_plans.executor(Client(inner).datasets).execute(plan)
    assert isinstance(verdict, Aborted)
    assert "different bytes" in verdict.reason
