"""A rolling update as Kubernetes does it, under steady writes.

Replicas stand behind nginx as pods behind a Service. Probes, periods and grace are those of the manifests. As
in a cluster, a pod that is to end is told so at once, and others send to it until they have heard of it.
Run: python -m tests.deploy.rolling_update --rounds 10
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deploy.manifests import KUSTOMIZE
from tests.e2e.service import RUN, Service, free_port, start
from tests.waiting import wait_for

BASE = KUSTOMIZE / "base"
REPLICAS = 3
WRITERS = 4
#: Until every node sends to the pods that are left; a busy cluster takes one or two.
NOTICED_AFTER_S = 2
PATH = f"{os.environ.get('PATH')}:/usr/sbin"


@dataclass
class Report:
    """What writers were answered, and how long pods took."""

    answers: Counter[str] = field(default_factory=Counter)
    acknowledged: list[str] = field(default_factory=list)
    ready_s: list[float] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)
    slowest_s: float = 0.0
    stored: list[str] = field(default_factory=list)


class Pods:
    """Replicas, and the proxy that sends to those which are endpoints."""

    def __init__(self, folder: Path, run: Sequence[str]) -> None:
        self._folder = folder
        self._run = run
        self._started = 0
        deployment = yaml.safe_load((BASE / "deployment.yaml").read_text("utf-8"))
        self._pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
        self._container: dict[str, Any] = self._pod["containers"][0]
        lines = (BASE / "settings.env").read_text("utf-8").splitlines()
        self._settings = dict(line.split("=", 1) for line in lines if line.startswith("SHARDSMITH_SHUTDOWN_"))
        self.endpoints: list[Service] = []
        self.port = free_port()
        self._proxy: subprocess.Popen[bytes] | None = None

    def start(self, report: Report) -> Service:
        """A pod that its probes call ready."""
        begun = time.monotonic()
        self._started += 1
        own = self._folder / str(self._started)
        own.mkdir()
        pod = start(
            own,
            run=self._run,
            SHARDSMITH_STORAGE_URL=(self._folder / "data").as_uri(),
            **self._settings,
        )
        for kind in ("startup", "readiness"):
            probe = self._container[f"{kind}Probe"]
            failures = 0
            while not passes(pod, probe):
                failures += 1
                assert kind == "readiness" or failures < probe["failureThreshold"], pod.log()
                time.sleep(probe["periodSeconds"])
        report.ready_s.append(time.monotonic() - begun)
        return pod

    def delete(self, pod: Service, report: Report) -> None:
        """Tell it to end; who sends to it hears of that later."""
        begun = time.monotonic()
        pod.process.terminate()
        time.sleep(NOTICED_AFTER_S)
        self.send_to([other for other in self.endpoints if other is not pod])
        assert pod.process.wait(self._pod["terminationGracePeriodSeconds"] - NOTICED_AFTER_S) == 0, pod.log()
        report.ended_s.append(time.monotonic() - begun)

    def send_to(self, endpoints: list[Service]) -> None:
        """Give the proxy these endpoints."""
        self.endpoints = endpoints
        servers = "".join(f"server {pod.url.removeprefix('http://')};" for pod in endpoints)
        paths = "".join(
            f"{module}_temp_path {self._folder}/{module};"
            for module in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        configuration = self._folder / "nginx.conf"
        configuration.write_text(
            f"daemon off; pid {self._folder}/pid; error_log {self._folder}/error.log warn;\n"
            f"events {{}} http {{ access_log off; {paths}\n"
            f"upstream pods {{ {servers} keepalive 16; }}\n"
            f"server {{ listen 127.0.0.1:{self.port}; location / {{ proxy_pass http://pods;\n"
            'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host localhost;\n'
            "proxy_request_buffering off; proxy_next_upstream off; }}}\n",
            "utf-8",
        )
        program = shutil.which("nginx", path=PATH)
        assert program is not None
        command = [program, "-p", str(self._folder), "-e", str(self._folder / "error.log")]
        command += ["-c", str(configuration)]
        if self._proxy is None:
            self._proxy = subprocess.Popen(command)
            wait_for(lambda: is_open(self.port))
        else:
            subprocess.run([*command, "-s", "reload"], check=True)

    def stop(self) -> None:
        for pod in self.endpoints:
            pod.kill()
        if self._proxy is not None:
            self._proxy.terminate()
            self._proxy.wait(30)


def passes(pod: Service, probe: dict[str, Any]) -> bool:
    """One probe, as the kubelet sends it: a connection of its own."""
    try:
        url = f"{pod.url}{probe['httpGet']['path']}"
        return httpx.get(url, timeout=probe["timeoutSeconds"]).status_code == 200
    except httpx.TransportError:
        return False


def is_open(port: int) -> bool:
    try:
        return bool(httpx.get(f"http://127.0.0.1:{port}/livez").status_code)
    except httpx.TransportError:
        return False


@contextmanager
def writing(port: int, report: Report) -> Iterator[None]:
    """Appends one after the other meanwhile, each sent once: there is no retry that would hide a failure."""
    over = threading.Event()

    def write(number: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
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
    pods = Pods(folder, run)
    try:
        pods.send_to([pods.start(report) for _ in range(REPLICAS)])
        with writing(pods.port, report):
            for _ in range(rounds):
                for old in list(pods.endpoints):
                    pods.send_to([*pods.endpoints, pods.start(report)])
                    pods.delete(old, report)
        url = f"{pods.endpoints[0].url}/v1/datasets/rolled/versions"
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
    print(
        f"{rounds * REPLICAS} pods replaced under {sum(report.answers.values())} appends: "
        f"{dict(report.answers)}; {len(lost)} acknowledged rows lost. An append took "
        f"{report.slowest_s:.2f} s at most, a pod {max(report.ready_s):.1f} s until ready and "
        f"{max(report.ended_s):.1f} s to end."
    )


if __name__ == "__main__":
    main()
