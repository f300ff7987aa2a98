"""What an object store has to offer: put, create-only put, get, range, head, list, delete. Nothing else.

There is no compare-and-swap and no rename here, because the local store has neither; the storage
protocol is built from create-only puts alone. All calls block; they are made from worker threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ..errors import NotFound, StorageError
from ..runtime.streams import Buffer


class AlreadyExists(StorageError):
    """`create` found an object under that key, which may be the caller's own; see `create_once`."""

    code = "object_exists"


class ObjectNotFound(NotFound):
    """There is no object under that key."""

    code = "object_not_found"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says about an object without reading it.

    Attributes:
        key: full key, no leading slash.
        size: in bytes.
        last_modified: by the store's clock, with a time zone.
        etag: the store's own; it may change when identical bytes are written again.
    """

    key: str
    size: int
    last_modified: datetime
    etag: str | None


class ObjectStore(Protocol):
    """An object store. Keys are relative, `/`-separated, ASCII. Every method may raise `StorageError`.

    Data given as bytes or as a read-only view may be kept: nothing may write to its memory any more.
    """

    def put(self, key: str, data: Buffer) -> None:
        """Store `data` in one request, over whatever is there."""
        ...

    def create(self, key: str, data: Buffer) -> None:
        """Store `data` in one request unless the key is taken; at most one creator succeeds.

        The request is sent once: what it raises is about that, and no earlier try.

        Raises:
            AlreadyExists: the key is taken, or seems to be: see `create_once`.
            StorageUnavailable: it may or may not have been stored.
            StorageError: refused for good; it is not stored.
        """
        ...

    def put_stream(self, key: str, chunks: Iterable[Buffer]) -> int:
        """Store the chunks one after the other and return their size in bytes.

        The object appears whole at the end or not at all. A chunk that can be written to is copied before
        the next is drawn; an error that drawing one raises abandons the upload and passes through.
        """
        ...

    def get(self, key: str) -> bytes:
        """All bytes of a small object.

        Raises:
            ObjectNotFound: no such object.
        """
        ...

    def get_range(self, key: str, offset: int, length: int) -> Buffer:
        """`length` bytes from `offset`; fewer, or none, only where the object ends.

        Raises:
            ObjectNotFound: no such object.
        """
        ...

    def read_into(self, key: str, offset: int, target: memoryview) -> int:
        """Read a large range into `target`, and return how many bytes there were.

        Raises:
            ObjectNotFound: no such object.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """What the store knows about an object.

        Raises:
            ObjectNotFound: no such object.
        """
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object below the folder `prefix`, however deep, in no particular order."""
        ...

    def list_children(self, prefix: str) -> Sequence[str]:
        """The names of the folders directly below the folder `prefix`, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Store the bytes of `source` as `target`, over whatever is there, in bounded memory.

        The store does it by itself where it does so reliably; otherwise they pass through here.

        Raises:
            ObjectNotFound: no such source.
        """
        ...

    def sign(self, key: str, expires_s: int) -> str | None:
        """A URL by which anyone can get the object for that long; None if the store has no such URLs."""
        ...

    def sweep(self, prefix: str, before: datetime) -> int:
        """Remove uploads below the folder `prefix` that were begun before then and never completed.

        They hold room that no listing shows. Returns how many there were: on Google Cloud Storage and
        Azure always 0. Set a lifecycle rule there that aborts multipart uploads (Google); blocks that
        were never committed go after a week by themselves (Azure).
        """
        ...


def exists(store: ObjectStore, key: str) -> bool:
    """Whether there is an object."""
    try:
        store.head(key)
    except ObjectNotFound:
        return False
    return True
