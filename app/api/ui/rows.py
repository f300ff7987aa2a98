"""Rows of a split: a table that turns its pages by the index, a search, and each row by itself."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from pydantic import Field

from ...codecs.columns import Batch, Records
from ...domain.feature import Feature
from ...domain.manifest import Manifest
from ...errors import MalformedInput, NotFound
from ...runtime.streams import ByteStream
from ...services.convert.search import Condition, Search
from ..execution.job import Answer, Job, Plan
from ..operation import Operation
from ..query.rows import NoQuery
from .cells import ALONE, IN_TABLE, Cell, Extent, show_rows
from .features import describe_features, shorten
from .pictures import Painter
from .rendering import page

router = APIRouter(include_in_schema=False, route_class=Operation)

#: Features of a table; the others are on further pages.
_COLUMNS: Final = 24
#: Features that are offered for a search, and characters of their names.
_SEARCHABLE: Final = 500
_OPTION: Final = 60
#: Of a row that stands alone.
_MOST_FEATURES: Final = 400
#: How long a search goes on, and how many rows it looks at, before it says how far it has come.
_SEARCH_S: Final = 1.5
_SEARCHED_ROWS: Final = 1_000_000
#: Features by which people call a row.
_IDS: Final = ("id", "key", "__key__", "uid", "uuid", "name", "filename", "file_name")

Op = Literal["is", "contains", "between", "absent"]


class RowQuery(NoQuery):
    """Which row is shown by itself."""

    split: Annotated[str, Field(max_length=200, description="Whose row.")]
    row: Annotated[int, Field(ge=0, description="Its number, from 0 on.")]


class RowsQuery(NoQuery):
    """Which rows are shown, and of which features."""

    split: Annotated[str | None, Field(max_length=200, description="By default the first.")] = None
    offset: Annotated[int, Field(ge=0, description="The first row.")] = 0
    count: Annotated[int, Field(ge=1, le=100, description="Rows of a page.")] = 25
    column: Annotated[int, Field(ge=0, description="The first feature.")] = 0
    feature: Annotated[str, Field(description="That is searched; none if empty.")] = ""
    op: Annotated[Op, Field(description="What is asked of it.")] = "is"
    value: Annotated[str, Field(max_length=2000, description="The value, or the least.")] = ""
    upto: Annotated[str, Field(max_length=2000, description="The greatest value, if `op` is `between`.")] = ""


@router.get("/ui/datasets/{dataset}/{version}/rows")
@router.head("/ui/datasets/{dataset}/{version}/rows")
def rows_page(dataset: str, version: str, query: Annotated[RowsQuery, Query()]) -> Plan:
    """Rows of a split, from a number on, or those that a search finds from there on."""

    def work(job: Job, _: ByteStream) -> Answer:
        manifest = job.services.datasets.manifest(dataset, version)
        split = choose_split(manifest, query.split)
        num_rows = manifest.splits[split].num_records
        features = manifest.schema.features
        shown = range(min(query.column, len(features)), min(query.column + _COLUMNS, len(features)))
        table = _Table(job, [features[k] for k in shown], shown, IN_TABLE)
        searched: Search | None = None
        if query.feature:
            condition = _condition(_feature(features, query.feature), query)
            records = _read(job, manifest, split, query.offset, _SEARCHED_ROWS)
            searched = _search(records, condition, query.count, table, query.offset)
        else:
            table.add_all(_read(job, manifest, split, query.offset, query.count), query.offset)
        cells = table.cells()

        def link(**changes: Any) -> str:
            given = {name: value for name, value in query.model_dump().items() if value not in ("", None)}
            return urlencode({**given, "split": split, **changes})

        values = {
            "section": "datasets",
            "dataset": dataset,
            "manifest": manifest,
            "split": split,
            "num_rows": num_rows,
            "query": query,
            "numbers": table.numbers,
            "cells": cells,
            "num_features": len(features),
            "searchable": [(each.name, shorten(each.name, _OPTION)) for each in features[:_SEARCHABLE]],
            "features": describe_features(features[k] for k in shown),
            "columns": shown,
            "step": _COLUMNS,
            "searched": searched,
            "next": query.offset + (query.count if searched is None else searched.searched),
            "link": link,
        }
        return page("rows.html", job, values)

    return Plan(work, "store")


@router.get("/ui/datasets/{dataset}/{version}/row")
@router.head("/ui/datasets/{dataset}/{version}/row")
def row_page(dataset: str, version: str, query: Annotated[RowQuery, Query()]) -> Plan:
    """One row, as much of it as is bearable."""

    def work(job: Job, _: ByteStream) -> Answer:
        manifest = job.services.datasets.manifest(dataset, version)
        split = choose_split(manifest, query.split)
        num_rows = manifest.splits[split].num_records
        if query.row >= num_rows:
            raise NotFound(
                f"Split {split!r} of version {manifest.version} has {num_rows} rows, numbered from 0 on."
            )
        features = manifest.schema.features
        shown = range(min(_MOST_FEATURES, len(features)))
        table = _Table(job, [features[k] for k in shown], shown, ALONE)
        table.add_all(_read(job, manifest, split, query.row, 1), query.row)
        [cells] = table.cells()
        values = {
            "section": "datasets",
            "dataset": dataset,
            "manifest": manifest,
            "split": split,
            "num_rows": num_rows,
            "row": query.row,
            "lines": list(zip(describe_features(features[k] for k in shown), cells, strict=True)),
            "num_features": len(features),
            "by_id": _link_by_id(features[: len(shown)], cells, split),
        }
        return page("row.html", job, values)

    return Plan(work, "store")


class _Table:
    """Collects rows as cells, while they are drawn."""

    def __init__(self, job: Job, features: list[Feature], places: range, extent: Extent) -> None:
        self._painter = Painter(job.services.images, job.budget, extent.width, extent.height)
        self._features = features
        self._places = places
        self._extent = extent
        self.numbers: list[int] = []
        self._cells: list[list[Cell]] = []

    def add_all(self, records: Records, first: int) -> None:
        """Add all rows, whose numbers begin with `first`."""
        for batch in records.batches:
            for k in range(batch.num_rows):
                self.add(first, batch.rows(k, k + 1))
                first += 1

    def add(self, number: int, row: Batch) -> None:
        """Add a row."""
        kept = Batch(1, tuple(row.columns[k] for k in self._places))
        self.numbers.append(number)
        self._cells += show_rows(self._features, [kept], self._painter, self._extent)

    def cells(self) -> list[list[Cell]]:
        """The cells of all rows, with their pictures."""
        self._painter.paint()
        return self._cells


def _read(job: Job, manifest: Manifest, split: str, offset: int, length: int) -> Records:
    return job.services.datasets.read_records(
        manifest.dataset, manifest.version, split, offset=offset, length=length, budget=job.budget
    )


def _search(records: Records, condition: Condition, most: int, table: _Table, offset: int) -> Search:
    until = monotonic() + _SEARCH_S
    search = Search(records, condition, most=most, is_late=lambda: monotonic() > until)
    for number, row in search.rows():
        table.add(offset + number, row)
    return search


def choose_split(manifest: Manifest, asked: str | None) -> str:
    """The split that is asked for, by default the first.

    Raises:
        NotFound: there is none (`split_not_found`).
    """
    if asked is not None and asked not in manifest.splits:
        raise NotFound(f"Version {manifest.version} has no split {asked!r}.", code="split_not_found")
    split = asked or next(iter(manifest.splits), None)
    if split is None:
        raise NotFound(f"Version {manifest.version} has no rows.", code="split_not_found")
    return split


def _feature(features: tuple[Feature, ...], name: str) -> Feature:
    for feature in features:
        if feature.name == name:
            return feature
    raise NotFound(f"There is no feature {name[:200]!r}.")


def _condition(feature: Feature, query: RowsQuery) -> Condition:
    """What the form asks for.

    Raises:
        MalformedInput: a number is none (`invalid_parameter`).
    """
    if query.op == "absent":
        return Condition(feature.name, is_absent=True)
    if feature.dtype.is_string:
        return Condition(feature.name, text=query.value.encode(), is_part=query.op == "contains")
    names = feature.meaning.class_names
    low = names.index(query.value) if query.value in names else _number(feature, query.value)
    if query.op != "between":
        if low is None:
            raise MalformedInput(
                f"Say which value of {feature.name!r} is searched for.", code="invalid_parameter"
            )
        return Condition(feature.name, low=low, high=low)
    return Condition(feature.name, low=low, high=_number(feature, query.upto))


def _number(feature: Feature, text: str) -> float | None:
    text = {"true": "1", "false": "0"}.get(text.strip().lower(), text.strip())
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        names = " or a name of its classes" if feature.meaning.class_names else ""
        raise MalformedInput(
            f"{text[:100]!r} is no number{names}; feature {feature.name!r} has {feature.dtype.name}.",
            code="invalid_parameter",
        ) from None


def _link_by_id(features: tuple[Feature, ...], cells: list[Cell], split: str) -> Mapping[str, str] | None:
    """How a row is found by what people call it, wherever it stands; None where it has no such feature."""
    for feature, cell in zip(features, cells, strict=True):
        is_whole = cell.kind in ("text", "number") and not cell.folded and not cell.note
        if (
            feature.name.lower() in _IDS
            and feature.is_scalar
            and is_whole
            and not feature.meaning.class_names
        ):
            found = {"split": split, "feature": feature.name, "op": "is", "value": cell.text}
            return {"name": feature.name, "value": cell.text, "query": urlencode(found)}
    return None
