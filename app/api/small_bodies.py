"""Small bodies, read as a whole before anything is done with them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from ..domain.limits import KIB
from ..errors import StreamInterrupted
from .patience import body_timed_out, in_time, shutting_down

__all__ = ["SMALL_BODY", "may_be_small", "read_small", "replayed"]

#: What counts as small; so much has mostly arrived with the head of the request.
SMALL_BODY: Final = 64 * KIB


def may_be_small(headers: Headers) -> bool:
    """Whether the headers do not say that the body is larger, or may become so."""
    if "content-encoding" in headers:
        return False
    length = headers.get("content-length", "0")
    return length.isascii() and length.isdigit() and int(length[:20]) <= SMALL_BODY


async def read_small(receive: Receive, timeout_s: float | None) -> tuple[bytes | None, Sequence[Message]]:
    """The whole body, or None where it is not small; and the messages that were taken for it.

    Args:
        timeout_s: how long to wait for the next byte; None where the server looks after that.

    Raises:
        StreamInterrupted: the client went away.
        StreamTimeout: nothing came for too long.
        Overloaded: the service is shutting down.
    """
    taken: list[Message] = []
    size = 0
    while size <= SMALL_BODY:
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
        size += len(message.get("body", b""))
        if not message.get("more_body", False) and size <= SMALL_BODY:
            return b"".join(message.get("body", b"") for message in taken), taken
    return None, taken


def replayed(taken: Sequence[Message], receive: Receive) -> Receive:
    """A `receive` that gives what was taken once more, then what follows."""
    left = list(reversed(taken))

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again
