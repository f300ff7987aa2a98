"""A reverse proxy before an S3 store that makes requests fail as its rules say.

    python -m tests.campaign.fault_proxy --upstream 127.0.0.1:9400

It passes on host and path as they come, so that signatures stay valid. The first line of output has
its two ports. The control port takes `PUT /rules` with `{"seed": ..., "rules": [...]}` and answers
`GET /counters`.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.campaign.fault_rules import Fault, Rule, Rules
from tests.campaign.http1 import Message, read_body, read_message, respond
from tests.campaign.s3_requests import operation_of, summary

__all__ = ["FaultProxy"]

_BUFFER = 1 << 20
_ERRORS = {409: "ConditionalRequestConflict", 503: "SlowDown", 507: "InsufficientStorage"}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Closed(Exception):
    """The connection to the client is to end here."""


class FaultProxy:
    """One upstream store, one set of rules at a time."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self.rules = Rules(0)
        self.requests: Counter[str] = Counter()
        self.injected: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    async def start(self) -> tuple[int, int]:
        """Listen on loopback; the port for requests and the one for control."""
        for serve in (self._serve, self._control):
            self._servers.append(await asyncio.start_server(serve, "127.0.0.1", 0, limit=_BUFFER))
        store, control = (server.sockets[0].getsockname()[1] for server in self._servers)
        return store, control

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        under_way = [*self._tasks, *self._late]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._attended(_Connection(self, reader, writer).serve, writer)

    async def _attended(self, serve: Callable[[], Awaitable[None]], writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(_Closed, ConnectionError, asyncio.IncompleteReadError):
                await serve()
        finally:
            self._tasks.discard(task)
            writer.close()

    def choose(self, request: Message) -> Fault | None:
        """What befalls a request, counted."""
        operation = operation_of(request)
        self.requests[operation] += 1
        fault = self.rules.choose(summary(request))
        if fault is not None:
            self.injected[f"{fault.name} {operation}"] += 1
        return fault

    async def connect(self) -> Streams:
        return await asyncio.open_connection(*self._upstream, limit=_BUFFER)

    def apply_later(self, request: Message, body: bytes, seconds: float) -> None:
        """Send the request to the store on its own, some time from now."""
        task = asyncio.create_task(self._apply(request, body, seconds))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _apply(self, request: Message, body: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            reader, writer = await self.connect()
            try:
                writer.write(request.raw + body)
                answer = await _read_answer(reader, writer)
                async for _ in read_body(reader, answer, answers=request.start[0]):
                    pass
            finally:
                writer.close()

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def serve() -> None:
            while (request := await read_message(reader)) is not None:
                body = b"".join([piece async for piece in read_body(reader, request)])
                writer.write(self._controlled(request, body))
                await writer.drain()

        await self._attended(serve, writer)

    def _controlled(self, request: Message, body: bytes) -> bytes:
        match request.start[:2]:
            case ("PUT", "/rules"):
                value = json.loads(body)
                self.rules = Rules(value["seed"], map(Rule.from_json, value["rules"]))
                return respond(204)
            case ("GET", "/counters"):
                counters = {
                    "requests": dict(self.requests),
                    "injected": dict(self.injected),
                    "late": len(self._late),
                }
                return respond(200, json.dumps(counters).encode(), media_type="application/json")
            case _:
                return respond(404)


class _Connection:
    """One client's connection and the one to the store that goes with it."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._upstream: Streams | None = None

    async def serve(self) -> None:
        try:
            while (request := await read_message(self._reader)) is not None:
                fault = self._proxy.choose(request)
                if fault is None:
                    await self._pass_on(request)
                elif fault.kind == "delay":
                    await asyncio.sleep(fault.seconds)
                    await self._pass_on(request)
                else:
                    body = b"".join([piece async for piece in read_body(self._reader, request)])
                    await self._fail(request, body, fault)
                await self._writer.drain()
                if not request.keeps_alive:
                    return
        finally:
            self._hang_up()

    async def _fail(self, request: Message, body: bytes, fault: Fault) -> None:
        if fault.kind == "late":
            self._proxy.apply_later(request, body, fault.seconds)
            raise _Closed
        if fault.kind == "again":
            self._proxy.apply_later(request, body, fault.seconds)
            await self._answer(request, *await self._exchange(request, body))
        elif fault.kind in ("partial", "flip", "short"):
            await self._spoil(request, *await self._exchange(request, body), fault)
        else:
            if fault.when == "after":
                await self._exchange(request, body)
            await self._refuse(request, fault)

    async def _refuse(self, request: Message, fault: Fault) -> None:
        """The answer, or none, of a request of which nobody is told whether it was applied."""
        if fault.kind == "drop":
            raise _Closed
        if fault.kind == "hang":
            with contextlib.suppress(TimeoutError):  # the client may be the first to give up
                await asyncio.wait_for(self._reader.read(1), fault.seconds)
            raise _Closed
        status = 200 if fault.kind == "error_body" else fault.status
        code = _ERRORS.get(fault.status, "InternalError")
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"
        self._writer.write(respond(status, body.encode(), head=request.start[0] == "HEAD"))

    async def _spoil(self, request: Message, answer: Message, body: bytes, fault: Fault) -> None:
        if answer.status not in (200, 206) or answer.is_chunked or not body:
            await self._answer(request, answer, body)
        elif fault.kind == "partial":
            self._writer.write(answer.raw + body[: len(body) // 2])
            await self._writer.drain()
            raise _Closed
        elif fault.kind == "flip":
            wrong = bytearray(body)
            wrong[len(body) // 2] ^= 0x10
            self._writer.write(answer.raw + wrong)
        else:
            kept = body[: len(body) * 3 // 4]
            self._writer.write(answer.with_length(len(kept)) + kept)

    async def _answer(self, request: Message, answer: Message, body: bytes) -> None:
        self._writer.write(answer.raw + body)
        if not answer.keeps_alive:
            await self._writer.drain()
            raise _Closed

    async def _exchange(self, request: Message, body: bytes) -> tuple[Message, bytes]:
        """Have the store apply the request; its whole answer."""
        reader, writer = await self._store()
        writer.write(request.raw + body)
        answer = await _read_answer(reader, writer)
        pieces = [piece async for piece in read_body(reader, answer, answers=request.start[0])]
        if not answer.keeps_alive:
            self._hang_up()
        return answer, b"".join(pieces)

    async def _pass_on(self, request: Message) -> None:
        """Both bodies are handed on as they come."""
        reader, writer = await self._store()
        writer.write(request.raw)
        async for piece in read_body(self._reader, request):
            writer.write(piece)
            await writer.drain()
        answer = await _read_answer(reader, writer)
        self._writer.write(answer.raw)
        async for piece in read_body(reader, answer, answers=request.start[0]):
            self._writer.write(piece)
            await self._writer.drain()
        if not answer.keeps_alive:
            self._hang_up()
            raise _Closed

    async def _store(self) -> Streams:
        if self._upstream is None or self._upstream[0].at_eof():
            self._hang_up()
            self._upstream = await self._proxy.connect()
        return self._upstream

    def _hang_up(self) -> None:
        if self._upstream is not None:
            self._upstream[1].close()
            self._upstream = None


async def _read_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message:
    if hasattr(socket, "TCP_QUICKACK"):
        # RGW sends head and body apart; the second waits up to 40 ms for the first to be acknowledged.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    answer = await read_message(reader)
    if answer is None:
        raise ConnectionError("the store closed the connection")
    return answer


async def _run(upstream: str) -> None:
    proxy = FaultProxy(upstream)
    store, control = await proxy.start()
    sys.stdout.write(f"{store} {control}\n")
    sys.stdout.flush()
    # Whoever started it ends it, by a signal or by closing its input.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await proxy.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upstream", required=True, help="HOST:PORT of the store")
    asyncio.run(_run(parser.parse_args().upstream))


if __name__ == "__main__":
    main()
