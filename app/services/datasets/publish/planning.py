"""Planning: which shards a version has and which records each of them takes. Pure functions over counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....domain.manifest import Manifest
from ....domain.schema import Schema
from ....domain.sharding.shard_plan import (
    BaseShard,
    ShardPlan,
    default_num_shards,
    leading_full_shards,
    most_shards,
    plan_split,
)
from ....errors import LimitExceeded, UnprocessableInput
from ..objects.publish_options import PublishOptions
from ..pieces.pieces import Piece


@dataclass(frozen=True, slots=True)
class SplitContent:
    """All that a split will hold.

    Attributes:
        num_records, num_bytes: of its framed records, those of the base included.
        base: the shards in which it begins.
    """

    num_records: int
    num_bytes: int
    base: Sequence[BaseShard] = ()


def base_shards(
    manifest: Manifest, index: Mapping[str, Sequence[Piece]]
) -> Mapping[str, tuple[BaseShard, ...]]:
    """The shards of each split of the base version, by the size of what is in them."""
    return {
        split: tuple(
            BaseShard(shard.file, shard.num_records, sum(piece.num_bytes for piece in index[shard.file]))
            for shard in entry.shards
        )
        for split, entry in manifest.splits.items()
    }


def can_keep_shards(options: PublishOptions, base: Manifest | None, schema: Schema) -> bool:
    """Whether shards of the base are what this publish asks for, byte for byte.

    Args:
        schema: of the new version.
    """
    if base is None or options.shard_bytes is not None or options.shuffle:
        return False
    if isinstance(options.num_shards, int) or options.compression != base.compression:
        return False
    before = base.schema.by_name
    if any(now.was_int64 and now.name in before and before[now.name].dtype != now.dtype for now in schema):
        return False
    shards = [shard for split in base.splits.values() for shard in split.shards]
    return not options.indexed or all(shard.index is not None for shard in shards)


def plan_shards(
    dataset: str, contents: Mapping[str, SplitContent], options: PublishOptions, *, keep: bool
) -> tuple[ShardPlan, ...]:
    """The shards of a version, split by split.

    Args:
        dataset: for the names of the files.
        contents: of each split, in the order of the version.
        options: what was asked for.
        keep: leave the full shards of the base as they are, where no number of shards is asked for.

    Raises:
        UnprocessableInput: asked for a split that is not there (`split_not_found`), or a fraction of the rows
            for one that would have none (`invalid_division`).
        LimitExceeded: more than the size of the records allows (`too_many_shards`).
    """
    _refuse_empty_splits(contents, options)
    asked = _asked_by_split(contents, options)
    kept = {
        split: leading_full_shards(content.base) if keep and asked[split] is None else ()
        for split, content in contents.items()
    }
    counts = {
        split: _num_cut(content, kept[split], asked[split], options.shard_bytes)
        for split, content in contents.items()
    }
    total = sum(counts.values()) + sum(map(len, kept.values()))
    filled = [content for content in contents.values() if content.num_records]
    num_bytes = sum(content.num_bytes for content in filled)
    most = most_shards(num_bytes, len(filled))
    if total > most:
        if any(kept.values()):
            return plan_shards(dataset, contents, options, keep=False)
        each = max(1, most // len(filled))
        raise LimitExceeded(
            f"The version would have {total} shards. Its {num_bytes} bytes of records allow {most}, which is "
            f"num_shards={each}. Ask for fewer or larger ones.",
            code="too_many_shards",
            extra={"max_num_shards": each},
        )
    return tuple(
        shard
        for split, content in contents.items()
        for shard in plan_split(
            dataset,
            split,
            content.num_records,
            counts[split],
            kept=kept[split],
            compression=options.compression,
        )
    )


def _refuse_empty_splits(contents: Mapping[str, SplitContent], options: PublishOptions) -> None:
    splits = options.fractions or ()
    counts = {split: contents[split].num_records if split in contents else 0 for split in splits}
    if 0 in counts.values():
        told = ", ".join(f"{split} {count}" for split, count in counts.items())
        raise UnprocessableInput(
            f"A split with a fraction would have no rows: {told[:500]}. Append more rows, name fewer "
            "splits, or set another seed or by.",
            code="invalid_division",
        )


def _asked_by_split(
    contents: Mapping[str, SplitContent], options: PublishOptions
) -> Mapping[str, int | None]:
    asked = options.num_shards
    if not isinstance(asked, Mapping):
        return dict.fromkeys(contents, asked)
    for split in asked:
        if split not in contents:
            raise UnprocessableInput(
                f"Shards are asked for split {split!a:.66}, which has no rows.", code="split_not_found"
            )
    return {split: asked.get(split) for split in contents}


def _num_cut(
    content: SplitContent, kept: Sequence[BaseShard], asked: int | None, shard_bytes: int | None
) -> int:
    """How many shards hold what is behind the kept ones."""
    num_records = content.num_records - sum(shard.num_records for shard in kept)
    num_bytes = content.num_bytes - sum(shard.num_bytes for shard in kept)
    if not num_records:
        return 0
    if asked is not None:
        return asked
    if shard_bytes is not None:
        return max(1, min(-(-num_bytes // shard_bytes), num_records))
    return default_num_shards(num_bytes, num_records)
