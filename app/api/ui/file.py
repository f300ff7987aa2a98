"""A file that somebody drops on the page: what it is and holds. Nothing of it is kept.

All that a page says of it was written by strangers: characters that steer are written as escapes, and what is
long is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter

from ...codecs.archives.form_data import FILE, Parts, malformed
from ...codecs.compression.inflate import Container, InflatedStream
from ...codecs.forms import RECORDS_CODECS, TENSOR_CODECS, FormName
from ...codecs.options import CsvDialect, RecordsDecodeOptions, TensorDecodeOptions
from ...codecs.records.lease import Lease
from ...codecs.sniff import HEAD_BYTES, SUFFIXES, Sniffed, sniff
from ...domain.schema import Schema
from ...errors import InputError
from ...runtime.streams import CHUNK_BYTES, ByteStream, peek
from ...services.convert.cells import statistics_cells, tensor_cells
from ...services.convert.describe import Description, serialize_schema
from ...services.convert.distribution import Detail
from ...services.convert.inspect import Findings, NotMessages, RowsInspection, inspect_tensors
from ...services.convert.records import open_records
from ...services.convert.tensors import open_tensors
from ..body.multipart import boundary_of
from ..execution.job import Answer, Job, Plan
from ..operation import NegotiatingHeaders, Operation
from .cells import IN_TABLE, Cell, show_rows, show_tensor
from .feature_statistics import StatisticsView, describe_statistics
from .features import MOST_SOURCE, FeatureLine, describe_features, shorten
from .pictures import Painter
from .rendering import page

router = APIRouter(include_in_schema=False, route_class=Operation)

#: What is shown: rows, features of these, features that are looked at closely, features and tensors in the
#: tables, lost ranges, and characters.
_ROWS: Final = 10
_COLUMNS: Final = 40
_CLOSELY: Final = 20
_LINES: Final = 200
_RANGES: Final = 20
_NAME: Final = 120
_CELL: Final = 240
#: Nobody waits for these statistics, and nobody keeps them: they are coarser than those of a version.
_DETAIL: Final = Detail(counted=512, steps=20, bins=32)

_LOADERS: Final[dict[str, Description]] = {
    "tf.data": "python", "PyTorch": "torch", "TFDS (features.json)": "features",
    "TensorFlow Metadata (schema.pbtxt)": "pbtxt",
}  # fmt: skip
_CONTENT_ENCODINGS: Final[dict[Container, str]] = {"gzip": "gzip", "zstd": "zstd", "zlib": "deflate"}
_DELIMITERS: Final = {"\t": "tab"}


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a file can become: where it is sent once more, and what the answer is called."""

    form: FormName
    path: str
    file: str


@dataclass(slots=True)
class FileView:
    """What the page shows of a file; texts are safe to read and short.

    Attributes:
        refusal: why it cannot be told what it is, or why nothing of it can be read.
        coding: the Content-Encoding with which it is to be sent once more.
        columns, rows: the first features, and the first rows of these.
        statistics, others: of the features that are looked at closely, and of those that are not.
        values: of each tensor.
        left_out: features or tensors that are not shown.
    """

    name: str
    num_bytes: int = 0
    sniffed: Sniffed | None = None
    refusal: str = ""
    features: list[FeatureLine] = field(default_factory=list)
    columns: list[FeatureLine] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    statistics: list[StatisticsView] = field(default_factory=list)
    others: list[list[str]] = field(default_factory=list)
    tensors: list[list[str]] = field(default_factory=list)
    values: list[Cell] = field(default_factory=list)
    num_records: int | None = None
    left_out: int = 0
    is_whole: bool = False
    lost_bytes: int = 0
    num_lost: int = 0
    lost: list[list[str]] = field(default_factory=list)
    fault: str = ""
    loaders: list[tuple[str, str]] = field(default_factory=list)
    conversions: list[Conversion] = field(default_factory=list)
    coding: str = ""


@router.get("/ui/file")
@router.head("/ui/file")
def file_page() -> Plan:
    """Where a file is chosen."""

    def work(job: Job, _: ByteStream) -> Answer:
        return page("file.html", job, {"section": "file", "file": None})

    return Plan(work, "metadata")


@router.post("/ui/file")
def show_file(headers: NegotiatingHeaders) -> Plan:
    """What the file of a form is and holds."""
    boundary = boundary_of(headers.get("content-type", ""))

    def work(job: Job, body: ByteStream) -> Answer:
        source = _FileOfForm(body, boundary)
        view = FileView(shorten(source.name, _NAME))
        try:
            _look(source, view, job)
        except NotMessages as error:
            view.refusal = f"Its first record is a message, and another one is none: {_told(error.fault)}"
        except InputError as error:
            view.refusal = _told(error)
        # Browsers read no answer before they have sent everything.
        while source.read(CHUNK_BYTES):
            pass
        view.num_bytes = source.num_bytes
        return page("file.html", job, {"section": "file", "file": view})

    return Plan(work, "conversion")


class _FileOfForm:
    """The one file of a form as a stream.

    Raises:
        MalformedInput: no form, or one without a file (`malformed_multipart`).
    """

    def __init__(self, body: ByteStream, boundary: bytes) -> None:
        self._parts = Parts(body, boundary)
        part = self._parts.next_part()
        if part is None or part.name != FILE:
            raise malformed(f"the part {FILE!r} is expected", None)
        part.refuse_encoding()
        self.name = (part.parameter(b"filename") or b"").decode("utf-8", "replace")
        self.num_bytes = 0
        self._left = b""
        self._has_ended = False

    def read(self, n: int, /) -> bytes:
        if not self._left and not self._has_ended:
            self._left = self._parts.read_piece()
            self.num_bytes += len(self._left)
            self._has_ended = not self._left
            if self._has_ended and self._parts.next_part() is not None:
                raise malformed("another part follows the file; send one file at a time", None)
        piece, self._left = self._left[:n], self._left[n:]
        return piece


def _look(source: _FileOfForm, view: FileView, job: Job) -> None:
    head, stream = peek(source, HEAD_BYTES)
    view.sniffed = sniffed = sniff(head, source.name)
    if sniffed.container is not None:
        stream = InflatedStream(stream, sniffed.container, job.budget)
        view.coding = _CONTENT_ENCODINGS[sniffed.container]
    view.conversions = list(_conversions(sniffed, source.name))
    if sniffed.kind == "tensors":
        _look_at_tensors(stream, sniffed, view, job)
        return
    inspection = _look_at_rows(stream, sniffed, view, job)
    found = inspection.findings
    schema = found.schema or inspection.records.schema
    view.features = describe_features(schema.features[:_LINES])
    view.columns = view.features[:_COLUMNS]
    view.left_out = max(0, len(schema.features) - _LINES)
    view.num_records = found.num_records
    if found.num_records:
        view.statistics = [
            describe_statistics(place, [feature], [found.features[feature.name]])
            for place, feature in enumerate(schema.features[:_CLOSELY])
        ]
    others = Schema(schema.features[_CLOSELY:_LINES], schema.message)
    view.others = [
        [shorten(cell, _CELL) for cell in line] for line in statistics_cells(others, found.features)
    ]
    view.loaders = list(_loaders(schema, source.name, sniffed))
    _say_damage(found, view)


def _look_at_rows(stream: ByteStream, sniffed: Sniffed, view: FileView, job: Job) -> RowsInspection:
    options = RecordsDecodeOptions(
        message=sniffed.message, as_bytes=sniffed.as_bytes, csv=CsvDialect(sniffed.delimiter)
    )
    inspection = RowsInspection(
        Findings(sniffed),
        lambda losses: open_records(stream, sniffed.form, replace(options, losses=losses), job),
        is_inferred=not sniffed.as_bytes,
    )
    if inspection.first is not None:
        few = inspection.first.rows(0, min(_ROWS, inspection.first.num_rows))
        few = replace(few, columns=few.columns[:_COLUMNS])
        painter = _painter(job)
        view.rows = show_rows(
            inspection.first_schema.features[:_COLUMNS],
            (few.rows(row, row + 1) for row in range(few.num_rows)),
            painter,
            IN_TABLE,
        )
        painter.paint()
    with Lease(job.budget) as lease:
        details = [_DETAIL] * min(_CLOSELY, len(inspection.records.schema))
        lease.charge(sum(detail.num_bytes for detail in details), "Statistics")
        inspection.finish(details)
    return inspection


def _painter(job: Job) -> Painter:
    return Painter(job.services.images, job.budget, IN_TABLE.width, IN_TABLE.height)


def _look_at_tensors(stream: ByteStream, sniffed: Sniffed, view: FileView, job: Job) -> None:
    found = Findings(sniffed)
    options = TensorDecodeOptions(images=job.services.images)
    tensors = open_tensors(stream, sniffed.form, options, job)
    painter = _painter(job)
    for tensor in inspect_tensors(tensors, found, job.budget):
        if len(view.values) < _LINES:
            view.values.append(show_tensor(tensor, painter, IN_TABLE))
            painter.paint()
    lines = islice(tensor_cells(found), _LINES)
    view.tensors = [[shorten(cell, _CELL) for cell in line] for line in lines]
    view.left_out = max(0, len(found.tensors) - _LINES)
    _say_damage(found, view)


def _say_damage(found: Findings, view: FileView) -> None:
    losses = found.losses
    view.is_whole, view.lost_bytes, view.num_lost = found.is_whole, losses.num_bytes, losses.num_ranges
    view.lost = [[f"{lost.offset:,}", f"{lost.num_bytes:,}", lost.reason] for lost in losses.ranges[:_RANGES]]
    view.fault = "" if found.fault is None else _told(found.fault)


def _loaders(schema: Schema, name: str, sniffed: Sniffed) -> Iterator[tuple[str, str]]:
    """Source and schemas that read the Examples of the file, or those that it becomes as TFRecord."""
    file = name if sniffed.form == "tfrecord" else _renamed(name, "tfrecord")
    for title, description in _LOADERS.items():
        try:
            text = serialize_schema(schema, description, sniffed.compression).decode()
        except InputError:
            continue  # what it cannot express
        if description in ("python", "torch"):
            text += f"\n\nrows = load({file!a})\n"
        if len(text) <= MOST_SOURCE:
            yield title, text


def _conversions(sniffed: Sniffed, name: str) -> Iterator[Conversion]:
    """What both routes of conversion make of the file."""
    if sniffed.kind == "records":
        route, codecs = "/v1/records/serialize", {form: bool(of.kinds) for form, of in RECORDS_CODECS.items()}
    else:
        route, codecs = "/v1/tensors/serialize", {form: bool(of.kinds) for form, of in TENSOR_CODECS.items()}
    asked: dict[str, str] = {"from": sniffed.form}
    if sniffed.form in ("tfrecord", "b64") and sniffed.kind == "records":
        message = "bytes" if sniffed.as_bytes else sniffed.message
        asked |= {"message": message} if message not in (None, "example") else {}
    if sniffed.form == "csv" and sniffed.delimiter != ",":
        asked["delimiter"] = _DELIMITERS.get(sniffed.delimiter, sniffed.delimiter)
    for form, is_written in codecs.items():
        if is_written and form != sniffed.form:
            yield Conversion(form, f"{route}?{urlencode({**asked, 'to': form})}", _renamed(name, form))


def _renamed(name: str, form: FormName) -> str:
    """The name with the ending of a format."""
    suffix = next(end for end, named in SUFFIXES.items() if named == form)
    return (shorten(name.partition(".")[0], _NAME) or "file") + suffix


def _told(error: InputError) -> str:
    places = [
        f"{name} {value}"
        for name, value in (("row", error.location.row), ("offset", error.location.offset))
        if value is not None
    ]
    return shorten(f"{error.detail} [{', '.join([error.code, *places])}]", 1000)
