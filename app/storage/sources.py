"""Where imports read from: a folder, S3, Google Cloud Storage, Azure, or a list of URLs. Nothing is written.

An object is read only as it was listed: each request asks for that ETag, and a change is an error that names
the object.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError, PreconditionError

from ..domain.urls import hide_secrets
from ..errors import MalformedInput, SourceUnavailable, StorageError, UnprocessableInput
from ..runtime.streams import Buffer
from ..runtime.turns import waiting
from .failures import failure
from .object_store import ObjectNotFound
from .remote import HINTS, Timeouts, open_remote
from .source_objects import SourceObject, nothing_at, source_changed
from .web import WebObjects, is_web_url

T = TypeVar("T")
#: Scheme and authority, and the parts of the path.
_Place = tuple[tuple[str, str], tuple[str, ...]]

_FILE: Final = ("file", "")
#: To pass through a folder takes no right to list it, where the system has a flag for that.
_PASS: Final = os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)
#: What a name meets that leads elsewhere than it did.
_ELSEWHERE: Final = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ESPIPE, errno.ENXIO,
}  # fmt: skip

_REMOTE: Final = ("s3", "gs", "az")
_TIMEOUTS: Final = Timeouts()
_PATTERN: Final = re.compile(r"[*?\[]")
#: Dots, slashes, percent signs and NUL, encoded.
_ENCODED: Final = re.compile(r"%(2e|2f|5c|25|00)", re.IGNORECASE)
_BEHIND_PATH: Final = re.compile(r"[?#]")


class Source(Protocol):
    """The objects of one place. Safe to use from several threads.

    Attributes:
        folder: what names begin with that lie below the place; of a place that is an object, its name.
    """

    @property
    def folder(self) -> str: ...

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


def open_source(url: str, allowed: Sequence[str] | None = None) -> Source:
    """The source that a URL names.

    Args:
        url: `s3://bucket/prefix`, `gs://`, `az://`, or `file:///folder`: everything below a folder, one
            object, or those that match a pattern (`s3://bucket/logs/*.parquet`, where `*` also matches
            slashes). `https://` names one object, or, ending in `.txt`, a list with a URL in each line.
        allowed: URLs at or below which all must lie that is read, also where links, lists and redirections
            lead; None allows everything.

    Raises:
        MalformedInput: it is none of these (`invalid_source`), or not allowed (`source_not_allowed`).
    """
    _require_allowed(url, allowed)
    scheme, separator, rest = url.partition("://")
    if separator and scheme in _REMOTE:
        bucket, _, key = rest.partition("/")
        if bucket:
            return _BucketSource(scheme, bucket, key)
    if separator and scheme == "file" and rest.startswith("/"):
        try:
            return _FolderSource(Path(unquote(rest)), allowed)
        except OSError as error:
            raise MalformedInput(
                f"{url[:200]!r} cannot be read: {error.strerror}.", code="invalid_source"
            ) from error
    if is_web_url(url):
        if "@" in urlsplit(url).netloc:
            raise MalformedInput(
                f"{hide_secrets(url)[:200]!r} says who signs in, which would be kept in the plan. Use a URL "
                "that needs no password.",
                code="invalid_source",
            )
        return WebObjects(url, lambda place: _require_allowed(place, allowed))
    raise MalformedInput(
        f"{hide_secrets(url)[:200]!r} names no source. Use s3://, gs://, az://, file:///folder, or https://.",
        code="invalid_source",
    )


def is_allowed(url: str, allowed: Sequence[str]) -> bool:
    """Whether a source lies at one of the URLs that are allowed, or below it.

    A path that could lead elsewhere, by `..` or an encoded slash, is never allowed. A path of this machine is
    where its symbolic links lead.
    """
    place = _place_of(url)
    return place is not None and _is_at(place, allowed)


def _is_at(place: _Place, allowed: Sequence[str]) -> bool:
    return any(
        base is not None and place[0] == base[0] and place[1][: len(base[1])] == base[1]
        for base in map(_place_of, allowed)
    )


def _require_allowed(url: str, allowed: Sequence[str] | None) -> None:
    if allowed is not None and not is_allowed(url, allowed):
        raise MalformedInput(
            f"Nothing may be imported from {hide_secrets(url)!r}. The operator names what may be in "
            "SHARDSMITH_IMPORT_SOURCES.",
            code="source_not_allowed",
        )


def _place_of(url: str) -> _Place | None:
    """Scheme and authority, and the parts of the path; None where it may lead elsewhere.

    Only on the web do a query and a fragment end the path: of a bucket or a folder it is all of the rest.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or _ENCODED.search(url) or "\\" in url or not url.isprintable():
        return None
    if scheme in ("http", "https"):
        rest = _BEHIND_PATH.split(rest, maxsplit=1)[0]
    authority, *parts = rest.split("/")
    names = tuple(name for name in parts if name)
    if "." in names or ".." in names:
        return None
    if scheme == "file":
        try:
            names = Path(os.path.realpath("/" + unquote("/".join(names)))).parts[1:]
        except OSError:  # a link was replaced meanwhile
            return None
    return (scheme, authority), names


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
        self.folder = self._prefix

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
            raise source_changed(item) from None
        if len(data) != length:
            raise source_changed(item)
        return data

    def _call(self, key: str, call: Callable[[], T]) -> T:
        """The result of a request; but for a change of the object, obstore's errors become ours."""
        try:
            with waiting():
                return call()
        except PreconditionError:
            raise
        except (BaseError, OSError, ValueError) as error:
            found = failure(key, error, self._hints)
            if isinstance(found, StorageError):
                raise SourceUnavailable(found.detail) from None
            raise found from None


def _describe(meta: obstore.ObjectMeta) -> SourceObject:
    etag = meta["e_tag"]
    if etag is None:  # no store that is opened here
        raise StorageError(f"The store gives no ETag for {meta['path']}, so that changes would go unseen.")
    return SourceObject(meta["path"], meta["size"], etag)


class _FolderSource:
    """Files below a folder, or one file. They are named by their paths below it.

    A path that is there is no pattern. Symbolic links to files are followed as long as they stay below the
    folder. Who can write there can change where a name leads at any time: only what was opened is looked at.
    """

    def __init__(self, path: Path, allowed: Sequence[str] | None) -> None:
        folder, pattern = (str(path), "") if path.exists() else _split_pattern(str(path))
        self._pattern = pattern[len(folder) :].lstrip("/")
        self._path = Path(folder or "/")
        self._is_file = self._path.is_file()
        self._root = self._path.parent if self._is_file else self._path
        self._allowed = allowed
        self.folder = self._path.name if self._is_file else ""

    def list(self) -> Iterator[SourceObject]:
        if not self._is_file and not self._root.is_dir():
            raise nothing_at(f"file://{self._path}")
        found = False
        try:
            for path, state in self._walk():
                if not stat.S_ISDIR(state.st_mode):
                    found = True
                    yield SourceObject(path, state.st_size, _state_of(state))
        except OSError as error:
            raise SourceUnavailable(
                f"The source cannot be listed: {error.filename!a:.200}: {error.strerror}."
            ) from error
        if not found:
            raise nothing_at(f"file://{self._path}")

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        if self._is_file:
            yield self._path.name, self._stat(self._path.name)
        folders = [] if self._is_file else [""]
        while folders:
            folder = folders.pop()
            with self._opened(folder) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    path = folder + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{path}/")
                    elif not self._pattern or fnmatchcase(path, self._pattern):
                        # Passed over, the rows of a link would be missing, and nobody would know.
                        is_link = entry.is_symlink()
                        yield path, self._stat(path) if is_link else entry.stat(follow_symlinks=False)

    def _stat(self, path: str) -> os.stat_result:
        with self._opened(path) as descriptor:
            return os.fstat(descriptor)

    def read(self, item: SourceObject, offset: int, length: int) -> Buffer:
        try:
            with self._opened(item.name) as descriptor, open(descriptor, "rb", 0, closefd=False) as file:
                data = bytearray(length)
                view, filled = memoryview(data), 0
                file.seek(offset)
                while filled < length and (taken := file.readinto(view[filled:])):
                    filled += taken
                # Afterwards: what was written while it was read has changed it by now.
                state = os.fstat(descriptor)
        except UnprocessableInput:
            raise source_changed(item) from None
        except OSError as error:
            if error.errno in _ELSEWHERE:
                raise source_changed(item) from None
            raise SourceUnavailable(
                f"The file {item.name!r} of the source cannot be read: {error.strerror}."
            ) from error
        if filled < length or _state_of(state) != item.etag:
            raise source_changed(item)
        return view.toreadonly()

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """A descriptor of what is at a path below the folder.

        Raises:
            UnprocessableInput: it is elsewhere (`source_link`).
            OSError: it cannot be opened, or links changed meanwhile.
        """
        root = os.path.realpath(self._root, strict=True)
        place = os.path.realpath(self._root / path, strict=True)
        *folders, name = parts = Path(place).parts
        is_inside = Path(place).is_relative_to(root)
        if not is_inside or (self._allowed is not None and not _is_at((_FILE, parts[1:]), self._allowed)):
            raise UnprocessableInput(
                f"The symbolic link {path!a:.200} leads out of the folder of the source. Name where it "
                "leads, or put the files into the folder.",
                code="source_link",
            )
        with ExitStack() as stack:
            # From the root on, following no link. A FIFO does not hold the thread.
            folder: int | None = None
            for part in folders:
                folder = os.open(part, _PASS, dir_fd=folder)
                stack.callback(os.close, folder)
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            stack.callback(os.close, opened)
            yield opened


def _state_of(state: os.stat_result) -> str:
    """What changes when a file is written."""
    return f"{state.st_mtime_ns:x}-{state.st_size:x}"
