"""The list of datasets, and a page for each: what it holds, how it grew, what waits to be published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import Field

from ...domain.manifest import Manifest
from ...runtime.streams import ByteStream
from ...services.datasets.objects.slot import Commit
from ...services.datasets.read.overview import Published
from ..auth.principal import visible_to
from ..base_url import base_url
from ..execution.job import Answer, Job, Plan
from ..operation import Operation
from ..query.rows import NoQuery
from .charts import Bar, bars
from .features import describe_schema
from .rendering import page
from .versions import Totals, totals_of

router = APIRouter(include_in_schema=False, route_class=Operation)

_PER_PAGE: Final = 50
_VERSIONS: Final = 50
_WAITING: Final = 20


class ListQuery(NoQuery):
    """Which datasets are listed."""

    q: Annotated[str, Field(max_length=200, description="A part of the names.")] = ""
    first: Annotated[int, Field(ge=0, description="How many are passed over.")] = 0


@router.get("/ui")
@router.head("/ui")
def datasets_page(query: Annotated[ListQuery, Query()]) -> Plan:
    """All datasets that the caller may see."""

    def work(job: Job, _: ByteStream) -> Answer:
        names = visible_to(job.request.scope, job.services.datasets.list())
        wanted = [name for name in names if query.q.casefold() in name.casefold()]
        shown = wanted[query.first : query.first + _PER_PAGE]
        values = {
            "section": "datasets",
            "num_datasets": len(names),
            "num_found": len(wanted),
            "query": query.q,
            "first": query.first,
            "step": _PER_PAGE,
            "datasets": job.services.datasets.summarize(shown),
            "url": base_url(job.request),
        }
        return page("datasets.html", job, values)

    return Plan(work, "metadata")


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A version in the list of those of a dataset.

    Attributes:
        added: how many records more it holds than the version before; None where that is not known.
    """

    manifest: Manifest
    time: datetime
    totals: Totals
    added: int | None


@router.get("/ui/datasets/{dataset}")
@router.head("/ui/datasets/{dataset}")
def dataset_page(dataset: str) -> Plan:
    """A dataset: features, versions, growth, and appends that wait."""

    def work(job: Job, _: ByteStream) -> Answer:
        datasets = job.services.datasets
        info = datasets.get(dataset)
        published, has_older = datasets.history(dataset, _VERSIONS)
        versions = list(_lines(published, has_older=has_older))
        values = {
            "section": "datasets",
            "dataset": dataset,
            "info": info,
            "waiting": info.waiting.counts(),
            "appends": [_waiting(append) for append in info.waiting.appends[:_WAITING]],
            "versions": versions,
            "has_older": has_older,
            "growth": _growth(versions),
            "features": describe_schema(() if info.schema is None else info.schema.features),
        }
        return page("dataset.html", job, values)

    return Plan(work, "metadata")


def _lines(published: Sequence[Published], *, has_older: bool) -> Iterator[VersionLine]:
    totals = [totals_of(each.manifest) for each in published]
    before = [*(total.num_records for total in totals[1:]), None if has_older else 0]
    for each, total, earlier in zip(published, totals, before, strict=False):  # nothing is before nothing
        added = None if earlier is None else total.num_records - earlier
        yield VersionLine(each.manifest, each.time.astimezone(UTC), total, added)


def _growth(versions: Sequence[VersionLine]) -> list[Bar]:
    """Records of each version, oldest first."""
    oldest_first = versions[::-1]
    titles = [f"{line.manifest.version}: {line.totals.num_records:,} rows" for line in oldest_first]
    return bars([line.totals.num_records for line in oldest_first], titles)


@dataclass(frozen=True, slots=True)
class WaitingLine:
    """An append that waits to be published; nothing but the id is known of one that cannot be read."""

    append_id: str
    split: str
    num_records: int
    num_bytes: int
    time: datetime


def _waiting(append: Commit) -> WaitingLine:
    time = datetime.fromtimestamp(append.time / 1e9, UTC)
    return WaitingLine(append.append_id, append.split, append.num_records, append.num_bytes, time)
