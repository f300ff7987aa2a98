"""Tracing that is off, or cannot be had; `tests/e2e/test_traces.py` has what is recorded."""

import logging
import subprocess
import sys
from concurrent.futures import wait
from contextvars import ContextVar

import pytest

from app import tracing
from app.runtime.threads import Threads

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "true"},
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318"},
    ],
)
def test_nothing_is_imported_where_nobody_asks_for_traces(variables: dict[str, str]) -> None:
    # FastAPI imports the API, by which nothing is recorded.
    program = (
        "import sys; from app import main, tracing; tracing.start_tracing(); "
        "assert not tracing.is_on(); assert sys.modules.keys().isdisjoint(('app.otel', 'opentelemetry.sdk'))"
    )
    subprocess.run([sys.executable, "-c", program], env=variables, check=True)


def test_what_is_off_adds_nothing_to_what_it_watches() -> None:
    items = iter([1, 2])
    with tracing.stage("decode", "json") as stage:
        assert stage.drawn(items) is items
    assert tracing.span("x") is tracing.span("y") is tracing.store_span("get", "key")
    assert tracing.shared_span("x", [tracing.mark()]) is tracing.root_span("x")
    assert tracing.begin_request("GET", [], dict) is None
    assert tracing.current_ids() is None


def test_a_missing_sdk_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, value in ENDPOINT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "app.otel", raising=False)
    with caplog.at_level(logging.WARNING):
        tracing.start_tracing()
    assert not tracing.is_on()
    assert caplog.messages == ["No traces: OpenTelemetry's SDK is not installed. Install shardsmith[otel]."]


def test_threads_work_in_the_context_of_who_submits() -> None:
    told: ContextVar[str] = ContextVar("told", default="nothing")
    pool = Threads(1)
    futures = []
    for name in ("a", "b"):
        told.set(name)
        futures.append(pool.submit(lambda suffix: told.get() + suffix, suffix="!"))
    wait(futures)
    pool.shutdown()
    assert [future.result() for future in futures] == ["a!", "b!"]
