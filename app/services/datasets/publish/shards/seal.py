"""The last step of a shard's records: pieces as they will lie in the store, deflated and hashed.

Pieces do not depend on one another, so this runs in threads, a few pieces ahead of who takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from typing import Final

from .....codecs.compression.deflated_pieces import StreamFrame, deflate_piece
from .....domain.compression import Compression
from .....runtime.streams import Buffer
from ...pieces.pieces import Piece
from ...pieces.run_ahead import run_ahead

#: The bytes of a piece as they are stored, and what the index says of them.
Sealed = tuple[Buffer, Piece]

#: The bytes of a piece, and what makes it ready.
_Task = tuple[int, Callable[[], Sealed]]

#: Pieces in work, the one that is waited for among them: enough to keep two cores busy.
_AHEAD: Final = 3


def seal(
    runs: Iterator[tuple[Buffer, int]], compression: Compression, pool: ThreadPoolExecutor | None = None
) -> Iterator[Sealed]:
    """The pieces of one file, in order.

    Args:
        runs: as a `RecordCutter` hands them out.
    """
    tasks = _keep_plain(runs) if compression == "none" else _deflate_pieces(runs, compression)
    return run_ahead(tasks, pool, most=_AHEAD)


def _keep_plain(runs: Iterator[tuple[Buffer, int]]) -> Iterator[_Task]:
    for data, num_records in runs:
        yield len(data), partial(_hash, data, num_records)


def _deflate_pieces(runs: Iterator[tuple[Buffer, int]], compression: Compression) -> Iterator[_Task]:
    """The first piece begins with the container's header, the last ends with its trailer.

    A file without records is one piece of just these two, which begins no record.
    """
    frame = StreamFrame(compression)
    header = frame.header
    held: tuple[Buffer, int] | None = None
    for data, num_records in runs:
        if held is not None:
            yield len(held[0]), partial(_deflate, *held, header, b"")
            header = b""
        frame.add(data)
        held = data, num_records
    last = held or (b"", 0)
    yield len(last[0]), partial(_deflate, *last, header, frame.trailer)


def _hash(data: Buffer, num_records: int) -> Sealed:
    return data, Piece.of(data, num_records)


def _deflate(data: Buffer, num_records: int, header: bytes, trailer: bytes) -> Sealed:
    stored = b"".join((header, deflate_piece(data) if data else b"", trailer))
    return stored, Piece(len(stored), sha256(stored).hexdigest(), num_records, len(data))
