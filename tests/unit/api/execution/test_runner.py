"""Work is done on the event loop where it is small, else in a thread, and never twice."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import Response

from app.api.execution import exchange
from app.api.execution.job import Answer, Declined, Job, LaneName, Plan
from app.api.execution.runner import Runner
from app.api.state import Services
from app.codecs import kernels
from app.domain.limits import KIB, MIB, Limits
from app.errors import MalformedInput, Overloaded
from app.logs import REQUEST_ID
from app.runtime.memory import MemoryPool
from app.runtime.spool import Spool
from app.runtime.streams import ByteStream
from app.runtime.turns import Turns
from tests.support.waiting import PATIENCE_S


def request(body: bytes = b"x", *, headers: tuple[tuple[bytes, bytes], ...] | None = None) -> Request:
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, object]:
        message: dict[str, object] | None = next(messages, None)
        if message is None:
            await asyncio.Event().wait()  # the client stays
            raise AssertionError
        return message

    given = [(b"content-length", str(len(body)).encode())] if headers is None else list(headers)
    return Request({"type": "http", "method": "POST", "headers": given}, receive)


@pytest.fixture
def memory() -> MemoryPool:
    return MemoryPool(1 << 30)


@pytest.fixture
def made(tmp_path: Path, memory: MemoryPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    # Of the services, work in these tests uses limits and spool alone.
    services = cast(Services, SimpleNamespace(limits=Limits(), spool=Spool(tmp_path, 1 << 20)))
    monkeypatch.setattr(kernels, "are_compiled", lambda: True)
    made = Runner(services, memory=memory, turns=Turns(1), conversions=1, body_timeout_s=5)
    yield made
    made.close()


async def content(response: Response) -> bytes:
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        raise AssertionError

    await response({"type": "http", "method": "POST"}, receive, send)
    return b"".join(sent)


def plan_of(work: Any, lane: LaneName = "conversion", *, on_loop: Any = None) -> Plan:
    return Plan(work, lane, on_loop=on_loop)


@pytest.mark.parametrize("lane", ["metadata", "conversion", "store", "append"])
def test_every_thread_knows_the_request_that_it_works_for(made: Runner, lane: LaneName) -> None:
    seen: list[str | None] = []

    def work(_: Job, __: ByteStream) -> Answer:
        seen.append(REQUEST_ID.get())
        return Answer("text/plain", iter([b"done"]))

    async def run(request_id: str) -> None:
        REQUEST_ID.set(request_id)
        await content(await made.run(request(), plan_of(work, lane)))
        seen.append(await made.call(request(), REQUEST_ID.get))

    async def run_both() -> None:
        await asyncio.create_task(run("one"))
        await asyncio.create_task(run("two"))

    asyncio.run(run_both())
    assert seen == ["one", "one", "two", "two"]


class Places:
    """Work that notes in which thread it was done, and fails as it is told on the event loop."""

    def __init__(self, on_loop: Any) -> None:
        self._on_loop = on_loop
        self.names: list[str] = []

    def __call__(self, job: Job, body: ByteStream) -> Answer | Future[Answer]:
        name = threading.current_thread().name
        self.names.append("loop" if name == "MainThread" else name.rstrip("_0123456789"))
        job.callback(self.names.append, "closed")
        read = body.read(MIB)
        if self.names[-1] == "loop" and self._on_loop is not None:
            found: Answer | Future[Answer] = self._on_loop(job)
            return found
        return Answer("text/plain", iter([b"read ", read]))


def raising(error: Exception) -> Any:
    def fail(_: Job) -> Answer:
        raise error

    return fail


def failing_later(error: Exception) -> Any:
    def fail(_: Job) -> Future[Answer]:
        future: Future[Answer] = Future()
        future.set_exception(error)
        return future

    return fail


def too_much(job: Job) -> Answer:
    job.budget.charge(257 * KIB, "Something")
    raise AssertionError


def run(made: Runner, work: Places, asked: Request) -> bytes:
    async def both() -> bytes:
        return await content(await made.run(asked, plan_of(work, on_loop=work)))

    return asyncio.run(both())


def test_a_small_body_is_done_on_the_event_loop(made: Runner) -> None:
    work = Places(None)
    assert run(made, work, request(b"x" * (32 * KIB))) == b"read " + b"x" * (32 * KIB)
    assert work.names == ["loop", "closed"]


@pytest.mark.parametrize(
    "fault",
    [
        raising(MalformedInput("wrong", code="malformed_json")),
        raising(Declined()),
        failing_later(Declined()),
        too_much,
    ],
    ids=["refused", "declined", "declined later", "outgrown"],
)
def test_failed_work_on_the_loop_is_repeated_in_a_thread(
    made: Runner, memory: MemoryPool, fault: Any
) -> None:
    work = Places(fault)
    assert run(made, work, request(b"abc")) == b"read abc"
    assert work.names == ["loop", "closed", "conversion", "closed"]
    assert memory.used == 0


def test_accepted_work_that_fails_is_not_repeated(made: Runner) -> None:
    work = Places(failing_later(Overloaded("full")))
    with pytest.raises(Overloaded):
        run(made, work, request(b"abc"))
    assert work.names == ["loop", "closed"]


@pytest.mark.parametrize(
    "asked",
    [
        request(b"x" * (32 * KIB + 1)),
        request(b"abc", headers=((b"transfer-encoding", b"chunked"),)),
        request(b"abc", headers=((b"content-length", b"3"), (b"expect", b"100-continue"))),
    ],
    ids=["large", "unknown length", "expects"],
)
def test_large_request_runs_in_a_thread(made: Runner, memory: MemoryPool, asked: Request) -> None:
    work = Places(None)
    assert run(made, work, asked).startswith(b"read ")
    assert work.names == ["conversion", "closed"]
    assert memory.used == 0


@pytest.mark.parametrize(("num_bytes", "thread"), [(32 * KIB, "metadata"), (32 * KIB + 1, "conversion")])
def test_small_appends_do_not_wait_for_conversions(made: Runner, num_bytes: int, thread: str) -> None:
    work = Places(None)

    async def answer() -> bytes:
        return await content(await made.run(request(b"x" * num_bytes), plan_of(work, "append")))

    assert asyncio.run(answer()).startswith(b"read ")
    assert work.names == [thread, "closed"]


def test_nothing_is_compiled_on_the_event_loop(made: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "are_compiled", lambda: False)
    work = Places(None)
    run(made, work, request(b"abc"))
    assert work.names == ["conversion", "closed"]


def test_where_no_thread_is_to_be_had_nothing_is_read(
    made: Runner, memory: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made._conversions, "is_full_for", lambda _: True)
    work = Places(None)
    asked = request(b"x" * (32 * KIB + 1))

    async def refused() -> tuple[int, bytes]:
        response = await made.run(asked, plan_of(work, on_loop=work))
        assert (await asked.receive())["type"] == "http.request"
        return response.status_code, response.headers["retry-after"].encode()

    status, retry_after = asyncio.run(refused())
    assert status == 503
    assert int(retry_after) >= 1
    assert work.names == []
    assert memory.used == 0


def test_deferred_response_holds_little_memory(made: Runner, memory: MemoryPool) -> None:
    stored: Future[Answer] = Future()
    held: list[int] = []

    def work(job: Job, _: ByteStream) -> Future[Answer]:
        job.budget.charge(3 * MIB, "The rows")
        held.append(memory.used)
        job.budget.release(3 * MIB)
        return stored

    async def answer() -> bytes:
        asked = asyncio.create_task(made.run(request(), plan_of(work, "store")))
        async with asyncio.timeout(PATIENCE_S):
            while not held or memory.used >= MIB:
                await asyncio.sleep(0.01)
        stored.set_result(Answer("text/plain", iter([b"stored"])))
        return await content(await asked)

    assert asyncio.run(answer()) == b"stored"
    assert held[0] >= 9 * MIB
    assert memory.used == 0


def test_a_request_that_waited_too_long_is_refused_and_does_nothing(
    made: Runner, memory: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Handed to busy threads, as it is where a thread has just come free and hangs again.
    begun, release = threading.Event(), threading.Event()
    done: list[str] = []

    def hang(_: Job, __: ByteStream) -> Answer:
        begun.set()
        release.wait()
        return Answer("text/plain", iter([b"late"]))

    def work(_: Job, __: ByteStream) -> Answer:
        done.append("work")
        return Answer("text/plain", iter([b"done"]))

    async def both() -> tuple[bytes, BaseException | Response]:
        hanging = asyncio.create_task(made.run(request(), plan_of(hang)))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        made._conversions._free = 1
        made._conversions._held.clear()
        monkeypatch.setattr(exchange, "LONGEST_IN_QUEUE_S", 0.01)
        waiting = asyncio.create_task(made.run(request(), plan_of(work)))
        refused, *_ = await asyncio.gather(waiting, return_exceptions=True)  # while the other still hangs
        release.set()
        return await content(await hanging), refused

    answer, refused = asyncio.run(both())
    assert answer == b"late"
    assert isinstance(refused, Overloaded)
    assert str(refused).startswith("The service is too busy")
    assert done == []
    assert memory.used == 0
