"""Imports that the service runs for requests: each in a thread of some replica.

For each import under way there is an object below `_imports/`, which the replica that runs it writes again
and again. Where that stays as it is, the replica is gone, or cannot go on: then another one does. Two that
run the same import do no harm, since each range is appended once.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Final

from ....errors import InputError, NotFound, Overloaded, ShardsmithError
from ....storage.create_once import new_nonce
from ....storage.object_store import ObjectInfo, ObjectStore
from .drive import drive
from .engines import HereEngine
from .imports import Imports

logger = logging.getLogger(__name__)

#: At a time, half of them for one caller; further ones are refused. Each appends one range after the other.
_CAPACITY: Final = 4
#: Who asks for what another replica has left.
_LEFT: Final = "left by another replica"
#: Between two looks at what others run, each of which says what is run here.
EVERY_S = 30.0
#: So long the object of an import stays as it is before another replica goes on: three looks, and some more.
SILENT_S = 120.0
_STOPS_WITHIN_S: Final = 2.0
_FOLDER: Final = "_imports"

#: A dataset, and the id of an import into it.
_Run = tuple[str, str]


class ImportRuns:
    """Runs imports, and goes on with those that others have left. Safe to use from several threads.

    Args:
        imports: what does the work.
        store: of the datasets.
        clock: seconds that pass; no other replica has to have the same.
    """

    def __init__(
        self, imports: Imports, store: ObjectStore, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._imports = imports
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        #: With whom each is counted.
        self._running: dict[_Run, str] = {}
        #: Of these, the ones that were to go on while they may have been at their end.
        self._again: set[_Run] = set()
        #: What others run: how its object looked, and when it began to.
        self._others: dict[_Run, tuple[object, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="imports", daemon=True)

    @property
    def num_running(self) -> int:
        """Imports under way."""
        return len(self._running)

    def under_way(self) -> Sequence[_Run]:
        """The dataset and the id of each import under way, of all replicas.

        Raises:
            StorageError: they cannot be seen.
        """
        return sorted(run for run, _ in self._listed())

    def begin(self) -> None:
        """Look after imports from now on, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Leave what is under way to others, which go on with it at once."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOPS_WITHIN_S)
        for run in tuple(self._running):
            with suppress(ShardsmithError):
                self._store.put(_key(run), b"")

    def require_room(self, caller: str) -> None:
        """Refuse an import before anything is done for it.

        Raises:
            Overloaded: too many are under way, or too many of this caller (`too_many_imports`).
        """
        callers = list(self._running.values())
        if len(callers) >= _CAPACITY or callers.count(caller) >= _CAPACITY // 2:
            raise Overloaded(
                f"{_CAPACITY} imports run in this replica, or {_CAPACITY // 2} of yours. Try again.",
                code="too_many_imports",
                short="imports",
            )

    def start(self, dataset: str, import_id: str, caller: str) -> None:
        """Go on with an import; one that this replica is at goes on once more at its end.

        Raises:
            Overloaded: too many are under way, or too many of this caller (`too_many_imports`).
            StorageError: it could not be said that the import is under way.
        """
        run = (dataset, import_id)
        with self._lock:
            if run in self._running:
                self._again.add(run)
                return
            self.require_room(caller)
            self._running[run] = caller
        work = partial(copy_context().run, self._run, run)
        try:
            self._say(run)
            # A daemon: on shutdown it just dies.
            threading.Thread(target=work, name=f"import-{dataset}", daemon=True).start()
        except BaseException:  # also where the system gives no more threads
            with self._lock:
                self._running.pop(run, None)
                self._again.discard(run)
            raise

    def _run(self, run: _Run) -> None:
        while True:
            if self._drive(run):
                # As long as it counts as running: who starts it behind that says so anew.
                self._forget(run)
            with self._lock:
                if run not in self._again:
                    self._running.pop(run, None)
                    return
                self._again.discard(run)
            with suppress(ShardsmithError):  # the next look says it
                self._say(run)

    def _drive(self, run: _Run) -> bool:
        """Whether nobody has to go on with it."""
        dataset, import_id = run
        try:
            drive(self._imports, dataset, import_id, HereEngine(self._imports))
        except ShardsmithError as error:
            logger.warning("import %s into %s stopped: %s", import_id, dataset, error.detail)
            # What is wrong with what was asked for stays wrong; else it is tried again, here or elsewhere.
            return isinstance(error, InputError)
        except Exception:
            logger.exception("import %s into %s stopped", import_id, dataset)
        return True

    def look(self) -> None:
        """Say what is run here, and go on with what others have left.

        Raises:
            StorageError: it cannot be said, or seen.
        """
        for run in tuple(self._running):
            self._say(run)
        now = self._clock()
        others: dict[_Run, tuple[object, float]] = {}
        for run, info in self._listed():
            if run in self._running:
                continue
            state = (info.last_modified, info.etag, info.size)
            known = self._others.get(run)
            since = now if known is None or known[0] != state else known[1]
            others[run] = (state, since)
            if not info.size or now - since >= SILENT_S:
                self._take_over(run)
        self._others = others

    def _take_over(self, run: _Run) -> None:
        dataset, import_id = run
        try:
            if self._imports.follow(dataset, import_id).has_ended:
                self._forget(run)
            elif self._imports.may_read(dataset, import_id):  # else those that may have to
                self.start(dataset, import_id, _LEFT)
                logger.info("going on with import %s into %s", import_id, dataset)
        except NotFound:  # its dataset was deleted
            self._forget(run)
        except Overloaded:
            pass  # others have room, or this replica the next time

    def _keep(self) -> None:
        # Replicas that started together do not look together.
        while not self._stop.wait(EVERY_S * random.uniform(0.5, 1.0)):  # noqa: S311  # jitter, not a secret
            try:
                self.look()
            except ShardsmithError as error:
                logger.warning("imports of others cannot be seen: %s", error.detail)
            except Exception:
                logger.exception("imports of others cannot be seen")

    def _say(self, run: _Run) -> None:
        self._store.put(_key(run), new_nonce().encode("ascii"))

    def _forget(self, run: _Run) -> None:
        with suppress(ShardsmithError):
            self._store.delete(_key(run))

    def _listed(self) -> Iterator[tuple[_Run, ObjectInfo]]:
        for info in self._store.list(_FOLDER):
            parts = info.key.split("/")
            if len(parts) == 3:
                yield (parts[1], parts[2]), info


def _key(run: _Run) -> str:
    dataset, import_id = run
    return f"{_FOLDER}/{dataset}/{import_id}"
