"""What arrives on a connection: bytes to requests, each in its turn, or to a refusal.

What uvicorn 0.54 with httptools 0.9 does not do, and this does: bound the head; refuse what has two meanings;
keep what is pipelined unparsed until its turn (uvicorn makes a request of each at once, and reads on); keep
trailer fields apart from the headers of a running request; take the body of a request that offers an upgrade
(`Upgrade: h2c`, which Java's HttpClient sends: uvicorn parses its body as the next request).
"""

from __future__ import annotations

import asyncio
import urllib.parse
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .connections import PROBES, Connections
from .cycle import Cycle
from .deadlines import Deadlines
from .flow import Flow
from .head import CHUNKED, check_head, check_size, too_large
from .limits import BODY_DEADLINES, TRAILERS, ConnectionLimits
from .refusals import MALFORMED_TARGET, Refused, defect, malformed

if TYPE_CHECKING:
    from uvicorn._types import HTTPScope
    from uvicorn.config import Config
    from uvicorn.server import ServerState

#: What of a message the parser is in.
BETWEEN: Final = 0
HEAD: Final = 1
BODY: Final = 2

_HEAD_END: Final = b"\r\n\r\n"
#: Requests that came in one piece with the end of a chunked body before them; all else waits unparsed.
_MOST_QUEUED: Final = 64


class ReceivingProtocol(HttpToolsProtocol, ABC):
    """The half of a connection that takes in requests and starts them; the other half answers."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    others: ClassVar[Connections] = Connections(limits.max_connections)

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
        self.headers = []
        self._deadlines = Deadlines(self.loop, self.limits, self._on_overdue, self._on_not_taking)
        #: Whether it counts among the connections that there may be; beside them, it has probes answered.
        self._admitted = True
        self.idle_since: float | None = None
        #: The request that is being answered, or was the last to be.
        self._active: Cycle | None = None
        #: To be said after the answers that are owed; nothing more is parsed.
        self._last_words: bytes | None = None
        #: All is said, and what still comes is dropped.
        self._lingering = False
        self._phase = BETWEEN
        self._head_bytes = 0
        #: What the body still lacks, or CHUNKED; of the piece at hand, content, chunks, and further requests.
        self._length = 0
        self._content = 0
        self._chunks = 0
        self._begun = False
        #: What of a chunked body was neither content nor the usual frame of it.
        self._overhead = 0
        self._upgrading = False
        #: What came before its turn, and how much of that was parsed.
        self._held = b""
        self._held_from = 0

    @abstractmethod
    def _refuse(self, refused: Refused) -> None:
        """Answer what is no request, in its turn, and take nothing more."""

    @abstractmethod
    def _rest(self) -> None:
        """Wait for the next request."""

    @abstractmethod
    def _on_overdue(self) -> None:
        """The client has not sent in time what it had to."""

    @abstractmethod
    def _on_not_taking(self) -> None:
        """The client has taken too little of its answer, and is to be cut."""

    def _owes(self) -> bool:
        """Whether an answer is not complete."""
        return self._active is not None and not self._active.response_complete

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._lingering:
            self._deadlines.linger_on()
        elif self._last_words is not None:
            pass
        elif self._held:
            self._held = self._held[self._held_from :] + data
            self._held_from = 0
        else:
            if (
                self._phase == BETWEEN
                and len(data) <= self.limits.max_header_bytes
                and _is_one(data)
                and not self._owes()
            ):
                self._feed(data)  # one request, and most often all of it
            else:
                self._take(data, 0)
            if self._phase:
                self._wait_for_more(len(data))

    def _wait_for_more(self, num_bytes: int) -> None:
        """A request has begun and is not whole."""
        if self._is_over():
            return
        if self._phase == HEAD:
            if not self._deadlines.running:
                self._deadlines.wait(self.limits.header_timeout_s)
        elif self.cycle.response_complete:
            self._deadlines.linger_on()
        else:
            is_read = not self.cycle.waiting_for_100_continue and not self.flow.read_paused
            self._deadlines.body_came(num_bytes, is_read=is_read)

    def _take(self, data: bytes, position: int) -> None:
        """Parse `data`, up to where the next request begins before this one is answered."""
        end = len(data)
        while position < end and not self._is_over():
            if self._phase == BODY and self._length != CHUNKED:
                position = self._take_content(data, position)
                continue
            if self._phase == BODY:
                upto = end
            elif self._owes():
                self._hold(data, position)
                return
            else:
                found = data.find(_HEAD_END, position)
                upto = end if found < 0 else found + len(_HEAD_END)
                upto = min(upto, position + self.limits.max_header_bytes)
            self._feed(data if upto - position == end else memoryview(data)[position:upto])
            position = upto

    def _take_content(self, data: bytes, position: int) -> int:
        """Take what belongs to a body of known length, past the parser, which copies it; where that ends."""
        end = min(len(data), position + self._length)
        self.on_body(data if end - position == len(data) else data[position:end])
        if not self._length:
            self._renew_parser()  # the old one still waits for this body
            self.on_message_complete()
        return end

    def _renew_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _is_over(self) -> bool:
        return self._lingering or self._last_words is not None or self.transport.is_closing()

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
        in_body = self._phase == BODY
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
            elif self._head_bytes > self.limits.max_header_bytes or (
                self._phase == HEAD and len(self.url) > self.limits.max_target_bytes
            ):
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
            self._refuse(
                Refused(
                    400,
                    "invalid_chunk",
                    "Too much in the chunked body is no content. Send larger chunks, without extensions.",
                )
            )

    def _decline_upgrade(self, piece: bytes | memoryview, offset: int) -> None:
        """Begin the request again as if it offered no upgrade, which RFC 9110 (7.8) leaves to a server."""
        line = b"%b %b HTTP/%b\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode("ascii"),
        )
        fields = [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        self._upgrading = False
        self._head_bytes = 0
        self._renew_parser()
        self._feed(b"".join([line, *fields, b"\r\n"]))
        if offset < len(piece) and not self._is_over():
            self._feed(piece[offset:])

    def _reason(self, error: httptools.HttpParserError) -> Refused:
        cause = error.__context__
        if isinstance(cause, Refused):
            return cause
        if isinstance(cause, httptools.HttpParserInvalidURLError):
            return Refused(400, "invalid_target", MALFORMED_TARGET)
        if isinstance(error, httptools.HttpParserCallbackError):
            self.logger.error("a defect in parsing a request", exc_info=error)
            return defect()
        return malformed(str(error))

    def on_message_begin(self) -> None:
        """A request begins."""
        self.url = b""
        self.headers = []
        self._phase = HEAD
        self._begun = True
        self._deadlines.stop()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field; those behind a body are kept apart, being no headers (RFC 9110, section 6.5)."""
        if self._phase == HEAD:
            self.headers.append((name.lower(), value))
        else:
            self.scope["extensions"].setdefault(TRAILERS, {})[name.lower(), value] = True

    def on_headers_complete(self) -> None:
        """The head is whole."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if self.parser.should_upgrade():
            if method == b"CONNECT":
                raise Refused(
                    400,
                    "invalid_method",
                    "This is no proxy: CONNECT is not known here. Send the request itself.",
                )
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
            raise Refused(
                400,
                "too_many_requests",
                f"More than {_MOST_QUEUED} requests came before an answer. Read answers before sending more.",
            )
        keep_alive = (
            version == "1.1"
            and self.parser.should_keep_alive()
            and self._admitted
            and not self.others.leaving
        )
        owes = self._owes()
        self.cycle = cycle = self._make_cycle(keep_alive, expects_continue)
        self._phase, self._length, self._head_bytes, self._overhead = BODY, length, 0, 0
        self._deadlines.stop()
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
            "extensions": {BODY_DEADLINES: {}},
        }

    def _make_cycle(self, keep_alive: bool, expects_continue: bool) -> Cycle:
        return Cycle(
            self.scope,
            self.transport,
            self.flow,
            self.logger,
            self.server_state.default_headers,
            self.on_response_complete,
            access_log=self.access_log,
            expects_continue=expects_continue,
            keep_alive=keep_alive,
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
        if cycle.add_body(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._upgrading:
            return
        self._phase = BETWEEN
        self._deadlines.body.stop()
        if self.flow.write_paused:
            self._deadlines.watch_taking()
        if self.cycle.response_complete:
            self._rest()
        else:
            self.cycle.more_body = False
            self.cycle.message_event.set()


def _is_one(data: bytes) -> bool:
    """Whether no second request can be seen in `data`, which begins with one: no line ends behind it."""
    end = data.find(_HEAD_END)
    return end < 0 or data.find(b"\n", end + len(_HEAD_END)) < 0
