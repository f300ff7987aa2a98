"""How long does a probe wait while requests run that ask for very much with few bytes?

A real server process, a client in a process of its own that sends one body of
tests/corpora/hostile_requests.py over and over, and meanwhile `GET /livez`, on connections of their own.
This is time by the clock, over all cores, which server, client and probes share. The target is 100 ms for
99 of 100 probes, of each body.
Run: python -m benchmarks.bench_hostile [--size SECONDS]
"""

from __future__ import annotations

import asyncio
import http.client
import multiprocessing
import time
from concurrent.futures import Future, ProcessPoolExecutor
from urllib.parse import urlsplit

from benchmarks.bench_appends import server
from benchmarks.measure import Answer, Session, main, memory_folder
from benchmarks.open_loop import Outcome, probed, quantile
from tests.corpora.hostile_requests import HOSTILE

#: How long each body is sent again and again; at least once.
SECONDS = 3
TARGET_S = 0.1
QUESTION = "Probes while a hostile request runs, p99 by the clock"


def send(port: int, index: int, seconds: float) -> int:
    """Send that body of the table for so long, and take the answers; how many times it was sent."""
    request = HOSTILE[index]
    body = request.body()
    end, count = time.monotonic() + seconds, 0
    while not count or time.monotonic() < end:
        path = request.path.format(dataset=f"d{index}-{count}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("POST", path, body, {"Content-Type": request.content_type, **request.headers})
        answer, found = connection.getresponse(), ""
        try:
            while answer.read1(1 << 20):
                pass
        except http.client.IncompleteRead:
            found = "cut"
        connection.close()
        if (found or str(answer.status)) != request.answer[:3]:
            raise RuntimeError(f"{request.name}: answered {found or answer.status}, not {request.answer}")
        count += 1
    return count


async def probe_while(sending: Future[int], port: int) -> list[Outcome]:
    """Probes until it is done."""
    done = asyncio.Event()
    probing = asyncio.create_task(probed(port, ["/livez"], done))
    await asyncio.wrap_future(sending)
    done.set()
    return await probing


def measure(session: Session) -> None:
    spawn = multiprocessing.get_context("spawn")
    found: dict[str, list[Outcome]] = {}
    with (
        memory_folder() as folder,
        server((folder / "data").as_uri()) as (url, _),
        ProcessPoolExecutor(1, mp_context=spawn) as client,
    ):
        port = urlsplit(url).port or 80
        for index, request in enumerate(HOSTILE):
            if not session.wants(request.name):
                continue
            sending = client.submit(send, port, index, session.size or SECONDS)
            probes = found[request.name] = asyncio.run(probe_while(sending, port))
            failed = sum(probe.status != 200 for probe in probes)
            print(
                f"{request.name}: sent {sending.result()} times; {len(probes)} probes, {failed} failed; p99 "
                f"{1e3 * quantile(probes, 0.99):.0f} ms, longest {1e3 * quantile(probes, 1):.0f} ms",
                flush=True,
            )
    if not found:
        return
    worst = max(found, key=lambda name: quantile(found[name], 0.99))
    every = [probe for probes in found.values() for probe in probes]
    for case, probes in (("all bodies", every), ("the worst body", found[worst])):
        p99 = quantile(probes, 0.99)
        print(f"{case}: p99 {1e3 * p99:.0f} ms")
        session.answers.append(
            Answer(QUESTION, case, "probes", p99, None, None, "the 100 ms aimed at", TARGET_S, 1)
        )


if __name__ == "__main__":
    main(measure)
