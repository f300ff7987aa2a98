"""Writing one shard: execute its plan, byte for byte the same whoever does it and however often.

The records were encoded when they were appended; here they are only verified, cut and copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from ..domain.limits import MIB, Budget
from ..domain.manifest import ShardEntry
from ..domain.shard_plan import ShardPlan
from ..errors import CorruptData, StorageUnavailable
from ..storage.object_store import ObjectNotFound, ObjectStore
from .dataset.pieces import STORED_LIMITS, Piece, PieceCutter
from .dataset.shard_source import ShardSource
from .dataset.stored_json import dump_json, load_json

__all__ = [
    "FINGERPRINT",
    "WrittenShard",
    "is_stored",
    "read_done",
    "write_done",
    "write_shard",
]

#: How much a read of a few records has to fetch at most, and how fine a shard's checksums are.
_PIECE_BYTES: Final = 4 * MIB
#: Names everything that decides the bytes of a shard and of the files beside it. An executor with
#: another one leaves a plan alone: two that disagree would overwrite each other's shards.
FINGERPRINT: Final = f"copy-1 pieces-{_PIECE_BYTES} schemas-2"


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A shard that lies in its place, and the pieces by which it can be read."""

    entry: ShardEntry
    pieces: tuple[Piece, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "num_records": self.entry.num_records,
            "num_bytes": self.entry.num_bytes,
            "sha256": self.entry.sha256,
            "pieces": [piece.to_json() for piece in self.pieces],
        }


def write_shard(
    plan: ShardPlan,
    source: ShardSource,
    store: ObjectStore,
    key: str,
    pool: ThreadPoolExecutor | None = None,
) -> WrittenShard:
    """Write the shard `key` and see that it is there.

    Raises:
        LostData: an input is missing or does not match its checksum.
        CorruptData: an input holds other records than were counted, or none.
        StorageUnavailable: the store failed; writing the shard again is safe.
    """
    budget = Budget(STORED_LIMITS)
    whole = sha256()
    pieces: list[Piece] = []

    def chunks() -> Iterator[bytes]:
        for data, piece in _cut(source, store, budget, pool):
            whole.update(data)
            pieces.append(piece)
            yield data

    size = store.put_stream(key, chunks())
    written = WrittenShard(ShardEntry(plan.file, plan.num_records, size, whole.hexdigest()), tuple(pieces))
    if not is_stored(store, key, written):
        raise StorageUnavailable(f"{key} is not as long as it was written.")
    return written


def _cut(
    source: ShardSource, store: ObjectStore, budget: Budget, pool: ThreadPoolExecutor | None
) -> Iterator[tuple[bytes, Piece]]:
    cutter = PieceCutter(_PIECE_BYTES, budget)
    for run in source.runs(store, budget, pool):
        yield from cutter.add(run.data, run.ends)
    yield from cutter.flush()


def read_done(store: ObjectStore, key: str, file: str) -> WrittenShard | None:
    """What an executor noted of the shard `file` once it had written it; None without a legible note."""
    try:
        value = load_json(store.get(key), key)
        entry = ShardEntry(file, value["num_records"], value["num_bytes"], value["sha256"])
        return WrittenShard(entry, tuple(Piece.from_json(item) for item in value["pieces"]))
    except (ObjectNotFound, CorruptData, KeyError, TypeError, ValueError):
        return None


def write_done(store: ObjectStore, key: str, shard: WrittenShard) -> None:
    """Note that a shard is written."""
    store.put(key, dump_json(shard.to_json()))


def is_stored(store: ObjectStore, key: str, shard: WrittenShard) -> bool:
    """Whether a shard lies there, as long as it was written; its bytes are verified by who reads them."""
    try:
        return store.head(key).size == shard.entry.num_bytes
    except ObjectNotFound:
        return False
