"""Tracing that is off, or cannot be had; `tests/e2e/test_traces.py` has what is recorded."""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextvars import ContextVar, copy_context

import pytest
from opentelemetry.baggage import get_all
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app import otel, tracing
from app.runtime.threads import Threads
from app.telemetry.stages import CountingStage

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


NOT_ASKED: list[dict[str, str]] = [
    {},
    {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    {**ENDPOINT, "OTEL_SDK_DISABLED": "true"},
    {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
    {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318"},
]
#: Prints which of the environments, one after the other, have tracing started or its SDK imported.
START_IN_EACH = """
import json, os, sys
from app import main, tracing  # FastAPI imports the API of OpenTelemetry, by which nothing is recorded

asked = []
for variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    tracing.start_tracing()
    if tracing.is_on() or not sys.modules.keys().isdisjoint(("app.otel", "opentelemetry.sdk")):
        asked.append(variables)
    for name in variables:
        del os.environ[name]
print(json.dumps(asked))
"""


def test_nothing_is_imported_where_nobody_asks_for_traces() -> None:
    command = [sys.executable, "-c", START_IN_EACH, json.dumps(NOT_ASKED)]
    ran = subprocess.run(command, env={}, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == []


def test_disabled_tracing_wraps_nothing() -> None:
    items = iter([1, 2])
    with tracing.stage("decode", "json") as stage:
        assert stage.drawn(items) is items
    assert tracing.span("x") is tracing.span("y") is tracing.store_span("get", "key")
    assert tracing.shared_span("x", [tracing.mark()]) is tracing.root_span("x")
    assert tracing.begin_request("GET", [], dict) is None
    assert tracing.current_ids() is None


def test_missing_sdk_is_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
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


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What is recorded in this process, once tracing has stopped."""
    exporter = InMemorySpanExporter()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "kept")
    monkeypatch.setattr(otel, "_make_exporter", lambda name: exporter)
    tracing.start_tracing()
    yield exporter
    tracing.stop_tracing()


def test_a_stage_counts_what_it_does_itself(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def takes(seconds: float, value: int) -> int:
        nonlocal now
        now += seconds
        return value

    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def convert() -> list[int]:
        with tracing.stage("decode", "json") as decoding:
            takes(1, 0)
        decoded = decoding.drawn(takes(10, value) for value in range(3))

        def encode() -> Iterator[int]:
            takes(100, 0)
            for value in decoded:
                yield takes(1000, value)

        return list(tracing.stage("encode", "tfrecord").drawn(encode()))

    with tracing.root_span("request"):
        assert convert() == [0, 1, 2]
        takes(10_000, 0)
    tracing.stop_tracing()
    found = {span.name: dict(span.attributes or {}) for span in spans.get_finished_spans()}
    assert found == {
        "request": {},
        "decode": {"shardsmith.form": "json", "shardsmith.seconds": 31.0},
        "encode": {"shardsmith.form": "tfrecord", "shardsmith.seconds": 3100.0},
    }


def test_a_span_of_several_requests_is_linked_with_those_that_are_recorded(
    spans: InMemorySpanExporter,
) -> None:
    with tracing.root_span("one"):
        first = tracing.mark()
    with tracing.root_span("two"):
        second = tracing.mark()
    assert first is not None
    assert second is not None
    with tracing.shared_span("both", [None, first, second]):
        pass
    with tracing.shared_span("neither", [None, None]):
        assert tracing.mark() is None
    tracing.stop_tracing()
    *_, both = spans.get_finished_spans()
    assert (both.name, both.parent) == ("both", first)
    assert [link.context for link in both.links] == [second]


def test_baggage_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    recorder = otel.Recorder({"OTEL_TRACES_EXPORTER": "console"})
    trace = b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-00"
    headers = [(b"traceparent", trace), (b"baggage", b"none," * 100), (b"baggage", b"a=b")]

    def begin() -> tuple[str, str] | None:
        recorder.begin_request("GET", headers, dict)
        assert not get_all()
        return recorder.current_ids()

    begun = copy_context().run(begin)
    recorder.close()
    assert begun is not None
    assert begun[0] == "1" * 32
    assert caplog.messages == []


@pytest.mark.usefixtures("spans")
def test_a_small_conversion_is_counted_once_unless_its_request_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "_counting", CountingStage)
    assert tracing.begin_whole(1) is not None  # as in a request that is not sampled
    with tracing.root_span("request"):
        assert tracing.begin_whole(1) is None
