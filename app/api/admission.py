"""Who is let in: before anything is looked at, requests beyond what the service can carry are refused.

A refusal costs next to nothing, so that what was let in is served at full speed. Probes always pass: a busy
service is no dead one, and to restart it would only move its load to the others.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..garbage import Garbage
from ..telemetry.metrics import EVENT_LOOP_DELAY, HTTP_PROBLEMS
from .bare_response import BareResponse
from .http1.connections import PROBES
from .problems import PROBLEM_MEDIA_TYPE, problem, retry_after

#: Made once: a refusal shall cost next to nothing.
_TOO_BUSY: Final = json.dumps(
    problem(503, "overloaded", "The service is too busy; nothing was done. Try again.")
).encode()

#: The delay of the event loop is looked at so often, and judged by the least of so many looks: a delay that
#: stands, not a burst (CoDel, RFC 8289: the minimum over an interval of 100 ms).
_LOOK_EVERY_S: Final = 0.01
_LOOKS: Final = 10
#: Computing threads pause for a loop that is later than this.
_LATE_S: Final = 0.01
#: Above this delay ever fewer requests are let in, below it more again.
_TARGET_S: Final = 0.05
#: Steps of the share that is let in, down and up (WeChat's DAGOR, SoCC 2018, section 4.2.3).
_DOWN: Final = 0.05
_UP: Final = 0.01
#: As long as no more are under way, load is not what delays the loop.
_ALWAYS_LET_IN: Final = 32


class Load:
    """What the event loop has to do: how many requests are under way, and how late it comes to each step."""

    def __init__(self) -> None:
        self._looks = 0
        self._least = float("inf")
        self._garbage = Garbage()
        self._due = float("inf")
        #: Requests under way, but for probes.
        self.under_way = 0
        #: The share of requests to let in, from 0 to 1.
        self.let_in = 1.0

    def start(self) -> None:
        """Look at the running loop from now on."""
        self._look_later(asyncio.get_running_loop())

    @property
    def is_late(self) -> bool:
        """Whether the loop should have come to its next step by now; to be asked in any thread."""
        return time.monotonic() - self._due > _LATE_S

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = time.monotonic() + _LOOK_EVERY_S

        def look() -> None:
            self.observe(time.monotonic() - self._due)
            self._garbage.collect(idle=not self.under_way)
            self._look_later(loop)

        loop.call_later(_LOOK_EVERY_S, look)

    def observe(self, delay_s: float) -> None:
        """One look: so late was the loop."""
        EVENT_LOOP_DELAY.observe(delay_s)
        self._looks += 1
        self._least = min(self._least, delay_s)
        if self._looks < _LOOKS:
            return
        step = -_DOWN if self._least > _TARGET_S else _UP
        self.let_in = min(1.0, max(_UP, self.let_in + step))
        self._looks, self._least = 0, float("inf")


class Admission:
    """In front of authentication and of all that is behind it.

    Args:
        app: what is behind it.
        max_requests: how many are under way at a time.
        load: what is under way, and how the event loop bears it.
    """

    def __init__(self, app: ASGIApp, *, max_requests: int, load: Load) -> None:
        self._app = app
        self._max_requests = max_requests
        self._load = load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        short = self._what_is_short()
        if short is not None:
            await refusal(scope["method"], short)(scope, receive, send)
            return
        self._load.under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._load.under_way -= 1

    def _what_is_short(self) -> str | None:
        """What keeps a request out; None if it is let in."""
        load = self._load
        if load.under_way >= self._max_requests:
            return "requests"
        late = load.let_in < 1.0 and load.under_way >= _ALWAYS_LET_IN
        return "event_loop" if late and random.random() > load.let_in else None  # noqa: S311


def refusal(method: str, short: str) -> Response:
    """The answer to a request for which there is no room: come again. It is counted.

    Args:
        method: of the request.
        short: what there is too little of.
    """
    HTTP_PROBLEMS.labels("overloaded", short).inc()
    headers = {
        "content-type": PROBLEM_MEDIA_TYPE,
        "content-length": str(len(_TOO_BUSY)),
        "retry-after": retry_after(),
        "vary": "Accept",
    }
    return BareResponse(503, headers, b"" if method == "HEAD" else _TOO_BUSY)
