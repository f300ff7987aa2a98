"""Metrics of a running process, as Prometheus reads them: each moves by exactly what was done."""

import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from app.api.auth.routes import ACCESS
from tests.e2e.metrics import Samples, moved, scrape, settled
from tests.support.asgi_server import read_to_end
from tests.support.images import encode, pixels
from tests.support.service import SSL_CONTEXT, Service, free_port, ready, started
from tests.support.waiting import wait_for

REQUESTS = "shardsmith_http_requests_total"


@dataclass
class Watched:
    """A service, and where its metrics are."""

    service: Service
    metrics_url: str

    def scrape(self) -> Samples:
        return scrape(self.metrics_url)

    def scrape_after(self, before: Samples, num_requests: int = 1) -> Samples:
        """The metrics once so many more requests have ended."""
        wanted = _num_requests(before) + num_requests
        return settled(self.metrics_url, lambda samples: _num_requests(samples) >= wanted)

    def scrape_idle(self) -> Samples:
        """The metrics once no thread works any more for a client that has left."""
        return settled(
            self.metrics_url, lambda samples: samples["shardsmith_threads_in_use{lane=conversion}"] == 0
        )

    def post(self, path: str, body: bytes, media_type: str = "application/json") -> httpx.Response:
        return httpx.post(
            f"{self.service.url}{path}",
            content=body,
            headers={"Content-Type": media_type},
            verify=SSL_CONTEXT,
            timeout=60,
        )

    def connect(self) -> socket.socket:
        url = httpx.URL(self.service.url)
        connection = socket.create_connection((url.host, url.port or 80))
        connection.settimeout(60)
        return connection


def _num_requests(samples: Samples) -> float:
    return sum(value for key, value in samples.items() if key.startswith(f"{REQUESTS}{{"))


@contextmanager
def watched(folder: Path, **settings: str) -> Iterator[Watched]:
    port = free_port()
    with ready(folder, SHARDSMITH_METRICS_PORT=str(port), **settings) as service:
        yield Watched(service, f"http://127.0.0.1:{port}/metrics")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(
        tmp_path_factory.mktemp("service"),
        SHARDSMITH_MAX_REQUESTS="2",
        SHARDSMITH_MEMORY_BYTES=str(512 << 20),
        SHARDSMITH_SPOOL_MAX_BYTES=str(1 << 30),
        SHARDSMITH_STREAMS="4",
        SHARDSMITH_COMPUTE_THREADS="1",
        SHARDSMITH_MAX_CONNECTIONS="500",
        SHARDSMITH_COLLECT_INTERVAL_S="0",
        SHARDSMITH_HEADER_TIMEOUT_S="2",
    ) as found:
        yield found


def test_a_request_is_counted_by_route_method_and_status(running: Watched) -> None:
    before = running.scrape()
    body = b"[1, 2, 3]"
    answer = running.post("/v1/tensors/serialize?to=npy", body)
    after = running.scrape_after(before)
    found = moved(before, after, "shardsmith_http_re")
    labels = "{method=POST,route=/v1/tensors/serialize}"
    seconds = found.pop(f"shardsmith_http_request_duration_seconds_sum{labels}")
    assert found == {
        f"{REQUESTS}{{method=POST,route=/v1/tensors/serialize,status=200}}": 1,
        f"shardsmith_http_request_duration_seconds_count{labels}": 1,
        "shardsmith_http_request_body_bytes_total{route=/v1/tensors/serialize}": len(body),
        "shardsmith_http_response_body_bytes_total{route=/v1/tensors/serialize}": len(answer.content),
    }
    # One bucket gets it, and with it all that are wider.
    buckets = {
        float(re.findall("le=([^,}]+)", key)[0]): after[key] - before.get(key, 0)
        for key in after
        if key.startswith("shardsmith_http_request_duration_seconds_bucket{") and labels[1:-1] in key
    }
    assert buckets == {bound: float(seconds <= bound) for bound in buckets}
    assert len(buckets) == 16


def test_answers_that_differ_in_status_share_a_duration(running: Watched) -> None:
    before = running.scrape()
    running.post("/v1/tensors/serialize", b"[1")
    running.post("/v1/tensors/serialize", b"[1]")
    found = moved(before, running.scrape_after(before, 2), "shardsmith_http_")
    route = "route=/v1/tensors/serialize"
    assert found[f"{REQUESTS}{{method=POST,{route},status=400}}"] == 1
    assert found[f"{REQUESTS}{{method=POST,{route},status=200}}"] == 1
    assert found[f"shardsmith_http_request_duration_seconds_count{{method=POST,{route}}}"] == 2


def test_probes_are_counted_too(running: Watched) -> None:
    before = running.scrape()
    assert running.service.answers("/livez")
    found = moved(before, running.scrape_after(before), REQUESTS)
    assert found == {f"{REQUESTS}{{method=GET,route=/livez,status=200}}": 1}


#: Request, and the problem document that answers it.
PROBLEMS = [
    (b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", "route_not_found"),
    (b"DELETE /v1/forms HTTP/1.1\r\nHost: localhost\r\n\r\n", "method_not_allowed"),
    (b"GET /v1/datasets/none HTTP/1.1\r\nHost: localhost\r\n\r\n", "dataset_not_found"),
    (b"GET /v1/forms?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", "unknown_parameter"),
    (b"POST /v1/records/serialize HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a.b\r\n\r\n", "foreign_page"),
    (b"HELLO\r\n\r\n", "invalid_method"),
    (b"GET /v1/forms HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", "invalid_content_length"),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "code"), PROBLEMS, ids=[code for _, code in PROBLEMS])
def test_a_problem_is_counted_by_its_code(running: Watched, sent: bytes, code: str) -> None:
    before = running.scrape()
    with running.connect() as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = read_to_end(connection)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == code
    found = moved(before, running.scrape_after(before), "shardsmith_http_problems_total")
    assert found == {f"shardsmith_http_problems_total{{cause=,code={code}}}": 1}


def test_client_input_creates_no_series(running: Watched) -> None:
    # One of each kind first: what follows brings nothing new.
    def send_all(variant: str) -> None:
        for method in ("GET", "PROPFIND", "MKCOL", "REPORT", "M-SEARCH"):
            for path in (f"/{variant}", f"/v1/datasets/{variant}", f"/v1/datasets/d/versions/{variant}/tar"):
                client = http.client.HTTPConnection("127.0.0.1", httpx.URL(running.service.url).port)
                client.request(method, path)
                client.getresponse().read()
                client.close()
        with running.connect() as connection:
            connection.sendall(f"GET /{variant} HTTP/7.7\r\n\r\n".encode())
            assert b" 400 " in read_to_end(connection)

    before = running.scrape()
    send_all("first")
    first = running.scrape_after(before, 16)
    for n in range(5):
        send_all(f"another-{n}")
    last = running.scrape_after(first, 5 * 16)
    assert set(last) == set(first)
    known = {*ACCESS, "unmatched", "none"}
    routes = {route for key in last for route in re.findall(r"[{,]route=([^,]*)[,}]", key)}
    assert routes <= known
    methods = {method for key in last for method in re.findall(r"[{,]method=([^,]*)[,}]", key)}
    assert methods <= {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"}
    assert moved(first, last, REQUESTS)[f"{REQUESTS}{{method=other,route=none,status=400}}"] == 5
    assert moved(first, last, REQUESTS)[f"{REQUESTS}{{method=other,route=unmatched,status=404}}"] == 20


def _upload(running: Watched, path: str = "/v1/records/serialize", size: int = 50_000_000) -> socket.socket:
    """A request whose body is under way."""
    connection = running.connect()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
        f"Content-Length: {size}\r\n\r\n"
    )
    connection.sendall(head.encode() + b'{"x": 1}\n' * 100_000)
    return connection


def test_gauges_show_what_requests_hold_and_let_go(running: Watched) -> None:
    idle = running.scrape()
    assert idle["shardsmith_http_requests_in_progress{}"] == 0
    assert idle["shardsmith_http_requests_limit{}"] == 2
    assert idle["shardsmith_http_connections_limit{}"] == 500
    assert idle["shardsmith_http_listeners{}"] == 0
    assert idle["shardsmith_http_admitted_ratio{}"] == 1
    assert idle["shardsmith_threads_limit{lane=conversion}"] == 4
    assert idle["shardsmith_threads_in_use{lane=conversion}"] == 0
    assert idle["shardsmith_threads_in_use{lane=metadata}"] == 0
    assert idle["shardsmith_thread_queue_requests{lane=conversion}"] == 0
    assert idle["shardsmith_thread_queue_requests{lane=metadata}"] == 0
    assert idle["shardsmith_turns_limit{}"] == 1
    assert idle["shardsmith_turns_in_use{}"] == 0
    assert idle["shardsmith_turns_waiting{}"] == 0
    assert idle["shardsmith_memory_pool_limit_bytes{}"] == 512 << 20
    assert idle["shardsmith_memory_pool_used_bytes{}"] == 0
    assert idle["shardsmith_memory_pool_waiting{}"] == 0
    assert idle["shardsmith_spool_limit_bytes{}"] == 1 << 30
    assert idle["shardsmith_spool_used_bytes{}"] == 0
    with _upload(running):
        busy = settled(
            running.metrics_url, lambda now: now["shardsmith_threads_in_use{lane=conversion}"] == 1
        )
        assert busy["shardsmith_http_requests_in_progress{}"] == 1
        assert busy["shardsmith_http_connections{}"] >= 1
        assert busy["shardsmith_memory_pool_used_bytes{}"] > 256 << 10
    gone = settled(running.metrics_url, lambda now: now["shardsmith_memory_pool_used_bytes{}"] == 0)
    assert gone["shardsmith_http_requests_in_progress{}"] == 0
    assert gone["shardsmith_threads_in_use{lane=conversion}"] == 0


def test_a_body_that_has_to_be_whole_lies_on_the_spool(running: Watched) -> None:
    with running.connect() as connection:
        size = 8_000_000
        head = (
            "POST /v1/records/serialize?from=parquet HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {size}\r\n\r\n"
        )
        connection.sendall(head.encode() + b"PAR1" + bytes(size - 1000))
        settled(running.metrics_url, lambda now: now["shardsmith_spool_used_bytes{}"] > size / 2)
    settled(running.metrics_url, lambda now: now["shardsmith_spool_used_bytes{}"] == 0)


def test_an_upload_that_is_cut_is_counted_with_its_cause(running: Watched) -> None:
    for _ in range(2):  # each of them
        before = running.scrape()
        _upload(running).close()
        found = moved(before, running.scrape_after(before), "shardsmith_http_cut_requests_total")
        counter = "shardsmith_http_cut_requests_total{cause=client_closed,route=/v1/records/serialize}"
        assert found == {counter: 1}


def test_a_request_that_finds_no_room_is_counted_with_what_was_short(running: Watched) -> None:
    with _upload(running), _upload(running):
        settled(running.metrics_url, lambda now: now["shardsmith_http_requests_in_progress{}"] == 2)
        before = running.scrape()
        assert running.post("/v1/tensors/serialize", b"[1]").status_code == 503
        after = running.scrape_after(before)
    found = moved(before, after, "shardsmith_http_problems_total")
    assert found == {"shardsmith_http_problems_total{cause=requests,code=overloaded}": 1}
    settled(running.metrics_url, lambda now: now["shardsmith_http_requests_in_progress{}"] == 0)


def test_a_thread_that_waits_for_its_turn_is_counted(running: Watched) -> None:
    rows = b"".join(b'{"x": %d}\n' % n for n in range(400_000))

    def convert() -> "subprocess.Popen[bytes]":
        url = f"{running.service.url}/v1/records/serialize"
        head = ["-s", "-o", "/dev/null", "-H", "Content-Type: application/x-ndjson", "--data-binary", "@-"]
        process = subprocess.Popen(["curl", *head, url], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(rows)
        process.stdin.close()
        return process

    before = running.scrape()

    def waited() -> bool:
        # One turn for two at a time: sooner or later one of them finds it taken.
        for process in [convert(), convert()]:
            assert process.wait() == 0
        return bool(moved(before, running.scrape(), "shardsmith_turn_wait_seconds_count"))

    wait_for(waited)
    assert moved(before, running.scrape())["shardsmith_turn_wait_seconds_sum{}"] > 0


def test_the_delay_of_the_event_loop_is_looked_at_all_the_time(running: Watched) -> None:
    before = running.scrape()["shardsmith_event_loop_delay_seconds_count{}"]
    after = settled(
        running.metrics_url, lambda now: now["shardsmith_event_loop_delay_seconds_count{}"] >= before + 5
    )
    assert after["shardsmith_event_loop_delay_seconds_bucket{le=+Inf}"] >= before + 5


def test_processes_of_images_are_shown_and_their_ends_counted(running: Watched) -> None:
    image = encode(pixels(8, 8, 3), "png")

    def decode() -> None:
        answer = running.post("/v1/tensors/serialize?to=npy", image, "image/png")
        assert answer.status_code == 200

    before = running.scrape()
    assert before["shardsmith_image_processes{state=busy}"] == 0
    decode()
    after = running.scrape()
    assert after["shardsmith_image_processes{state=idle}"] >= 1
    assert after["shardsmith_image_processes{state=busy}"] == 0
    assert moved(before, after, "shardsmith_image_process_restarts_total") == {}
    tasks = Path(f"/proc/{running.service.process.pid}/task").iterdir()
    [child] = [child for task in tasks for child in (task / "children").read_text().split()]
    os.kill(int(child), signal.SIGKILL)
    decode()  # finds its process dead, and has another
    assert moved(before, running.scrape(), "shardsmith_image_process_restarts_total") == {
        "shardsmith_image_process_restarts_total{}": 1
    }


@pytest.mark.processes
def test_readiness_and_its_checks_are_shown(tmp_path: Path) -> None:
    with watched(tmp_path) as running:
        ready = running.scrape()
        assert ready["shardsmith_ready{}"] == 1
        checks = {key: value for key, value in ready.items() if key.startswith("shardsmith_check_ok")}
        assert checks == {
            f"shardsmith_check_ok{{check={name}}}": 1 for name in ("kernels", "storage", "spool")
        }
        (tmp_path / "data").rename(tmp_path / "away")
        (tmp_path / "data").write_text("no folder")
        unready = settled(running.metrics_url, lambda now: now["shardsmith_ready{}"] == 0)
        assert unready["shardsmith_check_ok{check=storage}"] == 0
        assert unready["shardsmith_check_ok{check=spool}"] == 1


def test_the_release_is_shown(running: Watched) -> None:
    version = httpx.get(f"{running.service.url}/v2").json()["version"]
    assert running.scrape()[f"shardsmith_build_info{{version={version}}}"] == 1


def test_metrics_have_a_port_of_their_own(running: Watched) -> None:
    assert not running.service.answers("/metrics")
    other = httpx.get(running.metrics_url.replace("/metrics", "/livez"))
    assert other.status_code == 404
    answer = httpx.get(running.metrics_url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    families = parse_openmetrics(answer.text)  # type: ignore[no-untyped-call]  # has no annotations
    names = {family.name for family in families}
    assert "shardsmith_http_requests" in names
    assert "process_resident_memory_bytes" in names


def test_clients_that_say_nothing_keep_no_scrape_out_for_long(running: Watched) -> None:
    url = httpx.URL(running.metrics_url)
    silent = [socket.create_connection((url.host, url.port or 80)) for _ in range(30)]
    try:
        closed = [connection for connection in silent if _is_closed(connection)]
        assert closed  # those beyond the cap, at once
    finally:
        for connection in silent:
            connection.close()

    def answered() -> bool:
        try:
            return httpx.get(running.metrics_url).status_code == 200
        except httpx.TransportError:
            return False

    wait_for(answered)


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(1)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False


@pytest.mark.processes
def test_without_the_setting_there_are_none(service: Service) -> None:
    assert "metrics are at" not in service.log()


@pytest.mark.processes
def test_port_0_picks_a_free_one_which_the_log_tells(tmp_path: Path) -> None:
    with ready(tmp_path, SHARDSMITH_METRICS_PORT="0") as service:
        [url] = re.findall(r"metrics are at (http://127\.0\.0\.1:\d+/metrics)", service.log())
        assert scrape(url)["shardsmith_ready{}"] == 1


def test_a_port_that_is_taken_stops_the_start_with_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with started(tmp_path, SHARDSMITH_METRICS_PORT=str(port)) as service:
            assert service.process.wait(60) == 1
    assert service.log().splitlines()[-1] == (
        f"Shardsmith does not start: Metrics cannot be served on 127.0.0.1, port {port}: Address already in "
        "use. Set SHARDSMITH_METRICS_HOST and SHARDSMITH_METRICS_PORT to an address of this machine and a "
        "free port."
    )
    assert "Traceback" not in service.log()


@pytest.mark.processes
def test_several_workers_have_their_metrics_together(tmp_path: Path) -> None:
    with watched(tmp_path, SHARDSMITH_WORKERS="2") as running:
        ready = settled(running.metrics_url, lambda now: now.get("shardsmith_workers{state=answering}") == 2)
        assert ready["shardsmith_workers{state=silent}"] == 0
        assert ready["shardsmith_check_ok{check=workers}"] == 1
        assert ready["shardsmith_worker_restarts_total{}"] == 0
        before = running.scrape()
        for _ in range(20):  # each on a connection of its own, which any of the workers takes
            answer = running.post("/v1/tensors/serialize", b"[1]")
            assert answer.status_code == 200
        size = len(answer.content)
        after = running.scrape_after(before, 20)
        key = f"{REQUESTS}{{method=POST,route=/v1/tensors/serialize,status=200}}"
        assert after[key] - before.get(key, 0) == 20
        assert _converted(before, after) == {"decode bytes json": 60, "encode bytes tensorproto": 20 * size}
        parent = running.service.process.pid
        [first, *_] = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        os.kill(int(first), signal.SIGKILL)
        # What it had counted stays, and its successor counts on.
        again = settled(
            running.metrics_url,
            lambda now: now[key] == after[key] and now["shardsmith_workers{state=answering}"] == 2,
        )
        assert _num_requests(again) >= _num_requests(after)
        assert again["shardsmith_worker_restarts_total{}"] == 1


ROWS = b'[{"x": 1}, {"x": 2}]'


def _published(running: Watched, dataset: str) -> None:
    answer = running.post(f"/v1/datasets/{dataset}/versions", b"")
    assert answer.status_code == 201, answer.text


def test_appends_and_publications_are_counted(running: Watched) -> None:
    begun = running.post("/v1/datasets/counted/records", ROWS)  # makes the dataset
    assert begun.status_code == 201, begun.text
    before = running.scrape()
    single = httpx.post(
        f"{running.service.url}/v1/datasets/counted/records",
        content=ROWS,
        headers={"Content-Type": "application/json", "Idempotency-Key": "a"},
    )
    one = running.scrape()
    assert moved(before, one, "shardsmith_append") == {
        "shardsmith_appends_total{way=single}": 1,
        "shardsmith_appended_rows_total{}": 2,
        "shardsmith_appended_bytes_total{}": single.json()["num_bytes"],
    }
    again = httpx.post(
        f"{running.service.url}/v1/datasets/counted/records",
        content=ROWS,
        headers={"Content-Type": "application/json", "Idempotency-Key": "a"},
    )
    assert again.json() == single.json()
    assert moved(one, running.scrape(), "shardsmith_append") == {}  # replayed: nothing more is stored
    grouped = running.post("/v1/datasets/counted/records", ROWS)
    two = running.scrape()
    assert moved(one, two, "shardsmith_append") == {
        "shardsmith_appends_total{way=grouped}": 1,
        "shardsmith_append_groups_total{}": 1,
        "shardsmith_appended_rows_total{}": 2,
        "shardsmith_appended_bytes_total{}": grouped.json()["num_bytes"],
    }
    assert two["shardsmith_oldest_unpublished_append_age_seconds{}"] > 0
    _published(running, "counted")
    after = settled(
        running.metrics_url, lambda now: now["shardsmith_oldest_unpublished_append_age_seconds{}"] == 0
    )
    published = moved(two, after, "shardsmith_publication")
    assert published.pop("shardsmith_publication_duration_seconds_sum{}") > 0
    assert published == {
        "shardsmith_publications_total{outcome=published}": 1,
        "shardsmith_publication_duration_seconds_count{}": 1,
    }
    assert after["shardsmith_publications_in_progress{}"] == 0
    nothing = running.post("/v1/datasets/counted/versions", b"")
    assert nothing.json()["code"] == "nothing_to_publish"
    assert moved(after, running.scrape(), "shardsmith_publication") == {
        "shardsmith_publications_total{outcome=refused}": 1
    }


@pytest.mark.processes
def test_a_publication_by_another_replica_is_noticed(running: Watched, tmp_path: Path) -> None:
    data = f"file://{_data(running)}"
    with watched(tmp_path, SHARDSMITH_STORAGE_URL=data) as other:
        running.post("/v1/datasets/shared/records", ROWS)
        assert running.scrape()["shardsmith_oldest_unpublished_append_age_seconds{}"] > 0
        assert other.scrape()["shardsmith_oldest_unpublished_append_age_seconds{}"] == 0
        _published(other, "shared")
        # A publication of its own makes it look at once.
        running.post("/v1/datasets/mine/records", ROWS)
        _published(running, "mine")
        settled(
            running.metrics_url, lambda now: now["shardsmith_oldest_unpublished_append_age_seconds{}"] == 0
        )


def _data(running: Watched) -> Path:
    return running.service.datasets


@pytest.mark.processes
def test_after_a_restart_collection_finds_what_waits(tmp_path: Path) -> None:
    with watched(tmp_path, SHARDSMITH_COLLECT_INTERVAL_S="0") as first:
        first.post("/v1/datasets/kept/records", ROWS)
    with watched(tmp_path, SHARDSMITH_COLLECT_INTERVAL_S="0") as second:
        assert second.scrape()["shardsmith_oldest_unpublished_append_age_seconds{}"] == 0
        before = second.scrape()
        assert second.post("/v1/datasets/kept/collect?dry_run=true", b"").status_code == 200
        assert moved(before, second.scrape(), "shardsmith_collect") == {}
        assert second.post("/v1/datasets/kept/collect", b"").status_code == 200
        after = second.scrape()
        assert moved(before, after, "shardsmith_collect") == {"shardsmith_collections_total{outcome=ok}": 1}
        assert after["shardsmith_oldest_unpublished_append_age_seconds{}"] > 0
        httpx.delete(f"{second.service.url}/v1/datasets/kept")
        assert second.post("/v1/datasets/kept/collect", b"").status_code == 200


def test_collected_objects_are_counted(running: Watched) -> None:
    leftover = _data(running) / "_probe" / ("a" * 32)
    leftover.parent.mkdir(exist_ok=True)
    leftover.write_bytes(b"12345")
    old = time.time() - 7200
    os.utime(leftover, (old, old))
    running.post("/v1/datasets/swept/records", ROWS)
    before = running.scrape()
    answer = running.post("/v1/datasets/swept/collect", b"")
    assert answer.json()["deleted"] == {"probes": {"objects": 1, "bytes": 5}}
    assert moved(before, running.scrape(), "shardsmith_collect") == {
        "shardsmith_collections_total{outcome=ok}": 1,
        "shardsmith_collected_objects_total{kind=probes}": 1,
        "shardsmith_collected_bytes_total{kind=probes}": 5,
    }
    _published(running, "swept")


def test_operations_of_the_store_are_counted_by_outcome(running: Watched) -> None:
    count = "shardsmith_store_operation_duration_seconds_count"
    before = running.scrape()
    grouped = {key for key in before if key.startswith(count)}
    assert {re.findall("outcome=([a-z_]+)", key)[0] for key in grouped} <= {"ok", "not_found", "exists"}
    assert running.post("/v1/datasets/stored/records", ROWS).status_code == 201
    after = running.scrape()
    found = moved(before, after, "shardsmith_store_")
    assert found[f"{count}{{operation=create,outcome=ok}}"] >= 2  # the dataset, and the slot
    assert found["shardsmith_store_operation_duration_seconds_sum{operation=create,outcome=ok}"] > 0
    assert found["shardsmith_store_written_bytes_total{}"] > 0
    assert found["shardsmith_store_read_bytes_total{}"] > 0
    assert "shardsmith_store_retries_total{}" in after
    _published(running, "stored")


CSV = b"x,y\n1,2.5\n3,4.5\n5,6.5\n"


#: What is counted of each format, and how it is called here.
FORMATS = {
    "shardsmith_decoded_bytes_total": "decode bytes",
    "shardsmith_decoded_rows_total": "decode rows",
    "shardsmith_encoded_bytes_total": "encode bytes",
    "shardsmith_encoded_rows_total": "encode rows",
}


def _converted(before: Samples, after: Samples) -> dict[str, float]:
    """By how much the bytes and rows of each format moved, whose seconds moved, too."""
    seconds = moved(before, after, "shardsmith_codec_cpu_seconds_total")
    assert all(0 < taken < 60 for taken in seconds.values())
    found = {
        f"{what} {re.findall('form=([a-z0-9]+)', key)[0]}": value
        for name, what in FORMATS.items()
        for key, value in moved(before, after, name).items()
    }
    timed = {" ".join(re.findall("=([a-z0-9]+)", key)) for key in seconds}
    assert timed == {" ".join(key.split()[::2]) for key in found}
    return found


#: Path, body, its media type, its form, that of the answer, and rows.
CONVERSIONS = [
    ("/v1/tensors/serialize", b"[1, 2]", "application/json", "json", "tensorproto", 0),
    ("/v1/tensors/serialize?to=npy", b"[" + b"1, " * 20_000 + b"2]", "application/json", "json", "npy", 0),
    ("/v1/tensors/serialize?to=raw", b"[" + b"1, " * 200_000 + b"2]", "application/json", "json", "raw", 0),
    ("/v1/tensors/describe", b"[1, 2]", "application/json", "json", None, 0),
    ("/v1/examples/serialize?to=b64", b'{"x": 1}', "application/json", "json", "b64", 1),
    ("/v1/records/serialize?to=ndjson", CSV, "text/csv", "csv", "ndjson", 3),
    ("/v1/records/serialize", b'{"x": 1}\n' * 90_000, "application/x-ndjson", "ndjson", "tfrecord", 90_000),
    ("/v1/records/describe", CSV, "text/csv", "csv", None, 3),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "media_type", "read", "written", "rows"), CONVERSIONS)
@pytest.mark.parametrize("is_declared", [True, False], ids=["length", "chunked"])
def test_every_way_of_converting_is_counted_by_format(
    running: Watched,
    path: str,
    body: bytes,
    media_type: str,
    read: str,
    written: str | None,
    rows: int,
    is_declared: bool,
) -> None:
    before = running.scrape_idle()
    pieces = (body[begin : begin + 50_000] for begin in range(0, len(body), 50_000))
    answer = httpx.post(
        f"{running.service.url}{path}",
        content=body if is_declared else pieces,
        headers={"Content-Type": media_type},
        verify=SSL_CONTEXT,
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    expected = {f"decode bytes {read}": len(body), f"decode rows {read}": rows}
    if written is not None:
        expected |= {f"encode bytes {written}": len(answer.content), f"encode rows {written}": rows}
    assert _converted(before, running.scrape_after(before)) == {
        key: value for key, value in expected.items() if value
    }


#: A small body is converted on the event loop, the others in a thread.
@pytest.mark.parametrize(("num_values", "coding"), [(2_000, None), (2_000, "gzip"), (200_000, "gzip")])
def test_bytes_count_as_sent_and_before_an_answer_is_compressed(
    running: Watched, num_values: int, coding: str | None
) -> None:
    tensor = b"[" + b"1, " * num_values + b"2]"
    sent = tensor if coding is None else gzip.compress(tensor)
    before = running.scrape()
    answer = httpx.post(
        f"{running.service.url}/v1/tensors/serialize?to=json",
        content=sent,
        headers={
            "Content-Type": "application/json",
            "Accept-Encoding": "gzip",
            **({} if coding is None else {"Content-Encoding": coding}),
        },
        verify=SSL_CONTEXT,
    )
    assert answer.headers["content-encoding"] == "gzip"
    assert _converted(before, running.scrape_after(before)) == {
        "decode bytes json": len(sent),
        "encode bytes json": len(answer.content),  # which is inflated by now
    }


@pytest.mark.parametrize("path", ["/v1/tensors/serialize", "/v1/records/serialize", "/v1/examples/serialize"])
def test_unreadable_rows_are_not_counted(running: Watched, path: str) -> None:
    before = running.scrape()
    answer = running.post(path, b'[{"x": 1}, {"x"')
    assert answer.status_code == 400, answer.text
    found = moved(before, running.scrape_after(before))
    assert not [key for key in found if key.startswith(("shardsmith_decoded_", "shardsmith_encoded_"))]


def test_a_stream_is_counted_while_it_goes_on(running: Watched) -> None:
    before = running.scrape()
    head = (
        b"POST /v1/records/serialize?to=ndjson HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    rows = b'{"x": 12345}\n' * 100_000
    with running.connect() as connection:
        connection.sendall(head + b"%x\r\n%b\r\n" % (len(rows), rows))
        reading = threading.Thread(target=read_to_end, args=(connection,))
        reading.start()
        key = "shardsmith_decoded_rows_total{form=ndjson}"
        settled(running.metrics_url, lambda now: now.get(key, 0) - before.get(key, 0) > 50_000)
        connection.sendall(b"0\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        reading.join()
    found = _converted(before, running.scrape_after(before))
    assert found.pop("encode bytes ndjson") >= 100_000 * len(b'{"x":12345}\n')
    assert found == {
        "decode bytes ndjson": len(rows),
        "decode rows ndjson": 100_000,
        "encode rows ndjson": 100_000,
    }


def test_appends_are_counted_by_format(running: Watched) -> None:
    assert running.post("/v1/datasets/formats/records", ROWS).status_code == 201  # makes the dataset
    # Grouped; by itself; and by itself after a first look at the body, which is not counted.
    ways = [("", {}), ("", {"Idempotency-Key": "a"}), ("?evolve=widen", {"Idempotency-Key": "b"})]
    for query, headers in ways:
        before = running.scrape()
        answer = httpx.post(
            f"{running.service.url}/v1/datasets/formats/records{query}",
            content=ROWS,
            headers={"Content-Type": "application/json", **headers},
        )
        assert answer.status_code == 201, answer.text
        assert _converted(before, running.scrape_after(before)) == {
            "decode bytes json": len(ROWS),
            "decode rows json": 2,
            "encode bytes tfrecord": answer.json()["num_bytes"],
            "encode rows tfrecord": 2,
        }
    _published(running, "formats")
    before = running.scrape()
    answer = httpx.get(f"{running.service.url}/v1/datasets/formats/versions/latest/records?to=csv")
    assert answer.status_code == 200, answer.text
    assert _converted(before, running.scrape_after(before)) == {
        "encode bytes csv": len(answer.content),
        "encode rows csv": 8,
    }
