"""Small requests wait for one of few threads, and not for long."""

import asyncio
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from app.api import exchange
from app.api.exchange import Answer, Exchanges
from app.domain.limits import Budget, Limits
from app.domain.memory import MemoryPool
from app.domain.streams import ByteStream
from app.domain.turns import Turns
from app.errors import Overloaded
from app.storage.spool import Spool


def request() -> Request:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"x", "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def test_a_small_request_that_waited_too_long_is_refused_and_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchanges = Exchanges(
        limits=Limits(),
        spool=Spool(tmp_path, 1 << 20),
        memory=MemoryPool(1 << 30),
        turns=Turns(1),
        streams=1,
        body_timeout_s=5,
    )
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

    try:
        answers, refused = asyncio.run(run())
    finally:
        exchanges.close()
    assert [bytes(answer.body) for answer in answers] == [b"late"] * exchange._SMALL_THREADS
    assert isinstance(refused, Overloaded)
    assert done == []
