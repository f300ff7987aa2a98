"""Small requests wait for one of few threads, and not for long."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from app.api import exchange
from app.api.exchange import Exchanges
from app.api.work import Answer
from app.domain.limits import Limits
from app.errors import Overloaded
from app.logs import REQUEST_ID
from app.runtime.budget import Budget
from app.runtime.memory import MemoryPool
from app.runtime.spool import Spool
from app.runtime.streams import ByteStream
from app.runtime.turns import Turns


def request() -> Request:
    messages = iter([{"type": "http.request", "body": b"x", "more_body": False}])

    async def receive() -> dict[str, object]:
        message: dict[str, object] | None = next(messages, None)
        if message is None:
            await asyncio.Event().wait()  # the client stays
            raise AssertionError
        return message

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


@pytest.fixture
def exchanges(tmp_path: Path) -> Iterator[Exchanges]:
    made = Exchanges(
        limits=Limits(),
        spool=Spool(tmp_path, 1 << 20),
        memory=MemoryPool(1 << 30),
        turns=Turns(1),
        streams=1,
        body_timeout_s=5,
    )
    yield made
    made.close()


@pytest.mark.parametrize(
    "how", [{"quick": lambda _: True}, {"short": True}, {}], ids=["small", "call", "stream"]
)
def test_every_thread_knows_the_request_that_it_works_for(exchanges: Exchanges, how: dict[str, Any]) -> None:
    seen: list[str | None] = []

    def work(_: ByteStream, __: Budget, ___: ExitStack) -> Answer:
        seen.append(REQUEST_ID.get())
        return Answer("text/plain", iter([b"done"]))

    async def run(request_id: str) -> None:
        REQUEST_ID.set(request_id)
        await exchanges.run(request(), work, **how)
        seen.append(await exchanges.call(request(), REQUEST_ID.get))

    async def run_both() -> None:
        await asyncio.create_task(run("one"))
        await asyncio.create_task(run("two"))

    asyncio.run(run_both())
    assert seen == ["one", "one", "two", "two"]


def test_a_small_request_that_waited_too_long_is_refused_and_does_nothing(
    exchanges: Exchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    done: list[str] = []

    def hang(_: ByteStream, __: Budget, ___: ExitStack) -> Answer:
        release.wait()
        return Answer("text/plain", iter([b"late"]))

    def work(_: ByteStream, __: Budget, ___: ExitStack) -> Answer:
        done.append("work")
        return Answer("text/plain", iter([b"done"]))

    async def run() -> tuple[list[Response], BaseException | Response]:
        hanging = [
            asyncio.create_task(exchanges.run(request(), hang, quick=lambda _: True))
            for _ in range(exchange._SMALL_THREADS)
        ]
        await asyncio.sleep(0)
        monkeypatch.setattr(exchange, "_LONGEST_IN_QUEUE_S", 0.01)
        waiting = asyncio.create_task(exchanges.run(request(), work, quick=lambda _: True))
        refused, *_ = await asyncio.gather(waiting, return_exceptions=True)  # while the others still hang
        release.set()
        return await asyncio.gather(*hanging), refused

    answers, refused = asyncio.run(run())
    assert [bytes(answer.body) for answer in answers] == [b"late"] * exchange._SMALL_THREADS
    assert isinstance(refused, Overloaded)
    assert done == []
