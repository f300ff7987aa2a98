"""What one request costs a service that is a process of its own, as Linux sees it."""

import http.client
import json
import os
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.corpora.hostile_requests import Hostile
from tests.support.service import Service

__all__ = ["Footprint", "measured"]

_BLOCK_BYTES = 512  # of `st_blocks`, whatever the disk has
_PAUSE_S = 0.02


@dataclass
class Footprint:
    """What one request cost.

    Attributes:
        answer: status, and the code of the problem; or "cut".
        sent, answered, stored, spooled, resident: bytes; of the spool and of memory the most at one time.
        processor_s: of the whole process.
        probes_s: how long each `GET /livez` took meanwhile, one after the other.
    """

    answer: str = ""
    sent: int = 0
    answered: int = 0
    stored: int = 0
    spooled: int = 0
    resident: int = 0
    processor_s: float = 0.0
    probes_s: list[float] = field(default_factory=list)


def measured(service: Service, spool: Path, data: Path, request: Hostile, dataset: str) -> Footprint:
    """Send `request` to a service that has nothing else to do, and take the answer."""
    pid = service.process.pid
    body, found = request.body(), Footprint()
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    before = processor_s(pid), folder_bytes(data), resident_peak(pid)
    done = threading.Event()
    watching = threading.Thread(target=_watch, args=(service, spool, found, done))
    watching.start()
    try:
        found.sent = len(body)
        found.answer, found.answered = _exchanged(
            service, request, request.path.format(dataset=dataset), body
        )
    finally:
        done.set()
        watching.join()
    found.processor_s = processor_s(pid) - before[0]
    found.stored = folder_bytes(data) - before[1]
    found.resident = resident_peak(pid) - before[2]
    return found


def _exchanged(service: Service, request: Hostile, path: str, body: bytes) -> tuple[str, int]:
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=300)
    num_bytes, head = 0, b""
    try:
        connection.request("POST", path, body, {"Content-Type": request.content_type, **request.headers})
        answer = connection.getresponse()
        try:
            while piece := answer.read1(1 << 20):
                num_bytes += len(piece)
                head += piece[: 4096 - len(head)]
        except http.client.IncompleteRead as error:
            return "cut", num_bytes + len(error.partial)
        if answer.status < 400:
            return str(answer.status), num_bytes
        return f"{answer.status} {json.loads(head)['code']}", num_bytes
    finally:
        connection.close()


def _watch(service: Service, spool: Path, found: Footprint, done: threading.Event) -> None:
    """Probe the service, and look at its spool, until it is done; at least once."""
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=60)
    while True:
        begin = time.monotonic()
        connection.request("GET", "/livez")
        assert connection.getresponse().read() is not None
        found.probes_s.append(time.monotonic() - begin)
        found.spooled = max(found.spooled, spooled_bytes(service.process.pid, spool))
        if done.wait(_PAUSE_S):
            connection.close()
            return


def processor_s(pid: int) -> float:
    """Seconds of a processor that the process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    kib = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert kib is not None
    return int(kib[1]) * 1024


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def spooled_bytes(pid: int, spool: Path) -> int:
    """Bytes of the files in that folder that the process has open; they have no names."""
    total = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if str(entry.readlink()).startswith(str(spool)):
                total += entry.stat().st_blocks * _BLOCK_BYTES
        except OSError:  # closed meanwhile
            continue
    return total
