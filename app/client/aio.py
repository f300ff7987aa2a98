"""The client for an event loop, and the one place where an operation is written: `blocking.py` runs it."""

from __future__ import annotations

import json
import os
import ssl
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NotRequired, Self, TypedDict, cast

import httpx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import tables, values
from .arrow import ArrowStream, Batch, no_rows
from .bodies import Body, Rows, body_of
from .connection import Answer, Connection, Parameter, Passing, Patience, member, read_json, retry_after
from .downloads import File, download_files, files_of
from .errors import OutcomeUnknown, Refused, Unavailable
from .transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from .tables import ArrowTable, PandasFrame, PolarsFrame

#: Of the environment, as for the command line.
TOKEN_VARIABLE: Final = "SHARDSMITH_CLIENT_TOKEN"  # noqa: S105  # the name of it
#: Between two looks at what is under way, where the service does not say.
_POLL_S: Final = 1.0
_EVENTS: Final = "text/event-stream"


class Appended(TypedDict):
    """What an append has stored; docs/http.md has its members."""

    dataset: str
    split: str
    append_id: str
    num_records: int
    num_bytes: int
    rounded: NotRequired[list[str]]
    dropped: NotRequired[list[str]]
    as_text: NotRequired[list[str]]
    skipped: NotRequired[int]
    version: NotRequired[str]


class Progress(TypedDict):
    """How far an import is; docs/http.md has its members."""

    state: str
    ranges: int
    ranges_done: int
    rows: int
    failures: list[dict[str, Any]]
    refusal: NotRequired[dict[str, str]]
    version: NotRequired[str | None]


def connect(
    transport: type[Transport],
    url: str,
    token: str | None,
    *,
    timeout_s: float,
    patience_s: float,
    verify: ssl.SSLContext | bool,
) -> Connection:
    """The way to a service, as all clients and feeds take it."""
    address = httpx.URL(url)
    if address.scheme not in ("http", "https") or not address.host:
        raise ValueError(f"{url!r} is no address of a service. Give one such as https://shardsmith.example.")
    headers = {"Accept-Encoding": "identity", "User-Agent": "shardsmith-client"}
    token = os.environ.get(TOKEN_VARIABLE) if token is None else token
    if token:
        headers["Authorization"] = f"Bearer {token.strip()}"  # a file of it ends in a line feed
    options = {"verify": verify, "timeout": httpx.Timeout(timeout_s)}
    return Connection(
        transport(**options), url.rstrip("/"), headers, Patience(patience_s), httpx.Timeout(timeout_s)
    )


class AsyncService:
    """What is asked of a service as a whole, over any connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<service {self._connection.url}>"

    def dataset(self, name: str) -> AsyncDataset:
        """A dataset, which need not exist yet: the first append creates it."""
        return AsyncDataset(self._connection, name)

    async def datasets(self) -> list[str]:
        """The names of all datasets that the token may see."""
        _, found = await self._connection.ask("GET", "datasets")
        return [member(dataset, "dataset", str) for dataset in member(found, "datasets", list)]

    async def serialize_tensor(self, array: ArrayLike) -> bytes:
        """A TensorProto, byte for byte that of `tf.io.serialize_tensor`.

        Raises:
            Unsendable: the array is of a dtype that tensors do not have.
        """
        content, headers, params = values.write_tensor(array)

        async def attempt() -> bytes:
            answer = await self._connection.send(
                "POST", "tensors", "serialize", params=params, headers=headers, content=content
            )
            return await answer.content()

        return await self._connection.patiently(attempt)

    async def parse_tensor(self, serialized: bytes) -> NDArray[Any]:
        """The array of a TensorProto; strings are `bytes`, in an array of objects."""

        async def attempt(to: str) -> tuple[Answer, bytes]:
            headers = {"Content-Type": "application/x-protobuf"}
            answer = await self._connection.send(
                "POST", "tensors", "parse", params={"to": to}, headers=headers, content=serialized
            )
            return answer, await answer.content()

        try:
            answer, content = await self._connection.patiently(lambda: attempt("raw"))
        except Refused as error:
            if error.code != "no_raw_form":
                raise
            answer, content = await self._connection.patiently(lambda: attempt("oip"))
            return values.read_strings(content, int(answer.headers["Inference-Header-Content-Length"]))
        return values.read_raw(content, answer.headers["Tensor-Dtype"], answer.headers["Tensor-Shape"])

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()


class AsyncClient(AsyncService):
    """A service, for an event loop.

    Args:
        url: `https://host:port`.
        token: sent as `Authorization: Bearer`, to this address alone; if not given, that of the environment
            variable SHARDSMITH_CLIENT_TOKEN.
        timeout_s: for a connection, and between two pieces of a body or an answer.
        patience_s: how long requests are repeated while the service fails or is busy.
        verify: False accepts any certificate; an `ssl.SSLContext` has authorities of its own.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = 60.0,
        patience_s: float = 300.0,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        super().__init__(
            connect(AsyncTransport, url, token, timeout_s=timeout_s, patience_s=patience_s, verify=verify)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncDataset:
    """A dataset of a service.

    Attributes:
        name: 1 to 64 of `A-Z a-z 0-9 _ -`.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection

    def __repr__(self) -> str:
        return f"<dataset {self.name}>"

    async def append(
        self,
        /,
        rows: Rows,
        *,
        split: str = "train",
        key: str | None = None,
        media_type: str | None = None,
        schema: Mapping[str, Any] | None = None,
        publish: bool = False,
        **parameters: Parameter,
    ) -> Appended:
        """Append rows; once this returns they are stored, once, whatever failed on the way.

        Args:
            rows: a dictionary of numpy arrays; a table of pyarrow, pandas or polars, or whatever has
                `__arrow_c_stream__`; a list or a generator of dictionaries, or of such tables; a
                `pathlib.Path`; bytes, or an iterable of them, with their `media_type`. A function that
                returns an iterable is called again for another try.
            key: names the append: the same rows under the same key are stored once, whichever program sends
                them. If not given, this call makes one.
            schema: of the rows, as JSON; 8 KiB at most. For a longer one `create` the dataset.
            publish: makes a version of all that is appended, in the same request, and waits until it is
                complete; the result has its name as `version`.
            parameters: further ones of an append, such as `evolve="widen"`, and with `publish` those of a
                publication: docs/http.md.

        Raises:
            Refused: the rows cannot be stored; none of them is.
            OutcomeUnknown: they came out of an iterator, and the connection broke.
            Unavailable: the service failed for too long.
            Unsendable, LibraryMissing: the rows cannot be written.
        """
        body = body_of(rows, media_type)
        key = uuid.uuid4().hex if key is None else key
        params = {
            **body.params,
            "split": split,
            "schema": None if schema is None else json.dumps(schema, separators=(",", ":")),
            "publish": publish or None,
            **parameters,
        }
        headers = {**body.to_headers(), "Idempotency-Key": key}

        async def attempt() -> tuple[Answer, Any]:
            try:
                answer = await self._connection.send(
                    "POST", *self._path, "records", params=params, headers=headers, content=body.open()
                )
                return answer, await answer.json()
            except Passing as error:
                _require_another_try(body, key, error)
                raise

        while True:
            answer, found = await self._connection.patiently(attempt)
            stored = cast(Appended, member(found, "append", dict) if publish else found)
            if answer.status != 202:
                return {**stored, "version": member(found, "version", str)} if publish else stored
            await self._connection.transport.sleep(retry_after(answer.headers))
            if name := found.get("version"):
                return {**stored, "version": await self.version(name).name()}
            if body.is_spent:
                raise OutcomeUnknown(key, "The publication goes on, and has no version yet.")

    async def publish(self, /, *, key: str | None = None, **parameters: Parameter) -> AsyncVersion:
        """Make a version of all that is appended, and wait until it is complete.

        Args:
            key: with the same one the version is made once.
            parameters: of a publication, such as `num_shards=8`, `shuffle=True`, `seed=7`: docs/http.md.

        Raises:
            Conflict: nothing is new (`nothing_to_publish`), or another publication is under way
                (`publish_in_progress`).
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex if key is None else key}
        while True:  # a publication that takes long is asked for again under its key
            answer, found = await self._connection.ask(
                "POST", *self._path, "versions", params=parameters, headers=headers
            )
            if answer.status != 202:
                return AsyncVersion(self._connection, self.name, member(found, "version", str), found)
            await self._connection.transport.sleep(retry_after(answer.headers))

    def version(self, name: str = "latest") -> AsyncVersion:
        """A published version. What `latest` is, is looked up once, at its first use."""
        return AsyncVersion(self._connection, self.name, name)

    async def versions(self) -> list[str]:
        """The names of all published versions."""
        _, found = await self._connection.ask("GET", *self._path, "versions")
        return member(found, "versions", list)

    async def info(self) -> dict[str, Any]:
        """The schema, the latest version, and how many rows wait for the next one."""
        _, found = await self._connection.ask("GET", *self._path)
        dataset: dict[str, Any] = found
        return dataset

    async def create(self, /, schema: Mapping[str, Any] | None = None, **members: Any) -> dict[str, Any]:
        """Create the dataset beforehand, with a schema; the same once more changes nothing.

        Args:
            members: `description`, `keep_versions`.
        """
        given = {**members, **({} if schema is None else {"schema": schema})}
        content = json.dumps(given).encode()
        headers = {"Content-Type": "application/json"}
        _, found = await self._connection.ask("PUT", *self._path, headers=headers, content=content)
        dataset: dict[str, Any] = found
        return dataset

    async def begin_import(self, /, source: str, *, key: str | None = None, **members: Any) -> AsyncImport:
        """Have the service read rows from a place that its operator allows, and publish them.

        Args:
            source: a URL, such as `s3://bucket/logs/*.parquet`.
            key: with the same one, and the same members, it goes on with the import that is there.
            members: further ones of an import, such as `split`, `on_error`, `publish`: docs/http.md.
        """
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": uuid.uuid4().hex if key is None else key,
        }
        content = json.dumps({"source": source, **members}).encode()
        _, found = await self._connection.ask(
            "POST", *self._path, "imports", headers=headers, content=content
        )
        return AsyncImport(self._connection, self.name, member(found, "import_id", str))

    def import_(self, import_id: str) -> AsyncImport:
        """An import that was begun."""
        return AsyncImport(self._connection, self.name, import_id)

    @property
    def _path(self) -> tuple[str, str]:
        return "datasets", self.name


def _require_another_try(body: Body, key: str, error: Passing) -> None:
    """Return if the body can be sent again.

    Raises:
        OutcomeUnknown: it cannot, and may be stored.
        Unavailable: it cannot, and is not stored.
    """
    if not body.is_spent:
        return
    if error.may_be_done:
        raise OutcomeUnknown(key, str(error)) from error
    raise Unavailable(
        f"{error} Nothing was stored. The rows came from an iterator, which cannot be read again: append "
        f"them once more, or give a function that returns an iterator."
    ) from error


class AsyncVersion:
    """A published version of a dataset, which never changes."""

    def __init__(
        self, connection: Connection, dataset: str, name: str, manifest: Mapping[str, Any] | None = None
    ) -> None:
        self.dataset = dataset
        self._connection = connection
        self._name = name
        self._manifest = manifest

    def __repr__(self) -> str:
        return f"<version {self._name} of {self.dataset}>"

    async def manifest(self) -> Mapping[str, Any]:
        """What it consists of: `version`, `schema`, `splits`, `files`, and lines of code that `load` it."""
        while self._manifest is None:
            answer, found = await self._connection.ask("GET", *self._path)
            if answer.status == 202:  # it is being published
                await self._connection.transport.sleep(retry_after(answer.headers) or _POLL_S)
            else:
                self._name, self._manifest = member(found, "version", str), found
        return self._manifest

    async def name(self) -> str:
        """Such as `1.0.0`; what `latest` was at the first use."""
        name: str = (await self.manifest())["version"]
        return name

    async def files(self) -> list[File]:
        """All files: shards, their indexes, and what describes them."""
        return files_of(await self.manifest())

    async def shards(self, split: str | None = None) -> list[File]:
        """The shards of a split, or of all."""
        return [file for file in await self.files() if file.split is not None and split in (None, file.split)]

    async def read_file(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes of a file, or of a part of it."""
        await self.manifest()
        if stop is not None and stop <= start:
            return b""
        headers = {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"} if start or stop else {}

        async def attempt() -> bytes:
            answer = await self._connection.send("GET", *self._path, "files", name, headers=headers)
            return await answer.content()

        return await self._connection.patiently(attempt)

    async def statistics(self, /, split: str = "train", **parameters: Parameter) -> dict[str, Any]:
        """How the values of each feature are spread, once all rows have been read for it: docs/http.md.

        Args:
            parameters: `against_split` and `against_version`, for those of other rows beside them.
        """
        await self.manifest()
        params = {"split": split, **parameters}
        while True:
            answer, found = await self._connection.ask("GET", *self._path, "statistics", params=params)
            if answer.status != 202:
                statistics: dict[str, Any] = found
                return statistics
            await self._connection.transport.sleep(retry_after(answer.headers) or _POLL_S)

    async def download(self, folder: str | os.PathLike[str], *, at_once: int = 4) -> Path:
        """Download all files into `folder/dataset/version`, which TFDS loads as it is.

        A file that is there with the right bytes is not fetched again, one that is there in part is gone on
        with. Each is verified, and has its name only once it is whole.

        Returns:
            The folder of the version.

        Raises:
            Damaged: a file came twice with other bytes than the manifest says.
        """
        name = await self.name()
        into = Path(folder) / self.dataset / name
        await download_files(self._connection, self.dataset, name, await self.files(), into, at_once)
        return into

    async def rows(
        self, /, split: str = "train", *, start: int = 0, stop: int | None = None, **parameters: Parameter
    ) -> AsyncIterator[dict[str, Any]]:
        """The rows one after the other, as dictionaries: numbers, str, bytes, and lists of these.

        A connection that breaks is opened again, and goes on with the next row.

        Args:
            start, stop: which rows of the order, from 0.
            parameters: further ones, such as `shuffle_buffer=1000`, `seed=7`, `epoch=0`: docs/http.md.
        """
        manifest = await self.manifest()
        read_row = values.row_reader(manifest["schema"])
        row = start
        lines: AsyncGenerator[bytes, None] | None = None

        async def next_line() -> bytes | None:
            nonlocal lines
            if lines is None:
                params = {"split": split, "to": "ndjson", "start": row, "stop": stop, **parameters}
                lines = _lines(await self._connection.send("GET", *self._path, "records", params=params))
            try:
                return await anext(lines, None)
            except Passing:
                lines = None
                raise

        try:
            while (line := await self._connection.patiently(next_line)) is not None:
                row += 1
                yield read_row(line)
        finally:
            if lines is not None:
                await lines.aclose()

    async def to_numpy(self, /, split: str = "train", **parameters: Parameter) -> Batch:
        """All rows as an array for each feature, whose first axis counts rows.

        Numbers have their own dtypes. Texts are `str`, other strings `bytes`, in arrays of objects.

        Args:
            parameters: `offset` and `length`, `transforms`, or those of an order: docs/http.md.

        Raises:
            NotReadable: a feature that no array holds; transforms such as `pad_to` make it one.
        """
        content = await self.to_arrow_bytes(split, **parameters)
        stream = ArrowStream(_reader_of(content))
        batches = list(stream)
        if not batches:
            return no_rows(stream.features)
        return {name: np.concatenate([batch[name] for batch in batches]) for name in stream.features}

    async def to_arrow(self, /, split: str = "train", **parameters: Parameter) -> ArrowTable:
        """All rows as a table of pyarrow, which has to be installed."""
        return tables.read_pyarrow(await self.to_arrow_bytes(split, **parameters))

    async def to_pandas(self, /, split: str = "train", **parameters: Parameter) -> PandasFrame:
        """All rows as a DataFrame of pandas, which has to be installed, with pyarrow."""
        return tables.read_pandas(await self.to_arrow_bytes(split, **parameters))

    async def to_polars(self, /, split: str = "train", **parameters: Parameter) -> PolarsFrame:
        """All rows as a DataFrame of polars, which has to be installed."""
        return tables.read_polars(await self.to_arrow_bytes(split, **parameters))

    async def to_arrow_bytes(self, /, split: str = "train", **parameters: Parameter) -> bytes:
        """All rows as an Arrow stream, for any library that reads one."""
        await self.manifest()

        async def attempt() -> bytes:
            params = {"split": split, "to": "arrow", **parameters}
            answer = await self._connection.send("GET", *self._path, "records", params=params)
            return await answer.content()

        return await self._connection.patiently(attempt)

    @property
    def _path(self) -> tuple[str, str, str, str]:
        return "datasets", self.dataset, "versions", self._name


async def _lines(answer: Answer) -> AsyncGenerator[bytes, None]:
    """The lines of an answer, each once all of it is there; closes it.

    Raises:
        Passing: the answer ends before all rows came.
    """
    expected = answer.headers.get("Record-Count")
    count, rest = 0, b""
    try:
        while (piece := await answer.next_piece()) is not None:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                count += 1
                yield line
        if rest or (expected is not None and int(expected) != count):
            raise Passing("The answer was cut short.")
    finally:
        await answer.close()


def _reader_of(content: bytes) -> Any:
    """Gives exactly so many of the next bytes."""
    at = 0

    def read(n: int) -> bytearray:
        nonlocal at
        at += n
        return bytearray(content[at - n : at])

    return read


class AsyncImport:
    """An import that the service does by itself."""

    def __init__(self, connection: Connection, dataset: str, import_id: str) -> None:
        self.dataset = dataset
        self.import_id = import_id
        self._connection = connection

    def __repr__(self) -> str:
        return f"<import {self.import_id} of {self.dataset}>"

    async def status(self) -> Progress:
        """How far it is."""
        _, found = await self._connection.ask("GET", *self._path)
        progress: Progress = found
        return progress

    async def follow(self, every_s: float = _POLL_S) -> AsyncIterator[Progress]:
        """How far it is, each time that has changed, until it has ended; the last one says how.

        The service tells of each change. Behind a proxy that holds that back it is asked instead.

        Args:
            every_s: how often to ask.
        """
        last: Progress | None = None
        async with aclosing(self._looks(every_s)) as looks:
            async for progress in looks:
                if progress != last:
                    yield progress
                if member(progress, "state", str) in ("stopped", "done", "cancelled"):
                    return
                last = progress

    async def _looks(self, every_s: float) -> AsyncGenerator[Progress, None]:
        """How far it is, for ever."""
        listens = True
        while True:
            if listens:
                listens = False
                async with aclosing(self._events()) as events:
                    async for progress in events:
                        listens = True
                        yield progress
            if not listens:
                yield await self.status()
            await self._connection.transport.sleep(every_s)

    async def _events(self) -> AsyncGenerator[Progress, None]:
        """What the service tells, until the answer ends or breaks; nothing if it tells nothing."""
        try:
            answer = await self._connection.send("GET", *self._path, headers={"Accept": _EVENTS})
            async with aclosing(_lines(answer)) as lines:
                if answer.headers.get("Content-Type", "").startswith(_EVENTS):
                    async for line in lines:
                        if line.startswith(b"data:"):  # an event is one line of it
                            yield read_json(line[len(b"data:") :])
        except Passing:
            pass
        except Refused as error:
            if error.status != 406:
                raise

    async def wait(self, every_s: float = _POLL_S) -> Progress:
        """Wait until it has ended."""
        async for progress in self.follow(every_s):
            last = progress
        return last

    async def cancel(self) -> None:
        """Give it up; rows that were stored by then wait for the next publication."""
        await self._connection.patiently(self._delete)

    async def _delete(self) -> None:
        await (await self._connection.send("DELETE", *self._path)).close()

    @property
    def _path(self) -> tuple[str, str, str, str]:
        return "datasets", self.dataset, "imports", self.import_id
