"""A file of a published version, read where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....errors import CorruptData, UnprocessableInput
from ....runtime.segments import Segment
from ....storage.object_store import ObjectNotFound, ObjectStore

#: Long enough for a slow client to fetch the largest shard: 1 GiB at 2.5 Mbit/s.
_SIGNED_FOR_S: Final = 3600


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A `SegmentedFile` of one segment, with its SHA-256 in hex."""

    size: int
    sha256: str
    media_type: str
    _store: ObjectStore
    _key: str

    @property
    def segments(self) -> tuple[Segment, ...]:
        return (Segment(0, self.size, self.sha256),)

    def read_at(self, offset: int, n: int, /) -> bytes:
        """Exactly `n` bytes from `offset`; fewer only where the file ends.

        Raises:
            CorruptData: the store has fewer bytes than the manifest says.
        """
        n = max(0, min(n, self.size - offset))
        return read_stored(self._store, self._key, offset, n)

    def sign(self) -> str:
        """A URL by which anyone may get the file from the store itself, for an hour.

        Raises:
            UnprocessableInput: the store has no such thing (`cannot_sign`).
        """
        url = self._store.sign(self._key, _SIGNED_FOR_S)
        if url is None:
            raise UnprocessableInput(
                "This service's store has no signed URLs. Leave out redirect=signed.", code="cannot_sign"
            )
        return url


def read_stored(store: ObjectStore, key: str, offset: int, n: int) -> bytes:
    """Exactly `n` bytes of an object, which has them.

    Raises:
        CorruptData: it has not.
    """
    try:
        data = store.get_range(key, offset, n)
    except ObjectNotFound as error:
        raise CorruptData(f"{key} is missing.") from error
    if len(data) != n:
        raise CorruptData(f"{key} is shorter than what is on record.")
    return bytes(data)
