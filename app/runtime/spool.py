"""Limited room on the local disk for data that does not fit in memory.

All requests share a `Spool`, which counts what they hold together. A `SpoolFile` is an anonymous temporary
file of one request, which disappears with its last handle, also if the process is killed.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ..errors import SpoolFull, SpoolUnavailable
from .streams import Buffer
from .tally import Tally

#: One request gets at most one of this many parts of the spool, for its body and its answer.
_SHARES: Final = 4


class Spool:
    """Room for at most `max_bytes` in all open files. Safe to use from several threads.

    Args:
        directory: where files are made; the system's folder for temporary ones by default.
        max_bytes: of all files, those of other processes with the same tally included.
        taken: counts the bytes of the files.
    """

    def __init__(self, directory: Path | None, max_bytes: int, taken: Tally | None = None) -> None:
        self._directory = directory
        self.max_bytes = max_bytes
        self._taken = taken or Tally()
        # Reentrant: the garbage collector can free a mapping, and so its room, at any point.
        self._lock = threading.RLock()

    @property
    def used(self) -> int:
        """Bytes in the files that this process has open now."""
        return self._taken.own

    @property
    def available(self) -> int:
        """Bytes of free room; others may take it at any time."""
        return max(0, self.max_bytes - self._taken.total)

    def open(self) -> SpoolFile:
        """A new, empty file.

        Raises:
            SpoolFull: no room left on the disk.
            SpoolUnavailable: the folder cannot be written, or the disk failed.
        """
        return SpoolFile(self)

    def check(self) -> None:
        """Check that a byte can be written.

        Raises:
            SpoolFull: no room left on the disk.
            SpoolUnavailable: the folder cannot be written, or the disk failed.
        """
        with _disk_errors(), self.create_file() as file:
            file.write(b"\0")

    def create_file(self) -> FileIO:
        """A temporary file without a name; its folder is made if it is missing.

        Raises:
            OSError: the file cannot be created.
        """
        # Unbuffered: what was appended can be read at once.
        try:
            return tempfile.TemporaryFile(dir=self._directory, buffering=0)
        except FileNotFoundError:
            if self._directory is None:
                raise
        self._directory.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self._directory, buffering=0)

    @property
    def share(self) -> int:
        """Bytes that the body and the answer of one request get together."""
        return self.max_bytes // _SHARES

    def open_share(self, beside: int = 0) -> SpoolFile:
        """A new file for the body or the answer of a request, which get a quarter of the spool together.

        Args:
            beside: bytes of that quarter that the request holds in its other file.
        """
        return SpoolFile(self, self.share - beside)

    def reserve(self, num_bytes: int) -> None:
        """Take room, before writing.

        Raises:
            SpoolFull: the spool has no room left.
        """
        with self._lock:
            if not self._taken.add(num_bytes, self.max_bytes):
                raise SpoolFull(
                    f"The spool is full: SHARDSMITH_SPOOL_MAX_BYTES is {self.max_bytes}. "
                    "Send less at a time, or try again later."
                )

    def release(self, num_bytes: int) -> None:
        """Return room."""
        with self._lock:
            self._taken.remove(num_bytes)


class SpoolFile:
    """An append-only temporary file that is also a `WholeBody`.

    One thread may append while another reads. Both use absolute offsets under a lock, so they share no file
    position.

    Args:
        max_bytes: the limit of this file; None if only the spool limits it.
    """

    def __init__(self, spool: Spool, max_bytes: int | None = None) -> None:
        self._spool = spool
        self._max_bytes = max_bytes
        self._size = 0
        self._expected = 0
        self._mapped: mmap.mmap | None = None
        self._lock = threading.Lock()
        with _disk_errors():
            self._file = spool.create_file()

    @property
    def size(self) -> int:
        return self._size

    def expect(self, num_bytes: int) -> None:
        """Let the file be viewed before so many bytes were appended. They take no room until they are.

        Raises:
            ValueError: the file was viewed.
            SpoolFull, SpoolUnavailable: the disk failed.
        """
        with self._lock, _disk_errors():
            if self._mapped is not None:
                raise ValueError("the spool file is being viewed")
            self._file.truncate(num_bytes)
            self._expected = num_bytes

    def append(self, data: Buffer) -> int:
        """Add `data` at the end and return the offset at which it begins.

        Raises:
            ValueError: the file is closed, or was viewed, and this is more than was expected then.
            SpoolFull: no room left in the spool, for this file, or on the disk.
            SpoolUnavailable: the disk failed.
        """
        view = memoryview(data).cast("B")
        with self._lock:
            if self._file.closed:
                raise ValueError("the spool file is closed")
            if self._mapped is not None and self._size + len(view) > len(self._mapped):
                raise ValueError("the spool file is being viewed")
            if self._max_bytes is not None and self._size + len(view) > self._max_bytes:
                raise SpoolFull(
                    f"The body and the answer of a request may take {self._spool.share} bytes of the spool "
                    "together, and these take more. Send less at a time.",
                    code="spool_full",
                )
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
            SpoolUnavailable: the disk failed.
        """
        with self._lock, _disk_errors():
            n = min(n, self._size - offset)
            self._file.seek(offset)
            pieces = []
            while n > 0 and (piece := self._file.read(n)):
                pieces.append(piece)
                n -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def clear(self) -> None:
        """Remove everything that was appended, and free its room.

        Raises:
            ValueError: the file was viewed.
            SpoolUnavailable: the disk failed.
        """
        with self._lock, _disk_errors():
            if self._mapped is not None:
                raise ValueError("the spool file is being viewed")
            self._file.truncate(0)
            self._spool.release(self._size)
            self._size = self._expected = 0

    def fileno(self) -> int:
        """The descriptor, for another process that reads the file."""
        return self._file.fileno()

    def view(self) -> memoryview:
        """All that was appended, as a mapping. Afterwards no more can be appended than was expected before.

        The file is private, so it cannot become shorter than its mapping, which would be a fatal signal.
        """
        with self._lock, _disk_errors():
            if self._file.closed:
                raise ValueError("the spool file is closed")
            if self._mapped is None and self._size:
                length = max(self._size, self._expected)
                self._mapped = mmap.mmap(self._file.fileno(), length, access=mmap.ACCESS_READ)
            return memoryview(self._mapped or b"")[: self._size]

    def close(self) -> None:
        """Free the room; a mapping's room is freed with its last view. May be called twice."""
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
    """Turn errors of the disk into errors of this project."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise SpoolFull(
                "The disk of the spool is full. Try again later; the operator makes room in the folder "
                "SHARDSMITH_SPOOL_DIR, or names another."
            ) from error
        raise SpoolUnavailable(
            # By its number: the text may name folders, and clients see this message.
            f"The spool cannot be used: {os.strerror(error.errno or errno.EIO)}. The operator makes the "
            "folder SHARDSMITH_SPOOL_DIR writable, or names another."
        ) from error
