"""How the records of a split are divided into shards: frozen values and pure functions.

A plan says which records go where; writing a shard only executes it. It follows TFDS 4.9.10,
`tensorflow_datasets/core/utils/shard_utils.py`, and has the same sizes and boundaries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, takewhile
from typing import Final

from ..compression import SUFFIXES, Compression
from ..limits import MIB

#: `DEFAULT_MIN_SHARD_SIZE` and `DEFAULT_MAX_SHARD_SIZE` of TFDS's shard_utils.py.
_MIN_SHARD_BYTES: Final = 64 * MIB
_MAX_SHARD_BYTES: Final = 1024 * MIB
#: The number of shards that `ShardConfig.calculate_number_shards` prefers, and whose halves it tries.
_PREFERRED: Final = 1024

#: Limited because a manifest names every shard and is read as a whole.
MAX_SHARDS: Final = 10_000
#: Up to `_SMALL_SHARDS` shards may have any size; more need at least `_LEAST_BYTES` on average.
_SMALL_SHARDS: Final = 256
_LEAST_BYTES: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard to write: the records `start` to `stop` of a split, counted in the order of the version.

    Attributes:
        copy_of: the file of the base version with the same bytes, if the shard is only copied.
    """

    split: str
    file: str
    start: int
    stop: int
    copy_of: str | None = None

    @property
    def num_records(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Covering:
    """Some consecutive pieces, and how many records of the first one to skip."""

    pieces: slice
    skip: int


def default_num_shards(num_bytes: int, num_records: int) -> int:
    """How many shards TFDS would write: each of 64 MiB to 1 GiB if possible.

    Args:
        num_bytes: of the framed records.
        num_records: how many there are; a shard is never left without any.
    """
    most = num_bytes // _MIN_SHARD_BYTES
    least = num_bytes // _MAX_SHARD_BYTES
    if least > _PREFERRED:
        rounded_up = -(-least // _PREFERRED) * _PREFERRED
        return max(1, min(rounded_up, num_records, MAX_SHARDS))
    candidate = _PREFERRED
    while candidate > 1:
        if least <= candidate <= most and num_records >= candidate:
            return candidate
        candidate //= 2
    return 1


def most_shards(num_bytes: int, num_splits: int) -> int:
    """How many shards a version may have: each takes some eight requests to the store, however small it is.

    Args:
        num_bytes: of the framed records of all splits.
        num_splits: each has at least one shard.
    """
    return min(MAX_SHARDS, num_splits + max(_SMALL_SHARDS, num_bytes // _LEAST_BYTES))


@dataclass(frozen=True, slots=True)
class BaseShard:
    """A shard of the base version.

    Attributes:
        num_bytes: of its framed records, uncompressed.
    """

    file: str
    num_records: int
    num_bytes: int


def leading_full_shards(shards: Sequence[BaseShard]) -> tuple[BaseShard, ...]:
    """The shards at the beginning of a split that are at least as long as TFDS's rule asks."""
    return tuple(takewhile(lambda shard: shard.num_bytes >= _MIN_SHARD_BYTES, shards))


def plan_split(
    dataset: str,
    split: str,
    num_records: int,
    num_shards: int,
    *,
    kept: Sequence[BaseShard] = (),
    compression: Compression = "none",
) -> tuple[ShardPlan, ...]:
    """Cut a split into shards: those that are `kept`, then `num_shards` whose counts differ by one at most.

    A split without records has no shard: TFDS refuses to read one that is empty.

    Args:
        dataset, split: for the names of the files, as TFDS has them.
        num_records: of the whole split.
        num_shards: the number of shards for the records after the kept ones; unused if there are none.
        kept: shards of the base, copied as they are.
        compression: decides how the names end.
    """
    if num_records == 0:
        return ()
    starts = record_offsets(shard.num_records for shard in kept)
    left = num_records - starts[-1]
    num_cut = num_shards if left else 0
    bounds = starts + [starts[-1] + round(left * index / num_cut) for index in range(1, num_cut + 1)]
    total = len(kept) + num_cut
    sources = [shard.file for shard in kept] + [None] * num_cut
    suffix = SUFFIXES[compression]
    return tuple(
        ShardPlan(
            split, f"{dataset}-{split}.tfrecord-{index:05d}-of-{total:05d}{suffix}", start, stop, copy_of
        )
        for index, ((start, stop), copy_of) in enumerate(zip(pairwise(bounds), sources, strict=True))
    )


def record_offsets(num_records: Iterable[int]) -> list[int]:
    """How many records come before each piece, followed by the total.

    Args:
        num_records: of each piece, the records that begin in it. A piece begins with a record,
            or has none (0) and only carries on the one before.
    """
    return list(accumulate(num_records, initial=0))


def covering(offsets: Sequence[int], start: int, stop: int) -> Covering:
    """The pieces that hold the records `start` to `stop`, which is past `start`.

    Args:
        offsets: as `record_offsets` gives them.
    """
    first = bisect_right(offsets, start) - 1
    end = bisect_right(offsets, stop - 1)
    while end + 1 < len(offsets) and offsets[end] == offsets[end + 1]:
        end += 1
    return Covering(slice(first, end), start - offsets[first])
