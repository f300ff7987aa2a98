"""Where imports read from: a folder, S3, Google Cloud Storage, Azure, or a list of URLs. Nothing is written.

An object is read only as it was listed: each request asks for that ETag, and a change is an error that names
the object.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError, PreconditionError

from ..domain.import_ranges import SourceObject
from ..domain.urls import hide_secrets
from ..errors import MalformedInput, StorageError, StorageUnavailable
from ..runtime.streams import Buffer
from ..runtime.turns import waiting
from .failures import failure
from .object_store import ObjectNotFound
from .remote import HINTS, Timeouts, open_remote
from .source_errors import nothing_at, source_changed
from .web import WebObjects, is_web_url

T = TypeVar("T")

_REMOTE: Final = ("s3", "gs", "az")
_TIMEOUTS: Final = Timeouts()
_PATTERN: Final = re.compile(r"[*?\[]")


class Source(Protocol):
    """The objects of one place. Safe to use from several threads."""

    def list(self) -> Iterator[SourceObject]:
        """All of them, in no particular order.

        Raises:
            UnprocessableInput: there is no such place (`source_not_found`).
            StorageError: it cannot be listed.
        """
        ...

    def read(self, item: SourceObject, offset: int, length: int) -> Buffer:
        """Exactly `length` bytes of an object from `offset`.

        Raises:
            UnprocessableInput: the object changed since it was listed, or is gone (`source_changed`).
            StorageError: it cannot be read.
        """
        ...


def open_source(url: str) -> Source:
    """The source that a URL names.

    Args:
        url: `s3://bucket/prefix`, `gs://`, `az://`, or `file:///folder`: everything below a folder, one
            object, or those that match a pattern (`s3://bucket/logs/*.parquet`, where `*` also matches
            slashes). `https://` names one object, or, ending in `.txt`, a list with a URL in each line.

    Raises:
        MalformedInput: it is none of these (`invalid_source`).
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme in _REMOTE:
        bucket, _, key = rest.partition("/")
        if bucket:
            return _BucketSource(scheme, bucket, key)
    if separator and scheme == "file" and rest.startswith("/"):
        return _FolderSource(Path(unquote(rest)))
    if is_web_url(url):
        return WebObjects(url)
    raise MalformedInput(
        f"{hide_secrets(url)[:200]!r} names no source. Use s3://, gs://, az://, file:///folder, or https://.",
        code="invalid_source",
    )


def is_allowed(url: str, allowed: Sequence[str]) -> bool:
    """Whether a source lies at one of the URLs that are allowed, or below it.

    A path that could lead elsewhere, by `..` or an encoded character, is never allowed.
    """
    place = _place_of(url)
    return place is not None and any(
        base is not None and place[0] == base[0] and place[1][: len(base[1])] == base[1]
        for base in map(_place_of, allowed)
    )


def _place_of(url: str) -> tuple[tuple[str, str], tuple[str, ...]] | None:
    """Scheme and authority, and the parts of the path; None where it may lead elsewhere."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    names = tuple(name for name in parts.path.split("/") if name)
    if not parts.scheme or any(name in (".", "..") for name in names) or "%" in url or "\\" in url:
        return None
    return (parts.scheme, parts.netloc), names


def _split_pattern(path: str) -> tuple[str, str]:
    """The folder above the first part with a pattern, and the whole path as a pattern; none is empty."""
    found = _PATTERN.search(path)
    if found is None:
        return path, ""
    return path[: path.rfind("/", 0, found.start()) + 1].rstrip("/"), path


class _BucketSource:
    """Objects of a bucket. They are named by their keys in it."""

    def __init__(self, scheme: str, bucket: str, path: str) -> None:
        self._url = f"{scheme}://{bucket}/{path}"
        self._store = open_remote(f"{scheme}://{bucket}", _TIMEOUTS)
        self._hints = HINTS[type(self._store)]
        self._prefix, self._pattern = _split_pattern(path)

    def list(self) -> Iterator[SourceObject]:
        found = False
        for page in self._pages():
            for meta in page:
                if not self._pattern or fnmatchcase(meta["path"], self._pattern):
                    found = True
                    yield _describe(meta)
        if not found and not self._pattern and self._prefix and not self._prefix.endswith("/"):
            try:
                meta = self._call(self._prefix, lambda: obstore.head(self._store, self._prefix))
            except ObjectNotFound:
                raise nothing_at(self._url) from None
            yield _describe(meta)
        elif not found:
            raise nothing_at(self._url)

    def _pages(self) -> Iterator[Sequence[obstore.ObjectMeta]]:
        prefix = self._prefix.rstrip("/")
        pages = self._call(prefix, lambda: obstore.list(self._store, prefix or None, chunk_size=1000))
        while (page := self._call(prefix, lambda: next(pages, None))) is not None:
            yield page

    def read(self, item: SourceObject, offset: int, length: int) -> Buffer:
        def get() -> Buffer:
            found = obstore.get(
                self._store, item.name, options={"range": (offset, offset + length), "if_match": item.etag}
            )
            return memoryview(found.bytes())

        try:
            data = self._call(item.name, get)
        except (ObjectNotFound, PreconditionError):
            raise source_changed(item.name) from None
        if len(data) != length:
            raise source_changed(item.name)
        return data

    def _call(self, key: str, call: Callable[[], T]) -> T:
        """The result of a request; but for a change of the object, obstore's errors become ours."""
        try:
            with waiting():
                return call()
        except PreconditionError:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise failure(key, error, self._hints) from None


def _describe(meta: obstore.ObjectMeta) -> SourceObject:
    etag = meta["e_tag"]
    if etag is None:  # no store that is opened here
        raise StorageError(f"The store gives no ETag for {meta['path']}, so that changes would go unseen.")
    return SourceObject(meta["path"], meta["size"], etag)


class _FolderSource:
    """Files below a folder, or one file. They are named by their paths below it.

    Symbolic links are followed as long as they stay below the folder.
    """

    def __init__(self, path: Path) -> None:
        folder, pattern = _split_pattern(str(path))
        self._pattern = pattern[len(folder) :].lstrip("/")
        self._path = Path(folder)
        self._is_file = self._path.is_file()
        self._root = self._path.parent if self._is_file else self._path

    def list(self) -> Iterator[SourceObject]:
        if self._is_file:
            yield self._describe(self._path.name)
            return
        found = False
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = (Path(folder) / name).relative_to(self._root).as_posix()
                if self._contains(path) and (not self._pattern or fnmatchcase(path, self._pattern)):
                    found = True
                    yield self._describe(path)
        if not found:
            raise nothing_at(f"file://{self._path}")

    def read(self, item: SourceObject, offset: int, length: int) -> Buffer:
        if not self._contains(item.name):
            raise source_changed(item.name)
        try:
            with (self._root / item.name).open("rb", buffering=0) as file:
                data = bytearray(length)
                view, filled = memoryview(data), 0
                file.seek(offset)
                while filled < length and (taken := file.readinto(view[filled:])):
                    filled += taken
                # Afterwards: what was written while it was read has changed it by now.
                state = os.fstat(file.fileno())
        except FileNotFoundError:
            raise source_changed(item.name) from None
        except OSError as error:
            raise StorageUnavailable(
                f"The file {item.name!r} of the source cannot be read: {error.strerror}."
            ) from error
        if filled < length or _state_of(state) != item.etag:
            raise source_changed(item.name)
        return view.toreadonly()

    def _contains(self, path: str) -> bool:
        root = os.path.realpath(self._root)
        return os.path.realpath(os.path.join(root, path)).startswith(root.rstrip("/") + "/")  # noqa: PTH118

    def _describe(self, path: str) -> SourceObject:
        state = (self._root / path).stat()
        return SourceObject(path, state.st_size, _state_of(state))


def _state_of(state: os.stat_result) -> str:
    """What changes when a file is written."""
    return f"{state.st_mtime_ns:x}-{state.st_size:x}"
