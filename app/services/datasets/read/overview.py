"""What there is to see of datasets at a glance: what their latest versions hold, and how they grew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ....domain.manifest import Manifest
from ....errors import CorruptData, NotFound
from ....storage.object_store import ObjectNotFound
from ..objects.dataset import Backend, Dataset
from ..pieces.run_ahead import map_in
from .reader import Reader


@dataclass(frozen=True, slots=True)
class Summary:
    """A dataset in one line.

    Attributes:
        latest: its latest version; None where nothing is published yet.
        is_damaged: what is stored of it cannot be read.
    """

    name: str
    description: str = ""
    latest: Manifest | None = None
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """A published version, and when it was published, by the store's clock."""

    manifest: Manifest
    time: datetime


def summarize(backend: Backend, names: Sequence[str]) -> list[Summary]:
    """Each of the datasets; one that was deleted meanwhile is left out."""
    found = map_in(backend.pool, lambda name: _summary(backend, name), names)
    return [summary for summary in found if summary is not None]


def _summary(backend: Backend, name: str) -> Summary | None:
    try:
        dataset = backend.open(name)
    except NotFound:
        return None
    except CorruptData:
        return Summary(name, is_damaged=True)
    description = dataset.options.description
    try:
        return Summary(name, description, Reader(dataset).manifest("latest"))
    except NotFound:
        return Summary(name, description)
    except CorruptData:
        return Summary(name, description, is_damaged=True)


def read_history(dataset: Dataset, most: int) -> tuple[list[Published], bool]:
    """The newest versions, newest first, `most` of them; and whether there are older ones."""
    newest = dataset.log.newest()
    reader = Reader(dataset)
    first = max(1, newest - most + 1)

    def read(n: int) -> Published | None:
        manifest = reader.read_published(n)
        if manifest is None:
            return None
        try:
            return Published(manifest, dataset.store.head(dataset.layout.manifest(n)).last_modified)
        except ObjectNotFound:  # deleted meanwhile
            return None

    found = map_in(dataset.pool, read, range(newest, first - 1, -1))
    return [published for published in found if published is not None], first > 1
