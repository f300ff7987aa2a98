"""`shardsmith inspect` and `validate`: what a file is, what is in it, and what is wrong with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, cast

import click

from ..codecs.array import AnyTensor, Array
from ..codecs.columns import Batch, Records
from ..codecs.forms import MESSAGE_FORMS
from ..codecs.options import RecordsEncodeOptions
from ..domain.limits import MIB
from ..domain.losses import Losses
from ..errors import InputError
from ..runtime.images import ImageCodecs
from ..runtime.workspace import Workspace
from ..services.convert.describe import describe_records, describe_tensors
from ..services.convert.records import encode_records
from ..services.convert.tensors import open_tensors
from .failures import DAMAGED_FILE, FAILURES, tell
from .reading import Given, Input, open_input, read_rows, refuse_inapplicable, tensor_options
from .screen.cells import image_of, row_cells, shape_text, values_text
from .screen.pictures import can_show, decode, half_blocks
from .screen.terminal import count_text, printable, size_text, table, terminal_width
from .sources import Run, Source

#: Lost ranges and features that are listed, and pictures.
_RANGES: Final = 20
_FEATURES: Final = 200
_PICTURES: Final = 3
_PICTURE_COLUMNS: Final = 32
#: Tensors of which the first values are shown; larger ones are drawn to their ends piece by piece.
_MOST_READ: Final = 64 * MIB
#: Of the first rows as JSON.
_MOST_JSON: Final = 4 * MIB
_IMAGES: Final = frozenset({"jpeg", "png", "webp", "gif", "bmp"})


@dataclass(slots=True)
class Findings:
    """What was found out about one input."""

    name: str
    num_bytes: int | None
    form: str = ""
    kind: str = ""
    container: str | None = None
    reason: str = ""
    schema: dict[str, Any] | None = None
    rows: list[Any] = field(default_factory=list)
    num_records: int | None = None
    features: dict[str, Any] = field(default_factory=dict)
    tensors: list[Any] = field(default_factory=list)
    losses: Losses = field(default_factory=Losses)
    fault: InputError | None = None
    is_whole: bool = False

    @property
    def is_damaged(self) -> bool:
        return self.fault is not None or self.losses.num_ranges > 0

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "input": self.name,
            "num_bytes": self.num_bytes,
            "format": self.form,
            "container": self.container,
            "holds": "rows" if self.kind == "records" else "tensors",
        }
        if self.kind == "records":
            found |= {"num_records": self.num_records, "schema": self.schema, "features": self.features}
            found["rows"] = self.rows
        else:
            found["tensors"] = self.tensors
        found["is_whole"] = self.is_whole
        found["lost"] = self.losses.to_json()
        found["fault"] = None if self.fault is None else _fault_json(self.fault)
        return found


def _fault_json(fault: InputError) -> dict[str, Any]:
    where = fault.location
    return {
        "code": fault.code,
        "detail": fault.detail,
        "row": where.row,
        "feature": where.feature,
        "offset": where.offset,
    }


class _NotMessages(Exception):
    """The first records of a TFRecord are not all the messages that the first one is."""

    def __init__(self, fault: InputError) -> None:
        super().__init__(fault)
        self.fault = fault


class _Inspection:
    """Looks at one input, and prints what it finds as soon as it is found."""

    def __init__(self, given: Given, num_rows: int, *, head: bool, pictures: bool, quiet: bool) -> None:
        self._given = given
        self._num_rows = num_rows
        self._head = head
        self._pictures = pictures
        self._quiet = quiet

    def run(self, run: Run, name: str) -> Findings:
        """Look at the input.

        Raises:
            ShardsmithError: what it is cannot be told, or it cannot be read at all.
        """
        source = Source(name)
        try:
            return self._look(run, source, self._given)
        except _NotMessages as error:
            if not source.is_read_again or self._given.get("message") is not None:
                raise error.fault from None
            self._print(printable(f"Its records are shown as bytes: {error.fault.detail}"))
            return self._look(run, source, {**self._given, "message": "bytes"}, fault=error.fault)

    def _look(self, run: Run, source: Source, given: Given, *, fault: InputError | None = None) -> Findings:
        findings = Findings(source.name, source.size, fault=fault)
        with run.open(source, is_shown=not self._head) as opened:
            found = open_input(opened, given)
            refuse_inapplicable(given, found.sniffed.form, found.sniffed.kind)
            sniffed = found.sniffed
            findings.form, findings.kind, findings.container = sniffed.form, sniffed.kind, sniffed.container
            findings.num_bytes = source.size
            self._title(findings, sniffed.reason)
            if sniffed.kind == "records":
                self._look_at_rows(found, given, findings, opened.workspace, opened.images)
            else:
                self._look_at_tensors(found, given, findings, opened.workspace, opened.images)
        return findings

    def _print(self, line: str = "") -> None:
        if not self._quiet:
            click.echo(line)

    def _title(self, findings: Findings, reason: str) -> None:
        size = "" if findings.num_bytes is None else f", {size_text(findings.num_bytes)}"
        inside = "" if findings.container is None else f" in {findings.container}"
        what = "rows" if findings.kind == "records" else "tensors"
        known = f" (known {reason})" if reason else ""
        self._print(printable(f"{findings.name}: {findings.form}{inside}{size}, {what}{known}"))

    def _look_at_rows(
        self, found: Input, given: Given, findings: Findings, workspace: Workspace, images: ImageCodecs
    ) -> None:
        losses = findings.losses if found.sniffed.form == "tfrecord" else None
        try:
            records = read_rows(found, given, workspace, images, losses=losses)
            first = next(records.batches, None)
        except InputError as error:
            if found.sniffed.form == "tfrecord" and not found.sniffed.as_bytes:
                raise _NotMessages(error) from error
            raise
        findings.schema = cast(dict[str, Any], records.schema.to_json())
        self._show_schema(records)
        if first is not None:
            self._show_rows(records, first, findings, workspace, images)
        sys.stdout.flush()
        if self._head:
            return
        rest = chain([] if first is None else [first], _until_fault(records.batches, findings))
        is_inferred = (
            given.get("schema") is None and given.get("infer") != "all" and not found.sniffed.as_bytes
        )
        described = describe_records(
            replace(records, batches=rest),
            "json",
            find_lengths=is_inferred
            and found.sniffed.form in MESSAGE_FORMS
            and given.get("message") != "bytes",
        )
        statistics = json.loads(described)
        findings.num_records, findings.features = statistics["num_records"], statistics["features"]
        findings.schema = statistics["schema"]
        findings.is_whole = findings.fault is None
        self._show_statistics(findings)
        self._show_checks(findings)

    def _show_schema(self, records: Records) -> None:
        features = list(records.schema)
        message = "" if records.schema.message == "example" else f" of a {records.schema.message}"
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

    def _show_rows(
        self, records: Records, first: Batch, findings: Findings, workspace: Workspace, images: ImageCodecs
    ) -> None:
        num_rows = min(self._num_rows, first.num_rows)
        if self._quiet:
            findings.rows = _rows_json(records, first, num_rows, workspace)
            return
        if not num_rows:
            return
        names = records.schema.names[:_FEATURES]
        self._print("\nFirst rows")
        cells = (
            [str(row), *texts[:_FEATURES]]
            for row, texts in enumerate(row_cells(records.schema, first, 0, num_rows))
        )
        for line in table(["", *names], cells):
            self._print(line)
        if self._pictures:
            self._show_pictures(records, first, num_rows, workspace, images)

    def _show_pictures(
        self, records: Records, first: Batch, num_rows: int, workspace: Workspace, images: ImageCodecs
    ) -> None:
        shown = 0
        for row in range(num_rows):
            for feature, column in zip(records.schema, first.columns, strict=True):
                if shown == _PICTURES or not feature.dtype.is_string:
                    continue
                data = image_of(column, row)
                pixels = None if data is None else decode(data, images, workspace.budget)
                if pixels is None:
                    continue
                shown += 1
                self._print(f"\nrow {row}, {printable(feature.name)}: {pixels.shape[1]}x{pixels.shape[0]}")
                for line in half_blocks(pixels, min(_PICTURE_COLUMNS, terminal_width() - 1)):
                    self._print(line)

    def _show_statistics(self, findings: Findings) -> None:
        self._print(f"\nAll of it: {count_text(findings.num_records or 0, 'row')}")
        lines, shapes = [], (findings.schema or {})["features"]
        for name, of in list(findings.features.items())[:_FEATURES]:
            is_text = "min_length" in of
            least, most, mean = (
                ("min_length", "max_length", "mean_length") if is_text else ("min", "max", "mean")
            )
            notes = [f"{of[key]:,} {what}" for key, what in _NOTED if of.get(key)]
            counts = [shape_text(shapes[name]["shape"]), f"{of['num_present']:,}", f"{of['num_values']:,}"]
            numbers = [_text(of.get(key)) for key in (least, most, mean, "std")]
            lines.append([name, *counts, *numbers, "; ".join(["lengths in bytes"] * is_text + notes)])
        for line in table(["feature", "shape", "rows", "values", "min", "max", "mean", "std", ""], lines):
            self._print(line)

    def _show_checks(self, findings: Findings) -> None:
        self._print()
        for line in check_lines(findings):
            self._print(line)

    def _look_at_tensors(
        self, found: Input, given: Given, findings: Findings, workspace: Workspace, images: ImageCodecs
    ) -> None:
        options = replace(tensor_options(given), images=images)
        previews: list[str] = []
        try:
            for tensor in open_tensors(found.source, found.sniffed.form, options, workspace):
                if isinstance(tensor, Array) and tensor.num_bytes <= _MOST_READ:
                    tensor = tensor.read(workspace.budget)
                previews.append(_preview(tensor))
                if self._pictures and found.sniffed.form in _IMAGES and isinstance(tensor, Array):
                    pixels = tensor.values.reshape(tensor.shape)
                    for line in half_blocks(pixels if pixels.ndim == 3 else pixels[0], terminal_width() - 1):
                        self._print(line)
                findings.tensors += json.loads(describe_tensors([tensor]))
            findings.is_whole = True
        except InputError as error:
            if not findings.tensors:
                raise
            findings.fault = error
        lines = [
            [of["name"] or "", of["kind"], of["dtype"], shape_text(of["shape"]), size_text(of["num_bytes"]),
             _text(of.get("min", of.get("min_length"))), _text(of.get("max", of.get("max_length"))),
             _text(of.get("mean", of.get("mean_length"))), preview]
            for of, preview in zip(findings.tensors, [*previews, ""], strict=False)
        ]  # fmt: skip
        self._print(f"\n{count_text(len(lines), 'tensor')}")
        for line in table(
            ["name", "kind", "dtype", "shape", "size", "min", "max", "mean", "first values"], lines
        ):
            self._print(line)
        self._show_checks(findings)


_NOTED: Final = (
    ("num_missing", "missing"), ("num_zeros", "zeros"), ("num_nan", "NaN"), ("num_infinite", "infinite"),
    ("num_empty", "empty"),
)  # fmt: skip


def _preview(tensor: AnyTensor) -> str:
    values = tensor if isinstance(tensor, Array) else tensor.values
    return "" if values.is_arriving else values_text(values.elements, values.dtype)


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _until_fault(batches: Iterator[Batch], findings: Findings) -> Iterator[Batch]:
    """The batches, up to the first that cannot be read."""
    try:
        yield from batches
    except InputError as error:
        findings.fault = error


def _rows_json(records: Records, first: Batch, num_rows: int, workspace: Workspace) -> list[Any]:
    """The first rows as JSON, as many as take little room."""
    while num_rows and first.rows(0, num_rows).nbytes > _MOST_JSON:
        num_rows -= 1
    head = replace(records, batches=iter([first.rows(0, num_rows)] if num_rows else []), num_rows=num_rows)
    encoded = encode_records(head, "ndjson", RecordsEncodeOptions(lossy=True), workspace.budget)
    return [json.loads(line) for line in b"".join(map(bytes, encoded.chunks)).splitlines()]


def check_lines(findings: Findings) -> Iterator[str]:
    """What is wrong, with places; or that nothing is."""
    if not findings.is_damaged:
        yield "Checks: all of it can be read" + (
            ", every checksum holds." if findings.form == "tfrecord" else "."
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
        yield printable(f"Damaged: {fault.detail} [{fault.code}{place}]")


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
        findings = _Inspection(given, num_rows, head=head, pictures=shows, quiet=as_json).run(run, name)
        documents.append(findings.to_json())
        damaged |= findings.is_damaged
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
            findings = inspection.run(run, name)
        except InputError as error:
            findings = Findings(Source(name).name, None, fault=error)
        except BrokenPipeError:
            raise
        except FAILURES as error:
            told = tell(error, as_json=as_json)
            status = status or told
            continue
        if findings.is_damaged:
            status = status or DAMAGED_FILE
        if as_json:
            kept = ("input", "num_bytes", "format", "num_records", "lost", "fault")
            documents.append({key: value for key, value in findings.to_json().items() if key in kept})
            continue
        count = "" if findings.num_records is None else f", {count_text(findings.num_records, 'row')}"
        verdict = "damaged" if findings.is_damaged else "good"
        click.echo(printable(f"{findings.name}: {verdict} ({findings.form or 'unknown'}{count})"))
        if findings.is_damaged:
            for line in check_lines(findings):
                click.echo(f"  {line}")
    if as_json and documents:
        click.echo(json.dumps(documents[0] if len(names) == 1 else documents))
    return status
