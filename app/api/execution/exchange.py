"""One request that is served in a worker thread: body in, work, answer out.

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
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...domain.limits import KIB
from ...errors import InputError, LimitExceeded, ShardsmithError, StreamTimeout
from ...runtime.amplification import Amplification
from ...runtime.budget import Budget
from ...runtime.memory import MemoryPool
from ...runtime.streams import Buffer
from ...runtime.turns import Turns
from ..bare_response import BareResponse
from ..body.digests import Digests
from ..body.headers import declared_length
from ..patience import in_time, shutting_down
from ..state import Services
from .job import Answer, Job, Work
from .lanes import LONGEST_IN_QUEUE_S, Groups, Lane, Promise
from .pipe import BODY_HEAD, BODY_WINDOW, OUTPUT_WINDOW, OutputPipe, RequestBody
from .small import ANSWER_BYTES

logger = logging.getLogger(__name__)

#: Least bytes a second at which a client takes an answer that lies on the spool, on average: 0.5 Mbit/s.
_SPOOLED_RATE: Final = 64 * KIB
#: Seconds that it may stop for.
_SPOOLED_STALL_S = 30.0
#: What a body and its answer hold once a thread works on them, beyond the beginning of the body.
_WINDOWS: Final = BODY_WINDOW - BODY_HEAD + OUTPUT_WINDOW


class Exchange:
    """Owns all that a request in a thread holds: memory, body, pipe, pump and job.

    Two parties hold on to these: the event loop until the answer is sent or given up (`_end`), and the worker
    thread until its job is closed. The memory goes back when both have let go.

    Args:
        request: its body is read from `receive`.
        complete: whether the answer is completed before its first byte leaves.
        timeout_s: how long to wait for a byte of the body, or for one of the answer to be taken.
        digests: of the body.

    Raises:
        Overloaded: there is no memory even for the beginning of a body.
    """

    def __init__(
        self,
        request: Request,
        receive: Receive,
        services: Services,
        memory: MemoryPool,
        *,
        complete: bool,
        timeout_s: float,
        digests: Digests | None = None,
    ) -> None:
        limits = services.limits
        self._request = request
        # What is read of a dataset is in no proportion to the request for it.
        self._reads = request.method in ("GET", "HEAD")
        self._limit = None if complete else ANSWER_BYTES
        self._share = memory.share(max_seconds=limits.max_seconds)
        self._share.reserve(BODY_HEAD)
        self._body = body = RequestBody(
            max_bytes=limits.max_body_bytes,
            timeout_s=timeout_s,
            require_open=self._share.require_open,
            digests=digests,
        )
        received = None if self._reads else Amplification(limits.max_amplification, lambda: body.received)
        budget = Budget(limits, self._share, received)
        self._job = Job(request, services, budget, declared_length(request.headers))
        self._pipe = OutputPipe(
            services.spool,
            lambda: body.ended and not complete,
            digest_limit=self._limit,
            timeout_s=timeout_s,
            body_spooled=lambda: budget.spooled,
        )
        self._pump = asyncio.create_task(body.pump(receive, self._abandon))

    async def run(self, work: Work, lane: Lane, groups: Groups, turns: Turns, *, may_store: bool) -> Response:
        """Do `work` in the first thread of `lane` that comes free; the answer, complete or begun.

        Args:
            may_store: whether the work may store something.

        Raises:
            ShardsmithError: whatever the work raised before its answer had begun.
        """
        try:
            await self._body.wait_for_head(BODY_HEAD)
            head = await self._start(work, lane, groups, turns)
            done = await self._pipe.settle(self._limit)
        except asyncio.CancelledError:
            # uvicorn cancels what is left when the grace of a shutdown ends, and still sends an answer.
            may_be_done = self._body.ended and not self._reads and may_store
            self._end()
            raise shutting_down(may_be_done=may_be_done) from None
        except BaseException as error:
            # Too much to let in: the connection is closed on it, by and by.
            self._request.state.body_unread = isinstance(error, LimitExceeded) and not self._body.complete
            self._end()
            raise
        headers = dict(head.headers)
        if head.status == 204:
            self._end()
            return Response(None, 204, headers)
        if done:
            headers |= head.late_headers()
            headers |= {"Content-Length": str(self._pipe.size), "Repr-Digest": self._pipe.repr_digest()}
        else:
            headers |= head.early_headers()
        return _PipeResponse(self._pipe, self._end, head.status, {"Content-Type": head.media_type, **headers})

    async def _start(self, work: Work, lane: Lane, groups: Groups, turns: Turns) -> Answer:
        """Have a thread do the work, and wait for the head of its answer."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        promise = Promise(answer)
        await lane.enter(groups)
        try:
            self._share.reserve(_WINDOWS)
            lane.start(lambda: self._work(work, turns, promise), promise, groups, within_s=LONGEST_IN_QUEUE_S)
        except BaseException:
            lane.leave(groups)
            raise
        return await answer

    def _work(self, work: Work, turns: Turns, promise: Promise[Answer]) -> None:
        """In the worker thread: decode, encode and push, until done or given up."""
        later: Future[Answer] | None = None

        def do() -> None:
            nonlocal later
            with self._job as job, turns.turn(), self._explained():
                answer = work(job, self._body)
                if isinstance(answer, Future):
                    later = answer
                else:
                    self._deliver(answer, promise)

        self._share.retain()
        self._job.callback(self._share.end)
        self._job.callback(self._body.discard)
        error = promise.kept_by(do)
        if later is None:
            self._pipe.finish(error)
        else:
            # What is left is a short answer, and hundreds of them may wait for the store.
            self._share.release_reserved(_WINDOWS)
            later.add_done_callback(
                lambda done: self._pipe.finish(promise.kept_by(lambda: self._deliver(done.result(), promise)))
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What was found wrong in a body that was altered on its way is no fault of its sender."""
        try:
            yield
        except LimitExceeded:
            raise
        except InputError:
            self._body.require_unaltered()
            raise

    def _deliver(self, answer: Answer, promise: Promise[Answer]) -> None:
        """Give the head of the answer to the event loop, which waits for it, then its bytes to the pipe."""
        promise.keep(answer)
        for chunk in answer.chunks:
            self._pipe.write(chunk)

    def _abandon(self) -> None:
        """The client is gone: the worker shall stop soon."""
        self._pipe.abandon()
        self._share.give_up()

    def _end(self) -> None:
        """Let go of everything that a worker may wait for; harmless where it has ended."""
        self._abandon()
        self._body.interrupt()
        self._pump.cancel()
        self._share.end()


class _PipeResponse(BareResponse):
    """Sends what comes out of a pipe; ends without the last chunk where the work failed."""

    def __init__(
        self, pipe: OutputPipe, on_end: Callable[[], None], status: int, headers: Mapping[str, str]
    ) -> None:
        super().__init__(status, headers)
        self._pipe = pipe
        self._on_end = on_end
        self._left_s = _SPOOLED_STALL_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive  # the pump has the receiving end
        try:
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            while (piece := await self._pipe.next_piece()) is not None:
                await self._send_piece(send, piece)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            logger.warning("answer broken off: the service is shutting down")
        except ShardsmithError as error:
            # Returning before the last chunk makes the server close the connection.
            logger.warning("answer broken off: %s: %s", error.code, error.detail)
        finally:
            self._on_end()

    async def _send_piece(self, send: Send, piece: Buffer) -> None:
        """Send it. A client that takes an answer slowly must not keep room of the spool from others.

        Raises:
            StreamTimeout: the client takes what is spooled at less than the least rate.
        """
        message = {"type": "http.response.body", "body": piece, "more_body": True}
        if not self._pipe.is_spooled:
            await send(message)
            return
        begin = time.monotonic()
        try:
            await in_time(lambda: send(message), max(self._left_s, 0))
        except TimeoutError:
            raise StreamTimeout(
                f"The client took less than {_SPOOLED_RATE} bytes a second of an answer on the spool."
            ) from None
        earned = memoryview(piece).nbytes / _SPOOLED_RATE
        self._left_s = min(self._left_s - (time.monotonic() - begin) + earned, _SPOOLED_STALL_S)
