"""Framed records in verified pieces: how an append's parts and a shard's index are made and read.

A piece is a run of bytes with its own SHA-256. It begins with a record, or only carries on a record
too large for one piece. So a range of records is found by adding up counts, and read with nothing
before it; and the pieces of several objects, one after the other, are again one TFRecord stream.

A compressed shard is one gzip or zlib stream, flushed at each piece so that it can be inflated alone
(`Z_FULL_FLUSH`, zlib.h): raw deflate, with the stream's header before the first piece and its trailer
behind the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ....codecs.messages.framing import FrameBlock
from ....domain.sharding.shard_plan import covering, record_offsets
from ....runtime.streams import Buffer


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
    def of(cls, data: Buffer, num_records: int) -> Piece:
        return cls(len(data), sha256(data).hexdigest(), num_records)

    def to_json(self) -> list[Any]:
        value = [self.size, self.sha256, self.num_records]
        return value if self.raw_size is None else [*value, self.raw_size]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Piece:
        size, digest, num_records, *rest = value
        return cls(int(size), str(digest), int(num_records), int(rest[0]) if rest else None)


def digest_of(pieces: Iterable[Piece]) -> str:
    """What stands for the bytes of all pieces: SHA-256 over theirs, as text, one after the other."""
    return sha256("".join(piece.sha256 for piece in pieces).encode()).hexdigest()


def longest_record(pieces: Iterable[Piece]) -> int:
    """At most how many bytes a record has that takes several pieces; 0 where none does."""
    longest = begun = 0
    for piece in pieces:
        if piece.num_records:
            begun = piece.num_bytes
        else:
            begun += piece.num_bytes
            longest = max(longest, begun)
    return longest


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

    @cached_property
    def longest_record(self) -> int:
        """See `longest_record`."""
        return longest_record(stored.piece for stored in self._pieces)

    def covering(self, start: int, stop: int) -> tuple[Sequence[StoredPiece], int]:
        """The pieces that hold the records `start` to `stop`, and how many of the first to pass over."""
        found = covering(self._offsets, start, stop)
        return self._pieces[found.pieces], found.skip
