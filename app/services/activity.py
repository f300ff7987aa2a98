"""What goes on: publications of this process, and imports of all replicas.

One look at the store serves all who ask within a second. Without anybody who asks there is none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ..domain.manifest import Manifest
from ..errors import Conflict, CorruptData, NotFound
from .datasets.datasets import Datasets
from .datasets.imports.imports import Imports
from .datasets.imports.runs import ImportRuns
from .datasets.imports.status import ImportStatus
from .datasets.publish.progress import Progress

#: Between two looks at the store, at least.
EVERY_S: Final = 1.0
#: What has ended is seen for so long, if it was seen before.
KEPT_S: Final = 60.0
#: Publications, and imports, that are followed: each takes some requests to the store.
MOST: Final = 40

#: A dataset, and the version or the import.
_Key = tuple[str, str]
_Followed = TypeVar("_Followed")


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication as it is now.

    Attributes:
        version: None until it is fixed.
        progress: None until it is planned, and once it has ended.
        end: `published` or `given up`; empty as long as it goes on.
    """

    dataset: str
    version: str | None
    progress: Progress | None = None
    end: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What goes on, and what has just ended.

    Attributes:
        running: the dataset and the id of each import that some replica runs.
    """

    publications: Sequence[Publication]
    imports: Sequence[ImportStatus]
    running: Sequence[_Key]


class Activity:
    """Looks at what goes on. Safe to use from several threads.

    Args:
        clock: seconds.
    """

    def __init__(
        self,
        datasets: Datasets,
        imports: Imports,
        runs: ImportRuns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._datasets = datasets
        self._runs = runs
        self._clock = clock
        self._lock = threading.Lock()
        self._looked = -EVERY_S
        self._seen = Seen([], [], [])
        self._publications = _Recent(self._follow)
        self._imports = _Recent(imports.follow)

    def look(self) -> Seen:
        """What is seen now, or was a second ago.

        Raises:
            StorageError: it cannot be seen.
        """
        with self._lock:
            now = self._clock()
            if now - self._looked >= EVERY_S:
                under_way = self._datasets.publications()
                fixed = [(dataset, version) for dataset, version in under_way if version is not None]
                unfixed = [Publication(dataset, None) for dataset, version in under_way if version is None]
                running = self._runs.under_way()
                publications = [*unfixed, *self._publications.see(fixed, now)]
                self._seen = Seen(publications, self._imports.see(running, now), running)
                self._looked = now
            return self._seen

    def _follow(self, dataset: str, version: str) -> Publication:
        try:
            found = self._datasets.follow(dataset, version)
        except Conflict:
            return Publication(dataset, version, end="given up")
        if isinstance(found, Manifest):
            return Publication(dataset, version, end="published")
        return Publication(dataset, version, found)


@dataclass(frozen=True, slots=True)
class _Sight(Generic[_Followed]):
    value: _Followed
    goes_on: bool
    seen: float


class _Recent(Generic[_Followed]):
    """Follows what goes on, looks once more when it has ended, and keeps that for a while."""

    def __init__(self, follow: Callable[[str, str], _Followed]) -> None:
        self._follow = follow
        self._kept: dict[_Key, _Sight[_Followed]] = {}

    def see(self, under_way: Collection[_Key], now: float) -> list[_Followed]:
        """What goes on, then what has ended, each by name."""
        kept = {key: each for key, each in self._kept.items() if now - each.seen <= KEPT_S}
        going_on = sorted(under_way)[:MOST]
        for key in {*going_on, *(key for key, each in kept.items() if each.goes_on)}:
            kept.pop(key, None)
            with suppress(NotFound, CorruptData):  # deleted, or not to be read
                kept[key] = _Sight(self._follow(*key), key in going_on, now)
        self._kept = kept
        return [kept[key].value for key in sorted(kept, key=lambda key: (not kept[key].goes_on, key))]
