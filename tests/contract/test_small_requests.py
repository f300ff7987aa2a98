"""Small requests are answered on the event loop; nobody can tell by the answer."""

import asyncio
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from numpy.typing import NDArray

from app.api.execution.exchange import Exchange
from app.api.execution.lanes import Lane
from app.api.execution.runner import Runner
from app.main import create_app_with
from app.settings import Settings
from tests.support.waiting import wait_for

Request = tuple[str, Mapping[str, str], bytes]


def npy_bytes(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


JSON = {"content-type": "application/json"}
NPY = {"content-type": "application/x-npy"}
FLOATS = json.dumps(np.random.default_rng(0).standard_normal(768).tolist()).encode()

TENSOR = bytes.fromhex("080312041202080122040a000000")

CONVERSIONS: dict[str, Request] = {
    "numbers": ("/v1/tensors/serialize", JSON, FLOATS),
    "nested": ("/v1/tensors/serialize", JSON, b"[[1, 2], [3, 4]]"),
    "declared": ("/v1/tensors/serialize?dtype=int8&shape=2,2", JSON, b"[1, 2, 3, 4]"),
    "to npy": ("/v1/tensors/serialize?to=npy", JSON, b'{"dtype": "bfloat16", "shape": [2], "data": [1, 2]}'),
    "to raw": ("/v1/tensors/serialize?to=raw&byte_order=big", JSON, b"[[1, 2]]"),
    "by Accept": ("/v1/tensors/serialize", {**JSON, "accept": "application/x-tfrecord"}, b"[1]"),
    "several": ("/v1/tensors/serialize", JSON, b'{"inputs": {"a": [1], "b": [2]}}'),
    "checked": ("/v1/tensors/serialize?delivery=checked", JSON, b"[1]"),
    "strings": ("/v1/tensors/serialize", JSON, b'["a", "b"]'),
    "npy": ("/v1/tensors/serialize", NPY, npy_bytes(np.arange(6, dtype=">i4").reshape(2, 3))),
    "no type": ("/v1/tensors/parse", {}, TENSOR),
    "form of curl": (
        "/v1/tensors/parse",
        {"content-type": "application/x-www-form-urlencoded"},
        bytes.fromhex("08031200220407000000"),
    ),
    "to json": ("/v1/tensors/parse?from=npy&layout=nested", {}, npy_bytes(np.eye(3))),
    "bare text": ("/v1/tensors/serialize", JSON, b"[1, 2"),
    "not a number": ("/v1/tensors/serialize", JSON, b"[1, NaN]"),
    "empty": ("/v1/tensors/serialize", JSON, b""),
    "unknown form": ("/v1/tensors/serialize", {"content-type": "text/html"}, b"x"),
    "unknown parameter": ("/v1/tensors/serialize?dtipe=int8", JSON, b"[1]"),
    "bad parameter": ("/v1/tensors/serialize?layout=wide", JSON, b"[1]"),
    "repeated parameter": ("/v1/tensors/serialize?dtype=int8&dtype=int8", JSON, b"[1]"),
    "inapplicable": ("/v1/tensors/serialize?order=F", JSON, b"[1]"),
    "not acceptable": ("/v1/tensors/serialize", {**JSON, "accept": "image/tiff"}, b"[1]"),
    "bad dtype": ("/v1/tensors/serialize?dtype=int9", JSON, b"[1]"),
    "much from little": (
        "/v1/tensors/parse",
        {},
        bytes.fromhex("0801120812060880808008") + b"\x2a\x04\0\0\0\0",
    ),
    "encoded": ("/v1/tensors/serialize", {**JSON, "content-encoding": "br"}, b"[1]"),
    "example": ("/v1/examples/serialize", JSON, b'{"x": 1}'),
    "example with a schema": (
        '/v1/examples/serialize?schema={"features":{"x":{"dtype":"float32"}}}',
        JSON,
        b'{"x": 1}',
    ),
    "schema of nobody": ("/v1/examples/serialize?schema=dataset:nobody", JSON, b'{"x": 1}'),
    "bad example": ("/v1/examples/serialize", JSON, b'{"x": {}}'),
    "row": ("/v1/examples/parse", {}, bytes.fromhex("0a0c0a0a0a017812051a030a0101")),
    "rows": ("/v1/records/serialize", JSON, b'[{"x": 1.5}, {"x": 2}]'),
    "rows to csv": ("/v1/records/serialize?to=csv", {"content-type": "application/x-ndjson"}, b'{"x": 1}\n'),
    "rows to parquet": ("/v1/records/serialize?to=parquet", {"content-type": "text/csv"}, b"x,y\n1,2\n3,4\n"),
    "late error": (
        "/v1/records/serialize",
        {"content-type": "application/x-ndjson"},
        b'{"x": 1}\n' * 1500 + b'{"x": "one"}\n',
    ),
    "damaged": ("/v1/records/parse?damaged=skip", {}, b"\0" * 40),
    "cut": ("/v1/records/parse", {}, b"\1" + b"\0" * 7),
    "gzip": ("/v1/tensors/serialize?to=json", {**JSON, "accept-encoding": "gzip"}, FLOATS),
    "zstd": ("/v1/tensors/serialize?to=json", {**JSON, "accept-encoding": "gzip, zstd"}, FLOATS),
    "gzip for nothing": ("/v1/tensors/serialize", {**JSON, "accept-encoding": "gzip"}, FLOATS),
    "never as it is": ("/v1/tensors/serialize", {**JSON, "accept-encoding": "gzip, identity;q=0"}, b"[1]"),
    "in no way": ("/v1/tensors/serialize", {**JSON, "accept-encoding": "identity;q=0"}, b"[1]"),
    "latin": ("/v1/tensors/serialize", {"content-type": "application/json; charset=latin-1"}, b"[1]"),
}


@contextmanager
def service() -> Iterator[tuple[FastAPI, asyncio.Runner]]:
    app = create_app_with(Settings(storage_url="memory://", collect_interval_s=0))
    with asyncio.Runner() as runner:
        lifespan = app.router.lifespan_context(app)
        runner.run(lifespan.__aenter__())
        # Until then nothing is done on the event loop.
        wait_for(lambda: app.state.services.readiness.checks()["kernels"].ok, within_s=400)
        try:
            yield app, runner
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


async def post(app: FastAPI, request: Request) -> httpx.Response:
    path, headers, body = request
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        bare = {name: value for name, value in client.headers.items() if name == "host"}
        client.headers = httpx.Headers(bare)
        return await client.post(path, headers=dict(headers), content=body)


def told(answer: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    return answer.status_code, dict(answer.headers), answer.content


@pytest.mark.parametrize("request_", CONVERSIONS.values(), ids=CONVERSIONS)
def test_the_event_loop_answers_as_a_thread_does(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    with service() as (app, runner):
        first, second = (told(runner.run(post(app, request_))) for _ in range(2))
        monkeypatch.setattr(Runner, "_may_run_on_loop", lambda *_: False)
        in_thread = told(runner.run(post(app, request_)))
    assert first == second == in_thread


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(*_: object, **__: object) -> None:
        raise AssertionError("a thread")

    monkeypatch.setattr(Exchange, "run", run)


@pytest.mark.usefixtures("no_threads")
def test_small_valid_request_takes_no_thread() -> None:
    with service() as (app, runner):
        for name in (
            "numbers",
            "to npy",
            "by Accept",
            "npy",
            "no type",
            "to json",
            "example",
            "rows",
            "zstd",
        ):
            assert runner.run(post(app, CONVERSIONS[name])).status_code == 200
        assert runner.run(post(app, CONVERSIONS["bare text"])).status_code == 500
        large = ("/v1/tensors/serialize", JSON, b"[" + b" " * 40_000 + b"1]")
        assert runner.run(post(app, large)).status_code == 500


def same_integers(count: int) -> Request:
    """A TensorProto of int8 that has -100 so many times, in one value; in JSON each takes five bytes."""
    size = bytes([0x08, count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14])
    shape = bytes([0x12, len(size)]) + size
    value = bytes.fromhex("9cffffffffffffffff01")
    body = bytes([0x08, 6, 0x12, len(shape)]) + shape + bytes([0x3A, len(value)]) + value
    return "/v1/tensors/parse", {}, body


@pytest.mark.usefixtures("no_threads")
def test_an_answer_of_more_than_a_mebibyte_is_made_in_a_thread() -> None:
    with service() as (app, runner):
        answer = runner.run(post(app, same_integers(200_000)))
        assert (answer.status_code, len(answer.content) > 1_000_000) == (200, True)
        assert runner.run(post(app, same_integers(220_000))).status_code == 500


APPENDS: dict[str, Request] = {
    "rows": ("/v1/datasets/d/records", JSON, b'[{"x": 1}, {"x": 2}]'),
    "split": ("/v1/datasets/d/records?split=test", JSON, b'[{"x": 1}]'),
    "instances": ("/v1/datasets/d/records", JSON, b'{"instances": [{"x": 1}]}'),
    "columns": ("/v1/datasets/d/records", JSON, b'{"x": [1, 2]}'),
    "none": ("/v1/datasets/d/records", JSON, b"[]"),
    "schema": (
        "/v1/datasets/d/records?schema=" + '{"features":{"x":{"dtype":"int64"}}}',
        JSON,
        b'[{"x": 1}]',
    ),
    "widen": ("/v1/datasets/d/records?evolve=widen", JSON, b'[{"x": 1}]'),
    "drop": ("/v1/datasets/d/records?undeclared=drop", JSON, b'[{"x": 1, "z": 2}]'),
    "ndjson": ("/v1/datasets/d/records", {"content-type": "application/x-ndjson"}, b'{"x": 1}\n'),
    "undeclared": ("/v1/datasets/d/records", JSON, b'[{"x": 1, "z": 2}]'),
    "type": ("/v1/datasets/d/records", JSON, b'[{"x": "one"}]'),
    "encoded answer": (
        "/v1/datasets/d/records",
        {**JSON, "accept-encoding": "gzip, identity;q=0"},
        b'[{"x": 1}]',
    ),
    "split name": ("/v1/datasets/d/records?split=a/b", JSON, b'[{"x": 1}]'),
    "dataset name": ("/v1/datasets/a%20b/records", JSON, b'[{"x": 1}]'),
    "options of publish": ("/v1/datasets/d/records?num_shards=2", JSON, b'[{"x": 1}]'),
}


@pytest.mark.parametrize("request_", APPENDS.values(), ids=APPENDS)
def test_appends_are_answered_as_in_a_thread(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    def told_but_id(answer: httpx.Response) -> tuple[int, dict[str, str], Any]:
        status, headers, content = told(answer)
        body = json.loads(content)
        given = body.pop("append_id", "")
        if given:
            assert headers.pop("location") == f"/v1/datasets/d/appends/{given}"
            assert headers.pop("repr-digest")
            assert headers.pop("content-length")  # of an id that is encoded, too
        return status, headers, body

    with service() as (app, runner):
        created = runner.run(post(app, ("/v1/datasets/d/records", JSON, b'[{"x": 0}]')))
        assert created.status_code == 201
        joint = told_but_id(runner.run(post(app, request_)))
        monkeypatch.setattr(Runner, "_may_run_on_loop", lambda *_: False)
        by_itself = told_but_id(runner.run(post(app, request_)))
    assert joint == by_itself


def multipart(schema: str, rows: bytes) -> bytes:
    return (
        b'--b\r\nContent-Disposition: form-data; name="schema"\r\n\r\n' + schema.encode()
        + b'\r\n--b\r\nContent-Disposition: form-data; name="data"\r\n'
        + b"Content-Type: application/x-ndjson\r\n\r\n" + rows + b"\r\n--b--\r\n"
    )  # fmt: skip


@pytest.mark.usefixtures("no_threads")
def test_cached_plan_does_not_depend_on_the_body() -> None:
    form = {"content-type": "multipart/form-data; boundary=b"}
    bodies = [
        multipart(json.dumps({"features": {"x": {"dtype": dtype}}}), b'{"x": 1}')
        for dtype in ("float32", "int64", "float32")
    ]
    lines = {"content-type": "application/x-ndjson"}
    declared = '/v1/records/serialize?to=csv&schema={"features":{"x":{"dtype":"float32"}}}'
    with service() as (app, runner):
        answers = [runner.run(post(app, ("/v1/records/serialize?to=ndjson", form, body))) for body in bodies]
        assert [answer.text for answer in answers] == ['{"x":1.0}\n', '{"x":1}\n', '{"x":1.0}\n']
        for path, expected in ((declared, "x\n1.0\n"), ("/v1/records/serialize?to=csv", "x\n1\n")) * 2:
            assert runner.run(post(app, (path, lines, b'{"x": 1}\n'))).text.replace("\r", "") == expected


def test_a_client_may_ask_in_more_ways_than_are_remembered() -> None:
    with service() as (app, runner):
        for number in range(600):
            path = f"/v1/tensors/serialize?dtype=int32&shape={number}"
            status = runner.run(post(app, (path, JSON, b"[1]"))).status_code
            assert status == (200 if number == 1 else 422)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/tensors/serialize", b"[1, 2]", 200),
        ("/v1/tensors/serialize", b"[" + b"1," * 40_000 + b"1]", 503),
        ("/v1/tensors/describe", b"[1, 2]", 503),
        ("/v1/records/serialize", b'[{"x": 1}]', 200),
        ("/v1/records/describe", b'[{"x": 1}]', 503),
        ("/v1/datasets/d/records", b'[{"x": 1}]', 201),
    ],
)
def test_where_no_worker_is_free_it_refuses_what_would_take_one(
    path: str, body: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    with service() as (app, runner):
        for _ in range(2 if "datasets" in path else 0):  # the first fixes the schema, the second learns of it
            assert runner.run(post(app, (path, JSON, body))).status_code == 201
        monkeypatch.setattr(Exchange, "run", lambda *arguments, **_: begun.append(arguments))
        monkeypatch.setattr(Lane, "is_full_for", lambda *_: True)
        answer = runner.run(post(app, (path, JSON, body)))
    assert answer.status_code == status, answer.text
    assert not begun
    if status == 503:
        assert answer.json()["code"] == "overloaded"
        assert answer.headers["retry-after"]
