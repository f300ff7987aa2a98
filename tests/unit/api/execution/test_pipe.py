"""Body and output between event loop and worker thread."""

import asyncio
import base64
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.api.execution.pipe import BODY_HEAD, BODY_WINDOW, OUTPUT_WINDOW, OutputPipe, RequestBody
from app.domain.limits import MIB
from app.errors import LimitExceeded, StreamInterrupted, StreamTimeout
from app.runtime.spool import Spool

PIECE = b"x" * 65536


class Connection:
    """ASGI's receiving end, fed by the test."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = list(messages)
        self.taken = 0

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        if self.taken == len(self.messages):
            await asyncio.Event().wait()
        self.taken += 1
        return self.messages[self.taken - 1]


def part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def drain(body: RequestBody) -> bytes:
    pieces = []
    while piece := body.read(10_000):
        pieces.append(piece)
    return b"".join(pieces)


async def pumped(
    connection: Connection,
    read: Callable[[RequestBody], Any],
    *,
    max_bytes: int = 2**30,
    timeout_s: float = 10,
) -> Any:
    body = RequestBody(max_bytes=max_bytes, timeout_s=timeout_s)
    pump = asyncio.create_task(body.pump(connection.receive, lambda: None))
    try:
        return await asyncio.to_thread(read, body)
    finally:
        pump.cancel()


def test_a_body_arrives_whole_and_in_order() -> None:
    pieces = [bytes([i]) * 50_000 for i in range(200)]  # 10 MB: past the window several times
    connection = Connection(*[part(piece) for piece in pieces], part(b"end", more=False))
    assert asyncio.run(pumped(connection, drain)) == b"".join(pieces) + b"end"


@pytest.mark.parametrize(("begun", "window"), [(False, BODY_HEAD), (True, BODY_WINDOW)])
def test_a_body_that_is_not_read_is_not_taken_from_the_connection(begun: bool, window: int) -> None:
    """Of one that nobody has begun to read, only the head."""

    async def main() -> int:
        connection = Connection(*[part(PIECE)] * 100)
        body = RequestBody(max_bytes=2**30, timeout_s=10)
        pump = asyncio.create_task(body.pump(connection.receive, lambda: None))
        while connection.taken <= BODY_HEAD // len(PIECE):
            await asyncio.sleep(0)
        if begun:
            body.read(1)
        while connection.taken <= window // len(PIECE):
            await asyncio.sleep(0)
        for _ in range(1000):  # chances to take more
            await asyncio.sleep(0)
        pump.cancel()
        return connection.taken

    assert asyncio.run(main()) == window // len(PIECE) + 1


def test_the_head_of_a_body_has_arrived_though_no_more_is_taken() -> None:
    async def main() -> None:
        connection = Connection(*[part(bytes(BODY_HEAD + 1))] * 2)
        body = RequestBody(max_bytes=2**30, timeout_s=10)
        pump = asyncio.create_task(body.pump(connection.receive, lambda: None))
        await asyncio.wait_for(body.wait_for_head(BODY_HEAD), 5)
        pump.cancel()

    asyncio.run(main())


def test_a_discarded_body_is_let_in() -> None:
    async def main() -> bool:
        connection = Connection(*[part(PIECE)] * 100, part(b"", more=False))
        body = RequestBody(max_bytes=2**30, timeout_s=10)
        pump = asyncio.create_task(body.pump(connection.receive, lambda: None))
        body.discard()
        while not body.complete:
            await asyncio.sleep(0)
        pump.cancel()
        return body.ended

    assert asyncio.run(main())


def test_a_client_that_leaves_interrupts_the_reader() -> None:
    with pytest.raises(StreamInterrupted):
        asyncio.run(pumped(Connection(part(b"abc"), {"type": "http.disconnect"}), drain))


def test_a_silent_client_is_given_up() -> None:
    with pytest.raises(StreamTimeout):
        asyncio.run(pumped(Connection(part(b"abc")), drain, timeout_s=0.05))


def test_a_reader_may_ask_whether_it_would_wait() -> None:
    def read(body: RequestBody) -> list[Any]:
        return [body.wait_readable(60), body.read(9), body.wait_readable(0.01), body.wait_readable(0)]

    assert asyncio.run(pumped(Connection(part(b"abc")), read)) == [True, b"abc", False, False]


@pytest.mark.parametrize("last", [part(b"", more=False), {"type": "http.disconnect"}])
def test_a_reader_does_not_wait_for_more_than_the_end(last: dict[str, Any]) -> None:
    assert asyncio.run(pumped(Connection(last), lambda body: body.wait_readable(60)))


def test_a_reader_that_asks_lets_more_of_the_body_in() -> None:
    def read(body: RequestBody) -> int:
        num_bytes = 0
        while body.wait_readable(60) and (piece := body.read(MIB)):
            num_bytes += len(piece)
        return num_bytes

    connection = Connection(*[part(PIECE)] * 100, part(b"", more=False))
    assert asyncio.run(pumped(connection, read)) == 100 * len(PIECE)


def test_a_body_beyond_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceeded):
        asyncio.run(pumped(Connection(part(b"abc"), part(b"def", more=False)), drain, max_bytes=5))


async def collected(pipe: OutputPipe) -> bytes:
    pieces = []
    while (piece := await pipe.next_piece()) is not None:
        pieces.append(bytes(piece))
    return b"".join(pieces)


@pytest.mark.parametrize("may_wait", [False, True])
def test_output_keeps_its_order_in_memory_and_on_the_spool(tmp_path: Path, may_wait: bool) -> None:
    pieces = [bytes([i % 251]) * 100_000 for i in range(150)]  # 15 MB: past the window

    async def main() -> tuple[bytes, str, int]:
        pipe = OutputPipe(Spool(tmp_path, 2**30), lambda: may_wait, digest_limit=None, timeout_s=10)

        def work() -> None:
            for piece in pieces:
                pipe.write(piece)
            pipe.finish()

        worker = asyncio.create_task(asyncio.to_thread(work))
        if not may_wait:
            await worker  # nobody reads meanwhile, and the worker is not held up
        content = await collected(pipe)
        await worker
        digest = pipe.repr_digest()
        pipe.abandon()
        return content, digest, pipe.size

    expected = b"".join(pieces)
    digest = base64.b64encode(hashlib.sha256(expected).digest()).decode()
    assert asyncio.run(main()) == (expected, f"sha-256=:{digest}:", len(expected))


def test_small_pieces_on_the_spool_are_read_together(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        pipe = OutputPipe(Spool(tmp_path, 2**30), lambda: False, digest_limit=0, timeout_s=10)
        pipe.write(bytes(OUTPUT_WINDOW))  # all that memory holds
        for number in range(40):
            pipe.write(bytes([number]) * (MIB // 16))
        pipe.finish()
        pieces = []
        while (piece := await pipe.next_piece()) is not None:
            pieces.append(bytes(piece))
        pipe.abandon()
        spooled = b"".join(pieces)[OUTPUT_WINDOW:]
        assert spooled == b"".join(bytes([number]) * (MIB // 16) for number in range(40))
        return [len(piece) for piece in pieces if piece[0] or piece[-1]]

    assert asyncio.run(scenario()) == [MIB, MIB, MIB // 2]


def test_short_pieces_are_sent_together(tmp_path: Path) -> None:
    """Each keeps the event loop for some microseconds: tens of thousands in a row for too long."""
    written = [bytes([number % 251]) * (number % 33 + 1) for number in range(20_000)]
    written[10_000] = b"long" * 10_000

    async def scenario() -> list[bytes]:
        pipe = OutputPipe(Spool(tmp_path, 2**30), lambda: False, digest_limit=0, timeout_s=10)
        for piece in written:
            pipe.write(piece)
        pipe.finish()
        pieces = []
        while (sent := await pipe.next_piece()) is not None:
            pieces.append(bytes(sent))
        return pieces

    pieces = asyncio.run(scenario())
    assert b"".join(pieces) == b"".join(written)
    assert len(pieces) == 3


def test_a_worker_that_may_wait_is_held_and_released_when_nobody_reads(tmp_path: Path) -> None:
    async def main() -> tuple[int, bool]:
        spool = Spool(tmp_path, 2**30)
        pipe = OutputPipe(spool, lambda: True, digest_limit=None, timeout_s=10)
        interrupted = threading.Event()

        def work() -> None:
            try:
                while True:
                    pipe.write(PIECE)
            except StreamInterrupted:
                interrupted.set()

        worker = asyncio.create_task(asyncio.to_thread(work))
        while pipe.size < OUTPUT_WINDOW:
            await asyncio.sleep(0.001)
        held = pipe.size
        pipe.abandon()
        await worker
        assert spool.used == 0
        return held, interrupted.is_set()

    assert asyncio.run(main()) == (OUTPUT_WINDOW, True)


def test_an_error_reaches_the_reader_in_place_of_the_rest(tmp_path: Path) -> None:
    async def main() -> None:
        pipe = OutputPipe(Spool(tmp_path, 2**30), lambda: True, digest_limit=None, timeout_s=10)
        pipe.write(b"some")
        pipe.finish(LimitExceeded("too much"))
        assert await pipe.next_piece() == b"some"
        await pipe.next_piece()

    with pytest.raises(LimitExceeded):
        asyncio.run(main())


@pytest.mark.parametrize("limit", [5010, 5011])
def test_an_answer_that_is_not_long_has_a_digest(tmp_path: Path, limit: int) -> None:
    pieces = [b"short", b" ", b"pieces"[:4], b"x" * 5000]

    async def main() -> tuple[bool, str]:
        pipe = OutputPipe(Spool(tmp_path, 2**30), lambda: True, digest_limit=limit, timeout_s=10)
        for piece in pieces:
            pipe.write(piece)
        pipe.finish()
        return await pipe.settle(limit), pipe.repr_digest()

    digest = base64.b64encode(hashlib.sha256(b"".join(pieces)).digest()).decode()
    assert asyncio.run(main()) == (True, f"sha-256=:{digest}:")


def test_settle_says_whether_all_is_there(tmp_path: Path) -> None:
    async def main() -> tuple[bool, bool]:
        pipe = OutputPipe(Spool(tmp_path, 2**30), lambda: True, digest_limit=10, timeout_s=10)
        pipe.write(b"12345")
        pipe.write(b"678901")
        early = await pipe.settle(10)
        pipe.finish()
        return early, await pipe.settle(None)

    assert asyncio.run(main()) == (False, True)


def test_a_client_that_takes_nothing_is_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        pipe = OutputPipe(Spool(tmp_path, 2**30), lambda: True, digest_limit=None, timeout_s=0.05)

        def work() -> None:
            while True:
                pipe.write(PIECE)

        await asyncio.to_thread(work)

    with pytest.raises(StreamTimeout):
        asyncio.run(main())


def test_output_spilled_after_disconnect_frees_the_spool(tmp_path: Path) -> None:
    async def main() -> int:
        spool = Spool(tmp_path, 2**30)
        pipe = OutputPipe(spool, lambda: False, digest_limit=None, timeout_s=10)
        while spool.used == 0:
            pipe.write(PIECE)
        pipe.abandon()
        with pytest.raises(StreamInterrupted):
            await asyncio.to_thread(pipe.write, PIECE)
        while spool.used:
            await asyncio.sleep(0.001)
        return spool.used

    assert asyncio.run(main()) == 0
