"""A dataset to work on: one of its incarnations, and what its objects are reached by."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ....domain.schema import Schema
from ....runtime.spool import Spool
from ....storage.object_store import ObjectStore
from ..recent_appends import RecentAppends
from .catalog import Catalog
from .incarnation import Incarnation
from .layout import Layout
from .log import Decided, PublishLog
from .unpublished import Unpublished


@dataclass(frozen=True, slots=True)
class Backend:
    """What a replica reaches all datasets by. Safe to use from several threads.

    Attributes:
        store: has all objects.
        catalog: which datasets there are.
        pool: runs requests to the store side by side.
        spool: room on the local disk for what memory does not hold.
        decided: what was read of logs, and never changes.
        unpublished: appends that may be in no version yet.
        recent: what this replica has acknowledged lately.
    """

    store: ObjectStore
    catalog: Catalog
    pool: ThreadPoolExecutor
    spool: Spool
    decided: Decided = field(default_factory=Decided)
    unpublished: Unpublished = field(default_factory=Unpublished)
    recent: RecentAppends = field(default_factory=RecentAppends)

    def open(self, name: str) -> Dataset:
        """The dataset as it lives now.

        Raises:
            NotFound: there is none (`dataset_not_found`).
        """
        return Dataset(self, self.catalog.open(name))

    def reopen(self, layout: Layout) -> Dataset:
        """The dataset that was found before.

        Raises:
            Conflict: it was deleted meanwhile (`dataset_deleted`).
        """
        return Dataset(self, self.catalog.reopen(layout))

    def log(self, layout: Layout) -> PublishLog:
        """The log of an incarnation, which may never have begun."""
        return PublishLog(self.store, layout, self.decided)


class Dataset:
    """One incarnation of a dataset.

    Attributes:
        layout: names its objects.
        name: of the dataset.
        options: what it was created with.
        log: its plans and their verdicts.
        store, pool, spool: as in `Backend`.
        decided: as in `Backend`.
    """

    def __init__(self, backend: Backend, incarnation: Incarnation) -> None:
        self.layout = incarnation.layout
        self.name = incarnation.layout.dataset
        self.options = incarnation.options
        self.log = backend.log(incarnation.layout)
        self.store = backend.store
        self.pool = backend.pool
        self.spool = backend.spool
        self.decided = backend.decided
        self._catalog = backend.catalog
        self._incarnation = incarnation

    def schema(self) -> Schema | None:
        """The schema of every record that is stored by now; None until there is one. Asks the store."""
        return self._catalog.schema(self._incarnation)

    def require_alive(self) -> None:
        """Check that it was not deleted meanwhile.

        Raises:
            Conflict: it was (`dataset_deleted`).
        """
        self._catalog.reopen(self.layout)
