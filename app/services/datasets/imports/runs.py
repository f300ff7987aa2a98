"""Imports that this replica runs for requests: each in a thread of its own, as long as the replica lives.

Nothing is lost with it: the same request at any replica goes on with what is left.
"""

from __future__ import annotations

import logging
import threading
from contextvars import copy_context
from functools import partial
from typing import Final

from ....errors import Overloaded, ShardsmithError
from .drive import drive
from .engines import HereEngine
from .imports import Imports

logger = logging.getLogger(__name__)

#: At a time; further ones are refused. Each reads and appends one range after the other.
_CAPACITY: Final = 4


class ImportRuns:
    """Runs imports. Safe to use from several threads."""

    def __init__(self, imports: Imports) -> None:
        self._imports = imports
        self._lock = threading.Lock()
        self._running: set[tuple[str, str]] = set()

    @property
    def num_running(self) -> int:
        """Imports under way."""
        return len(self._running)

    def require_room(self) -> None:
        """Refuse an import before anything is done for it.

        Raises:
            Overloaded: too many are under way (`too_many_imports`).
        """
        if len(self._running) >= _CAPACITY:
            raise Overloaded(
                f"{_CAPACITY} imports are under way in this replica. Try again.",
                code="too_many_imports",
                short="imports",
            )

    def start(self, dataset: str, import_id: str) -> None:
        """Go on with an import, unless this replica is at it.

        Raises:
            Overloaded: too many are under way (`too_many_imports`).
        """
        run = (dataset, import_id)
        with self._lock:
            if run in self._running:
                return
            self.require_room()
            self._running.add(run)
        work = partial(copy_context().run, self._run, dataset, import_id)
        try:
            # A daemon: on shutdown it just dies.
            threading.Thread(target=work, name=f"import-{dataset}", daemon=True).start()
        except RuntimeError:  # the system gives no more threads
            self._running.discard(run)
            raise

    def _run(self, dataset: str, import_id: str) -> None:
        try:
            drive(self._imports, dataset, import_id, HereEngine(self._imports))
        except ShardsmithError as error:
            logger.warning("import %s into %s stopped: %s", import_id, dataset, error.detail)
        except Exception:
            logger.exception("import %s into %s stopped", import_id, dataset)
        finally:
            self._running.discard((dataset, import_id))
