"""Where datasets are: in a store that this process opens, or behind a service. Both answer the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from threading import Event, Thread
from typing import Any, Final, Protocol

import click

from ..codecs.columns import Records
from ..codecs.forms import FormName
from ..codecs.options import RecordsEncodeOptions
from ..codecs.sniff import Sniffed
from ..domain.limits import MIB
from ..domain.losses import Losses
from ..domain.manifest import Manifest
from ..domain.sharding.division import parse_fractions
from ..domain.sharding.row_order import RowOrder
from ..errors import ShardsmithError
from ..local import open_local, url_of
from ..runtime.budget import Budget
from ..runtime.streams import Buffer
from ..runtime.workspace import Workspace
from ..services.convert.records import encode_records, open_records
from ..services.datasets.append.digests import HashingStream, request_digest
from ..services.datasets.append.request import AppendBody, AppendRequest
from ..services.datasets.datasets import Datasets
from ..services.datasets.objects.publish_options import PublishOptions
from ..services.datasets.publish.progress import Progress as PublicationProgress
from ..transforms.apply import SkippedRows
from ..transforms.images.processes import ImageProcesses
from .http_client import Service, parameter_text
from .reading import Given, Input, declared_schema, nonfinite_in, rows_options, schema_text, transformed
from .screen.terminal import Progress
from .sources import Run, pieces_of

_ENCODINGS: Final = {"gzip": "gzip", "zstd": "zstd", "zlib": "deflate"}
_POLL_S: Final = 0.5
_PUBLISH: Final = (
    *("num_shards", "shard_bytes", "compression", "shuffle", "seed", "fractions", "divide", "by", "base"),
    "exclude",
)
_DEFAULT_SPLIT: Final = "train"
_MOST_SCHEMA: Final = 8 * 1024


#: How many rows the transforms left out, once the others were read.
CountSkipped = Callable[[], int]


class Place(Protocol):
    """Datasets, wherever they are. Every call may raise a `ShardsmithError`."""

    def names(self) -> list[str]: ...

    def dataset(self, name: str) -> dict[str, Any]: ...

    def versions(self, name: str) -> list[str]: ...

    def manifest(self, name: str, version: str) -> Manifest: ...

    def put(
        self, name: str, split: str, found: Input, key: str | None, given: Given, workspace: Workspace
    ) -> dict[str, Any]:
        """Append all rows; `replayed` says that they were there."""
        ...

    def publish(self, name: str, given: Given, shown: Progress) -> dict[str, Any]:
        """The manifest of the new version.

        Args:
            shown: told the percentage that is done.
        """
        ...

    def records(
        self, name: str, query: Mapping[str, Any], workspace: Workspace
    ) -> tuple[Records, CountSkipped]:
        """Rows of a version, as columns."""
        ...

    def encoded(
        self, name: str, query: Mapping[str, Any], to: FormName, workspace: Workspace, /
    ) -> tuple[Iterator[Buffer], CountSkipped]:
        """The same, in a format."""
        ...

    def read_file(self, name: str, version: str, file: str, offset: int) -> Iterator[bytes]:
        """A file of a version, from an offset on."""
        ...

    def validate(self, name: str, version: str) -> dict[str, Any]: ...


def open_place(run: Run, given: Given, resources: ExitStack, *, creates: bool = False) -> Place:
    """The service or the store that the options name, or else the store of the settings.

    Args:
        creates: the store may be new.

    Raises:
        click.UsageError: both are named.
        NotFound: there is no such store.
        StorageError: it is no store, or cannot be used.
    """
    if given.get("url"):
        if given.get("data"):
            raise click.UsageError("--data and --url are two places. Name one of them.")
        return _Remote(Service(given["url"], given.get("token_file"), resources), resources)
    if given.get("token_file"):
        raise click.UsageError("--token-file is for a service. Name it with --url.")
    data = given.get("data")
    settings = {} if data is None else {"storage_url": url_of(data)}
    return _Local(run, open_local(settings, creates=creates).datasets, resources)


class _Local:
    def __init__(self, run: Run, datasets: Datasets, resources: ExitStack) -> None:
        self._run = run
        self._datasets = datasets
        self._images = ImageProcesses()
        resources.callback(datasets.close)
        resources.callback(self._images.close)

    def names(self) -> list[str]:
        return list(self._datasets.list())

    def dataset(self, name: str) -> dict[str, Any]:
        return dict(self._datasets.get(name).to_json())

    def versions(self, name: str) -> list[str]:
        return list(self._datasets.versions(name))

    def manifest(self, name: str, version: str) -> Manifest:
        return self._datasets.manifest(name, version)

    def put(
        self, name: str, split: str, found: Input, key: str | None, given: Given, workspace: Workspace
    ) -> dict[str, Any]:
        losses = Losses() if given.get("damaged") == "skip" else None
        decode = rows_options(given, found.sniffed, self._run.limits)
        request = AppendRequest(
            dataset=name,
            split=split,
            form=found.sniffed.form,
            decode=replace(decode, losses=losses),
            encode=RecordsEncodeOptions(
                lossy=given.get("lossy") == "allow", exact=given.get("lossy") == "error"
            ),
            key=key,
            evolve=given["evolve"],
            on_error=given["on_error"],
        )
        hashed = HashingStream(found.source)
        parameters = _put_parameters(split, found, given, workspace)
        declared = declared_schema(given.get("schema"), workspace.budget.limits)

        def digest() -> str:  # as of a request of `_Remote`: a file is stored once, whichever way it comes
            said = [(name, parameter_text(value)) for name, value in parameters.items() if value is not None]
            return request_digest(hashed, "", declared, sorted(said))

        body = AppendBody(found.source if key is None else hashed, digest, workspace)
        stored = self._datasets.append(request, body).result().stored
        told: dict[str, Any] = {**stored.to_json(), "replayed": stored.replayed}
        if losses is not None:
            told["lost"] = losses.to_json()
        if request.on_error == "skip":
            told["skipped"] = stored.skipped
        return told

    def publish(self, name: str, given: Given, shown: Progress) -> dict[str, Any]:
        options = PublishOptions(
            num_shards=given["num_shards"],
            shard_bytes=given["shard_bytes"],
            compression=given["compression"],
            index=given["index"],
            shuffle=given["shuffle"],
            seed=given["seed"] or None,
            fractions=None if given["fractions"] is None else parse_fractions(given["fractions"]),
            divide=given["divide"],
            by=given["by"],
            base=given["base"],
            exclude=() if given["exclude"] is None else tuple(given["exclude"].split(",")),
            publish_key=given["key"],
        )
        planned: list[str] = []

        def look() -> None:
            found = self._datasets.follow(name, planned[-1]) if planned else None
            if isinstance(found, PublicationProgress):
                shown.reach(found.percent or 0)

        with _looking(look, shown):
            return dict(self._datasets.publish(name, options, on_plan=planned.append).to_json())

    def records(
        self, name: str, query: Mapping[str, Any], workspace: Workspace
    ) -> tuple[Records, CountSkipped]:
        skipped = SkippedRows()
        return self._records(name, query, workspace, skipped), lambda: skipped.count

    def encoded(
        self, name: str, query: Mapping[str, Any], to: FormName, workspace: Workspace
    ) -> tuple[Iterator[Buffer], CountSkipped]:
        skipped = SkippedRows()
        records = self._records(name, query, workspace, skipped)
        # The rows were admitted when they were appended.
        options = RecordsEncodeOptions(lossy=True)
        return encode_records(records, to, options, workspace.budget, skipped).chunks, lambda: skipped.count

    def _records(
        self, name: str, query: Mapping[str, Any], workspace: Workspace, skipped: SkippedRows
    ) -> Records:
        records = self._datasets.read_records(
            name,
            query["version"],
            query["split"],
            offset=query["offset"],
            length=query["length"],
            order=RowOrder(query["shuffle_buffer"] or 0, query["seed"] or 0, query["epoch"] or 0),
            budget=workspace.budget,
        )
        skips = query["on_error"] == "skip"
        return transformed(records, query, workspace, self._images, skipped if skips else None)

    def read_file(self, name: str, version: str, file: str, offset: int) -> Iterator[bytes]:
        stored = self._datasets.open_file(name, version, file)
        while offset < stored.size:
            piece = stored.read_at(offset, 8 * MIB)
            yield piece
            offset += len(piece)

    def validate(self, name: str, version: str) -> dict[str, Any]:
        return dict(self._datasets.validate(name, version, Budget(self._run.limits)).to_json())


#: What answers of a service have, of which something is shown.
_DATASET: Final = {"waiting": dict, "latest_version": str | None}
_APPENDED: Final = {
    "append_id": str, "num_records": int, "rounded": [str], "lost": {"num_bytes": int}, "skipped": int,
}  # fmt: skip
_PUBLISHED: Final = {"percent": int, "version": str}
_VALIDATED: Final = {
    "valid": bool, "version": str, "num_records": int, "num_shards": int, "num_bytes": int,
    "problems": [{"file": str, "detail": str, "code": str, "offset": int | None}],
}  # fmt: skip


class _Remote:
    def __init__(self, service: Service, resources: ExitStack) -> None:
        self._service = service
        self._resources = resources

    def names(self) -> list[str]:
        return self._service.dataset_names()

    def dataset(self, name: str) -> dict[str, Any]:
        return self._service.send("GET", "datasets", name).json(
            {"waiting": dict, "latest_version": str | None}
        )

    def versions(self, name: str) -> list[str]:
        found = self._service.send("GET", "datasets", name, "versions").json({"versions": [str]})
        return list(found["versions"])

    def manifest(self, name: str, version: str) -> Manifest:
        # Its names become names of files: they are checked as those of a manifest in the store are.
        return Manifest.from_json(self._service.send("GET", "datasets", name, "versions", version).json({}))

    def put(
        self, name: str, split: str, found: Input, key: str | None, given: Given, workspace: Workspace
    ) -> dict[str, Any]:
        query = _put_parameters(split, found, given, workspace)
        if len((query["schema"] or "").encode()) > _MOST_SCHEMA:
            raise click.UsageError("--schema is longer than 8 KiB. Create the dataset with it first.")
        headers = {} if key is None else {"Idempotency-Key": key}
        if found.sniffed.container is not None:
            headers["Content-Encoding"] = _ENCODINGS[found.sniffed.container]
        answer = self._service.send(
            "POST",
            *("datasets", name, "records"),
            query=query,
            headers=headers,
            body=pieces_of(found.raw),
            num_bytes=found.raw_bytes,
        )
        told = answer.json(_APPENDED, rounded=[], lost={"num_bytes": 0}, skipped=0)
        return {**told, "replayed": answer.headers.get("Idempotency-Replayed") == "true"}

    def publish(self, name: str, given: Given, shown: Progress) -> dict[str, Any]:
        query = {name: given[name] for name in _PUBLISH if given[name]}
        if given["index"] is not None:
            query["index"] = given["index"]
        headers = {} if given["key"] is None else {"Idempotency-Key": given["key"]}
        answer = self._service.send("POST", "datasets", name, "versions", query=query, headers=headers)
        document = answer.json(_PUBLISHED, percent=0, version="")
        while answer.status == 202:
            shown.reach(document.get("percent", 0))
            time.sleep(_POLL_S)  # noqa: TID251  # no turn is held here
            if "version" not in document:
                answer = self._service.send(
                    "POST", "datasets", name, "versions", query=query, headers=headers
                )
            else:
                answer = self._service.send("GET", "datasets", name, "versions", document["version"])
            document = answer.json(_PUBLISHED, percent=0, version="")
        return document

    def records(
        self, name: str, query: Mapping[str, Any], workspace: Workspace
    ) -> tuple[Records, CountSkipped]:
        pieces, count_skipped = self.encoded(name, query, "arrow", workspace)
        options = rows_options({}, Sniffed("arrow", "records"), workspace.budget.limits)
        return open_records(_Stream(pieces), "arrow", options, workspace), count_skipped

    def encoded(
        self, name: str, query: Mapping[str, Any], to: FormName, _: Workspace
    ) -> tuple[Iterator[Buffer], CountSkipped]:
        given = {key: value for key, value in query.items() if key != "version"}
        answer = self._service.send(
            "GET", "datasets", name, "versions", query["version"], "records", query={**given, "to": to}
        )
        return answer.pieces(), answer.num_skipped

    def read_file(self, name: str, version: str, file: str, offset: int) -> Iterator[bytes]:
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with ExitStack() as resources:
            answer = self._service.send(
                "GET",
                "datasets",
                name,
                "versions",
                version,
                "files",
                file,
                headers=headers,
                resources=resources,
            )
            yield from answer.pieces()

    def validate(self, name: str, version: str) -> dict[str, Any]:
        return self._service.send("POST", "datasets", name, "versions", version, "validate").json(_VALIDATED)


class _Stream:
    """Pieces as a stream."""

    def __init__(self, pieces: Iterator[Buffer]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, n: int, /) -> bytes:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._left = bytes(piece)
        piece, self._left = self._left[:n], self._left[n:]
        return piece


@contextmanager
def _looking(look: Callable[[], None], shown: Progress) -> Iterator[None]:
    """Look how far it is now and then, where somebody wants to know."""
    ended = Event()

    def watch() -> None:
        while not ended.wait(_POLL_S):
            with suppress(ShardsmithError):  # the work itself says what is wrong
                look()

    watching = None if shown.is_hidden else Thread(target=watch, daemon=True)
    if watching is not None:
        watching.start()
    try:
        yield
    finally:
        ended.set()
        if watching is not None:
            watching.join()


def _put_parameters(split: str, found: Input, given: Given, workspace: Workspace) -> dict[str, Any]:
    """The parameters of an append over HTTP; those at their defaults are None."""
    message = given.get("message") or found.sniffed.message
    delimiter = "tab" if found.sniffed.delimiter == "\t" else found.sniffed.delimiter
    return {
        "split": None if split == _DEFAULT_SPLIT else split,
        "from": found.sniffed.form,
        "schema": _schema_text(given, workspace),
        "message": None if message == "example" else message,
        "nonfinite": None if nonfinite_in(given) == "error" else nonfinite_in(given),
        "infer": None if given["infer"] == "head" else given["infer"],
        "undeclared": None if given["undeclared"] == "error" else given["undeclared"],
        "delimiter": given.get("delimiter") or (delimiter if found.sniffed.form == "csv" else None),
        "null": given.get("null_"),
        "archive": given.get("archive"),
        "labels": given.get("labels"),
        "lossy": given.get("lossy"),
        "damaged": None if given["damaged"] == "refuse" else given["damaged"],
        "evolve": "widen" if given["evolve"] else None,
        "on_error": None if given["on_error"] == "fail" else given["on_error"],
    }


def _schema_text(given: Given, workspace: Workspace) -> str | None:
    text: str | None = given.get("schema")
    if text is None:
        return None
    declared_schema(text, workspace.budget.limits)  # its faults are told here
    return schema_text(text)
