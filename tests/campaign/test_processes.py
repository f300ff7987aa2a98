"""Two real replicas on one local store, one of which is killed or frozen at a named step."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.campaign.failpoints import Failpoint
from tests.campaign.fleet import Replica

pytestmark = pytest.mark.campaign

Test = Callable[[httpx.AsyncClient, Replica, Replica], Awaitable[None]]


class Pair:
    """Two replicas that live as long as the module's tests."""

    def __init__(self, folder: Path) -> None:
        store = {"SHARDSMITH_STORAGE_URL": (folder / "store").as_uri()}
        self.replicas = [Replica(folder / f"replica-{i}", store) for i in range(2)]
        self._runner = asyncio.Runner()
        for replica in self.replicas:
            self._runner.run(replica.start())

    def run(self, test: Test) -> None:
        async def with_client() -> None:
            for replica in self.replicas:
                if not replica.is_ready:
                    await replica.start()
            async with httpx.AsyncClient(timeout=60) as client:
                await test(client, *self.replicas)

        self._runner.run(with_client())

    def close(self) -> None:
        for replica in self.replicas:
            self._runner.run(replica.stop())
        self._runner.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    started = Pair(tmp_path_factory.mktemp("pair"))
    yield started
    started.close()


async def append(
    client: httpx.AsyncClient, replica: Replica, name: str, x: int, key: str | None, **parameters: str
) -> httpx.Response:
    return await client.post(
        f"{replica.url}/v1/datasets/{name}/records",
        params=parameters,
        json=[{"x": x}],
        headers={} if key is None else {"Idempotency-Key": key},
    )


async def publish(client: httpx.AsyncClient, replica: Replica, name: str) -> httpx.Response:
    return await client.post(f"{replica.url}/v1/datasets/{name}/versions")


async def rows(client: httpx.AsyncClient, replica: Replica, name: str, version: str = "latest") -> list[int]:
    url = f"{replica.url}/v1/datasets/{name}/versions/{version}/records"
    answer = await client.get(url, params={"to": "json"})
    assert answer.status_code == 200, answer.text
    return [row["x"] for row in answer.json()]


@contextlib.asynccontextmanager
async def frozen(
    replica: Replica, step: str, request: Callable[[], Awaitable[httpx.Response]]
) -> "AsyncIterator[asyncio.Future[httpx.Response]]":
    """A request whose replica stands still before `step`, until the block is left."""
    struck = len(replica.struck())
    replica.arm(Failpoint(step, "before", action="freeze"))
    under_way = asyncio.ensure_future(request())
    while len(replica.struck()) == struck:
        await asyncio.sleep(0.01)
        assert not under_way.done(), under_way
    yield under_way
    replica.signal(signal.SIGCONT)
    await under_way


def test_replicas_that_race_for_a_key_store_its_rows_once(pair: Pair) -> None:
    async def test(client: httpx.AsyncClient, one: Replica, other: Replica) -> None:
        answers = await asyncio.gather(
            *(append(client, replica, "race", 7, "k") for replica in (one, other) * 6)
        )
        stored = {answer.text for answer in answers if answer.status_code == 201}
        others = {answer.json().get("code") for answer in answers if answer.status_code != 201}
        assert len(stored) == 1
        assert others <= {"append_in_progress"}
        assert (await append(client, other, "race", 7, "k")).text in stored
        assert (await publish(client, one, "race")).status_code == 201
        assert await rows(client, other, "race") == [7]

    pair.run(test)


def test_replicas_that_race_for_a_key_with_other_rows_let_one_win(pair: Pair) -> None:
    async def test(client: httpx.AsyncClient, one: Replica, other: Replica) -> None:
        answers = await asyncio.gather(
            *(append(client, replica, "contest", x, "k") for x, replica in enumerate((one, other) * 4))
        )
        codes = [answer.json().get("code") for answer in answers]
        assert codes.count(None) == 1
        assert set(codes) <= {None, "append_in_progress", "idempotency_key_reused"}
        assert (await append(client, one, "contest", 8, "k")).json()["code"] == "idempotency_key_reused"
        await publish(client, one, "contest")
        assert await rows(client, other, "contest") == [codes.index(None)]

    pair.run(test)


def test_publishers_that_race_make_one_version(pair: Pair) -> None:
    async def test(client: httpx.AsyncClient, one: Replica, other: Replica) -> None:
        await append(client, one, "crowd", 1, None)
        answers = await asyncio.gather(*(publish(client, replica, "crowd") for replica in (one, other) * 4))
        won = [answer.json() for answer in answers if answer.status_code == 201]
        refused = {answer.json()["code"] for answer in answers if answer.status_code != 201}
        assert {manifest["version"] for manifest in won} == {"1.0.0"}
        assert refused <= {"publish_in_progress", "nothing_to_publish"}
        assert await rows(client, one, "crowd") == [1]

    pair.run(test)


def test_a_writer_that_wakes_up_after_its_row_was_stored_by_another_hears_the_same(pair: Pair) -> None:
    async def test(client: httpx.AsyncClient, one: Replica, other: Replica) -> None:
        await append(client, one, "woken", 1, None)
        async with frozen(one, "slot created", lambda: append(client, one, "woken", 2, "k")) as late:
            answer = await append(client, other, "woken", 2, "k")
            assert answer.status_code == 201
            assert (await publish(client, other, "woken")).status_code == 201
        assert (late.result().status_code, late.result().json()) == (201, answer.json())
        assert (await publish(client, one, "woken")).json()["code"] == "nothing_to_publish"
        assert await rows(client, one, "woken") == [1, 2]

    pair.run(test)


def test_a_planner_that_wakes_up_after_another_has_published_changes_nothing(pair: Pair) -> None:
    async def test(client: httpx.AsyncClient, one: Replica, other: Replica) -> None:
        await append(client, one, "planner", 1, None)
        async with frozen(one, "plan created", lambda: publish(client, one, "planner")) as late:
            published = await publish(client, other, "planner")
            assert (published.status_code, published.json()["version"]) == (201, "1.0.0")
        assert late.result().json()["code"] == "nothing_to_publish"
        assert await rows(client, one, "planner") == [1]

    pair.run(test)


@pytest.mark.parametrize("step", ["shard written", "shard done", "side file put", "manifest created"])
def test_an_executor_that_wakes_up_after_another_has_finished_its_version_agrees(
    pair: Pair, step: str
) -> None:
    async def test(client: httpx.AsyncClient, one: Replica, other: Replica) -> None:
        name = step.replace(" ", "-")
        await append(client, one, name, 1, None)
        async with frozen(one, step, lambda: publish(client, one, name)) as late:
            helped = await append(client, other, name, 2, None, publish="true")
            assert helped.json()["version"] == "1.1.0"
        assert (late.result().status_code, late.result().json()["version"]) == (201, "1.0.0")
        assert await rows(client, one, name, "1.0.0") == [1]
        assert await rows(client, one, name) == [1, 2]

    pair.run(test)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_key_means_the_same_after_its_replica_was_killed_and_started_again(pair: Pair, moment: Any) -> None:
    async def test(client: httpx.AsyncClient, one: Replica, other: Replica) -> None:
        name = f"killed-{moment}"
        await append(client, other, name, 1, None)
        one.arm(Failpoint("slot created", moment))
        with pytest.raises(httpx.TransportError):
            await append(client, one, name, 2, "k")
        assert await one.wait() == -signal.SIGKILL
        await one.start()
        first = await append(client, one, name, 2, "k")
        assert (first.status_code, first.json()["num_records"]) == (201, 1)
        assert (await append(client, other, name, 2, "k")).json() == first.json()
        assert (await append(client, other, name, 3, "k")).json()["code"] == "idempotency_key_reused"
        await publish(client, one, name)
        assert await rows(client, other, name) == [1, 2]

    pair.run(test)


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own, so small that it fills up."""
    folder.mkdir()
    mounted = shutil.which("mount") is not None and (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
        ).returncode
        == 0
    )
    if not mounted and not os.environ.get("CI"):
        pytest.skip("mounting a tmpfs needs root")
    assert mounted
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_is_said_so_and_got_over(tmp_path: Path) -> None:
    async def test(disk: Path) -> None:
        store = disk / "store"
        replica = Replica(tmp_path / "replica", {"SHARDSMITH_STORAGE_URL": store.as_uri()})
        await replica.start()
        try:
            async with httpx.AsyncClient(timeout=60) as client:
                await fill_and_recover(client, replica, disk)
        finally:
            await replica.stop()

    with small_disk(tmp_path / "disk", "24m") as disk:
        asyncio.run(test(disk))


def parts_in(disk: Path) -> list[Path]:
    return list(disk.glob("store/full/_g1/parts/*/*/*"))


def fill(file: Path) -> None:
    """Leave no room beside it."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as opened:
        while opened.write(bytes(1 << 12)):
            pass


async def fill_and_recover(client: httpx.AsyncClient, replica: Replica, disk: Path) -> None:
    url = f"{replica.url}/v1/datasets/full"
    await client.put(url, json={"schema": {"features": {"x": {"dtype": "bytes", "shape": []}}}})

    async def send(size: int, key: str) -> httpx.Response:
        cell = "y" * min(size, 1_000_000)
        body = "x\n" + f"{cell}\n" * (size // len(cell))
        headers = {"Content-Type": "text/csv", "Idempotency-Key": key}
        return await client.post(f"{url}/records", content=body, headers=headers)

    assert (await send(10, "small")).status_code == 201
    refused = await send(40_000_000, "large")
    assert (refused.status_code, refused.json()["code"]) == (507, "storage_full")
    assert not parts_in(disk)  # what had been written is gone again
    ballast = disk / "ballast"
    fill(ballast)
    refused = await send(10_000, "unlucky")
    assert (refused.status_code, refused.json()["code"]) == (507, "storage_full")
    refused = await client.post(f"{url}/versions", headers={"Idempotency-Key": "v"})
    assert (refused.status_code, refused.json()["code"]) == (507, "storage_full")
    ballast.unlink()
    assert (await send(10_000, "unlucky")).status_code == 201
    manifest = (await client.post(f"{url}/versions", headers={"Idempotency-Key": "v"})).json()
    assert manifest["splits"]["train"]["num_records"] == 2
