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
from concurrent.futures import Future
from contextlib import ExitStack
from hashlib import sha256
from typing import Any, Final, TypeVar

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..domain.limits import KIB, MIB, Limits
from ..errors import LimitExceeded, ShardsmithError, StreamTimeout
from ..runtime.amplification import Amplification
from ..runtime.budget import Budget
from ..runtime.memory import MemoryPool, MemoryShare
from ..runtime.spool import Spool
from ..runtime.streams import Buffer, ByteStream, MemoryStream
from ..runtime.turns import Turns
from .auth.principal import caller_of
from .bare_response import BareResponse
from .body.headers import check_body_headers
from .body.transcoding import transcoded
from .digests import digest_field
from .lanes import Groups, Lane, Promise
from .patience import in_time, shutting_down
from .pipe import BODY_HEAD, BODY_WINDOW, OUTPUT_WINDOW, OutputPipe, RequestBody
from .small_bodies import may_be_small, read_small, replayed
from .work import Answer, Work

logger = logging.getLogger(__name__)

#: An answer up to this size is complete before it starts.
COMPLETE_UP_TO: Final = 1 * MIB
#: Least bytes a second at which a client takes an answer that lies on the spool, on average: 0.5 Mbit/s.
_SPOOLED_RATE: Final = 64 * KIB
#: Seconds that it may stop for.
_SPOOLED_STALL_S = 30.0


_CALL_THREADS: Final = 16
#: How many may wait for a thread: a burst. What stands longer is refused by `Lane`.
_QUEUED_STREAMS: Final = 128
_QUEUED_CALLS: Final = 256
#: Work that does not wait only hands the interpreter's lock around: more threads for it make it slower.
_SMALL_THREADS: Final = 2
_SMALL_QUEUE: Final = 256
#: Where the store hangs, that queue does too: what has waited longer is refused, before its client gives up.
_LONGEST_IN_QUEUE_S: Final = 10.0
#: A download that has begun is broken off rather later.
_LONGEST_FOR_PIECE_S: Final = 60.0
#: All that waits for the store counts together: where that hangs, conversions go on.
_OF_STORE: Final = "store"

T = TypeVar("T")

#: Where a request waits and works, and what it counts with there.
_Place = tuple[Lane, Groups]


class Exchanges:
    """Runs conversions on threads of its own.

    Streams, which hold a thread as long as their client is slow, have one pool; short calls (metadata,
    pieces of downloads) have another, so that the one cannot keep the other waiting. Small bodies whose
    work waits for nothing go through very few threads.

    Args:
        memory: what all of them may hold.
        turns: at computing, for those of streams.
        streams: how many are under way at a time.
        encodes_answers: whether they are, for clients that ask for it.
    """

    def __init__(
        self,
        *,
        limits: Limits,
        spool: Spool,
        memory: MemoryPool,
        turns: Turns,
        streams: int,
        body_timeout_s: float,
        encodes_answers: bool = True,
    ) -> None:
        self.encodes_answers = encodes_answers
        self._limits = limits
        self._spool = spool
        self._memory = memory
        self._turns = turns
        self._body_timeout_s = body_timeout_s
        self._streams = Lane(streams, "stream", queued=_QUEUED_STREAMS)
        self._calls = Lane(_CALL_THREADS, "call", queued=_QUEUED_CALLS)
        self._small = Lane(_SMALL_THREADS, "small", ahead=_SMALL_QUEUE)

    def close(self) -> None:
        """Let running conversions end, take no new ones."""
        self._streams.close()
        self._calls.close()
        self._small.close()

    async def call(self, request: Request, function: Callable[[], T]) -> T:
        """Run a short blocking function in a thread.

        Raises:
            Overloaded: too many wait for one.
        """
        groups = (caller_of(request.scope),)
        await self._calls.enter(groups)
        try:
            return await self._calls.go_on(function, within_s=_LONGEST_IN_QUEUE_S)
        finally:
            self._calls.leave(groups)

    async def go_on(self, function: Callable[[], T]) -> T:
        """As `call`, for what has been let in.

        Raises:
            Overloaded: the threads are taken for long.
        """
        return await self._calls.go_on(function, within_s=_LONGEST_FOR_PIECE_S)

    def are_full_for(self, scope: Scope) -> bool:
        """Whether a conversion that came now would be refused, since too many are under way."""
        return self._streams.is_full_for((caller_of(scope),))

    async def run(
        self,
        request: Request,
        work: Work,
        *,
        checked: bool = False,
        short: bool = False,
        quick: Callable[[bytes], bool] | None = None,
        uses_store: bool = False,
    ) -> Response:
        """Convert the body of `request`.

        Args:
            request: its body and its connection.
            work: what to do, in a thread.
            checked: complete the answer before its first byte leaves.
            short: a call without a stream on either side.
            quick: says of a small body whether the work on it waits for nothing, takes a moment and answers
                little.
            uses_store: it may wait for the store.

        Raises:
            ShardsmithError: whatever the conversion raised before its answer had begun.
        """
        receive = request.receive
        caller = caller_of(request.scope)
        work = transcoded(_counting(work), request.headers, encodes=self.encodes_answers)
        if quick is not None and may_be_small(request.headers):
            check_body_headers(request.headers, self._limits)
            small, taken = await read_small(receive, self._body_timeout_s)
            if small is not None and quick(small):
                return await self._run_small(work, small, (caller,))
            receive = replayed(taken, receive)
        complete = checked or request.scope.get("http_version") == "1.0"
        place = (self._calls, (caller,)) if short else (self._streams, _groups(caller, uses_store=uses_store))
        return await self._run_streamed(request, receive, work, place, complete=complete)

    async def _run_streamed(
        self, request: Request, receive: Receive, work: Work, place: _Place, *, complete: bool
    ) -> Response:
        """Convert a body while it arrives, to an answer that may begin before it ends."""
        # Before anything is read: a client that expects `100 Continue` shall not be asked for it.
        try:
            check_body_headers(request.headers, self._limits)
        except LimitExceeded:
            request.state.body_unread = True
            raise
        share = self._memory.share(max_seconds=self._limits.max_seconds)
        share.reserve(BODY_HEAD)
        # What is read of a dataset is in no proportion to the request for it.
        reads = request.method in ("GET", "HEAD")
        body = RequestBody(
            max_bytes=self._limits.max_body_bytes,
            timeout_s=self._body_timeout_s,
            require_open=share.require_open,
        )
        budget = self._budget(None if reads else lambda: body.received, share)
        limit = None if complete else COMPLETE_UP_TO
        pipe = OutputPipe(
            self._spool,
            lambda: body.ended and not complete,
            digest_limit=limit,
            timeout_s=self._body_timeout_s,
            body_spooled=lambda: budget.spooled,
        )
        pump = asyncio.create_task(body.pump(receive, lambda: _abandon(pipe, share)))
        try:
            await body.wait_for_head(BODY_HEAD)
            head = await self._start(place, work, body, pipe, share, budget)
            done = await pipe.settle(limit)
        except asyncio.CancelledError:
            # uvicorn cancels what is left when the grace of a shutdown ends, and still sends an answer.
            may_be_done = body.ended and not reads and self._may_store(place)
            _give_up(pipe, body, pump, share)
            raise shutting_down(may_be_done=may_be_done) from None
        except BaseException as error:
            # Too much to let in: the connection is closed on it, by and by.
            request.state.body_unread = isinstance(error, LimitExceeded) and not body.complete
            _give_up(pipe, body, pump, share)
            raise
        headers = dict(head.headers)
        if head.status == 204:
            _give_up(pipe, body, pump, share)
            return Response(None, 204, headers)
        if done:
            headers |= head.late_headers()
            headers |= {"Content-Length": str(pipe.size), "Repr-Digest": pipe.repr_digest()}
        else:
            headers |= head.early_headers()
        return _PipeResponse(
            pipe, lambda: _give_up(pipe, body, pump, share), head.status, headers, head.media_type
        )

    async def _run_small(self, work: Work, body: bytes, groups: Groups) -> Response:
        """Convert a body that is there, to an answer that is complete before it starts."""
        complete: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        promise = Promise(complete)
        begun = False
        try:
            await self._submit(
                (self._small, groups), promise, lambda: self._convert_small(work, body, promise)
            )
            begun = True
            return await complete
        except asyncio.CancelledError:
            raise shutting_down(may_be_done=begun) from None

    def _convert_small(self, work: Work, body: bytes, promise: Promise[Response]) -> None:
        def convert() -> None:
            with ExitStack() as resources:
                answer = work(MemoryStream(body), self._budget(lambda: len(body)), resources)
                if isinstance(answer, Future):
                    answer.add_done_callback(
                        lambda done: promise.kept_by(lambda: promise.keep(_complete(done.result())))
                    )
                else:
                    promise.keep(_complete(answer))

        promise.kept_by(convert)

    def _may_store(self, place: _Place) -> bool:
        lane, groups = place
        return lane is self._calls or _OF_STORE in groups

    def _budget(self, received: Callable[[], int] | None, share: MemoryShare | None = None) -> Budget:
        """Of a request, of whose body so much has arrived; None where that bounds nothing."""
        if received is None:
            return Budget(self._limits, share)
        return Budget(self._limits, share, Amplification(self._limits.max_amplification, received))

    async def _start(
        self,
        place: _Place,
        work: Work,
        body: RequestBody,
        pipe: OutputPipe,
        share: MemoryShare,
        budget: Budget,
    ) -> Answer:
        """Run `work` in the first thread that comes free, and wait for the head of its answer."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        promise = Promise(answer)
        await self._submit(
            place, promise, lambda: self._convert(work, body, pipe, share, budget, promise), share
        )
        return await answer

    async def _submit(
        self,
        place: _Place,
        promise: Promise[Any],
        convert: Callable[[], None],
        share: MemoryShare | None = None,
    ) -> None:
        lane, groups = place
        await lane.enter(groups)
        try:
            if share is not None:
                share.reserve(BODY_WINDOW - BODY_HEAD + OUTPUT_WINDOW)
            lane.start(convert, promise, groups, within_s=_LONGEST_IN_QUEUE_S)
        except BaseException:
            lane.leave(groups)
            raise

    def _convert(
        self,
        work: Work,
        body: RequestBody,
        pipe: OutputPipe,
        share: MemoryShare,
        budget: Budget,
        promise: Promise[Answer],
    ) -> None:
        """In the worker thread: decode, encode and push, until done or given up."""
        later: Future[Answer] | None = None

        def convert() -> None:
            nonlocal later
            with self._turns.turn(), ExitStack() as resources:
                answer = work(body, budget, resources)
                if isinstance(answer, Future):
                    later = answer
                else:
                    _deliver(answer, promise, pipe)

        share.retain()
        error = promise.kept_by(convert)
        share.end()
        body.discard()
        if later is None:
            pipe.finish(error)
        else:
            later.add_done_callback(
                lambda done: pipe.finish(promise.kept_by(lambda: _deliver(done.result(), promise, pipe)))
            )


def _groups(caller: str, *, uses_store: bool) -> Groups:
    return (caller, _OF_STORE) if uses_store else (caller,)


def _abandon(pipe: OutputPipe, share: MemoryShare) -> None:
    """The client is gone: the worker shall stop soon."""
    pipe.abandon()
    share.give_up()


def _give_up(pipe: OutputPipe, body: RequestBody, pump: asyncio.Task[None], share: MemoryShare) -> None:
    """Let go of everything that a worker may wait for; harmless where it has ended."""
    _abandon(pipe, share)
    body.interrupt()
    pump.cancel()
    share.end()


def _deliver(answer: Answer, promise: Promise[Answer], pipe: OutputPipe) -> None:
    """Give the head of the answer to who waits for it, then its bytes to the pipe."""
    promise.keep(answer)
    for chunk in answer.chunks:
        pipe.write(chunk)


def counted(answer: Answer, budget: Budget) -> Answer:
    """The answer; its bytes count from now on as what the body becomes.

    Drawing them raises LimitExceeded where that is too much for the size of the body.
    """
    answer.chunks = _count_chunks(answer.chunks, budget)
    return answer


def _count_chunks(chunks: Iterator[Buffer], budget: Budget) -> Iterator[Buffer]:
    for chunk in chunks:
        budget.amplify("answered", memoryview(chunk).nbytes)
        yield chunk


def _counting(work: Work) -> Work:
    def count(body: ByteStream, budget: Budget, resources: ExitStack) -> Answer | Future[Answer]:
        answer = work(body, budget, resources)
        return answer if isinstance(answer, Future) else counted(answer, budget)

    return count


def _complete(answer: Answer) -> Response:
    content = b"".join(answer.chunks)
    headers = {
        **answer.headers,
        **answer.late_headers(),
        "Repr-Digest": digest_field(sha256(content).digest()),
    }
    return Response(content, answer.status, headers, answer.media_type)


class _PipeResponse(BareResponse):
    """Sends what comes out of a pipe; ends without the last chunk where the conversion failed."""

    def __init__(
        self,
        pipe: OutputPipe,
        on_end: Callable[[], None],
        status: int,
        headers: Mapping[str, str],
        media_type: str,
    ) -> None:
        super().__init__(status, {"Content-Type": media_type, **headers})
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
        """Send it. Who takes an answer slowly must not keep room of the spool from others.

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
