"""More requests than the service can carry are refused before anything is done; probes never are."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.api import admission
from app.api.admission import Admission, Load
from app.api.http1.connections import PROBES


class Asked:
    """What a request got."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def send(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.messages[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])


async def no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def held_up(until: asyncio.Event) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        if scope["path"] not in PROBES:
            await until.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    return app


async def ask(app: Admission, path: str = "/v1/forms", method: str = "GET") -> Asked:
    asked = Asked()
    await app({"type": "http", "path": path, "method": method}, no_body, asked.send)
    return asked


def with_one_under_way(test: Callable[[Admission], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        until = asyncio.Event()
        load = Load()
        load.let_in = options.get("let_in", 1.0)
        app = Admission(held_up(until), max_requests=options.get("max_requests", 1), load=load)
        first = asyncio.create_task(ask(app))
        await asyncio.sleep(0)
        await test(app)
        until.set()
        assert (await first).status == 200
        assert (await ask(app)).status == 200  # there is room again

    asyncio.run(run())


def test_request_over_the_limit_is_503_with_retry_after() -> None:
    async def test(app: Admission) -> None:
        asked = await ask(app)
        assert asked.status == 503
        assert int(asked.headers[b"retry-after"]) in (1, 2, 3)
        assert asked.headers[b"content-type"] == b"application/problem+json"
        assert json.loads(asked.body)["code"] == "overloaded"
        assert len(asked.body) == int(asked.headers[b"content-length"])

    with_one_under_way(test)


def test_head_is_refused_without_a_body() -> None:
    async def test(app: Admission) -> None:
        asked = await ask(app, method="HEAD")
        assert (asked.status, asked.body) == (503, b"")

    with_one_under_way(test)


@pytest.mark.parametrize("path", sorted(PROBES))
def test_probes_pass_under_overload(path: str) -> None:
    async def test(app: Admission) -> None:
        assert (await ask(app, path)).status == 200

    with_one_under_way(test)


def test_a_share_is_refused_while_the_loop_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_ALWAYS_LET_IN", 1)

    async def test(app: Admission) -> None:
        assert (await ask(app)).status == 503

    with_one_under_way(test, max_requests=100, let_in=0.0)


def test_a_few_requests_are_let_in_however_late_the_loop_is() -> None:
    async def run() -> None:
        until, load = asyncio.Event(), Load()
        until.set()
        load.let_in = 0.0
        asked = await ask(Admission(held_up(until), max_requests=100, load=load))
        assert asked.status == 200

    asyncio.run(run())


def test_lasting_delay_lowers_admission_until_it_ends() -> None:
    load = Load()
    for _ in range(100):
        load.observe(1.0)
    assert load.let_in == pytest.approx(0.5)
    for _ in range(1000):
        load.observe(1.0)
    assert load.let_in > 0
    for _ in range(1000):
        load.observe(0.0)
    assert load.let_in == 1.0


def test_a_burst_changes_nothing() -> None:
    load = Load()
    for look in range(1000):
        load.observe(0.0 if look % 10 == 0 else 5.0)
    assert load.let_in == 1.0
