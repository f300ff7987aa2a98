"""A rolling update as Kubernetes does it, under steady writes.

Replicas stand behind HAProxy twice: as behind a Service, which hands over connections (mode tcp), and as
behind an ingress, which hands over requests (mode http). Probes, periods and grace are those of the
manifests. As in a cluster, a pod that is deleted is told so at once, and is an endpoint for a little longer.
Run: python -m tests.deploy.rolling_update --rounds 10
"""

import argparse
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.deploy.kubelet import Kubelet
from tests.deploy.manifests import base_pod, base_settings
from tests.support.service import READY_WITHIN_S, RUN, Service, free_port, start
from tests.support.waiting import wait_for

REPLICAS = 3
#: Half of them keep their connection, half open one for each request; half of each use the ingress.
WRITERS = 4
#: Until every node sends to the pods that are left; a busy cluster takes one or two.
NOTICED_AFTER_S = 2
PATH = f"{os.environ.get('PATH')}:/usr/sbin"
#: One more than there are pods at a time, since an address is given again only when its pod has ended.
_SLOTS = REPLICAS + 2
#: It repeats nothing, so that no failure is hidden.
_CONFIGURATION = """
global
    stats socket {socket} level admin
defaults
    retries 0
    timeout connect 5s
    timeout client 75s
    timeout server 75s
"""
_PROXIED = """
listen {mode}
    mode {mode}
    bind 127.0.0.1:{port}
    balance roundrobin
    server-template pod {slots} 127.0.0.1:1 disabled
"""


@dataclass
class Report:
    """What writers were answered, and how long pods took."""

    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    ready_s: list[float] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)
    slowest_s: float = 0.0
    stored: list[str] = field(default_factory=list)


class Proxy:
    """HAProxy, whose servers are set while it runs, as the endpoints of a Service are."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "haproxy.sock"
        self._slots: dict[str, int] = {}
        self.ports = {"tcp": free_port(), "http": free_port()}
        configuration = _CONFIGURATION.format(socket=self._socket)
        for mode, port in self.ports.items():
            configuration += _PROXIED.format(mode=mode, port=port, slots=_SLOTS)
        file = folder / "haproxy.cfg"
        file.write_text(configuration, "utf-8")
        program = shutil.which("haproxy", path=PATH)
        assert program is not None
        with (folder / "haproxy.log").open("wb") as log:
            self._process = subprocess.Popen([program, "-db", "-f", str(file)], stdout=log, stderr=log)
        wait_for(self._socket.exists)

    def add(self, pod: Service) -> None:
        """Send to it."""
        url = httpx.URL(pod.url)
        slot = next(number for number in range(1, _SLOTS + 1) if number not in self._slots.values())
        self._slots[pod.url] = slot
        self._tell(slot, f"addr {url.host} port {url.port}")
        self._tell(slot, "state ready")

    def drain(self, pod: Service) -> None:
        """Send nothing new to it: open connections of a Service stay where they are."""
        self._tell(self._slots[pod.url], "state drain")

    def remove(self, pod: Service) -> None:
        """Forget it, once it has ended."""
        self._tell(self._slots.pop(pod.url), "state maint")

    def _tell(self, slot: int, change: str) -> None:
        for mode in self.ports:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(self._socket))
                connection.sendall(f"set server {mode}/pod{slot} {change}\n".encode())
                said = connection.recv(4096).decode().strip()
            assert not said or said.startswith(("IP changed", "port changed", "no need")), said

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


class Pods:
    """Replicas, each with the kubelet that probes it, and the proxy in front of them."""

    def __init__(self, folder: Path, run: Sequence[str], report: Report) -> None:
        self._folder = folder
        self._run = run
        self._report = report
        self._started = 0
        self._pod = base_pod()
        self._settings = {
            name: value for name, value in base_settings().items() if name.startswith("SHARDSMITH_SHUTDOWN_")
        }
        self.running: list[Kubelet] = []
        self.proxy = Proxy(folder)

    def start(self) -> None:
        """Add a pod, once its probes call it ready."""
        begun = time.monotonic()
        self._started += 1
        own = self._folder / str(self._started)
        own.mkdir()
        service = start(
            own,
            run=self._run,
            SHARDSMITH_STORAGE_URL=(self._folder / "data").as_uri(),
            **self._settings,
        )
        kubelet = Kubelet(service, self._pod)
        self.running.append(kubelet)
        assert kubelet.ready.wait(READY_WITHIN_S), service.log()
        self.proxy.add(service)
        self._report.ready_s.append(time.monotonic() - begun)

    def delete(self, kubelet: Kubelet) -> None:
        """Tell it to end; who sends to it hears of that later."""
        service = kubelet.service
        begun = time.monotonic()
        assert kubelet.killed is None, f"{kubelet.killed}: {service.log()}"
        kubelet.delete()
        time.sleep(NOTICED_AFTER_S)
        self.proxy.drain(service)
        assert service.process.wait(kubelet.grace_s - NOTICED_AFTER_S) == 0, service.log()
        self.running.remove(kubelet)
        self.proxy.remove(service)
        self._report.ended_s.append(time.monotonic() - begun)

    def stop(self) -> None:
        for kubelet in self.running:
            kubelet.stop()
            kubelet.service.kill()
        self.proxy.stop()


@contextmanager
def writing(ports: dict[str, int], report: Report) -> Iterator[None]:
    """Appends one after the other meanwhile, each sent once: there is no retry that would hide a failure."""
    over = threading.Event()
    begun_at = time.monotonic()

    def write(number: int) -> None:
        mode, keeps = ("tcp", "http")[number % 2], number // 2 % 2 == 0
        headers = {} if keeps else {"Connection": "close"}
        with httpx.Client(base_url=f"http://127.0.0.1:{ports[mode]}", timeout=60, headers=headers) as client:
            for index in range(10**9):
                if over.is_set():
                    return
                row = f"{number}-{index}"
                begun = time.monotonic()
                try:
                    answer = client.post("/v1/datasets/rolled/records", json=[{"id": row}])
                    told = str(answer.status_code)
                except httpx.TransportError as error:
                    told = type(error).__name__
                report.slowest_s = max(report.slowest_s, time.monotonic() - begun)
                report.answers[told] += 1
                if told == "201":
                    report.acknowledged.append(row)
                else:
                    kind = "kept" if keeps else "new"
                    report.failures.append(
                        f"{told} after {begun - begun_at:.3f} s ({mode}, {kind}) for {row}"
                    )
                time.sleep(0.01)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        over.set()
        for writer in writers:
            writer.join()


def update(folder: Path, rounds: int, run: Sequence[str] = RUN) -> Report:
    """Replace all replicas so many times, each by a ready one before it is deleted, as the manifests say."""
    report = Report()
    pods = Pods(folder, run, report)
    try:
        for _ in range(REPLICAS):
            pods.start()
        with writing(pods.proxy.ports, report):
            for _ in range(rounds):
                for old in list(pods.running):
                    pods.start()
                    pods.delete(old)
        url = f"{pods.running[0].service.url}/v1/datasets/rolled/versions"
        assert httpx.post(url, timeout=120).status_code == 201
        rows = httpx.get(f"{url}/latest/records", params={"split": "train", "to": "json"}, timeout=120)
        report.stored = [row["id"] for row in rows.json()]
    finally:
        pods.stop()
    return report


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        report = update(Path(folder), rounds)
    lost = set(report.acknowledged) - set(report.stored)
    print(*report.failures, sep="\n")
    print(
        f"{rounds * REPLICAS} pods replaced under {sum(report.answers.values())} appends: "
        f"{dict(report.answers)}; {len(lost)} acknowledged rows lost. An append took "
        f"{report.slowest_s:.2f} s at most, a pod {max(report.ready_s):.1f} s until ready and "
        f"{max(report.ended_s):.1f} s to end."
    )


if __name__ == "__main__":
    main()
