"""Bounded room on the local disk for what does not fit in memory.

A `Spool` is shared by all requests and counts what they hold together; a `SpoolFile` is one
request's anonymous temporary file, gone with its last handle whatever happens to the process.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from ..domain.streams import Buffer
from ..errors import StorageFull, StorageUnavailable

__all__ = ["Spool", "SpoolFile"]


class Spool:
    """Room for at most `max_bytes` over all open files. Safe to use from several threads."""

    def __init__(self, directory: Path | None, max_bytes: int) -> None:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._max_bytes = max_bytes
        self._used = 0
        # Reentrant: room also comes back where Python finds that nothing refers to a mapping any more.
        self._lock = threading.RLock()

    @property
    def used(self) -> int:
        """Bytes held by the files that are open now."""
        return self._used

    @property
    def available(self) -> int:
        """Bytes that there is room for now; others may take it meanwhile."""
        return max(0, self._max_bytes - self._used)

    def open(self) -> SpoolFile:
        """A new, empty file.

        Raises:
            StorageFull: no room left on the disk.
            StorageUnavailable: the disk failed.
        """
        return SpoolFile(self)

    def reserve(self, num_bytes: int) -> None:
        """Take room before writing.

        Raises:
            StorageFull: the spool has no room left.
        """
        with self._lock:
            if self._used + num_bytes > self._max_bytes:
                raise StorageFull(
                    f"The spool is full ({self._max_bytes} bytes). Send less at a time, or later.",
                    code="spool_full",
                )
            self._used += num_bytes

    def release(self, num_bytes: int) -> None:
        """Give room back."""
        with self._lock:
            self._used -= num_bytes

    @property
    def directory(self) -> Path | None:
        """Where the files lie; None is the system's temporary folder."""
        return self._directory


class SpoolFile:
    """An append-only temporary file that is also a `WholeBody`.

    One thread appends while another reads what was appended; the file position is not shared
    because both go through absolute offsets under a lock.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._size = 0
        self._mapped: mmap.mmap | None = None
        self._lock = threading.Lock()
        # Unbuffered: what was appended is readable at once. Closed by `close`, not by a `with` here.
        with _disk_errors():
            self._file = tempfile.TemporaryFile(dir=spool.directory, buffering=0)  # noqa: SIM115

    @property
    def size(self) -> int:
        return self._size

    def append(self, data: Buffer) -> int:
        """Add `data` at the end and return the offset at which it begins.

        Raises:
            ValueError: the file is closed, or was viewed.
            StorageFull: no room left in the spool or on the disk.
            StorageUnavailable: the disk failed.
        """
        view = memoryview(data).cast("B")
        with self._lock:
            if self._file.closed:
                raise ValueError("the spool file is closed")
            if self._mapped is not None:
                raise ValueError("the spool file is being viewed")
            self._spool.reserve(len(view))
            offset, self._size = self._size, self._size + len(view)
            with _disk_errors():
                self._file.seek(offset)
                while view:
                    view = view[self._file.write(view) :]
        return offset

    def read_at(self, offset: int, n: int, /) -> bytes:
        """Exactly `n` bytes from `offset`; fewer only where the file ends.

        Raises:
            StorageUnavailable: the disk failed.
        """
        with self._lock, _disk_errors():
            self._file.seek(offset)
            pieces = []
            while n > 0 and (piece := self._file.read(n)):
                pieces.append(piece)
                n -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def view(self) -> memoryview:
        """As `WholeBody`; nothing can be appended from then on.

        Nobody else has the file, so it cannot become shorter than its mapping, which would be a fatal signal.
        """
        with self._lock, _disk_errors():
            if self._file.closed:
                raise ValueError("the spool file is closed")
            if self._mapped is None and self._size:
                self._mapped = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ)
            return memoryview(self._mapped or b"")

    def close(self) -> None:
        """Free the room; that of a mapping with the last view of it. May be called twice."""
        with self._lock:
            if self._file.closed:
                return
            self._file.close()
            mapped, self._mapped = self._mapped, None
            if mapped is None:
                self._spool.release(self._size)
            else:
                weakref.finalize(mapped, self._spool.release, self._size).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    """Turn what the system says of the disk into this project's errors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull("The spool's disk is full.", code="spool_full") from error
        raise StorageUnavailable(f"The spool's disk failed: {error.strerror}.") from error
