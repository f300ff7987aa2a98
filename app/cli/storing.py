"""What the commands that work on datasets do, wherever these are."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from ..codecs.columns import Batch, Records
from ..codecs.forms import RECORDS_CODECS
from ..codecs.sniff import Sniffed
from ..domain.limits import MIB
from ..domain.manifest import FileEntry, Manifest, ShardEntry
from ..domain.names import check_dataset_name, parse_version
from ..errors import CorruptData
from ..services.convert.cells import row_cells
from .conversion import Target
from .places import Place, open_place
from .reading import Given, check_form, open_input, refuse_inapplicable, schema_text
from .screen.terminal import Progress, changes, count_text, printable, progress, size_text, table
from .sources import STANDARD, Run, Source, pieces_of

#: Rows of a table, unless another number is asked for.
_TABLE_ROWS: Final = 20
_ROWS: Final = (
    "version", "split", "offset", "length", "shuffle_buffer", "seed", "epoch", "transforms", "on_error",
)  # fmt: skip


def put(names: Sequence[str], dataset: str, split: str, *, again: bool, as_json: bool, given: Given) -> None:
    """Append each file, one after the other."""
    run = Run()
    with ExitStack() as resources:
        place = open_place(run, given, resources, creates=True)
        for name in names:
            told = _put_one(run, place, Source(name), dataset, split, again=again, given=given)
            if as_json:
                click.echo(json.dumps({"input": name, **told}))
                continue
            done = (
                "was stored before"
                if told.get("replayed")
                else f"{count_text(told['num_records'], 'row')} stored"
            )
            changed = "".join(f"; {change}" for change in changes(told))
            lost = told.get("lost", {}).get("num_bytes", 0)
            damage = f"; damaged: {count_text(lost, 'byte')} left out" if lost else ""
            skipped = f"; {_skipped_text(told['skipped'])}" if told.get("skipped") else ""
            click.echo(printable(f"{name}: {done} ({told['append_id']}){changed}{damage}{skipped}"))


def _put_one(
    run: Run, place: Place, source: Source, dataset: str, split: str, *, again: bool, given: Given
) -> dict[str, Any]:
    with run.open(source) as opened:
        found = open_input(opened, {**given, "as_": "rows"})
        refuse_inapplicable(given, found.sniffed.form, "records")
        is_named = source.is_read_again
        key = _key(source, dataset, split, found.sniffed, given, again=again) if is_named else None
        return place.put(dataset, split, found, key, given, opened.workspace)


def _key(source: Source, dataset: str, split: str, seen: Sniffed, given: Given, *, again: bool) -> str:
    """The same for the same file, options and split, so that it is stored once, however often it is sent."""
    if again:
        return f"put-{uuid.uuid4().hex}"
    place = ("data", "url", "token_file")
    options = {name: value for name, value in given.items() if name not in place}
    if options.get("schema") is not None:
        options["schema"] = schema_text(options["schema"])
    # Its name may decide what a file is: as another format the same bytes are other rows.
    read_as = [seen.form, seen.container, seen.message, seen.as_bytes, seen.delimiter]
    described = hashlib.sha256(repr([dataset, split, read_as, sorted(options.items())]).encode())
    with ExitStack() as resources, progress(f"reading {source.name}", source.size) as shown:
        stream = source.open(resources, shown.add)
        for piece in pieces_of(stream):
            described.update(piece)
    return f"put-{described.hexdigest()}"


def publish(dataset: str, *, as_json: bool, given: Given) -> None:
    """Publish what waits, and say what the version holds."""
    with ExitStack() as resources, progress(f"publishing {dataset}", 100, in_bytes=False) as shown:
        document = open_place(Run(), given, resources).publish(dataset, given, shown)
        manifest = Manifest.from_json(document)
        if as_json:
            click.echo(json.dumps(document))
            return
        click.echo(f"{dataset} {manifest.version}")
        _show_splits(manifest)


def _show_splits(manifest: Manifest) -> None:
    lines = [
        [name, f"{sum(shard.num_records for shard in split.shards):,}", str(len(split.shards)),
         size_text(sum(shard.num_bytes for shard in split.shards))]
        for name, split in manifest.splits.items()
    ]  # fmt: skip
    for line in table(["split", "rows", "shards", "size"], lines):
        click.echo(line)


def ls(dataset: str | None, version: str | None, *, as_json: bool, given: Given) -> None:
    """List what there is."""
    with ExitStack() as resources:
        place = open_place(Run(), given, resources)
        if dataset is None:
            names = place.names()
            click.echo(
                json.dumps(names) if as_json else "\n".join(map(printable, names)), nl=bool(names) or as_json
            )
        elif version is None:
            _list_versions(place, dataset, as_json=as_json)
        else:
            manifest = place.manifest(dataset, version)
            if as_json:
                click.echo(json.dumps(manifest.to_json()))
                return
            lines = [
                [file.file, size_text(file.num_bytes), file.sha256[:16]]
                for file in list(manifest.by_file.values())
            ]
            for line in table(["file", "size", "SHA-256"], lines):
                click.echo(line)


def _list_versions(place: Place, dataset: str, *, as_json: bool) -> None:
    found, versions = place.dataset(dataset), place.versions(dataset)
    if as_json:
        click.echo(json.dumps({**found, "versions": versions}))
        return
    waiting = found["waiting"]
    latest = found["latest_version"]
    click.echo(printable(f"{dataset}: {count_text(len(versions), 'version')}"))
    for version in versions:
        click.echo(printable(f"  {version}{' (latest)' if version == latest else ''}"))
    click.echo(printable("waiting: " + ", ".join(f"{value} {name}" for name, value in waiting.items())))


def rows(dataset: str, *, given: Given) -> None:
    """Write rows of a version, or show them."""
    run = Run()
    query = {name: given[name] for name in _ROWS}
    for name in ("seed", "epoch"):
        if query[name] is not None and not query["shuffle_buffer"]:
            raise click.UsageError(f"--{name} is of a shuffle. Say --shuffle-buffer, too.")
    is_table = given["to"] is None and given["output"] == STANDARD and sys.stdout.isatty()
    with ExitStack() as resources:
        place = open_place(run, given, resources)
        workspace = resources.enter_context(run.workspace(lambda: 1 << 62))
        if is_table:
            length = _TABLE_ROWS if query["length"] is None else query["length"]
            records, count_skipped = place.records(dataset, {**query, "length": length}, workspace)
            _show_table(records, 0 if query["shuffle_buffer"] else query["offset"])
            _tell_skipped(count_skipped())
            return
        form = check_form(given["to"] or "ndjson")
        if form not in RECORDS_CODECS or not RECORDS_CODECS[form].kinds:
            raise click.UsageError(f"Rows are not written as {form}.")
        target = Target(given["output"], form, force=given["force"])
        pieces, count_skipped = place.encoded(dataset, query, form, workspace)
        target.write(pieces)
        _tell_skipped(count_skipped())


def _tell_skipped(count: int) -> None:
    if count:
        click.echo(_skipped_text(count), err=True)


def _skipped_text(count: int) -> str:
    return f"left out by transforms: {count_text(count, 'row')}"


def _show_table(records: Records, first: int) -> None:
    lines: list[list[str]] = []
    for batch in records.batches:
        lines += [[str(first + len(lines) + n), *cells] for n, cells in enumerate(_cells(records, batch))]
    for line in table(["", *records.schema.names], lines):
        click.echo(line)


def _cells(records: Records, batch: Batch) -> list[list[str]]:
    return list(row_cells(records.schema, batch, 0, batch.num_rows))


def get(dataset: str, version: str, output: str, jobs: int, *, as_json: bool, given: Given) -> None:
    """Download all files of a version, several at a time.

    Raises:
        CorruptData: a file is not what the manifest says; nothing of it is left.
    """
    with ExitStack() as resources:
        place = open_place(Run(), given, resources)
        manifest = place.manifest(dataset, version)
        number = str(parse_version(manifest.version))
        folder = Path(output) / check_dataset_name(dataset) / number
        folder.mkdir(parents=True, exist_ok=True)
        files = list(manifest.by_file.values())
        total = sum(file.num_bytes for file in files)
        with progress(f"{dataset} {number}", total) as shown, ThreadPoolExecutor(jobs) as pool:
            download = _Download(place, dataset, number, folder, shown)
            fetched = [pool.submit(download.fetch, file) for file in files]
            try:
                for done in as_completed(fetched):
                    done.result()
                num_new = sum(future.result() for future in fetched)
            except BaseException:
                download.stop()
                pool.shutdown(cancel_futures=True)
                raise
        if as_json:
            found = {
                "folder": str(folder),
                "version": number,
                "files": len(files),
                "fetched": num_new,
                "num_bytes": total,
            }
            click.echo(json.dumps(found))
            return
        there = len(files) - num_new
        before = f", {there} of them were there" if there else ""
        click.echo(
            printable(
                f"{folder}: {count_text(len(files), 'file')}, {size_text(total)}, every SHA-256 holds{before}"
            )
        )


class _Download:
    """Files of one version into one folder. What is interrupted is left as `.part`, and gone on with."""

    def __init__(self, place: Place, dataset: str, version: str, folder: Path, shown: Progress) -> None:
        self._place = place
        self._dataset = dataset
        self._version = version
        self._folder = folder
        self._shown = shown
        self._lock = threading.Lock()
        self._is_stopped = False

    def stop(self) -> None:
        """Leave off: another file has failed, or somebody has had enough."""
        self._is_stopped = True

    def fetch(self, file: FileEntry | ShardEntry) -> bool:
        """Whether the file was fetched; it may be there already.

        Raises:
            CorruptData: what came is not what the manifest says.
            CancelledError: `stop` was called; what there is of the file is left.
        """
        path = self._folder / file.file
        if (
            path.is_file()
            and path.stat().st_size == file.num_bytes
            and self._digest(path).hexdigest() == file.sha256
        ):
            return False
        part = path.with_name(f"{path.name}.part")
        # What is left of another file, or longer than it can be, is no beginning of this one.
        if part.exists() and part.stat().st_size > file.num_bytes:
            part.unlink()
        digest = self._digest(part) if part.exists() else hashlib.sha256()
        had = part.stat().st_size if part.exists() else 0
        self._append(part, file, digest, had)
        if digest.hexdigest() != file.sha256 and had:
            part.unlink()
            digest = hashlib.sha256()
            self._append(part, file, digest, 0)
        if digest.hexdigest() != file.sha256:
            with suppress(FileNotFoundError):
                part.unlink()
            raise CorruptData(
                f"{file.file} does not have the SHA-256 that its manifest says. Nothing of it is kept."
            )
        part.replace(path)
        return True

    def _append(self, part: Path, file: FileEntry | ShardEntry, digest: Any, offset: int) -> None:
        if offset == file.num_bytes and offset:
            return
        with part.open("ab") as out:
            for piece in self._place.read_file(self._dataset, self._version, file.file, offset):
                if self._is_stopped:
                    raise CancelledError
                out.write(piece)
                digest.update(piece)
                offset += len(piece)
                if offset > file.num_bytes:
                    break
                self._add(len(piece))
            out.flush()
            os.fsync(out.fileno())

    def _digest(self, path: Path) -> Any:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(MIB):
                digest.update(piece)
                self._add(len(piece))
        return digest

    def _add(self, num_bytes: int) -> None:
        with self._lock:
            self._shown.add(num_bytes)


def validate(dataset: str, version: str, *, as_json: bool, given: Given) -> bool:
    """Check every byte of a version; whether something is wrong with it."""
    with ExitStack() as resources:
        report = open_place(Run(), given, resources).validate(dataset, version)
    if as_json:
        click.echo(json.dumps(report))
    else:
        verdict = "good" if report["valid"] else "damaged"
        found = f"{count_text(report['num_records'], 'row')} in {count_text(report['num_shards'], 'shard')}"
        click.echo(
            printable(f"{dataset} {report['version']}: {verdict} ({found}, {size_text(report['num_bytes'])})")
        )
        for problem in islice(report["problems"], 20):
            place = f", offset {problem['offset']}" if problem["offset"] is not None else ""
            click.echo(printable(f"  {problem['file']}: {problem['detail']} [{problem['code']}{place}]"))
    return not report["valid"]
