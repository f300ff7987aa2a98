"""One attempt at an append at a time in this replica: a second one waits, and is refused in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ....errors import InProgress
from ....runtime.turns import pause

#: How long an append waits for another one with its key, which is about to end where its client has gone.
_PATIENCE_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.02


class KeyLocks:
    """Lets one thread at a time be at an append. Safe to use from several threads."""

    def __init__(self) -> None:
        self._slots: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, slot: str) -> Iterator[None]:
        """Hold the append that `slot` decides.

        If another attempt is under way, this waits a little for it to end: after a broken connection, the
        client is often back before the service has noticed.

        Raises:
            InProgress: it does not end (`append_in_progress`).
        """
        give_up = time.monotonic() + _PATIENCE_S
        while not self._take(slot):
            if time.monotonic() >= give_up:
                raise InProgress(
                    "Another request with this idempotency key is under way. Send it again once that has "
                    "ended; it then gets the same answer.",
                    code="append_in_progress",
                )
            pause(_LOOK_AGAIN_S)
        try:
            yield
        finally:
            with self._lock:
                self._slots.discard(slot)

    def _take(self, slot: str) -> bool:
        with self._lock:
            is_free = slot not in self._slots
            self._slots.add(slot)
        return is_free
