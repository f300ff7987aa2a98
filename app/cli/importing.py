"""`shardsmith import`: rows of a bucket, a folder or a list of URLs become a version, by many processes."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import closing, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from .failures import UNREADABLE

if TYPE_CHECKING:
    from ..domain.limits import Limits
    from ..local import Local
    from ..services.datasets.imports.engines import Engine
    from ..services.datasets.imports.request import ImportRequest
    from ..services.datasets.imports.status import ImportStatus

_MIB: Final = 1024 * 1024
_PUBLISH: Final = (
    "num_shards", "shard_bytes", "compression", "shuffle", "seed", "fractions", "divide", "by", "base",
)  # fmt: skip
_COMPRESSIONS: Final = click.Choice(["none", "gzip", "zlib"])


@click.command("import")
@click.argument("source")
@click.option("--dataset", required=True, help="Dataset to import into; created if it does not exist.")
@click.option("--split", default="train", show_default=True, help="Split that the rows belong to.")
@click.option("--from", "form", help="Format of the objects; by default the endings of their names tell.")
@click.option(
    "--schema",
    metavar="FILE|JSON",
    help="The schema of the rows; by default the dataset's, or that of the first rows.",
)
@click.option("--message", type=click.Choice(["example", "sequence_example"]), help="What a TFRecord holds.")
@click.option(
    "--undeclared",
    type=click.Choice(["error", "drop"]),
    default="error",
    help="Features that the schema lacks.",
)
@click.option(
    "--nonfinite", type=click.Choice(["error", "null", "bare"]), default="error", help="NaN in JSON."
)
@click.option("--lossy", type=click.Choice(["allow", "error"]), help="Values that float32 would change.")
@click.option("--delimiter", help="Between the fields of a CSV.")
@click.option("--evolve/--no-evolve", default=False, help="Let rows widen the schema of the dataset.")
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="If a range cannot be read: stop, or leave it out and say so.",
)
@click.option(
    "--range-mib",
    type=click.FloatRange(0, min_open=True),
    default=256,
    show_default=True,
    help="MiB to append at a time.",
)
@click.option("--key", help="Names the import; by default made from what is asked for.")
@click.option("--publish/--no-publish", default=True, show_default=True, help="Publish the rows at the end.")
@click.option("--num-shards", type=click.IntRange(1), help="Shards of each split; by size if not given.")
@click.option("--shard-bytes", type=click.IntRange(1), help="Size of a shard, instead of --num-shards.")
@click.option("--compression", type=_COMPRESSIONS, default="none", help="Of every shard.")
@click.option("--shuffle/--no-shuffle", default=False, help="Shuffle each split as a whole, by --seed.")
@click.option("--seed", type=int, help="Of shuffle and division.")
@click.option("--fractions", help="Deal the rows out to splits: train:0.8,test:0.2.")
@click.option("--divide", help="Split whose rows are dealt out.")
@click.option("--by", help="Deal out by the value of this feature.")
@click.option(
    "--base", type=click.Choice(["latest", "none"]), default="latest", help="Add to the last version, or not."
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    help="What does the ranges, in place of SHARDSMITH_IMPORT_ENGINE.",
)
@click.option("--processes", type=click.IntRange(1), help="Of --engine local; one a processor by default.")
@click.option(
    "--index", type=click.IntRange(0), help="Do only every --of'th range, from this one, in this process."
)
@click.option("--of", "of", type=click.IntRange(1), help="How many such processes there are.")
@click.option(
    "--wait", is_flag=True, help="With --index: wait for the others, and write only every --of'th shard."
)
@click.option("--data", help="Where datasets live, in place of SHARDSMITH_STORAGE_URL.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def import_command(source: str, **given: Any) -> None:
    """Import rows from SOURCE into a dataset, and publish them.

    SOURCE is a folder, a file or a URL: s3://bucket/prefix, gs://, az://, file:///folder, or https://. A
    pattern such as s3://bucket/logs/*.parquet takes what matches. The same command again goes on with an
    import that was broken off, and does nothing once it is done.
    """
    from ..errors import CannotStart
    from ..services.datasets.imports.drive import drive
    from ..services.datasets.imports.engines import EngineDied

    index, of = given["index"], given["of"]
    if (index is None) != (of is None) or (of is not None and index >= of):
        raise click.UsageError("--index counts from 0 and is less than --of; give both, or neither.")
    if given["wait"] and of is None:
        raise click.UsageError("--wait is for one process of several. Give --index and --of with it.")
    if given["engine"] == "ray" and (of is not None or given["processes"] is not None):
        raise click.UsageError("Ray deals out the ranges itself. Leave out --index, --of and --processes.")
    local = _open(given)
    request = _request(source, given, local.settings.limits)
    import_id, _ = local.imports.begin(given["dataset"], request, given["key"] or _key_of(request))
    status = local.imports.follow(given["dataset"], import_id)
    try:
        # Ray says on standard output what its nodes do.
        with (
            redirect_stdout(sys.stderr),
            closing(_engine(local, given)) as engine,
            _Bar(status, of or 1) as bar,
        ):
            status = drive(
                local.imports, given["dataset"], import_id, engine,
                index=index or 0, of=of or 1, wait=given["wait"],
                on_outcome=lambda done: bar.add(done.source_bytes),
            )  # fmt: skip
    except EngineDied as error:
        raise CannotStart(str(error)) from error
    click.echo(json.dumps(status.to_json()) if given["as_json"] else describe(status))
    if status.state == "stopped":
        sys.exit(UNREADABLE)


def _open(given: dict[str, Any]) -> Local:
    from ..local import open_local

    return open_local(_settings(given), given["processes"] or 1)


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """Settings that take precedence over the environment."""
    from ..local import url_of

    data = None if given["data"] is None else url_of(given["data"])
    found = {"storage_url": data, "import_engine": given["engine"]}
    return {name: value for name, value in found.items() if value is not None}


def _request(source: str, given: dict[str, Any], limits: Limits) -> ImportRequest:
    from ..domain.sharding.division import parse_fractions
    from ..local import url_of
    from ..services.datasets.imports.request import ImportRequest
    from ..services.datasets.objects.publish_options import PublishOptions
    from .reading import declared_schema

    publish = None
    if given["publish"]:
        options = {name: given[name] for name in _PUBLISH}
        if options["fractions"] is not None:
            options["fractions"] = parse_fractions(options["fractions"])
        publish = PublishOptions(**options)
    return ImportRequest(
        source=url_of(source),
        form=given["form"],
        split=given["split"],
        schema=declared_schema(given["schema"], limits),
        range_bytes=max(1, int(given["range_mib"] * _MIB)),
        on_error=given["on_error"],
        evolve=given["evolve"],
        message=given["message"],
        undeclared=given["undeclared"],
        nonfinite=given["nonfinite"],
        lossy=given["lossy"],
        delimiter=given["delimiter"],
        publish=publish,
    )


def _key_of(request: ImportRequest) -> str:
    """The same for the same request, so that the same command goes on.

    Only what is not by default counts, so that it also does in a release that has more options; and not what
    becomes of a range that cannot be read, so that one that stopped there can go on without it.
    """
    usual = type(request)(source="").to_json()
    told = _without(usual, replace(request, on_error="stop").to_json())
    if told.get("publish") is not None:
        told["publish"] = _without(usual["publish"], told["publish"])
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def _without(usual: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value != usual[name]}


def _engine(local: Local, given: dict[str, Any]) -> Engine:
    from ..errors import CannotStart
    from ..local import OpenImports, default_processes
    from ..services.datasets.imports.engines import HereEngine, LocalEngine, RayEngine

    # Said to each: the environment of a node of Ray need not be that of this process.
    place = {"storage_url": local.settings.storage_url}
    if local.settings.import_engine == "ray" and given["index"] is None and given["processes"] is None:
        try:
            return RayEngine(OpenImports.of(place, 1), local.settings.ray_address)
        except ImportError as error:
            raise CannotStart(
                "Ray is not installed. Install it with: pip install 'shardsmith[service,ray]'"
            ) from error
    processes = given["processes"] or (1 if given["index"] is not None else default_processes())
    return (
        HereEngine(local.imports)
        if processes == 1
        else LocalEngine(OpenImports.of(place, processes), processes)
    )


class _Bar:
    """A bar of the source's bytes with the time left; where nobody looks on, nothing."""

    def __init__(self, status: ImportStatus, of: int) -> None:
        total = max(1, status.plan.num_bytes // of)
        self._bar = click.progressbar(
            length=total, label=f"Importing {status.plan.num_ranges} ranges", file=sys.stderr, show_eta=True
        )
        self._done = min(total, status.source_bytes // of)

    def __enter__(self) -> _Bar:
        if sys.stderr.isatty():
            self._bar.__enter__()
            self._bar.update(self._done)
        return self

    def add(self, num_bytes: int) -> None:
        if sys.stderr.isatty():
            self._bar.update(num_bytes)

    def __exit__(self, *error: Any) -> None:
        if sys.stderr.isatty():
            self._bar.__exit__(*error)


def describe(status: ImportStatus) -> str:
    """The outcome in a few lines."""
    from .screen.terminal import changes, printable

    plan = status.plan
    lines = [
        f"{status.num_records} rows of {status.done} of {plan.num_ranges} ranges "
        f"({plan.num_objects} objects) are in dataset {status.dataset}."
    ]
    if plan.passed_over:
        lines.append(
            f"{plan.passed_over} objects of the source were passed over: they are of another format, hidden "
            "or empty."
        )
    lines += [printable(f"{change[0].upper()}{change[1:]}.") for change in changes(status.changes)]
    lines += [
        f"Range {item['range']}, bytes {item['start']} to {item['stop']} of {item['object']}: "
        f"{item['detail']} ({item['code']})"
        for item in status.failures
    ]
    lines.append(
        {
            "done": "Done." if status.version is None else f"Version {status.version} is published.",
            "cancelled": "The import was cancelled.",
            "stopped": "It stopped. The same command goes on once the source can be read, or, with "
            "--on-error skip, without what cannot.",
        }.get(status.state, "Other processes have the rest to do.")
    )
    return "\n".join(lines)
