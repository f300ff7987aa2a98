"""Counting requests: one look-up and a few additions for each, on the event loop alone.

The counters of prometheus-client take a lock, and check what they are given; for the five that a request
counts that takes several times as long.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric

from .metrics import REGISTRY, Declared, declare

#: Upper bounds of the buckets of durations, in seconds.
_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0)
_SHOWN_BOUNDS: Final = (*(str(bound) for bound in _BOUNDS), "+Inf")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER_METHOD: Final = "other"
#: The route of a path that none takes, and of what was refused before it was a request.
_UNMATCHED: Final = "unmatched"
_NO_ROUTE: Final = "none"
#: Where the client left before an answer began.
_NO_STATUS: Final = "none"


_REQUESTS: Final = declare(
    "shardsmith_http_requests_total",
    "counter",
    "Requests that ended. The status is `none` if the client left before an answer began.",
    ("route", "method", "status"),
)
_SECONDS: Final = declare(
    "shardsmith_http_request_duration_seconds",
    "histogram",
    "Time from the head of a request to the end of its answer.",
    ("route", "method"),
)
_BYTES_IN: Final = declare(
    "shardsmith_http_request_body_bytes_total", "counter", "Bytes of request bodies, as sent.", ("route",)
)
_BYTES_OUT: Final = declare(
    "shardsmith_http_response_body_bytes_total",
    "counter",
    "Bytes of the content of answers, as sent.",
    ("route",),
)
_CUT: Final = declare(
    "shardsmith_http_cut_requests_total",
    "counter",
    "Requests whose body or answer did not come to its end.",
    ("route", "cause"),
)


class _Counted:
    """What was counted of the requests with one route, method and status."""

    __slots__ = ("buckets", "num", "num_in", "num_out", "seconds")

    def __init__(self) -> None:
        self.num = 0
        self.num_in = 0
        self.num_out = 0
        self.seconds = 0.0
        self.buckets = [0] * len(_SHOWN_BOUNDS)


#: By route, method and status.
_counted: Final[dict[tuple[str, str, int | None], _Counted]] = {}
#: By route and cause.
_cut_requests: Final[dict[tuple[str, str], int]] = {}
#: By status.
_refused_heads: Final[dict[int, int]] = {}


def count_request(
    route: str | None,
    method: str,
    status: int | None,
    *,
    seconds: float,
    num_in: int,
    num_out: int,
    cut: str | None,
) -> None:
    """Count a request that has ended. To be called on the event loop.

    Args:
        route: the template of its path; None if no route takes it.
        method: as sent.
        status: of the answer; None if none began.
        seconds: from the head to the end of the answer.
        num_in: bytes of its body.
        num_out: bytes of the answer's content.
        cut: why the body or the answer did not come to its end, a name from a fixed set.
    """
    key = (route or _UNMATCHED, method if method in _METHODS else _OTHER_METHOD, status)
    counted = _counted.get(key)
    if counted is None:
        counted = _counted[key] = _Counted()
    counted.num += 1
    counted.num_in += num_in
    counted.num_out += num_out
    counted.seconds += seconds
    counted.buckets[bisect_left(_BOUNDS, seconds)] += 1
    if cut is not None:
        _cut_requests[key[0], cut] = _cut_requests.get((key[0], cut), 0) + 1


def count_refused_head(status: int) -> None:
    """Count what was refused before it was a request. To be called on the event loop."""
    _refused_heads[status] = _refused_heads.get(status, 0) + 1


class _Requests:
    """What was counted, as metrics."""

    def collect(self) -> Iterator[Metric]:
        requests, bytes_in, bytes_out, cut = map(_counter, (_REQUESTS, _BYTES_IN, _BYTES_OUT, _CUT))
        durations = HistogramMetricFamily(_SECONDS.name, _SECONDS.meaning, labels=_SECONDS.labels)
        routes: dict[str, _Counted] = {}
        pairs: dict[tuple[str, str], _Counted] = {}
        for (route, method, status), counted in list(_counted.items()):
            requests.add_metric((route, method, _NO_STATUS if status is None else str(status)), counted.num)
            _add(routes.setdefault(route, _Counted()), counted)
            _add(pairs.setdefault((route, method), _Counted()), counted)
        for status, num in list(_refused_heads.items()):
            requests.add_metric((_NO_ROUTE, _OTHER_METHOD, str(status)), num)
        for route, counted in routes.items():
            bytes_in.add_metric((route,), counted.num_in)
            bytes_out.add_metric((route,), counted.num_out)
        for pair, counted in pairs.items():
            buckets = list(zip(_SHOWN_BOUNDS, accumulate(counted.buckets), strict=True))
            durations.add_metric(pair, buckets, counted.seconds)
        for labels, num in list(_cut_requests.items()):
            cut.add_metric(labels, num)
        yield from (requests, durations, bytes_in, bytes_out, cut)


def _counter(declared: Declared) -> CounterMetricFamily:
    return CounterMetricFamily(declared.name, declared.meaning, labels=declared.labels)


def _add(total: _Counted, counted: _Counted) -> None:
    total.num_in += counted.num_in
    total.num_out += counted.num_out
    total.seconds += counted.seconds
    total.buckets = [a + b for a, b in zip(total.buckets, counted.buckets, strict=True)]


REGISTRY.register(_Requests())
