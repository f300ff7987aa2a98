"""Small requests, answered where they arrive: without routing, and conversions without a thread.

Whatever is out of the ordinary goes the ordinary way, from the beginning: a body that is not small, an answer
that would hold more than 256 KiB, and all that is refused. So there is one place that says what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..codecs import kernels
from ..domain.limits import KIB
from ..errors import ShardsmithError, StreamInterrupted
from ..runtime.amplification import Amplification
from ..runtime.budget import Budget
from ..runtime.streams import ByteStream, MemoryStream
from ..services.deferred import then
from .body.content_encoding import AnswerCoding, choose_coding
from .body.transcoding import encoded_answer
from .digests import digest_field
from .exchange import COMPLETE_UP_TO, counted
from .http1.limits import BODY_DEADLINES
from .lanes import Promise
from .patience import shutting_down
from .problems import response_for
from .refusal import refuse
from .small_bodies import read_small, replayed
from .state import Services
from .work import Answer

__all__ = ["Conversion", "FastPath", "Quick", "QuickRoute", "quick_conversion"]

#: Converting so much from the slowest form, nested JSON, takes milliseconds in which nothing else is served.
_MAX_BODY_BYTES: Final = 32 * KIB
_MAX_DECODED_BYTES: Final = 256 * KIB
#: Of query and headers together, where they are remembered.
_MAX_KEY_BYTES: Final = 2 * KIB
_MOST_REMEMBERED: Final = 512
#: What says how a body is read and how it is answered.
_SAYING: Final = frozenset(
    {b"content-type", b"accept", b"accept-encoding", b"inference-header-content-length"}
)
#: What says something that only the ordinary way knows about.
_EXTRAORDINARY: Final = frozenset(
    {b"content-encoding", b"content-transfer-encoding", b"expect", b"idempotency-key", b"transfer-encoding"}
)

_DATASETS: Final = "/v1/datasets/"
_RECORDS: Final = "/records"
_SLASHES: Final = 4
#: Digits of a Content-Length that is worth a look.
_LONGEST_SIZE: Final = 10

QueryT = TypeVar("QueryT", bound=BaseModel)

RawHeaders = tuple[tuple[bytes, bytes], ...]

#: What a request asks for, done to a body; of no single request.
Conversion = Callable[[ByteStream, Budget, ExitStack], Answer]
#: What is done for a path and a body. None: it would have to wait, or is refused, and nothing was done.
Quick = Callable[[str, bytes, Budget], Answer | Future[Answer | None] | None]


@dataclass(frozen=True, slots=True)
class QuickRoute:
    """A route that answers small requests at once.

    Attributes:
        query: its parameters.
        prepare: what to do with each body that comes with such parameters and headers; None where that may
            wait for something. Raises as the route does.
    """

    query: type[BaseModel]
    prepare: Callable[[Any, Headers, Services], Quick | None]


def quick_conversion(
    query: type[QueryT],
    prepare: Callable[[QueryT, Headers, Services], Conversion],
    *,
    is_ordinary: Callable[[QueryT], bool] = lambda _: False,
) -> QuickRoute:
    """The route of a conversion, which waits for nothing but where its parameters say so (`is_ordinary`)."""

    def prepared(query: QueryT, headers: Headers, services: Services) -> Quick | None:
        if is_ordinary(query):
            return None
        convert = prepare(query, headers, services)

        def quick(_: str, body: bytes, budget: Budget) -> Answer:
            with ExitStack() as resources:
                answer = counted(convert(MemoryStream(body), budget, resources), budget)
                answer.chunks = iter(list(answer.chunks))
                return answer

        return quick

    return QuickRoute(query, prepared)


class FastPath:
    """The application behind it, and its answers to small requests.

    Args:
        app: answers all else.
        routes: by path.
        appends: the route to append to a dataset, whose path has its name.
        conversions: the paths of which all that is posted there takes a worker, unless it is answered here.
        services: what they work with.
        body_timeout_s: as long may a body be silent.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Mapping[str, QuickRoute],
        appends: QuickRoute,
        conversions: Collection[str],
        services: Services,
        body_timeout_s: float,
    ) -> None:
        limits = services.limits
        self._app = app
        self._routes = routes
        self._appends = appends
        self._conversions = conversions
        self._services = services
        self._limits = replace(limits, max_decoded_bytes=min(limits.max_decoded_bytes, _MAX_DECODED_BYTES))
        self._max_body_bytes = min(limits.max_body_bytes, _MAX_BODY_BYTES)
        self._body_timeout_s = body_timeout_s
        self._prepared: dict[tuple[QuickRoute, bytes, RawHeaders], Quick | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        complete = None
        try:
            quick = self._quick(scope)
            if quick is not None:
                minded = BODY_DEADLINES in scope.get("extensions", ())
                body, taken = await read_small(receive, None if minded else self._body_timeout_s)
                answer = None if body is None else self._answer(quick, scope["path"], body)
                complete = _complete(await _arrived(answer) if isinstance(answer, Future) else answer)
                receive = replayed(taken, receive)
        except StreamInterrupted:
            return None  # nobody is left to be answered
        except ShardsmithError as error:
            return await response_for(error)(scope, receive, send)
        if complete is None:
            refused = self._is_refused(scope)
            return await (refuse(scope, send) if refused else self._app(scope, receive, send))
        start, content = complete
        await send(start)
        await send({"type": "http.response.body", "body": content})
        return None

    def _is_refused(self, scope: Scope) -> bool:
        """Whether it is a conversion for which there is no room, as the ordinary way finds at its end."""
        is_conversion = scope["method"] == "POST" and scope["path"] in self._conversions
        return is_conversion and self._services.exchanges.are_full_for(scope)

    def _quick(self, scope: Scope) -> Quick | None:
        """What the head of a request asks for, unless that is out of the ordinary."""
        path: str = scope["path"]
        route = self._routes.get(path)
        if (
            route is None
            and path.startswith(_DATASETS)
            and path.endswith(_RECORDS)
            and path.count("/") == _SLASHES
        ):
            route = self._appends
        if route is None or scope["method"] != "POST" or not kernels.are_compiled():
            return None  # to compile one would stop the event loop for seconds
        saying, size = [], -1
        for header in scope["headers"]:
            name, value = header
            if name in _SAYING:
                saying.append(header)
            elif name == b"content-length":
                size = int(value) if value.isdigit() and len(value) < _LONGEST_SIZE else -1
            elif name in _EXTRAORDINARY:
                return None
        if not 0 <= size <= self._max_body_bytes:
            return None
        key = (route, scope["query_string"], tuple(saying))
        try:
            return self._prepared[key]
        except KeyError:
            return self._prepare(*key)

    def _prepare(self, route: QuickRoute, query_string: bytes, headers: RawHeaders) -> Quick | None:
        if len(query_string) + sum(len(name) + len(value) for name, value in headers) > _MAX_KEY_BYTES:
            return None
        parameters = QueryParams(query_string)
        given = dict(parameters.multi_items())
        quick = None
        if len(given) == len(parameters.multi_items()):
            with suppress(ValidationError, ShardsmithError):
                query, named = route.query.model_validate(given), Headers(raw=list(headers))
                coding = choose_coding(named, encodes=self._services.exchanges.encodes_answers)
                quick = _encoded(route.prepare(query, named, self._services), coding)
        if len(self._prepared) >= _MOST_REMEMBERED:
            self._prepared.clear()
        self._prepared[route, query_string, headers] = quick
        return quick

    def _answer(self, quick: Quick, path: str, body: bytes) -> Answer | Future[Answer | None] | None:
        try:
            # What becomes more than this is no small request.
            amplification = Amplification(0, int, allowance=COMPLETE_UP_TO)
            return quick(path, body, Budget(self._limits, amplification=amplification))
        except ShardsmithError:
            return None


def _encoded(quick: Quick | None, coding: AnswerCoding | None) -> Quick | None:
    """`quick`, and its answer as the client asks for it."""
    if quick is None or coding is None:
        return quick

    def encode(answer: Answer | None) -> Answer | None:
        return None if answer is None else encoded_answer(answer, coding)

    def encoded(path: str, body: bytes, budget: Budget) -> Answer | Future[Answer | None] | None:
        answer = quick(path, body, budget)
        return then(answer, encode) if isinstance(answer, Future) else encode(answer)

    return encoded


async def _arrived(answer: Future[Answer | None]) -> Answer | None:
    """An answer that another thread brings.

    Raises:
        OutcomeUnknown: the service is shutting down.
    """
    arrived: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
    promise = Promise(arrived)
    answer.add_done_callback(lambda done: promise.kept_by(lambda: promise.keep(done.result())))
    try:
        return await arrived
    except asyncio.CancelledError:
        raise shutting_down(may_be_done=True) from None


def _complete(answer: Answer | None) -> tuple[Message, bytes] | None:
    """The beginning of an answer and its content, unless it is refused or large."""
    if answer is None:
        return None
    content = b"".join(answer.chunks)
    if len(content) > COMPLETE_UP_TO:
        return None
    headers = {
        "content-type": answer.media_type,
        **answer.headers,
        **answer.late_headers(),
        "content-length": str(len(content)),
        "repr-digest": digest_field(sha256(content).digest()),
    }
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": answer.status, "headers": raw}, content
