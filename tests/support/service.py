"""Starting the service as a process of its own."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]

#: What bin/serve becomes, in the interpreter that runs the tests.
RUN = (sys.executable, "-c", "from app.launch import run; run()")
#: Kernels are compiled where no earlier run left them in numba's cache.
READY_WITHIN_S = 400
STOPS_WITHIN_S = 10

#: Of clients that speak plain HTTP. Each would make its own otherwise, which takes longer than most requests.
SSL_CONTEXT = httpx.create_ssl_context()

#: bin/test asks for nothing but Python; where the gate runs, curl must be there.
needs_curl = pytest.mark.skipif(
    shutil.which("curl") is None and not os.environ.get("CI"),
    reason="curl is not installed here; .ci/run installs it",
)


@dataclass
class Service:
    """A started service: its process, its address, the file its output goes to, its folder of datasets."""

    process: "subprocess.Popen[bytes]"
    url: str
    output: Path
    datasets: Path

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while not self.answers("/readyz"):
            assert self.process.poll() is None, f"the service ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"not ready after {READY_WITHIN_S} s:\n{self.log()}"
            time.sleep(0.05)

    def answers(self, path: str) -> bool:
        """Whether `GET path` is answered with 200."""
        try:
            return httpx.get(f"{self.url}{path}", timeout=5, verify=SSL_CONTEXT).status_code == 200
        except httpx.TransportError:
            return False

    def log(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def resident_mib(self) -> float:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status")
        if status.exists():
            kib = re.search(r"^VmRSS:\s+(\d+) kB$", status.read_text(encoding="utf-8"), re.MULTILINE)
            assert kib is not None
            return int(kib[1]) / 1024
        ps = ["ps", "-o", "rss=", "-p", str(self.process.pid)]
        return int(subprocess.run(ps, capture_output=True, text=True, check=True).stdout) / 1024

    def anonymous_mib(self) -> float:
        """Memory of the process that is not that of a file, which the system may take back; Linux alone."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        kib = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
        assert kib is not None
        return int(kib[1]) / 1024

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end, and give its exit status."""
        self.process.send_signal(how)
        return self.process.wait(STOPS_WITHIN_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def served_alone() -> Sequence[str]:
    """`RUN` where nothing can be imported but what `bin/serve` installs.

    The packages of the tests are here too, and numba takes scipy where it finds it, which no service has.
    """
    lock = (ROOT / "locks/serve.txt").read_text(encoding="utf-8")
    served = {"shardsmith", *re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    hidden = [
        package
        for package, distributions in packages_distributions().items()
        if served.isdisjoint(re.sub(r"[-_.]+", "-", name).lower() for name in distributions)
    ]
    assert "pytest" in hidden
    return (sys.executable, "-c", f"import sys; sys.modules.update(dict.fromkeys({hidden})); {RUN[-1]}")


def start(folder: Path, *, run: Sequence[str] = RUN, port: str = "", **settings: str) -> Service:
    """A service that keeps everything in `folder`; it may not be ready, nor listen, yet.

    A test of one service has `started` or `ready` instead, which end it, too.

    Args:
        port: where it listens if `run` says that; a free port otherwise.
    """
    port = port or str(free_port())
    environment = {
        **os.environ,
        "SHARDSMITH_HOST": "127.0.0.1",
        "SHARDSMITH_PORT": port,
        "SHARDSMITH_STORAGE_URL": (folder / "data").as_uri(),
        **settings,
    }
    output = folder / "service.log"
    with output.open("wb") as log:
        process = subprocess.Popen(run, cwd=ROOT, env=environment, stdout=log, stderr=log)
    return Service(process, f"http://127.0.0.1:{port}", output, folder / "data")


@contextmanager
def started(folder: Path, *, run: Sequence[str] = RUN, port: str = "", **settings: str) -> Iterator[Service]:
    """A service that may not be ready yet; killed at the end if it has not been stopped."""
    service = start(folder, run=run, port=port, **settings)
    try:
        yield service
    finally:
        service.kill()


@contextmanager
def ready(folder: Path, *, run: Sequence[str] = RUN, port: str = "", **settings: str) -> Iterator[Service]:
    """A service that is ready; killed at the end if it has not been stopped."""
    with started(folder, run=run, port=port, **settings) as service:
        service.wait_until_ready()
        yield service


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
