"""How fast, and in how much memory, does a large dataset get into S3, next to obstore alone in the same run?

Ours: one POST of TFRecord rows to a service in a process of its own, until it is acknowledged; then those
rows published as shards. The peer: the same bytes as one object by obstore's own multipart upload, from this
process. Each goes to a new Ceph gateway on this machine, which keeps all in memory, and they take turns. This
is time by the clock, over all cores, which client, service and store share. What is printed beside it: what
the service grew by, at its highest, and the processor time that service, client and gateway took, which
tells more on a machine that does other things too.
Run: python -m benchmarks.bench_store_write [--size MIB] [--runs N]
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import obstore
import pyarrow as pa
from obstore.store import S3Store

from app.codecs.columns import Records
from app.codecs.forms import RECORDS_CODECS
from app.codecs.options import RecordsEncodeOptions
from app.domain.limits import KIB, MIB
from app.domain.schema import Schema
from app.runtime.budget import Budget
from benchmarks.measure import Answer, Session, main, processor_s
from tests.support.arrow_rows import arrow_schema, batches_from_arrow
from tests.support.object_stores.running import BUCKET, RunningStore, ceph_rgw
from tests.support.service import Service, start

SIZE_MIB = 2048
ROUNDS = 3
#: Rows of 12 KiB: small pictures with a label.
IMAGE_BYTES = 12 * KIB
SCHEMA = Schema.from_json({"features": {"image": {"dtype": "bytes"}, "label": {"dtype": "int64"}}})
#: The peer's parts are as large as the service's; as many as obstore sends at a time unless told.
PEER_PARTS, PEER_AT_ONCE = 16 * MIB, 12
#: How often memory is looked at.
LOOK_S = 0.02
TARGET = 0.7


def block() -> bytes:
    """About 8 MiB of framed rows."""
    rng = np.random.default_rng(0)
    rows = 8 * MIB // IMAGE_BYTES
    images = pa.array([rng.bytes(IMAGE_BYTES) for _ in range(rows)], pa.binary())
    batch = pa.RecordBatch.from_arrays([images, pa.array(range(rows))], schema=arrow_schema(SCHEMA))
    return b"".join(
        RECORDS_CODECS["tfrecord"].encode(
            Records(SCHEMA, batches_from_arrow(SCHEMA, [batch])), RecordsEncodeOptions(), Budget()
        )
    )


class Watch:
    """What a process uses while it is watched.

    Attributes:
        grown: the most memory above what it had at first, in MiB.
    """

    def __init__(self, service: Service) -> None:
        self.grown = 0.0
        self._service = service
        self._first = service.resident_mib()
        self._over = threading.Event()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self.grown = max(self.grown, self._service.resident_mib() - self._first)

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


@dataclass
class Round:
    """What one round is made with: a bucket of a new gateway, and a new service.

    Attributes:
        pids: of the service, of this process, and of the gateway.
    """

    bucket: S3Store
    service: Service
    pids: dict[str, list[int]]

    def processor_s(self) -> dict[str, float]:
        """Processor time of each so far."""
        return {name: sum(map(processor_s, pids)) for name, pids in self.pids.items()}


class Phase:
    """Seconds by the clock, and of processor time, in each round."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.processor: list[dict[str, float]] = []

    @contextmanager
    def timed(self, by: Round) -> Iterator[None]:
        begin, before = time.perf_counter(), by.processor_s()
        yield
        self.taken.append(time.perf_counter() - begin)
        self.processor.append({name: after - before[name] for name, after in by.processor_s().items()})

    @property
    def seconds(self) -> float:
        return statistics.median(self.taken)

    @property
    def processor_seconds(self) -> dict[str, float]:
        return {name: statistics.median(of[name] for of in self.processor) for name in self.processor[0]}


def append(service: Service, dataset: str, data: bytes, times: int) -> None:
    """One POST of `data` so many times over, from a plain socket: no client library in the way."""
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
        head = (
            f"POST /v1/datasets/{dataset}/records HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Type: application/x-tfrecord\r\nContent-Length: {len(data) * times}\r\n\r\n"
        )
        connection.sendall(head.encode())
        for _ in range(times):
            connection.sendall(data)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    if not answer.startswith(b"HTTP/1.1 201"):
        raise RuntimeError(answer[:2000].decode(errors="replace"))


def publish(service: Service, dataset: str) -> None:
    url = f"{service.url}/v1/datasets/{dataset}/versions"
    while (answer := httpx.post(url, timeout=600)).status_code == 202:
        time.sleep(0.05)
    if answer.status_code != 201:
        raise RuntimeError(answer.text)


def upload(bucket: S3Store, data: bytes, times: int) -> None:
    """The same bytes as one object through obstore alone."""
    with obstore.open_writer(bucket, "alone", buffer_size=PEER_PARTS, max_concurrency=PEER_AT_ONCE) as writer:
        for _ in range(times):
            writer.write(data)


def open_bucket(store: RunningStore) -> S3Store:
    return S3Store(
        BUCKET,
        endpoint=store.endpoint,
        region=store.environment["AWS_REGION"],
        access_key_id=store.environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=store.environment["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True, "timeout": timedelta(seconds=60)},
    )


@contextmanager
def started(mib: int) -> Iterator[Round]:
    """A gateway with room for so much, three times over, and a service.

    Both are new for each turn: the gateway gives back what was deleted only after hours, and who writes into
    one first finds its memory in large pages, which cost it half as much to touch.
    """
    with tempfile.TemporaryDirectory() as folder:
        ceph, own = Path(folder) / "ceph", Path(folder) / "service"
        ceph.mkdir()
        own.mkdir()
        with ceph_rgw(ceph, gib=3 * mib // 1024 + 2) as store:
            settings = {"SHARDSMITH_STORAGE_URL": f"{store.url}/data", "SHARDSMITH_COLLECT_INTERVAL_S": "0"}
            service = start(own, **settings, **store.environment)
            try:
                service.wait_until_ready()
                gateway = [int(path.read_text(encoding="ascii")) for path in (ceph / "run").glob("*.pid")]
                pids = {"service": [service.process.pid], "client": [os.getpid()], "gateway": gateway}
                yield Round(open_bucket(store), service, pids)
            finally:
                service.kill()


def write_alone(by: Round, data: bytes, times: int, phases: dict[str, Phase]) -> None:
    """The peer's turn."""
    upload(by.bucket, data, 1)
    with phases["obstore"].timed(by):
        upload(by.bucket, data, times)


def write_ours(by: Round, data: bytes, times: int, phases: dict[str, Phase]) -> None:
    """Our turn."""
    service = by.service
    append(service, "warm", data, 1)
    publish(service, "warm")
    watch = Watch(service)
    with watch.watching():
        with phases["append"].timed(by):
            append(service, "rows", data, times)
        acknowledged = watch.grown
        with phases["publish"].timed(by):
            publish(service, "rows")
    print(f"grew by {acknowledged:.0f} MiB as it appended, by {watch.grown:.0f} MiB in all")


def measure(session: Session) -> None:
    mib = session.size or SIZE_MIB
    data = block()
    times = mib * MIB // len(data)
    phases = {name: Phase() for name in ("obstore", "append", "publish")}
    for _ in range(session.runs or ROUNDS):
        for write in (write_alone, write_ours):
            with started(mib) as by:
                write(by, data, times, phases)
    for name, phase in phases.items():
        used = ", ".join(f"{of} {s / mib * KIB:.2f}" for of, s in phase.processor_seconds.items())
        print(f"{name}: {mib / phase.seconds:.0f} MiB/s; processor seconds a GiB: {used}")
    peer = phases["obstore"].seconds
    both = phases["append"].seconds + phases["publish"].seconds
    for case, seconds, target in (
        ("appended", phases["append"].seconds, TARGET),
        ("appended and published", both, None),
    ):
        print(f"{case}: {peer / seconds:.2f} of obstore alone")
        answer = Answer(
            "A dataset into S3 over HTTP, by the clock",
            f"{case}, {mib} MiB",
            "MiB",
            seconds / mib,
            mib * MIB / seconds / 1e9,
            None,
            "obstore alone",
            peer / mib,
            target,
        )
        session.answers.append(answer)


if __name__ == "__main__":
    main(measure)
