"""The access log: a line for each request once it has ended, and for what was refused before it was one.

Probes have none. It is written here, where the bytes are counted and where it is seen that a client leaves.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Iterable
from typing import Final

from starlette.types import Scope

from ...logs import ACCESS, REQUEST_ID
from ...telemetry.requests import count_refused_head, count_request
from ..auth.routes import access_table
from ..paths import routed_path
from .connections import PROBES

REQUEST_ID_HEADER: Final = b"x-request-id"

logger = logging.getLogger(ACCESS)

#: An id that a client or a proxy gave is kept if it is one; anything else is not repeated.
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_ROUTES: Final = access_table()
#: What is shown of a path: there may be 32 KiB of it.
LONGEST_PATH: Final = 256


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The id that the client gave, or a new one."""
    given = [value for name, value in headers if name == REQUEST_ID_HEADER]
    if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]):
        return given[0].decode("ascii")
    return f"{random.getrandbits(64):016x}"  # not a secret


class RequestLog:
    """What is told of one request: noted while it is under way, counted and written when it has ended.

    Attributes:
        id: the request's.
        num_in, num_out: bytes of the body, and of the content of the answer.
        status: of the answer; None until it begins.
        ended: why the answer did not reach its end, or the body did not; None where both did.
    """

    __slots__ = ("_began", "_scope", "ended", "id", "num_in", "num_out", "status")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._began = time.monotonic()
        self.id = request_id_of(scope["headers"])
        self.num_in = 0
        self.num_out = 0
        self.status: int | None = None
        self.ended: str | None = None

    def write(self, *, whole_body: bool, every: bool) -> None:
        """Count the request, and write its line.

        Args:
            whole_body: whether the body has come to its end; a line that says otherwise is a warning.
            every: whether there are lines for others than uploads that were cut.
        """
        scope = self._scope
        path = routed_path(scope)
        route = _route_of(path)
        seconds = time.monotonic() - self._began
        count_request(
            route,
            scope["method"],
            self.status,
            seconds=seconds,
            num_in=self.num_in,
            num_out=self.num_out,
            cut=self.ended,
        )
        level = logging.WARNING if self.ended is not None and not whole_body else logging.INFO
        if path in PROBES or not (every or level == logging.WARNING) or not logger.isEnabledFor(level):
            return
        _log(
            level,
            route,
            scope["raw_path"],
            method=scope["method"],
            status=self.status,
            ms=round(seconds * 1e3, 2),
            num_in=self.num_in,
            num_out=self.num_out,
            client=scope["client"],
            ended=self.ended,
        )


def log_refusal(
    request_id: str,
    target: bytes,
    status: int,
    code: str,
    num_in: int,
    client: tuple[str, int] | None,
    *,
    every: bool,
) -> None:
    """Count what was refused before it was a request, and write its line.

    Args:
        target: what had come of its target.
        num_in: bytes of its head.
        every: whether there are lines for others than those that did not come in time.
    """
    count_refused_head(status)
    level = logging.WARNING if status == 408 else logging.INFO
    if not (every or level == logging.WARNING) or not logger.isEnabledFor(level):
        return
    # A target of another form may hold a password: `http://name:password@host/`.
    path = target.partition(b"?")[0] if target.startswith(b"/") else b""
    token = REQUEST_ID.set(request_id)
    _log(
        level,
        _route_of(path.decode("latin-1")),
        path,
        status=status,
        num_in=num_in,
        client=client,
        ended=code,
    )
    REQUEST_ID.reset(token)


def _route_of(path: str) -> str | None:
    """The template of the route that takes `path`; None if there is none."""
    found = _ROUTES.find(path)
    return None if found is None else found[0].route


def _log(
    level: int,
    route: str | None,
    raw_path: bytes,
    *,
    status: int | None,
    num_in: int,
    client: tuple[str, int] | None,
    ended: str | None,
    method: str | None = None,
    ms: float | None = None,
    num_out: int | None = None,
) -> None:
    # As it was sent: percent-encoded, it has neither blanks nor line ends.
    shown = raw_path[:LONGEST_PATH].decode("latin-1")
    address = client[0] if client else None
    took = "" if ms is None else f" {ms} ms"
    message = (
        f"{method or '-'} {route or shown or '-'} {status or '-'}{took}, "
        f"{num_in} bytes in, {num_out or 0} out, {address or '-'}"
    )
    fields = {
        "method": method,
        "status": status,
        "ms": ms,
        "bytes_in": num_in,
        "bytes_out": num_out,
        "client": address,
        "ended": ended,
        "route": route,
    }
    if route != shown:
        fields["path"] = shown or None
        if route is not None:
            message += f" {shown}"
    if ended is not None:
        message += f" {ended}"
    # Not by `logger.log`, which takes longer. A `%` in a path is none of a format: there are no arguments.
    extra = {"fields": fields, "told": True}
    logger.handle(logger.makeRecord(logger.name, level, "", 0, message, (), None, extra=extra))
