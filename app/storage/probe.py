"""Check a store: at start whether it honours create-only puts, and later whether writes succeed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ..errors import StorageError, StorageUnavailable
from ..runtime.turns import pause
from .create_once import PROBE_PREFIX, new_nonce
from .object_store import AlreadyExists, ObjectStore

#: Creators that race for one key; a store that checks and then writes lets several of them win.
_RACERS: Final = 16
#: How long a create is repeated while the store is busy; a create itself repeats nothing.
_RETRY_FOR_S: Final = 2.0
_WAIT_S: Final = 0.2


def probe_store(store: ObjectStore) -> None:
    """Check that of several creates of one fresh key at most one succeeds, and that it is kept.

    Raises:
        StorageUnavailable: the store cannot be reached.
        StorageError: it does not honour create-only puts (`unsafe_store`).
    """
    key = f"{PROBE_PREFIX}/{new_nonce()}"
    bodies = [f"{racer}:{new_nonce()}".encode() for racer in range(_RACERS)]
    try:
        _check(store, key, bodies)
    finally:
        with contextlib.suppress(StorageError):
            store.delete(key)


class WriteProbe:
    """Creates one small object and deletes it, each time it is asked to.

    The name is this probe's own, so several processes do not meet. It is always the same, so where
    deletion is denied one object is left, not one for each try.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._key = f"{PROBE_PREFIX}/{new_nonce()}"

    def try_write(self) -> None:
        """Create the object and delete it.

        Raises:
            StorageError: the write was refused, or failed.
        """
        _creates(self._store, self._key, b"probe")  # False, already there, is a permitted write too
        with contextlib.suppress(StorageError):
            self._store.delete(self._key)


def _check(store: ObjectStore, key: str, bodies: Sequence[bytes]) -> None:
    with ThreadPoolExecutor(len(bodies), thread_name_prefix="probe-store") as pool:
        won = list(pool.map(lambda body: _creates(store, key, body), bodies))
    winners = [body for body, first in zip(bodies, won, strict=True) if first]
    if len(winners) > 1 or _creates(store, key, b"late"):
        raise _unsafe("several creators of one object were all told that they had created it")
    stored = store.get(key)
    # No winner at all is fine: the one whose answer was lost finds its own object on the retry.
    if stored not in (winners or bodies):
        raise _unsafe("an object that was created is not the one that is stored")


def _creates(store: ObjectStore, key: str, body: bytes) -> bool:
    give_up = time.monotonic() + _RETRY_FOR_S
    while True:
        try:
            return _creates_at_once(store, key, body)
        except StorageUnavailable:
            if time.monotonic() > give_up:
                raise
        pause(_WAIT_S)


def _creates_at_once(store: ObjectStore, key: str, body: bytes) -> bool:
    try:
        store.create(key, body)
    except AlreadyExists:
        return False
    return True


def _unsafe(what: str) -> StorageError:
    return StorageError(
        f"This store does not honour create-only puts (If-None-Match: *): {what}. Appends could be "
        f"lost on it; use one that does, such as S3, Google Cloud Storage, Azure or a local folder.",
        code="unsafe_store",
    )
