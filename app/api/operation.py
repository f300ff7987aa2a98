"""A route of the service: what it takes, and the plan that it makes of a request.

A route is a plain function that gives a `Plan`, and is declared as FastAPI's routes are:

    @router.post("/{dataset}/records", operation_id="append_records")
    def append_records(dataset: str, query: AppendParameters, headers: NegotiatingHeaders) -> Plan: ...

It is called with the parameters of the path, the query (a model, by which it is checked), the headers that
negotiate, and `idempotency_key`, as far as it declares them. Since it sees nothing else of a request, its
plan is kept for all requests that say the same. FastAPI reads the declaration for the OpenAPI document alone:
its own way to the parameters of a small request takes longer than the conversion.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import MalformedInput, ShardsmithError
from ..runtime.budget import Budget
from ..runtime.streams import Buffer, ByteStream
from ..telemetry.stages import count_whole
from ..tracing import WholeConversion
from .body.content_encoding import choose_coding, parse_content_encoding
from .execution.job import Answer, Job, Plan, Work
from .execution.runner import Runner
from .execution.transcoding import transcoded
from .problems import defect, invalid_request, response_for
from .query.rows import NoQuery

#: Answers a request by itself, as downloads do.
Handler = Callable[[Request], Awaitable[Response]]

_RawHeaders = tuple[tuple[bytes, bytes], ...]
#: Path, query and headers.
_Key = tuple[str, bytes, _RawHeaders]

_IDEMPOTENCY_KEY: Final = b"idempotency-key"
#: The headers that a plan depends on.
_NEGOTIATING: Final = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"content-encoding",
        b"content-type",
        b"inference-header-content-length",
        _IDEMPOTENCY_KEY,
    }
)
#: Of path, query and headers together, where their plan is kept.
_MAX_KEY_BYTES: Final = 2 * 1024
#: For each route; if there are more, all are dropped.
_MOST_KEPT: Final = 128


def _headers() -> Headers:
    raise NotImplementedError("`Operation` gives the headers")


#: The type of a route's parameter `headers`: those that negotiate, and the Idempotency-Key.
NegotiatingHeaders = Annotated[Headers, Depends(_headers)]


class Operation(APIRoute):
    """A route whose endpoint gives a `Plan`, or a `Handler`."""

    methods: set[str]

    def __init__(self, path: str, endpoint: Callable[..., Plan | Handler], **options: Any) -> None:
        super().__init__(path, endpoint, **{**options, "response_model": None})
        self._wanted, self._query_name, self._query_model = _read_signature(endpoint)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the router. Whatever is raised before the answer begins is answered here."""
        request = Request(scope, receive, send)
        runner: Runner = scope["app"].state.runner
        try:
            plan = self._plan(request, runner)
            response = await (runner.run(request, plan) if isinstance(plan, Plan) else plan(request))
        except ShardsmithError as error:
            response = response_for(error, body_unread=getattr(request.state, "body_unread", False))
            # Its frames hold what the request took, spooled files too, and that holds the error in turn.
            error.__traceback__ = None
        except RequestValidationError as error:
            response = invalid_request(error.errors())
        except Exception:
            await defect()(scope, receive, send)
            raise  # the server logs it
        await response(scope, receive, send)

    def _plan(self, request: Request, runner: Runner) -> Plan | Handler:
        """What to do for a request.

        Raises:
            RequestValidationError: a parameter that is unknown, or cannot be.
            ShardsmithError: what is asked for is not served here.
        """
        scope = request.scope
        raw = tuple(header for header in scope["headers"] if header[0] in _NEGOTIATING)
        key = (scope["path"], scope["query_string"], raw)
        # With the runner, since a plan holds what was read within the limits of one application.
        plans = runner.plans[self.unique_id]
        plan = plans.get(key)
        if plan is None:
            plan = self._make_plan(scope, Headers(raw=list(raw)), encodes=runner.encodes_answers)
            if _may_be_kept(key):
                if len(plans) >= _MOST_KEPT:
                    plans.clear()
                plans[key] = plan
        return plan

    def _make_plan(self, scope: Scope, headers: Headers, *, encodes: bool) -> Plan | Handler:
        query = _checked(self._query_model, QueryParams(scope["query_string"]), headers)
        given = {
            **scope["path_params"],
            self._query_name: query,
            "headers": headers,
            "idempotency_key": headers.get("idempotency-key"),
        }
        plan = self.endpoint(**{name: given[name] for name in self._wanted})
        return _complete(plan, headers, encodes=encodes) if isinstance(plan, Plan) else plan


def _read_signature(endpoint: Callable[..., Any]) -> tuple[Sequence[str], str, type[BaseModel]]:
    """The names of all parameters, that of the query, and its model."""
    parameters = inspect.signature(endpoint, eval_str=True).parameters
    for name, parameter in parameters.items():
        model = getattr(parameter.annotation, "__origin__", None)
        if inspect.isclass(model) and issubclass(model, BaseModel):
            return tuple(parameters), name, model
    return tuple(parameters), "", NoQuery


def _may_be_kept(key: _Key) -> bool:
    path, query, headers = key
    size = len(path) + len(query) + sum(len(name) + len(value) for name, value in headers)
    return size <= _MAX_KEY_BYTES and all(name != _IDEMPOTENCY_KEY for name, _ in headers)


def _checked(model: type[BaseModel], parameters: QueryParams, headers: Headers) -> BaseModel:
    """The query as its model.

    Raises:
        RequestValidationError: an unknown parameter, or a value that it cannot have.
        MalformedInput: a parameter (`repeated_parameter`) or the Idempotency-Key (`repeated_header`) twice.
    """
    given = parameters.multi_items()
    try:
        query = model.model_validate(dict(given))
    except ValidationError as error:
        found = [{**item, "loc": ("query", *item["loc"])} for item in error.errors(include_url=False)]
        raise RequestValidationError(found) from None
    if len(headers.getlist("idempotency-key")) > 1:
        raise MalformedInput("The header Idempotency-Key is given more than once.", code="repeated_header")
    names = [name for name, _ in given]
    for name in names:
        if names.count(name) > 1:
            raise MalformedInput(
                f"The query parameter {name[:40]!r} is given more than once.",
                code="repeated_parameter",
                extra={"parameter": name[:40]},
            )
    return query


def _complete(plan: Plan, headers: Headers, *, encodes: bool) -> Plan:
    """The plan with what all work has in common: encodings are undone and done, and the answer is counted."""
    container, coding = parse_content_encoding(headers), choose_coding(headers, encodes=encodes)

    def completed(work: Work) -> Work:
        return transcoded(_counting(work), container, coding)

    work = completed(plan.work)
    on_loop = work if plan.on_loop is plan.work else plan.on_loop and completed(plan.on_loop)
    return replace(plan, work=work, on_loop=on_loop)


def _counting(work: Work) -> Work:
    """`work`, whose answer counts as what the body becomes."""

    def work_and_count(job: Job, body: ByteStream) -> Answer | Future[Answer]:
        answer = work(job, body)
        if not isinstance(answer, Future):
            count = _count if answer.whole is None else partial(_count_whole, answer.whole)
            answer.chunks = count(answer.chunks, job.budget)
        return answer

    return work_and_count


def _count(chunks: Iterator[Buffer], budget: Budget) -> Iterator[Buffer]:
    for chunk in chunks:
        budget.amplify("answered", memoryview(chunk).nbytes)
        yield chunk


def _count_whole(whole: WholeConversion, chunks: Iterator[Buffer], budget: Budget) -> Iterator[Buffer]:
    num_bytes = ended_ns = 0
    for chunk in chunks:
        ended_ns = perf_counter_ns()  # before anything else is done with it
        size = memoryview(chunk).nbytes
        num_bytes += size
        budget.amplify("answered", size)
        yield chunk
    count_whole(whole, ended_ns or perf_counter_ns(), num_bytes)
