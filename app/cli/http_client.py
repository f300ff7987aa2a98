"""Requests over HTTP with the standard library: an answer as a stream, errors of a service as our own."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urljoin, urlsplit

import click

from .. import __version__, errors
from ..domain.limits import KIB, MIB
from ..domain.urls import hide_secrets

#: Characters that stay in a URL as they are; `%` too, since escapes were written by whoever wrote it.
_OF_URLS: Final = "%:/?#[]@!$&'()*+,;=~"
_TIMEOUT_S: Final = 120.0
_REDIRECTS: Final = 5
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
#: Of a problem document; more is none.
_MOST_PROBLEM: Final = 64 * KIB

#: Of an answer that is read as a whole: manifests are the largest.
_MOST_JSON: Final = 256 * MIB

#: Status -> the error of which a service made it; the others are what their class says.
_ERRORS: Final[Mapping[int, type[errors.ShardsmithError]]] = {
    401: errors.Unauthenticated,
    403: errors.InsufficientScope,
    404: errors.NotFound,
    408: errors.StreamTimeout,
    409: errors.Conflict,
    429: errors.Overloaded,
    502: errors.StorageUnavailable,
    503: errors.StorageUnavailable,
    504: errors.StorageUnavailable,
    507: errors.StorageFull,
}


class Answer:
    """The answer to a request, whose body is still to be read."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response

    @property
    def num_bytes(self) -> int | None:
        """Of the body, where that is known beforehand."""
        return self._response.length

    def num_skipped(self) -> int:
        """Rows that the transforms left out.

        Raises:
            StorageUnavailable: no number stands there.
        """
        try:
            return int(self.headers.get("Skipped-Rows", 0))
        except ValueError:
            raise _no_service() from None

    def pieces(self) -> Iterator[bytes]:
        """The body.

        Raises:
            StreamInterrupted: it ends early.
        """
        expected, found = self._response.length, 0
        try:
            while piece := self._response.read(MIB):
                found += len(piece)
                yield piece
        except (http.client.HTTPException, OSError) as error:
            raise _interrupted() from error
        if expected is not None and found != expected:
            raise _interrupted()

    def json(self, shape: Mapping[str, Any], **absent: Any) -> dict[str, Any]:
        """The body, which is an object of JSON.

        Args:
            shape: members that it has, their types and those of their items, such as `{"versions": [str]}`.
            absent: what members count as that may not be there.

        Raises:
            StorageUnavailable: it is not, as that of a server of something else.
        """
        data = bytearray()
        for piece in self.pieces():
            data += piece
            if len(data) > _MOST_JSON:
                raise _no_service()
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            raise _no_service() from None
        if not isinstance(found, dict) or not _has_shape({**absent, **found}, shape):
            raise _no_service()
        return found


def _has_shape(found: Any, shape: Any) -> bool:
    if isinstance(shape, Mapping):
        return isinstance(found, dict) and all(_has_shape(found.get(name), shape[name]) for name in shape)
    if isinstance(shape, list):
        return isinstance(found, list) and all(_has_shape(item, shape[0]) for item in found)
    return isinstance(found, shape)


def _no_service() -> errors.StorageUnavailable:
    return errors.StorageUnavailable("What answers there is not a Shardsmith service. Check the address.")


def _interrupted() -> errors.StreamInterrupted:
    return errors.StreamInterrupted("The connection ended before the answer did. Try again.")


def request(
    method: str,
    url: str,
    resources: ExitStack,
    *,
    headers: Mapping[str, str] | None = None,
    body: Iterable[bytes] | None = None,
    num_bytes: int | None = None,
) -> Answer:
    """Send one request.

    Args:
        resources: closes the connection.
        body: in pieces.
        num_bytes: of the body; None sends it in chunks.

    Raises:
        ShardsmithError: what the service says in its answer; nothing can be reached under that address.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # a port that is no number, brackets that do not match
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https"):
        raise click.UsageError(f"{hide_secrets(url)!r} is no URL of HTTP.")
    connection = (
        http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=ssl.create_default_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    )
    resources.callback(connection.close)
    sent = {"User-Agent": f"shardsmith/{__version__}", "Accept-Encoding": "identity", **(headers or {})}
    if num_bytes is not None:
        sent["Content-Length"] = str(num_bytes)
    target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_OF_URLS)
    try:
        try:
            chunked = body is not None and num_bytes is None
            if chunked:
                sent["Transfer-Encoding"] = "chunked"
            connection.request(method, target, body, sent, encode_chunked=chunked)
        except (BrokenPipeError, ConnectionResetError):
            if body is None:
                raise
            # A service that refuses a body may answer before the end of it.
        response = connection.getresponse()
    except (http.client.HTTPException, OSError) as error:
        raise errors.StorageUnavailable(
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]} does not answer: {error}."
        ) from error
    return Answer(response)


def require_success(answer: Answer) -> Answer:
    """The answer, unless it is an error.

    Raises:
        ShardsmithError: what the problem document says.
    """
    if answer.status < 300:
        return answer
    text = answer._response.read(_MOST_PROBLEM)  # noqa: SLF001  # of this module
    kind = _ERRORS.get(answer.status, errors.InputError if answer.status < 500 else errors.ShardsmithError)
    try:
        problem = json.loads(text)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise kind(f"The server answered {answer.status}.") from None
    kind = errors.CorruptData if code == "corrupt_data" else kind
    place = {name: problem.get(name) for name in ("row", "feature", "offset", "pointer")}
    raise kind(detail, code=code, **place)


def fetch(url: str, resources: ExitStack) -> tuple[int | None, Iterator[bytes]]:
    """What lies at an address: its size, where that is known, and its bytes.

    Raises:
        ShardsmithError: it cannot be had.
    """
    for _ in range(_REDIRECTS):
        answer = request("GET", url, resources)
        if answer.status not in _MOVED:
            require_success(answer)
            return answer.num_bytes, answer.pieces()
        led = urljoin(url, answer.headers.get("Location", ""))
        if url.startswith("https:") and not led.startswith("https:"):
            raise errors.NotFound(
                f"{hide_secrets(url)[:200]} leads to {hide_secrets(led)[:200]}, where others could read "
                "and change what comes. Name that address itself if you trust it."
            )
        url = led
    raise errors.NotFound(f"{hide_secrets(url)[:200]} leads on and on.")


class Service:
    """A running service.

    Args:
        url: its root.
        token_file: holds the bearer token; else that of the environment is used, if there is one.
    """

    def __init__(self, url: str, token_file: str | None, resources: ExitStack) -> None:
        self._url = url.rstrip("/")
        token = Path(token_file).read_text("utf-8").strip() if token_file else os.environ.get(TOKEN_VARIABLE)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._resources = resources

    def path(self, *segments: str) -> str:
        """A path of the service."""
        return "/".join(quote(segment, safe="") for segment in segments)

    def send(
        self,
        method: str,
        *segments: str,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Iterable[bytes] | None = None,
        num_bytes: int | None = None,
        resources: ExitStack | None = None,
    ) -> Answer:
        """The answer to a request, which is a success.

        Args:
            segments: of the path behind `/v1`.
            query: parameters; those that are None are left out.

        Raises:
            ShardsmithError: it is an error.
        """
        given = {name: parameter_text(value) for name, value in (query or {}).items() if value is not None}
        url = f"{self._url}/v1/{self.path(*segments)}" + (f"?{urlencode(given)}" if given else "")
        sent = {**self._headers, **(headers or {})}
        used = resources or self._resources
        answer = request(method, url, used, headers=sent, body=body, num_bytes=num_bytes)
        return require_success(answer)

    def dataset_names(self) -> list[str]:
        """The datasets that the token may see.

        Raises:
            ShardsmithError: as `send`; what answers is no such service.
        """
        listed = self.send("GET", "datasets").json({"datasets": [{"dataset": str}]})
        return [each["dataset"] for each in listed["datasets"]]

    def get_outside(self, path: str) -> Answer:
        """The answer to `GET` of a path that is not below `/v1`, whatever its status is."""
        return request("GET", f"{self._url}{path}", self._resources, headers=self._headers)


#: Of the environment: the bearer token. Not `SHARDSMITH_TOKEN`, which looks like a setting of the service.
TOKEN_VARIABLE: Final = "SHARDSMITH_CLIENT_TOKEN"  # noqa: S105  # the name of it


def parameter_text(value: Any) -> str:
    """The value of a query parameter."""
    return str(value).lower() if isinstance(value, bool) else str(value)
