"""`shardsmith inspect` and `validate`: what a file is, what is in it, and what is wrong with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import click

from ..codecs.array import Array
from ..codecs.columns import Batch, Records
from ..codecs.options import RecordsEncodeOptions
from ..codecs.sniff import TFRECORD_OF_BYTES, Sniffed
from ..domain.limits import MIB
from ..domain.schema import Schema
from ..errors import InputError
from ..runtime.workspace import Workspace
from ..services.convert.cells import (
    STATISTICS,
    TENSORS,
    image_of,
    row_cells,
    shape_text,
    statistics_cells,
    tensor_cells,
    tensor_text,
)
from ..services.convert.inspect import Findings, NotMessages, RowsInspection, inspect_tensors
from ..services.convert.records import encode_records
from ..services.convert.tensors import open_tensors
from .failures import DAMAGED_FILE, FAILURES, detail_of, tell
from .reading import Given, Input, open_input, read_rows, refuse_inapplicable, tensor_options
from .screen.pictures import can_show, decode, half_blocks
from .screen.terminal import count_text, printable, size_text, table, terminal_width
from .sources import Opened, Run, Source

#: Lost ranges and features that are listed, and pictures.
_RANGES: Final = 20
_FEATURES: Final = 200
_PICTURES: Final = 3
_PICTURE_COLUMNS: Final = 32
#: Of the first rows as JSON.
_MOST_JSON: Final = 4 * MIB
_IMAGES: Final = frozenset({"jpeg", "png", "webp", "gif", "bmp"})


@dataclass(slots=True)
class Report:
    """What was found out about one input.

    Attributes:
        rows: the first ones, as JSON.
    """

    name: str
    num_bytes: int | None
    found: Findings
    rows: list[Any] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        found, sniffed = self.found, self.found.sniffed
        document: dict[str, Any] = {
            "input": self.name,
            "num_bytes": self.num_bytes,
            "format": "" if sniffed is None else sniffed.form,
            "container": None if sniffed is None else sniffed.around,
            "holds": "rows" if sniffed is not None and sniffed.kind == "records" else "tensors",
        }
        if sniffed is not None and sniffed.kind == "records":
            schema = None if found.schema is None else found.schema.to_json()
            document["message"] = "bytes" if sniffed.as_bytes else sniffed.message
            document |= {"num_records": found.num_records, "schema": schema, "features": found.features}
            document["rows"] = self.rows
        else:
            document["tensors"] = found.tensors
        document["is_whole"] = found.is_whole
        document["lost"] = found.losses.to_json()
        document["fault"] = None if found.fault is None else _fault_json(found.fault)
        return document


def _fault_json(fault: InputError) -> dict[str, Any]:
    where = fault.location
    return {
        "code": fault.code,
        "detail": detail_of(fault),
        "row": where.row,
        "feature": where.feature,
        "offset": where.offset,
    }


class _Inspection:
    """Looks at one input, and prints what it finds as soon as it is found."""

    def __init__(self, given: Given, num_rows: int, *, head: bool, pictures: bool, quiet: bool) -> None:
        self._given = given
        self._num_rows = num_rows
        self._head = head
        self._pictures = pictures
        self._quiet = quiet

    def run(self, run: Run, name: str) -> Report:
        """Look at the input.

        Raises:
            ShardsmithError: what it is cannot be told, or it cannot be read at all.
        """
        source = Source(name)
        try:
            return self._look(run, source, self._given)
        except NotMessages as error:
            if not source.is_read_again or self._given.get("message") is not None:
                raise error.fault from None
            self._print(printable(f"Its records are shown as bytes: {detail_of(error.fault)}"))
            fault = None if error.are_others else error.fault
            return self._look(run, source, {**self._given, "message": "bytes"}, fault=fault)

    def _look(self, run: Run, source: Source, given: Given, *, fault: InputError | None = None) -> Report:
        with run.open(source, is_shown=not self._head) as opened:
            found = open_input(opened, given)
            refuse_inapplicable(given, found.sniffed.form, found.sniffed.kind)
            if given is not self._given and fault is None:
                sniffed = replace(TFRECORD_OF_BYTES, compression=found.sniffed.compression)
                found = replace(found, sniffed=sniffed)
            report = Report(source.name, source.size, Findings(found.sniffed, fault=fault))
            self._title(report, found.sniffed)
            if found.sniffed.kind == "records":
                self._look_at_rows(found, given, report, opened)
            else:
                self._look_at_tensors(found, given, report, opened)
        return report

    def _print(self, line: str = "") -> None:
        if not self._quiet:
            click.echo(line)

    def _title(self, report: Report, sniffed: Sniffed) -> None:
        size = "" if report.num_bytes is None else f", {size_text(report.num_bytes)}"
        inside = "" if sniffed.around is None else f" in {sniffed.around}"
        what = "rows" if sniffed.kind == "records" else "tensors"
        known = f" (known {sniffed.reason})" if sniffed.reason else ""
        self._print(printable(f"{report.name}: {sniffed.form}{inside}{size}, {what}{known}"))

    def _look_at_rows(self, found: Input, given: Given, report: Report, opened: Opened) -> None:
        is_said = given.get("schema") is not None or given.get("infer") == "all"
        inspection = RowsInspection(
            report.found,
            lambda losses: read_rows(found, given, opened.workspace, opened.images, losses=losses),
            is_inferred=not is_said and not found.sniffed.as_bytes and given.get("message") != "bytes",
        )
        schema = inspection.first_schema
        self._show_schema(schema)
        if self._quiet and inspection.first is not None:
            report.rows = _rows_json(inspection.records, inspection.first, self._num_rows, opened.workspace)
        elif inspection.first is not None:
            self._show_rows(schema, inspection.first, opened)
        sys.stdout.flush()
        if self._head:
            return
        inspection.finish()
        self._show_statistics(report.found)
        self._show_checks(report.found)

    def _show_schema(self, schema: Schema) -> None:
        features = list(schema)
        message = "" if schema.message == "example" else f" of a {schema.message}"
        self._print(f"\nSchema: {count_text(len(features), 'feature')}{message}")
        lines = [
            [
                feature.name,
                feature.dtype.name,
                shape_text(feature.shape),
                feature.kind,
                " ".join(filter(None, [feature.encoding if feature.encoding != "list" else "",
                                       "nullable" if feature.nullable else ""])),
            ]
            for feature in features[:_FEATURES]
        ]  # fmt: skip
        for line in table(["feature", "dtype", "shape", "kind", ""], lines):
            self._print(line)
        if len(features) > _FEATURES:
            self._print(f"… and {len(features) - _FEATURES:,} more")

    def _show_rows(self, schema: Schema, first: Batch, opened: Opened) -> None:
        num_rows = min(self._num_rows, first.num_rows)
        if not num_rows:
            return
        names = schema.names[:_FEATURES]
        self._print("\nFirst rows")
        cells = (
            [str(row), *texts[:_FEATURES]] for row, texts in enumerate(row_cells(schema, first, 0, num_rows))
        )
        for line in table(["", *names], cells):
            self._print(line)
        if self._pictures:
            self._show_pictures(schema, first, num_rows, opened)

    def _show_pictures(self, schema: Schema, first: Batch, num_rows: int, opened: Opened) -> None:
        shown = 0
        for row in range(num_rows):
            for feature, column in zip(schema, first.columns, strict=True):
                if shown == _PICTURES or not feature.dtype.is_string:
                    continue
                data = image_of(column, row)
                pixels = None if data is None else decode(data, opened.images, opened.workspace.budget)
                if pixels is None:
                    continue
                shown += 1
                self._print(f"\nrow {row}, {printable(feature.name)}: {pixels.shape[1]}x{pixels.shape[0]}")
                for line in half_blocks(pixels, min(_PICTURE_COLUMNS, terminal_width() - 1)):
                    self._print(line)

    def _show_statistics(self, findings: Findings) -> None:
        self._print(f"\nAll of it: {count_text(findings.num_records or 0, 'row')}")
        if findings.schema is not None:
            lines = islice(statistics_cells(findings.schema, findings.features), _FEATURES)
            for line in table(STATISTICS, lines):
                self._print(line)

    def _show_checks(self, findings: Findings) -> None:
        self._print()
        for line in check_lines(findings):
            self._print(line)

    def _look_at_tensors(self, found: Input, given: Given, report: Report, opened: Opened) -> None:
        options = replace(tensor_options(given), images=opened.images)
        tensors = open_tensors(found.source, found.sniffed.form, options, opened.workspace)
        previews: list[str] = []
        for tensor in inspect_tensors(tensors, report.found, opened.workspace.budget):
            previews.append(tensor_text(tensor))
            if self._pictures and found.sniffed.form in _IMAGES and isinstance(tensor, Array):
                pixels = tensor.values.reshape(tensor.shape)
                for line in half_blocks(pixels if pixels.ndim == 3 else pixels[0], terminal_width() - 1):
                    self._print(line)
        self._print(f"\n{count_text(len(report.found.tensors), 'tensor')}")
        lines = ([*line, text] for line, text in zip(tensor_cells(report.found), previews, strict=False))
        for line in table(TENSORS, lines):
            self._print(line)
        self._show_checks(report.found)


def _rows_json(records: Records, first: Batch, num_rows: int, workspace: Workspace) -> list[Any]:
    """The first rows as JSON, as many as take little room."""
    num_rows = min(num_rows, first.num_rows)
    while num_rows and first.rows(0, num_rows).nbytes > _MOST_JSON:
        num_rows -= 1
    head = replace(records, batches=iter([first.rows(0, num_rows)] if num_rows else []), num_rows=num_rows)
    encoded = encode_records(head, "ndjson", RecordsEncodeOptions(lossy=True), workspace.budget)
    return [json.loads(line) for line in b"".join(map(bytes, encoded.chunks)).splitlines()]


def check_lines(findings: Findings) -> Iterator[str]:
    """What is wrong, with places; or that nothing is."""
    if not findings.is_damaged:
        yield "Checks: all of it can be read" + (
            ", every checksum holds."
            if findings.sniffed is not None and findings.sniffed.form == "tfrecord"
            else "."
        )
        return
    losses = findings.losses
    if losses.num_ranges:
        places = count_text(losses.num_ranges, "place")
        yield (
            f"Damaged: {losses.num_bytes:,} bytes in {places} are no good records; "
            "`shardsmith repair` saves the rest."
        )
        lines = [[f"{lost.offset:,}", f"{lost.num_bytes:,}", lost.reason] for lost in losses.ranges[:_RANGES]]
        yield from table(["offset", "bytes", "reason"], lines)
        if losses.num_ranges > _RANGES:
            yield f"… and {losses.num_ranges - _RANGES:,} more"
    if findings.fault is not None:
        fault = findings.fault
        place = "".join(
            f", {name} {value}"
            for name, value in (("row", fault.location.row), ("offset", fault.location.offset))
            if value is not None
        )
        yield printable(f"Damaged: {detail_of(fault)} [{fault.code}{place}]")


def inspect(
    names: Sequence[str], num_rows: int, *, head: bool, pictures: bool | None, as_json: bool, given: Given
) -> bool:
    """Say what inputs are; whether one of them is damaged."""
    run, damaged = Run(), False
    documents = []
    shows = (can_show() if pictures is None else pictures) and not as_json
    for index, name in enumerate(names):
        if index and not as_json:
            click.echo()
        report = _Inspection(given, num_rows, head=head, pictures=shows, quiet=as_json).run(run, name)
        documents.append(report.to_json())
        damaged |= report.found.is_damaged
    if as_json:
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents))
    return damaged


def validate(names: Sequence[str], *, as_json: bool, given: Given) -> int:
    """Read inputs to their ends; the exit status of the first that is damaged or cannot be read, else 0."""
    run, status = Run(), 0
    documents = []
    for name in names:
        inspection = _Inspection(given, 0, head=False, pictures=False, quiet=True)
        try:
            report = inspection.run(run, name)
        except InputError as error:
            report = Report(Source(name).name, None, Findings(fault=error))
        except BrokenPipeError:
            raise
        except FAILURES as error:
            told = tell(error, as_json=as_json)
            status = status or told
            continue
        found = report.found
        if found.is_damaged:
            status = status or DAMAGED_FILE
        if as_json:
            kept = ("input", "num_bytes", "format", "message", "num_records", "lost", "fault")
            documents.append({key: value for key, value in report.to_json().items() if key in kept})
            continue
        count = "" if found.num_records is None else f", {count_text(found.num_records, 'row')}"
        if found.sniffed is not None and found.sniffed.as_bytes:
            count += " of bytes"
        verdict = "damaged" if found.is_damaged else "good"
        form = "unknown" if found.sniffed is None else found.sniffed.form
        click.echo(printable(f"{report.name}: {verdict} ({form}{count})"))
        if found.is_damaged:
            for line in check_lines(found):
                click.echo(f"  {line}")
    if as_json and documents:
        click.echo(json.dumps(documents[0] if len(names) == 1 else documents))
    return status
