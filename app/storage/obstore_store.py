"""`ObjectStore` over obstore: S3, Google Cloud Storage, Azure, the local disk, memory.

What is relied on was checked with obstore 0.12.1:
- Buffers are not copied: memory and multipart uploads keep a reference. Hence `bytes(data)`, which
  costs nothing for what is already immutable.
- `put` of an iterator drives it inside obstore's runtime, where another obstore call panics; a
  writer calls back nothing. Leaving a writer by an exception aborts the upload; so does a part that fails.
- A create-only put is sent once; other requests are retried until `retry_timeout` has passed, and
  each try ends after `timeout`. Their sum is the deadline of one operation.
- LocalStore writes to `name#1` and renames; a failed write removes that file, and list hides one
  that a killed process left.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import unquote

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store, from_url

from ..domain.limits import MIB
from ..domain.streams import Buffer
from ..errors import StorageError, StorageFull, StorageUnavailable
from .local_root import LocalRoot
from .object_store import AlreadyExists, ObjectInfo, ObjectNotFound

if TYPE_CHECKING:  # these names exist for type checkers only
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Backend

__all__ = ["ObstoreStore", "open_store"]

#: One try takes at most 20 s (a 16 MiB part at 0.8 MiB/s) and none is begun after 10 s, so an
#: operation ends within 30 s: half of the 60 s after which proxies commonly give up (nginx).
_CLIENT: Final[ClientConfig] = {
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(seconds=20),
}
_RETRY: Final[RetryConfig] = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}
#: Options that obstore reads from the environment only when no client options are given.
_ALLOW_HTTP: Final = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")

#: Size of a multipart upload's parts and how many are under way: 48 MiB of memory per writer at
#: most, and S3's 10,000 parts allow shards of 156 GiB.
_PART_BYTES: Final = 16 * MIB
_PARTS_AT_ONCE: Final = 2

#: ENOSPC, EFBIG and EDQUOT as Rust prints them, and HTTP's 507 as S3-compatible stores answer it.
_FULL: Final = re.compile(r"\(os error (28|27|122)\)|507 Insufficient Storage")
#: A signature may stand in the query of a URL that an error quotes.
_QUERY: Final = re.compile(r"\?[^\s\"')]+")


class ObstoreStore:
    """An `ObjectStore` over one of obstore's.

    Args:
        backend: the store, its prefix included.
        root: the folder of a local store, whose symbolic links must not lead out.
    """

    def __init__(self, backend: Backend, root: LocalRoot | None = None) -> None:
        self._backend = backend
        self._root = root

    def put(self, key: str, data: Buffer) -> None:
        with self._errors(key):
            obstore.put(self._backend, key, bytes(data), use_multipart=False)

    def create(self, key: str, data: Buffer) -> None:
        with self._errors(key):
            obstore.put(self._backend, key, bytes(data), mode="create", use_multipart=False)

    def put_stream(self, key: str, chunks: Iterable[Buffer]) -> int:
        with self._errors(key):
            writer = obstore.open_writer(
                self._backend, key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )
        size = 0
        try:
            for chunk in chunks:
                with self._errors(key):
                    size += writer.write(bytes(chunk))
        except BaseException as error:
            with contextlib.suppress(BaseError, OSError):
                writer.__exit__(type(error), error, error.__traceback__)
            raise
        with self._errors(key):
            writer.close()
        return size

    def get(self, key: str) -> bytes:
        with self._errors(key):
            return bytes(obstore.get(self._backend, key).bytes())

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        if length == 0:
            return b""
        try:
            with self._errors(key):
                return bytes(obstore.get_range(self._backend, key, start=offset, length=length))
        except StorageUnavailable:
            # A range that begins past the end is an error of no particular class.
            if offset >= self.head(key).size:
                return b""
            raise

    def head(self, key: str) -> ObjectInfo:
        with self._errors(key):
            return _info(obstore.head(self._backend, key))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with self._errors(prefix):
            pages = obstore.list(self._backend, prefix or None, chunk_size=1000)
        while True:
            with self._errors(prefix):
                page = next(pages, None)
            if page is None:
                return
            for meta in page:
                if self._root is None or self._root.contains(meta["path"]):
                    yield _info(meta)

    def list_children(self, prefix: str) -> Sequence[str]:
        with self._errors(prefix):
            found = obstore.list_with_delimiter(self._backend, prefix or None)
        folders = (str(path) for path in found["common_prefixes"])
        return sorted(
            path.rstrip("/").rsplit("/", 1)[-1]
            for path in folders
            if self._root is None or self._root.contains(path)
        )

    def delete(self, key: str) -> None:
        with contextlib.suppress(ObjectNotFound), self._errors(key):
            obstore.delete(self._backend, key)

    def copy(self, source: str, target: str) -> None:
        if isinstance(self._backend, AzureStore):  # which may copy some time later
            self.put_stream(target, self._stream(source))
            return
        with self._errors(source):
            obstore.copy(self._backend, source, target)

    def _stream(self, key: str) -> Iterator[Buffer]:
        with self._errors(key):
            yield from obstore.get(self._backend, key).stream(_PART_BYTES)

    def sign(self, key: str, expires_s: int) -> str | None:
        if not isinstance(self._backend, (AzureStore, GCSStore, S3Store)):
            return None
        with self._errors(key):
            return obstore.sign(self._backend, "GET", key, timedelta(seconds=expires_s))

    def sweep(self, prefix: str, before: datetime) -> int:
        del prefix, before
        return 0

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Check `key` first; turn what obstore raises into this project's errors."""
        try:
            if self._root is not None:
                self._root.check(key)
            yield
        except (BaseError, OSError, ValueError) as error:
            _raise_as_ours(key, error)


def _raise_as_ours(key: str, error: Exception) -> NoReturn:
    reason = _QUERY.sub("", str(error).split("\n", 1)[0])[:300]
    if isinstance(error, FileNotFoundError):
        raise ObjectNotFound(f"There is no object {key}.") from error
    if isinstance(error, AlreadyExistsError):
        raise AlreadyExists(f"There is an object {key} already.") from error
    if _FULL.search(str(error)):
        raise StorageFull(f"No room left to store {key}: {reason}") from error
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError, PermissionError)):
        raise StorageError(f"The store refuses access to {key}: {reason}", code="storage_denied") from error
    if isinstance(error, ValueError):
        raise StorageError(f"The store cannot hold a key like {key!r}.", code="invalid_key") from error
    raise StorageUnavailable(f"The store failed at {key}: {reason}") from error


def _info(meta: obstore.ObjectMeta) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["last_modified"], meta["e_tag"])


def open_store(url: str) -> ObstoreStore:
    """The store that `url` names.

    Args:
        url: `file:///absolute/folder` or `file://./relative` (created when missing), `memory://`,
            `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`. Credentials,
            endpoints and regions come from the providers' usual variables (`AWS_*`, `GOOGLE_*`,
            `AZURE_*`).

    Raises:
        StorageError: the URL is not one of those, or its store cannot be set up.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "memory":
        return ObstoreStore(MemoryStore())
    if separator and scheme == "file":
        root = LocalRoot(_local_path(url, rest))
        return ObstoreStore(LocalStore(root.path), root)
    if separator and scheme in ("s3", "gs", "az"):
        return ObstoreStore(_open_remote(url))
    raise StorageError(
        f"{_QUERY.sub('', url)[:200]!r} names no store. Use file://, memory://, s3://, gs:// or az://.",
        code="invalid_storage_url",
    )


def _local_path(url: str, rest: str) -> Path:
    path = unquote(rest.removeprefix("localhost"))
    if not path.startswith(("/", "./", "../")):
        raise StorageError(
            f"{url[:200]!r} is neither absolute, file:///folder, nor relative, file://./folder.",
            code="invalid_storage_url",
        )
    return Path(path)


def _open_remote(url: str) -> Backend:
    allow_http = any(os.environ.get(name, "").lower() in ("1", "true") for name in _ALLOW_HTTP)
    try:
        return from_url(url, client_options={**_CLIENT, "allow_http": allow_http}, retry_config=_RETRY)
    except (BaseError, ValueError) as error:
        reason = str(error).split("\n", 1)[0][:300]
        raise StorageError(
            f"The store {_QUERY.sub('', url)[:200]!r} cannot be set up: {reason}",
            code="invalid_storage_url",
        ) from error
