"""One real replica on a real S3 store that hangs, or hands out wrong bytes."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.campaign.campaign import Proxy
from tests.campaign.fault_rules import Fault, Rule
from tests.campaign.fleet import Replica
from tests.support.object_stores.running import RunningStore

pytestmark = pytest.mark.campaign

#: What proxies commonly wait for an answer (nginx, `proxy_read_timeout`).
PATIENCE_S = 60.0
SCHEMA = {"features": {"x": {"dtype": "int64", "shape": []}, "pad": {"dtype": "bytes", "shape": []}}}

Test = Callable[[httpx.AsyncClient, Proxy], Awaitable[None]]


def run(folder: Path, store: RunningStore, test: Test) -> None:
    async def with_service() -> None:
        async with service(folder, store) as (client, proxy):
            await test(client, proxy)

    asyncio.run(with_service())


@asynccontextmanager
async def service(folder: Path, store: RunningStore) -> AsyncIterator[tuple[httpx.AsyncClient, Proxy]]:
    """A replica on a prefix of its own, behind a proxy; a client that only lacks the dataset's name."""
    proxy = await Proxy.start(store.endpoint)
    environment = {
        **store.environment,
        "AWS_ENDPOINT_URL": proxy.url,
        "SHARDSMITH_STORAGE_URL": f"{store.url}/{folder.name}",
    }
    replica = Replica(folder / "replica", environment)
    try:
        await replica.start()
        async with httpx.AsyncClient(base_url=f"{replica.url}/v1/datasets/", timeout=300) as client:
            await client.put("d", json={"schema": SCHEMA})
            yield client, proxy
    finally:
        await replica.stop()
        await proxy.stop()


async def append(client: httpx.AsyncClient, key: str | None, *xs: int, pad: int = 1) -> httpx.Response:
    body = "x,pad\n" + "".join(f"{x},{'p' * pad}\n" for x in xs)
    headers = {"Content-Type": "text/csv"} | ({} if key is None else {"Idempotency-Key": key})
    return await client.post("d/records", content=body, headers=headers)


async def rows(client: httpx.AsyncClient) -> list[int]:
    answer = await client.get("d/versions/latest/records", params={"to": "json"})
    assert answer.status_code == 200, answer.text
    return [row["x"] for row in answer.json()]


def test_every_request_is_answered_in_time_while_the_store_hangs(
    tmp_path: Path, ceph_rgw: RunningStore
) -> None:
    async def test(client: httpx.AsyncClient, proxy: Proxy) -> None:
        assert (await append(client, "first", 1)).status_code == 201
        assert (await client.post("d/versions")).status_code == 201
        assert (await append(client, "second", 2)).status_code == 201
        begun, go_on = asyncio.Event(), asyncio.Event()

        before = (await proxy.counters())["requests"]["put"]

        async def parts() -> AsyncIterator[bytes]:
            """A body of seven parts, of which the store takes five."""
            row = b"%d," + b"p" * 1_000_000 + b"\n"
            yield b"x,pad\n"
            for x in range(100):
                yield row % (100 + x)
            begun.set()
            await go_on.wait()
            for x in range(100, 120):
                yield row % (100 + x)

        async def timed(request: Awaitable[httpx.Response]) -> tuple[float, httpx.Response]:
            started = time.monotonic()
            answer = await request
            return time.monotonic() - started, answer

        headers = {"Content-Type": "text/csv", "Idempotency-Key": "parts"}
        large = asyncio.create_task(timed(client.post("d/records", content=parts(), headers=headers)))
        await begun.wait()
        while (await proxy.counters())["requests"].get("put", 0) < 5 + before:
            await asyncio.sleep(0.1)
        await proxy.set_rules([Rule("hang", "", Fault("hang", "after", seconds=300))])
        go_on.set()
        answers = await asyncio.gather(
            large,
            timed(append(client, "third", 3)),
            *(timed(append(client, None, x)) for x in range(40, 60)),
            timed(client.post("d/versions", headers={"Idempotency-Key": "v"})),
            timed(client.get("d/versions/latest")),
            timed(client.get("d/versions/latest/records")),
        )
        await proxy.set_faults("calm", 0)
        late = {answer.request.url.path: seconds for seconds, answer in answers if seconds > PATIENCE_S}
        assert not late
        assert {answer.status_code for _, answer in answers} <= {200, 503}
        # Once the store is itself again, the keys tell what became of them.
        assert (await append(client, "third", 3)).status_code == 201
        manifest: dict[str, Any] = (await client.post("d/versions", headers={"Idempotency-Key": "v"})).json()
        assert manifest["version"] == "1.1.0"
        assert [x for x in await rows(client) if x < 10] == [1, 2, 3]

    run(tmp_path, ceph_rgw, test)


def test_wrong_bytes_are_neither_read_nor_published(tmp_path: Path, ceph_rgw: RunningStore) -> None:
    async def test(client: httpx.AsyncClient, proxy: Proxy) -> None:
        assert (await append(client, "parts", *range(10), pad=100_000)).status_code == 201
        assert (await append(client, "inline", *range(10, 20))).status_code == 201
        for matches in ("/parts/", r"/slots/.* bytes=[1-9]", r"\.inputs"):
            await proxy.set_rules([Rule("flip", f"^get .*{matches}", Fault("flip"))])
            refused = await client.post("d/versions")
            assert (refused.status_code, refused.json()["code"]) == (500, "corrupt_data"), matches
        await proxy.set_faults("calm", 0)
        assert (await client.post("d/versions")).status_code == 201
        assert await rows(client) == list(range(20))
        for fault in (Fault("flip"), Fault("short"), Fault("partial")):
            await proxy.set_rules([Rule("wrong", r"^get .*\.tfrecord-", fault)])
            try:
                answer = await client.get("d/versions/latest/records", params={"to": "json"})
            except httpx.TransportError:
                continue  # broken off in the middle
            assert answer.status_code >= 500, fault
        await proxy.set_faults("calm", 0)
        assert await rows(client) == list(range(20))

    run(tmp_path, ceph_rgw, test)


@pytest.mark.parametrize("kind", ["initiate", "part", "complete"])
def test_a_multipart_upload_that_fails_leaves_a_version_for_the_next_publish(
    tmp_path: Path, ceph_rgw: RunningStore, kind: str
) -> None:
    async def test(client: httpx.AsyncClient, proxy: Proxy) -> None:
        assert (await append(client, "k", *range(40), pad=500_000)).status_code == 201
        await proxy.set_rules([Rule("error", f"^{kind} ", Fault("error", "after", 500))])
        headers = {"Idempotency-Key": "v"}
        assert (await client.post("d/versions", headers=headers)).status_code == 503
        await proxy.set_rules([Rule("error", f"^{kind} ", Fault("error_body", "before"), times=1)])
        for _ in range(3):
            answer = await client.post("d/versions", headers=headers)
            if answer.status_code == 201:
                break
        assert answer.status_code == 201, answer.text
        assert await rows(client) == list(range(40))

    run(tmp_path, ceph_rgw, test)
