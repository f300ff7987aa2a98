"""A slot: the one object that decides the fate of an append. Creating it is the acknowledgement.

Form: a line of JSON, the header; behind it the framed records themselves, where they are few. So
one range request reads every header, and an append of a few rows is a single object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ....domain.limits import KIB
from ....domain.stored_values import count, text
from ....errors import CorruptData
from ....storage.create_once import create_once, new_nonce
from ....storage.object_store import ObjectStore
from ..pieces.pieces import Piece, StoredPiece
from .layout import Layout
from .stored_json import dump_json, load_json, open_json, read_again, seal_json

#: Up to so many bytes of records stay in the slot.
INLINE_BYTES: Final = 256 * KIB
#: Holds the header of an append of 9 GiB, a line of some 90 bytes for each part of 16 MiB.
_HEADER_BYTES: Final = 64 * KIB
#: A larger slot is a commit, which names a digest, two nonces and more: it need not be read to be told.
DEAD_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class Commit:
    """An acknowledged append.

    Attributes:
        nonce: tells the writer of this slot from others.
        attempt: whose parts these are.
        digest: of an append with a key, SHA-256 of what the client sent: a repetition has the same. Of any
            other, which nothing is compared with, that of its pieces.
        time: nanoseconds by the writer's clock, which never stands still; orders appends, decides nothing.
        sequence: what the client numbered the append with; comes before time.
        rounded: the features of which values were rounded; of a group, that is kept by no one.
        dropped: those that were left out, since no row has a value of them; likewise.
        as_text: those whose times or decimals became text, which nobody had declared; likewise.
        skipped: how many rows were left out, since their transforms do not take them; likewise.
        writer: names the process that wrote this slot, as long as it lives.
        pieces: of the records, in order: the parts, or one piece in the slot itself.
        inline_at: offset of the records in the slot, where they are in it.
    """

    append_id: str
    nonce: str
    attempt: str
    split: str
    digest: str
    num_records: int
    num_bytes: int
    time: int
    pieces: tuple[Piece, ...]
    inline_at: int | None = None
    sequence: int | None = None
    writer: str = ""
    rounded: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    skipped: int = 0
    as_text: tuple[str, ...] = ()

    @classmethod
    def illegible(cls, append_id: str) -> Commit:
        """An append of which nothing is known but its id; with this nonce, any slot of the id is consumed."""
        return cls(append_id, "", "", "", "", 0, 0, 0, ())

    @property
    def is_illegible(self) -> bool:
        return not self.split

    @property
    def rank(self) -> tuple[int, int, str]:
        """By which appends are ordered."""
        return self.sequence or 0, self.time, self.append_id

    def serialize(self, inline: bytes = b"") -> bytes:
        """The slot's bytes; `inline` are the records, where they go into it."""
        return seal_json(self.header(inline=bool(inline))) + b"\n" + inline

    def header(self, *, inline: bool) -> dict[str, Any]:
        return {
            "fate": "commit",
            "nonce": self.nonce,
            "attempt": self.attempt,
            "split": self.split,
            "digest": self.digest,
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
            "time": self.time,
            **({} if self.sequence is None else {"sequence": self.sequence}),
            "writer": self.writer,
            **({"rounded": list(self.rounded)} if self.rounded else {}),
            **({"dropped": list(self.dropped)} if self.dropped else {}),
            **({"skipped": self.skipped} if self.skipped else {}),
            **({"as_text": list(self.as_text)} if self.as_text else {}),
            "inline": inline,
            "pieces": [piece.to_json() for piece in self.pieces],
        }

    @classmethod
    def from_header(cls, append_id: str, header: dict[str, Any], inline_at: int | None) -> Commit:
        """What `header` says; members that a later release added are left out."""
        return cls(
            append_id=append_id,
            nonce=text(header["nonce"]),
            attempt=text(header["attempt"]),
            split=text(header["split"]),
            digest=text(header["digest"]),
            num_records=count(header["num_records"]),
            num_bytes=count(header["num_bytes"]),
            time=count(header["time"]),
            pieces=tuple(Piece.from_json(item) for item in header["pieces"]),
            inline_at=inline_at,
            sequence=header.get("sequence"),
            writer=header.get("writer", ""),
            rounded=tuple(map(text, header.get("rounded", []))),
            dropped=tuple(map(text, header.get("dropped", []))),
            skipped=count(header.get("skipped", 0)),
            as_text=tuple(map(text, header.get("as_text", []))),
        )

    def stored_pieces(self, layout: Layout) -> tuple[StoredPiece, ...]:
        """Where the records lie."""
        if self.inline_at is not None:
            slot = layout.slot(self.append_id)
            return tuple(StoredPiece(slot, self.inline_at, piece) for piece in self.pieces)
        return tuple(
            StoredPiece(key, 0, piece) for key, piece in zip(self.parts(layout), self.pieces, strict=True)
        )

    def parts(self, layout: Layout) -> list[str]:
        """The objects that hold the records, none where they are in the slot."""
        if self.inline_at is not None:
            return []
        return [layout.part(self.append_id, self.attempt, k) for k in range(len(self.pieces))]


@dataclass(frozen=True, slots=True)
class Dead:
    """The fate of an append that will never be: its slot was taken before it could commit.

    Attributes:
        nonce: tells the writer of this slot from others.
    """

    nonce: str

    def serialize(self) -> bytes:
        """The slot's bytes, at most `DEAD_BYTES`."""
        return seal_json({"fate": "dead", "nonce": self.nonce}) + b"\n"


Slot = Commit | Dead


def read_slot(store: ObjectStore, layout: Layout, append_id: str) -> Slot:
    """The fate of an append, without its records.

    Raises:
        ObjectNotFound: nothing is decided.
        CorruptData: not of the known form.
    """
    return read_again(lambda: _read_slot(store, layout.slot(append_id), append_id))


def close_slot(store: ObjectStore, layout: Layout, append_id: str) -> Slot:
    """The fate of an append; where nothing was decided, it will never be.

    Raises:
        OutcomeUnknown: it may or may not be closed.
    """
    key = layout.slot(append_id)
    dead = Dead(new_nonce())
    winner = create_once(store, key, dead.serialize())
    return dead if winner is None else parse_slot(append_id, winner, key)


def _read_slot(store: ObjectStore, key: str, append_id: str) -> Slot:
    data = bytes(store.get_range(key, 0, _HEADER_BYTES))
    if b"\n" not in data:
        data = store.get(key)
    return parse_slot(append_id, data, key)


def parse_slot(append_id: str, data: bytes, key: str) -> Slot:
    """The slot whose bytes begin with `data`, which holds at least the header.

    Raises:
        CorruptData: not of the known form.
    """
    line, newline, _ = data.partition(b"\n")
    header = open_json(line, key)
    try:
        if header["fate"] == "dead":
            return Dead(str(header["nonce"]))
        if header["fate"] != "commit":
            raise CorruptData(f"{key} says {header['fate']!a:.40}, which this release does not know.")
        return Commit.from_header(append_id, header, len(line) + len(newline) if header["inline"] else None)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"{key} is not of the known form.") from error


def serialize_commits(commits: Iterable[Commit]) -> bytes:
    """The appends that a plan consumes, in order: a line each, `<id> <inline_at> <header of the slot>`.

    Where the records lie is said outright, `-` if not in the slot: it does not follow from the header,
    of which only the members known here are repeated.
    """
    return b"".join(map(_line, commits))


def _line(commit: Commit) -> bytes:
    inline_at = "-" if commit.inline_at is None else commit.inline_at
    header = dump_json(commit.header(inline=commit.inline_at is not None))
    return f"{commit.append_id} {inline_at} ".encode() + header + b"\n"


def parse_commits(data: bytes, key: str) -> list[Commit]:
    """What `serialize_commits` wrote.

    Raises:
        CorruptData: not of that form.
    """
    return [_parse_line(line, key) for line in data.splitlines()]


def _parse_line(line: bytes, key: str) -> Commit:
    try:
        append_id, inline_at, header = line.split(b" ", 2)
        offset = None if inline_at == b"-" else int(inline_at)
        return Commit.from_header(append_id.decode("ascii"), load_json(header, key), offset)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"{key} is not of the known form.") from error
