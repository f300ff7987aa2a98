"""One request and its answer: what the application sends, as HTTP/1.1.

The head waits for the first piece of the body, as the ASGI specification asks for, and both leave in one
write, where uvicorn takes two: that pays for all that is looked at in a small request. And an application
that fails between the two is answered 500.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ...domain.limits import KIB
from ...logs import REQUEST_ID
from ..patience import shutting_down
from .access_log import REQUEST_ID_HEADER, RequestLog
from .refusals import NO_SNIFFING, Refused, defect, problem_parts
from .server_span import begin_span, end_span

if TYPE_CHECKING:
    import logging

    from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent

    from .flow import Flow

#: What no header holds, neither in its name nor in its value: control characters, but for the tab.
_CONTROLS: Final = bytes([*range(9), *range(10, 32), 127])
_LINE_END: Final = b"\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"connection: close\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_EVENTS: Final = b"text/event-stream"
#: A piece up to this size is copied behind its head, so that one buffer is written; that takes less time.
_JOINED_BYTES: Final = 16 * KIB


class Cycle(RequestResponseCycle):
    """What uvicorn's protocol takes for its own, of which nothing is left but the type.

    The closing of the connection is left to the protocol, which lingers.
    """

    flow: Flow

    # uvicorn's own is not called: it would set once more what is set here.
    def __init__(
        self,
        scope: Any,
        transport: asyncio.Transport,
        flow: Flow,
        logger: logging.Logger,
        default_headers: list[tuple[bytes, bytes]],
        on_response: Callable[[], None],
        *,
        access_log: bool,
        expects_continue: bool,
        keep_alive: bool,
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.logger = logger
        self.default_headers = default_headers
        self.on_response = on_response
        self.access_log = access_log
        self.waiting_for_100_continue = expects_continue
        self.keep_alive = keep_alive
        self.log = RequestLog(scope)
        #: There is something new for `receive`.
        self.message_event = asyncio.Event()
        self.disconnected = False
        self.more_body = True
        self._arrived: list[bytes] = []
        self._num_arrived = 0
        #: The head of the answer, which leaves with the first piece of its body.
        self._head = b""
        self.response_started = False
        self.response_complete = False
        self.chunked_encoding: bool | None = None
        self.expected_content_length = 0
        #: The connection ends with this answer.
        self.last = False
        #: Its answer are events, which have no end to wait for: a client that has closed its side is gone.
        self.goes_on = False

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Have the application answer, and see to it if it does not."""
        REQUEST_ID.set(self.log.id)  # of this task, and of what it starts
        span = begin_span(self.scope, self.log)
        try:
            await self._run(app)
        except BaseException as error:  # whatever it is, the client is answered
            self.logger.error("Exception in ASGI application\n", exc_info=error)
            await self._give_up(defect())
        finally:
            self.on_response = _nothing
            if not self.response_complete and self.log.ended is None:
                self.log.ended = "client_closed" if self.disconnected else "broken_off"
            self.log.write(whole_body=not self.more_body, every=self.access_log)
            if span is not None:
                end_span(span, self.log)
        self.flow.closing()

    async def _run(self, app: ASGI3Application) -> None:
        cancelled = False
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            cancelled = True
        if self.response_complete or self.disconnected:
            return
        # The server cancels what is left at the end of a shutdown, and the application may return then.
        task = asyncio.current_task()
        if cancelled or (task is not None and task.cancelling()):
            given_up = shutting_down()
            await self._give_up(Refused(503, given_up.code, given_up.detail))
        else:
            self.logger.error("ASGI callable returned without completing response.")
            await self._give_up(defect())

    async def _give_up(self, refused: Refused) -> None:
        """Answer so; or break the connection off, where an answer has begun."""
        if self.response_started:
            self.transport.close()
        else:
            await self._answer(refused)

    def add_body(self, piece: bytes) -> int:
        """Keep a piece of the content until the application asks for it; how many bytes are kept."""
        self._arrived.append(piece)
        self._num_arrived += len(piece)
        self.log.num_in += len(piece)
        self.message_event.set()
        return self._num_arrived

    async def receive(self) -> ASGIReceiveEvent:
        """What has arrived; see the ASGI specification. A single piece is not copied, by uvicorn twice."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(_CONTINUE)
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body = b"".join(self._arrived)
        self._arrived.clear()
        self._num_arrived = 0
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: ASGISendEvent) -> None:
        """Send a part of the answer; see the ASGI specification.

        Raises:
            RuntimeError: the application does not keep to it.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.body" and self._head and not self.response_complete:
            self._send_body(message.get("body", b""), message.get("more_body", False))
        elif message["type"] == "http.response.start" and not self.response_started:
            self._head = self._serialized_head(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"{message['type']} has no place here in an answer")

    def _serialized_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        self.log.status = status
        if self.waiting_for_100_continue:
            # Answered without asking for the body: whether it comes nevertheless cannot be known.
            self.keep_alive = self.waiting_for_100_continue = False
        self.chunked_encoding = self.scope["method"] != "HEAD" and status not in (204, 304)
        self.expected_content_length = 0
        parts = [STATUS_LINE[status]]
        for name, value in (*self.default_headers, NO_SNIFFING):
            parts += (name, b": ", value, _LINE_END)
        parts += (REQUEST_ID_HEADER, b": ", self.log.id.encode("ascii"), _LINE_END)
        close = chunked = False
        for name, value in headers:
            parts += (name, b": ", value, _LINE_END)
            known = name.lower()
            if known == b"content-length":
                self.chunked_encoding, self.expected_content_length = False, int(value)
            elif known == b"transfer-encoding":
                chunked = True
            elif known == b"connection":
                close = b"close" in value.lower()
            elif known == b"content-type":
                self.goes_on = value == _EVENTS
        num_lines = len(parts) // 4 + 1
        if close:
            self.keep_alive = False
        elif not self.keep_alive:
            parts.append(_CLOSE)
            num_lines += 1
        if self.chunked_encoding and not chunked:
            parts.append(_CHUNKED)
            num_lines += 1
        head = b"".join(parts)
        if len(head) - len(head.translate(None, _CONTROLS)) != len(_LINE_END) * num_lines:
            raise RuntimeError("a header of the answer holds control characters")
        return head + _LINE_END

    def _send_body(self, body: bytes, more_body: bool) -> None:
        pieces = [] if self.response_started else [self._head]
        self.response_started = True
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
        elif self.chunked_encoding:
            self.log.num_out += len(body)
            if body:
                pieces += [b"%x\r\n" % len(body), body, _LINE_END]
            if not more_body:
                pieces.append(b"0\r\n\r\n")
        else:
            self.log.num_out += len(body)
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("the answer is longer than its Content-Length")
            pieces.append(body)
        if len(body) > _JOINED_BYTES:
            self.transport.writelines(pieces)
        else:
            self.transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if not more_body:
            if self.expected_content_length:
                raise RuntimeError("the answer is shorter than its Content-Length")
            self.response_complete = True
            self.message_event.set()
            self.last = not self.keep_alive
            self.on_response()
        elif self.goes_on and self.flow.ended:
            self.disconnect()
            self.transport.close()

    async def _answer(self, refused: Refused) -> None:
        headers, body = problem_parts(refused)
        await self.send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    def cut(self, refused: Refused) -> None:
        """End it: the connection itself answers, unless an answer has begun."""
        if not self.response_started:
            self.log.status = refused.status
        self.log.ended = refused.code
        self.disconnect()

    def disconnect(self) -> None:
        """Tell the application that the client is gone; what it still sends goes nowhere."""
        if not self.response_complete:
            self.disconnected = True
            self.waiting_for_100_continue = False
        self.message_event.set()


def _nothing() -> None:
    """The connection is not told again."""
