"""How fast are JSON and NPY converted over HTTP, next to a service that somebody would write in an afternoon?

The peer is `afternoon.py`: FastAPI, orjson, `tf.train.Example` and `TFRecordWriter` under the same uvicorn.
20,000 rows in one array go to TFRecord, a million floats and 64 MiB of NPY to a TensorProto, over raw
sockets. Both take turns. This is time by the clock, the client on the same machine; the processor time of
each server is printed. Run: python -m benchmarks.bench_afternoon
"""

from __future__ import annotations

import io
import json
import socket
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from benchmarks.bench_appends import server
from benchmarks.bench_stream_tensor import drain, peer_process
from benchmarks.measure import Answer, Session, main, memory_folder, processor_s

ROWS = 20_000
NUMBERS = 1_000_000
NPY_FLOATS = 16 * 1024 * 1024
ROUNDS = 9
PEER = 'import sys, uvicorn; uvicorn.run("benchmarks.afternoon:app", port=int(sys.argv[1]))'


@dataclass(frozen=True)
class Case:
    """A body, where each service takes it, and how many items it is."""

    name: str
    unit: str
    items: int
    body: bytes
    path: str
    peer_path: str
    target: float


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    numbers = np.round(rng.standard_normal((ROWS, 20)), 4).tolist()
    rows = [{"x": x, "label": i % 1000, "id": f"sample-{i:08}"} for i, x in enumerate(numbers)]
    counts = rng.integers(1, 7, ROWS).tolist()
    tags = [{"tags": [f"tag-{i % (97 * (k + 1))}" for k in range(count)]} for i, count in enumerate(counts)]
    for name, values in (
        ("20 decimals + int + text", rows),
        ("20 decimals + int + text + texts", [row | more for row, more in zip(rows, tags, strict=True)]),
    ):
        body = json.dumps(values).encode()
        yield Case(f"JSON to TFRecord, {name}", "rows", ROWS, body, "/v1/records/serialize", "/rows", 12)
    floats = json.dumps(np.round(rng.standard_normal(NUMBERS), 4).tolist()).encode()
    path = "/v1/tensors/serialize?dtype=float32"
    yield Case("JSON to TensorProto, a million floats", "values", NUMBERS, floats, path, "/tensor", 4)
    file = io.BytesIO()
    np.save(file, rng.standard_normal(NPY_FLOATS, np.float32))
    path = "/v1/tensors/serialize?from=npy"
    yield Case("NPY to TensorProto, 64 MiB", "values", NPY_FLOATS, file.getvalue(), path, "/npy", 4)


def fetch(url: str, body: bytes) -> bytes:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return bytes(answer.read())


def exchange(url: str, path: str, body: bytes, least: int) -> float:
    """Seconds until the whole answer is there, which has at least so many bytes."""
    address = urlsplit(url)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    begin = time.monotonic()
    with socket.create_connection((str(address.hostname), address.port or 80)) as connection:
        connection.sendall(head)
        # An answer may begin before the body ends.
        sender = threading.Thread(target=connection.sendall, args=(body,))
        sender.start()
        received, last = drain(connection)
        sender.join()
    seconds = time.monotonic() - begin
    if received < least:
        raise RuntimeError(f"{path} answered {received} bytes that end with {last!r}")
    return seconds


def measure_case(session: Session, case: Case, servers: dict[str, tuple[str, int]]) -> None:
    paths = {"ours": case.path, "peer": case.peer_path}
    sizes = {name: len(fetch(url + paths[name], case.body)) for name, (url, _) in servers.items()}
    if sizes["ours"] != sizes["peer"]:
        raise RuntimeError(f"{case.name}: the answers differ in size: {sizes}")
    seconds: dict[str, list[float]] = {name: [] for name in servers}
    processor: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(session.runs or ROUNDS):
        for name, (url, pid) in servers.items():
            used = processor_s(pid)
            seconds[name].append(exchange(url, paths[name], case.body, sizes[name]))
            processor[name].append(processor_s(pid) - used)
    answer = Answer(
        "JSON and NPY converted over HTTP, by the clock",
        case.name,
        case.unit,
        statistics.median(seconds["ours"]) / case.items,
        len(case.body) / statistics.median(seconds["ours"]) / 1e9,
        None,
        "the afternoon service",
        statistics.median(seconds["peer"]) / case.items,
        case.target,
    )
    session.answers.append(answer)
    print(f"{case.name}: {answer.ratio:.3g} x the afternoon service (target {case.target:g} x)")
    for name in servers:
        print(
            f"    {name}: {1e3 * statistics.median(seconds[name]):.1f} ms, "
            f"{1e3 * statistics.mean(processor[name]):.0f} ms of the server's processor"
        )


def measure(session: Session) -> None:
    with memory_folder() as folder, server((folder / "data").as_uri()) as ours, peer_process(PEER) as peer:
        for case in cases():
            if session.wants(case.name):
                measure_case(session, case, {"ours": ours, "peer": peer})


if __name__ == "__main__":
    main(measure)
