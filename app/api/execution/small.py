"""What a small request is: one whose work takes the event loop no longer than routing it.

A thread, a pump and a pipe cost several times as much as the conversion of a small body, so that is done on
the event loop. Nothing else is served meanwhile, hence the bounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from starlette.types import Message, Receive

from ...domain.limits import KIB, MIB, Limits
from ...errors import StreamInterrupted
from ...runtime.amplification import Amplification
from ...runtime.budget import Budget
from ..patience import body_timed_out, in_time, shutting_down

#: Converting so much from the slowest form, nested JSON, takes milliseconds.
BODY_BYTES: Final = 32 * KIB
#: What it may hold in memory, and what it may become.
DECODED_BYTES: Final = 256 * KIB
ANSWER_BYTES: Final = 1 * MIB

#: A body with one of these is not known to be small, or wants something to be said before it comes.
_SAY_MORE: Final = frozenset(
    {b"content-encoding", b"content-transfer-encoding", b"expect", b"transfer-encoding"}
)
#: Digits of a Content-Length that is worth a look.
_DIGITS: Final = 9


def is_small(headers: Iterable[tuple[bytes, bytes]], max_bytes: int) -> bool:
    """Whether the headers say that the body has at most so many bytes, and nothing else of it."""
    size = -1
    for name, value in headers:
        if name == b"content-length":
            size = int(value) if value.isdigit() and len(value) <= _DIGITS else -1
        elif name in _SAY_MORE:
            return False
    return 0 <= size <= max_bytes


def small_limits(limits: Limits) -> Limits:
    """The limits of work on the event loop, under those of all requests."""
    return replace(limits, max_decoded_bytes=min(limits.max_decoded_bytes, DECODED_BYTES))


def small_budget(limits: Limits, body_bytes: int) -> Budget:
    """A budget of `small_limits`: what becomes more than this is no small request."""
    return Budget(limits, amplification=Amplification(0, lambda: body_bytes, allowance=ANSWER_BYTES))


async def read_small(receive: Receive, timeout_s: float | None) -> tuple[bytes, Sequence[Message]]:
    """The whole body, and the messages that were taken for it.

    Args:
        timeout_s: how long to wait for the next byte; None where the server looks after that.

    Raises:
        StreamInterrupted: the client went away.
        StreamTimeout: nothing came for too long.
        Overloaded: the service is shutting down.
    """
    taken: list[Message] = []
    while not taken or taken[-1].get("more_body", False):
        try:
            message = await (receive() if timeout_s is None else in_time(receive, timeout_s))
        except TimeoutError:
            raise body_timed_out(timeout_s) from None
        except asyncio.CancelledError:
            # uvicorn cancels what is left when the grace of a shutdown ends, and still sends an answer.
            raise shutting_down() from None
        if message["type"] == "http.disconnect":
            raise StreamInterrupted("The connection closed before the body ended.")
        taken.append(message)
    return b"".join(message.get("body", b"") for message in taken), taken


def replay(taken: Sequence[Message], receive: Receive) -> Receive:
    """A `receive` that gives what was taken once more, then what follows."""
    left = list(reversed(taken))

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again
