"""The last step of a shard's records: pieces as they will lie in the store, deflated and hashed.

Pieces do not depend on one another, so this runs in threads, a few pieces ahead of who takes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from typing import Final

from ....codecs.records.deflated_pieces import StreamFrame, deflate_piece
from ....domain.compression import Compression
from ..pieces import Piece

__all__ = ["Sealed", "seal"]

#: The bytes of a piece as they are stored, and what the index says of them.
Sealed = tuple[bytes, Piece]

#: Pieces in work behind the one that is handed out: enough to keep two cores busy.
_AHEAD: Final = 2


def seal(
    runs: Iterator[tuple[bytes, int]], compression: Compression, pool: ThreadPoolExecutor | None = None
) -> Iterator[Sealed]:
    """The pieces of one file, in order.

    Args:
        runs: as a `RecordCutter` hands them out.
    """
    tasks = _plain(runs) if compression == "none" else _deflating(runs, compression)
    if pool is None:
        return (task() for task in tasks)
    return _ahead(tasks, pool)


def _plain(runs: Iterator[tuple[bytes, int]]) -> Iterator[Callable[[], Sealed]]:
    for data, num_records in runs:
        yield partial(_hash, data, num_records)


def _deflating(runs: Iterator[tuple[bytes, int]], compression: Compression) -> Iterator[Callable[[], Sealed]]:
    """The first piece begins with the container's header, the last ends with its trailer.

    A file without records is one piece of just these two, which begins no record.
    """
    frame = StreamFrame(compression)
    header = frame.header
    held: tuple[bytes, int] | None = None
    for data, num_records in runs:
        if held is not None:
            yield partial(_deflate, *held, header, b"")
            header = b""
        frame.add(data)
        held = data, num_records
    yield partial(_deflate, *(held or (b"", 0)), header, frame.trailer)


def _hash(data: bytes, num_records: int) -> Sealed:
    return data, Piece.of(data, num_records)


def _deflate(data: bytes, num_records: int, header: bytes, trailer: bytes) -> Sealed:
    stored = b"".join((header, deflate_piece(data) if data else b"", trailer))
    return stored, Piece(len(stored), sha256(stored).hexdigest(), num_records, len(data))


def _ahead(tasks: Iterator[Callable[[], Sealed]], pool: ThreadPoolExecutor) -> Iterator[Sealed]:
    pending: deque[Future[Sealed]] = deque()
    try:
        for task in tasks:
            pending.append(pool.submit(task))
            if len(pending) > _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
