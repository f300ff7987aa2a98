"""Traces of a running process, as a collector gets them by OTLP."""

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import __version__
from tests.e2e.collector import Collector, Recorded, collecting
from tests.support.service import Service, free_port, ready
from tests.support.waiting import wait_for

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
FAST = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
#: Too many bytes to be served on the event loop, and so many that the answer begins before the body is read.
LARGE = b'{"x": 1.5}\n' * 300_000
REFUSED = 422


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as started:
        yield started


@pytest.fixture(scope="module")
def service(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with ready(
        tmp_path_factory.mktemp("service"),
        SHARDSMITH_LOG_FORMAT="json",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
        **FAST,
    ) as started:
        yield started


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=60) as opened:
        yield opened


class Caller:
    """The span of a client, and the header by which it names it."""

    def __init__(self, flags: str = "01") -> None:
        self.trace_id = secrets.token_hex(16)
        self.span_id = secrets.token_hex(8)
        self.header = {"traceparent": f"00-{self.trace_id}-{self.span_id}-{flags}"}


def one(spans: list[Recorded], name: str) -> Recorded:
    [found] = [span for span in spans if span.name == name]
    return found


def below(spans: list[Recorded], parent: Recorded) -> set[str]:
    return {span.name for span in spans if span.parent_id == parent.span_id}


def lines_of(service: Service, trace_id: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("trace_id") == trace_id]


def test_a_small_request_is_a_part_of_the_trace_of_its_caller(
    client: httpx.Client, collector: Collector, service: Service
) -> None:
    caller = Caller()
    state = {"tracestate": "vendor=opaque"}
    answer = client.post(
        "/v1/tensors/serialize?to=b64",
        content=b"[[1, 2]]",
        headers={**JSON, **caller.header, **state, "X-Request-Id": "traced-1"},
    )
    assert answer.status_code == 200
    # The standard defines headers of requests alone.
    assert not {"traceparent", "tracestate"} & {name.lower() for name in answer.headers}
    spans = collector.trace(caller.trace_id, "POST /v1/tensors/serialize", "decode", "encode")
    server = one(spans, "POST /v1/tensors/serialize")
    assert (server.kind, server.parent_id, server.trace_state) == ("server", caller.span_id, "vendor=opaque")
    assert not server.failed
    assert server.attributes.pop("client.address") == "127.0.0.1"
    assert server.attributes.pop("server.port") == httpx.URL(service.url).port
    assert server.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/tensors/serialize",
        "url.path": "/v1/tensors/serialize",
        "url.scheme": "http",
        "network.protocol.version": "1.1",
        "server.address": "127.0.0.1",
        "http.response.status_code": 200,
        "http.request.body.size": 8,
        "http.response.body.size": len(answer.content),
        "shardsmith.request_id": "traced-1",
    }
    # Nothing else: no span for a message of ASGI, above all.
    assert {span.name for span in spans} == {server.name, "decode", "encode"}
    assert below(spans, server) == {"decode", "encode"}
    assert one(spans, "decode").attributes["shardsmith.form"] == "json"
    assert one(spans, "encode").attributes["shardsmith.form"] == "b64"
    for span in spans:
        assert server.begin <= span.begin <= span.end <= server.end
    [line] = lines_of(service, caller.trace_id)
    assert (line["span_id"], line["request_id"]) == (server.span_id, "traced-1")


def test_the_service_names_itself(collector: Collector, client: httpx.Client) -> None:
    caller = Caller()
    client.get("/v1/forms", headers=caller.header)
    collector.trace(caller.trace_id, "GET /v1/forms")
    wanted = {
        "service.name": "shardsmith",
        "service.version": __version__,
        "deployment.environment.name": "test",
    }
    assert wanted.items() <= collector.resource.items()


def test_work_in_threads_and_as_it_streams_belongs_to_the_request(
    client: httpx.Client, collector: Collector
) -> None:
    caller = Caller()
    answer = client.post("/v1/records/serialize", content=LARGE, headers={**NDJSON, **caller.header})
    assert answer.status_code == 200
    spans = collector.trace(caller.trace_id, "POST /v1/records/serialize", "decode", "encode")
    server, decode, encode = (one(spans, name) for name in ("POST /v1/records/serialize", "decode", "encode"))
    assert below(spans, server) == {"decode", "encode"}
    assert (decode.attributes["shardsmith.form"], encode.attributes["shardsmith.form"]) == (
        "ndjson",
        "tfrecord",
    )
    # They take turns: each lasts while the other does, and counts its own seconds alone.
    assert decode.begin < encode.begin < decode.end
    seconds = [span.attributes["shardsmith.seconds"] for span in (decode, encode)]
    assert min(seconds) > 0
    assert sum(seconds) <= (server.end - server.begin) / 1e9
    assert server.attributes["http.request.body.size"] == len(LARGE)


def test_arrays_that_arrive_are_decoded_as_they_are_written(
    client: httpx.Client, collector: Collector
) -> None:
    caller = Caller()
    query = "from=raw&dtype=float32&shape=1000000&to=npy"
    body = bytes(4_000_000)
    answer = client.post(f"/v1/tensors/serialize?{query}", content=body, headers=caller.header)
    assert answer.content.endswith(body)
    spans = collector.trace(caller.trace_id, "POST /v1/tensors/serialize", "decode", "encode")
    assert one(spans, "decode").end > one(spans, "encode").begin
    assert below(spans, one(spans, "POST /v1/tensors/serialize")) == {"decode", "encode"}


def test_operations_of_the_store_belong_to_the_request_in_every_thread(
    client: httpx.Client, collector: Collector
) -> None:
    caller = Caller()
    url = "/v1/datasets/traced/records"
    appended = client.post(f"{url}?publish=true", content=LARGE, headers={**NDJSON, **caller.header})
    assert appended.status_code == 201
    route = "POST /v1/datasets/{dataset}/records"
    spans = collector.trace(caller.trace_id, route, "decode", "encode", "store put_stream", "store create")
    known = {span.span_id for span in spans}
    stored = [span for span in spans if span.name.startswith("store ")]
    assert {span.parent_id for span in spans} <= known | {caller.span_id}
    assert {span.kind for span in stored} == {"client"}
    assert all("traced" in span.attributes["shardsmith.store.key"] for span in stored)
    assert not any(span.failed for span in stored), "what is not there yet is no failure"
    assert {span.attributes.get("error.type") for span in stored} <= {None, "object_not_found"}


def test_appends_that_are_stored_together_share_a_span(
    client: httpx.Client, collector: Collector, service: Service
) -> None:
    assert client.post("/v1/datasets/grouped/records", content=b'[{"x": 1}]', headers=JSON).status_code == 201
    callers = [Caller() for _ in range(8)]

    def append(caller: Caller) -> int:
        url = f"{service.url}/v1/datasets/grouped/records"
        return httpx.post(url, content=b'[{"x": 2}]', headers={**JSON, **caller.header}).status_code

    with ThreadPoolExecutor(len(callers)) as pool:
        assert set(pool.map(append, callers)) == {201}
    traces = {caller.trace_id for caller in callers}
    route = "POST /v1/datasets/{dataset}/records"

    def arrived(name: str) -> list[Recorded]:
        return [span for span in list(collector.spans) if span.trace_id in traces and span.name == name]

    servers = {span.span_id for caller in callers for span in collector.trace(caller.trace_id, route)}
    servers &= {span.span_id for span in arrived(route)}
    assert len(servers) == len(callers)

    def named_by(name: str) -> list[str]:
        """Of all spans with this name, the requests that they are inside of or linked with."""
        return sorted(other for span in arrived(name) for other in (span.parent_id, *span.links))

    wait_for(lambda: len(named_by("store group")) >= len(servers))
    assert named_by("store group") == sorted(servers)
    # Whoever finds nobody else waiting may be served at once, alone.
    together = named_by("decode appends")
    alone = [span.parent_id for span in arrived("decode") if span.parent_id in servers]
    assert sorted([*together, *alone]) == sorted(servers)
    assert together
    groups = {span.span_id for span in arrived("store group")}
    assert {span.parent_id for span in arrived("store create")} == groups


def test_a_trace_that_is_not_sampled_is_still_named_in_the_log(
    client: httpx.Client, collector: Collector, service: Service
) -> None:
    silent, heard = Caller("00"), Caller()
    url = "/v1/records/serialize"
    for caller in (silent, heard):
        assert client.post(url, content=LARGE, headers={**NDJSON, **caller.header}).status_code == 200
    collector.trace(heard.trace_id, f"POST {url}", "decode", "encode")
    assert not [span for span in collector.spans if span.trace_id == silent.trace_id]
    assert len(lines_of(service, silent.trace_id)) == 1


@pytest.mark.parametrize(
    "given",
    [
        "",
        "00",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "a" * 32 + "-" + "0" * 16 + "-01",
        "ff-" + "a" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "g" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "a" * 32 + "-" + "1" * 16 + "-01-more",
        "00-" + "a" * 600,
        "\xff\xfe",
    ],
)
def test_a_context_that_is_none_begins_a_new_trace(
    given: str, client: httpx.Client, collector: Collector
) -> None:
    request_id = f"begins-{secrets.token_hex(8)}"
    headers = {b"traceparent": given.encode("latin-1"), b"X-Request-Id": request_id.encode()}
    assert client.get("/v1/forms", headers=headers).status_code == 200

    def found() -> list[Recorded]:
        return [
            span
            for span in list(collector.spans)
            if span.attributes.get("shardsmith.request_id") == request_id
        ]

    wait_for(lambda: len(found()) == 1)
    assert found()[0].parent_id == ""
    assert found()[0].trace_id != "a" * 32


def test_client_error_is_not_a_failed_span(client: httpx.Client, collector: Collector) -> None:
    caller = Caller()
    answer = client.post(
        "/v1/records/serialize", content=b'{"x": secret', headers={**NDJSON, **caller.header}
    )
    assert 400 <= answer.status_code < 500
    spans = collector.trace(caller.trace_id, "POST /v1/records/serialize", "decode")
    assert not one(spans, "POST /v1/records/serialize").failed
    failed = [span for span in spans if span.failed]
    assert {span.attributes["error.type"] for span in failed} == {answer.json()["code"]}
    assert "secret" not in str(spans)


def test_paths_and_methods_that_there_are_not_make_no_names(
    client: httpx.Client, collector: Collector
) -> None:
    caller = Caller()
    assert client.request("PROPFIND", "/coffee", headers=caller.header).status_code == 404
    assert client.get("/v1/nothing", headers=caller.header).status_code == 404
    spans = collector.trace(caller.trace_id, "HTTP", "GET")
    assert one(spans, "HTTP").attributes["http.request.method"] == "_OTHER"
    assert "http.route" not in one(spans, "GET").attributes


def test_of_a_long_path_only_its_beginning_is_recorded(client: httpx.Client, collector: Collector) -> None:
    caller = Caller()
    path = "/v1/" + "long" * 2000
    assert client.get(path, headers=caller.header).status_code == 404
    assert one(collector.trace(caller.trace_id, "GET"), "GET").attributes["url.path"] == path[:256]


def test_probes_are_not_traced(client: httpx.Client, collector: Collector) -> None:
    caller = Caller()
    for path in ("/livez", "/readyz", "/v1/forms"):
        client.get(path, headers=caller.header)
    spans = collector.trace(caller.trace_id, "GET /v1/forms")
    assert len(spans) == 1


@pytest.mark.processes
def test_a_failure_of_the_service_fails_its_span(collector: Collector, tmp_path: Path) -> None:
    with ready(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint) as service:
        folder = tmp_path / "data"
        folder.rename(tmp_path / "away")
        folder.write_bytes(b"no folder")
        caller = Caller()
        answer = httpx.get(f"{service.url}/v1/datasets/x", headers=caller.header)
        assert answer.status_code >= 500
        spans = collector.trace(caller.trace_id, "GET /v1/datasets/{dataset}")
        server = one(spans, "GET /v1/datasets/{dataset}")
        assert (server.failed, server.attributes["error.type"]) == (True, str(answer.status_code))
        stored = [span for span in spans if span.name.startswith("store ")]
        assert any(span.failed for span in stored)


@pytest.mark.processes
def test_the_last_spans_are_sent_before_the_end(collector: Collector, tmp_path: Path) -> None:
    slow = {"OTEL_BSP_SCHEDULE_DELAY": "600000", "OTEL_SERVICE_NAME": "named"}
    caller = Caller()
    with ready(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint, **slow) as service:
        httpx.get(f"{service.url}/v1/forms", headers=caller.header)
        assert service.stop() == 0
    assert len(collector.trace(caller.trace_id, "GET /v1/forms")) == 1
    assert collector.resource["service.name"] == "named"


@pytest.mark.processes
def test_a_collector_that_is_not_there_delays_nothing(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    patient = {"OTEL_EXPORTER_OTLP_TIMEOUT": "3600"}
    with ready(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=nobody, **FAST, **patient) as service:
        for _ in range(50):
            assert httpx.get(f"{service.url}/v1/forms").status_code == 200
        assert service.stop() == 0


@pytest.mark.processes
@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"OTEL_TRACES_EXPORTER": "missing"}, "No exporter 'missing' is installed."),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "odd"}, "No exporter 'odd'"),
    ],
)
def test_a_service_that_cannot_be_traced_serves(
    variables: dict[str, str], complaint: str, tmp_path: Path
) -> None:
    with ready(tmp_path, **variables) as service:
        assert httpx.get(f"{service.url}/v1/forms").status_code == 200
        assert f"No traces: {complaint}" in service.log()
