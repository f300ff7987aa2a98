"""Clients that send a request and wait for its answer, and such as send on whether or not answers come.

The latter are what overload is made of: users do not wait for each other. Each sends over a connection of its
own or one that another has done with; what an answer took counts from the moment it was due to be sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Outcome", "ask_in_turn", "ask_on_time", "probed", "quantile"]

#: A client that has waited so long has given up.
_PATIENCE_S = 60.0

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Outcome:
    """An answer: its status, 0 where there was none; whether it said when to come again; how long it took.

    Attributes:
        at: when it was there, by the monotonic clock.
    """

    status: int
    retry_after: bool
    seconds: float
    at: float = field(default_factory=time.monotonic)


def request(path: str, media_type: str, body: bytes, *, fields: str = "") -> bytes:
    """A POST as it goes over the wire, with further header fields."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}"
        f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def ask_in_turn(port: int, sent: bytes, *, clients: int, seconds: float) -> list[Outcome]:
    """Of so many clients, each of which sends its next request once it is answered."""
    outcomes: list[Outcome] = []
    end = time.monotonic() + seconds

    async def client() -> None:
        stream = await asyncio.open_connection("127.0.0.1", port)
        while (due := time.monotonic()) < end:
            outcomes.append(await _exchange(stream, sent, due))
        stream[1].close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return outcomes


async def ask_on_time(port: int, sent: bytes, *, rate: float, seconds: float) -> list[Outcome]:
    """Of clients that send `rate` requests a second, come what may."""
    idle: list[Stream] = []
    outcomes: list[Outcome] = []

    async def client(due: float) -> None:
        try:
            stream = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            outcomes.append(Outcome(0, False, time.monotonic() - due))
            return
        outcome = await _exchange(stream, sent, due)
        outcomes.append(outcome)
        if outcome.status and not stream[0].at_eof():
            idle.append(stream)
        else:
            stream[1].close()

    begin = time.monotonic()
    async with asyncio.TaskGroup() as clients:
        for number in range(int(rate * seconds)):
            due = begin + number / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            clients.create_task(client(due))
    for _, writer in idle:
        writer.close()
    return outcomes


async def probed(port: int, paths: Sequence[str], done: asyncio.Event) -> list[Outcome]:
    """Probes, one after the other and each on a connection of its own, until all is done."""
    outcomes: list[Outcome] = []
    while not done.is_set():
        for path in paths:
            due = time.monotonic()
            stream = await asyncio.open_connection("127.0.0.1", port)
            outcomes.append(await _exchange(stream, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), due))
            stream[1].close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 0.05)
    return outcomes


async def _exchange(stream: Stream, sent: bytes, due: float) -> Outcome:
    reader, writer = stream
    try:
        async with asyncio.timeout(_PATIENCE_S):
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            status, retry_after = int(head.split(None, 2)[1]), b"\r\nretry-after: " in head.lower()
            await _read_body(reader, head.lower())
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        writer.close()
        return Outcome(0, False, time.monotonic() - due)
    return Outcome(status, retry_after, time.monotonic() - due)


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> None:
    if b"\r\ntransfer-encoding: chunked" not in head:
        _, _, length = head.partition(b"\r\ncontent-length: ")
        await reader.readexactly(int(length.split(b"\r\n", 1)[0]))
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):
        await reader.readexactly(size + 2)
    await reader.readexactly(2)


def quantile(outcomes: Sequence[Outcome], share: float) -> float:
    """Seconds within which such a share of them was answered; 0 where there is none."""
    seconds = sorted(outcome.seconds for outcome in outcomes)
    return seconds[min(len(seconds) - 1, int(share * len(seconds)))] if seconds else 0.0
