"""The commands that work on files: `inspect`, `convert`, `describe`, `validate` and `repair`."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..failures import DAMAGED_FILE, DAMAGED_VERSION
from . import options

_force = click.option("--force", is_flag=True, help="Replace a file that is there.")


@click.command()
@click.argument("inputs", metavar="FILE|URL|-...", nargs=-1, required=True)
@click.option("--rows", "num_rows", type=click.IntRange(0, 1000), default=5, help="First rows to show.")
@click.option("--head", is_flag=True, help="Stop behind the first rows: no counts, statistics and checks.")
@click.option(
    "--images/--no-images", "pictures", default=None, help="Images as half blocks; on terminals by default."
)
@options.reading
@options.nonfinite
@options.as_json
def inspect(
    inputs: tuple[str, ...], num_rows: int, head: bool, pictures: bool | None, as_json: bool, **given: Any
) -> None:
    """Show what a file is: its format, schema, first rows, statistics, and damage with offsets.

    Its first bytes say what it is, and its name where those do not. The first rows come at once, the rest
    when all of it has been read. The exit status is 3 if it is damaged.
    """
    from .. import inspection

    if inspection.inspect(inputs, num_rows, head=head, pictures=pictures, as_json=as_json, given=given):
        sys.exit(DAMAGED_FILE)


@click.command()
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@options.writing
@options.lossy
@options.reading
@options.transforms
@options.on_error
@options.damaged
@options.nonfinite
@_force
@options.as_json
def convert(source: str, target: str, force: bool, as_json: bool, **given: Any) -> None:
    """Convert a file to another format: rows to rows, tensors to tensors.

    IN is a file, a URL or - (standard input); OUT a file or - (standard output). The name of OUT says its
    format, and .gz, .zst or .zlib behind it that it is compressed. OUT appears whole at the end.
    """
    from .. import conversion

    conversion.convert(source, target, force=force, as_json=as_json, given=given)


@click.command()
@click.argument("source", metavar="FILE|URL|-")
@click.option(
    "--to",
    type=click.Choice(["json", "schema", "pbtxt", "features", "python", "torch"]),
    default="json",
    help="Statistics (json), or the schema: ours, of TFMD, of TFDS, as source for tf.data, or for PyTorch.",
)
@click.option("-o", "--output", default="-", help="The file to write; standard output by default.")
@options.reading
@options.nonfinite
@_force
def describe(source: str, to: str, output: str, force: bool, **given: Any) -> None:
    """Write the statistics of a file, or its schema in a form that others read."""
    from .. import checking

    checking.describe(source, to, output, force=force, given=given)


@click.command()
@click.argument("inputs", metavar="FILE|URL|-...", nargs=-1)
@click.option("--dataset", "-d", help="Check a published version instead.")
@click.option("--version", default="latest", help="Of the dataset: x.y.z, or latest.")
@options.reading
@options.nonfinite
@options.place
@options.as_json
def validate(inputs: tuple[str, ...], dataset: str | None, version: str, as_json: bool, **given: Any) -> None:
    """Read files to their ends, and say what is damaged and where.

    Files behind one that cannot be read are checked all the same. With --dataset a published version is
    checked against its manifest. The exit status is that of the first file at fault, 3 for a damaged one; and
    8 for a damaged version.
    """
    if (dataset is None) == (not inputs):
        raise click.UsageError("Name files, or a dataset with --dataset.")
    if dataset is None and (given["data"] or given["token_file"]):
        raise click.UsageError("--data and --token-file are for a dataset. Name one with --dataset.")
    if dataset is not None:
        from .. import storing

        if storing.validate(dataset, version, as_json=as_json, given=given):
            sys.exit(DAMAGED_VERSION)
        return
    from .. import inspection

    sys.exit(inspection.validate(inputs, as_json=as_json, given=given))


@click.command()
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@_force
@options.as_json
def repair(source: str, target: str, force: bool, as_json: bool) -> None:
    """Write the good records of a damaged TFRecord, and say what is lost."""
    from .. import checking

    checking.repair(source, target, force=force, as_json=as_json)
