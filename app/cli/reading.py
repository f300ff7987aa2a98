"""Rows and tensors out of what a command was given: what it is, and how its options say that it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import click

from ..codecs.applicability import inapplicable
from ..codecs.array import AnyTensor
from ..codecs.columns import Records
from ..codecs.compression.inflate import InflatedStream
from ..codecs.forms import FORMS, RECORDS_CODECS, TENSOR_CODECS, FormName
from ..codecs.json.text import parse_json
from ..codecs.options import CsvDialect, RecordsDecodeOptions, TensorDecodeOptions
from ..codecs.schemas.declared import parse_schema
from ..codecs.sniff import HEAD_BYTES, Kind, Sniffed, form_of_name, sniff
from ..domain.dtypes import parse_dtype
from ..domain.feature import steps_text
from ..domain.limits import Limits
from ..domain.losses import Losses
from ..domain.schema import Message, Schema
from ..domain.tensor import check_shape
from ..runtime.images import ImageCodecs
from ..runtime.streams import ByteStream, OwnFile, peek
from ..runtime.workspace import Workspace
from ..services.convert.records import open_records
from ..services.convert.tensors import decode_tensors
from ..transforms.apply import SkippedRows, apply_transforms
from ..transforms.parse import TRANSFORMS, check_transforms, with_transforms
from .sources import Opened

#: What is given on a command line, by the name of the option.
Given = Mapping[str, Any]

#: Options that need no value of one format.
_DEFAULTS: Final = {
    "byte_order": "little",
    "order": "C",
    "channels": "0",
    "quality": 95,
    "sparse": "single",
    "int64": "number",
    "bytes_": "b64",
    "b64": "standard",
    "damaged": "refuse",
    "nonfinite": "string",
}

#: Options that rows, or tensors, know nothing of.
_OF_TENSORS: Final = ("dtype", "shape", "kind")
_OF_ROWS: Final = ("schema", "message", "transforms", "null_", "archive", "labels")
#: Formats of named arrays.
_ARRAYS: Final = frozenset({"npz", "safetensors", "oip"})


@dataclass(frozen=True, slots=True)
class Input:
    """Bytes, and what they are.

    Attributes:
        source: what the compression around them leaves.
        num_bytes: of it, where that is known.
        raw: the same as they come; one of the two is read.
    """

    source: ByteStream
    sniffed: Sniffed
    num_bytes: int | None
    raw: ByteStream
    raw_bytes: int | None


def open_input(opened: Opened, given: Given) -> Input:
    """What a source is, and its content, of which nothing has been read yet.

    Raises:
        UnknownForm: neither its bytes nor its name say what it is, and no option does.
        click.UsageError: the option names no format, or one that does not hold what `--as` says.
    """
    source, name = opened.stream, opened.source.file_name
    head, stream = _head(source)
    from_ = given.get("from_")
    found = sniff(head, name) if from_ is None else _as_given(check_form(from_), head, name)
    if (as_ := given.get("as_")) is not None:
        found = replace(found, kind="records" if as_ == "rows" else "tensors")
    codecs: Mapping[FormName, object] = RECORDS_CODECS if found.kind == "records" else TENSOR_CODECS
    if found.form not in codecs:
        raise click.UsageError(f"The format {found.form} holds no {given.get('as_') or found.kind}.")
    raw, num_bytes = stream, source.size if isinstance(source, OwnFile) else None
    if found.container is None:
        return Input(stream, found, num_bytes, raw, num_bytes)
    return Input(
        InflatedStream(stream, found.container, opened.workspace.budget), found, None, raw, num_bytes
    )


def _head(source: ByteStream) -> tuple[bytes, ByteStream]:
    if isinstance(source, OwnFile):
        return source.read_at(0, HEAD_BYTES), source
    return peek(source, HEAD_BYTES)


def check_form(name: str) -> FormName:
    """The format of that name.

    Raises:
        click.UsageError: there is none.
    """
    names = [form.name for form in FORMS if form.name != "multipart"]
    if name not in names:
        raise click.UsageError(f"{name!r} is no format. Use one of: {', '.join(names)}.")
    return cast(FormName, name)


def _as_given(form: FormName, head: bytes, name: str) -> Sniffed:
    """A format that an option names; the bytes may still tell what is in it."""
    found = Sniffed(form, "records" if form in RECORDS_CODECS and form not in TENSOR_CODECS else "tensors")
    if form in ("tfrecord", "arrow", "json"):
        found = replace(found, kind="records")
    try:
        seen = sniff(head, name)
    except Exception:  # whatever it seems to be, it was said what it is
        return found
    if seen.form == form:
        return replace(seen, reason="")
    return replace(found, container=seen.container or form_of_name(name)[1] if form != "tfrecord" else None)


def refuse_inapplicable(given: Given, read: FormName, kind: Kind, written: FormName | None = None) -> None:
    """Refuse an option that would change nothing.

    Raises:
        click.UsageError: which one, and what it is for.
    """
    options = [(n, v) for n, v in given.items() if v is not None and _DEFAULTS.get(n) != v]
    for name in _OF_TENSORS if kind == "records" else _OF_ROWS:
        if given.get(name) is not None:
            one, other = ("tensors", "rows") if kind == "records" else ("rows", "tensors")
            option = name.rstrip("_").replace("_", "-")
            raise click.UsageError(f"--{option} is for {one}, and these are {other}. Leave it out.")
    found = inapplicable(options, read=read, written=written)
    if found is not None:
        name, value, forms = found
        here = f"the input is {read}" + (f" and the output is {written}" if written else "")
        option = name.rstrip("_").replace("_", "-")
        raise click.UsageError(f"--{option} {value} is for {forms}; here {here}. Leave it out.")


def read_rows(
    found: Input,
    given: Given,
    workspace: Workspace,
    images: ImageCodecs,
    *,
    losses: Losses | None = None,
    skipped: SkippedRows | None = None,
) -> Records:
    """The rows, after their transforms, decoded as they are drawn.

    Args:
        losses: told of damaged records, which are passed over; None makes the first of them an error.
        skipped: told of rows that a transform does not take, which are left out; likewise.

    Raises:
        InputError: the beginning cannot be read; later rows raise as they are drawn.
    """
    options = replace(rows_options(given, found.sniffed, workspace.budget.limits), losses=losses)
    records = open_records(found.source, found.sniffed.form, options, workspace, found.num_bytes)
    return transformed(records, given, workspace, images, skipped)


def transformed(
    records: Records,
    given: Given,
    workspace: Workspace,
    images: ImageCodecs,
    skipped: SkippedRows | None = None,
) -> Records:
    """The rows after the transforms of their schema, and those of `--transforms`."""
    if given.get("transforms"):
        value = parse_json(given["transforms"].encode(), workspace.budget.anew()).value
        if not isinstance(value, dict):
            raise click.UsageError('--transforms is an object of lists: {"x": [{"step": "flatten"}]}.')
        steps = {name: steps_text(name, "transforms", steps) for name, steps in value.items()}
        records = replace(records, schema=with_transforms(records.schema, steps))
    return apply_transforms(records, images, workspace.budget, skipped)


def rows_options(given: Given, sniffed: Sniffed, limits: Limits) -> RecordsDecodeOptions:
    """How rows are read."""
    wanted = given.get("message")
    if wanted is None and given.get("schema") is None:
        wanted = "bytes" if sniffed.as_bytes else sniffed.message
    message: Message | None = None if wanted == "bytes" else wanted
    schema = declared_schema(given.get("schema"), limits)
    delimiter = given.get("delimiter") or sniffed.delimiter
    labels = None if given.get("labels") is None else tuple(given["labels"].split(","))
    if labels is not None and ("" in labels or len(set(labels)) < len(labels)):
        raise click.BadParameter("it has an empty name, or one twice.", param_hint="--labels")
    return RecordsDecodeOptions(
        schema=None if schema is None else schema.with_message(message),
        message=message,
        nonfinite=nonfinite_in(given),
        infer=given.get("infer", "head"),
        undeclared=given.get("undeclared", "error"),
        json_bytes=given.get("json_bytes"),
        csv=CsvDialect("\t" if delimiter == "tab" else delimiter, tuple((given.get("null_") or "").split(","))
                       if given.get("null_") else ()),
        archive=given.get("archive"),
        labels=labels,
        as_bytes=wanted == "bytes",
        transforms=TRANSFORMS,
    )  # fmt: skip


def nonfinite_in(given: Given) -> Any:
    """What `--nonfinite` says of the input."""
    value = given.get("nonfinite")
    return value if value in ("null", "bare") else "error"


def declared_schema(text: str | None, limits: Limits) -> Schema | None:
    """The schema in a file, or written out.

    Raises:
        InputError: none, or one that no rows can have.
    """
    if text is None:
        return None
    return check_transforms(parse_schema(schema_text(text).encode("utf-8", "surrogateescape"), limits))


def schema_text(text: str) -> str:
    """What `--schema` says: the text of the file that it names, or itself."""
    return text if text.lstrip().startswith("{") else Path(text).read_text("utf-8", "surrogateescape")


def read_tensors(
    found: Input, given: Given, workspace: Workspace, images: ImageCodecs
) -> Sequence[AnyTensor]:
    """The tensors, all in memory.

    Raises:
        InputError: they cannot be read.
    """
    options = replace(tensor_options(given), images=images)
    return decode_tensors(found.source, found.sniffed.form, options, workspace)


def tensor_options(given: Given) -> TensorDecodeOptions:
    """How tensors are read."""
    shape = given.get("shape")
    dims = [] if not shape else shape.split(",")
    if not all(dim.strip().isascii() and dim.strip().isdigit() and len(dim) < 20 for dim in dims):
        raise click.BadParameter("it is a list of dimensions, as in 2,3.", param_hint="--shape")
    return TensorDecodeOptions(
        dtype=None if given.get("dtype") is None else parse_dtype(given["dtype"]),
        shape=None if shape is None else check_shape([int(dim) for dim in dims]),
        byte_order=given.get("byte_order", "little"),
        order=given.get("order", "C"),
        kind=given.get("kind"),
        json_bytes=given.get("json_bytes"),
        nonfinite=nonfinite_in(given),
        lossy=given.get("lossy") == "allow",
        channels=int(given.get("channels", "0")),
    )


def kind_between(found: Sniffed, given: Given, written: FormName) -> Kind:
    """Whether rows or tensors go from one format to another: what both hold, and what the input seems to be.

    Raises:
        click.UsageError: arrays that could become rows as well as tensors.
    """
    form = found.form
    if given.get("as_") is None and form != written:
        if form not in TENSOR_CODECS or written not in TENSOR_CODECS:
            return "records"
        if form not in RECORDS_CODECS or written not in RECORDS_CODECS:
            return "tensors"
        if form in _ARRAYS and written not in _ARRAYS:
            raise click.UsageError(
                f"The arrays of {form} could be columns of rows, or tensors. Say --as rows or --as tensors."
            )
    return found.kind
