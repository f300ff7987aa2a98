"""A plan: what a version will hold, fixed to the byte by the publisher who first created it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ....domain.compression import Compression
from ....domain.names import check_file_name
from ....domain.schema import Schema
from ....domain.sharding.division import Division
from ....domain.sharding.shard_plan import ShardPlan
from ....domain.stored_values import count, text
from ....errors import CorruptData, InputError
from .stored_json import open_json, seal_json


@dataclass(frozen=True, slots=True)
class NamedFile:
    """An object that a plan names, and the SHA-256 that it must have."""

    key: str
    sha256: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NamedFile:
        return cls(text(value["key"]), text(value["sha256"]))


@dataclass(frozen=True, slots=True)
class Work:
    """What the executors of a plan do, to the byte.

    Attributes:
        base: number of the version whose records come first.
        inputs: the appends that follow, as `dataset.slot.parse_commits` reads them.
        schema: of every record.
        compression: of every shard.
        index: whether each shard gets its index of record offsets.
        shuffle_seed: of the permutation of each split's records; None keeps them in order.
        division: how appended rows are dealt out to splits, where they are.
        dealt: how many of them each split takes of each piece, as `publish.dealing.parse_dealt` reads it.
    """

    base: int | None
    inputs: NamedFile
    schema: Schema
    shards: tuple[ShardPlan, ...]
    compression: Compression = "none"
    index: bool = False
    shuffle_seed: int | None = None
    division: Division | None = None
    dealt: NamedFile | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "inputs": asdict(self.inputs),
            "schema": self.schema.to_json(stored=True),
            "shards": [asdict(shard) for shard in self.shards],
            "compression": self.compression,
            "index": self.index,
            "shuffle_seed": self.shuffle_seed,
            "division": None if self.division is None else self.division.to_json(),
            "dealt": None if self.dealt is None else asdict(self.dealt),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Work:
        return cls(
            base=value["base"],
            inputs=NamedFile.from_json(value["inputs"]),
            schema=Schema.from_json(value["schema"], stored=True),
            shards=tuple(
                ShardPlan(
                    text(shard["split"]),
                    check_file_name(text(shard["file"])),
                    count(shard["start"]),
                    count(shard["stop"]),
                    shard.get("copy_of"),
                )
                for shard in value["shards"]
            ),
            compression=value.get("compression", "none"),
            index=value.get("index", False),
            shuffle_seed=value.get("shuffle_seed"),
            division=None if value.get("division") is None else Division.from_json(value["division"]),
            dealt=None if value.get("dealt") is None else NamedFile.from_json(value["dealt"]),
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What a version will hold. Every release can read every plan, but for its work.

    Attributes:
        n: the plan's number.
        nonce: of the publisher.
        publish_key: the client's key of the request that made it.
        options: what that request asked for, in JSON.
        seen: all that is published once this plan is, as `Seen` reads it.
        fingerprint: of the executor; see `dataset.fingerprint`.
        work: None where it is in a form that another release gave it.
    """

    n: int
    nonce: str
    publish_key: str | None
    options: Mapping[str, Any]
    seen: NamedFile
    fingerprint: str
    work: Work | None

    def serialize(self) -> bytes:
        value = {
            "nonce": self.nonce,
            "n": self.n,
            "publish_key": self.publish_key,
            "options": dict(self.options),
            "seen": asdict(self.seen),
            "fingerprint": self.fingerprint,
        }
        return seal_json(value if self.work is None else {**value, **self.work.to_json()})

    @classmethod
    def parse(cls, data: bytes, key: str) -> Plan:
        """The plan that `serialize` wrote.

        Raises:
            CorruptData: not of that form.
        """
        value = open_json(data, key)
        try:
            return cls(
                n=count(value["n"]),
                nonce=text(value["nonce"]),
                publish_key=value["publish_key"],
                options=dict(value["options"]),
                seen=NamedFile.from_json(value["seen"]),
                fingerprint=text(value["fingerprint"]),
                work=_work(value),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"{key} is not of the known form.") from error


def _work(value: Mapping[str, Any]) -> Work | None:
    try:
        return Work.from_json(value)
    except (AttributeError, KeyError, TypeError, ValueError, InputError):
        return None
