"""Faults of the process and its metrics: the modules at the top of app, and app/telemetry."""

from __future__ import annotations

from typing import Final

from tests.mutations.entry import Mutation, Patch

MUTATIONS: Final = (
    Mutation(
        id="drain-takes-connections-for-a-while",
        where="SIGTERM to the service, with SHARDSMITH_SHUTDOWN_DELAY_S",
        given="a client that connects within the delay",
        right="it gets a response: load balancers have not seen yet that the service is leaving",
        wrong="the connection is refused",
        patch=Patch(
            "app/shutdown.py",
            "if sig == signal.SIGTERM and self._delay_s:",
            "if sig == signal.SIGINT and self._delay_s:",
        ),
        tests=("tests/e2e/test_serve.py::test_draining_service_is_unready_and_still_accepts",),
    ),
    Mutation(
        id="metrics-count-each-cut-request",
        where="GET /metrics, shardsmith_http_cut_requests_total",
        given="two requests to one route whose clients leave before the end of the body",
        right="2",
        wrong="1",
        patch=Patch(
            "app/telemetry/requests.py",
            "_cut_requests[key[0], cut] = _cut_requests.get((key[0], cut), 0) + 1",
            "_cut_requests[key[0], cut] = 1",
        ),
        tests=("tests/e2e/test_metrics.py::test_an_upload_that_is_cut_is_counted_with_its_cause",),
    ),
)
