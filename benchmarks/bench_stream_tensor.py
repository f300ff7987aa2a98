"""How fast is a large tensor converted over HTTP, while it arrives, next to a server that only echoes it?

One GiB goes up over one connection while the answer comes down it. The peer is a bare ASGI application that
sends back each piece of the body as it comes, under the same uvicorn with the same settings. Both take turns.
This is time by the clock, the client on the same machine. The processor time of each server, and how much
its memory has grown at its peak, are printed. Then a client that writes everything before it reads.
Run: python -m benchmarks.bench_stream_tensor [--size MiB]
"""

from __future__ import annotations

import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from app.codecs.arrays.npy import npy_header
from app.codecs.messages.framing import RunningCrc, frame_header
from app.codecs.messages.tensor_proto.write import tensor_proto_header
from app.domain.dtypes import FLOAT32
from app.domain.limits import MIB
from benchmarks.bench_appends import server
from benchmarks.measure import Answer, Session, main, memory_folder, processor_s

SIZE_MIB = 1024
ROUNDS = 3
BLOCK = os.urandom(4 * MIB)
ECHO = """
import sys, uvicorn
async def app(scope, receive, send):
    more = scope["path"] != "/readyz"
    headers = [(b"content-type", b"application/octet-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while more:
        message = await receive()
        more = message.get("more_body", False)
        if body := message.get("body"):
            await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="info", timeout_keep_alive=75)
"""


@contextmanager
def peer_process(code: str) -> Iterator[tuple[str, int]]:
    """A peer in a process of its own, told its port: its address, and its id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-c", code, str(port)]
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()


class Body:
    """A large tensor in a form: what stands before its elements, and behind them."""

    def __init__(self, head: bytes, num_blocks: int, tail: bytes = b"") -> None:
        self.head = head
        self.num_blocks = num_blocks
        self.tail = tail

    @property
    def size(self) -> int:
        return len(self.head) + self.num_blocks * len(BLOCK) + len(self.tail)

    def send(self, connection: socket.socket) -> None:
        connection.sendall(self.head)
        for _ in range(self.num_blocks):
            connection.sendall(BLOCK)
        connection.sendall(self.tail)


def npy_body(num_blocks: int) -> Body:
    return Body(npy_header(FLOAT32.numpy.str, (num_blocks, len(BLOCK) // 4)), num_blocks)


def tfrecord_body(num_blocks: int) -> Body:
    header = tensor_proto_header(FLOAT32, (num_blocks, len(BLOCK) // 4))
    crc = RunningCrc()
    crc.extend(header)
    for _ in range(num_blocks):
        crc.extend(BLOCK)
    return Body(frame_header(len(header) + num_blocks * len(BLOCK)) + header, num_blocks, crc.footer())


def exchange(url: str, path: str, body: Body, *, half_duplex: bool = False) -> float:
    """Seconds until the whole answer is there, which has to be as long as the tensor at the least."""
    address = urlsplit(url)
    begin = time.monotonic()
    with socket.create_connection((str(address.hostname), address.port or 80)) as connection:
        head = (
            f"POST {path} HTTP/1.1\r\n"
            f"Host: localhost\r\nContent-Length: {body.size}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(head.encode())
        sender = threading.Thread(target=body.send, args=(connection,))
        sender.start()
        if half_duplex:
            sender.join()
        received, last = drain(connection)
        sender.join()
    if not last.endswith(b"0\r\n\r\n") or received < body.num_blocks * len(BLOCK):
        raise RuntimeError(f"{path} answered {received} bytes that end with {last[-200:]!r}")
    return time.monotonic() - begin


def drain(connection: socket.socket) -> tuple[int, bytes]:
    """How many bytes come until the server closes, and the last ones."""
    buffer = bytearray(1 * MIB)
    received, last = 0, b""
    while count := connection.recv_into(buffer):
        received += count
        last = (last + bytes(buffer[max(0, count - 256) : count]))[-256:]
    return received, last


def memory_mib(pid: int, name: str) -> float:
    """`VmRSS` or `VmHWM` of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


class Measured:
    """One kind of exchange with one server: what each run of it took."""

    def __init__(self, name: str, pid: int, run: Callable[[], float]) -> None:
        self.name = name
        self.run = run
        self.seconds: list[float] = []
        self.processor: list[float] = []
        self.growth: list[float] = []
        self._pid = pid

    def measure(self) -> None:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
        resident, used = memory_mib(self._pid, "VmRSS"), processor_s(self._pid)
        self.seconds.append(self.run())
        self.processor.append(processor_s(self._pid) - used)
        self.growth.append(memory_mib(self._pid, "VmHWM") - resident)

    def report(self, num_bytes: int) -> None:
        gib = num_bytes / 2**30
        print(
            f"{self.name}: {gib * 1.073741824 / statistics.median(self.seconds):.2f} GB/s, "
            f"{statistics.median(self.processor) / gib:.2f} s of the server's processor a GiB, "
            f"memory grown by {max(self.growth):.0f} MiB at its peak"
        )


def measure(session: Session) -> None:
    num_blocks = (session.size or SIZE_MIB) * MIB // len(BLOCK)
    num_bytes = num_blocks * len(BLOCK)
    npy, tfrecord = npy_body(num_blocks), tfrecord_body(num_blocks)
    to_tfrecord, to_raw = (
        "/v1/tensors/serialize?from=npy&to=tfrecord",
        "/v1/tensors/parse?from=tfrecord&to=raw",
    )
    with (
        memory_folder() as folder,
        server((folder / "data").as_uri()) as (ours, pid),
        peer_process(ECHO) as (url, peer),
    ):
        peers = Measured("echo", peer, lambda: exchange(url, "/", npy))
        runs = [
            Measured("NPY to TFRecord", pid, lambda: exchange(ours, to_tfrecord, npy)),
            Measured("TFRecord to raw", pid, lambda: exchange(ours, to_raw, tfrecord)),
        ]
        for round_ in range(1 + (session.runs or ROUNDS)):
            for measured in (peers, *runs):
                if session.wants(measured.name) or measured is peers:
                    measured.measure()
                    if not round_:  # what the first takes, is taken once: threads, and compiled kernels
                        measured.seconds, measured.processor, measured.growth = [], [], []
        half = Measured(
            "NPY to TFRecord, written before it is read",
            pid,
            lambda: exchange(ours, to_tfrecord, npy_body(num_blocks // 4), half_duplex=True),
        )
        half.measure()
    peers.report(num_bytes)
    half.report(num_bytes // 4)
    for measured in runs:
        if not measured.seconds:
            continue
        measured.report(num_bytes)
        session.answers.append(
            Answer(
                "A large tensor converted over HTTP while it arrives, by the clock",
                f"{measured.name}, {num_bytes // MIB} MiB",
                "bytes",
                statistics.median(measured.seconds) / num_bytes,
                num_bytes / statistics.median(measured.seconds) / 1e9,
                None,
                "the same uvicorn echoing",
                statistics.median(peers.seconds) / num_bytes,
                0.8,
            )
        )
        print(f"    {session.answers[-1].ratio:.2f} x the same uvicorn echoing (target 0.8 x)")


if __name__ == "__main__":
    main(measure)
