"""The commands that work on datasets: `put`, `publish`, `ls`, `rows` and `get`."""

from __future__ import annotations

from typing import Any

import click

from . import options

_version = click.option("--version", default="latest", help="x.y.z, or latest.")


@click.command()
@click.argument("inputs", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--dataset", "-d", required=True, help="The dataset; made with the schema of the rows if it is new."
)
@click.option("--split", default="train", help="The split that the rows belong to.")
@click.option("--again", is_flag=True, help="Store a file that was stored before once more.")
@options.reading
@options.lossy
@options.damaged
@options.on_error
@click.option("--evolve", is_flag=True, help="Let the rows add features and widen those that were inferred.")
@options.nonfinite
@options.place
@options.as_json
def put(inputs: tuple[str, ...], dataset: str, split: str, again: bool, as_json: bool, **given: Any) -> None:
    """Append files of rows to a dataset, each as a whole or not at all.

    A file that was stored in the same split in the same way is not stored twice: the same command again goes
    on where it was interrupted.
    """
    from .. import storing

    storing.put(inputs, dataset, split, again=again, as_json=as_json, given=given)


@click.command()
@click.argument("dataset")
@click.option("--num-shards", type=click.IntRange(1), help="Shards a split; by size if not given.")
@click.option("--shard-bytes", type=click.IntRange(1), help="Size of a shard, in place of their number.")
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "zlib"]), default="none", help="Of every shard."
)
@click.option("--index/--no-index", default=None, help="Of record offsets; with it unless compressed.")
@click.option("--shuffle", is_flag=True, help="Shuffle each split as a whole, by --seed.")
@click.option("--seed", type=int, default=0, help="Of shuffle and division.")
@click.option("--fractions", help="Deal new rows out to splits: train:0.8,test:0.2.")
@click.option("--divide", help="The split whose new rows are dealt out: train.")
@click.option("--by", help="Deal out by the value of this feature.")
@click.option(
    "--base", type=click.Choice(["latest", "none"]), default="latest", help="Add to the last version, or not."
)
@click.option("--exclude", metavar="IDS", help="Appends to leave out for good, separated by commas.")
@click.option("--key", help="The same key and options again give the same version.")
@options.place
@options.as_json
def publish(dataset: str, as_json: bool, **given: Any) -> None:
    """Publish every append that waits as the next version."""
    from .. import storing

    storing.publish(dataset, as_json=as_json, given=given)


@click.command()
@click.argument("dataset", required=False)
@click.argument("version", required=False)
@options.place
@options.as_json
def ls(dataset: str | None, version: str | None, as_json: bool, **given: Any) -> None:
    """List datasets; of a dataset, its versions and what waits; of a version, its files."""
    from .. import storing

    storing.ls(dataset, version, as_json=as_json, given=given)


@click.command()
@click.argument("dataset")
@_version
@click.option("--split", default="train", help="The split to read.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Rows to skip.")
@click.option("--length", type=click.IntRange(0), help="Rows to read at most; 20 in a table, else all.")
@click.option("--shuffle-buffer", type=click.IntRange(0, 2**31), help="Shuffle, in windows of so many rows.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Of the shuffle; 0 if not given.")
@click.option("--epoch", type=click.IntRange(0, 2**63 - 1), help="Of the shuffle: each has another order.")
@options.transforms
@options.on_error
@click.option("--to", help="Format of the rows; a table on a terminal, ndjson elsewhere.")
@click.option("-o", "--output", default="-", help="The file to write; standard output by default.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@options.place
def rows(dataset: str, **given: Any) -> None:
    """Read rows of a published version."""
    from .. import storing

    storing.rows(dataset, given=given)


@click.command()
@click.argument("dataset")
@_version
@click.option(
    "-o", "--output", default=".", help="The folder in which DATASET/VERSION is made; here by default."
)
@click.option("--jobs", type=click.IntRange(1, 32), default=4, help="Files that are fetched at a time.")
@options.place
@options.as_json
def get(dataset: str, version: str, output: str, jobs: int, as_json: bool, **given: Any) -> None:
    """Download a version, and verify the SHA-256 of each file.

    The same command again goes on where it was interrupted, and leaves alone what is there.
    """
    from .. import storing

    storing.get(dataset, version, output, jobs, as_json=as_json, given=given)
