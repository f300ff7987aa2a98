"""How the records of a split are laid out in shards: frozen values and pure functions.

A plan says which records go where; writing a shard only executes it. After TFDS 4.9.10,
`tensorflow_datasets/core/utils/shard_utils.py`, whose sizes and boundaries these are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from .limits import MIB

__all__ = [
    "MAX_SHARDS",
    "Covering",
    "ShardPlan",
    "covering",
    "default_num_shards",
    "plan_split",
    "record_offsets",
]

#: `DEFAULT_MIN_SHARD_SIZE` and `DEFAULT_MAX_SHARD_SIZE` of TFDS's shard_utils.py.
_MIN_SHARD_BYTES: Final = 64 * MIB
_MAX_SHARD_BYTES: Final = 1024 * MIB
#: The number of shards that `ShardConfig.calculate_number_shards` prefers, and whose halves it tries.
_PREFERRED: Final = 1024

#: A manifest names every shard and is read whole.
MAX_SHARDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard to write: the records `start` to `stop` of a split, counted in the order of the version.

    Attributes:
        copy_of: the file of the base version whose bytes these are, where they need only be copied.
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
    """Some consecutive pieces, and how many records of the first to pass over."""

    pieces: slice
    skip: int


def default_num_shards(num_bytes: int, num_records: int) -> int:
    """How many shards TFDS would write: each of 64 MiB to 1 GiB where that can be had.

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


def plan_split(dataset: str, split: str, num_records: int, num_shards: int) -> tuple[ShardPlan, ...]:
    """Cut a split into `num_shards` shards whose counts differ by one at most.

    A split without records has no shard: TFDS refuses to read one that is empty.
    """
    if num_records == 0:
        return ()
    bounds = [round(num_records * index / num_shards) for index in range(num_shards + 1)]
    return tuple(
        ShardPlan(split, f"{dataset}-{split}.tfrecord-{index:05d}-of-{num_shards:05d}", start, stop)
        for index, (start, stop) in enumerate(pairwise(bounds))
    )


def record_offsets(num_records: Iterable[int]) -> list[int]:
    """How many records come before each piece, and last how many there are.

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
