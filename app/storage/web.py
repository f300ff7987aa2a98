"""Objects at URLs of the web, read by ranges."""

from __future__ import annotations

import http.client
import io
import string
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from itertools import islice
from typing import IO, Final
from urllib.parse import quote, urljoin, urlsplit

from ..domain.limits import KIB, MIB
from ..domain.urls import hide_secrets
from ..errors import InputError, LimitExceeded, SourceUnavailable, UnprocessableInput
from ..runtime.streams import Buffer
from ..runtime.threads import Threads
from ..runtime.turns import pause, waiting
from .source_objects import MAX_OBJECTS, SourceObject, nothing_at, path_of, source_changed

#: Until a server says something, and until it has said all.
_TIMEOUT_S: Final = 60.0
_LONGEST_ANSWER_S: Final = 600.0
_TRIES: Final = 4
_FIRST_WAIT_S: Final = 0.5
_LONGEST_LIST: Final = 16 * MIB
_LONGEST_ETAG: Final = KIB
#: Objects of a list that are asked about at a time, and before the next ones are.
_DESCRIBED: Final = 8
_SUBMITTED: Final = 1000


def is_web_url(url: str) -> bool:
    """Whether it can be fetched here."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # also where the port is none
        return False


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only where it stays with the server, and at what may be read.

    Args:
        check: raises where a URL may not be read.
    """

    def __init__(self, check: Callable[[str], None]) -> None:
        self._check = check

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
            fp.close()
            raise UnprocessableInput(
                f"{hide_secrets(req.full_url)} is redirected to another server, {new.netloc}. Name that URL.",
                code="source_redirected",
            )
        self._check(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class WebObjects:
    """One object at a URL; or those that a list names, which is a text that ends in `.txt`.

    A line of the list is a URL, relative to that of the list; empty lines and those that begin with `#`
    count nothing. All lie on the server of the list, which names each once.

    Args:
        check: raises where a URL may not be read.
    """

    def __init__(self, url: str, check: Callable[[str], None]) -> None:
        self._url = url
        self._check = check
        self._is_list = urlsplit(url).path.endswith(".txt")
        self.folder = path_of(url)[: path_of(url).rfind("/") + 1] if self._is_list else path_of(url)
        self._opener = urllib.request.build_opener(_SameOrigin(check))

    def list(self) -> Iterator[SourceObject]:
        if not self._is_list:
            yield self._describe(self._url)
            return
        urls = iter(self._listed())
        with Threads(_DESCRIBED, thread_name_prefix="describe") as threads:
            while some := list(islice(urls, _SUBMITTED)):
                described = [threads.submit(self._describe, url) for url in some]
                try:
                    for future in described:
                        with waiting():
                            item = future.result()
                        yield item
                finally:
                    for future in described:
                        future.cancel()

    def _listed(self) -> dict[str, None]:
        """The URLs of the list; none is fetched before all are known to be right."""
        _, data = self._fetch(self._url, {}, _LONGEST_LIST + 1)
        if len(data) > _LONGEST_LIST:
            raise LimitExceeded("The list of the source is longer than 16 MiB.", code="too_many_ranges")
        urls: dict[str, None] = {}
        for line in io.BytesIO(data):
            name = line.decode("utf-8", "replace").strip()
            if not name or name.startswith("#"):
                continue
            url = urljoin(self._url, name)
            if urlsplit(url)[:2] != urlsplit(self._url)[:2]:
                raise UnprocessableInput(
                    f"The list names {hide_secrets(url)}, which is on another server.",
                    code="source_redirected",
                )
            self._check(url)
            if url in urls:
                raise UnprocessableInput(
                    f"The list names {hide_secrets(url)} twice, so that its rows would be there twice.",
                    code="invalid_source",
                )
            urls[url] = None
            if len(urls) > MAX_OBJECTS:
                raise LimitExceeded(
                    f"The list names more than {MAX_OBJECTS} objects. Import them in parts.",
                    code="too_many_ranges",
                )
        return urls

    def read(self, item: SourceObject, offset: int, length: int) -> Buffer:
        if not length:
            return b""
        wanted = f"{offset}-{offset + length - 1}"
        headers, data = self._fetch(item.name, {"Range": f"bytes={wanted}"}, length + 1, item)
        served, _, total = headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if _state_of(headers) != item.etag or total not in ("", "*", str(item.size)):
            raise source_changed(item)
        # Without a range, it is all of the object.
        if served != wanted and (served or offset or length != item.size):
            raise UnprocessableInput(
                f"The server of {item.shown_name} does not serve the ranges that are asked for.",
                code="no_ranges",
            )
        if len(data) != length:
            raise source_changed(item)
        return data

    def _describe(self, url: str) -> SourceObject:
        headers, _ = self._fetch(url, {}, 0)
        length, etag = headers.get("Content-Length", ""), _state_of(headers)
        if not (length.isascii() and length.isdigit()) or not 0 < len(etag) <= _LONGEST_ETAG:
            raise UnprocessableInput(
                f"The server says neither how long {hide_secrets(url)} is nor when it changed.",
                code="no_ranges",
            )
        return SourceObject(url, int(length), etag)

    def _fetch(
        self, url: str, headers: dict[str, str], most: int, item: SourceObject | None = None
    ) -> tuple[http.client.HTTPMessage, bytes]:
        """The headers of an answer, and at most so many bytes of it; of 0 bytes only the headers are asked.

        Args:
            item: that is read, and that was there when it was listed.
        """
        request = urllib.request.Request(  # noqa: S310 (checked by `is_web_url`)
            quote(url, safe=string.punctuation),
            headers={"Accept-Encoding": "identity", **headers},
            method="GET" if most else "HEAD",
        )
        wait = _FIRST_WAIT_S
        for tries_left in reversed(range(_TRIES)):
            try:
                with waiting(), self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                    return answer.headers, _read(answer, most)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code < 500 and error.code != 429:
                    raise _refusal(url, error.code, item) from None
                cause: Exception = error
            except (OSError, http.client.HTTPException) as error:
                cause = error
            if tries_left:
                pause(wait)
                wait *= 2
        raise SourceUnavailable(f"{hide_secrets(url)} cannot be fetched: {cause}.")


def _read(answer: http.client.HTTPResponse, most: int) -> bytes:
    """At most so many bytes of an answer.

    Raises:
        OSError, http.client.HTTPException: the connection breaks off, or is too slow.
    """
    data = bytearray()
    deadline = time.monotonic() + _LONGEST_ANSWER_S
    while len(data) < most and (piece := answer.read1(min(64 * KIB, most - len(data)))):
        data += piece
        if time.monotonic() > deadline:
            raise TimeoutError("the server is too slow")
    # What it has promised, and has not sent.
    if len(data) < most and answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return bytes(data)


def _refusal(url: str, status: int, item: SourceObject | None) -> InputError:
    if item is not None and status in (404, 410, 416):
        return source_changed(item)
    if status in (404, 410):
        return nothing_at(url)
    return UnprocessableInput(f"{hide_secrets(url)} was answered {status}.", code="source_refused")


def _state_of(headers: http.client.HTTPMessage) -> str:
    """What changes when the object does: its ETag, else when it was last modified."""
    return headers.get("ETag") or headers.get("Last-Modified") or ""
