"""A stored object read from end to end, some ranges ahead of its reader, and measured on the way."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from typing import Final

from ....domain.limits import MIB
from ....domain.manifest import FileEntry, ShardEntry
from ....errors import StorageUnavailable
from ....runtime.streams import Buffer
from ....storage.object_store import ObjectNotFound, ObjectStore
from ..pieces.pieces import Piece
from ..pieces.run_ahead import run_ahead
from .problems import Problems

_RANGE_BYTES: Final = 4 * MIB
_AHEAD: Final = 3


class RangeStream:
    """A `ByteStream` over all of an object.

    Args:
        size: of the object.
        pieces: that it should consist of.
    """

    def __init__(
        self, store: ObjectStore, key: str, size: int, pool: ThreadPoolExecutor, pieces: Sequence[Piece] = ()
    ) -> None:
        self.size = size
        self._store = store
        self._key = key
        ranges = ((begin, min(_RANGE_BYTES, size - begin)) for begin in range(0, size, _RANGE_BYTES))
        calls = ((length, partial(self._fetch, begin, length)) for begin, length in ranges)
        self._fetched = run_ahead(calls, pool, most=_AHEAD)
        self._rest = memoryview(b"")
        self._whole = sha256()
        self._meter = _PieceMeter(pieces)

    def read(self, n: int, /) -> bytes:
        """As `ByteStream.read`.

        Raises:
            StorageUnavailable: the store hands out less than it says it has.
        """
        if not self._rest:
            self._rest = memoryview(self._next())
        taken, self._rest = self._rest[:n], self._rest[n:]
        return bytes(taken)

    def drain(self) -> None:
        """Read what is left."""
        self._rest = memoryview(b"")
        while self._next():
            pass

    def close(self) -> None:
        """Ask for nothing more."""
        self._fetched.close()

    @property
    def sha256(self) -> str:
        """Of all that was fetched, in hex."""
        return self._whole.hexdigest()

    @property
    def wrong_pieces(self) -> Sequence[int]:
        """The numbers of the pieces that were fetched and do not have the SHA-256 on record."""
        return self._meter.wrong

    def _next(self) -> Buffer:
        data = next(self._fetched, b"")
        self._whole.update(data)
        self._meter.update(data)
        return data

    def _fetch(self, offset: int, length: int) -> Buffer:
        data = self._store.get_range(self._key, offset, length)
        if len(data) != length:
            raise StorageUnavailable(f"The store hands out less of {self._key} than it says it has.")
        return data


class _PieceMeter:
    """Hashes the pieces of an object one after the other."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.wrong: list[int] = []
        self._pieces = pieces
        self._number = 0
        self._left = pieces[0].size if pieces else 0
        self._hash = sha256()

    def update(self, data: Buffer) -> None:
        view = memoryview(data)
        while view and self._number < len(self._pieces):
            self._hash.update(view[: self._left])
            taken = min(self._left, len(view))
            view, self._left = view[taken:], self._left - taken
            while self._left == 0 and self._number < len(self._pieces):
                self._end()

    def _end(self) -> None:
        if self._hash.hexdigest() != self._pieces[self._number].sha256:
            self.wrong.append(self._number)
        self._number += 1
        self._hash = sha256()
        if self._number < len(self._pieces):
            self._left = self._pieces[self._number].size


def open_checked(
    store: ObjectStore,
    key: str,
    entry: FileEntry | ShardEntry,
    pool: ThreadPoolExecutor,
    problems: Problems,
    pieces: Sequence[Piece] = (),
) -> RangeStream | None:
    """All bytes that lie there, be they as many as on record or not; None where there is no such object."""
    try:
        size = store.head(key).size
    except ObjectNotFound:
        problems.add("missing_file", entry.file, "The file is not there.")
        return None
    if size != entry.num_bytes:
        detail = f"The file has {size} bytes instead of the {entry.num_bytes} on record."
        problems.add("wrong_size", entry.file, detail, offset=min(size, entry.num_bytes))
    return RangeStream(store, key, size, pool, pieces)


def require_checksum(stream: RangeStream, entry: FileEntry | ShardEntry, problems: Problems) -> None:
    """Read what is left of a file, and compare the SHA-256 of all of it."""
    stream.drain()
    if stream.sha256 != entry.sha256:
        problems.add("wrong_checksum", entry.file, "The file does not have the SHA-256 on record.")
