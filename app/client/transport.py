"""How requests reach the service: blocking, or in an event loop.

All else in this folder is written once, as coroutines that wait for a `Transport` alone. The coroutines of
`BlockingTransport` never suspend, so `run` takes such a coroutine to its end by a single step, without an
event loop; the client that blocks is made of the other one in this way (`blocking.py`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import httpx

T = TypeVar("T")

#: What is done beside others.
Task = Callable[[], Coroutine[Any, Any, None]]


class Reply(Protocol):
    """The head of an answer, and its body in pieces."""

    status: int
    headers: httpx.Headers

    async def next_piece(self) -> bytes | None:
        """The next bytes of the body, as they were sent; None at its end."""

    async def close(self) -> None: ...


class Transport(Protocol):
    """Sends, waits, and does several things beside one another."""

    async def send(self, request: httpx.Request) -> Reply:
        """Send a request, and wait for the head of the answer.

        Raises:
            httpx.TransportError: there is none.
        """

    async def sleep(self, seconds: float) -> None: ...

    def now(self) -> float:
        """Seconds that go on evenly."""

    async def aside(self, call: Callable[[], T]) -> T:
        """Do what takes a while, such as reading a large file."""

    async def gather(self, tasks: Sequence[Task], at_once: int) -> None:
        """Do all of them, so many at a time; the first that fails ends it."""

    async def close(self) -> None: ...


class BlockingTransport:
    """Blocks its thread; several threads may use it, and a forked process opens connections of its own."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._client: httpx.Client | None = None
        self._process = os.getpid()

    async def send(self, request: httpx.Request) -> Reply:
        if not isinstance(request.stream, httpx.SyncByteStream):
            raise TypeError("Rows of an asynchronous iterator are appended by the AsyncClient.")
        return _BlockingReply(self._http.send(request, stream=True))

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251, TID251  # it blocks, as its name says

    def now(self) -> float:
        return time.monotonic()

    async def aside(self, call: Callable[[], T]) -> T:
        return call()

    async def gather(self, tasks: Sequence[Task], at_once: int) -> None:
        with ThreadPoolExecutor(at_once) as pool:
            futures = [pool.submit(_run_task, task) for task in tasks]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    async def close(self) -> None:
        if self._client is not None and self._process == os.getpid():
            self._client.close()
        self._client = None

    def __getstate__(self) -> dict[str, Any]:
        """For other processes: without connections."""
        return {**self.__dict__, "_client": None}

    @property
    def _http(self) -> httpx.Client:
        if self._client is None or self._process != os.getpid():
            # A process that was forked must not read from the connection of its parent.
            self._client, self._process = httpx.Client(**self._options), os.getpid()
        return self._client


class _BlockingReply:
    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self._response = response
        self._pieces = response.iter_raw()

    async def next_piece(self) -> bytes | None:
        return next(self._pieces, None)

    async def close(self) -> None:
        self._response.close()


class AsyncTransport:
    """In the event loop that it is first used in."""

    def __init__(self, **options: Any) -> None:
        self._client = httpx.AsyncClient(**options)

    async def send(self, request: httpx.Request) -> Reply:
        if not isinstance(request.stream, httpx.AsyncByteStream):
            request.stream = _InLoop(request.stream)
        return _AsyncReply(await self._client.send(request, stream=True))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return time.monotonic()

    async def aside(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)

    async def gather(self, tasks: Sequence[Task], at_once: int) -> None:
        places = asyncio.Semaphore(at_once)

        async def take(task: Task) -> None:
            async with places:
                await task()

        try:
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(take(task))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def close(self) -> None:
        await self._client.aclose()


class _InLoop(httpx.AsyncByteStream):
    """A body that is made between the steps of the event loop, piece by piece."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


class _AsyncReply:
    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self._response = response
        self._pieces = response.aiter_raw()

    async def next_piece(self) -> bytes | None:
        return await anext(self._pieces, None)

    async def close(self) -> None:
        await self._response.aclose()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine over a `BlockingTransport` returns."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("A coroutine that was to block has waited for an event loop.")


def _run_task(task: Task) -> None:
    run(task())


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """What an asynchronous generator over a `BlockingTransport` yields."""
    try:
        while True:
            try:
                item = run(_next(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        if hasattr(items, "aclose"):
            run(items.aclose())


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
