"""`ObjectStore` over obstore: S3, Google Cloud Storage, Azure, the local disk, memory.

This behaviour of obstore was checked with version 0.12.1:
- Buffers are not copied: memory and multipart uploads keep a reference. Hence `_keep_bytes(data)`, which
  costs nothing for what nobody writes to.
- `put` of an iterator drives it inside obstore's runtime, where another obstore call panics; a
  writer calls back nothing. Leaving a writer by an exception aborts the upload; so does a part that fails.
- Requests are repeated after a 5xx or a failure to connect; but for a deletion, after a timeout or a broken
  connection as well. Create-only puts are not: an error after the last try would hide that an earlier one,
  answered with an error too, was applied. `create_once` repeats them, and knows what is in doubt.
- Ceph answers a completed multipart upload without an ETag; nothing here needs one.
- Azure hands out whatever list it has from an offset, so none is asked for.
- LocalStore writes to `name#1` and renames; a failed write removes that file, and list hides one
  that a killed process left.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store

from ..domain.limits import KIB, MIB
from ..domain.urls import hide_secrets
from ..errors import StorageError, StorageUnavailable
from ..runtime.streams import Buffer
from ..runtime.turns import waiting
from .failures import RangeNotSatisfiable, failure
from .local_root import LocalRoot
from .object_store import ObjectInfo, ObjectNotFound
from .remote import HINTS, Remote, Timeouts, open_remote
from .unfinished_uploads import abort_uploads, warn_if_missing

Backend: TypeAlias = Remote | LocalStore | MemoryStore

#: Size of a multipart upload's parts and how many are under way: 48 MiB of memory per writer at
#: most, and S3's 10,000 parts allow shards of 156 GiB.
_PART_BYTES: Final = 16 * MIB
_PARTS_AT_ONCE: Final = 2
#: How much of a large range is read at a time: small enough for the allocator to keep its memory.
_CHUNK_BYTES: Final = 256 * KIB
#: Up to this size data is copied, not held as a view of what obstore has allocated.
_SMALL_RANGE: Final = 64 * KIB

#: S3 copies 5 GiB at most in one request, which has to end within its deadline too: rather stream more.
_LARGEST_COPY: Final = 1024 * MIB
_TIMEOUTS: Final = Timeouts()


class ObstoreStore:
    """An `ObjectStore` over a store of obstore's.

    Args:
        backend: the store, its prefix included.
        root: the folder of a local store, whose symbolic links must not lead out.
        once: the same store through a client that repeats no request, for create-only puts.
    """

    def __init__(self, backend: Backend, root: LocalRoot | None = None, once: Backend | None = None) -> None:
        self._backend = backend
        self._once = once or backend
        self._root = root
        self._hints = next((hints for kind, hints in HINTS.items() if isinstance(backend, kind)), None)

    def put(self, key: str, data: Buffer) -> None:
        with self._errors(key):
            obstore.put(self._backend, key, _keep_bytes(data), use_multipart=False)

    def create(self, key: str, data: Buffer) -> None:
        with self._errors(key):
            obstore.put(self._once, key, bytes(data), mode="create", use_multipart=False)

    def put_stream(self, key: str, chunks: Iterable[Buffer]) -> int:
        with self._errors(key):
            writer = obstore.open_writer(
                self._backend, key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )
        size, digest = 0, hashlib.sha256()
        try:
            for chunk in chunks:
                data = _keep_bytes(chunk)
                if isinstance(self._backend, AzureStore):
                    digest.update(data)
                with self._upload_errors(key):
                    size += writer.write(data)
        except BaseException as error:
            with contextlib.suppress(BaseError, OSError), waiting():
                writer.__exit__(type(error), error, error.__traceback__)
            raise
        try:
            with self._upload_errors(key):
                writer.close()
        except StorageUnavailable:
            # On Azure whoever commits its blocks first discards those of others who write the same object,
            # whose commits then fail. Where they write the same bytes, all is well.
            if not isinstance(self._backend, AzureStore) or self._digest(key) != digest.digest():
                raise
        return size

    def get(self, key: str) -> bytes:
        with self._errors(key):
            return bytes(obstore.get(self._backend, key).bytes())

    def get_range(self, key: str, offset: int, length: int) -> Buffer:
        if length == 0:
            return b""
        try:
            with self._errors(key):
                found = obstore.get_range(self._backend, key, start=offset, length=length)
                return bytes(found) if length <= _SMALL_RANGE else memoryview(found)
        except RangeNotSatisfiable:
            if offset >= self.head(key).size:
                return b""
            raise

    def read_into(self, key: str, offset: int, target: memoryview) -> int:
        if not target:
            return 0
        if self._root is not None:  # obstore would hand a file out by 8 KiB
            with self._errors(key):
                return self._root.read_into(key, offset, target)
        filled = 0
        try:
            with self._errors(key):
                wanted = obstore.get(self._backend, key, options={"range": (offset, offset + len(target))})
                for chunk in wanted.stream(min_chunk_size=_CHUNK_BYTES):
                    target[filled : filled + len(chunk)] = chunk
                    filled += len(chunk)
        except RangeNotSatisfiable:
            if offset < self.head(key).size:
                raise
        return filled

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
        if self._is_copied_by_the_store(source):
            with self._errors(source):
                obstore.copy(self._backend, source, target)
        else:
            self.put_stream(target, self._stream(source))

    def _is_copied_by_the_store(self, source: str) -> bool:
        # Azure may do it some time later. The local store makes a hard link, which not every file system
        # has, and leaves `name#1` behind where the target is that link already.
        if isinstance(self._backend, (AzureStore, LocalStore)):
            return False
        return not isinstance(self._backend, S3Store) or self.head(source).size <= _LARGEST_COPY

    def _stream(self, key: str) -> Iterator[Buffer]:
        """The object, by ranges: one long answer would have to end within one request's deadline."""
        size = self.head(key).size
        for offset in range(0, size, _PART_BYTES):
            length = min(_PART_BYTES, size - offset)
            data = self.get_range(key, offset, length)
            if len(data) != length:
                raise StorageUnavailable(f"{key} became shorter while it was read.")
            yield data

    def _digest(self, key: str) -> bytes:
        digest = hashlib.sha256()
        for data in self._stream(key):
            digest.update(data)
        return digest.digest()

    def sign(self, key: str, expires_s: int) -> str | None:
        if not isinstance(self._backend, (AzureStore, GCSStore, S3Store)):
            return None
        with self._errors(key):
            return obstore.sign(self._backend, "GET", key, timedelta(seconds=expires_s))

    def sweep(self, prefix: str, before: datetime) -> int:
        # Google and Azure have no such list: a lifecycle rule of the bucket, or a week, does it there.
        if self._root is not None:
            with self._errors(prefix):
                return self._root.remove_unfinished(prefix, before)
        if isinstance(self._backend, S3Store):
            folder = "/".join(part for part in (self._backend.prefix, prefix) if part)
            with waiting():
                return abort_uploads(self._backend.config["bucket"], f"{folder}/" if folder else "", before)
        return 0

    @contextlib.contextmanager
    def _upload_errors(self, key: str) -> Iterator[None]:
        """Like `_errors`, for the requests of an upload; what they can miss is not an object, but the upload.

        It is gone where it was completed by a request whose answer was lost, or swept as a leftover.
        """
        try:
            with self._errors(key):
                yield
        except ObjectNotFound as error:
            raise StorageUnavailable(f"The upload of {key} is gone.") from error

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Check `key` first, and turn errors of obstore into errors of this project."""
        try:
            with waiting():
                if self._root is not None:
                    self._root.check(key)
                yield
        except (BaseError, OSError, ValueError) as error:
            raise failure(key, error, self._hints) from None


def _keep_bytes(data: Buffer) -> bytes | memoryview:
    """The same bytes if they cannot change any more, else a copy."""
    return data if isinstance(data, memoryview) and data.readonly else bytes(data)


def _info(meta: obstore.ObjectMeta) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["last_modified"], meta["e_tag"])


def open_store(url: str, timeouts: Timeouts = _TIMEOUTS) -> ObstoreStore:
    """The store that `url` names.

    Args:
        url: `file:///absolute/folder` or `file://./relative` (created when missing), `memory://`,
            `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`. Credentials,
            endpoints and regions come from the providers' usual variables (`AWS_*`, `GOOGLE_*`,
            `AZURE_*`).
        timeouts: of the requests to a remote store.

    Raises:
        StorageError: the URL is not one of those, or its store cannot be set up.
    """
    scheme, separator, _ = url.partition("://")
    if separator and scheme == "memory":
        return ObstoreStore(MemoryStore())
    if separator and scheme == "file":
        root = LocalRoot(local_path(url))
        return ObstoreStore(LocalStore(root.path), root)
    if separator and scheme in ("s3", "gs", "az"):
        if scheme == "s3":
            warn_if_missing()
        once = open_remote(url, replace(timeouts, max_retries=0))
        return ObstoreStore(open_remote(url, timeouts), once=once)
    raise StorageError(
        f"{hide_secrets(url)[:200]!r} names no store. Use file://, memory://, s3://, gs:// or az://.",
        code="invalid_storage_url",
    )


def local_path(url: str) -> Path:
    """The folder of a store on this machine.

    Raises:
        StorageError: the URL is not that of one.
    """
    path = unquote(url.removeprefix("file://").removeprefix("localhost"))
    if not path.startswith(("/", "./", "../")):
        raise StorageError(
            f"{hide_secrets(url)[:200]!r} is neither absolute, file:///folder, nor relative, file://./folder.",
            code="invalid_storage_url",
        )
    return Path(path)
