"""Objects of a source as bodies: streams that are read ahead by pieces, and Parquet at any offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Final

from ....codecs.compression.inflate import Container, InflatedStream
from ....codecs.compression.zstd import WINDOW_BYTES
from ....domain.limits import MIB
from ....runtime.budget import Budget
from ....runtime.spool import SpoolFile
from ....runtime.streams import Buffer, ByteStream, FarFile, PrefixedStream
from ....runtime.workspace import Workspace
from ....storage.source_objects import SourceObject, path_of
from ....storage.sources import Source
from ..pieces.run_ahead import run_ahead
from .ranges import Range

#: Read at a time; one such piece is read ahead of that which is decoded.
PIECE_BYTES: Final = 8 * MIB
_AHEAD: Final = 2
READ_AHEAD_BYTES: Final = _AHEAD * PIECE_BYTES
#: At the end of a Parquet file, kept in memory: its footer is mostly in it.
_TAIL_BYTES: Final = 1 * MIB

_CONTAINERS: Final[dict[str, Container]] = {"gz": "gzip", "gzip": "gzip", "zst": "zstd", "zstd": "zstd"}


def container_of(name: str) -> Container | None:
    """How an object is compressed, by the ending of its name."""
    return _CONTAINERS.get(path_of(name).rpartition(".")[2].lower())


class CountedSource:
    """A source that counts what is read of it.

    Attributes:
        received: bytes.
        folder: as of the source.
    """

    def __init__(self, source: Source) -> None:
        self.received = 0
        self.folder = source.folder
        self._source = source

    def list(self) -> Iterator[SourceObject]:
        return self._source.list()

    def read(self, item: SourceObject, offset: int, length: int) -> Buffer:
        data = self._source.read(item, offset, length)
        self.received += length
        return data


class PieceStream:
    """Bytes of an object, from `start` to `stop`, of which a piece is read ahead."""

    def __init__(
        self, source: Source, item: SourceObject, start: int, stop: int, pool: ThreadPoolExecutor | None
    ) -> None:
        self._pieces = run_ahead(_reads(source, item, start, stop), pool, most=_AHEAD)
        self._view = memoryview(b"")

    def read(self, n: int, /) -> bytes:
        if not self._view:
            self._next()
        piece = bytes(self._view[:n])
        self._view = self._view[len(piece) :]
        return piece

    def read_view(self) -> memoryview:
        if not self._view:
            self._next()
        taken, self._view = self._view, memoryview(b"")
        return taken

    @property
    def ended(self) -> bool:
        return False

    def close(self) -> None:
        """Read nothing further."""
        self._pieces.close()

    def _next(self) -> None:
        self._view = memoryview(next(self._pieces, b"")).cast("B")


def _reads(
    source: Source, item: SourceObject, start: int, stop: int
) -> Iterator[tuple[int, Callable[[], Buffer]]]:
    for offset in range(start, stop, PIECE_BYTES):
        length = min(PIECE_BYTES, stop - offset)
        yield length, partial(source.read, item, offset, length)


class SpooledParquet(FarFile):
    """A Parquet file of which some row groups were fetched; its other bytes are read as they are asked."""

    def __init__(self, source: Source, item: SourceObject, begin: int, spooled: SpoolFile) -> None:
        self.size = item.size
        self._source = source
        self._item = item
        self._begin = begin
        self._spooled = spooled
        self._tail = b""

    def read_at(self, offset: int, n: int, /) -> bytes:
        n = max(0, min(n, self.size - offset))
        within = offset - self._begin
        if within >= 0 and within + n <= self._spooled.size:
            return self._spooled.read_at(within, n)
        tail_at = max(0, self.size - _TAIL_BYTES)
        if offset < tail_at or not n:
            return bytes(self._source.read(self._item, offset, n)) if n else b""
        if not self._tail:
            self._tail = bytes(self._source.read(self._item, tail_at, self.size - tail_at))
        return self._tail[offset - tail_at : offset - tail_at + n]


def open_range(
    source: Source,
    part: Range,
    workspace: Workspace,
    pool: ThreadPoolExecutor | None,
    *,
    is_tfrecord: bool = False,
) -> ByteStream:
    """The body that a range is, decompressed; closed with the workspace.

    Args:
        is_tfrecord: its decoder finds out by itself whether it is compressed.

    Raises:
        UnprocessableInput: the object changed (`source_changed`); also as it is read.
    """
    item = part.source
    budget = workspace.budget
    budget.reserve(READ_AHEAD_BYTES)
    body = PieceStream(source, item, part.start, part.stop, pool)
    workspace.enter_context(closing(body))
    if part.row_groups is not None:
        return _fetch(source, part, body, workspace)
    container = None if is_tfrecord else container_of(item.name)
    if container is not None:
        return _inflate(body, container, budget)
    if part.head and part.start:
        return PrefixedStream(bytes(source.read(item, 0, part.head)), body)
    return body


def _fetch(source: Source, part: Range, body: PieceStream, workspace: Workspace) -> SpooledParquet:
    spooled = workspace.enter_context(workspace.spool.open())
    while piece := body.read_view():
        spooled.append(piece)
    return SpooledParquet(source, part.source, part.start, spooled)


def _inflate(body: ByteStream, container: Container, budget: Budget) -> ByteStream:
    if container == "zstd":
        budget.charge(WINDOW_BYTES, "The window of zstd")
    return InflatedStream(body, container, budget)
