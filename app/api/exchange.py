"""One request that converts a stream: body in, worker thread, answer out.

Answers up to 1 MiB, those asked for with `?delivery=checked`, and those for HTTP/1.0 are completed
before the first byte leaves, so that a failure is a problem document and the headers can carry
length, count and digest. A longer answer starts as soon as 1 MiB is there; a failure after that
breaks the chunked body off without its last chunk, which every HTTP client reports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..domain.limits import MIB, Budget, Limits
from ..domain.streams import Buffer, ByteStream
from ..errors import LimitExceeded, MalformedInput, ShardsmithError, UnknownForm
from ..storage.spool import Spool
from .streaming import OutputPipe, RequestBody

__all__ = ["Answer", "Exchanges", "Work"]

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


#: Runs in a worker thread. What it puts on the stack is closed once the answer is drawn.
Work = Callable[[ByteStream, Budget, ExitStack], Answer]


class Exchanges:
    """Runs conversions on a pool of its own, sized to the streams that are admitted at one time."""

    def __init__(self, *, limits: Limits, spool: Spool, streams: int, body_timeout_s: float) -> None:
        self._limits = limits
        self._spool = spool
        self._body_timeout_s = body_timeout_s
        self._pool = ThreadPoolExecutor(streams, thread_name_prefix="exchange")

    def close(self) -> None:
        """Let running conversions end, take no new ones."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def run(self, request: Request, work: Work, *, checked: bool = False) -> Response:
        """Convert the body of `request`.

        Raises:
            ShardsmithError: whatever the conversion raised before its answer had begun.
        """
        self._check_headers(request)
        body = RequestBody(max_bytes=self._limits.max_body_bytes, timeout_s=self._body_timeout_s)
        complete = checked or request.scope.get("http_version") == "1.0"
        limit = None if complete else COMPLETE_UP_TO
        pipe = OutputPipe(self._spool, lambda: body.ended and not complete, digest_limit=limit)
        pump = asyncio.create_task(body.pump(request.receive, pipe.abandon))
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pool.submit(self._convert, work, body, pipe, _Promise(answer))
        try:
            head = await answer
            done = await pipe.settle(limit)
        except BaseException:
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

    def _check_headers(self, request: Request) -> None:
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise UnknownForm(
                f"Content-Encoding {encoding[:40]!r} is not supported; send the body as it is.",
                code="unsupported_content_encoding",
            )
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise MalformedInput("Content-Length is not a number.", code="invalid_content_length")
        if int(length[:20]) > self._limits.max_body_bytes:
            raise LimitExceeded(
                f"The body has {length[:20]} bytes; at most {self._limits.max_body_bytes} are accepted.",
                code="payload_too_large",
            )

    def _convert(self, work: Work, body: RequestBody, pipe: OutputPipe, promise: _Promise) -> None:
        """In the worker thread: decode, encode and push, until done or given up."""
        error: BaseException | None = None
        try:
            with ExitStack() as resources:
                answer = work(body, Budget(self._limits), resources)
                promise.keep(answer)
                for chunk in answer.chunks:
                    pipe.write(chunk)
        except BaseException as caught:  # carried to the event loop, which raises it there
            error = caught
            promise.fail(caught)
        finally:
            body.discard()
            pipe.finish(error)


def _give_up(pipe: OutputPipe, body: RequestBody, pump: asyncio.Task[None]) -> None:
    """Let go of everything that a worker may wait for; harmless where it has ended."""
    pipe.abandon()
    body.interrupt()
    pump.cancel()


class _Promise:
    """Sets an asyncio future from another thread, once, and never after its loop is gone."""

    def __init__(self, future: asyncio.Future[Answer]) -> None:
        self._future = future
        self._loop = future.get_loop()

    def keep(self, answer: Answer) -> None:
        self._call(lambda: self._future.set_result(answer))

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
        except ShardsmithError as error:
            # Returning before the last chunk makes the server close the connection.
            logger.warning("answer broken off: %s: %s", error.code, error.detail)
        finally:
            self._on_end()
