"""The datasets of a store without a service: for the command line, and the processes of imports."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import NotFound, StorageError
from .resources import available_processors, memory_for_requests
from .runtime.memory import MemoryPool
from .runtime.spool import Spool
from .services.datasets.datasets import Datasets
from .services.datasets.imports.imports import Imports
from .settings import Settings, SettingsError, read_settings, refuse_unknown
from .storage.obstore_store import local_path, open_store


@dataclass(frozen=True, slots=True)
class Local:
    """What is opened.

    Attributes:
        datasets: of the store.
        imports: into them; any source is allowed that this process can read.
    """

    settings: Settings
    datasets: Datasets
    imports: Imports


def open_local(given: Mapping[str, Any], processes: int = 1, *, creates: bool = True) -> Local:
    """Open the store that the environment names.

    Args:
        given: settings that take precedence over the environment.
        processes: that share the memory of this machine.
        creates: a folder that is not there is made; else a mistyped name would seem to be an empty store.

    Raises:
        CannotStart: the settings cannot be used.
        NotFound: there is no such folder.
    """
    refuse_unknown(os.environ)
    settings = read_settings(**given)
    try:
        is_folder = settings.storage_url.startswith("file://")
        if not creates and is_folder and not (folder := local_path(settings.storage_url)).is_dir():
            raise NotFound(f"There is no store at {str(folder)!r}. Check the name; `put` makes a new one.")
        store = open_store(settings.storage_url)
    except StorageError as error:
        raise SettingsError(f"SHARDSMITH_STORAGE_URL: {error}") from error
    spool = Spool(settings.spool_dir, settings.spool_max_bytes // processes)
    memory = MemoryPool((settings.memory_bytes or memory_for_requests(workers=processes)) // processes)
    datasets = Datasets(store, limits=settings.limits, spool=spool, memory=memory, publish_wait_s=sys.maxsize)
    imports = Imports(datasets, limits=settings.limits, spool=spool, memory=memory)
    return Local(settings, datasets, imports)


def url_of(given: str) -> str:
    """A folder or a file that somebody named as a path, as a URL; a URL stays as it is."""
    return given if "://" in given else Path(given).absolute().as_uri()


@dataclass(frozen=True, slots=True)
class OpenImports:
    """Opens the store in a process that does ranges of an import; it can be sent there.

    Attributes:
        given, processes: as of `open_local`.
    """

    given: tuple[tuple[str, Any], ...] = field(repr=False)
    processes: int

    @classmethod
    def of(cls, given: Mapping[str, Any], processes: int) -> OpenImports:
        return cls(tuple(given.items()), processes)

    def __call__(self) -> Imports:
        return open_local(dict(self.given), self.processes).imports


def default_processes() -> int:
    """One a processor."""
    return available_processors()
