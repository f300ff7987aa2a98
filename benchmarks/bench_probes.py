"""How long does a probe wait while the largest conversions run?

A real server process, four clients at a time in processes of their own that each send one large body and take
the answer, and meanwhile `GET /livez`, over and over, on connections of their own. This is time by the clock,
over all cores, which server, clients and probes share. The target is 100 ms for 99 of 100 probes.
Run: python -m benchmarks.bench_probes [--size MIB]
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import statistics
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from app.codecs.arrays.npy import npy_header
from app.codecs.columns import Records
from app.codecs.forms import RECORDS_CODECS
from app.codecs.options import RecordsEncodeOptions
from app.domain.dtypes import FLOAT32
from app.domain.limits import MIB
from app.domain.schema import Schema
from app.runtime.budget import Budget
from benchmarks.bench_appends import server
from benchmarks.bench_stream_tensor import drain
from benchmarks.measure import Answer, Session, main, memory_folder
from benchmarks.open_loop import Outcome, probed, quantile
from tests.support.arrow_rows import arrow_schema, batches_from_arrow

CLIENTS = 4
#: Of a body that streams; of one that is held as a whole, with what it decodes to.
SIZE_MIB, WHOLE_MIB = 1024, 96
TARGET_S = 0.1
ROW = b'{"x": [0.25, -1.5, 3.125, 0.0625], "n": 12345, "text": "some words of a row"}'


@dataclass(frozen=True)
class Body:
    """A large body: a block that is repeated, and what stands around it."""

    path: str
    media_type: str
    head: bytes
    block: bytes
    times: int
    tail: bytes = b""

    def send(self, connection: socket.socket) -> None:
        connection.sendall(self.head)
        for _ in range(self.times):
            connection.sendall(self.block)
        connection.sendall(self.tail)


def tfrecord_block() -> bytes:
    schema = Schema.from_json(
        {"features": {"x": {"dtype": "float32", "shape": [4]}, "n": {"dtype": "int64"}}}
    )
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(80_000, dtype=np.float32)), 4)
    batch = pa.RecordBatch.from_arrays(
        [values, pa.array(np.arange(20_000, dtype=np.int64))], schema=arrow_schema(schema)
    )
    records = Records(schema, batches_from_arrow(schema, [batch]))
    return b"".join(RECORDS_CODECS["tfrecord"].encode(records, RecordsEncodeOptions(), Budget()))


def bodies(mib: int) -> dict[str, Body]:
    """The largest of each kind: of those that stream, so many MiB."""
    zeros, numbers = bytes(1 * MIB), b"0.123456," * 100_000
    lines, rows, frames = (ROW + b"\n") * 10_000, (ROW + b",") * 10_000, tfrecord_block()
    cells = b"0.25,12345,some words of a row\n" * 20_000
    npy = npy_header(FLOAT32.numpy.str, (mib * MIB // 4,))
    tensors, records, parsed = "/v1/tensors/serialize", "/v1/records/serialize", "/v1/records/parse"
    whole = WHOLE_MIB * MIB
    size = mib * MIB
    return {
        "NPY": Body(tensors, "application/x-npy", npy, zeros, mib),
        "tensor as JSON": Body(tensors, "application/json", b"[", numbers, whole // len(numbers), b"0.5]"),
        "rows as JSON": Body(records, "application/json", b"[", rows, whole // len(rows), ROW + b"]"),
        "NDJSON": Body(records, "application/x-ndjson", b"", lines, size // len(lines)),
        "CSV": Body(records, "text/csv", b"x,n,text\n", cells, size // len(cells)),
        "TFRecord to NDJSON": Body(parsed, "application/x-tfrecord", b"", frames, size // len(frames)),
    }


def convert(port: int, body: Body) -> tuple[str, int]:
    """Send it, and take the answer: how that begins, and how many bytes came."""
    length = len(body.head) + body.times * len(body.block) + len(body.tail)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = (
            f"POST {body.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {body.media_type}\r\n"
            f"Content-Length: {length}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(head.encode())
        sender = threading.Thread(target=body.send, args=(connection,))
        sender.start()
        status = connection.recv(12).decode("latin-1")
        received, last = drain(connection)
        sender.join()
    if status != "HTTP/1.1 200":
        raise RuntimeError(f"{body.path} answered {status}: {last!r}")
    return status, received


async def probe_while(running: list[Future[tuple[str, int]]], port: int) -> list[Outcome]:
    """Probes until all of them are done."""
    done = asyncio.Event()
    probing = asyncio.create_task(probed(port, ["/livez"], done))
    await asyncio.gather(*(asyncio.wrap_future(future) for future in running))
    done.set()
    return await probing


def measure(session: Session) -> None:
    spawn = multiprocessing.get_context("spawn")
    with (
        memory_folder() as folder,
        server((folder / "data").as_uri()) as (url, _),
        ProcessPoolExecutor(CLIENTS, mp_context=spawn) as clients,
    ):
        port = urlsplit(url).port or 80
        for case, body in bodies(session.size or SIZE_MIB).items():
            if not session.wants(case):
                continue
            running = [clients.submit(convert, port, body) for _ in range(CLIENTS)]
            probes = asyncio.run(probe_while(running, port))
            failed = sum(probe.status != 200 for probe in probes)
            p99 = quantile(probes, 0.99)
            print(
                f"{case}: {len(probes)} probes, {failed} failed; median "
                f"{1e3 * statistics.median(probe.seconds for probe in probes):.1f} ms, p99 "
                f"{1e3 * p99:.0f} ms, longest {1e3 * quantile(probes, 1):.0f} ms",
                flush=True,
            )
            question = f"Probes while {CLIENTS} of the largest conversions run, p99 by the clock"
            session.answers.append(
                Answer(question, case, "probes", p99, None, None, "the 100 ms aimed at", TARGET_S, 1)
            )


if __name__ == "__main__":
    main(measure)
