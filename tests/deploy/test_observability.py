"""Alert rules, dashboard and runbook: in step with each other, and with a service that Prometheus watches."""

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.domain.limits import KIB, MIB
from tests.deploy.manifests import CHART, ROOT
from tests.support.object_stores.running import RunningStore
from tests.support.service import Service, free_port, ready
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("prometheus_tools")]

ALERTS = CHART / "observability" / "alerts.yaml"
DASHBOARD = CHART / "observability" / "dashboard.json"
RULE_TESTS = Path(__file__).with_name("alerts.test.yaml")
RUNBOOK = ROOT / "docs" / "how-to" / "runbook.md"
METRICS = ROOT / "docs" / "reference" / "metrics.md"
METRIC = re.compile(r"\bshardsmith_\w+")
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
PROGRAMS = ("prometheus", "promtool")
#: A conversion in a thread holds so much of the pool at least, once 256 KiB of its body are there.
HELD_BY_ONE = 6 * MIB


def run(*command: str | Path) -> str:
    """What a command that succeeds says."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def queries(window: str) -> list[tuple[str, str]]:
    """Of each panel its title and its queries, for all replicas."""
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    found = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]
    return [
        (title, re.sub(r"\$(job|instance)\b", ".*", query).replace("$__rate_interval", window))
        for title, query in found
    ]


def test_rules_are_valid_and_fire_where_they_should() -> None:
    assert f"SUCCESS: {len(rules())} rules found" in run("promtool", "check", "rules", ALERTS)
    assert "SUCCESS" in run("promtool", "test", "rules", RULE_TESTS)


def test_each_rule_is_tested_to_fire() -> None:
    cases = yaml.safe_load(RULE_TESTS.read_text("utf-8"))["tests"]
    fired = {case["alertname"] for test in cases for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules()}


def test_the_runbook_has_a_section_for_each_alert() -> None:
    text = RUNBOOK.read_text("utf-8")
    sections = re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in sections] == [rule["alert"] for rule in rules()]
    for name, section in sections:
        for part in ("**Means.**", "**Look at**", "**Do.**"):
            assert part in section or (part == "**Do.**" and "| do |" in section), (name, part)


def test_queries_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    recorded = [
        {"record": f"panel:{number}", "expr": query} for number, (_, query) in enumerate(queries("1m"))
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "p", "rules": recorded}]}))
    said = run("promtool", "check", "rules", tmp_path / "panels.yaml")
    assert f"SUCCESS: {len(recorded)} rules found" in said


def test_rules_and_dashboard_name_metrics_that_there_are() -> None:
    declared = set(METRIC.findall(METRICS.read_text("utf-8")))
    for path in (ALERTS, DASHBOARD, RULE_TESTS):
        found = METRIC.findall(path.read_text("utf-8"))
        named = {re.sub(r"_(bucket|count|sum)$", "", name) for name in found}
        assert named
        assert named <= declared, path.name


@dataclass
class Prometheus:
    """A Prometheus that runs."""

    url: str

    def query(self, query: str) -> list[dict[str, Any]]:
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": query})
        assert answer.status_code == 200, (query, answer.text)
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def has_data(self, query: str) -> bool:
        return any(math.isfinite(float(sample["value"][1])) for sample in self.query(query))

    def firing(self) -> set[str]:
        alerts = httpx.get(f"{self.url}/api/v1/alerts").json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def at_once(rule: dict[str, Any]) -> dict[str, Any]:
    """The same rule, which looks at seconds instead of minutes."""
    expression = re.sub(r"\[\w+\]", "[8s]", re.sub(r"offset \w+", "offset 8s", rule["expr"]))
    return {**rule, "expr": expression, "for": "1s"}


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    """It looks at port `METRICS_PORT` of this machine twice a second."""
    folder = tmp_path / "prometheus"
    folder.mkdir()
    groups = {"groups": [{"name": "at once", "rules": [at_once(rule) for rule in rules()]}]}
    (folder / "alerts.yaml").write_text(yaml.safe_dump(groups))
    metrics_port, port = free_port(), free_port()
    (tmp_path / "metrics_port").write_text(str(metrics_port))
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            {"job_name": "shardsmith", "static_configs": [{"targets": [f"127.0.0.1:{metrics_port}"]}]}
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait()


@contextmanager
def watched(tmp_path: Path, prometheus: Prometheus, **settings: str) -> Iterator[Service]:
    """A service that is ready, and that Prometheus has seen."""
    port = (tmp_path / "metrics_port").read_text()
    with ready(tmp_path, SHARDSMITH_METRICS_PORT=port, **settings) as service:
        wait_for(lambda: answers(prometheus) and prometheus.has_data("shardsmith_ready == 1"))
        yield service


def answers(prometheus: Prometheus) -> bool:
    try:
        return httpx.get(f"{prometheus.url}/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_each_panel_shows_something_of_a_service_at_work(tmp_path: Path, prometheus: Prometheus) -> None:
    with watched(tmp_path, prometheus, SHARDSMITH_COLLECT_INTERVAL_S="1") as service:
        names = count()

        def work() -> None:
            """Everything that the dashboard has a panel for."""
            rows = b'{"x": 1.5}\n' * 20_000
            name = f"{service.url}/v1/datasets/d{next(names)}"
            with httpx.Client(base_url=service.url, timeout=60) as client, ThreadPoolExecutor(4) as pool:
                assert client.post("/v1/records/serialize", content=rows, headers=NDJSON).status_code == 200
                assert client.post("/v1/records/serialize", content=b"{", headers=NDJSON).status_code == 400
                assert client.post(f"{name}/records", content=rows, headers=NDJSON).status_code == 201
                small = [pool.submit(client.post, f"{name}/records", content=b'[{"x": 2}]', headers=JSON)]
                assert {future.result().status_code for future in small} == {201}
                version = client.post(f"{name}/versions")
                assert version.status_code == 201
                assert client.post(f"{name}/records", content=rows, headers=NDJSON).status_code == 201
                assert client.get(f"{name}/versions/1.0.0/records").status_code == 200

        def missing() -> list[tuple[str, str]]:
            return [(title, query) for title, query in queries("1m") if not prometheus.has_data(query)]

        for _ in range(20):
            work()
            if not missing():
                break
        assert missing() == []
        assert prometheus.firing() <= {"ShardsmithEventLoopLate", "ShardsmithQueueing"}, "on a busy machine"


def test_alerts_fire_once_the_store_is_gone_and_end_once_it_is_back(
    tmp_path: Path, prometheus: Prometheus
) -> None:
    with watched(tmp_path, prometheus) as service:
        expected = {"ShardsmithStoreUnavailable", "ShardsmithNotReady", "ShardsmithNoReplicaReady"}
        folder = tmp_path / "data"
        wait_for(lambda: not expected & prometheus.firing())  # it starts unready
        folder.rename(tmp_path / "away")
        folder.write_bytes(b"no folder")
        wait_for(lambda: expected <= prometheus.firing(), within_s=90)

        def fail() -> bool:
            assert httpx.get(f"{service.url}/v1/datasets/x").status_code == 503
            return "ShardsmithStoreFailing" in prometheus.firing()

        wait_for(fail, within_s=90)
        folder.unlink()
        (tmp_path / "away").rename(folder)
        wait_for(lambda: not expected & prometheus.firing(), within_s=90)
    wait_for(lambda: "ShardsmithDown" in prometheus.firing(), within_s=90)


def test_alerts_fire_once_an_s3_hangs_or_is_gone(
    tmp_path: Path, prometheus: Prometheus, ceph_rgw_to_stop: RunningStore
) -> None:
    store = ceph_rgw_to_stop
    expected = {"ShardsmithStoreUnavailable", "ShardsmithNotReady", "ShardsmithNoReplicaReady"}
    settings = {"SHARDSMITH_STORAGE_URL": store.url, **store.environment}
    with watched(tmp_path, prometheus, **settings) as service:
        url = f"{service.url}/v1/datasets/kept"
        wait_for(lambda: not expected & prometheus.firing())  # it starts unready
        assert httpx.post(f"{url}/records", json=[{"id": 7}]).status_code == 201
        os.kill(store.process_id, signal.SIGSTOP)
        # Connections are accepted, and nothing is answered: each operation lasts as long as it may.
        wait_for(lambda: expected <= prometheus.firing(), within_s=180)
        os.kill(store.process_id, signal.SIGCONT)
        wait_for(lambda: not expected & prometheus.firing(), within_s=180)
        assert httpx.post(f"{url}/versions", timeout=60).status_code == 201
        rows = httpx.get(f"{url}/versions/latest/records?to=json", timeout=60).json()
        assert rows == [{"id": 7}]
        os.kill(store.process_id, signal.SIGKILL)
        wait_for(lambda: expected <= prometheus.firing(), within_s=180)


def test_alerts_fire_while_the_memory_pool_is_full(tmp_path: Path, prometheus: Prometheus) -> None:
    pool = 60 * MIB
    with watched(
        tmp_path,
        prometheus,
        SHARDSMITH_MEMORY_BYTES=str(pool),
        SHARDSMITH_STREAMS="64",
        SHARDSMITH_MIN_RATE="1",
        SHARDSMITH_BODY_TIMEOUT_S="600",
    ) as service:
        query = "from=raw&dtype=uint8&shape=100000000"
        with ExitStack() as clients:
            for _ in range(pool // HELD_BY_ONE):
                clients.enter_context(begin_upload(service, f"/v1/tensors/serialize?{query}"))
            wait_for(lambda: "ShardsmithMemoryPoolFull" in prometheus.firing(), within_s=90)

            def refuse() -> bool:
                assert convert(service, query).status_code == 503
                return "ShardsmithOverloaded" in prometheus.firing()

            wait_for(refuse, within_s=90)
        wait_for(lambda: "ShardsmithMemoryPoolFull" not in prometheus.firing(), within_s=90)


def begin_upload(service: Service, target: str) -> socket.socket:
    """The connection of a client that sends the first half of a MiB of its body, and then nothing."""
    url = httpx.URL(service.url)
    assert url.port is not None
    connection = socket.create_connection((url.host, url.port))
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
    connection.sendall(head.encode() + bytes(512 * KIB))
    return connection


def convert(service: Service, query: str) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/tensors/serialize?{query}", content=bytes(100_000_000), timeout=60)


@pytest.fixture(scope="session")
def prometheus_tools() -> None:
    """Prometheus, and promtool, which comes with it."""
    if unset := [name for name in PROGRAMS if shutil.which(name) is None]:
        missing = f"{', '.join(unset)} are not installed; .ci/run installs them"
        assert "CI" not in os.environ, missing
        pytest.skip(missing)
