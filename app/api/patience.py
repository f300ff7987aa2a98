"""Waiting for a client up to a deadline, and a moment longer.

A process that was stopped, or a machine that slept, wakes with its deadlines behind it, and only then reads
what clients sent meanwhile. So whatever is overdue is looked at once more before a client is told that it was
too slow.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ..errors import OutcomeUnknown, Overloaded, ShardsmithError, StreamTimeout

T = TypeVar("T")

#: How much longer; what hundreds of clients have sent is read within it.
_SECOND_LOOK_S: Final = 1.0
#: What helps a client whose body comes too slowly.
SEND_WHOLE_BATCHES: Final = "Send whole batches: begin a request once all its rows are there."


def body_timed_out(timeout_s: float | None) -> StreamTimeout:
    """The error of a body of which nothing came for so long."""
    waited = "too long" if timeout_s is None else f"{timeout_s:g} s (SHARDSMITH_BODY_TIMEOUT_S)"
    return StreamTimeout(f"No byte of the body came for {waited}. {SEND_WHOLE_BATCHES}")


def shutting_down(*, may_be_done: bool = False) -> ShardsmithError:
    """The error of a request that is given up at the end of a shutdown.

    Args:
        may_be_done: whether it may have stored something, or may still do so.
    """
    if may_be_done:
        return OutcomeUnknown(
            "The service is shutting down; what was asked for may or may not have been done. "
            "Repeat the request with the same key."
        )
    return Overloaded("The service is shutting down. Try again.", code="shutting_down")


async def in_time(begin: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """What `begin()` gives, which is begun again for the second look.

    Raises:
        TimeoutError: nothing within `timeout_s`, nor at the second look.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await begin()
    except TimeoutError:
        async with asyncio.timeout(min(timeout_s, _SECOND_LOOK_S)):
            return await begin()


def wait_in_time(changed: threading.Condition, timeout_s: float) -> bool:
    """Whether `changed`, whose lock is held, was notified within `timeout_s`, or by the second look."""
    return changed.wait(timeout_s) or changed.wait(min(timeout_s, _SECOND_LOOK_S))
