"""The connection: uvicorn's protocol for httptools, with limits, deadlines and strict parsing.

What uvicorn 0.54 with httptools 0.9 does not do, and this does: bound the head; close connections on which no
request, no body or no reading of the answer goes on; refuse what has two meanings; keep to itself what is
pipelined until its turn (uvicorn queues all of it, and reads on); leave trailer fields out of the headers of a
running request; take the body of a request that offers an upgrade (`Upgrade: h2c`, which Java's HttpClient
sends: uvicorn loses the body and parses it as the next request); answer clients that have closed their side;
linger before it closes, so that a client that still writes can read why.

One timer a connection: it is set anew only where it would ring too late, so that a request that arrives in one
piece costs no timer.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import TYPE_CHECKING, Any, ClassVar, Final

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .allowance import NEVER, Allowance
from .connections import PROBES, Connections
from .cycle import Cycle
from .flow import Flow, LazyTimer, bytes_not_taken, reset
from .head import CHUNKED, check_head, check_size, too_large
from .limits import ConnectionLimits
from .refusals import Refused, defect, malformed, serialize_refusal, timed_out

if TYPE_CHECKING:
    from uvicorn._types import HTTPScope
    from uvicorn.config import Config
    from uvicorn.server import ServerState

__all__ = ["HardenedProtocol", "hardened_protocol"]

#: What of a message the parser is in.
_BETWEEN: Final = 0
_HEAD: Final = 1
_BODY: Final = 2

#: How often a client that does not take its answer is looked at; Kestrel's heartbeat is 1 s.
_LOOK_S: Final = 1.0
#: How long a connection that is only to be closed may take for it once the service is stopping.
_STOPPING_S: Final = 1.0
#: What every request has once, in its first line.
_VERSION: Final = b" HTTP/"
_HEAD_END: Final = b"\r\n\r\n"
#: Requests that came in one piece with the end of a chunked body before them; all else waits unparsed.
_MOST_QUEUED: Final = 64
#: How long after a deadline a client is given up, unless it turns out to have kept it.
_SECOND_LOOK_S: Final = 0.05
#: What the event loop's clock is short of a timer that rings.
_CLOCK_S: Final = 0.002


class HardenedProtocol(HttpToolsProtocol):
    """One connection, under the default limits; `hardened_protocol` makes one with others."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    others: ClassVar[Connections] = Connections(ConnectionLimits().max_connections)

    flow: Flow
    cycle: Cycle

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.url = b""
        self._timer = LazyTimer(self.loop, self._ring)
        self._admitted = True
        self.idle_since: float | None = None
        # What arrives.
        self._phase = _BETWEEN
        self._head_bytes = 0
        #: What the body still lacks, or CHUNKED; in the piece at hand, how much content and how many chunks.
        self._length = 0
        self._content = 0
        self._chunks = 0
        self._overhead = 0
        self._begun = False
        self._upgrading = False
        #: What came before its turn.
        self._held = b""
        self._held_from = 0
        self._ended = False
        # What is answered.
        self._active: Cycle | None = None
        self._last_words: Refused | None = None
        self._lingering = False
        # Until when; by the clock of the event loop.
        self._due = NEVER
        self._linger_until = NEVER
        self._overdue = False
        self._body = Allowance(self.limits.min_rate, self.limits.stall_s)
        self._taking = Allowance(self.limits.min_rate, self.limits.stall_s)
        self._not_taken = 0

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        self.flow = Flow(transport, self.loop, self._body, self._set_timer)
        now = self.loop.time()
        self.idle_since = now
        self._admitted = self.others.admit(self, now)
        self._due = now + self.limits.header_timeout_s
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._timer.cancel()
        self.others.forget(self)
        if self._active is not None:
            self._active.disconnect()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client sends no more: true keeps our side open, for answers to what it has sent."""
        if self._phase != _BETWEEN or not self._owes() or self.scheme == "https":
            return None
        self._ended = True
        return True

    def shutdown(self) -> None:
        """Called by the server when it stops: what has begun is answered."""
        if self._lingering:
            self._due = min(self._due, self.loop.time() + _STOPPING_S)
            self._set_timer()
        else:
            super().shutdown()

    def evict(self) -> None:
        """Close at once: another connection is more worth."""
        self.transport.abort()

    def _owes(self) -> bool:
        return self._active is not None and not self._active.response_complete

    # What arrives.

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._lingering:
            self._linger_on()
        elif self._held:
            self._held = self._held[self._held_from :] + data
            self._held_from = 0
        else:
            if (
                self._phase
                or len(data) > self.limits.max_header_bytes
                or data.count(_VERSION) > 1
                or self._owes()
            ):
                self._take(data, 0)
            else:  # one request, and most often all of it
                self._feed(data)
            if self._phase:
                self._wait_for_more(len(data))

    def _take(self, data: bytes, position: int) -> None:
        """Parse `data`, up to where the next request begins before this one is answered."""
        end = len(data)
        while position < end and not self._lingering and not self.transport.is_closing():
            if self._phase == _BODY:
                upto = end if self._length == CHUNKED else min(end, position + self._length)
            elif self._owes():
                self._hold(data, position)
                return
            else:
                found = data.find(_HEAD_END, position)
                upto = end if found < 0 else found + len(_HEAD_END)
                upto = min(upto, position + self.limits.max_header_bytes)
            self._feed(data if upto - position == end else memoryview(data)[position:upto])
            position = upto

    def _hold(self, data: bytes, position: int) -> None:
        self._held, self._held_from = data, position
        self.flow.pause_reading()
        self.flow.held = True

    def _release(self) -> None:
        data, self._held = self._held, b""
        self.flow.held = False
        self._take(data, self._held_from)
        if self._phase:
            self._wait_for_more(0)

    def _feed(self, piece: bytes | memoryview) -> None:
        in_body = self._phase == _BODY
        if in_body:
            self._content = self._chunks = 0
            self._begun = False
        else:
            self._head_bytes += len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(piece, upgrade.args[0])
        except httptools.HttpParserError as error:
            self._refuse(self._reason(error))
        else:
            if in_body:
                self._check_body_piece(len(piece))
            elif self._head_bytes > self.limits.max_header_bytes:
                self._refuse(too_large(self.url, self.limits))

    def _check_body_piece(self, num_bytes: int) -> None:
        if self._begun:  # the next request has come with it, maybe not all of its head
            try:
                check_size(self.url, self.headers, self.limits)
            except Refused as refused:
                self._refuse(refused)
            return
        self._overhead = max(0, self._overhead + num_bytes - 3 * self._content - 16 * self._chunks)
        if self._overhead > self.limits.max_chunk_overhead:
            self._refuse(Refused(400, "invalid_chunk", "Too much in the chunked body is no content."))

    def _decline_upgrade(self, piece: bytes | memoryview, offset: int) -> None:
        """Begin the request again as if it offered no upgrade, which RFC 9110 (7.8) leaves to a server."""
        line = b"%b %b HTTP/%b\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode("ascii"),
        )
        fields = [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        self._upgrading = False
        self._set_parser()
        self._feed(b"".join([line, *fields, b"\r\n"]))
        if offset < len(piece) and not self._lingering:
            self._feed(piece[offset:])

    def _set_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _reason(self, error: httptools.HttpParserError) -> Refused:
        cause = error.__context__
        if isinstance(cause, Refused):
            return cause
        if isinstance(cause, httptools.HttpParserInvalidURLError):
            return Refused(400, "invalid_target", "The request target is malformed.")
        if isinstance(error, httptools.HttpParserCallbackError):
            self.logger.error("a defect in parsing a request", exc_info=error)
            return defect()
        return malformed(str(error))

    # Called by the parser.

    def on_message_begin(self) -> None:
        """A request begins."""
        self.url = b""
        self.headers = []
        self._phase = _HEAD
        self._begun = True
        self._due = NEVER

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field; those behind a body are left out, since they are no headers (RFC 9110, section 6.5)."""
        if self._phase == _HEAD:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if self.parser.should_upgrade():
            if method == b"CONNECT":
                raise Refused(400, "invalid_method", "This is no proxy: CONNECT is not known here.")
            self._upgrading = True
            return
        length, expects_continue = check_head(self.url, version, self.headers)
        limits = self.limits
        if (
            self._head_bytes > limits.max_header_bytes  # with what may have come behind it
            or self._length == CHUNKED  # of the request before, in one piece with which it may have come
            or len(self.headers) > limits.max_headers
            or len(self.url) > limits.max_target_bytes
        ):
            check_size(self.url, self.headers, limits)
        self.scope = self._make_scope(method.decode("ascii"), version)
        if not self._admitted and self.scope["path"] not in PROBES:
            raise Refused(503, "too_many_connections", "Too many connections are open. Try again.")
        if len(self.pipeline) >= _MOST_QUEUED:
            raise Refused(400, "too_many_requests", f"More than {_MOST_QUEUED} requests before an answer.")
        keep_alive = version == "1.1" and self.parser.should_keep_alive() and self._admitted
        owes = self._owes()
        self.cycle = cycle = self._make_cycle(keep_alive, expects_continue)
        self._phase, self._length, self._head_bytes, self._overhead = _BODY, length, 0, 0
        self._due = NEVER
        self.idle_since = None
        if owes:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))
        else:
            self._start(cycle)

    def _make_scope(self, method: str, version: str) -> HTTPScope:
        target = httptools.parse_url(self.url)
        raw_path: bytes = target.path
        path = raw_path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "method": method,
            "scheme": self.scheme or "http",
            "server": self.server,
            "client": self.client,
            "root_path": self.root_path,
            "path": self.root_path + (urllib.parse.unquote(path) if "%" in path else path),
            "raw_path": self.root_path.encode("ascii") + raw_path,
            "query_string": target.query or b"",
            "headers": self.headers,
            "state": self.app_state.copy(),
        }

    def _make_cycle(self, keep_alive: bool, expects_continue: bool) -> Cycle:
        return Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=expects_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )

    def _start(self, cycle: Cycle) -> None:
        self._active = cycle
        self._start_asgi_task(cycle, self.app)

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._chunks += 1

    def on_body(self, body: bytes) -> None:
        """A piece of the content."""
        self._content += len(body)
        if self._length != CHUNKED:
            self._length -= len(body)
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.waiting_for_100_continue = False
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._upgrading:
            return
        self._phase = _BETWEEN
        self._body.stop()
        if self.cycle.response_complete:
            self._rest()
        else:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    # What is answered.

    def on_response_complete(self) -> None:
        """Called by the request that was answered: what comes next."""
        self.server_state.total_requests += 1
        cycle = self._active
        if self.transport.is_closing() or cycle is None:
            return
        if self.transport.get_write_buffer_size():
            self._watch_taking()
        if cycle.last:
            self._end()
        elif self._phase or self._held or self._ended or self.pipeline or self._last_words:
            self._go_on()
        else:
            self._rest()
            if self.flow.read_paused:
                self.flow.resume_reading()

    def _go_on(self) -> None:
        """What has come already, or is still coming, takes its turn."""
        if self.pipeline:
            following, _ = self.pipeline.pop()
            assert isinstance(following, Cycle)  # noqa: S101  # ours are the only ones; this is for the type
            self._start(following)
        elif self._last_words is not None:
            self._part(self._serialized(self._last_words))
        elif self._phase == _BODY:
            self._drain()
        elif self._held:
            self._release()
        if self._phase == _BETWEEN and not self._owes() and not self._lingering:
            if self._ended:
                self.transport.close()
                return
            self._rest()
        self.flow.resume_reading()

    def _rest(self) -> None:
        """Wait for the next request."""
        now = self.loop.time()
        self._due = now + self.limits.keep_alive_s
        self.idle_since = now
        self._timer.ring_by(self._due)

    def _drain(self) -> None:
        """Let the rest of a body in, which nobody wants, so that the client comes to read the answer."""
        now = self.loop.time()
        self._body.stop()
        self._linger_until = now + self.limits.linger_s
        self._linger_on()
        self.flow.resume_reading()

    def _end(self) -> None:
        """Close after the last answer; while the client still sends, not before it can have read that."""
        if self._phase == _BODY or self._held:
            self._part(b"")
        else:
            self.transport.close()

    def _part(self, last: bytes) -> None:
        """Say `last`, close our side, and drop what still comes, for a while (RFC 9112, section 9.6)."""
        self.transport.write(last)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._lingering = True
        self.pipeline.clear()
        self._held, self.flow.held = b"", False
        self._body.stop()
        self._linger_until = self.loop.time() + self.limits.linger_s
        self._linger_on()
        if self.transport.get_write_buffer_size():
            self._watch_taking()
        self.flow.resume_reading()

    def _linger_on(self) -> None:
        self._due = min(self.loop.time() + self.limits.linger_stall_s, self._linger_until)
        self._set_timer()

    def _refuse(self, refused: Refused) -> None:
        """Answer what is no request, in its turn, and take nothing more."""
        self.logger.info("refused: %d %s", refused.status, refused.code)
        if self._phase == _BODY and self.cycle is not self._active:
            self.pipeline.popleft()  # the newest, whose body this was
            self._last_words = refused
            self._hold(b"", 0)
        elif self._phase == _BODY and self._owes():
            started = self.cycle.response_started
            self.cycle.disconnect()
            self._part(b"" if started else self._serialized(refused))
        elif self._owes():
            self._last_words = refused
            self._hold(b"", 0)
        else:
            self._part(b"" if self._phase == _BODY else self._serialized(refused))

    def _serialized(self, refused: Refused) -> bytes:
        return serialize_refusal(refused, self.server_state.default_headers)

    def pause_writing(self) -> None:
        """Called by the transport: more is written than the client takes."""
        super().pause_writing()
        self._watch_taking()

    def resume_writing(self) -> None:
        """Called by the transport: the client has taken most of it."""
        super().resume_writing()
        self._taking.stop()

    # Deadlines.

    def _wait_for_more(self, num_bytes: int) -> None:
        """A request has begun and is not whole."""
        now = self.loop.time()
        if self._phase == _HEAD:
            if self._due == NEVER:
                self._due = now + self.limits.header_timeout_s
        elif self.cycle.response_complete:
            self._linger_on()
        elif self._body.idle:
            self._body.start(now, self.limits.body_grace_s)
            if self.cycle.waiting_for_100_continue or self.flow.read_paused:
                self._body.freeze(now)
        else:
            self._body.earn(num_bytes, now)
        self._set_timer()

    def _watch_taking(self) -> None:
        """The client has yet to take what was written."""
        if self._taking.idle:
            self._taking.start(self.loop.time(), self.limits.stall_s)
            self._not_taken = bytes_not_taken(self.transport)
            self._set_timer()

    def _set_timer(self) -> None:
        due = min(self._due, self._body.due)
        if not self._taking.idle:
            due = min(due, self._taking.due, self.loop.time() + _LOOK_S)
        self._timer.ring_by(due)

    def _ring(self) -> None:
        now = self.loop.time() + _CLOCK_S
        if not self._taking.idle and not self._still_taken(now):
            self.logger.info("a client took too little of its answer")
            reset(self.transport)
            return
        if self.transport.is_closing():
            self._due = NEVER
            self._body.stop()
        elif now < min(self._due, self._body.due):
            self._overdue = False
        elif self._overdue:
            self._give_up()
        else:
            # Where we were busy for long, what the client has sent meanwhile is only read now.
            self._overdue = True
            self._timer.ring_by(now + _SECOND_LOOK_S)
            return
        self._set_timer()

    def _still_taken(self, now: float) -> bool:
        if not self.transport.get_write_buffer_size():
            self._taking.stop()
            return True
        left = bytes_not_taken(self.transport)
        self._taking.earn(max(0, self._not_taken - left), now)
        self._not_taken = left
        return now < self._taking.due

    def _give_up(self) -> None:
        """The client was too slow."""
        limits = self.limits
        self._due, self._overdue = NEVER, False
        if self._lingering or self._phase == _BETWEEN or (self._phase == _BODY and not self._owes()):
            self.transport.close()
        elif self._phase == _HEAD:
            self._refuse(timed_out("The head of the request", limits.header_timeout_s))
        else:
            self._refuse(
                Refused(408, "request_timeout", f"The body came at less than {limits.min_rate} bytes/s.")
            )


def hardened_protocol(limits: ConnectionLimits) -> type[HardenedProtocol]:
    """The protocol with these limits, which all its connections share."""
    members = {"limits": limits, "others": Connections(limits.max_connections)}
    return type("HardenedProtocol", (HardenedProtocol,), members)
