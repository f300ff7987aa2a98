"""Whether this process can serve: kernels compiled, object store reachable and trustworthy."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ..codecs import kernels
from ..errors import ShardsmithError, StorageUnavailable
from ..storage.object_store import ObjectStore
from ..storage.probe import probe_store

__all__ = ["Check", "Readiness"]

logger = logging.getLogger(__name__)

#: Between two looks at a store that answered, and at one that did not.
_TRUSTED_FOR_S: Final = 5.0
_RETRY_AFTER_S: Final = 1.0
_STOPS_WITHIN_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Check:
    """One condition of readiness; `detail` says what is missing, `code` names it where it has one."""

    ok: bool
    detail: str
    code: str | None = None


class Readiness:
    """Warms up in a thread of its own; answers from memory, so that a probe never waits for the store."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        warm: Callable[[], object] = kernels.load,
        warmed: Callable[[], object] = lambda: None,
        further: Mapping[str, Callable[[], Check]] | None = None,
    ) -> None:
        self._store = store
        self._further = dict(further or {})
        self._warm = warm
        self._warmed = warmed
        self._kernels = Check(False, "kernels are being compiled")
        self._storage = Check(False, "the object store has not been probed yet")
        self._stop = threading.Event()
        self._leaving = False
        self._trusted = False
        self._threads = [
            threading.Thread(target=self._warm_kernels, name="warm-kernels", daemon=True),
            threading.Thread(target=self._watch_store, name="watch-store", daemon=True),
        ]

    def start(self) -> None:
        """Begin warming up."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the watch over the store, so that no thread is inside it when the process exits."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_STOPS_WITHIN_S)

    def leave(self) -> None:
        """Not ready any more, whatever the checks say: the process is about to end."""
        self._leaving = True

    @property
    def started(self) -> bool:
        """Whether start-up is over: kernels warm and the store once seen to be trustworthy."""
        return self._kernels.ok and self._trusted

    def checks(self) -> dict[str, Check]:
        """Every condition as it was last seen, a few seconds ago at most."""
        further = {name: check() for name, check in self._further.items()}
        if self._leaving:
            further["shutdown"] = Check(False, "the process is about to end", "shutting_down")
        return {"kernels": self._kernels, "storage": self._storage, **further}

    def _warm_kernels(self) -> None:
        try:
            started = time.monotonic()
            self._warm()
            self._warmed()
            logger.info("kernels warm after %.2f s", time.monotonic() - started)
            self._kernels = Check(True, "warm")
        except Exception as error:
            logger.exception("kernels cannot be compiled")
            self._kernels = Check(False, f"kernels cannot be compiled: {type(error).__name__}")

    def _watch_store(self) -> None:
        """Probe once for conditional creates, then look again every few seconds."""
        look: Callable[[], None] = self._probe
        while not self._stop.is_set():
            try:
                look()
                self._storage = Check(True, "reachable")
                look, self._trusted = self._reach, True
            except ShardsmithError as error:
                if self._storage.code != error.code:  # the detail names another object each time
                    logger.error("storage is not ready: %s: %s", error.code, error.detail)
                self._storage = Check(False, error.detail, error.code)
            except Exception:
                logger.exception("the object store could not be probed")
                self._storage = Check(False, "the probe failed unexpectedly; see the log")
            self._stop.wait(_TRUSTED_FOR_S if self._storage.ok else _RETRY_AFTER_S)

    def _probe(self) -> None:
        probe_store(self._store)

    def _reach(self) -> None:
        try:
            next(iter(self._store.list_children("")), None)
        except OSError as error:
            raise StorageUnavailable("The object store cannot be reached.") from error
