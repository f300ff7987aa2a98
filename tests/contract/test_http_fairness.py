"""One caller, one dataset or a store that hangs takes no more than its share: others are served meanwhile."""

import io
import select
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pytest

from app.main import create_app_with
from app.runtime.turns import waiting
from app.settings import Settings
from app.storage.obstore_store import open_store
from openapi.recorded import serving
from tests.contract.tokens import TOKENS, as_, token_file
from tests.support.faulty_store import FaultStore, Operation, When
from tests.support.service import Service, ready
from tests.support.waiting import wait_for

MIB = 1 << 20
STREAMS = 32
#: More than is done on the event loop.
LARGE = [{"x": n, "text": "a" * 50} for n in range(1000)]
READER, OTHER, WRITER = "reading-5f0c", "all-0b1c", "writing-91ab"
NUM_FEATURES = 9_900
#: As many rows without a value as a small body holds.
EMPTY_ROWS = b"[" + b",".join([b"{}"] * 10_000) + b"]"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(token_file(TOKENS))
    with ready(tmp_path, SHARDSMITH_TOKENS_FILE=str(tokens)) as started:
        yield started


def connect(service: Service) -> socket.socket:
    """A connection whose client takes little before it reads."""
    url = httpx.URL(service.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(120)
    connection.connect((url.host, url.port))
    return connection


def send(connection: socket.socket, token: str, path: str, media_type: str, body: bytes) -> None:
    connection.sendall(
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


@pytest.mark.soak
def test_slow_readers_of_one_token_leave_half_of_the_workers_to_others(service: Service) -> None:
    content = io.BytesIO()
    np.save(content, np.zeros(8 * MIB, np.int8))  # as JSON, more than all buffers on the way hold
    with ExitStack() as stack:
        readers = [stack.enter_context(connect(service)) for _ in range(STREAMS)]
        with ThreadPoolExecutor(STREAMS) as threads:
            list(
                threads.map(
                    lambda reader: send(
                        reader, READER, "/v1/tensors/parse?to=json", "application/x-npy", content.getvalue()
                    ),
                    readers,
                )
            )
        for reader in readers:  # each has its answer, or is told that it gets none
            assert select.select([reader], [], [], 120)[0]
        answer = httpx.post(
            f"{service.url}/v1/records/serialize", json=LARGE, headers=as_(OTHER), timeout=120
        )
        assert answer.status_code == 200, answer.text
        heads = [reader.recv(12) for reader in readers]
    assert heads.count(b"HTTP/1.1 200") == STREAMS // 2
    assert heads.count(b"HTTP/1.1 503") == STREAMS // 2


@pytest.mark.soak
def test_a_dataset_of_many_features_leaves_time_for_others(service: Service) -> None:
    """Small appends of empty rows, each of as many nulls as there are features, and one row for another."""
    features = {f"f{n}": {"dtype": "int64", "nullable": True} for n in range(NUM_FEATURES)}
    with httpx.Client(base_url=service.url, headers=as_(OTHER), timeout=120) as client:
        for name, declared, row in (
            ("wide", features, {"f0": 1}),
            ("narrow", {"x": {"dtype": "int64"}}, {"x": 1}),
        ):
            created = client.put(f"/v1/datasets/{name}", json={"schema": {"features": declared}})
            assert created.status_code == 201, created.text
            first = client.post(f"/v1/datasets/{name}/records", json=[row])  # it is known from now on
            assert first.status_code == 201, first.text
        with ExitStack() as stack:
            for _ in range(100):
                hog = stack.enter_context(connect(service))
                send(hog, WRITER, "/v1/datasets/wide/records", "application/json", EMPTY_ROWS)
            answer = client.post("/v1/datasets/narrow/records", json=[{"x": 2}])
            assert answer.status_code == 201, answer.text


class HangingStore(FaultStore):
    """Once told to, it answers nothing until it is let go; who waits for it lends the turn, as elsewhere."""

    def __init__(self) -> None:
        super().__init__(open_store("memory://"), self._hang)
        self.hangs, self.go_on = threading.Event(), threading.Event()
        self.hanging = 0
        self._lock = threading.Lock()

    def _hang(self, when: When, operation: Operation, key: str) -> None:
        del operation
        if when == "before" and self.hangs.is_set() and "/slots/" in key:
            with self._lock:
                self.hanging += 1
            with waiting():
                self.go_on.wait(120)


def test_conversions_go_on_while_the_store_hangs(tmp_path: Path) -> None:
    tokens, store = tmp_path / "tokens.json", HangingStore()
    tokens.write_text(token_file(TOKENS))
    app = create_app_with(Settings(storage_url="memory://", tokens_file=tokens, streams=STREAMS), store=store)
    lane = app.state.runner._conversions
    callers = (WRITER, OTHER, "acme-4411", "globex-8e8e")
    num_appends = STREAMS + 8
    with serving(app) as client, ThreadPoolExecutor(num_appends) as threads:

        def append(number: int) -> httpx.Response:
            caller = callers[number % len(callers)]
            name = {"acme-4411": "acme-d", "globex-8e8e": "globex-d"}.get(caller, "d")
            headers = {**as_(caller), "Idempotency-Key": str(number)}
            return httpx.post(
                f"{client.base_url}/v1/datasets/{name}/records", json=LARGE, headers=headers, timeout=120
            )

        for number in range(len(callers)):
            assert append(1000 + number).status_code == 201
        store.hangs.set()
        try:
            appends = [threads.submit(append, number) for number in range(num_appends)]
            wait_for(
                lambda: store.hanging + len(lane._waiting) + sum(a.done() for a in appends) == num_appends
            )
            for _ in range(3):
                answer = client.post("/v1/records/serialize", json=LARGE, headers=as_(READER))
                assert answer.status_code == 200, answer.text
            assert store.hanging == STREAMS // 2
        finally:
            store.go_on.set()
        answers = [append.result(120) for append in appends]
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {201, 503}
    assert statuses.count(201) >= STREAMS // 2
    refused = [answer.json() for answer in answers if answer.status_code == 503]
    assert {problem["code"] for problem in refused} <= {"overloaded"}


def test_imports_of_one_caller_leave_half_of_them_to_others(tmp_path: Path) -> None:
    tokens, store, source = tmp_path / "tokens.json", HangingStore(), tmp_path / "rows.ndjson"
    tokens.write_text(token_file(TOKENS))
    source.write_text('{"x": 1}\n')
    settings = Settings(storage_url="memory://", tokens_file=tokens, import_sources=source.as_uri())
    with serving(create_app_with(settings, store=store)) as client:

        def begin(caller: str, dataset: str) -> httpx.Response:
            request = {"source": source.as_uri()}
            return client.post(f"/v1/datasets/{dataset}/imports", json=request, headers=as_(caller))

        store.hangs.set()
        try:
            for caller, prefix, num_begun in (
                (OTHER, "", 2),
                ("acme-4411", "acme-", 2),
                ("globex-8e8e", "globex-", 0),
            ):
                answers = [begin(caller, f"{prefix}{number}") for number in range(3)]
                assert [answer.status_code for answer in answers] == [201] * num_begun + [503] * (
                    3 - num_begun
                )
                assert answers[2].json()["code"] == "too_many_imports"
        finally:
            store.go_on.set()
        wait_for(lambda: begin(OTHER, "later").status_code == 201)


def test_statistics_of_one_caller_leave_half_of_them_to_others(tmp_path: Path) -> None:
    hangs, held, go_on = threading.Event(), threading.Event(), threading.Event()

    def hang(when: When, operation: Operation, key: str) -> None:
        if when == "before" and hangs.is_set() and key.startswith("held") and ".tfrecord-" in key:
            held.set()
            with waiting():
                go_on.wait(120)

    tokens, store = tmp_path / "tokens.json", FaultStore(open_store("memory://"), hang)
    tokens.write_text(token_file(TOKENS))
    settings = Settings(storage_url="memory://", tokens_file=tokens)
    with serving(create_app_with(settings, store=store, publish_wait_s=0.01)) as client:

        def publish(caller: str, dataset: str) -> None:
            path, headers = (
                f"/v1/datasets/{dataset}/records?publish=true",
                {"Idempotency-Key": "k", **as_(caller)},
            )
            wait_for(lambda: client.post(path, json=[{"x": 1}], headers=headers).status_code != 202)

        def ask(caller: str, dataset: str) -> httpx.Response:
            return client.get(f"/v1/datasets/{dataset}/versions/latest/statistics", headers=as_(caller))

        names = [f"held-{number}" for number in range(18)]
        publish("acme-4411", "acme-d")
        for name in names:
            publish(OTHER, name)
        hangs.set()
        try:
            answers = [ask(OTHER, name) for name in names]
            assert [answer.status_code for answer in answers] == [202] * 17 + [503]
            assert held.wait(60)
            wait_for(lambda: ask("acme-4411", "acme-d").status_code == 200)
            assert {ask(OTHER, name).status_code for name in names[:17]} == {202}
        finally:
            go_on.set()
        wait_for(lambda: {ask(OTHER, name).status_code for name in names} == {200})
