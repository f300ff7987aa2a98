"""`shardsmith convert`: one input, one output, whatever either holds."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from ..codecs.compression.deflate import compress_as_it_comes
from ..codecs.forms import RECORDS_CODECS, TENSOR_CODECS, FormName
from ..codecs.options import RecordsEncodeOptions, TensorEncodeOptions
from ..codecs.sniff import form_of_name
from ..domain.compression import Compression
from ..domain.losses import Losses
from ..runtime.images import ImageCodecs
from ..runtime.streams import Buffer
from ..runtime.workspace import Workspace
from ..services.convert.records import encode_records
from ..services.convert.tensors import TensorConversion, convert_tensors
from ..transforms.apply import SkippedRows
from .reading import (
    Given,
    Input,
    check_form,
    kind_between,
    nonfinite_in,
    open_input,
    read_rows,
    refuse_inapplicable,
    tensor_options,
)
from .screen.terminal import SafeText, changes, count_text, printable, size_text
from .sources import STANDARD, Run, Source

#: Formats that a terminal can show.
_TEXT: Final = frozenset({"json", "ndjson", "csv", "libsvm", "b64"})


class Target:
    """What a command writes: a file, which appears whole at the end, or standard output.

    Args:
        given: a path, or `-`.
        form: of what is written.
        container: around it.
        force: an existing file is replaced.

    Raises:
        FileExistsError: there is such a file.
        click.UsageError: bytes would go to a terminal.
    """

    def __init__(self, given: str, form: FormName, container: object = None, *, force: bool) -> None:
        self._path = None if given == STANDARD else Path(given)
        self.num_bytes = 0
        if self._path is None:
            if sys.stdout.isatty() and (form not in _TEXT or container is not None):
                raise click.UsageError("A terminal cannot show this format. Name a file, or a pipe.")
        elif self._path.exists() and not force and self._path.is_file():
            raise self._exists()
        elif not self._path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "There is no such folder", str(self._path.parent))
        self._force = force

    def write(self, chunks: Iterator[Buffer]) -> None:
        """Write all chunks. A file that cannot be completed leaves nothing."""
        if self._path is None:
            stream = sys.stdout.buffer
            self._copy(chunks, SafeText(stream) if sys.stdout.isatty() else stream)
            stream.flush()
            return
        if self._path.exists() and not self._path.is_file():  # a device or a pipe
            with self._path.open("wb") as file:
                self._copy(chunks, file)
            return
        unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            with unfinished.open("xb") as file:
                self._copy(chunks, file)
                file.flush()
                os.fsync(file.fileno())
            self._finish(unfinished, self._path)
            _sync_folder(self._path.parent)
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()

    def _finish(self, unfinished: Path, path: Path) -> None:
        """Give the file its name. One that was made meanwhile stays, unless it is forced."""
        if not self._force:
            try:
                path.hardlink_to(unfinished)
                return
            except FileExistsError:
                raise self._exists() from None
            except OSError:  # a file system without links
                if path.exists():
                    raise self._exists() from None
        unfinished.replace(path)

    def _exists(self) -> FileExistsError:
        return FileExistsError(errno.EEXIST, "It exists; --force replaces it", str(self._path))

    def _copy(self, chunks: Iterator[Buffer], file: Any) -> None:
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            self.num_bytes += len(view)
            file.write(view if not isinstance(file, SafeText) else bytes(view))


def _sync_folder(folder: Path) -> None:
    """A name that was told to be there outlives a power failure, as far as the system can promise that."""
    with suppress(OSError):  # some file systems sync no folders
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def convert(given_in: str, given_out: str, *, force: bool, as_json: bool, given: Given) -> None:
    """Convert one input to one output, and say on standard error what became of it.

    Raises:
        ShardsmithError: the input cannot be read, or does not fit into the output.
    """
    run, source = Run(), Source(given_in)
    named, container = form_of_name(given_out)
    with run.open(source) as opened:
        found = open_input(opened, given)
        written = _output_form(given, named, given_out)
        kind = kind_between(found.sniffed, given, written)
        holders: Container[str] = RECORDS_CODECS if kind == "records" else TENSOR_CODECS
        if written not in holders or found.sniffed.form not in holders:
            one, other = ("rows", "tensors") if kind == "records" else ("tensors", "rows")
            raise click.UsageError(
                f"{found.sniffed.form} -> {written}: one of the two holds {one} alone, the other {other}."
            )
        found = replace(found, sniffed=replace(found.sniffed, kind=kind))
        refuse_inapplicable(given, found.sniffed.form, kind, written)
        compression = given.get("compression")
        if written == "tfrecord" and compression is None and container in ("gzip", "zlib"):
            compression, container = container, None
        elif written == "tfrecord" and compression is not None:
            container = None
        if container == "zlib":
            raise click.UsageError("Only TFRecord is written as .zlib. Use .gz or .zst.")
        target = Target(given_out, written, container, force=force)
        convert_all = _rows if kind == "records" else _tensors
        chunks, told = convert_all(
            found, written, compression, given_out, given, opened.workspace, opened.images
        )
        if container == "gzip" or container == "zstd":
            chunks = compress_as_it_comes(chunks, container)
        target.write(chunks)
        _say(told, source.name, found, written, target.num_bytes, as_json=as_json)


def _output_form(given: Given, named: FormName | None, out: str) -> FormName:
    form = check_form(given["to"]) if given.get("to") else named
    if form is None:
        where = "Standard output has no name" if out == STANDARD else f"The name {out!r} tells no format"
        raise click.UsageError(f"{where}. Say --to FORMAT.")
    codecs = [table[form] for table in (RECORDS_CODECS, TENSOR_CODECS) if form in table]
    if not any(codec.kinds for codec in codecs):
        raise click.UsageError(f"The format {form} is read, and not written.")
    return form


def _rows(
    found: Input,
    written: FormName,
    compression: Compression | None,
    out: str,
    given: Given,
    workspace: Workspace,
    images: ImageCodecs,
) -> tuple[Iterator[Buffer], dict[str, Any]]:
    if given.get("layout") not in (None, "rows", "columns"):
        raise click.UsageError("--layout of rows is rows or columns.")
    losses = Losses() if given.get("damaged") == "skip" else None
    skipped = SkippedRows() if given.get("on_error") == "skip" else None
    records = read_rows(found, given, workspace, images, losses=losses, skipped=skipped)
    options = RecordsEncodeOptions(
        layout=given.get("layout") or "rows",
        nonfinite=_nonfinite_out(given),
        int64=given["int64"],
        text=given["bytes_"],
        b64=given["b64"],
        compression=compression or "none",
        arrow="stream" if out.lower().endswith(".arrows") or out == STANDARD else "file",
        delimiter="\t" if out.lower().endswith((".tsv", ".tsv.gz", ".tsv.zst")) else ",",
        as_bytes=given.get("message") == "bytes"
        or (found.sniffed.as_bytes and written in ("tfrecord", "b64")),
        lossy=given.get("lossy") == "allow",
        exact=given.get("lossy") == "error",
    )
    converted = encode_records(records, written, options, workspace.budget, skipped)
    told: dict[str, Any] = {}

    def draw() -> Iterator[Buffer]:
        yield from converted.chunks
        told["num_records"] = converted.count.value
        told["rounded"] = list(converted.rounded.names)
        told["dropped"] = list(converted.dropped)
        told["as_text"] = list(converted.as_text)
        if converted.json_bytes is not None:
            told["json_bytes"] = converted.json_bytes
        if skipped is not None:
            told["skipped"] = skipped.count
        if losses is not None:
            told["lost"] = losses.to_json()

    return draw(), told


def _tensors(
    found: Input,
    written: FormName,
    compression: Compression | None,
    out: str,
    given: Given,
    workspace: Workspace,
    images: ImageCodecs,
) -> tuple[Iterator[Buffer], dict[str, Any]]:
    if given.get("layout") == "rows" or given.get("layout") == "columns":
        raise click.UsageError("--layout of tensors is flat, nested or oip.")
    if given.get("lossy") == "error":
        raise click.UsageError("--lossy of tensors is allow.")
    conversion = TensorConversion(
        input_form=found.sniffed.form,
        output_form=written,
        output_chosen=True,
        decode=tensor_options(given),
        encode=TensorEncodeOptions(
            layout=given.get("layout") or "flat",
            nonfinite=_nonfinite_out(given),
            int64=given["int64"],
            text=given["bytes_"],
            byte_order=given["byte_order"],
            order=given["order"],
            sparse=given["sparse"],
            b64=given["b64"],
            compression=compression or "none",
            arrow="stream" if out.lower().endswith(".arrows") or out == STANDARD else "file",
            quality=given["quality"],
        ),
    ).with_images(images)
    converted = convert_tensors(found.source, conversion, workspace, found.num_bytes)
    told: dict[str, Any] = {}
    if converted.json_bytes is not None:
        told["json_bytes"] = converted.json_bytes
    if converted.tensors is not None:
        told["num_tensors"] = len(converted.tensors)
    return converted.chunks, told


def _nonfinite_out(given: Given) -> Any:
    value = given.get("nonfinite")
    return value if nonfinite_in(given) == "null" or value in ("null", "error") else "string"


def _say(
    told: dict[str, Any], name: str, found: Input, written: FormName, num_bytes: int, *, as_json: bool
) -> None:
    """What became of the input, on standard error: standard output may be the output."""
    if as_json:
        document = {"input": name, "from": found.sniffed.form, "to": written, "num_bytes": num_bytes, **told}
        click.echo(json.dumps(document), err=True)
        return
    lost = told.get("lost", {"num_ranges": 0})
    notes = [
        count_text(told["num_records"], "row") if "num_records" in told else "",
        count_text(told["num_tensors"], "tensor") if "num_tensors" in told else "",
        size_text(num_bytes),
        *changes(told),
        f"left out, since they have no values: {', '.join(told['dropped'])}" if told.get("dropped") else "",
        f"left out by transforms: {count_text(told['skipped'], 'row')}" if told.get("skipped") else "",
        f"lost: {size_text(lost['num_bytes'])} in {lost['num_ranges']} places" if lost["num_ranges"] else "",
        f"the JSON in front has {told['json_bytes']} bytes" if "json_bytes" in told else "",
    ]
    line = f"{name} ({found.sniffed.form}) -> {written}: {'; '.join(filter(None, notes))}"
    click.echo(printable(line), err=True)
