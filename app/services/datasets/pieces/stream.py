"""Pieces as they are read: some fetched ahead of their reader, each verified, and inflated if need be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from itertools import chain, islice
from typing import Final

from ....codecs.compression.deflated_pieces import inflate_piece
from ....domain.limits import MIB, Limits
from ....errors import CorruptData, MalformedInput, StorageUnavailable
from ....runtime.budget import Budget
from ....runtime.buffer_pool import BufferPool
from ....runtime.streams import Buffer
from ....runtime.turns import pause
from ....storage.object_store import ObjectNotFound, ObjectStore
from .pieces import Piece, StoredPiece
from .run_ahead import run_ahead

#: For reading records that are stored: what one replica took, every other has to read, whatever it
#: is set to itself. protobuf holds no message of 2 GiB; a reader of frames holds one twice over.
STORED_LIMITS: Final = Limits(max_record_bytes=2048 * MIB, max_decoded_bytes=8192 * MIB)


#: Pieces fetched ahead of the reader: many small ones hide the store's latency, few large ones fit.
_AHEAD: Final = 16


_AHEAD_BYTES: Final = 32 * MIB


#: More than are held at a time: a shard that is written holds up to four parts of four pieces in its upload,
#: three more that are hashed, and what is read ahead for it.
_HELD: Final = 32


#: Of an object, what a small read needs is fetched in one request. A long one makes several at a time.
_RUN_BYTES: Final = 8 * MIB


#: A longer read goes into memory that was there before, instead of what the store would allocate for it.
_LARGE_BYTES: Final = 1 * MIB


#: Seconds before each read of what has a checksum: one that does not match is repeated before the bytes
#: at rest are blamed.
WAITS_S: Final = (0.0, 0.2)


class LostData(CorruptData):
    """What is stored is gone, or does not have the checksum on record: reading it again is no use."""


#: Reads a range of an object, as `ObjectStore.get_range`.
_Read = Callable[[str, int, int], Buffer]


def load_piece(store: ObjectStore, stored: StoredPiece) -> Buffer:
    """The framed records of a piece, verified, and inflated where they are compressed.

    Raises:
        LostData: they are missing, short, not those that were stored, or do not inflate as recorded.
        StorageUnavailable: the store has them, but does not hand them all out.
    """
    return _load_piece(store, stored, store.get_range)


def _load_piece(store: ObjectStore, stored: StoredPiece, read: _Read) -> Buffer:
    piece = stored.piece
    try:
        for wait in WAITS_S:
            pause(wait)
            data = read(stored.key, stored.offset, piece.size)
            if _is_intact(piece, data):
                return data if piece.raw_size is None else _inflate(stored, data, piece.raw_size)
        size = store.head(stored.key).size
    except ObjectNotFound as error:
        raise LostData(f"{stored.key} is missing.") from error
    if len(data) < piece.size <= size - stored.offset:
        raise StorageUnavailable(f"The store hands out less of {stored.key} than it says it has.")
    raise LostData(f"{stored.key} at offset {stored.offset} does not have the SHA-256 on record.")


def load_run(store: ObjectStore, run: Sequence[StoredPiece]) -> list[Buffer]:
    """As `load_piece`, for pieces that follow one another in one object: in one request."""
    return _load_run(store, run, None)


def _load_run(store: ObjectStore, run: Sequence[StoredPiece], buffers: BufferPool | None) -> list[Buffer]:
    first, read = run[0], _reader(store, run, buffers)
    if len(run) == 1:
        return [_load_piece(store, first, read)]
    try:
        data = memoryview(read(first.key, first.offset, _stored_size(run)))
    except ObjectNotFound as error:
        raise LostData(f"{first.key} is missing.") from error
    return [_of_run(store, stored, data[stored.offset - first.offset :]) for stored in run]


def _of_run(store: ObjectStore, stored: StoredPiece, data: memoryview) -> Buffer:
    piece, data = stored.piece, data[: stored.piece.size]
    if not _is_intact(piece, data):
        return load_piece(store, stored)
    return data if piece.raw_size is None else _inflate(stored, data, piece.raw_size)


def _is_intact(piece: Piece, data: Buffer) -> bool:
    return len(data) == piece.size and sha256(data).hexdigest() == piece.sha256


def _inflate(stored: StoredPiece, data: Buffer, raw_size: int) -> bytes:
    try:
        return inflate_piece(data, raw_size, is_first=stored.offset == 0)
    except MalformedInput as error:
        where = f"{stored.key} at offset {stored.offset}"
        raise LostData(f"{where} does not inflate as recorded: {error.detail}") from error


def piece_buffers() -> BufferPool:
    """Buffers for pieces of records that are read or written."""
    return BufferPool(Budget(STORED_LIMITS), "Pieces of records", most_lent=_HELD)


def held_while_read(pieces: Iterable[StoredPiece]) -> int:
    """At most how many bytes a `PieceStream` holds: what is read ahead, some of it as stored and inflated."""
    return 2 * min(_size_in_memory(_fill_ahead(iter(pieces))), _AHEAD_BYTES)


def _fill_ahead(pieces: Iterator[StoredPiece]) -> list[StoredPiece]:
    """The next pieces, up to the first that does not fit into what is read ahead."""
    taken, left = [], _AHEAD_BYTES
    for stored in pieces:
        taken.append(stored)
        left -= _size_in_memory([stored])
        if left < 0:
            break
    return taken


class PieceStream:
    """A `ViewStream` over pieces, each verified before a byte of it is handed out.

    Args:
        pool: where they are read ahead.
        buffers: what they are read into, where they are large.
    """

    def __init__(
        self,
        store: ObjectStore,
        pieces: Iterable[StoredPiece],
        pool: ThreadPoolExecutor | None = None,
        buffers: BufferPool | None = None,
    ) -> None:
        self._loaded = _load_runs(store, pieces, pool, buffers or piece_buffers())
        self._rest = memoryview(b"")

    def read(self, n: int, /) -> bytes:
        self._load()
        taken, self._rest = self._rest[:n], self._rest[n:]
        return bytes(taken)

    def read_view(self) -> memoryview:
        self._load()
        taken, self._rest = self._rest, memoryview(b"")
        return taken

    @property
    def ended(self) -> bool:
        return False  # what follows is not loaded before it is asked for

    def _load(self) -> None:
        while not self._rest:
            data = next(self._loaded, None)
            if data is None:
                return
            self._rest = memoryview(data).toreadonly()


def _load_runs(
    store: ObjectStore,
    pieces: Iterable[StoredPiece],
    pool: ThreadPoolExecutor | None,
    buffers: BufferPool,
) -> Iterator[Buffer]:
    runs = _runs(iter(pieces))
    first = list(islice(runs, 2))
    calls = ((_size_in_memory(run), partial(_load_run, store, run, buffers)) for run in chain(first, runs))
    for loaded in run_ahead(calls, pool if len(first) > 1 else None, most=_AHEAD, most_bytes=_AHEAD_BYTES):
        yield from loaded


def _reader(store: ObjectStore, run: Sequence[StoredPiece], buffers: BufferPool | None) -> _Read:
    """How a run is read: a large one into a buffer, which is lent to who gets it."""
    size = _stored_size(run)
    if buffers is None or size <= _LARGE_BYTES:
        return store.get_range
    buffer = buffers.take(-(-size // _RUN_BYTES) * _RUN_BYTES)  # few sizes, so that it is of use again
    view = buffers.lend(buffer, size)

    def read(key: str, offset: int, length: int) -> Buffer:
        return view[: store.read_into(key, offset, buffer.data[:length])]

    return read


def _stored_size(run: Sequence[StoredPiece]) -> int:
    return run[-1].offset + run[-1].piece.size - run[0].offset


def _runs(pieces: Iterator[StoredPiece]) -> Iterator[list[StoredPiece]]:
    """The pieces, those together that are to be fetched in one request."""
    first = _fill_ahead(pieces)
    most = _AHEAD_BYTES if _size_in_memory(first) <= _AHEAD_BYTES else _RUN_BYTES
    run: list[StoredPiece] = []
    held = 0
    for stored in chain(first, pieces):
        if run and (held + _size_in_memory([stored]) > most or not _follows(stored, run[-1])):
            yield run
            run, held = [], 0
        run.append(stored)
        held += _size_in_memory([stored])
    if run:
        yield run


def _follows(stored: StoredPiece, before: StoredPiece) -> bool:
    return stored.key == before.key and stored.offset == before.offset + before.piece.size


def _size_in_memory(pieces: Sequence[StoredPiece]) -> int:
    """What they take in memory, loaded."""
    return sum(max(stored.piece.size, stored.piece.num_bytes) for stored in pieces)
