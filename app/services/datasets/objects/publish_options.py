"""What a publish asks for, checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from ....domain.compression import Compression
from ....domain.names import check_append_id, check_split_name
from ....domain.sharding.division import Division
from ....domain.sharding.shard_plan import MAX_SHARDS
from ....errors import MalformedInput, UnprocessableInput

Base = Literal["latest", "none"]

#: The split whose rows are dealt out unless another is named.
DIVIDED_SPLIT: Final = "train"
#: 1 PiB: more than a shard can ever have.
_MAX_SHARD_BYTES: Final = 2**50
_MAX_EXCLUDED: Final = 1000


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What a publish asks for.

    Attributes:
        num_shards: of each split, or of each by name; what it does not say goes by size.
        shard_bytes: how large shards should be, uncompressed.
        compression: of every shard.
        index: whether each shard gets its index of record offsets; where it is not said, all do that
            can have one, which are those that are not compressed.
        shuffle: put the records of each split in an order that `seed` decides.
        seed: of the shuffle and of the division; 0 where it is not given.
        fractions: of the rows appended to the split `divide`, how much each split gets.
        divide: the split whose rows are dealt out, `train` where it is not given.
        by: the feature whose value decides where a row goes; None: the row itself.
        base: `latest` puts the rows of the last version first, `none` publishes new rows alone.
        exclude: ids of appends that are consumed without their rows.
        publish_key: the same key again gives the same version.

    Raises:
        MalformedInput: a value out of its bounds.
        UnprocessableInput: two that contradict each other (`contradictory_options`).
    """

    num_shards: int | Mapping[str, int] | None = None
    shard_bytes: int | None = None
    compression: Compression = "none"
    index: bool | None = None
    shuffle: bool = False
    seed: int | None = None
    fractions: Mapping[str, str] | None = None
    divide: str | None = None
    by: str | None = None
    base: Base = "latest"
    exclude: tuple[str, ...] = ()
    publish_key: str | None = None

    def __post_init__(self) -> None:
        self._check_values()
        contradiction = self._contradiction()
        if contradiction is not None:
            raise UnprocessableInput(contradiction, code="contradictory_options")

    def _check_values(self) -> None:
        asked = self.num_shards.values() if isinstance(self.num_shards, Mapping) else [self.num_shards]
        for value in asked:
            if value is not None and not _is_within(value, 1, MAX_SHARDS):
                raise MalformedInput(
                    f"The number of shards is an integer from 1 to {MAX_SHARDS}.", code="invalid_num_shards"
                )
        if self.shard_bytes is not None and not _is_within(self.shard_bytes, 1, _MAX_SHARD_BYTES):
            raise MalformedInput(
                f"The size of a shard is from 1 to {_MAX_SHARD_BYTES} bytes.", code="invalid_shard_bytes"
            )
        if self.compression not in get_args(Compression):
            raise MalformedInput(
                f"The compression is one of {', '.join(get_args(Compression))}.", code="invalid_compression"
            )
        if self.seed is not None and not _is_within(self.seed, -(2**63), 2**63 - 1):
            raise MalformedInput("The seed is a 64-bit integer.", code="invalid_seed")
        if self.divide is not None:
            check_split_name(self.divide)
        if len(self.exclude) > _MAX_EXCLUDED or len(set(self.exclude)) < len(self.exclude):
            raise MalformedInput(
                f"At most {_MAX_EXCLUDED} appends are left out at a time, each named once.",
                code="invalid_exclude",
            )
        for append_id in self.exclude:
            check_append_id(append_id)

    def _contradiction(self) -> str | None:
        if self.num_shards is not None and self.shard_bytes is not None:
            return "num_shards and shard_bytes both say how many shards there are. Give one of them."
        if self.index and self.compression != "none":
            return "A compressed shard has no index of record offsets. Leave out index=true, or compression."
        if self.fractions is None and (self.by is not None or self.divide is not None):
            return "by and divide say how rows are dealt out to splits. Give the fractions, too."
        if self.seed is not None and not self.shuffle and self.fractions is None:
            return "A seed decides a shuffle or a division. Set shuffle=true, or give fractions."
        return None

    @property
    def indexed(self) -> bool:
        """Whether shards get their index of record offsets."""
        return self.compression == "none" if self.index is None else self.index

    @property
    def shuffle_seed(self) -> int | None:
        """Of the shuffle, where one is asked for."""
        return (self.seed or 0) if self.shuffle else None

    @property
    def division(self) -> Division | None:
        """How appended rows are dealt out, where that is asked for."""
        if self.fractions is None:
            return None
        return Division(self.divide or DIVIDED_SPLIT, self.fractions, self.by, self.seed or 0)

    def with_key(self, publish_key: str) -> PublishOptions:
        """The same, under a key."""
        return replace(self, publish_key=publish_key)

    def to_json(self) -> dict[str, Any]:
        """What a repetition under the same key must ask for, too."""
        num_shards = dict(self.num_shards) if isinstance(self.num_shards, Mapping) else self.num_shards
        division = self.division
        return {
            "num_shards": num_shards,
            "shard_bytes": self.shard_bytes,
            "compression": self.compression,
            "index": self.indexed,
            "shuffle": self.shuffle,
            "seed": self.seed or 0,
            # In order: it says which hashes a split takes.
            "fractions": None if self.fractions is None else [list(item) for item in self.fractions.items()],
            "divide": None if division is None else division.source,
            "by": self.by,
            "base": self.base,
            "exclude": sorted(self.exclude),
        }

    def repeats(self, stored: Mapping[str, Any]) -> bool:
        """Whether this asks for what `stored` did, the `to_json` of perhaps another release.

        A member that one of the two does not have stands at its default.
        """
        defaults = PublishOptions().to_json()
        return all(stored.get(name, defaults[name]) == value for name, value in self.to_json().items())


def _is_within(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
