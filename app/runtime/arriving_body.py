"""A body that its reader may begin with before all of it is there."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Final

import numpy as np

from ..domain.limits import MIB
from .spool import SpoolFile
from .streams import Arriving, Buffer, ByteStream, MemoryFile, TimedStream, WholeBody
from .turns import waiting
from .workspace import Workspace

#: A body up to this size is held in memory, and so much of a larger one is read at a time.
IN_MEMORY: Final = 1 * MIB
#: A body up to this size is held in memory while it is read ahead, if there is memory to spare.
_READ_IN_MEMORY: Final = 16 * MIB
#: A body that comes slower is not read ahead: memory for what it becomes would be held while nothing is done.
_FAST_BYTES_A_SECOND: Final = 25 * MIB
#: The first pieces may take so long, and what comes later may stop for as long.
_SLACK_S: Final = 0.25


class ArrivingBody(Arriving):
    """A `WholeBody` that arrives as it is read: in memory while it is small, else on the spool.

    One that is read ahead is held in memory up to 16 MiB, unless it comes too slowly.

    Args:
        source: the bytes.
        workspace: its budget is charged for a body in memory, as long as the request lasts, and told what
            lies on the spool; that room goes back when the workspace is closed.
        declared_size: in bytes, where it is known; no more than these come.
    """

    def __init__(self, source: ByteStream, workspace: Workspace, declared_size: int | None = None) -> None:
        self.declared_size = declared_size
        self._source = source
        self._budget = workspace.budget
        self._workspace = workspace
        #: What has arrived; in memory it takes up to `_most_held` bytes, which are charged as they come or
        #: were reserved before.
        self._file: _Held | SpoolFile = _Held(2 * IN_MEMORY)
        self._most_held = IN_MEMORY
        self._charged = self._reserved = 0
        self._whole: WholeBody | None = None

    def read_ahead(self) -> Iterator[memoryview]:
        """All that has arrived, from the beginning on, each time that there is more.

        It ends early where the size is not known, or the body comes too slowly.

        Raises:
            InputError, StorageFull: as `whole`.
        """
        if self.declared_size is None or self._file.size:
            return
        timed = self._source if isinstance(self._source, TimedStream) else None
        due = monotonic() + _SLACK_S
        self._prepare(self.declared_size)
        while self._whole is None:
            size = self._file.size
            left = due + size / _FAST_BYTES_A_SECOND - monotonic()
            if size != self.declared_size and (left < 0 or not (timed is None or timed.wait_readable(left))):
                return
            if self._read_more():
                yield self._file.view()

    def whole(self) -> WholeBody:
        """All of it, once it has arrived.

        Raises:
            LimitExceeded: a small body is more than the budget allows.
            StorageFull: there is no room on the spool (`spool_full`).
            StreamInterrupted: the sender went away.
        """
        if self._reserved and self._file.size != self.declared_size:
            self._move_to_spool()
        while self._whole is None:
            self._read_more()
        return self._whole

    @property
    def size(self) -> int:
        return self.whole().size

    def read_at(self, offset: int, n: int, /) -> bytes:
        """As `ByteFile`."""
        return self.whole().read_at(offset, n)

    def view(self) -> memoryview:
        """As `WholeBody`."""
        return self.whole().view()

    def _prepare(self, size: int) -> None:
        """Make room for a body of this size that can be viewed while it arrives."""
        is_short = size <= min(_READ_IN_MEMORY, self._workspace.spool.share)
        if is_short and self._budget.reserve_spare(size):
            self._file, self._most_held, self._reserved = _Held(size), size, size
        else:
            self._file = self._workspace.enter_context(self._workspace.spool.open_share())
            self._file.expect(size)

    def _read_more(self) -> bool:
        """Read and store a piece; false where there is none, and all has arrived."""
        piece = self._source.read(IN_MEMORY)
        if not piece:
            self._whole = self._file if isinstance(self._file, SpoolFile) else MemoryFile(self._file.view())
            if isinstance(self._file, SpoolFile) or self._reserved:
                self._budget.spooled = self._file.size
            return False
        if isinstance(self._file, _Held) and self._file.size + len(piece) > self._most_held:
            self._move_to_spool()
        if isinstance(self._file, _Held):
            if not self._reserved:
                self._budget.charge(len(piece), "The body")
                self._charged += len(piece)
            self._file.append(piece)
        else:
            with waiting():  # disks are slow
                self._file.append(piece)
        return True

    def _move_to_spool(self) -> None:
        held = self._file.view()
        self._file = self._workspace.enter_context(self._workspace.spool.open_share())
        with waiting():
            self._file.append(held)
        self._budget.release(self._charged)
        self._budget.release_reserved(self._reserved)
        self._charged = self._reserved = 0


class _Held:
    """Bytes in memory, which can be viewed while more are added.

    Args:
        room: how many there can be.
    """

    def __init__(self, room: int) -> None:
        self._buffer = np.empty(room, np.uint8)
        self.size = 0

    def append(self, piece: Buffer) -> None:
        end = self.size + len(piece)
        self._buffer[self.size : end] = np.frombuffer(piece, np.uint8)
        self.size = end

    def view(self) -> memoryview:
        return self._buffer[: self.size].data.toreadonly()
