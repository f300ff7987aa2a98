"""The client that blocks: every operation of `aio.py`, run to its end."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from .aio import AsyncDataset, AsyncImport, AsyncService, AsyncVersion, connect
from .transport import BlockingTransport, iterate, run

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


def _run(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The method that blocks, of one that waits."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._waiting, *args, **kwargs))

    return call


def _run_to(
    kind: Callable[[T], R], method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Any, P], R]:
    """The same of one whose result has methods that wait, too."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return kind(run(method(self._waiting, *args, **kwargs)))

    return call


def _iterate(
    method: Callable[Concatenate[S, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The iterator of an asynchronous one."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return iterate(method(self._waiting, *args, **kwargs))

    return call


class Import:
    __doc__ = AsyncImport.__doc__

    def __init__(self, waiting: AsyncImport) -> None:
        self._waiting = waiting

    def __repr__(self) -> str:
        return repr(self._waiting)

    @property
    def import_id(self) -> str:
        return self._waiting.import_id

    status = _run(AsyncImport.status)
    follow = _iterate(AsyncImport.follow)
    wait = _run(AsyncImport.wait)
    cancel = _run(AsyncImport.cancel)


class Version:
    __doc__ = AsyncVersion.__doc__

    def __init__(self, waiting: AsyncVersion) -> None:
        self._waiting = waiting

    def __repr__(self) -> str:
        return repr(self._waiting)

    manifest = property(_run(AsyncVersion.manifest))
    name = property(_run(AsyncVersion.name))
    files = _run(AsyncVersion.files)
    shards = _run(AsyncVersion.shards)
    read_file = _run(AsyncVersion.read_file)
    statistics = _run(AsyncVersion.statistics)
    download = _run(AsyncVersion.download)
    rows = _iterate(AsyncVersion.rows)
    to_numpy = _run(AsyncVersion.to_numpy)
    to_arrow = _run(AsyncVersion.to_arrow)
    to_pandas = _run(AsyncVersion.to_pandas)
    to_polars = _run(AsyncVersion.to_polars)
    to_arrow_bytes = _run(AsyncVersion.to_arrow_bytes)


class Dataset:
    __doc__ = AsyncDataset.__doc__

    def __init__(self, waiting: AsyncDataset) -> None:
        self._waiting = waiting

    def __repr__(self) -> str:
        return repr(self._waiting)

    @property
    def name(self) -> str:
        return self._waiting.name

    append = _run(AsyncDataset.append)
    publish = _run_to(Version, AsyncDataset.publish)
    versions = _run(AsyncDataset.versions)
    info = _run(AsyncDataset.info)
    create = _run(AsyncDataset.create)
    begin_import = _run_to(Import, AsyncDataset.begin_import)

    def version(self, name: str = "latest") -> Version:
        """A published version. What `latest` is, is looked up once, at its first use."""
        return Version(self._waiting.version(name))

    def import_(self, import_id: str) -> Import:
        """An import that was begun."""
        return Import(self._waiting.import_(import_id))


class Client:
    """A service. Several threads may use one client.

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
        self._waiting = AsyncService(
            connect(BlockingTransport, url, token, timeout_s=timeout_s, patience_s=patience_s, verify=verify)
        )

    def __repr__(self) -> str:
        return repr(self._waiting)

    datasets = _run(AsyncService.datasets)
    serialize_tensor = _run(AsyncService.serialize_tensor)
    parse_tensor = _run(AsyncService.parse_tensor)
    close = _run(AsyncService.close)

    def dataset(self, name: str) -> Dataset:
        """A dataset, which need not exist yet: the first append creates it."""
        return Dataset(self._waiting.dataset(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
