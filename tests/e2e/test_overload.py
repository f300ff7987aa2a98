"""More requests than can be served: each is answered or told when to come again, and probes are green."""

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from benchmarks.bench_overload import PROBES, REQUEST
from benchmarks.open_loop import Outcome, ask_in_turn, ask_on_time, probed, request
from tests.support.service import Service, ready

pytestmark = pytest.mark.soak

MIB = 1 << 20
REFUSED = (429, 503)
POOL_MIB = 192
#: Of Python, of the libraries, and what no charge counts.
BESIDE_MIB = 500


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that can carry little."""
    with ready(
        tmp_path_factory.mktemp("small"),
        SHARDSMITH_STREAMS="2",
        SHARDSMITH_MAX_REQUESTS="40",
        SHARDSMITH_MEMORY_BYTES=str(POOL_MIB * MIB),
    ) as service:
        yield service


def port_of(service: Service) -> int:
    return httpx.URL(service.url).port or 80


def test_ten_times_the_load_is_answered_or_refused_and_probes_are_green(small: Service) -> None:
    async def run() -> tuple[list[Outcome], list[Outcome]]:
        port, done = port_of(small), asyncio.Event()
        sustained = await ask_in_turn(port, REQUEST, clients=4, seconds=1)
        assert {outcome.status for outcome in sustained} == {200}
        probing = asyncio.create_task(probed(port, PROBES, done))
        outcomes = await ask_on_time(port, REQUEST, rate=max(200, 10 * len(sustained)), seconds=2)
        done.set()
        return outcomes, await probing

    outcomes, probes = asyncio.run(run())
    assert {outcome.status for outcome in outcomes} <= {200, *REFUSED}
    assert any(outcome.status == 200 for outcome in outcomes)
    refused = [outcome for outcome in outcomes if outcome.status in REFUSED]
    assert refused
    assert all(outcome.retry_after for outcome in refused)
    assert probes
    assert {probe.status for probe in probes} == {200}
    assert small.resident_mib() < POOL_MIB + BESIDE_MIB
    after = httpx.post(f"{small.url}/v1/tensors/serialize", json=[1, 2], timeout=60)
    assert after.status_code == 200


def test_many_large_bodies_share_the_memory_there_is(small: Service) -> None:
    async def run() -> list[Outcome]:
        held = io.BytesIO()
        np.savez_compressed(held, x=np.zeros(8 * MIB))  # small, but 64 MiB of zeros
        sent = request("/v1/tensors/describe", "application/x-npz", held.getvalue())
        return await ask_on_time(port_of(small), sent, rate=100, seconds=0.2)

    outcomes = asyncio.run(run())
    assert {outcome.status for outcome in outcomes} <= {200, *REFUSED}
    assert any(outcome.status == 200 for outcome in outcomes)
    assert small.resident_mib() < POOL_MIB + BESIDE_MIB
    assert httpx.get(f"{small.url}/livez").status_code == 200


def test_a_body_that_no_budget_could_hold_is_too_large(small: Service) -> None:
    proto = bytes.fromhex("0801120712050880808040")  # float32, 128 Mi equal values
    url = f"{small.url}/v1/tensors/describe"
    answer = httpx.post(url, params={"from": "tensorproto"}, content=proto, timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")


def test_a_request_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with ready(tmp_path, SHARDSMITH_MAX_SECONDS="0.000001") as service:
        rows = b'{"x": 1}\n' * 100_000
        headers = {"Content-Type": "application/x-ndjson"}
        answer = httpx.post(f"{service.url}/v1/records/serialize", content=rows, headers=headers, timeout=60)
        assert (answer.status_code, answer.json()["code"]) == (413, "time_limit")
