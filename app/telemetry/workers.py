"""Metrics of several workers as those of one service: each worker answers its parent, which adds them up.

Each worker has a Unix socket in a folder of the parent's. The parent asks when it is asked itself. What a
worker counted that has ended stays in the sums, as far as it was asked for before.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .metrics import DECLARED

logger = logging.getLogger(__name__)

#: Seconds for a worker to answer; one that takes longer hangs.
_PATIENCE_S: Final = 1.0
#: Until another connection is accepted, where the process has too many open files for one.
_PAUSE_S: Final = 0.5
_READY: Final = "shardsmith_ready"
_WORKERS: Final = "shardsmith_workers"
_RESTARTS: Final = "shardsmith_worker_restarts_total"
#: Metrics that are added up, over workers that have ended, too. The last value of a gauge says nothing then.
_COUNTED: Final = frozenset({"counter", "histogram", "summary"})

_Labels = tuple[tuple[str, str], ...]


class WorkerMetrics:
    """Answers the parent of this process with what `source` has.

    Args:
        folder: of the sockets; this process makes the one of its id.
        source: asked for the metrics.
        across: how the gauges of several workers become one, by name: `max`, `min` or `sum`.
    """

    def __init__(self, folder: Path, source: Collector, across: Mapping[str, str]) -> None:
        self._source = source
        self._across = across
        path = _path_of(folder, os.getpid())
        path.unlink(missing_ok=True)  # that of an earlier worker with the same id
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._work, name="worker-metrics", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                asking, _ = self._socket.accept()
            except OSError:
                time.sleep(_PAUSE_S)  # noqa: TID251  # no turn is held here
                continue
            with asking:
                try:
                    asking.settimeout(_PATIENCE_S)
                    told = [self._told(metric) for metric in self._source.collect()]
                    asking.sendall(json.dumps(told).encode())
                except OSError:
                    continue  # who asked is gone
                except Exception:  # later questions are answered all the same
                    logger.exception("metrics could not be read")

    def _told(self, metric: Metric) -> Mapping[str, Any]:
        return {
            "name": metric.name,
            "kind": metric.type,
            "meaning": metric.documentation,
            "across": self._across.get(metric.name, "sum"),
            "samples": [[sample.name, sample.labels, sample.value] for sample in metric.samples],
        }


@dataclass(slots=True)
class _Family:
    kind: str
    meaning: str
    across: str
    samples: dict[tuple[str, _Labels], float] = field(default_factory=dict)

    def add(self, samples: Mapping[tuple[str, _Labels], float]) -> None:
        together: Callable[[float, float], float] = {"max": max, "min": min}.get(self.across, _sum)
        for key, value in samples.items():
            self.samples[key] = together(self.samples[key], value) if key in self.samples else value


def _sum(one: float, other: float) -> float:
    return one + other


#: By name.
_Families = dict[str, _Family]


class MergedMetrics:
    """The metrics of all workers. For one server, which may ask from several threads.

    Args:
        folder: of the sockets.
        process_ids: asked for those of the workers that live.
        num_restarts: asked for how many had to be replaced.
    """

    def __init__(
        self, folder: Path, process_ids: Callable[[], Iterable[int]], num_restarts: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._process_ids = process_ids
        self._num_restarts = num_restarts
        self._lock = threading.Lock()
        #: What each worker that lives has said last, and all that have ended.
        self._last: dict[int, _Families] = {}
        self._ended: _Families = {}

    def describe(self) -> Iterable[Metric]:
        """Nothing is said before any worker was asked."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Ask the workers."""
        with self._lock:
            merged = self._merge()
        for name, family in merged.items():
            metric = Metric(name, family.meaning, family.kind)
            for (sample, labels), value in family.samples.items():
                metric.add_sample(sample, dict(labels), value)
            yield metric

    def _merge(self) -> _Families:
        living = set(self._process_ids())
        for process_id in self._last.keys() - living:
            _add(self._ended, self._last.pop(process_id), counted_alone=True)
        merged: _Families = {}
        _add(merged, self._ended, counted_alone=True)
        num_silent = 0
        for process_id in living:
            answer = _ask(_path_of(self._folder, process_id))
            if answer is not None:
                self._last[process_id] = answer
            num_silent += answer is None
            _add(merged, self._last.get(process_id, {}), counted_alone=answer is None)
        # Where no worker answers, none says so.
        _family(merged, _WORKERS).add({(_WORKERS, (("state", "silent"),)): num_silent})
        _family(merged, _RESTARTS).add({(_RESTARTS, ()): self._num_restarts()})
        if num_silent == len(living):
            _family(merged, _READY).add({(_READY, ()): 0})
        return merged


def _family(families: _Families, name: str) -> _Family:
    declared = DECLARED[name]
    empty = _Family(declared.kind, declared.meaning, declared.across)
    return families.setdefault(name.removesuffix("_total"), empty)


def _add(total: _Families, families: _Families, *, counted_alone: bool) -> None:
    for name, family in families.items():
        if counted_alone and family.kind not in _COUNTED:
            continue
        total.setdefault(name, _Family(family.kind, family.meaning, family.across)).add(family.samples)


def _ask(path: Path) -> _Families | None:
    """What a worker says; None if it does not answer in time."""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_PATIENCE_S)
            asking.connect(str(path))
            pieces = iter(lambda: asking.recv(1 << 16), b"")
            told = json.loads(b"".join(pieces))
    except (OSError, ValueError):  # it is starting, hangs, or has ended
        return None
    return {
        family["name"]: _Family(
            family["kind"],
            family["meaning"],
            family["across"],
            {(name, tuple(sorted(labels.items()))): value for name, labels, value in family["samples"]},
        )
        for family in told
    }


def _path_of(folder: Path, process_id: int) -> Path:
    return folder / f"{process_id}.sock"
