"""Layouts of shards: sizes and bounds as in TFDS, every record in exactly one place."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.compression import Compression
from app.domain.limits import MIB
from app.domain.sharding.shard_plan import (
    MAX_SHARDS,
    BaseShard,
    covering,
    default_num_shards,
    leading_full_shards,
    plan_split,
    record_offsets,
)


@pytest.mark.parametrize(
    ("num_bytes", "num_records", "expected"),
    [
        (0, 0, 1),
        (1000, 10, 1),
        (127 * MIB, 10_000, 1),
        (128 * MIB, 10_000, 2),
        (128 * MIB, 1, 1),
        (1024 * MIB, 10_000, 16),
        (65_536 * MIB, 10_000_000, 1024),
        (1_048_576 * MIB, 10_000_000, 1024),
        (1_049_600 * MIB, 10_000_000, 2048),
        (1_049_600 * MIB, 1500, 1500),
        (10**17, 10**9, MAX_SHARDS),
    ],
)
def test_shards_by_size(num_bytes: int, num_records: int, expected: int) -> None:
    assert default_num_shards(num_bytes, num_records) == expected


def test_a_split_is_cut_evenly() -> None:
    plans = plan_split("my_ds", "train", 10, 3)
    assert [(plan.file, plan.start, plan.stop) for plan in plans] == [
        ("my_ds-train.tfrecord-00000-of-00003", 0, 3),
        ("my_ds-train.tfrecord-00001-of-00003", 3, 7),
        ("my_ds-train.tfrecord-00002-of-00003", 7, 10),
    ]
    assert [plan.num_records for plan in plans] == [3, 4, 3]


def test_more_shards_than_records_leave_some_empty() -> None:
    assert [plan.num_records for plan in plan_split("d", "s", 2, 4)] == [0, 1, 1, 0]


def test_a_split_without_records_has_no_shard() -> None:
    assert plan_split("d", "s", 0, 4) == ()


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 10**7), st.integers(1, MAX_SHARDS))
def test_every_record_is_in_one_shard(num_records: int, num_shards: int) -> None:
    plans = plan_split("d", "s", num_records, num_shards)
    assert len(plans) == num_shards
    assert plans[0].start == 0
    assert plans[-1].stop == num_records
    assert all(one.stop == other.start for one, other in pairwise(plans))
    assert max(plan.num_records for plan in plans) - min(plan.num_records for plan in plans) <= 1


def test_offsets_add_up() -> None:
    assert record_offsets([3, 0, 2]) == [0, 3, 3, 5]


@pytest.mark.parametrize(
    ("start", "stop", "pieces", "skip"),
    [
        # Piece 1 begins a large record that 2 and 3 carry on.
        (0, 3, slice(0, 1), 0),
        (1, 2, slice(0, 1), 1),
        (2, 4, slice(0, 4), 2),
        (3, 4, slice(1, 4), 0),
        (4, 5, slice(4, 5), 0),
        (5, 6, slice(4, 5), 1),
        (0, 6, slice(0, 5), 0),
    ],
)
def test_covering(start: int, stop: int, pieces: slice, skip: int) -> None:
    found = covering(record_offsets([3, 1, 0, 0, 2]), start, stop)
    assert (found.pieces, found.skip) == (pieces, skip)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_covering_takes_all_that_is_needed_and_no_more(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8).map(lambda rest: [1, *rest]))
    total = sum(counts)
    start = data.draw(st.integers(0, total - 1))
    stop = data.draw(st.integers(start + 1, total))
    found = covering(record_offsets(counts), start, stop)
    # Which piece each record begins in, and the pieces that carry it on.
    owner = [piece for piece, count in enumerate(counts) for _ in range(count)]
    carried_to = owner[stop - 1] + 1
    while carried_to < len(counts) and counts[carried_to] == 0:
        carried_to += 1
    assert (found.pieces.start, found.pieces.stop) == (owner[start], carried_to)
    assert found.skip == start - sum(counts[: owner[start]])


FULL = [
    BaseShard("old-0", 10, 64 * MIB),
    BaseShard("old-1", 11, 70 * MIB),
    BaseShard("old-2", 3, 64 * MIB - 1),
]


def test_full_shards_are_kept_as_far_as_they_lead() -> None:
    assert leading_full_shards(FULL) == tuple(FULL[:2])
    assert leading_full_shards(FULL[::-1]) == ()
    assert leading_full_shards([]) == ()


def test_kept_shards_come_first_and_count_in_the_names() -> None:
    plans = plan_split("d", "train", 30, 2, kept=FULL[:2])
    assert [(plan.file, plan.start, plan.stop, plan.copy_of) for plan in plans] == [
        ("d-train.tfrecord-00000-of-00004", 0, 10, "old-0"),
        ("d-train.tfrecord-00001-of-00004", 10, 21, "old-1"),
        ("d-train.tfrecord-00002-of-00004", 21, 25, None),
        ("d-train.tfrecord-00003-of-00004", 25, 30, None),
    ]


def test_nothing_is_cut_where_all_is_kept() -> None:
    plans = plan_split("d", "train", 21, 1, kept=FULL[:2])
    assert [plan.file for plan in plans] == [
        "d-train.tfrecord-00000-of-00002",
        "d-train.tfrecord-00001-of-00002",
    ]


@pytest.mark.parametrize(("compression", "suffix"), [("none", ""), ("gzip", ".gz"), ("zlib", ".zlib")])
def test_compression_shows_in_the_names(compression: Compression, suffix: str) -> None:
    plans = plan_split("d", "train", 1, 1, compression=compression)
    assert plans[0].file == f"d-train.tfrecord-00000-of-00001{suffix}"
