"""Planning: how many shards, which are kept, and that every record is in one of them."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.limits import MIB
from app.domain.manifest import FileEntry, Manifest, ShardEntry, SplitEntry
from app.domain.schema import Schema
from app.domain.sharding.shard_plan import MAX_SHARDS, BaseShard, ShardPlan
from app.errors import LimitExceeded, UnprocessableInput
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.pieces.pieces import Piece
from app.services.datasets.publish.planning import SplitContent, base_shards, can_keep_shards, plan_shards
from tests.support.dataset_rows import SCHEMA

FULL = BaseShard("full", 100, 80 * MIB)
SHORT = BaseShard("short", 10, 3 * MIB)


def plan(contents: Mapping[str, SplitContent], *, keep: bool = False, **asked: Any) -> tuple[ShardPlan, ...]:
    return plan_shards("d", contents, PublishOptions(**asked), keep=keep)


def test_full_shards_stay_and_the_tail_is_cut_again_with_what_is_new() -> None:
    content = SplitContent(250, 200 * MIB, (FULL, SHORT))
    kept = plan({"train": content}, keep=True)
    assert [(shard.start, shard.stop, shard.copy_of) for shard in kept] == [
        (0, 100, "full"),
        (100, 250, None),
    ]
    assert [shard.copy_of for shard in plan({"train": content}, keep=False)] == [None, None]


def test_a_split_whose_shards_are_counted_is_cut_again() -> None:
    content = SplitContent(110, 83 * MIB, (FULL, SHORT))
    plans = plan({"train": content, "test": content}, keep=True, num_shards={"train": 3})
    assert [(shard.split, shard.copy_of) for shard in plans] == [
        ("train", None), ("train", None), ("train", None), ("test", "full"), ("test", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("num_bytes", "num_records", "shard_bytes", "expected"),
    [
        (1000, 100, 100, 10),
        (1001, 100, 100, 11),
        (99, 100, 100, 1),
        (1000, 3, 100, 3),
        (0, 0, 100, 0),
        (1, 1, 2**50, 1),
    ],
)
def test_shards_by_the_size_that_is_asked_for(
    num_bytes: int, num_records: int, shard_bytes: int, expected: int
) -> None:
    assert len(plan({"train": SplitContent(num_records, num_bytes)}, shard_bytes=shard_bytes)) == expected


def test_too_many_kept_shards_are_cut_again_evenly() -> None:
    base = (FULL,) * MAX_SHARDS
    content = SplitContent(100 * MAX_SHARDS, 80 * MIB * MAX_SHARDS, base)
    assert len(plan({"train": content}, keep=True)) == MAX_SHARDS
    one_more = SplitContent(content.num_records + 1, content.num_bytes + 100, base)
    plans = plan({"train": one_more}, keep=True)
    assert len(plans) <= MAX_SHARDS
    assert {shard.copy_of for shard in plans} == {None}
    assert max(shard.num_records for shard in plans) - min(shard.num_records for shard in plans) <= 1


@pytest.mark.parametrize("asked", [{"num_shards": 5001}, {"shard_bytes": 1}])
def test_a_manifest_has_room_for_so_many(asked: dict[str, Any]) -> None:
    content = SplitContent(6000, 6000)
    with pytest.raises(LimitExceeded) as caught:
        plan({"train": content, "test": content}, **asked)
    assert caught.value.code == "too_many_shards"


def test_ten_thousand_shards_are_planned() -> None:
    num_bytes = 4 * MIB * MAX_SHARDS
    contents = {"train": SplitContent(123_456, num_bytes), "test": SplitContent(0, 0)}
    plans = plan(contents, num_shards=MAX_SHARDS)
    assert len(plans) == MAX_SHARDS
    assert plans[-1].file == "d-train.tfrecord-09999-of-10000"


@pytest.mark.parametrize(
    ("num_bytes", "most"), [(0, 257), (1000, 257), (1024 * MIB, 257), (2048 * MIB, 513), (2**35, 8193)]
)
def test_the_size_of_the_records_bounds_the_number_of_shards(num_bytes: int, most: int) -> None:
    contents = {"train": SplitContent(10**6, num_bytes), "empty": SplitContent(0, 0)}
    assert len(plan(contents, num_shards=most)) == most
    with pytest.raises(LimitExceeded, match=f"num_shards={most}") as caught:
        plan(contents, num_shards=most + 1)
    assert caught.value.code == "too_many_shards"
    assert caught.value.extra == {"max_num_shards": most}
    with pytest.raises(LimitExceeded, match=f"num_shards={most}"):
        plan({"train": SplitContent(10**6, num_bytes + 10**6)}, shard_bytes=1)


@given(num_splits=st.integers(1, 600), num_bytes=st.integers(0, 2**40))
@settings(max_examples=50, deadline=None)
def test_shards_by_size_are_bounded(num_splits: int, num_bytes: int) -> None:
    contents = {f"s{number}": SplitContent(1, 100) for number in range(num_splits - 1)}
    contents["large"] = SplitContent(10**9, num_bytes)
    assert len(plan(contents)) >= num_splits
    assert len(plan(contents, num_shards=1)) == num_splits


def test_shards_of_a_split_that_is_not_there_are_refused() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        plan({"train": SplitContent(1, 1)}, num_shards={"tset": 1})
    assert caught.value.code == "split_not_found"


shards = st.builds(
    BaseShard, st.just("x"), st.integers(0, 50), st.sampled_from([0, MIB, 64 * MIB, 200 * MIB])
)


@given(
    base=st.lists(shards, max_size=6),
    new=st.integers(0, 99),
    keep=st.booleans(),
    size=st.none() | st.integers(4 * MIB, 2**30),
)
@settings(max_examples=50, deadline=None)
def test_every_record_is_in_one_shard(base: list[BaseShard], new: int, keep: bool, size: int | None) -> None:
    num_records = new + sum(shard.num_records for shard in base)
    num_bytes = new * MIB + sum(shard.num_bytes for shard in base)
    plans = plan({"train": SplitContent(num_records, num_bytes, tuple(base))}, keep=keep, shard_bytes=size)
    assert sum(shard.num_records for shard in plans) == num_records
    assert all(one.stop == other.start for one, other in pairwise(plans))
    assert not plans or (plans[0].start, plans[-1].stop) == (0, num_records)


def manifest(*, index: bool = True, compression: Any = "none") -> Manifest:
    entry = ShardEntry("s", 5, 100, "aa", FileEntry("_s.idx", 1, "bb") if index else None)
    return Manifest("d", "1.0.0", {"train": SplitEntry((entry,))}, SCHEMA, compression=compression)


def test_the_size_of_a_compressed_shard_is_that_of_its_records() -> None:
    pieces = {"s": (Piece(60, "aa", 3, 1000), Piece(40, "bb", 2, 500))}
    assert base_shards(manifest(compression="gzip"), pieces) == {"train": (BaseShard("s", 5, 1500),)}


@pytest.mark.parametrize(
    ("asked", "base", "can"),
    [
        ({}, manifest(), True),
        ({}, None, False),
        ({"num_shards": {"train": 1}}, manifest(), True),
        ({"num_shards": 1}, manifest(), False),
        ({"shard_bytes": 1}, manifest(), False),
        ({"shuffle": True}, manifest(), False),
        ({"compression": "gzip"}, manifest(), False),
        ({"compression": "gzip"}, manifest(index=False, compression="gzip"), True),
        ({}, manifest(index=False), False),
        ({"index": False}, manifest(index=False), True),
        ({"index": False}, manifest(), True),
    ],
)
def test_shards_are_kept_where_they_are_what_is_asked_for(
    asked: dict[str, Any], base: Manifest | None, can: bool
) -> None:
    assert can_keep_shards(PublishOptions(**asked), base, SCHEMA) is can


@pytest.mark.parametrize(("was", "can"), [("int64", False), ("float32", True)])
def test_shards_of_integers_are_not_kept_where_these_are_floats_now(was: str, can: bool) -> None:
    def schema(dtype: str, **marks: bool) -> Schema:
        return Schema.from_json({"features": {"x": {"dtype": dtype, **marks}}}, stored=True)

    base = replace(manifest(), schema=schema(was))
    assert can_keep_shards(PublishOptions(), base, schema("float32", was_int64=True)) is can


def test_a_split_with_a_fraction_and_no_rows_is_refused_with_the_counts() -> None:
    fractions = {"train": "0.8", "validation": "0.1", "test": "0.1"}
    contents = {"train": SplitContent(9, 900), "test": SplitContent(1, 100), "other": SplitContent(0, 0)}
    with pytest.raises(UnprocessableInput, match="train 9, validation 0, test 1") as caught:
        plan(contents, fractions=fractions)
    assert caught.value.code == "invalid_division"
    of_the_base = SplitContent(10, 3 * MIB, (SHORT,))
    plans = plan({**contents, "validation": of_the_base}, fractions=fractions)
    assert {shard.split for shard in plans} == set(fractions)
