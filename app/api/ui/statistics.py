"""The statistics of a version: of each feature of a split, also next to those of another split or version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from pydantic import Field

from ...domain.feature import Feature
from ...domain.manifest import Manifest
from ...runtime.streams import ByteStream
from ...services.convert.statistics import DetailedStatisticsJson
from ...services.datasets.version_statistics import Computing, VersionStatisticsJson, compare
from ..execution.job import Answer, Job, Plan
from ..operation import Operation
from ..query.rows import NoQuery
from .feature_statistics import Change, StatisticsView, change_of, describe_statistics
from .features import shorten
from .rendering import page
from .rows import choose_split

router = APIRouter(include_in_schema=False, route_class=Operation)

#: Features of a page.
_PER_PAGE: Final = 20
#: Versions that are offered for a comparison, and features that are named in the list of changes.
_VERSIONS: Final = 50
_NAMED: Final = 30
_NAME: Final = 200
#: How long statistics are waited for before the page tells how far they are.
_WAIT_S: Final = 0.7

Order = Literal["drift", "schema", "name", "missing"]
#: As the page calls them.
_ORDERS: Final[Mapping[Order, str]] = {
    "drift": "Largest drift",
    "schema": "Schema",
    "name": "Name",
    "missing": "Most missing",
}


class StatisticsPageQuery(NoQuery):
    """Whose statistics, next to which, and in which order."""

    split: Annotated[str | None, Field(max_length=200, description="By default the first.")] = None
    against_split: Annotated[str | None, Field(max_length=200, description="The other side.")] = None
    against_version: Annotated[str | None, Field(max_length=200, description="The other side.")] = None
    order: Annotated[
        Order | None, Field(description="Of the features; by default by drift where there is some.")
    ] = None
    q: Annotated[str, Field(max_length=200, description="A part of the features' names.")] = ""
    first: Annotated[int, Field(ge=0, description="How many features are passed over.")] = 0


@dataclass(frozen=True, slots=True)
class Side:
    """Rows whose statistics are shown; `title` tells them from those of the other side."""

    manifest: Manifest
    split: str
    title: str = ""

    @property
    def num_rows(self) -> int:
        """How many rows these are."""
        return self.manifest.splits[self.split].num_records

    def named(self, title: str) -> Side:
        """The same, called so."""
        return Side(self.manifest, self.split, title)


@router.get("/ui/datasets/{dataset}/{version}/statistics")
@router.head("/ui/datasets/{dataset}/{version}/statistics")
def statistics_page(dataset: str, version: str, query: Annotated[StatisticsPageQuery, Query()]) -> Plan:
    """Statistics of a split; while they are being found, how far that is."""

    def work(job: Job, _: ByteStream) -> Answer:
        datasets = job.services.datasets
        sides = _sides(dataset, datasets.manifest(dataset, version), query, datasets.manifest)
        find = partial(datasets.statistics, dataset, caller=job.caller)
        # All are begun before one is waited for.
        for side in sides[1:]:
            find(side.manifest.version, side.split, wait_s=0)
        found = [find(side.manifest.version, side.split, wait_s=_WAIT_S) for side in sides]
        own = sides[0]

        def link(**changes: Any) -> str:
            given = {name: value for name, value in query.model_dump().items() if value}
            kept = {**given, "split": own.split, **changes}
            return urlencode({name: value for name, value in kept.items() if value})

        offered = [each.manifest for each in datasets.history(dataset, _VERSIONS)[0]]
        values: dict[str, Any] = {
            "section": "datasets",
            "dataset": dataset,
            "manifest": own.manifest,
            "sides": sides,
            "query": query,
            "link": link,
            "versions": _names(
                [*(each.version for each in offered), *(side.manifest.version for side in sides)]
            ),
            "splits": _names([split for each in (own.manifest, *offered) for split in each.splits]),
            "suggested": _suggested(sides, offered),
            "progress": [
                (side, each.percent if isinstance(each, Computing) else 100)
                for side, each in zip(sides, found, strict=True)
            ],
            "orders": [(name, title) for name, title in _ORDERS.items() if len(sides) > 1 or name != "drift"],
            "step": _PER_PAGE,
            "shown": None,
        }
        ready = [each for each in found if not isinstance(each, Computing)]
        if len(ready) == len(found):
            values["shown"] = _show(sides, ready, query, job.request.scope.get("root_path", ""))
        return page("statistics.html", job, values)

    return Plan(work, "store")


def _sides(
    dataset: str, manifest: Manifest, query: StatisticsPageQuery, find: Callable[[str, str], Manifest]
) -> list[Side]:
    """The rows that are asked for, and those that they are compared with, if any."""
    own = Side(manifest, choose_split(manifest, query.split))
    if not query.against_split and not query.against_version:
        return [own]
    other = find(dataset, query.against_version) if query.against_version else manifest
    split = query.against_split or own.split
    if (other.version, split) == (manifest.version, own.split):
        return [own]
    against = Side(other, choose_split(other, split))
    if other.version == manifest.version:
        return [own.named(own.split), against.named(split)]
    if split == own.split:
        return [own.named(manifest.version), against.named(other.version)]
    return [own.named(f"{manifest.version} {own.split}"), against.named(f"{other.version} {split}")]


def _names(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _suggested(sides: Sequence[Side], offered: Sequence[Manifest]) -> tuple[str, str]:
    """The version and the split that the form has: those compared with, another split, or what was before."""
    own = sides[0]
    if len(sides) > 1:
        return sides[1].manifest.version, sides[1].split
    splits = [split for split in own.manifest.splits if split != own.split]
    if splits:
        return own.manifest.version, splits[0]
    versions = [each.version for each in offered]
    place = versions.index(own.manifest.version) + 1 if own.manifest.version in versions else len(versions)
    return (versions[place] if place < len(versions) else own.manifest.version), own.split


@dataclass(frozen=True, slots=True)
class _Row:
    """A feature on each side."""

    name: str
    features: tuple[Feature | None, ...]
    found: tuple[DetailedStatisticsJson | None, ...]
    drift: float | None

    @property
    def missing(self) -> float:
        """The largest share of rows without it."""
        counted = [(each["num_missing"], each["num_present"]) for each in self.found if each is not None]
        return max(missing / max(1, missing + present) for missing, present in counted)


def _rows(sides: Sequence[Side], found: Sequence[VersionStatisticsJson]) -> list[_Row]:
    """The features of both sides, as the first has them."""
    schemas = [{feature.name: feature for feature in side.manifest.schema} for side in sides]
    drift = compare(*found)["drift"] if len(found) == 2 else {}
    return [
        _Row(
            name,
            tuple(schema.get(name) for schema in schemas),
            tuple(each["features"].get(name) for each in found),
            drift.get(name),
        )
        for name in _names([name for schema in schemas for name in schema])
    ]


#: What a page of features is sorted by; those with the greatest come first.
_KEYS: Final[Mapping[str, Callable[[_Row], float]]] = {
    "drift": lambda row: -1.0 if row.drift is None else row.drift,
    "missing": lambda row: row.missing,
}


@dataclass(frozen=True, slots=True)
class Difference:
    """Features by which two sides differ; some of their names."""

    title: str
    count: int
    names: list[str]


@dataclass(frozen=True, slots=True)
class Shown:
    """A page of features.

    Attributes:
        num_found: features that the search finds, of `num_features`.
        num_incomplete: features that some rows of the first side lack.
        largest: the largest drift, and whose it is.
    """

    views: list[StatisticsView]
    order: Order
    num_found: int
    num_features: int
    num_incomplete: int
    differences: list[Difference]
    largest: tuple[str, str] | None


def _show(
    sides: Sequence[Side], found: Sequence[VersionStatisticsJson], query: StatisticsPageQuery, root: str
) -> Shown:
    rows = _rows(sides, found)
    wanted = [row for row in rows if query.q.casefold() in row.name.casefold()]
    order: Order = query.order or ("drift" if len(sides) > 1 else "schema")
    if order == "name":
        wanted.sort(key=lambda row: row.name.casefold())
    elif order in _KEYS:
        wanted.sort(key=_KEYS[order], reverse=True)

    def rows_link(side: int, feature: str, value: str) -> str:
        manifest, split = sides[side].manifest, sides[side].split
        asked = urlencode({"split": split, "feature": feature, "op": "is", "value": value})
        return f"{root}/ui/datasets/{manifest.dataset}/{manifest.version}/rows?{asked}"

    titles = [side.title for side in sides]
    drifts = [(row.drift, row.name) for row in rows if row.drift is not None]
    drift, name = max(drifts, key=lambda each: each[0], default=(0.0, ""))
    return Shown(
        views=[
            describe_statistics(place, row.features, row.found, titles, drift=row.drift, rows_link=rows_link)
            for place, row in enumerate(wanted[query.first : query.first + _PER_PAGE], query.first)
        ],
        order=order,
        num_found=len(wanted),
        num_features=len(rows),
        num_incomplete=sum(each["num_missing"] > 0 for each in found[0]["features"].values()),
        differences=_differences(rows, titles),
        largest=(f"{drift:.3f}", shorten(name, _NAME)) if drifts else None,
    )


def _differences(rows: Sequence[_Row], titles: Sequence[str]) -> list[Difference]:
    found = []
    for change in get_args(Change):
        names = [row.name for row in rows if change and change_of(row.features) == change]
        title = {"new": f"Only in {titles[0]}", "gone": f"Only in {titles[-1]}", "changed": "Another type"}
        if names:
            found.append(
                Difference(title[change], len(names), [shorten(name, _NAME) for name in names[:_NAMED]])
            )
    return found
