"""How many appends of one row does a replica take in a second, grouped and one by one?

A real server process, and 64 connections in this one that each send a row, wait for the answer and send the
next. Without a key, appends that arrive together are stored together; with a key each has a put of its own.
Both take turns. This is time by the clock, over all cores, with the client and the store on the same machine.
What was put is counted in the store; what the server's processor took is printed. The store is on the local
disk, in memory where there is /dev/shm, unless SHARDSMITH_STORAGE_URL names another (with the variables of
its provider).
Run: python -m benchmarks.bench_appends
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from app.storage.obstore_store import open_store
from benchmarks.measure import Answer, Session, main, memory_folder, processor_s

CONNECTIONS = 64
SECONDS = 4.0
ROUNDS = 3
ROOT = Path(__file__).resolve().parent.parent
BODY = json.dumps([{"x": [0.5] * 8, "label": 3, "name": "a row"}]).encode()


@contextmanager
def server(storage_url: str, **environment: str) -> Iterator[tuple[str, int]]:
    """A server process of its own, once it is ready: its address, and its id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    settings = {"SHARDSMITH_PORT": str(port), "SHARDSMITH_STORAGE_URL": storage_url}
    command = [sys.executable, "-c", "from app.launch import run; run()"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **settings, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while not is_ready(url):
                if process.poll() is not None:
                    raise RuntimeError("the server ended")
                time.sleep(0.2)
            yield url, process.pid
        finally:
            process.terminate()


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def send(host: str, port: int, dataset: str, deadline: float, *, keyed: bool) -> int:
    """Appends over one connection until then; how many were acknowledged."""
    reader, writer = await asyncio.open_connection(host, port)
    count = 0
    while time.monotonic() < deadline:
        key = f"Idempotency-Key: {secrets.token_hex(16)}\r\n" if keyed else ""
        head = (
            f"POST /v1/datasets/{dataset}/records HTTP/1.1\r\nHost: {host}\r\n{key}"
            f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        )
        writer.write(head.encode() + BODY)
        answer = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in answer.split(b"\r\n")[1:-2])
        body = await reader.readexactly(int(fields[b"content-length"]))
        if b" 201 " not in answer[:20]:
            raise RuntimeError(body.decode())
        count += 1
    writer.close()
    return count


async def appends_a_second(url: str, dataset: str, *, keyed: bool) -> float:
    address = urlsplit(url)
    begin = time.monotonic()
    counts = await asyncio.gather(
        *(
            send(str(address.hostname), address.port or 80, dataset, begin + SECONDS, keyed=keyed)
            for _ in range(CONNECTIONS)
        )
    )
    return sum(counts) / (time.monotonic() - begin)


def measure(session: Session) -> None:
    with memory_folder() as folder:
        storage_url = os.environ.get("SHARDSMITH_STORAGE_URL", (folder / "data").as_uri())
        store = open_store(storage_url)
        rates: dict[bool, list[float]] = {False: [], True: []}
        puts: list[float] = []
        processor: dict[bool, list[float]] = {False: [], True: []}
        with server(storage_url) as (url, pid):
            dataset = f"bench-{secrets.token_hex(4)}"
            asyncio.run(appends_a_second(url, dataset, keyed=False))
            for _ in range(session.runs or ROUNDS):
                for keyed, found in rates.items():
                    before = sum(1 for _ in store.list(f"{dataset}/_g1/slots"))
                    begin, used = time.monotonic(), processor_s(pid)
                    found.append(asyncio.run(appends_a_second(url, dataset, keyed=keyed)))
                    count = found[-1] * (time.monotonic() - begin)
                    processor[keyed].append((processor_s(pid) - used) / count)
                    if not keyed:
                        taken = time.monotonic() - begin
                        after = sum(1 for _ in store.list(f"{dataset}/_g1/slots"))
                        puts.append((after - before) / taken)
        for info in list(store.list(dataset)):
            store.delete(info.key)
    grouped, alone = (statistics.median(rates[keyed]) for keyed in (False, True))
    print(f"{grouped:,.0f} appends/s without a key, {statistics.median(puts):,.0f} puts/s; {alone:,.0f} with")
    for keyed, of in ((False, "without a key"), (True, "with one")):
        print(f"{1e3 * statistics.median(processor[keyed]):.2f} ms of the server's processor an append {of}")
    answer = Answer(
        "Appends of one row over HTTP, by the clock",
        f"without a key, {CONNECTIONS} connections",
        "appends",
        1 / grouped,
        None,
        None,
        "with a key each",
        1 / alone,
    )
    session.answers.append(answer)


if __name__ == "__main__":
    main(measure)
