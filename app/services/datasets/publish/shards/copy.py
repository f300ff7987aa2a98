"""Taking over a shard of the base version as it is, by the store itself where it can.

Its bytes are determined by the base's manifest, which never changes, so nothing is encoded, compressed
or summed again. That they are as they were written is verified by who reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from typing import Final

from .....domain.limits import MIB
from .....domain.manifest import FileEntry
from .....errors import StorageError, StorageFull, StorageUnavailable
from .....runtime.streams import Buffer
from .....storage.object_store import ObjectNotFound, ObjectStore
from ...objects.layout import record_index
from ...pieces.pieces import stored_in
from ...pieces.stream import LostData, PieceStream
from .writer import WrittenShard, beside, is_stored

#: What is read at a time.
_CHUNK: Final = 4 * MIB


def copy_shard(
    base: WrittenShard,
    base_key: str,
    file: str,
    store: ObjectStore,
    key: str,
    *,
    index: bool,
    pool: ThreadPoolExecutor | None = None,
) -> WrittenShard:
    """Store the shard `base_key` of the base as `key`, with its index where one is wanted.

    Args:
        file: the shard's name in its new version.
        index: only where the base has one.

    Raises:
        LostData: the base's shard or index is missing or does not match its checksums.
        StorageFull: no room.
        StorageUnavailable: the store failed; copying again is safe.
    """
    raw = [replace(piece, raw_size=None) for piece in base.pieces]  # as they lie there
    stored = list(stored_in(base_key, raw))

    def read_pieces() -> Iterator[bytes]:
        stream = PieceStream(store, stored, pool)
        return iter(lambda: stream.read(_CHUNK), b"")

    _copy(store, base_key, key, base.entry.num_bytes, read_pieces)
    entry = None
    if index and base.entry.index is not None:
        entry = replace(base.entry.index, file=record_index(file))
        old_key, new_key = beside(base_key, base.entry.index.file), beside(key, entry.file)
        _copy(store, old_key, new_key, entry.num_bytes, lambda: _read_verified(store, old_key, entry))
    copied = WrittenShard(replace(base.entry, file=file, index=entry), base.pieces)
    if not is_stored(store, key, copied):
        raise StorageUnavailable(f"{key} is not as long as it was written.")
    return copied


def _copy(
    store: ObjectStore,
    source: str,
    target: str,
    num_bytes: int,
    verified: Callable[[], Iterable[Buffer]],
) -> None:
    """Let the store copy; where it cannot, or what it gives is too short, stream what is `verified`.

    Stores refuse large copies (S3: above 5 GiB), and some compatible ones have none at all.
    """
    try:
        store.copy(source, target)
        if store.head(target).size == num_bytes:
            return
    except ObjectNotFound as error:
        raise LostData(f"{source} is missing.") from error
    except StorageFull:
        raise
    except StorageError:
        pass
    store.put_stream(target, verified())


def _read_verified(store: ObjectStore, key: str, entry: FileEntry) -> Iterator[Buffer]:
    """The bytes of a file that has no pieces; what does not match ends in an error, before the last ones."""
    whole = sha256()
    for offset in range(0, entry.num_bytes, _CHUNK):
        data = store.get_range(key, offset, min(_CHUNK, entry.num_bytes - offset))
        whole.update(data)
        if offset + _CHUNK >= entry.num_bytes and whole.hexdigest() != entry.sha256:
            raise LostData(f"{key} does not have the SHA-256 on record.")
        yield data
