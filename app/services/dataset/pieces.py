"""Framed records in verified pieces: how an append's parts and a shard's index are made and read.

A piece is a run of bytes with its own SHA-256. It begins with a record, or only carries on a record
too large for one piece. So a range of records is found by adding up counts, and read with nothing
before it; and the pieces of several objects, one after the other, are again one TFRecord stream.

A compressed shard is one gzip or zlib stream, flushed at each piece so that it can be inflated alone
(`Z_FULL_FLUSH`, zlib.h): raw deflate, with the stream's header before the first piece and its trailer
behind the last.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...codecs.records.framing import OVERHEAD_BYTES, FrameBlock
from ...domain.limits import MIB, Budget, Limits
from ...domain.shard_plan import covering, record_offsets
from ...domain.streams import Buffer
from ...errors import CorruptData, StorageUnavailable
from ...storage.object_store import ObjectNotFound, ObjectStore

__all__ = [
    "STORED_LIMITS",
    "LostData",
    "Piece",
    "PieceCutter",
    "PieceStream",
    "RecordCutter",
    "SplitPieces",
    "StoredPiece",
    "TakenRows",
    "load_piece",
    "load_run",
    "record_ends",
    "stored_in",
]

#: For reading records that are stored: what one replica took, every other has to read, whatever it
#: is set to itself. protobuf holds no message of 2 GiB; a reader of frames holds one twice over.
STORED_LIMITS: Final = Limits(max_record_bytes=2048 * MIB, max_decoded_bytes=8192 * MIB)

#: Pieces fetched ahead of the reader: many small ones hide the store's latency, few large ones fit.
_AHEAD: Final = 16
_AHEAD_BYTES: Final = 32 * MIB
#: Of an object, what a small read needs is fetched in one request. A long one makes several at a time.
_RUN_BYTES: Final = 8 * MIB
#: Seconds before each read of a piece: one that does not match is repeated before the bytes at rest
#: are blamed.
_WAITS_S: Final = (0.0, 0.2)

_LENGTH: Final = struct.Struct("<Q")
#: zlib's `windowBits`: that of a stream with a header, gzip's or zlib's, and of raw deflate.
_WITH_HEADER: Final = 32 + zlib.MAX_WBITS
_RAW_DEFLATE: Final = -zlib.MAX_WBITS
#: What may follow the deflated bytes of the last piece: zlib's trailer (RFC 1950) or gzip's (RFC 1952).
_TRAILERS: Final = (4, 8)


class LostData(CorruptData):
    """What is stored is gone, or does not have the checksum on record: reading it again is no use."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`size` bytes in which `num_records` records begin.

    Attributes:
        size, sha256: of the bytes as they lie there.
        raw_size: once inflated; None where they are not compressed.
    """

    size: int
    sha256: str
    num_records: int
    raw_size: int | None = None

    @property
    def num_bytes(self) -> int:
        """Of the framed records in it, once inflated."""
        return self.size if self.raw_size is None else self.raw_size

    @classmethod
    def of(cls, data: bytes, num_records: int) -> Piece:
        return cls(len(data), sha256(data).hexdigest(), num_records)

    def to_json(self) -> list[Any]:
        value = [self.size, self.sha256, self.num_records]
        return value if self.raw_size is None else [*value, self.raw_size]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Piece:
        size, digest, num_records, *rest = value
        return cls(int(size), str(digest), int(num_records), int(rest[0]) if rest else None)


class TakenRows(Protocol):
    """Which of the records that begin in a piece belong to a split, where not all of them do."""

    @property
    def count(self) -> int:
        """How many do."""
        ...

    def mask(self, block: FrameBlock, first: int) -> NDArray[np.bool_]:
        """Whether each record of `block` does, the first of which is the record `first` of the piece."""
        ...


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """A piece and where it lies: `offset` bytes into the object `key`.

    Attributes:
        taken: which of its records count; None: all of them.
    """

    key: str
    offset: int
    piece: Piece
    taken: TakenRows | None = None

    @property
    def num_records(self) -> int:
        """Those that count."""
        return self.piece.num_records if self.taken is None else self.taken.count


def stored_in(key: str, pieces: Sequence[Piece], offset: int = 0) -> Iterator[StoredPiece]:
    """Pieces that lie in one object one after the other."""
    for piece in pieces:
        yield StoredPiece(key, offset, piece)
        offset += piece.size


class SplitPieces:
    """The pieces of all records of a split, in order. Of each piece some record counts, or it carries on."""

    def __init__(self, pieces: Sequence[StoredPiece]) -> None:
        self._pieces = pieces
        self._offsets = record_offsets(stored.num_records for stored in pieces)

    @property
    def num_records(self) -> int:
        return self._offsets[-1]

    @cached_property
    def num_bytes(self) -> int:
        """Of the framed records; where a piece is shared by splits, as if all its records were alike."""
        return sum(
            stored.piece.num_bytes
            if stored.taken is None
            else stored.piece.num_bytes * stored.num_records // stored.piece.num_records
            for stored in self._pieces
        )

    def covering(self, start: int, stop: int) -> tuple[Sequence[StoredPiece], int]:
        """The pieces that hold the records `start` to `stop`, and how many of the first to pass over."""
        found = covering(self._offsets, start, stop)
        return self._pieces[found.pieces], found.skip


class RecordCutter:
    """Gathers framed records and hands them out in runs of at most `max_bytes`.

    With each run comes how many records begin in it. What is gathered is charged to `budget` until it
    is handed out.
    """

    def __init__(self, max_bytes: int, budget: Budget) -> None:
        self._max = max_bytes
        self._budget = budget
        self._gathered = bytearray()
        self._num_records = 0

    def add_run(self, data: memoryview, num_records: int) -> Iterator[tuple[bytes, int]]:
        """Add whole records, kept together where they fit into one run."""
        if len(self._gathered) + len(data) > self._max:
            yield from self.flush()
        if len(data) <= self._max:
            self._gather(data, num_records)
        else:
            yield from self.add(data, record_ends(data))

    def add(self, data: memoryview, ends: NDArray[np.int64]) -> Iterator[tuple[bytes, int]]:
        """Add whole records that end at `ends`; a run takes as many as fit, however they arrive."""
        begin, done = 0, 0
        while done < len(ends):
            room = begin + self._max - len(self._gathered)
            fitting = int(np.searchsorted(ends, room, side="right"))
            if fitting > done:
                end = int(ends[fitting - 1])
                self._gather(data[begin:end], fitting - done)
                begin, done = end, fitting
            elif self._gathered:
                yield from self.flush()
            else:
                end = int(ends[done])
                yield from self._cut_up(data[begin:end])
                begin, done = end, done + 1

    def flush(self) -> Iterator[tuple[bytes, int]]:
        """Hand out what is gathered, if anything."""
        if self._gathered:
            data, num_records = bytes(self._gathered), self._num_records
            self._gathered.clear()
            self._num_records = 0
            yield data, num_records
            self._budget.release(len(data))

    def _gather(self, data: memoryview, num_records: int) -> None:
        self._budget.charge(len(data), "A part of the records")
        self._gathered += data
        self._num_records += num_records

    def _cut_up(self, record: memoryview) -> Iterator[tuple[bytes, int]]:
        """One record that is larger than a run."""
        for offset in range(0, len(record), self._max):
            yield bytes(record[offset : offset + self._max]), 1 if offset == 0 else 0


class PieceCutter:
    """Cuts framed records into pieces of at most `max_bytes`, as a `RecordCutter` does."""

    def __init__(self, max_bytes: int, budget: Budget) -> None:
        self._cutter = RecordCutter(max_bytes, budget)

    def add_run(self, data: memoryview, num_records: int) -> Iterator[tuple[bytes, Piece]]:
        """Add whole records, kept together where they fit into one piece."""
        return _with_pieces(self._cutter.add_run(data, num_records))

    def add(self, data: memoryview, ends: NDArray[np.int64]) -> Iterator[tuple[bytes, Piece]]:
        """Add whole records that end at `ends`; a piece takes as many as fit, however they arrive."""
        return _with_pieces(self._cutter.add(data, ends))

    def flush(self) -> Iterator[tuple[bytes, Piece]]:
        """Hand out what is gathered, if anything."""
        return _with_pieces(self._cutter.flush())


def _with_pieces(runs: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, Piece]]:
    for data, num_records in runs:
        yield data, Piece.of(data, num_records)


def record_ends(data: memoryview) -> NDArray[np.int64]:
    """Where each of the whole frames in `data` ends."""
    ends, position = [], 0
    while position < len(data):
        position += _LENGTH.unpack_from(data, position)[0] + OVERHEAD_BYTES
        ends.append(position)
    return np.array(ends, np.int64)


def load_piece(store: ObjectStore, stored: StoredPiece) -> bytes:
    """The framed records of a piece, verified, and inflated where they are compressed.

    Raises:
        LostData: they are missing, short, not those that were stored, or do not inflate as recorded.
        StorageUnavailable: the store has them, but does not hand them all out.
    """
    piece = stored.piece
    try:
        for wait in _WAITS_S:
            time.sleep(wait)
            data = store.get_range(stored.key, stored.offset, piece.size)
            if _is_intact(piece, data):
                return data if piece.raw_size is None else _inflated(stored, data, piece.raw_size)
        size = store.head(stored.key).size
    except ObjectNotFound as error:
        raise LostData(f"{stored.key} is missing.") from error
    if len(data) < piece.size <= size - stored.offset:
        raise StorageUnavailable(f"The store hands out less of {stored.key} than it says it has.")
    raise LostData(f"{stored.key} at offset {stored.offset} does not have the SHA-256 on record.")


def load_run(store: ObjectStore, run: Sequence[StoredPiece]) -> list[Buffer]:
    """As `load_piece`, for pieces that follow one another in one object: in one request."""
    first, last = run[0], run[-1]
    if first is last:
        return [load_piece(store, first)]
    try:
        size = last.offset + last.piece.size - first.offset
        data = memoryview(store.get_range(first.key, first.offset, size))
    except ObjectNotFound as error:
        raise LostData(f"{first.key} is missing.") from error
    return [_of_run(store, stored, data[stored.offset - first.offset :]) for stored in run]


def _of_run(store: ObjectStore, stored: StoredPiece, data: memoryview) -> Buffer:
    piece, data = stored.piece, data[: stored.piece.size]
    if not _is_intact(piece, data):
        return load_piece(store, stored)
    return data if piece.raw_size is None else _inflated(stored, data, piece.raw_size)


def _is_intact(piece: Piece, data: Buffer) -> bool:
    return len(data) == piece.size and sha256(data).hexdigest() == piece.sha256


def _inflated(stored: StoredPiece, data: Buffer, raw_size: int) -> bytes:
    """Exactly `raw_size` bytes; a byte more is as wrong as one less, and no second one is made."""
    inflater = zlib.decompressobj(_RAW_DEFLATE if stored.offset else _WITH_HEADER)
    try:
        # To zlib a limit of 0 is none.
        raw = inflater.decompress(data, max(1, raw_size))
        raw += inflater.decompress(inflater.unconsumed_tail, 1)
    except zlib.error as error:
        raise LostData(f"{stored.key} at offset {stored.offset} does not inflate: {error}.") from error
    rest = len(inflater.unused_data)
    if len(raw) != raw_size or inflater.unconsumed_tail or (rest and rest not in _TRAILERS):
        raise LostData(
            f"{stored.key} at offset {stored.offset} does not inflate to the {raw_size} bytes on record."
        )
    return raw


class PieceStream:
    """A `ByteStream` over pieces, each verified before a byte of it is handed out."""

    def __init__(
        self, store: ObjectStore, pieces: Sequence[StoredPiece], pool: ThreadPoolExecutor | None = None
    ) -> None:
        self._loaded = _loaded(store, pieces, pool)
        self._rest = memoryview(b"")

    def read(self, n: int, /) -> bytes:
        while not self._rest:
            data = next(self._loaded, None)
            if data is None:
                return b""
            self._rest = memoryview(data)
        taken, self._rest = self._rest[:n], self._rest[n:]
        return bytes(taken)


def _loaded(
    store: ObjectStore, pieces: Sequence[StoredPiece], pool: ThreadPoolExecutor | None
) -> Iterator[Buffer]:
    runs = list(_runs(pieces))
    if pool is None or len(runs) == 1:
        for run in runs:
            yield from load_run(store, run)
        return
    pending: deque[tuple[int, Future[list[Buffer]]]] = deque()
    held = 0
    try:
        for run in runs:
            size = _held_by(run)
            while pending and (len(pending) >= _AHEAD or held + size > _AHEAD_BYTES):
                taken, future = pending.popleft()
                held -= taken
                yield from future.result()
            pending.append((size, pool.submit(load_run, store, run)))
            held += size
        while pending:
            yield from pending.popleft()[1].result()
    finally:
        for _, future in pending:
            future.cancel()


def _runs(pieces: Sequence[StoredPiece]) -> Iterator[list[StoredPiece]]:
    """The pieces, those together that are to be fetched in one request."""
    most = _AHEAD_BYTES if _held_by(pieces) <= _AHEAD_BYTES else _RUN_BYTES
    run: list[StoredPiece] = []
    held = 0
    for stored in pieces:
        if run and (held + _held_by([stored]) > most or not _follows(stored, run[-1])):
            yield run
            run, held = [], 0
        run.append(stored)
        held += _held_by([stored])
    if run:
        yield run


def _follows(stored: StoredPiece, before: StoredPiece) -> bool:
    return stored.key == before.key and stored.offset == before.offset + before.piece.size


def _held_by(pieces: Sequence[StoredPiece]) -> int:
    """What they take in memory, loaded."""
    return sum(max(stored.piece.size, stored.piece.num_bytes) for stored in pieces)
