"""What a connection may cost, and how long it may take: every number, and where it was taken from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...domain.limits import KIB

#: An extension of the ASGI scope: the server cuts off a client that is silent in a body (`stall_s`).
BODY_DEADLINES: Final = "shardsmith.body_deadlines"
#: Another: its keys are the fields behind a chunked body that has ended, which ASGI has no place for.
TRAILERS: Final = "shardsmith.trailers"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds on one connection, and on their number.

    Attributes:
        max_connections: connections at one time: twice the requests that are let in (Envoy's circuit breakers
            have 1,024 for each), so that most refusals are those of requests, which cost less. nginx's
            worker_connections is 512. Each takes a file descriptor.
        max_target_bytes: the request target: `?schema=` takes 8 KiB of JSON, three times that once it is
            percent-encoded. nginx has 8 KiB, Apache's LimitRequestLine 8,190, and RFC 9112 wants 8,000.
        max_header_bytes: request line and header section; Envoy has 60 KiB, uvicorn with h11 64 KiB.
        max_headers: header fields; Apache's LimitRequestFields and Envoy have 100.
        max_chunk_overhead: bytes of a chunked body that are no content, past 16 a chunk and twice the
            content: extensions and trailers. Go's net/http has 16 KiB by the same reckoning, Node 16 KiB.
        header_timeout_s: from the first byte of a head, or of a connection, to the end of the head;
            Apache's RequestReadTimeout begins with 20 s.
        keep_alive_s: an idle connection; nginx's keepalive_timeout is 75 s. Longer than the minute that
            clients and load balancers keep theirs: who sends just as the server closes gets no answer,
            and cannot tell whether the request was carried out.
        min_rate: bytes a second, of a body that arrives and of an answer that is taken; Kestrel's
            MinRequestBodyDataRate and MinResponseDataRate are 240. 0: none.
        body_grace_s: before that rate is asked of a body; Kestrel has 5 s.
        stall_s: without any byte, in or out; nginx's client_body_timeout and send_timeout are 60 s.
        linger_s: how long the rest of a refused body is let in and dropped; nginx's lingering_time is 30 s.
        linger_stall_s: the same, without any byte; nginx's lingering_timeout is 5 s.
    """

    max_connections: int = 2048
    max_target_bytes: int = 32 * KIB
    max_header_bytes: int = 64 * KIB
    max_headers: int = 100
    max_chunk_overhead: int = 16 * KIB
    header_timeout_s: float = 20.0
    keep_alive_s: float = 75.0
    min_rate: int = 240
    body_grace_s: float = 5.0
    stall_s: float = 60.0
    linger_s: float = 30.0
    linger_stall_s: float = 5.0
