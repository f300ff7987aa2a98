"""Server-sent events: each change is told, a listener holds little, and none outlives the service."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from fastapi import Request
from starlette.datastructures import Headers

from app.api.admission import Load
from app.api.execution import events
from app.api.execution.events import Listeners, Look, Sight, asks_for_events
from app.api.state import Services
from app.domain.limits import MIB
from app.errors import NotAcceptable, NotFound, Overloaded, ShardsmithError, StorageUnavailable
from app.runtime.memory import MemoryPool


class Client:
    """One that listens over ASGI, and may leave."""

    def __init__(self, *, address: str = "127.0.0.1", version: str = "1.1", **headers: str) -> None:
        self.gone = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http",
            "method": "GET",
            "http_version": version,
            "client": (address, 1),
            "headers": raw,
        }
        self.request = Request(scope, self.receive)

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def listen(self, listeners: Listeners, look: Look) -> str:
        response = await listeners.answer(self.request, look)
        await response(self.request.scope, self.receive, cast(Any, self.send))
        return self.text

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    @property
    def has_whole_answer(self) -> bool:
        return self.sent[-1].get("more_body") is False


class Room:
    """What listeners take of the service."""

    def __init__(self, num_bytes: int = 64 * MIB, **options: float) -> None:
        self.memory, self.load = MemoryPool(num_bytes), Load()
        self.load.under_way = 1
        options = {"every_s": 0, "silence_s": 3600, **options}
        self.listeners = Listeners(cast(Services, None), self.memory, self.load, **options)

    def is_free(self) -> bool:
        return (self.memory.used, self.listeners.num_listening, self.load.under_way) == (0, 0, 1)


def seeing(*sights: object) -> Look:
    """Looks that see these values in turn, the last of which is the end; errors are raised."""
    left: Iterator[object] = iter(sights)

    def look(_: Request, __: Services) -> Sight:
        value = next(left)
        if isinstance(value, ShardsmithError):
            raise value
        return Sight(value, is_last=value is sights[-1])

    return look


def test_each_change_is_an_event_and_the_last_one_says_so() -> None:
    async def main() -> None:
        room, client = Room(), Client()
        text = await client.listen(room.listeners, seeing({"n": 1}, {"n": 1}, {"n": "é\n"}, {"n": 3}))
        assert text == ('retry: 2000\ndata: {"n": 1}\n\ndata: {"n": "é\\n"}\n\nid: end\ndata: {"n": 3}\n\n')
        assert client.has_whole_answer
        assert room.is_free()

    asyncio.run(main())


def test_silence_is_broken_by_a_comment() -> None:
    async def main() -> None:
        text = await Client().listen(Room(silence_s=0).listeners, seeing(1, 1, 1, 2))
        assert text == "retry: 2000\ndata: 1\n\n:\n\n:\n\nid: end\ndata: 2\n\n"

    asyncio.run(main())


def test_finished_stream_has_one_event_and_then_204() -> None:
    async def main() -> None:
        listeners = Room().listeners
        assert await Client().listen(listeners, seeing(1)) == "retry: 2000\nid: end\ndata: 1\n\n"
        response = await listeners.answer(Client(last_event_id="end").request, seeing())
        assert response.status_code == 204

    asyncio.run(main())


def test_a_store_that_fails_for_a_while_is_waited_for() -> None:
    async def main() -> None:
        look = seeing(1, StorageUnavailable("down"), Overloaded("busy"), 2)
        assert (await Client().listen(Room().listeners, look)).endswith("data: 1\n\nid: end\ndata: 2\n\n")

    asyncio.run(main())


def test_deleted_object_ends_the_stream_or_is_404() -> None:
    async def main() -> None:
        room, client = Room(), Client()
        gone = NotFound("deleted", code="dataset_not_found")
        assert await client.listen(room.listeners, seeing(1, gone, 2)) == "retry: 2000\ndata: 1\n\n"
        assert client.has_whole_answer
        with pytest.raises(NotFound):
            await Client().listen(room.listeners, seeing(gone, 2))
        assert room.is_free()

    asyncio.run(main())


def unchanged(_: Request, __: Services) -> Sight:
    return Sight(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_client_that_leaves_gives_its_room_back() -> None:
    async def main() -> None:
        room, client = Room(), Client()
        listening = asyncio.create_task(client.listen(room.listeners, unchanged))
        await until(lambda: bool(client.text))
        assert room.memory.used > 0
        assert (room.listeners.num_listening, room.load.under_way) == (1, 0)
        client.gone.set()
        await listening
        assert room.is_free()

    asyncio.run(main())


def test_a_client_that_takes_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_STALL_S", 0.001)

    async def main() -> None:
        room, client = Room(), Client()

        async def never(message: Any) -> None:
            client.sent.append(message)
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        client.send = never  # type: ignore[method-assign]
        await client.listen(room.listeners, unchanged)
        assert not client.has_whole_answer
        assert room.is_free()

    asyncio.run(main())


def test_a_shutdown_ends_answers_and_lets_none_begin() -> None:
    async def main() -> None:
        room, client = Room(every_s=3600), Client()
        listening = asyncio.create_task(client.listen(room.listeners, unchanged))
        await until(lambda: bool(client.text))
        room.listeners.leave()
        await listening
        assert client.has_whole_answer
        assert room.is_free()
        with pytest.raises(Overloaded) as caught:
            await Client().listen(room.listeners, unchanged)
        assert caught.value.code == "shutting_down"

    asyncio.run(main())


def test_a_shutdown_breaks_off_what_a_client_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_LAST_S", 0.001)

    async def main() -> None:
        room, client = Room(), Client()

        async def never(message: Any) -> None:
            client.sent.append(message)
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        client.send = never  # type: ignore[method-assign]
        listening = asyncio.create_task(client.listen(room.listeners, unchanged))
        await until(lambda: len(client.sent) == 2)
        room.listeners.leave()
        await listening
        assert room.is_free()

    asyncio.run(main())


def test_listeners_are_bounded_and_half_is_kept_for_other_callers() -> None:
    async def main() -> None:
        room = Room(every_s=3600)
        clients = [Client() for _ in range(32)]
        listening = [asyncio.create_task(client.listen(room.listeners, unchanged)) for client in clients]
        await until(lambda: all(client.text for client in clients))
        with pytest.raises(Overloaded):
            await Client().listen(room.listeners, unchanged)
        others = [Client(address=f"10.0.0.{k % 3}") for k in range(32)]
        listening += [asyncio.create_task(client.listen(room.listeners, unchanged)) for client in others]
        await until(lambda: all(client.text for client in others))
        with pytest.raises(Overloaded):
            await Client(address="10.0.0.9").listen(room.listeners, unchanged)
        for client in [*clients, *others]:
            client.gone.set()
        await asyncio.gather(*listening)
        assert room.is_free()

    asyncio.run(main())


def test_without_memory_nobody_listens() -> None:
    async def main() -> None:
        room = Room(1000)
        for _ in range(2):
            room.memory.share().reserve(500)
        with pytest.raises(Overloaded):
            await Client().listen(room.listeners, unchanged)
        assert room.listeners.num_listening == 0

    asyncio.run(main())


def test_events_need_chunks_and_no_encoding() -> None:
    async def main() -> None:
        for client in (Client(version="1.0"), Client(accept_encoding="gzip, identity;q=0")):
            with pytest.raises(NotAcceptable):
                await client.listen(Room().listeners, unchanged)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("accept", "asks"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream, */*;q=0.1", True),
        ("text/event-stream;q=0.5, application/json", False),
        ("text/event-stream;q=0", False),
        ("*/*", False),
        ("text/html", False),
    ],
    ids=["named", "case", "less", "never", "any", "other"],
)
def test_events_are_for_those_who_ask(accept: str, asks: bool) -> None:
    assert asks_for_events(Headers({"accept": accept})) is asks
