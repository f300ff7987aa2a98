"""The memory that a publication works in, taken before it begins: what it has done shall not be in vain."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Final

from ....domain.limits import MIB
from ....runtime.memory import MemoryPool

#: Measured: it grows by some 130 MiB. At most it has two parts of 16 MiB that are uploaded and one that is
#: filled (`obstore_store.py`), each beside the pieces that it is made of; 32 MiB that are read ahead and a
#: part that is read (`stream.py`); pieces of 4 MiB that are hashed or cut (`seal.py`).
ROOM_BYTES: Final = 160 * MIB
#: A shuffle gathers and orders batches of 16 MiB and buckets of 32 MiB (`shuffle_pass.py`).
_SHUFFLE_BYTES: Final = 96 * MIB
#: Records that are encoded anew are held as blocks, columns and blocks again; of fixed shape, a batch takes
#: 16 MiB (`codecs/messages/examples/read.py`).
_REENCODE_BYTES: Final = 64 * MIB
#: An integer of one byte becomes a float of four; a record is held as columns, too.
_GROWN: Final = 8
#: A record that takes several pieces is held twice while it is read, and twice more to be shuffled.
_HELD: Final = 2


class Room:
    """Memory for one publication: what every one needs at first, and what its records take beyond.

    It lives until all who hold it have ended it, as its publication outlives the request.

    Raises:
        Overloaded: there is none.
    """

    def __init__(self, memory: MemoryPool) -> None:
        self._share = memory.share()
        self._further = 0
        self._share.reserve(ROOM_BYTES)

    @property
    def num_bytes(self) -> int:
        """What it has of the memory; 0 once it has ended."""
        return self._share.held

    def __enter__(self) -> Room:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def require_for(self, longest_records: Iterable[int], *, shuffled: bool, reencoded: bool = False) -> None:
        """See that there is room for records up to these lengths, in bytes, before they are read.

        Raises:
            Overloaded: there is none.
        """
        longest = max(longest_records, default=0)
        needed = _HELD * longest + (_SHUFFLE_BYTES + _HELD * longest if shuffled else 0)
        needed += _REENCODE_BYTES + _GROWN * longest if reencoded else 0
        if needed > self._further:
            self._share.reserve(needed - self._further)
            self._further = needed

    def retain(self) -> Room:
        """This room, with one holder more."""
        self._share.retain()
        return self

    def end(self) -> None:
        """One holder less."""
        self._share.end()
