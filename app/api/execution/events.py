"""Answers that go on: server-sent events (the HTML standard, section 9.2), each sent as soon as it is there.

A listener is a task of the event loop. What it is told is looked at now and then in one of a few threads that
all listeners share, so that neither they nor a store that hangs keep other requests waiting.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...domain.limits import KIB
from ...errors import NotAcceptable, Overloaded, ShardsmithError, StorageError
from ...runtime.memory import MemoryPool
from ...runtime.threads import Threads
from ..admission import Load
from ..auth.principal import caller_of
from ..bare_response import BareResponse
from ..body.content_encoding import require_identity
from ..negotiation import parse_accept
from ..patience import in_time, shutting_down
from ..state import Services
from .lanes import LONGEST_IN_QUEUE_S, drop_locals

logger = logging.getLogger(__name__)

MEDIA_TYPE: Final = "text/event-stream"

#: Listeners of a replica. No caller has more than half of them.
_MOST: Final = 64
_LOOKING: Final = 2
#: What a listener may hold: an event that was written and is not taken, and the next one.
_HELD_BYTES: Final = 256 * KIB
#: A look that takes long is repeated less often: it takes at most this share of the time.
_SHARE_OF_TIME: Final = 0.1
#: How long an answer goes on; then the client asks again, under its rights at that time.
_LONGEST_S: Final = 600.0
#: How long a client may take nothing. The server's own deadline is usually shorter.
_STALL_S: Final = 60.0
#: What has not ended so long after the service began to shut down is broken off.
_LAST_S: Final = 1.0
_HEADERS: Final = {
    "Content-Type": MEDIA_TYPE,
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would collect events
    "Vary": "Accept, Accept-Encoding",
}
#: Of a connection that broke off, for clients that come again by themselves: after so many milliseconds.
_RETRY: Final = b"retry: 2000\n"
#: The id of the last event of all: a client that comes again with it is told that there is no more.
_END: Final = "end"


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look has seen.

    Attributes:
        value: JSON.
        is_last: nothing will change any more.
    """

    value: object
    is_last: bool = False


#: Blocks, in a thread.
Look = Callable[[Request, Services], Sight]


def asks_for_events(headers: Headers) -> bool:
    """Whether Accept prefers events to JSON; `*/*` does not.

    Raises:
        MalformedInput: it cannot be read.
    """
    qualities = dict(parse_accept(",".join(headers.getlist("accept"))))
    return qualities.get(MEDIA_TYPE, 0.0) > qualities.get("application/json", 0.0)


def follow(look: Look) -> Callable[[Request], Awaitable[Response]]:
    """What a route gives to answer with events: one for each change of what `look` sees."""

    async def handle(request: Request) -> Response:
        listeners: Listeners = request.app.state.listeners
        return await listeners.answer(request, look)

    return handle


class Listeners:
    """Those who are sent events. To be used on the event loop.

    Args:
        services: what is looked at.
        memory: what all requests may hold.
        load: listeners do not count as requests under way: they rest.
        every_s: between two looks, at least.
        silence_s: after so long without an event a comment is sent, so that no proxy takes the connection for
            dead.
    """

    def __init__(
        self,
        services: Services,
        memory: MemoryPool,
        load: Load,
        *,
        every_s: float = 1.0,
        silence_s: float = 15.0,
    ) -> None:
        self._services = services
        self._memory = memory
        self._load = load
        self.every_s = every_s
        self.silence_s = silence_s
        self._threads = Threads(_LOOKING, thread_name_prefix="look")
        self._callers: Counter[str] = Counter()
        self._sending: set[asyncio.Task[None]] = set()
        self._leaving = asyncio.Event()

    @property
    def num_listening(self) -> int:
        """How many there are."""
        return self._callers.total()

    def leave(self) -> None:
        """End all answers soon, and begin none: the service shuts down."""
        self._leaving.set()
        asyncio.get_running_loop().call_later(_LAST_S, self._break_off)

    async def leave_within(self, seconds: float) -> bool:
        """Wait so long, or until the service shuts down; whether it does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        return self._leaving.is_set()

    @contextmanager
    def resting(self, sending: asyncio.Task[None]) -> Iterator[None]:
        """As long as events are sent: no request is under way, and what hangs at the end is broken off."""
        self._sending.add(sending)
        self._load.under_way -= 1
        try:
            yield
        finally:
            self._load.under_way += 1
            self._sending.discard(sending)

    def _break_off(self) -> None:
        for task in self._sending:
            task.cancel()

    def close(self) -> None:
        """Wait for the looks under way."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def answer(self, request: Request, look: Look) -> Response:
        """An answer that has begun once a first look has succeeded.

        Raises:
            NotAcceptable: the client takes only what is encoded, or speaks HTTP/1.0, in which no answer ends.
            Overloaded: too many listen, or the service shuts down.
            ShardsmithError: the first look failed.
        """
        require_identity(request.headers)
        if request.scope.get("http_version") == "1.0":
            raise NotAcceptable("Events need HTTP/1.1 or later. A proxy in between may have to be told so.")
        if request.headers.get("last-event-id") == _END:
            return Response(None, 204, {"Vary": _HEADERS["Vary"]})
        if self._leaving.is_set():
            raise shutting_down()
        caller = caller_of(request.scope)
        if self.num_listening >= _MOST or self._callers[caller] >= _MOST // 2:
            raise Overloaded("Too many listen for events. Try again, or ask for JSON.", short="listeners")
        share = self._memory.share()
        self._callers[caller] += 1

        def end() -> None:
            self._callers[caller] -= 1
            share.end()

        try:
            share.reserve(_HELD_BYTES)
            async with asyncio.timeout(LONGEST_IN_QUEUE_S):
                first = await self.look(request, look)
        except TimeoutError:
            end()
            raise Overloaded(
                "The service is too busy; nothing was done. Try again.", short="threads"
            ) from None
        except BaseException:
            end()
            raise
        if request.method == "HEAD":
            end()
            return BareResponse(200, _HEADERS)
        return _EventResponse(self, request, look, first, end)

    async def look(self, request: Request, look: Look) -> Sight:
        """Look in a thread.

        Raises:
            ShardsmithError: whatever the look raises.
        """
        try:
            return await asyncio.wrap_future(self._threads.submit(look, request, self._services))
        except ShardsmithError as error:
            drop_locals(error)
            raise


def _serialize(sight: Sight) -> bytes:
    data = json.dumps(sight.value, ensure_ascii=False, allow_nan=False)  # which holds no line feed
    end = f"id: {_END}\n" if sight.is_last else ""
    return f"{end}data: {data}\n\n".encode()


async def _send_piece(send: Send, piece: bytes) -> None:
    message = {"type": "http.response.body", "body": piece, "more_body": True}
    await in_time(lambda: send(message), _STALL_S)


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _EventResponse(BareResponse):
    """Sends events until there are no more."""

    def __init__(
        self, listeners: Listeners, request: Request, look: Look, first: Sight, on_end: Callable[[], None]
    ) -> None:
        super().__init__(200, _HEADERS)
        self._listeners = listeners
        self._see = partial(listeners.look, request, look)
        self._first = first
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        try:
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            sending = asyncio.create_task(self._send_events(send))
            gone = asyncio.create_task(_await_disconnect(receive))
            with self._listeners.resting(sending):
                try:
                    await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    gone.cancel()
                    sending.cancel()
                await sending
        except asyncio.CancelledError:
            logger.info("events broken off")
        except TimeoutError:
            # Returning before the last chunk makes the server close the connection.
            logger.warning("events broken off: the client took nothing for %g s", _STALL_S)
        finally:
            self._on_end()

    async def _send_events(self, send: Send) -> None:
        """Send the first event, and each other one that follows, until the last; or for some minutes.

        Raises:
            TimeoutError: the client takes nothing.
        """
        listeners, sight = self._listeners, self._first
        loop = asyncio.get_running_loop()
        began = spoke = loop.time()
        text, pause = _serialize(sight), listeners.every_s
        await _send_piece(send, _RETRY + text)
        while not sight.is_last and loop.time() - began < _LONGEST_S:
            if await listeners.leave_within(pause):
                break
            looked = loop.time()
            try:
                sight = await self._see()
            except (Overloaded, StorageError):
                pass  # it may see more the next time
            except ShardsmithError as error:
                logger.info("events ended: %s: %s", error.code, error.detail)
                break  # whoever comes again is told
            pause = max(listeners.every_s, (loop.time() - looked) / _SHARE_OF_TIME)
            if (new := _serialize(sight)) != text:
                text, spoke = new, loop.time()
                await _send_piece(send, text)
            elif loop.time() - spoke >= listeners.silence_s:
                spoke = loop.time()
                await _send_piece(send, b":\n\n")
        await send({"type": "http.response.body", "body": b"", "more_body": False})
