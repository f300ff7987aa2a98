"""The connection: uvicorn's protocol for httptools, with limits, deadlines, and answers in their turn.

`receiving.py` has the half that takes requests in. What uvicorn 0.54 does not do, and this does: close
connections on which no request, no body, or no reading of the answer goes on; answer clients that have closed
their side; linger before it closes, so that a client that still writes can read why; refuse what is no
request with a problem document, and after the answers to what came before it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ..patience import SEND_WHOLE_BATCHES
from .access_log import log_refusal, request_id_of
from .connections import Connections
from .cycle import Cycle
from .flow import Flow
from .limits import ConnectionLimits
from .receiving import BETWEEN, BODY, HEAD, ReceivingProtocol
from .refusals import Refused, serialize_refusal, timed_out

#: How long a connection that is only to be closed may take for it once the service is stopping.
_STOPPING_S: Final = 1.0


class HardenedProtocol(ReceivingProtocol):
    """One connection, under the default limits; `hardened_protocol` makes one with others."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        self.flow = Flow(transport, self.loop, self._deadlines)
        self._deadlines.begin(transport)
        self.idle_since = now = self._deadlines.wait(self.limits.header_timeout_s)
        self._admitted = self.others.admit(self, now)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._deadlines.end()
        self.others.forget(self)
        if self._active is not None:
            self._active.disconnect()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client sends no more: true keeps our side open, for answers to what it has sent."""
        self.flow.ended = True
        cycle = self._active
        waits = cycle is not None and self._owes() and not cycle.goes_on
        if self._phase != BETWEEN or not waits or self.scheme == "https":
            if cycle is not None:
                cycle.disconnect()
            self._close()
            return None
        return True

    def shutdown(self) -> None:
        """Called by the server when it stops: what has begun is answered."""
        if self._lingering:
            self._deadlines.hurry(_STOPPING_S)
        else:
            super().shutdown()
            self.flow.closing()

    def evict(self) -> None:
        """Close at once: another connection is more worth."""
        self.transport.abort()

    def on_response_complete(self) -> None:
        """Called by the request that was answered: what comes next."""
        self.server_state.total_requests += 1
        cycle = self._active
        if self.transport.is_closing() or cycle is None:
            return
        if self._phase != BODY and self.transport.get_write_buffer_size():
            self._deadlines.watch_taking()
        if cycle.last:
            self._end()
        elif self._phase or self._held or self.flow.ended or self.pipeline or self._last_words:
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
            self._part(self._last_words)
        elif self._phase == BODY:
            self._drain()
        elif self._held:
            self._release()
        if self._phase == BETWEEN and not self._owes() and not self._lingering:
            if self.flow.ended:
                self._close()
                return
            self._rest()
        self.flow.resume_reading()

    def _rest(self) -> None:
        """Wait for the next request."""
        self.idle_since = self._deadlines.wait(self.limits.keep_alive_s)

    def _drain(self) -> None:
        """Let the rest of a body in, which nobody wants, so that the client comes to read the answer."""
        self._deadlines.linger()
        self.flow.resume_reading()

    def _end(self) -> None:
        """Close after the last answer; while the client still sends, not before it can have read that."""
        if self._phase == BODY or self._held:
            self._part(b"")
        else:
            self._close()

    def _close(self) -> None:
        """Close, once what was written is taken; while we wait for that, the deadline for it holds."""
        self.transport.close()
        self._deadlines.watch_taking()

    def _part(self, last: bytes) -> None:
        """Say `last`, close our side, and drop what still comes, for a while (RFC 9112, section 9.6)."""
        self.transport.write(last)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._lingering = True
        self.pipeline.clear()
        self._held, self.flow.held = b"", False
        self._deadlines.linger()
        self.flow.resume_reading()

    def _refuse(self, refused: Refused) -> None:
        """Answer what is no request, in its turn, and take nothing more."""
        in_body = self._phase == BODY
        if in_body and self.cycle is self._active:
            self._cut(self.cycle, refused)
            return
        if in_body:
            self.pipeline.popleft()  # the newest, whose body this was
        words = self._serialized(refused, self._log_refusal(refused))
        if self._owes():
            self._last_words = words
            self._hold(b"", 0)
        else:
            self._part(words)

    def _cut(self, cycle: Cycle, refused: Refused) -> None:
        """End a request whose body is refused; where it has been answered already, the connection alone."""
        if self._owes():
            cycle.cut(refused)
        silent = cycle.response_started
        self._part(b"" if silent else self._serialized(refused, cycle.log.id))

    def _log_refusal(self, refused: Refused) -> str:
        """Log what no application sees; gives the id of the request."""
        # Before a message begins, these are of the one before it.
        headers, target = ([], b"") if self._phase == BETWEEN else (self.headers, self.url)
        request_id = request_id_of(headers)
        log_refusal(
            request_id,
            target,
            refused.status,
            refused.code,
            self._head_bytes,
            self.client,
            every=self.access_log,
        )
        return request_id

    def _serialized(self, refused: Refused, request_id: str) -> bytes:
        return serialize_refusal(refused, self.server_state.default_headers, request_id)

    def pause_writing(self) -> None:
        """Called by the transport: more is written than the client takes."""
        super().pause_writing()
        # Most clients write all before they read: as long as they write, nothing has to be taken.
        if self._phase != BODY:
            self._deadlines.watch_taking()

    def resume_writing(self) -> None:
        """Called by the transport: the client has taken most of it."""
        super().resume_writing()
        self._deadlines.stop_taking()
        if self._phase != BODY and not self._owes():
            self._deadlines.watch_taking()

    def _on_not_taking(self) -> None:
        if self._active is not None and self._owes():
            self._active.log.ended = "answer_not_taken"
        else:  # it has its line: all was written, and lies in the kernel
            self.logger.info("a client took too little of its answer")

    def _on_overdue(self) -> None:
        limits = self.limits
        if self._lingering or self._phase == BETWEEN or (self._phase == BODY and not self._owes()):
            self._close()
        elif self._phase == HEAD:
            self._refuse(
                timed_out(
                    f"The head of the request did not come within {limits.header_timeout_s:g} s. "
                    "Send it at once."
                )
            )
        else:
            rate = f"{limits.min_rate} bytes/s (SHARDSMITH_MIN_RATE)"
            self._refuse(timed_out(f"The body stopped, or came at less than {rate}. {SEND_WHOLE_BATCHES}"))


def hardened_protocol(limits: ConnectionLimits) -> type[HardenedProtocol]:
    """The protocol with these limits, which all its connections share."""
    members = {"limits": limits, "others": Connections(limits.max_connections)}
    return type("HardenedProtocol", (HardenedProtocol,), members)
