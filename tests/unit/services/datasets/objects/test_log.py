"""The log: the newest plan is found from any hint, and verdicts are read once."""

from collections.abc import Collection
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.manifest import Manifest
from app.domain.schema import Schema
from app.domain.sharding.division import Division
from app.domain.sharding.shard_plan import ShardPlan
from app.errors import CorruptData
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.log import Aborted, Decided, PublishLog
from app.services.datasets.objects.plan import NamedFile, Plan, Work
from app.services.datasets.objects.stored_json import seal_json
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.checksummed_json import resealed, sealed
from tests.support.faulty_store import FaultStore

LAYOUT = Layout("d", 1)
SCHEMA = Schema.from_json({"features": {"x": {"dtype": "int64"}}})


@pytest.fixture
def store() -> FaultStore:
    return FaultStore(open_store("memory://"))


def log(store: FaultStore | ObstoreStore) -> PublishLog:
    return PublishLog(store, LAYOUT, Decided())


def put_plans(store: FaultStore | ObstoreStore, count: int, *, aborted: Collection[int] = ()) -> None:
    for n in range(1, count + 1):
        store.put(LAYOUT.plan(n), b"")
        manifest = Manifest("d", str(LAYOUT.version(n)), {}, SCHEMA)
        content = {"aborted": "why"} if n in aborted else manifest.to_json()
        store.put(LAYOUT.manifest(n), seal_json({"nonce": "x", **content}))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 70), st.data())
def test_the_newest_plan_is_found_from_any_hint(count: int, data: st.DataObject) -> None:
    store = open_store("memory://")
    put_plans(store, count)
    hint = data.draw(st.integers(0, count + 20))  # behind, or a lie
    if hint:
        log(store).put_hint(hint)
    assert log(store).newest() == count


def test_a_fresh_hint_takes_two_requests(store: FaultStore) -> None:
    put_plans(store, 50)
    log(store).put_hint(50)
    reader = log(store)
    reader.verdict(50)
    store.requests.clear()
    assert reader.newest() == 50
    assert store.requests == [("get", "d/_g1/log/hint"), ("head", "d/_g1/log/51.plan")]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b'{"n":4}',
        b'{"n":4,"crc32":"00000000"}',
        sealed(b'{"m":4}'),
        sealed(b'{"n":-1}'),
        sealed(b'{"n":"3"}'),
        sealed(b'{"n":true}'),
        sealed(b'{"n":6}'),
        sealed(b'{"n":1%s}' % (b"0" * 3000)),
    ],
)
def test_damaged_hint_is_ignored(store: FaultStore, data: bytes) -> None:
    put_plans(store, 5)
    store.put(LAYOUT.hint, data)
    assert log(store).newest() == 5


def test_hint_at_an_unpublished_plan_is_ignored(store: FaultStore) -> None:
    put_plans(store, 5, aborted={4})
    store.put(LAYOUT.plan(6), b"")
    for n in (4, 6):
        store.put(LAYOUT.hint, seal_json({"n": n}))
        assert log(store).newest() == 6
        assert log(store).newest_published(6) == 5


def test_the_last_published_version_skips_what_is_aborted_or_open(store: FaultStore) -> None:
    put_plans(store, 6, aborted={1, 4, 5})
    store.delete(LAYOUT.manifest(6))
    assert log(store).newest_published(6) == 3
    assert log(store).newest_published(1) == 0
    assert log(store).newest_published(0) == 0


def test_a_verdict_is_read_once_it_is_decided(store: FaultStore) -> None:
    put_plans(store, 2, aborted={2})
    store.put(LAYOUT.plan(3), b"")
    reader = log(store)
    for _ in range(2):
        assert isinstance(reader.verdict(1), Manifest)
        assert reader.verdict(2) == Aborted("why")
        assert reader.verdict(3) is None
    assert [key for operation, key in store.requests if operation == "get"] == [
        LAYOUT.manifest(1),
        LAYOUT.manifest(2),
        LAYOUT.manifest(3),
        LAYOUT.manifest(3),
    ]


PLAN = Plan(
    n=3,
    nonce="x",
    publish_key="k",
    options={"num_shards": {"train": 2}, "base": "latest"},
    seen=NamedFile("d/_g1/log/3.x.seen", "bb"),
    fingerprint="f",
    work=Work(
        base=2,
        inputs=NamedFile("d/_g1/log/3.x.inputs", "aa"),
        schema=SCHEMA,
        shards=(ShardPlan("train", "file", 0, 3), ShardPlan("train", "other", 3, 7, "old")),
        compression="none",
        index=True,
        shuffle_seed=7,
        division=Division("all", {"train": "0.9", "test": "0.1"}, by="user", seed=5),
        dealt=NamedFile("d/_g1/log/3.x.dealt", "cc"),
    ),
)
PLAN_JSON = (
    b'{"nonce":"x","n":3,"publish_key":"k","options":{"num_shards":{"train":2},"base":"latest"},'
    b'"seen":{"key":"d/_g1/log/3.x.seen","sha256":"bb"},"fingerprint":"f","base":2,'
    b'"inputs":{"key":"d/_g1/log/3.x.inputs","sha256":"aa"},"schema":{"features":{"x":{"dtype":"int64",'
    b'"shape":[],"kind":"dense","encoding":"list","nullable":false}}},'
    b'"shards":[{"split":"train","file":"file","start":0,"stop":3,"copy_of":null},'
    b'{"split":"train","file":"other","start":3,"stop":7,"copy_of":"old"}],"compression":"none",'
    b'"index":true,"shuffle_seed":7,"division":{"source":"all","fractions":{"train":"0.9","test":"0.1"},'
    b'"by":"user","seed":5},"dealt":{"key":"d/_g1/log/3.x.dealt","sha256":"cc"},"crc32":"7e141eaa"}'
)


def test_a_plan_both_ways() -> None:
    assert PLAN.serialize() == PLAN_JSON
    assert Plan.parse(PLAN_JSON, "key") == PLAN


def test_members_that_a_later_release_adds_to_a_plan_are_left_out() -> None:
    data = resealed(PLAN_JSON, b'"start":0', b'"group":7,"start":0')
    data = resealed(data, b'"n":3', b'"n":3,"seed":1')
    assert Plan.parse(data, "key") == PLAN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"stop":3', b'"end":3'),
        (b'"dense"', b'"woven"'),
        (b'"shards":[', b'"pieces":['),
        (b'"base":2,', b""),
    ],
)
def test_work_of_another_form_leaves_the_rest_of_a_plan_legible(old: bytes, new: bytes) -> None:
    assert Plan.parse(resealed(PLAN_JSON, old, new), "key") == replace(PLAN, work=None)


@pytest.mark.parametrize(
    "data", [b"", PLAN_JSON[:-1], sealed(b'{"n":1}'), resealed(PLAN_JSON, b'"nonce"', b'"once"')]
)
def test_malformed_plan_is_corrupt_data(data: bytes) -> None:
    with pytest.raises(CorruptData, match="key"):
        Plan.parse(data, "key")


def test_a_plan_is_given_up_unless_it_is_decided(store: FaultStore) -> None:
    put_plans(store, 2)
    store.delete(LAYOUT.manifest(2))
    assert isinstance(log(store).give_up(1, "asked to"), Manifest)
    assert log(store).give_up(2, "asked to") == Aborted("asked to", lost_data=False)
    assert log(store).give_up(2, "asked again") == Aborted("asked to", lost_data=False)


def test_a_named_file_is_read_again_before_the_bytes_at_rest_are_blamed(
    store: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("file", b"abc")
    answers = iter([b"abd"])
    stored = store.get
    monkeypatch.setattr(store, "get", lambda key: next(answers, None) or stored(key))
    assert log(store).named(NamedFile("file", sha256(b"abc").hexdigest())) == b"abc"


def test_a_named_file_must_be_the_one_that_was_named(store: FaultStore) -> None:
    store.put("file", b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert log(store).named(NamedFile("file", digest)) == b"abc"
    with pytest.raises(CorruptData, match="SHA-256"):
        log(store).named(NamedFile("file", "00"))
    with pytest.raises(CorruptData, match="missing"):
        log(store).named(NamedFile("other", digest))


def test_a_long_run_of_aborted_plans_is_read_once(store: FaultStore) -> None:
    put_plans(store, 400, aborted=range(2, 401))
    reader = log(store)
    assert reader.newest_published(400) == 1
    store.requests.clear()
    assert reader.newest_published(400) == 1
    assert store.requests == []


def test_a_plan_that_is_gone_is_corrupt(store: FaultStore) -> None:
    with pytest.raises(CorruptData, match=r"1\.plan is missing"):
        PublishLog(store, LAYOUT, Decided()).plan(1)


def test_the_manifest_of_another_version_is_corrupt(store: FaultStore) -> None:
    log = PublishLog(store, LAYOUT, Decided())
    log.settle(1, Manifest("d", "1.0.0", {}, SCHEMA).to_json())
    store.put(LAYOUT.manifest(2), store.get(LAYOUT.manifest(1)))
    with pytest.raises(CorruptData, match="another version"):
        log.verdict(2)
