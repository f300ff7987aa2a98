"""One request that converts a stream: body in, worker thread, answer out.

Answers up to 1 MiB, those asked for with `?delivery=checked`, and those for HTTP/1.0 are completed
before the first byte leaves, so that a failure is a problem document and the headers can carry
length, count and digest. A longer answer starts as soon as 1 MiB is there; a failure after that
breaks the chunked body off without its last chunk, which every HTTP client reports.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..domain.limits import KIB, MIB, Budget, Limits
from ..domain.streams import Buffer, ByteStream, MemoryStream
from ..errors import LimitExceeded, MalformedInput, Overloaded, ShardsmithError, UnknownForm
from ..storage.spool import Spool
from .small_bodies import may_be_small, read_small, replayed
from .streaming import OutputPipe, RequestBody, repr_digest

__all__ = ["Answer", "Exchanges", "Work", "check_body_headers"]

logger = logging.getLogger(__name__)

#: An answer up to this size is complete before it starts.
COMPLETE_UP_TO: Final = 1 * MIB


@dataclass(frozen=True, slots=True)
class Answer:
    """What a conversion gives back: headers, and bytes that are drawn in the worker thread.

    Attributes:
        late_headers: asked once all bytes are drawn; sent only with answers completed first.
    """

    media_type: str
    chunks: Iterator[Buffer]
    headers: Mapping[str, str] = field(default_factory=dict)
    late_headers: Callable[[], Mapping[str, str]] = dict
    status: int = 200


#: A worker is taken once so much of a body has arrived, or all of it.
_HEAD_BYTES: Final = 256 * KIB
#: How long a request waits for a worker before it is told to come again.
_ADMISSION_WAIT_S: Final = 10.0
#: How long the rest of a refused body is let in and dropped; nginx's lingering_timeout is 5 s.
_LINGER_S: Final = 5.0
_CALL_THREADS: Final = 16
#: Work that does not wait only hands the interpreter's lock around: more threads for it make it slower.
_SMALL_THREADS: Final = 2
_SMALL_QUEUE: Final = 256
#: Where the store hangs, that queue does too: what has waited longer is refused, before its client gives up.
_LONGEST_IN_QUEUE_S: Final = 10.0
_PLAIN_ENCODINGS: Final = {
    "content-encoding": ("", "identity"),
    "content-transfer-encoding": ("", "7bit", "8bit", "binary"),
}

T = TypeVar("T")

#: Runs in a worker thread. What it puts on the stack is closed once the answer is drawn; or, where the answer
#: comes later, when it returns: then no thread waits, and the answer is drawn in the thread that brings it.
Work = Callable[[ByteStream, Budget, ExitStack], Answer | Future[Answer]]


class Exchanges:
    """Runs conversions on threads of its own.

    Streams, which hold a thread as long as their client is slow, have one pool; short calls (metadata,
    pieces of downloads) have another, so that the one cannot keep the other waiting. Small bodies whose
    work waits for nothing go through very few threads.
    """

    def __init__(self, *, limits: Limits, spool: Spool, streams: int, body_timeout_s: float) -> None:
        self._limits = limits
        self._spool = spool
        self._body_timeout_s = body_timeout_s
        self._streams = _Lane(streams, "stream")
        self._calls = _Lane(_CALL_THREADS, "call")
        self._small = _Lane(_SMALL_THREADS, "small", queued=_SMALL_QUEUE)

    def close(self) -> None:
        """Let running conversions end, take no new ones."""
        self._streams.close()
        self._calls.close()
        self._small.close()

    async def call(self, function: Callable[[], T]) -> T:
        """Run a short blocking function in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._calls.pool, function)

    async def run(
        self,
        request: Request,
        work: Work,
        *,
        checked: bool = False,
        short: bool = False,
        quick: bool = False,
    ) -> Response:
        """Convert the body of `request`.

        Args:
            request: its body and its connection.
            work: what to do, in a thread.
            checked: complete the answer before its first byte leaves.
            short: a call without a stream on either side.
            quick: it waits for nothing but a large body, and answers little.

        Raises:
            ShardsmithError: whatever the conversion raised before its answer had begun.
        """
        receive = request.receive
        if quick and may_be_small(request.headers):
            check_body_headers(request.headers, self._limits)
            small, taken = await read_small(receive, self._body_timeout_s)
            if small is not None:
                return await self._run_small(work, small)
            receive = replayed(taken, receive)
        body = RequestBody(max_bytes=self._limits.max_body_bytes, timeout_s=self._body_timeout_s)
        complete = checked or request.scope.get("http_version") == "1.0"
        limit = None if complete else COMPLETE_UP_TO
        pipe = OutputPipe(
            self._spool,
            lambda: body.ended and not complete,
            digest_limit=limit,
            timeout_s=self._body_timeout_s,
        )
        pump = asyncio.create_task(body.pump(receive, pipe.abandon))
        try:
            check_body_headers(request.headers, self._limits)
            await body.wait_for_head(_HEAD_BYTES)
            head = await self._start(self._calls if short else self._streams, work, body, pipe)
            done = await pipe.settle(limit)
        except asyncio.CancelledError:
            # uvicorn cancels what is left when the grace of a shutdown ends, and still sends an answer.
            _give_up(pipe, body, pump)
            raise Overloaded("The service is shutting down. Try again.", code="shutting_down") from None
        except BaseException as error:
            try:
                if isinstance(error, LimitExceeded):
                    # Too much to let in: after a while the connection is closed on it.
                    await body.linger(_LINGER_S)
                    request.state.body_unread = not body.complete
            finally:
                _give_up(pipe, body, pump)
            raise
        headers = dict(head.headers)
        if head.status == 204:
            _give_up(pipe, body, pump)
            return Response(None, 204, headers)
        if done:
            headers |= head.late_headers()
            headers |= {"Content-Length": str(pipe.size), "Repr-Digest": pipe.repr_digest()}
        return _PipeResponse(pipe, lambda: _give_up(pipe, body, pump), head.status, headers, head.media_type)

    async def _run_small(self, work: Work, body: bytes) -> Response:
        """Convert a body that is there, to an answer that is complete before it starts."""
        complete: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        promise = _Promise(complete)
        try:
            give_up = time.monotonic() + _LONGEST_IN_QUEUE_S
            await self._submit(
                self._small, promise, lambda: self._convert_small(work, body, promise, give_up)
            )
            return await complete
        except asyncio.CancelledError:
            raise Overloaded("The service is shutting down. Try again.", code="shutting_down") from None

    def _convert_small(self, work: Work, body: bytes, promise: _Promise[Response], give_up: float) -> None:
        def convert() -> None:
            if time.monotonic() > give_up:
                raise Overloaded("The service is too busy; nothing was done. Try again.")
            with ExitStack() as resources:
                answer = work(MemoryStream(body), Budget(self._limits), resources)
                if isinstance(answer, Future):
                    answer.add_done_callback(
                        lambda done: promise.kept_by(lambda: promise.keep(_complete(done.result())))
                    )
                else:
                    promise.keep(_complete(answer))

        promise.kept_by(convert)

    async def _start(self, lane: _Lane, work: Work, body: RequestBody, pipe: OutputPipe) -> Answer:
        """Run `work` in the first thread that comes free, and wait for the head of its answer."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        promise = _Promise(answer)
        await self._submit(lane, promise, lambda: self._convert(work, body, pipe, promise))
        return await answer

    async def _submit(self, lane: _Lane, promise: _Promise[Any], convert: Callable[[], None]) -> None:
        await lane.enter()
        try:
            running = lane.pool.submit(convert)
        except BaseException:
            lane.leave()
            raise
        running.add_done_callback(lambda done: lane.leave(promise if done.cancelled() else None))

    def _convert(self, work: Work, body: RequestBody, pipe: OutputPipe, promise: _Promise[Answer]) -> None:
        """In the worker thread: decode, encode and push, until done or given up."""
        later: Future[Answer] | None = None

        def convert() -> None:
            nonlocal later
            with ExitStack() as resources:
                answer = work(body, Budget(self._limits), resources)
                if isinstance(answer, Future):
                    later = answer
                else:
                    _deliver(answer, promise, pipe)

        error = promise.kept_by(convert)
        body.discard()
        if later is None:
            pipe.finish(error)
        else:
            later.add_done_callback(
                lambda done: pipe.finish(promise.kept_by(lambda: _deliver(done.result(), promise, pipe)))
            )


class _Lane:
    """Threads, and a queue in front of them in which nobody waits for long."""

    def __init__(self, num_threads: int, name: str, *, queued: int = 0) -> None:
        self.pool = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
        self._free = asyncio.Semaphore(num_threads + queued)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def enter(self) -> None:
        """Wait for a thread.

        Raises:
            Overloaded: none came free in time.
        """
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_ADMISSION_WAIT_S):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded(
                f"No worker came free within {_ADMISSION_WAIT_S:g} s; nothing was done. Try again."
            ) from None

    def leave(self, broken: _Promise[Any] | None = None) -> None:
        """A thread has come free; `broken` is what it was to keep, where it never began."""
        if broken is not None:
            broken.fail(Overloaded("The service is shutting down. Try again.", code="shutting_down"))
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._free.release)

    def close(self) -> None:
        """Wait for what runs; start nothing that waits."""
        self.pool.shutdown(wait=True, cancel_futures=True)


def check_body_headers(headers: Headers, limits: Limits) -> None:
    """Refuse what the headers of a body already say cannot be read.

    Raises:
        UnknownForm: a Content-Encoding or Content-Transfer-Encoding, which is never undone here.
        MalformedInput: a Content-Length that is no number.
        LimitExceeded: a Content-Length beyond what is accepted.
    """
    for name, plain in _PLAIN_ENCODINGS.items():
        encoding = headers.get(name, "").strip().lower()
        if encoding not in plain:
            raise UnknownForm(
                f"{name.title()} {encoding[:40]!r} is not supported; send the body as it is.",
                code="unsupported_content_encoding",
            )
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise MalformedInput("Content-Length is not a number.", code="invalid_content_length")
    if int(length.lstrip("0")[:20] or "0") > limits.max_body_bytes:
        raise LimitExceeded(
            f"The body has {length[:20]} bytes; at most {limits.max_body_bytes} are accepted.",
            code="payload_too_large",
        )


def _give_up(pipe: OutputPipe, body: RequestBody, pump: asyncio.Task[None]) -> None:
    """Let go of everything that a worker may wait for; harmless where it has ended."""
    pipe.abandon()
    body.interrupt()
    pump.cancel()


def _deliver(answer: Answer, promise: _Promise[Answer], pipe: OutputPipe) -> None:
    """Give the head of the answer to who waits for it, then its bytes to the pipe."""
    promise.keep(answer)
    for chunk in answer.chunks:
        pipe.write(chunk)


def _complete(answer: Answer) -> Response:
    content = b"".join(answer.chunks)
    headers = {**answer.headers, **answer.late_headers(), "Repr-Digest": repr_digest(sha256(content))}
    return Response(content, answer.status, headers, answer.media_type)


class _Promise(Generic[T]):
    """Sets an asyncio future from another thread, once, and never after its loop is gone."""

    def __init__(self, future: asyncio.Future[T]) -> None:
        self._future = future
        self._loop = future.get_loop()

    def keep(self, value: T) -> None:
        self._call(lambda: self._future.set_result(value))

    def kept_by(self, function: Callable[[], None]) -> BaseException | None:
        """Run what is to deliver the answer; what it raises is the answer, unless that has begun."""
        try:
            function()
        except StopIteration as caught:  # which no future takes
            error = RuntimeError("an iterator ended where none should")
            error.__cause__ = caught
            self.fail(error)
            return error
        except BaseException as caught:  # carried to the event loop, which raises it there
            self.fail(caught)
            return caught
        return None

    def fail(self, error: BaseException) -> None:
        self._call(lambda: self._future.set_exception(error))

    def _call(self, settle: Callable[[], None]) -> None:
        def once() -> None:
            if not self._future.done():
                settle()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(once)


class _PipeResponse(Response):
    """Sends what comes out of a pipe; ends without the last chunk where the conversion failed."""

    def __init__(
        self,
        pipe: OutputPipe,
        on_end: Callable[[], None],
        status: int,
        headers: Mapping[str, str],
        media_type: str,
    ) -> None:
        self._pipe = pipe
        self._on_end = on_end
        self.status_code = status
        self.media_type = media_type
        self.background = None
        self.body = b""
        self.raw_headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in {"Content-Type": media_type, **headers}.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive  # the pump has the receiving end
        try:
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            while (piece := await self._pipe.next_piece()) is not None:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            logger.warning("answer broken off: the service is shutting down")
        except ShardsmithError as error:
            # Returning before the last chunk makes the server close the connection.
            logger.warning("answer broken off: %s: %s", error.code, error.detail)
        finally:
            self._on_end()
