"""What a command reads: a file, standard input, an address of HTTP, or an object of a store."""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import click

from ..domain.limits import MIB, Limits
from ..domain.urls import hide_secrets
from ..runtime.amplification import Amplification
from ..runtime.budget import Budget
from ..runtime.spool import Spool
from ..runtime.streams import ByteStream, OwnFile
from ..runtime.workspace import Workspace
from ..settings import Settings, read_settings
from ..storage.object_store import ObjectStore
from ..storage.obstore_store import open_store
from ..transforms.images.processes import ImageProcesses
from .screen.terminal import progress

#: Read of an object in a store at a time.
_PIECE: Final = 8 * MIB
_STORES: Final = ("s3://", "gs://", "az://")
_FILE: Final = "file://"

STANDARD: Final = "-"


class LocalFile(OwnFile):
    """A file on this machine.

    Args:
        path: of a regular file.
        on_read: told how many bytes were read.
    """

    def __init__(self, path: Path, on_read: Callable[[int], None]) -> None:
        self._file = path.open("rb", buffering=0)
        self._on_read = on_read
        self._position = 0
        self._size = os.fstat(self._file.fileno()).st_size

    @property
    def size(self) -> int:
        return self._size

    def read(self, n: int, /) -> bytes:
        piece = self.read_at(self._position, n)
        self._position += len(piece)
        return piece

    def read_at(self, offset: int, n: int, /) -> bytes:
        piece = os.pread(self._file.fileno(), n, offset)
        self._on_read(len(piece))
        return piece

    def view(self) -> memoryview:
        if not self._size:
            return memoryview(b"")
        self._on_read(self._size)
        return memoryview(mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ))

    def close(self) -> None:
        """Close the file; views of it stay."""
        self._file.close()


class _Pieces:
    """A stream of what comes in pieces."""

    def __init__(self, pieces: Iterator[bytes], on_read: Callable[[int], None]) -> None:
        self._pieces = pieces
        self._on_read = on_read
        self._left = b""

    def read(self, n: int, /) -> bytes:
        if not self._left:
            self._left = next(self._pieces, b"")
            self._on_read(len(self._left))
        piece, self._left = self._left[:n], self._left[n:]
        return piece


def pieces_of(stream: ByteStream) -> Iterator[bytes]:
    """All of a stream."""
    while piece := stream.read(MIB):
        yield piece


class Source:
    """Something to read, once or several times.

    Attributes:
        name: as it was given, without secrets.
        size: in bytes; None where that is known at the end only.
        is_read_again: `open` may be called more than once.
    """

    def __init__(self, given: str) -> None:
        self.given = given
        self.name = "standard input" if given == STANDARD else hide_secrets(given)
        self.size: int | None = None
        self._path = None if given == STANDARD or "://" in given else Path(given)
        if given.startswith(_FILE):  # no store, which would make its folder
            self._path = Path(unquote(given.removeprefix(_FILE)))
        self._store: tuple[ObjectStore, str] | None = None
        if self._path is not None:
            self._look()
        elif given.startswith(_STORES):
            folder, _, key = given.rpartition("/")
            self._store = open_store(folder), key
            self.size = self._store[0].head(key).size
        elif given != STANDARD and not given.startswith(("http://", "https://")):
            raise click.UsageError(f"{self.name} is neither a file nor one of http, https, s3, gs, az, file.")
        self.is_read_again = given != STANDARD

    @property
    def file_name(self) -> str:
        """What may tell its format; empty where there is none."""
        return self.given if self.is_read_again else ""

    def _look(self) -> None:
        if self._path is not None:
            found = self._path.stat()
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.given)
            if stat.S_ISREG(found.st_mode):
                self.size = found.st_size

    def open(self, resources: ExitStack, on_read: Callable[[int], None] = lambda _: None) -> ByteStream:
        """The bytes, from the first one on; closed with `resources`."""
        if self._path is not None and self._path.is_file():
            file = LocalFile(self._path, on_read)
            resources.callback(file.close)
            return file
        return _Pieces(self._pieces(resources), on_read)

    def _pieces(self, resources: ExitStack) -> Iterator[bytes]:
        if self._store is not None:
            store, key = self._store
            position = 0
            while piece := bytes(store.get_range(key, position, _PIECE)):
                yield piece
                position += len(piece)
            return
        if self.given.startswith(("http://", "https://")):
            from .http_client import fetch

            self.size, pieces = fetch(self.given, resources)
            yield from pieces
            return
        file: Any = sys.stdin.buffer if self._path is None else self._path.open("rb")
        if self._path is not None:
            resources.callback(file.close)
        while piece := file.read1(MIB):
            yield piece


@dataclass(frozen=True, slots=True)
class Opened:
    """A source that is being read, and what may be used for it."""

    source: Source
    stream: ByteStream
    workspace: Workspace
    images: ImageProcesses


class Run:
    """What one command may use: limits and spool of the settings, and memory for one body at a time."""

    def __init__(self) -> None:
        self.settings: Settings = read_settings()
        self.limits: Limits = self.settings.limits
        self.spool = Spool(self.settings.spool_dir, self.settings.spool_max_bytes)

    @contextmanager
    def open(self, source: Source, *, is_shown: bool = True) -> Iterator[Opened]:
        """Read a source, and show how far that is unless `is_shown` says otherwise."""
        with ExitStack() as resources, progress(source.name, source.size) as shown:
            received = 0

            def count(num_bytes: int) -> None:
                nonlocal received
                received += num_bytes
                if is_shown:
                    shown.add(num_bytes)

            workspace = resources.enter_context(self.workspace(lambda: received))
            images = ImageProcesses()
            resources.callback(images.close)
            yield Opened(source, source.open(resources, count), workspace, images)

    def workspace(self, received: Callable[[], int]) -> Workspace:
        """Memory and room for what is read.

        Args:
            received: how many bytes of it there are so far.
        """
        amplification = Amplification(self.limits.max_amplification, received)
        return Workspace(Budget(self.limits, amplification=amplification), self.spool)
