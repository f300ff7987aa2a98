"""In front of everything: what browsers may do with the pages, and errors as pages.

A problem document under `/ui` becomes a page where HTML is asked for; that of 401 asks for a token. What
changes something is refused to pages of other origins, with or without authentication.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..auth.foreign_pages import is_of_foreign_page
from ..paths import routed_path
from ..problems import PROBLEM_MEDIA_TYPE, problem_response
from .rendering import HTML, render

#: Nothing but what this service itself serves; images stand in the pages, so that they need no token.
POLICY: Final = (
    "default-src 'none'; base-uri 'none'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "img-src 'self' data:; script-src 'self'; style-src 'self'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
_UI: Final = "/ui"
_FOREIGN: Final = "A page of another origin may not send anything to this page."


class GuardedPages:
    """Middleware: it looks at answers for the pages, and lets all others pass as they are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        path = routed_path(scope)
        if path.startswith(_UI) and path[len(_UI) :][:1] in ("", "/"):
            shows = "text/html" in Headers(scope=scope).get("accept", "")
            send = _Pages(scope, send).send if shows else _with_headers(send)
            if scope["method"] not in ("GET", "HEAD") and is_of_foreign_page(scope["headers"], ()):
                return problem_response(403, "foreign_page", _FOREIGN)(scope, receive, send)
        elif path in ("/", "/docs"):
            send = _with_headers(send)
        return self._app(scope, receive, send)


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_HEADERS)
        await send(message)

    return send_with_headers


class _Pages:
    """Sends an answer on; a problem document, once it is whole, as a page."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = _with_headers(send)
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if Headers(raw=message["headers"]).get("content-type") != PROBLEM_MEDIA_TYPE:
                await self._send(message)
            else:
                self._start = message
            return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if not message.get("more_body"):
            start, self._start = self._start, None
            await self._send_page(start)

    async def _send_page(self, start: Message) -> None:
        problem: dict[str, Any] = json.loads(self._body or b"{}")
        status: int = start["status"]
        template = "sign_in.html" if status == 401 else "problem.html"
        values = {"status": status, "problem": problem}
        page = b"" if self._scope["method"] == "HEAD" else render(template, self._scope, values)
        headers = MutableHeaders(raw=list(start["headers"]))
        headers.update({"Content-Type": HTML, "Cache-Control": "no-store"})
        if page:
            headers["Content-Length"] = str(len(page))
        await self._send({**start, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": page})
