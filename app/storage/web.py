"""Objects at URLs of the web, read by ranges."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import IO, Final, NoReturn
from urllib.parse import urljoin, urlsplit

from ..domain.import_ranges import SourceObject
from ..domain.limits import MIB
from ..domain.urls import hide_secrets
from ..errors import LimitExceeded, StorageUnavailable, UnprocessableInput
from ..runtime.streams import Buffer
from ..runtime.turns import pause, waiting
from .source_errors import nothing_at, source_changed

_TIMEOUT_S: Final = 60.0
_TRIES: Final = 4
_FIRST_WAIT_S: Final = 0.5
_LONGEST_LIST: Final = 16 * MIB


def is_web_url(url: str) -> bool:
    """Whether it can be fetched here."""
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only where it stays with the server: what is allowed is allowed by its name."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            raise UnprocessableInput(
                f"{hide_secrets(req.full_url)} is redirected to another server, {new.netloc}. Name that URL.",
                code="source_redirected",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class WebObjects:
    """One object at a URL; or those that a list names, which is a text that ends in `.txt`.

    A line of the list is a URL, relative to that of the list; empty lines and those that begin with `#`
    count nothing. All lie on the server of the list.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(_SameOrigin())

    def list(self) -> Iterator[SourceObject]:
        if not urlsplit(self._url).path.endswith(".txt"):
            yield self._describe(self._url)
            return
        with self._open(urllib.request.Request(self._url)) as answer:  # noqa: S310 (checked by `is_web_url`)
            data = answer.read(_LONGEST_LIST + 1)
        if len(data) > _LONGEST_LIST:
            raise LimitExceeded("The list of the source is longer than 16 MiB.", code="too_many_ranges")
        for line in data.decode("utf-8", "replace").splitlines():
            if not (name := line.strip()) or name.startswith("#"):
                continue
            url = urljoin(self._url, name)
            if urlsplit(url)[:2] != urlsplit(self._url)[:2]:
                raise UnprocessableInput(
                    f"The list names {hide_secrets(url)}, which is on another server.",
                    code="source_redirected",
                )
            yield self._describe(url)

    def read(self, item: SourceObject, offset: int, length: int) -> Buffer:
        if not length:
            return b""
        request = urllib.request.Request(  # noqa: S310 (checked by `is_web_url`)
            item.name,
            headers={"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"},
        )
        with self._open(request) as answer:
            data = answer.read(length + 1)
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if answer.status == 200 and (offset or length != item.size):
                raise UnprocessableInput(
                    f"The server of {hide_secrets(item.name)} does not serve ranges.", code="no_ranges"
                )
            same = _state_of(answer.headers) == item.etag and (not total or total == str(item.size))
        if not same or len(data) != length:
            raise source_changed(item.name)
        return data

    def _describe(self, url: str) -> SourceObject:
        request = urllib.request.Request(url, method="HEAD", headers={"Accept-Encoding": "identity"})  # noqa: S310
        with self._open(request) as answer:
            length, etag = answer.headers.get("Content-Length", ""), _state_of(answer.headers)
        if not length.isdigit() or not etag:
            raise UnprocessableInput(
                f"The server says neither how long {hide_secrets(url)} is nor when it changed.",
                code="no_ranges",
            )
        return SourceObject(url, int(length), etag)

    def _open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        wait = _FIRST_WAIT_S
        for tries_left in reversed(range(_TRIES)):
            try:
                with waiting():
                    answer: http.client.HTTPResponse = self._opener.open(request, timeout=_TIMEOUT_S)
                return answer
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    _refuse(request.full_url, error.code)
                cause: Exception = error
            except (OSError, http.client.HTTPException) as error:
                cause = error
            if tries_left:
                pause(wait)
                wait *= 2
        raise StorageUnavailable(f"{hide_secrets(request.full_url)} cannot be fetched: {cause}.")


def _refuse(url: str, status: int) -> NoReturn:
    if status in (404, 410):
        raise nothing_at(url)
    raise UnprocessableInput(f"{hide_secrets(url)} was answered {status}.", code="source_refused")


def _state_of(headers: http.client.HTTPMessage) -> str:
    """What changes when the object does: its ETag, else when it was last modified."""
    return headers.get("ETag") or headers.get("Last-Modified") or ""
