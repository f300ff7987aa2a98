"""Create-only puts with a definite outcome, and the store's own clock."""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from ..errors import OutcomeUnknown, StorageError, StorageUnavailable
from ..runtime.turns import pause
from ..telemetry.metrics import STORE_RETRIES
from .object_store import AlreadyExists, ObjectNotFound, ObjectStore

#: Objects that live for a moment; no dataset's name begins with an underscore.
PROBE_PREFIX: Final = "_probe"
#: How long creates are repeated while the outcome is unknown, not counting the last operation's own deadline.
_DEADLINE_S: Final = 15.0
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0


def new_nonce() -> str:
    """128 random bits that tell one writer's object from another's."""
    return secrets.token_hex(16)


def create_once(
    store: ObjectStore,
    key: str,
    data: bytes,
    *,
    deadline_s: float = _DEADLINE_S,
    sleep: Callable[[float], None] = pause,
) -> bytes | None:
    """Create `key` with `data`, which contains a nonce. Return None if we created it, else what is there.

    A put that was applied but answered with an error comes back as `AlreadyExists` on its own
    repetition, so what is stored is compared. After an error of unknown outcome, or a conflict
    that cannot be read back, the same create is repeated: only an answer is proof, never an
    absence, and no later refusal takes back what an earlier try may have stored.

    Raises:
        OutcomeUnknown: still no definite answer at the deadline; it may yet be stored.
        StorageError, ObjectNotFound: the first try was refused for good; nothing is stored.
    """
    give_up = time.monotonic() + deadline_s
    wait = _FIRST_WAIT_S
    uncertain = False
    while True:
        try:
            store.create(key, data)
            return None
        except AlreadyExists as error:
            cause: Exception = error
            uncertain = True
            with contextlib.suppress(ObjectNotFound, StorageError):
                stored = store.get(key)
                if stored == data:
                    return None
                if store.get(key) == stored:  # twice: wrong bytes must not pass for another's object
                    return stored
        except StorageUnavailable as error:
            cause, uncertain = error, True
        except (ObjectNotFound, StorageError) as error:
            if not uncertain:
                raise
            cause = error
        if time.monotonic() + wait > give_up:
            raise OutcomeUnknown(
                "The store did not confirm the write in time; it may or may not have been stored. "
                "Repeat the request with the same key."
            ) from cause
        STORE_RETRIES.inc()
        sleep(wait * random.uniform(0.5, 1))  # noqa: S311  # jitter, not a secret
        wait = min(2 * wait, _LONGEST_WAIT_S)


def store_time(store: ObjectStore) -> datetime:
    """The current time by the store's clock: the modification time of a fresh object."""
    key = f"{PROBE_PREFIX}/{new_nonce()}"
    store.put(key, b"")
    try:
        return store.head(key).last_modified
    finally:
        with contextlib.suppress(StorageError):
            store.delete(key)
