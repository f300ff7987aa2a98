"""Writing one shard: execute its plan, byte for byte the same whoever does it and however often.

The records were encoded when they were appended; here they are only verified, cut, copied, and
compressed where that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Final, Protocol

from .....codecs.messages.frames import index_lines
from .....domain.compression import Compression
from .....domain.limits import MIB
from .....domain.manifest import FileEntry, ShardEntry
from .....domain.sharding.shard_plan import ShardPlan
from .....errors import CorruptData, InputError, StorageUnavailable
from .....runtime.budget import Budget
from .....runtime.buffer_pool import BufferPool
from .....runtime.spool import Spool, SpoolFile
from .....runtime.streams import Buffer
from .....storage.object_store import ObjectNotFound, ObjectStore
from ...objects.fingerprint import PIECE_BYTES
from ...objects.layout import record_index
from ...objects.stored_json import open_json, read_again, seal_json
from ...pieces.cutter import RecordCutter
from ...pieces.pieces import Piece
from ...pieces.stream import STORED_LIMITS, piece_buffers
from .seal import seal
from .source import RecordRun

#: What is uploaded of an index at a time.
_INDEX_CHUNK: Final = 1 * MIB


class RecordSource(Protocol):
    """The records of one shard."""

    def runs(
        self,
        store: ObjectStore,
        budget: Budget,
        pool: ThreadPoolExecutor | None = None,
        buffers: BufferPool | None = None,
    ) -> Iterator[RecordRun]:
        """All of them, in order.

        Raises:
            LostData: an input is missing or does not match its checksum.
            CorruptData: an input holds other records than were counted, or none.
        """
        ...


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A shard that lies in its place, and the pieces by which it can be read."""

    entry: ShardEntry
    pieces: tuple[Piece, ...]

    def to_json(self) -> dict[str, Any]:
        value = {
            "num_records": self.entry.num_records,
            "num_bytes": self.entry.num_bytes,
            "sha256": self.entry.sha256,
            "pieces": [piece.to_json() for piece in self.pieces],
        }
        return value if self.entry.index is None else {**value, "index": asdict(self.entry.index)}


def write_shard(
    plan: ShardPlan,
    source: RecordSource,
    store: ObjectStore,
    key: str,
    *,
    compression: Compression = "none",
    index_in: Spool | None = None,
    pool: ThreadPoolExecutor | None = None,
    buffers: BufferPool | None = None,
) -> WrittenShard:
    """Write the shard `key`, its index beside it where one is asked for, and see that they are there.

    Args:
        index_in: where the index of record offsets is gathered; None writes no index.
        buffers: what records pass through; the same for several shards spares memory that was never used.

    Raises:
        LostData: an input is missing or does not match its checksum.
        CorruptData: an input holds other records than were counted, or none.
        StorageFull: no room, in the store or for the index in the spool.
        StorageUnavailable: the store failed; writing the shard again is safe.
    """
    buffers = buffers or piece_buffers()
    if index_in is None:
        entry, pieces = _write_records(plan, source, store, key, compression, None, pool, buffers)
        written = WrittenShard(entry, pieces)
    else:
        with index_in.open() as lines:
            entry, pieces = _write_records(plan, source, store, key, compression, lines, pool, buffers)
            index = _write_index(store, key, record_index(plan.file), lines)
        written = WrittenShard(
            ShardEntry(entry.file, entry.num_records, entry.num_bytes, entry.sha256, index), pieces
        )
    if not is_stored(store, key, written):
        raise StorageUnavailable(f"{key} is not as long as it was written.")
    return written


def _write_records(
    plan: ShardPlan,
    source: RecordSource,
    store: ObjectStore,
    key: str,
    compression: Compression,
    lines: SpoolFile | None,
    pool: ThreadPoolExecutor | None,
    buffers: BufferPool,
) -> tuple[ShardEntry, tuple[Piece, ...]]:
    whole = sha256()
    pieces: list[Piece] = []

    def chunks() -> Iterator[Buffer]:
        for data, piece in seal(_cut(source, store, lines, pool, buffers), compression, pool):
            whole.update(data)
            pieces.append(piece)
            yield data

    size = store.put_stream(key, chunks())
    return ShardEntry(plan.file, plan.num_records, size, whole.hexdigest()), tuple(pieces)


def _cut(
    source: RecordSource,
    store: ObjectStore,
    lines: SpoolFile | None,
    pool: ThreadPoolExecutor | None,
    buffers: BufferPool,
) -> Iterator[tuple[Buffer, int]]:
    """The source's records in runs of a piece each; their index lines go to `lines`."""
    cutter = RecordCutter(PIECE_BYTES, buffers)
    offset = 0
    for run in source.runs(store, Budget(STORED_LIMITS), pool, buffers):
        if lines is not None:
            lines.append(index_lines(offset, run.ends))
        offset += len(run.data)
        yield from cutter.add(run.data, run.ends)
    yield from cutter.flush()


def _write_index(store: ObjectStore, key: str, file: str, lines: SpoolFile) -> FileEntry:
    whole = sha256()

    def chunks() -> Iterator[Buffer]:
        for offset in range(0, lines.size, _INDEX_CHUNK):
            data = lines.read_at(offset, _INDEX_CHUNK)
            whole.update(data)
            yield data

    size = store.put_stream(beside(key, file), chunks())
    return FileEntry(file, size, whole.hexdigest())


def beside(key: str, file: str) -> str:
    """The key of `file` in the folder of `key`."""
    return key[: key.rfind("/") + 1] + file


def read_done(store: ObjectStore, key: str, file: str) -> WrittenShard | None:
    """What an executor noted of the shard `file` once it had written it; None without a legible note."""
    try:
        value = read_again(lambda: open_json(store.get(key), key))
        entry = ShardEntry.from_json({**value, "file": file})
        return WrittenShard(entry, tuple(Piece.from_json(item) for item in value["pieces"]))
    except (ObjectNotFound, CorruptData, InputError, KeyError, TypeError, ValueError):
        return None


def write_done(store: ObjectStore, key: str, shard: WrittenShard) -> None:
    """Note that a shard is written."""
    store.put(key, seal_json(shard.to_json()))


def is_stored(store: ObjectStore, key: str, shard: WrittenShard) -> bool:
    """Whether a shard lies there with its index, as long as they were written.

    Their bytes are verified by who reads them.
    """
    sizes = {key: shard.entry.num_bytes}
    if shard.entry.index is not None:
        sizes[beside(key, shard.entry.index.file)] = shard.entry.index.num_bytes
    try:
        return all(store.head(file).size == size for file, size in sizes.items())
    except ObjectNotFound:
        return False
