"""`shardsmith describe` and `shardsmith repair`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import click

from ..codecs.forms import MESSAGE_FORMS
from ..errors import MalformedInput
from ..runtime.streams import Buffer
from ..services.convert.describe import Description, describe_records, describe_tensors
from ..services.convert.repair import Repair, repair_records
from .conversion import Target
from .reading import Given, open_input, read_rows, read_tensors, refuse_inapplicable
from .screen.terminal import count_text, printable, size_text
from .sources import Run, Source


def describe(name: str, to: str, out: str, *, force: bool, given: Given) -> None:
    """Write what an input holds: its statistics, or its schema in a form that others read."""
    run, source = Run(), Source(name)
    target = Target(out, "json", force=force)
    with run.open(source) as opened:
        found = open_input(opened, given)
        refuse_inapplicable(given, found.sniffed.form, found.sniffed.kind)
        if found.sniffed.kind == "tensors":
            if to != "json":
                raise click.UsageError(
                    f"Tensors have no schema to write as {to}. Say --as rows, or --to json."
                )
            described = describe_tensors(read_tensors(found, given, opened.workspace, opened.images))
        else:
            records = read_rows(found, given, opened.workspace, opened.images)
            is_inferred = given.get("schema") is None and given.get("infer") != "all"
            is_message = found.sniffed.form in MESSAGE_FORMS and not found.sniffed.as_bytes
            find_lengths = is_inferred and is_message and given.get("message") != "bytes"
            described = describe_records(
                records,
                cast(Description, to),
                find_lengths=find_lengths,
                compression=found.sniffed.compression,
            )
        target.write(iter([described]))


def repair(name: str, out: str, *, force: bool, as_json: bool) -> None:
    """Write the good records of a TFRecord, and say what is lost."""
    run, source = Run(), Source(name)
    target = Target(out, "tfrecord", force=force)
    with run.open(source) as opened:
        repaired = repair_records(opened.stream, None, opened.workspace.budget)
        target.write(_with_records(repaired))
    if as_json:
        click.echo(json.dumps(repaired.to_json()), err=True)
        return
    losses = repaired.losses
    lost = (
        f"{count_text(losses.num_bytes, 'byte')} in {count_text(losses.num_ranges, 'place')} lost"
        if losses.num_ranges
        else "nothing is lost"
    )
    found = f"{count_text(repaired.num_records, 'record')}, {size_text(repaired.num_bytes)}"
    click.echo(printable(f"{source.name}: {found}; {lost}"), err=True)


def _with_records(repaired: Repair) -> Iterator[Buffer]:
    """The good records.

    Raises:
        MalformedInput: at the end, if there are none, so that no empty file seems to be what was saved.
    """
    yield from repaired.chunks
    if repaired.losses.num_ranges and not repaired.num_records:
        raise MalformedInput(
            "It has no good record: this is no TFRecord, or all of it is damaged. Nothing is written.",
            code="corrupt_record",
        )
