"""A route makes one plan for all requests that say the same, and checks what they say."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Header, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from app.api.application import Application
from app.api.execution.job import Answer, Job, Plan
from app.api.operation import Handler, NegotiatingHeaders, Operation
from app.api.query.rows import NoQuery
from app.runtime.streams import ByteStream


class SizeQuery(NoQuery):
    size: Annotated[int, Field(ge=1)] = 1


class Told:
    """What each plan was made for, and a runner that answers with what the plan is called."""

    encodes_answers = True

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.plans: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self.serve(self._router().routes)

    def serve(self, routes: Sequence[BaseRoute]) -> None:
        """Have an application with these routes."""
        self.app = Application(routes=list(routes))
        self.app.state.runner = self

    def _router(self) -> APIRouter:
        router = APIRouter(prefix="/things", route_class=Operation, default_response_class=Response)

        def work(_: Job, __: ByteStream) -> Answer:
            raise AssertionError

        @router.post("")
        def create(
            query: Annotated[SizeQuery, Query()],
            headers: NegotiatingHeaders,
            idempotency_key: Annotated[str | None, Header()] = None,
        ) -> Plan:
            self.made.append((query.size, dict(headers), idempotency_key))
            return Plan(work, "conversion")

        @router.get("/{thing}")
        def get(thing: str) -> Plan:
            self.made.append((thing,))
            return Plan(work, "metadata")

        @router.get("/{thing}/file")
        def download(thing: str) -> Handler:
            async def answer(request: Request) -> Response:
                return PlainTextResponse(f"{thing} {request.method}")

            return answer

        @router.get("/{thing}/defect")
        def fail(thing: str) -> Handler:
            async def answer(_: Request) -> Response:
                raise RuntimeError(thing)

            return answer

        return router

    async def run(self, request: Request, plan: Plan) -> Response:
        return PlainTextResponse(f"{plan.lane} {request.headers.get('x-other', '')}".strip())

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, *, raises: bool = True
    ) -> httpx.Response:
        async def answer() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=raises)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                client.headers.clear()
                return await client.request(method, path, headers=headers)

        return asyncio.run(answer())


@pytest.fixture
def told() -> Told:
    return Told()


def test_requests_that_say_the_same_share_a_plan(told: Told) -> None:
    for other in ("a", "b"):
        answer = told.ask("POST", "/things?size=3", {"Accept": "text/csv", "X-Other": other})
        assert answer.text == f"conversion {other}"
    assert told.made == [(3, {"accept": "text/csv"}, None)]


@pytest.mark.parametrize(
    "name",
    ["Accept", "Accept-Encoding", "Content-Encoding", "Content-Type", "Inference-Header-Content-Length"],
)
def test_another_header_that_negotiates_makes_another_plan(told: Told, name: str) -> None:
    for value in ("gzip", "identity", "gzip"):
        assert told.ask("POST", "/things", {name: value}).status_code == 200
    assert [headers for _, headers, _ in told.made] == [{name.lower(): "gzip"}, {name.lower(): "identity"}]


def test_another_application_with_the_same_routes_makes_its_own_plan(told: Told) -> None:
    """Its limits may be others, and a plan holds what was read within them."""
    told.ask("POST", "/things?size=3")
    other = Told()
    other.serve(told.app.routes)
    for asked in (other, told, other):
        assert asked.ask("POST", "/things?size=3").status_code == 200
    assert len(told.made) == 2


def test_another_query_or_path_makes_another_plan(told: Told) -> None:
    for path in ("/things/a", "/things/b", "/things/a"):
        assert told.ask("GET", path).text == "metadata"
    for query in ("size=1", "size=2", "size=1"):
        told.ask("POST", f"/things?{query}")
    assert [made[0] for made in told.made] == ["a", "b", 1, 2]


def test_a_plan_with_an_idempotency_key_or_for_a_long_request_is_not_kept(told: Told) -> None:
    for _ in range(2):
        told.ask("POST", "/things", {"Idempotency-Key": "k"})
        told.ask("POST", "/things", {"Accept": "text/csv, " + "*/*," * 600})
    assert [key for _, _, key in told.made] == ["k", None, "k", None]


def test_no_more_plans_are_kept_than_so_many(told: Told) -> None:
    for number in range(1, 600):
        told.ask("POST", f"/things?size={number}")
    told.ask("POST", "/things?size=599")
    assert len(told.made) == 599
    told.ask("POST", "/things?size=1")
    assert len(told.made) == 600


@pytest.mark.parametrize(
    ("target", "code", "parameter"),
    [
        ("/things?sise=3", "unknown_parameter", "sise"),
        ("/things?size=0", "invalid_parameter", "size"),
        ("/things?size=x", "invalid_parameter", "size"),
        ("/things?size=1&size=1", "repeated_parameter", "size"),
        ("/things?sise=1&sise=1", "unknown_parameter", "sise"),
    ],
)
def test_parameters_are_checked(told: Told, target: str, code: str, parameter: str) -> None:
    for _ in range(2):
        answer = told.ask("POST", target)
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["parameter"]) == (400, code, parameter)
    assert told.made == []


def test_a_route_without_parameters_refuses_any(told: Told) -> None:
    assert told.ask("GET", "/things/a?size=1").json()["code"] == "unknown_parameter"


def test_two_idempotency_keys_are_refused(told: Told) -> None:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(told.app), base_url="http://localhost"
        ) as client:
            return await client.post("/things", headers=[("Idempotency-Key", "a"), ("Idempotency-Key", "b")])

    assert asyncio.run(ask()).json()["code"] == "repeated_header"


def test_methods_and_paths_that_are_not_there_are_refused(told: Told) -> None:
    refused = told.ask("DELETE", "/things")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    refused = told.ask("POST", "/things/a")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
    assert told.ask("POST", "/things/").status_code == 404


def test_a_handler_answers_by_itself(told: Told) -> None:
    assert told.ask("GET", "/things/a/file").text == "a GET"


def test_a_defect_is_answered_and_left_to_the_server_to_log(told: Told) -> None:
    with pytest.raises(RuntimeError, match="secret"):
        told.ask("GET", "/things/secret/defect")
    answer = told.ask("GET", "/things/secret/defect", raises=False)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "secret" not in answer.text
