"""Metrics of several workers: added up, also over those that have ended, and read past those that hang."""

import os
import resource
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.telemetry import workers
from app.telemetry.workers import MergedMetrics, WorkerMetrics
from tests.support.waiting import PATIENCE_S


class Fleet:
    """Workers in this process: each has a registry of its own, and answers at a socket of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.living: dict[int, CollectorRegistry] = {}
        self._patch = monkeypatch
        self.num_restarts = 0
        self.merged = MergedMetrics(folder, lambda: list(self.living), lambda: self.num_restarts)

    def start(self, process_id: int, counted: float, oldest: float, ready: float) -> CollectorRegistry:
        self.living[process_id] = registry = CollectorRegistry()
        Counter("counted", "Counted.", ["kind"], registry=registry).labels("a").inc(counted)
        Gauge("used", "Used.", registry=registry).set(counted)
        Gauge("oldest", "Oldest.", registry=registry).set(oldest)
        Gauge("ready", "Ready.", registry=registry).set(ready)
        Gauge("shardsmith_workers", "Workers.", ["state"], registry=registry).labels("answering").set(1)
        Histogram("took", "Took.", buckets=[1], registry=registry).observe(counted)
        self._patch.setattr(os, "getpid", lambda: process_id)
        WorkerMetrics(self.folder, registry, {"oldest": "max", "ready": "min"})
        return registry

    def read(self) -> Mapping[str, float]:
        return {
            f"{sample.name}{''.join(sample.labels.values())}": sample.value
            for metric in self.merged.collect()
            for sample in metric.samples
            if not sample.name.endswith("_created")
        }


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(workers, "_PATIENCE_S", PATIENCE_S)
    return Fleet(tmp_path, monkeypatch)


def test_counters_are_added_up_and_gauges_as_they_are_meant(fleet: Fleet) -> None:
    fleet.start(1, 0.5, oldest=7, ready=1)
    fleet.start(2, 3, oldest=5, ready=0)
    assert fleet.read() == {
        "counted_totala": 3.5,
        "used": 3.5,
        "oldest": 7,
        "ready": 0,
        "took_bucket1.0": 1,
        "took_bucket+Inf": 2,
        "took_count": 2,
        "took_sum": 3.5,
        "shardsmith_workersanswering": 2,
        "shardsmith_workerssilent": 0,
        "shardsmith_worker_restarts_total": 0,
    }


def test_counters_of_an_ended_worker_stay(fleet: Fleet) -> None:
    first = fleet.start(1, 2, oldest=7, ready=0)
    fleet.start(2, 3, oldest=5, ready=1)
    fleet.read()
    del fleet.living[1], first
    for _ in range(2):
        found = fleet.read()
        assert (found["counted_totala"], found["took_count"]) == (5, 2)
        assert (found["used"], found["oldest"], found["ready"]) == (3, 5, 1)
    fleet.start(3, 10, oldest=0, ready=1)
    assert fleet.read()["counted_totala"] == 15


def test_workers_that_were_replaced_count_once(fleet: Fleet) -> None:
    registry = fleet.start(1, 2, oldest=7, ready=1)
    Counter("shardsmith_worker_restarts", "Each worker has it, too.", registry=registry)
    fleet.num_restarts = 2
    for _ in range(2):
        assert fleet.read()["shardsmith_worker_restarts_total"] == 2
    fleet.num_restarts = 3
    assert fleet.read()["shardsmith_worker_restarts_total"] == 3


def test_a_worker_that_hangs_counts_with_what_it_said_last(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.start(1, 2, oldest=7, ready=1)
    fleet.read()
    monkeypatch.setattr(workers, "_PATIENCE_S", 2.0)
    (fleet.folder / "1.sock").unlink()
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(fleet.folder / "1.sock"))
        hung.listen()
        fleet.start(2, 3, oldest=5, ready=1)
        found = fleet.read()
    assert found["counted_totala"] == 5
    assert (found["used"], found["oldest"]) == (3, 5)
    assert (found["shardsmith_workersanswering"], found["shardsmith_workerssilent"]) == (1, 1)


def test_a_worker_that_is_starting_counts_nothing_yet(fleet: Fleet) -> None:
    fleet.start(1, 2, oldest=7, ready=1)
    fleet.living[9] = CollectorRegistry()
    found = fleet.read()
    assert (found["counted_totala"], found["shardsmith_workerssilent"]) == (2, 1)


def test_where_no_worker_answers_the_service_is_not_ready(fleet: Fleet) -> None:
    fleet.living[9] = CollectorRegistry()
    fleet.num_restarts = 3
    assert fleet.read() == {
        "shardsmith_workerssilent": 1,
        "shardsmith_worker_restarts_total": 3,
        "shardsmith_ready": 0,
    }


def test_a_worker_that_could_not_read_its_metrics_answers_again(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    registry = fleet.start(1, 2, oldest=7, ready=1)
    broken = Gauge("broken", "Broken.", registry=registry)
    broken.set_function(lambda: 1 / 0)
    assert fleet.read()["shardsmith_workerssilent"] == 1
    broken.set_function(lambda: 1)
    assert fleet.read()["broken"] == 1
    assert "metrics could not be read" in caplog.text


def test_a_worker_answers_again_that_could_open_no_file(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = threading.Event()
    monkeypatch.setattr(workers, "time", SimpleNamespace(sleep=lambda _: paused.set()))
    fleet.start(1, 2, oldest=7, ready=1)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as asking:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
        try:
            asking.connect(str(fleet.folder / "1.sock"))
            assert paused.wait(30)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert fleet.read()["counted_totala"] == 2
