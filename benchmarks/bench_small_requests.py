"""How many small bodies are converted over HTTP in a second?

Arrays of 768 floats as JSON, such as embeddings, to TensorProto, and single rows to TFRecord, over 16
connections that each send the next request once they have the answer to the last. The peers are a bare
Starlette route that sends back the same body, and the service of `afternoon.py`, each with one worker of the
same uvicorn, access log included. Both take turns. This is time by the clock, the client on the same machine;
the processor time of each server is printed. Run: python -m benchmarks.bench_small_requests
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np
import uvloop

from benchmarks.bench_afternoon import PEER
from benchmarks.bench_appends import server
from benchmarks.bench_stream_tensor import peer_process
from benchmarks.measure import Answer, Session, main, memory_folder, processor_s

CONNECTIONS = 16
SECONDS = 3.0
ROUNDS = 5
PATH = "/v1/tensors/serialize"
FLOATS = json.dumps(np.random.default_rng(0).standard_normal(768).astype(np.float32).tolist()).encode()
ROW = json.dumps([{"x": [0.25] * 20, "label": 3, "id": "sample-00000001"}]).encode()
ECHO = f"""
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def echo(request):
    return Response(await request.body(), media_type="application/json")
app = Starlette(routes=[Route({PATH!r}, echo, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="info", timeout_keep_alive=75)
"""


@dataclass(frozen=True)
class Case:
    """A body, the peer, and where each takes it."""

    name: str
    body: bytes
    path: str
    peer: str
    program: str
    peer_path: str
    target: float


CASES = (
    Case("768 floats as JSON to TensorProto", FLOATS, PATH, "Starlette that echoes", ECHO, PATH, 0.5),
    Case(
        "768 floats as JSON to TensorProto",
        FLOATS,
        f"{PATH}?dtype=float32",
        "the afternoon service",
        PEER,
        "/tensor",
        2,
    ),
    Case(
        "one row as JSON to TFRecord", ROW, "/v1/records/serialize", "the afternoon service", PEER, "/rows", 2
    ),
)


class Sender(asyncio.Protocol):
    """One connection. It costs little itself: what it looks for in an answer is where that ends."""

    def __init__(self, request: bytes, deadline: float) -> None:
        self.request = request
        self.deadline = deadline
        self.count = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._missing = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            head, found, rest = data.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200 ") or not found:
                self.over.set_exception(RuntimeError(data.decode(errors="replace")))
                self._transport.abort()
                return
            _, _, length = head.lower().partition(b"content-length: ")
            self._missing = int(length.partition(b"\r\n")[0])
            data = rest
        self._missing -= len(data)
        if self._missing:
            return
        self.count += 1
        if time.monotonic() < self.deadline:
            self._transport.write(self.request)
        else:
            self._transport.close()
            self.over.set_result(None)


async def _requests_a_second(url: str, request: bytes, seconds: float) -> float:
    address = urlsplit(url)
    loop = asyncio.get_running_loop()
    begin = time.monotonic()
    opened = [
        await loop.create_connection(
            lambda: Sender(request, begin + seconds), str(address.hostname), address.port or 80
        )
        for _ in range(CONNECTIONS)
    ]
    await asyncio.gather(*(sender.over for _, sender in opened))
    return sum(sender.count for _, sender in opened) / (time.monotonic() - begin)


def requests_a_second(url: str, path: str, body: bytes, seconds: float = SECONDS) -> float:
    """How many one server answers."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return uvloop.run(_requests_a_second(url, head.encode() + body, seconds))


def measure_case(session: Session, case: Case, ours: tuple[str, int]) -> None:
    paths = {"ours": case.path, "peer": case.peer_path}
    rates: dict[str, list[float]] = {name: [] for name in paths}
    processor: dict[str, list[float]] = {name: [] for name in paths}
    with peer_process(case.program) as peer:
        servers = {"ours": ours, "peer": peer}
        for name, (url, _) in servers.items():
            requests_a_second(url, paths[name], case.body)
        for _ in range(session.runs or ROUNDS):
            for name, (url, pid) in servers.items():
                used = processor_s(pid)
                rates[name].append(requests_a_second(url, paths[name], case.body))
                processor[name].append((processor_s(pid) - used) / (rates[name][-1] * SECONDS))
    rate = {name: statistics.median(found) for name, found in rates.items()}
    answer = Answer(
        "Small requests over HTTP, by the clock",
        case.name,
        "requests",
        1 / rate["ours"],
        None,
        None,
        case.peer,
        1 / rate["peer"],
        case.target,
    )
    session.answers.append(answer)
    print(f"{case.name}: {answer.ratio:.3g} x {case.peer} (target {case.target:g} x)")
    for name in paths:
        used = 1e6 * statistics.median(processor[name])
        print(f"    {name}: {rate[name]:,.0f} requests/s, {used:.0f} us of the server's processor each")


def measure(session: Session) -> None:
    with memory_folder() as folder, server((folder / "data").as_uri()) as ours:
        for case in CASES:
            if session.wants(f"{case.name} {case.peer}"):
                measure_case(session, case, ours)


if __name__ == "__main__":
    main(measure)
