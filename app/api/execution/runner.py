"""Carries out plans: small requests on the event loop, all others in worker threads."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from hashlib import sha256
from typing import Any, Final, TypeVar

from fastapi import Request
from starlette.responses import Response

from ...codecs import kernels
from ...errors import LimitExceeded, ShardsmithError
from ...runtime.memory import MemoryPool
from ...runtime.streams import MemoryStream
from ...runtime.turns import Turns
from ..admission import refusal
from ..auth.principal import caller_of
from ..bare_response import BareResponse
from ..body.digests import declared_digests
from ..body.headers import check_body_headers
from ..digests import digest_field
from ..http1.limits import BODY_DEADLINES
from ..patience import shutting_down
from ..state import Services
from .exchange import Exchange
from .job import Answer, Declined, Job, Plan, Work
from .lanes import LONGEST_IN_QUEUE_S, Groups, Lane, Promise
from .small import BODY_BYTES, is_small, read_small, replay, small_budget, small_limits

_METADATA_THREADS: Final = 16
#: How many may wait for a thread: a burst. What stands longer is refused by `Lane`.
_QUEUED_CONVERSIONS: Final = 128
_QUEUED_METADATA: Final = 256
#: A download that has begun is broken off rather later.
_LONGEST_FOR_PIECE_S: Final = 60.0
#: All that waits for the store counts together: where that hangs, conversions go on.
_OF_STORE: Final = "store"

T = TypeVar("T")


class Runner:
    """Runs work on threads of its own, or on the event loop.

    Conversions hold a thread as long as their client is slow. Metadata and pieces of downloads have other
    threads, so that conversions cannot keep them waiting.

    Args:
        services: what the work is done with.
        memory: what all of it may hold.
        turns: at computing, for conversions.
        conversions: how many are under way at a time.
        body_timeout_s: how long a body may be silent.
        encodes_answers: whether answers are compressed for clients that ask for it.
    """

    def __init__(
        self,
        services: Services,
        *,
        memory: MemoryPool,
        turns: Turns,
        conversions: int,
        body_timeout_s: float,
        encodes_answers: bool = True,
    ) -> None:
        self.encodes_answers = encodes_answers
        #: What each operation has made and keeps, by its id.
        self.plans: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self._services = services
        self._memory = memory
        self._turns = turns
        self._body_timeout_s = body_timeout_s
        self._conversions = Lane(conversions, "conversion", queued=_QUEUED_CONVERSIONS)
        self._metadata = Lane(_METADATA_THREADS, "metadata", queued=_QUEUED_METADATA)
        self._small_limits = small_limits(services.limits)
        self._small_bytes = min(services.limits.max_body_bytes, BODY_BYTES)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The threads, by what they are for."""
        return self._conversions, self._metadata

    def close(self) -> None:
        """Let running work end, take no more."""
        self._conversions.close()
        self._metadata.close()

    async def call(self, request: Request, function: Callable[[], T]) -> T:
        """Run a short blocking function in a thread.

        Raises:
            Overloaded: too many wait for one.
        """
        groups = (caller_of(request.scope),)
        await self._metadata.enter(groups)
        try:
            return await self._metadata.go_on(function, within_s=LONGEST_IN_QUEUE_S)
        finally:
            self._metadata.leave(groups)

    async def go_on(self, function: Callable[[], T]) -> T:
        """As `call`, for what has been let in.

        Raises:
            Overloaded: the threads are taken for long.
        """
        return await self._metadata.go_on(function, within_s=_LONGEST_FOR_PIECE_S)

    async def run(self, request: Request, plan: Plan) -> Response:
        """Carry out `plan` for one request.

        What is refused on the event loop, or outgrows its bounds there, begins anew in a thread: so there is
        one place that says what is wrong.

        Raises:
            ShardsmithError: whatever the work raised before its answer had begun.
        """
        scope, receive = request.scope, request.receive
        digests = declared_digests(scope)
        if plan.on_loop is not None and self._may_run_on_loop(request):
            # A server with deadlines of its own looks after a silent client.
            timeout_s = None if BODY_DEADLINES in scope.get("extensions", ()) else self._body_timeout_s
            body, taken = await read_small(receive, timeout_s)
            if digests is not None:
                digests.take(body)
                digests.take(b"")
                digests = None
            response = await self._run_on_loop(request, plan.on_loop, body)
            if response is not None:
                return response
            receive = replay(taken, receive)
        lane, groups = self._place(request, plan)
        if lane.is_full_for(groups):
            return refusal(request.method, "threads")
        # Before anything is read: a client that expects `100 Continue` shall not be asked for it.
        try:
            check_body_headers(request.headers, self._services.limits)
        except LimitExceeded:
            request.state.body_unread = True
            raise
        exchange = Exchange(
            request,
            receive,
            self._services,
            self._memory,
            complete=plan.complete_first or scope.get("http_version") == "1.0",
            timeout_s=self._body_timeout_s,
            digests=digests,
        )
        return await exchange.run(plan.work, lane, groups, self._turns, may_store=plan.lane != "conversion")

    def _place(self, request: Request, plan: Plan) -> tuple[Lane, Groups]:
        """Where the work waits for a thread, and what it counts with there."""
        caller = caller_of(request.scope)
        is_short = plan.lane == "append" and self._is_small(request)
        if is_short or plan.lane == "metadata":
            return self._metadata, (caller,)
        return self._conversions, (caller,) if plan.lane == "conversion" else (caller, _OF_STORE)

    def _may_run_on_loop(self, request: Request) -> bool:
        # To compile a kernel would stop the event loop for seconds.
        return self._is_small(request) and kernels.are_compiled()

    def _is_small(self, request: Request) -> bool:
        return is_small(request.scope["headers"], self._small_bytes)

    async def _run_on_loop(self, request: Request, work: Work, body: bytes) -> Response | None:
        """The answer to a small body; None where nothing was done, and a thread has to do it."""
        budget = small_budget(self._small_limits, len(body))
        job = Job(request, self._services, budget, len(body), is_on_loop=True)
        try:
            with job:
                answer = work(job, MemoryStream(body))
                if not isinstance(answer, Future):
                    return _complete(answer)
        except (Declined, ShardsmithError):
            return None
        try:
            return _complete(await _arrival(answer))
        except Declined:
            return None


async def _arrival(answer: Future[Answer]) -> Answer:
    """An answer that another thread brings.

    Raises:
        OutcomeUnknown: the service is shutting down.
    """
    arrived: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    promise = Promise(arrived)
    answer.add_done_callback(lambda done: promise.kept_by(lambda: promise.keep(done.result())))
    try:
        return await arrived
    except asyncio.CancelledError:
        raise shutting_down(may_be_done=True) from None


def _complete(answer: Answer) -> Response:
    """The response to an answer that is complete before it starts."""
    content = b"".join(answer.chunks)
    headers = {
        "content-type": answer.media_type,
        **answer.headers,
        **answer.late_headers(),
        "content-length": str(len(content)),
        "repr-digest": digest_field(sha256(content).digest()),
    }
    return BareResponse(answer.status, headers, content)
