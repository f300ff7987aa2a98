"""A body that its reader may begin with before all of it is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from time import monotonic
from typing import Final

from ..domain.limits import MIB
from .budget import Budget
from .spool import Spool
from .streams import Arriving, Buffer, ByteStream, MemoryFile, TimedStream, WholeBody
from .turns import waiting

#: A body up to this size is held in memory, and so much of a larger one at a time.
IN_MEMORY: Final = 1 * MIB
#: A body that comes slower is not read ahead: memory for what it becomes would be held while nothing is done.
_FAST_BYTES_A_SECOND: Final = 25 * MIB
#: The first pieces may take so long, and what comes later may stop for as long.
_SLACK_S: Final = 0.25


class ArrivingBody(Arriving):
    """A `WholeBody` that arrives as it is read: in memory while it is small, else on the spool.

    Args:
        source: the bytes.
        budget: charged for a body in memory, as long as the request lasts; told what lies on the spool.
        spool: room for what is not.
        resources: gives that room back when it is closed.
        declared_size: in bytes, where it is known.
    """

    def __init__(
        self,
        source: ByteStream,
        budget: Budget,
        spool: Spool,
        resources: ExitStack,
        declared_size: int | None = None,
    ) -> None:
        self.declared_size = declared_size
        self._source = source
        self._budget = budget
        self._spool = spool
        self._resources = resources
        self._whole: WholeBody | None = None
        self._pieces = self._store()

    def read_ahead(self) -> Iterator[Buffer]:
        """The pieces from the beginning on, as they arrive; ends early where they come too slowly.

        Raises:
            InputError, StorageFull: as `whole`.
        """
        timed = self._source if isinstance(self._source, TimedStream) else None
        due = monotonic() + _SLACK_S
        size = 0
        while True:
            left = due + size / _FAST_BYTES_A_SECOND - monotonic()
            if size != self.declared_size and (left < 0 or not (timed is None or timed.wait_readable(left))):
                return
            piece = next(self._pieces, None)
            if piece is None:
                return
            size += len(piece)
            yield piece

    def whole(self) -> WholeBody:
        """All of it, once it has arrived.

        Raises:
            LimitExceeded: a small body is more than the budget allows.
            StorageFull: there is no room on the spool (`spool_full`).
            StreamInterrupted: the sender went away.
        """
        for _ in self._pieces:
            pass
        if self._whole is None:
            raise AssertionError("an error that was raised before is passed over")  # pragma: no cover
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

    def _store(self) -> Iterator[Buffer]:
        """Each piece, once it is stored."""
        head = bytearray()
        while len(head) <= IN_MEMORY and (piece := self._source.read(IN_MEMORY)):
            self._budget.charge(len(piece), "The body")
            head += piece
            yield piece
        if len(head) <= IN_MEMORY:
            self._whole = MemoryFile(head)
            return
        spooled = self._resources.enter_context(self._spool.open_share())
        with waiting():  # disks are slow
            spooled.append(head)
        self._budget.release(len(head))
        head = bytearray()
        while piece := self._source.read(IN_MEMORY):
            with waiting():
                spooled.append(piece)
            yield piece
        self._budget.spooled = spooled.size
        self._whole = spooled
