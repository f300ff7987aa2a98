"""Whether this process can serve: kernels compiled, object store trustworthy, spool and store writable."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Final

from ..codecs import kernels
from ..errors import ShardsmithError, StorageUnavailable
from ..runtime.spool import Spool
from ..storage.object_store import ObjectStore
from ..storage.probe import WriteProbe, probe_store

logger = logging.getLogger(__name__)

#: Between two looks at what was well, and at what was not.
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
        spool: Spool,
        *,
        warm: Callable[[], object] = kernels.compile_all,
        warmed: Callable[[], object] = lambda: None,
        further: Mapping[str, Callable[[], Check]] | None = None,
    ) -> None:
        self._further = dict(further or {})
        self._warm = warm
        self._warmed = warmed
        self._kernels: Check | None = None
        self._leaving = False
        self._stop = stop = threading.Event()
        writes = WriteProbe(store)
        self._storage = _Watch(
            "storage", stop, lambda: probe_store(store), [lambda: _list(store), writes.try_write]
        )
        self._spool = _Watch("spool", stop, spool.check, [spool.check])
        self._threads = [
            threading.Thread(target=self._warm_kernels, name="warm-kernels", daemon=True),
            # A store that hangs does not keep the watch over the spool waiting.
            threading.Thread(target=self._storage.run, name="watch-storage", daemon=True),
            threading.Thread(target=self._spool.run, name="watch-spool", daemon=True),
        ]

    def start(self) -> None:
        """Begin warming up."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the watches, so that no thread is inside the store when the process exits."""
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
        return self._kernels is not None and self._kernels.ok and self._storage.was_well

    def checks(self) -> dict[str, Check]:
        """Every condition as it was last seen, a few seconds ago at most."""
        further = {name: check() for name, check in self._further.items()}
        if self._leaving:
            further["shutdown"] = Check(False, "the process is about to end", "shutting_down")
        return {
            "kernels": self._kernels or Check(False, kernels.progress()),
            "storage": self._storage.check,
            "spool": self._spool.check,
            **further,
        }

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


class _Watch:
    """Looks at one thing every few seconds.

    Args:
        name: of the check.
        stop: ends it.
        first: the look that has to pass before all others.
        looks: taken in turn afterwards; one that fails is repeated until it passes, so that another that
            passes meanwhile does not hide it.
    """

    def __init__(
        self, name: str, stop: threading.Event, first: Callable[[], None], looks: Iterable[Callable[[], None]]
    ) -> None:
        self._name = name
        self._stop = stop
        self._looks = chain([first], cycle(looks))
        self.check = Check(False, "not looked at yet")
        #: Whether it has been well once.
        self.was_well = False

    def run(self) -> None:
        """Look until it is stopped."""
        look = next(self._looks)
        while not self._stop.is_set():
            try:
                look()
                self.check, self.was_well = Check(True, "well"), True
                look = next(self._looks)
            except ShardsmithError as error:
                if self.check.code != error.code:  # the detail names another object each time
                    logger.error("%s is not ready: %s: %s", self._name, error.code, error.detail)
                self.check = Check(False, error.detail, error.code)
            except Exception:
                logger.exception("%s could not be looked at", self._name)
                self.check = Check(False, "the look failed unexpectedly; see the log")
            self._stop.wait(_TRUSTED_FOR_S if self.check.ok else _RETRY_AFTER_S)


def _list(store: ObjectStore) -> None:
    try:
        next(iter(store.list_children("")), None)
    except OSError as error:
        raise StorageUnavailable("The object store cannot be reached.") from error
