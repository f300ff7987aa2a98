"""Looks up in the background whether the append that has waited longest for a publication still waits."""

from __future__ import annotations

import logging
import threading
from typing import Final

from ...errors import Conflict, NotFound, ShardsmithError
from .objects.dataset import Backend
from .read.reader import Reader

logger = logging.getLogger(__name__)

_STOPS_WITHIN_S: Final = 2.0
_LOOK_EVERY_S: Final = 60.0
#: Datasets that one look asks the store about. The next look goes on with the rest.
_CHECKED_AT_ONCE: Final = 100


class UnpublishedWatch:
    """Keeps `Backend.unpublished` true: other replicas publish too, and tell this one nothing.

    Appends are noted there from `start` on.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._unpublished = backend.unpublished
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch-unpublished", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._unpublished.is_watched = True
        self._thread.start()

    def stop(self) -> None:
        """End, so that no thread is inside the store when the process exits."""
        self._stop.set()
        self._unpublished.changed.set()
        if self._thread.is_alive():
            self._thread.join(_STOPS_WITHIN_S)

    def look_once(self) -> None:
        """Ask the store whether the oldest append still waits; if not, about the next, until one does."""
        for _ in range(_CHECKED_AT_ONCE):
            found = self._unpublished.oldest()
            if found is None:
                return
            layout, first, last = found
            try:
                reader = Reader(self._backend.reopen(layout))
            except (Conflict, NotFound):  # it is deleted
                self._unpublished.forget_until(layout, last)
                continue
            if reader.has_consumed(last.append_id):
                self._unpublished.forget_until(layout, last)
            elif first != last and reader.has_consumed(first.append_id):
                self._unpublished.forget_until(layout, first)
            else:
                return

    def _work(self) -> None:
        while not self._stop.is_set():
            self._unpublished.changed.wait(_LOOK_EVERY_S)
            self._unpublished.changed.clear()
            if self._stop.is_set():
                return
            try:
                self.look_once()
            except ShardsmithError as error:
                logger.info("unpublished appends could not be looked up: %s", error.detail)
            except Exception:
                logger.exception("unpublished appends could not be looked up")
