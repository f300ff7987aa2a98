"""The Python client against the service, over real sockets, and through a proxy that makes requests fail."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from app.client import AsyncClient, Client, Conflict, NotFound, OutcomeUnknown, Refused
from app.client.blocking import Dataset
from app.client.transport import BlockingTransport, Reply
from app.main import create_app_with
from app.settings import Settings
from app.storage.obstore_store import open_store
from openapi.recorded import serving
from tests.campaign.fault_proxy import FaultProxy
from tests.campaign.fault_rules import Fault, Rule, Rules
from tests.contract.test_following import SteppedStore
from tests.support.service import SSL_CONTEXT, Service


@pytest.fixture(scope="module")
def python(service: Service) -> Iterator[Client]:
    with Client(service.url, verify=SSL_CONTEXT) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"d-{uuid.uuid4().hex[:8]}"


def test_rows_of_all_kinds_are_appended_published_and_read(python: Client, name: str) -> None:
    flowers = python.dataset(name)
    flowers.append([{"x": [1.5, 2], "label": "räum", "raw": b"\xff\0", "id": 0}])
    columns = {
        "x": np.array([[0.5, np.nan], [np.inf, -0.0]], np.float32),
        "label": ["a", "b"],
        "raw": np.array([b"\0", b""], object),
        "id": np.array([1, 2]),
    }
    with pytest.raises(ValueError, match="NUL"):
        flowers.append(columns)
    columns["raw"] = np.array([b"\0x", b""], object)
    flowers.append(columns)
    table = pa.table({"x": [[3.0, 4.0]], "label": ["c"], "raw": [b"r"], "id": [3]})
    flowers.append(table)
    flowers.append({"x": [i, i], "label": "g", "raw": b"g", "id": i} for i in range(4, 20))
    appended = flowers.append(
        b'[{"x": [1, 2], "label": "z", "raw": {"b64": ""}, "id": 20}]', media_type="application/json"
    )
    assert (appended["dataset"], appended["split"], appended["num_records"]) == (name, "train", 1)

    version = flowers.publish(num_shards=3)
    assert (version.name, flowers.versions()) == ("1.0.0", ["1.0.0"])
    assert [shard.num_records for shard in version.shards()] == [7, 7, 7]
    rows = list(version.rows())
    assert [row["id"] for row in rows] == list(range(21))
    assert rows[0] == {"x": [1.5, 2.0], "label": "räum", "raw": b"\xff\0", "id": 0}
    assert str(rows[1]["x"]) == "[0.5, nan]"
    assert str(rows[2]["x"]) == "[inf, -0.0]"
    arrays = version.to_numpy()
    assert arrays["x"].dtype == np.float32
    assert arrays["raw"].tolist()[:3] == [b"\xff\0", b"\0x", b""]
    assert str(arrays["x"].tolist()) == str([row["x"] for row in rows])
    assert version.to_arrow().column("id").to_pylist() == list(range(21))
    assert [row["id"] for row in version.rows(start=5, stop=7)] == [5, 6]
    shuffled = [row["id"] for row in version.rows(shuffle_buffer=100, seed=3)]
    assert sorted(shuffled) == list(range(21)) != shuffled
    assert len(version.to_numpy(offset=1, length=3)["id"]) == 3
    assert name in python.datasets()


def test_refusal_is_an_exception_with_its_place(python: Client, name: str) -> None:
    dataset = python.dataset(name)
    with pytest.raises(NotFound) as missing:
        dataset.info()
    assert (missing.value.status, missing.value.code) == (404, "dataset_not_found")
    dataset.append([{"x": [1]}])
    with pytest.raises(Refused) as refused:
        dataset.append([{"x": [1]}, {"x": [1, 2]}])
    assert (refused.value.code, refused.value.row, refused.value.feature) == ("schema_conflict", 1, "x")
    assert dataset.info()["waiting"]["num_records"] == 1
    dataset.publish(key="p")
    assert dataset.publish(key="p").name == "1.0.0"
    with pytest.raises(Conflict, match="nothing_to_publish"):
        dataset.publish()
    dataset.append([{"x": [3]}], key="k")
    with pytest.raises(Refused, match="idempotency_key_reused"):
        dataset.append([{"x": [2]}], key="k")


def test_a_dataset_is_created_with_a_schema_and_an_empty_split_is_empty_arrays(
    python: Client, name: str
) -> None:
    dataset = python.dataset(name)
    schema = {"features": {"x": {"dtype": "float16", "shape": [2]}, "t": {"dtype": "text", "shape": []}}}
    for _ in range(2):
        assert dataset.create(schema, description="d")["description"] == "d"
    dataset.append([{"x": [1, 2], "t": ""}])
    arrays = dataset.publish().to_numpy(offset=1)
    assert (arrays["x"].shape, arrays["x"].dtype.name, arrays["t"].shape) == ((0, 2), "float16", (0,))


def test_a_generator_that_fails_leaves_nothing(python: Client, name: str) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        for i in range(100):
            yield {"id": i, "x": "y" * 100_000}
        raise ZeroDivisionError

    dataset = python.dataset(name)
    dataset.append([{"id": 0, "x": ""}])
    with pytest.raises(ZeroDivisionError):
        dataset.append(rows())
    assert dataset.info()["waiting"]["num_records"] == 1


def test_tensors_are_serialized_and_parsed(python: Client) -> None:
    arrays: list[Any] = [
        np.float32(1.5),
        np.zeros((0, 3), np.int8),
        np.arange(6, dtype=">u2").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([1 + 2j], np.complex64),
        np.array([[True], [False]]),
    ]
    for array in arrays:
        found = python.parse_tensor(python.serialize_tensor(array))
        assert (found.dtype, found.shape) == (array.dtype.newbyteorder("="), array.shape)
        assert found.tolist() == array.tolist()
    assert python.parse_tensor(python.serialize_tensor([["a\0", "räum"]])).tolist() == [
        [b"a\0", "räum".encode()]
    ]
    assert python.serialize_tensor(np.float32(1)) == b'\x08\x01\x12\x00"\x04\x00\x00\x80?'


def test_download_is_resumed_and_repaired(python: Client, name: str, tmp_path: Path) -> None:
    dataset = python.dataset(name)
    dataset.append({"x": np.random.default_rng(0).random((3000, 8), np.float32)})
    version = dataset.publish(num_shards=4)
    folder = version.download(tmp_path)
    assert folder == tmp_path / name / "1.0.0"
    shards = version.shards()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(before) == 4 + 4 + 4
    for shard in shards:
        assert hashlib.sha256(before[shard.name]).hexdigest() == shard.sha256
    first, second, third, fourth = (folder / shard.name for shard in shards)
    first.rename(folder / f"{first.name}.part")  # all of it is there
    second.unlink()
    (folder / f"{second.name}.part").write_bytes(before[second.name][:1000])
    third.unlink()
    (folder / f"{third.name}.part").write_bytes(b"of another file")
    fourth.write_bytes(before[fourth.name][:-1] + b"x")
    version.download(tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_in_an_event_loop_it_is_the_same(service: Service, name: str, tmp_path: Path) -> None:
    async def rows() -> AsyncIterator[dict[str, Any]]:
        for i in range(5):
            yield {"id": i, "b": bytes([i])}

    async def main() -> None:
        async with AsyncClient(service.url, verify=SSL_CONTEXT) as client:
            dataset = client.dataset(name)
            await asyncio.gather(*(dataset.append([{"id": 5 + i, "b": b""}]) for i in range(5)))
            await dataset.append(rows())
            await dataset.append({"id": [10], "b": [b"1"]})
            version = await dataset.publish(num_shards=2)
            assert sorted([row["id"] async for row in version.rows()]) == list(range(11))
            assert sorted((await version.to_numpy())["id"].tolist()) == list(range(11))
            folder = await version.download(tmp_path)
            assert sum(path.name.startswith(name) for path in folder.iterdir()) == 2
            assert (await client.parse_tensor(await client.serialize_tensor([1.5]))).tolist() == [1.5]
            with pytest.raises(NotFound):
                await client.dataset(f"{name}-no").info()

    asyncio.run(main())


def test_rows_of_an_asynchronous_iterator_need_the_other_client(python: Client, name: str) -> None:
    async def rows() -> AsyncIterator[dict[str, Any]]:
        yield {"id": 1}

    with pytest.raises(TypeError, match="AsyncClient"):
        python.dataset(name).append(rows())


@contextmanager
def faulty(service: Service, *rules: Rule) -> Iterator[tuple[FaultProxy, str]]:
    """A proxy before the service that does what the rules say, and its address."""
    proxy = FaultProxy(service.url.removeprefix("http://"))
    proxy.rules = Rules(7, rules)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        port, _ = asyncio.run_coroutine_threadsafe(proxy.start(), loop).result()
        yield proxy, f"http://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that tries again at once."""

    async def sleep(_: BlockingTransport, seconds: float) -> None:
        assert seconds >= 0

    monkeypatch.setattr(BlockingTransport, "sleep", sleep)


Exchange = tuple[httpx.Request, Reply]


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> list[Exchange]:
    """What the client asks, and the heads of the answers that it gets."""
    seen: list[Exchange] = []
    send = BlockingTransport.send

    async def send_and_tell(transport: BlockingTransport, request: httpx.Request) -> Reply:
        reply = await send(transport, request)
        seen.append((request, reply))
        return reply

    monkeypatch.setattr(BlockingTransport, "send", send_and_tell)
    return seen


@pytest.mark.usefixtures("no_waits")
def test_a_download_that_is_cut_off_goes_on_with_the_rest(
    service: Service, python: Client, name: str, tmp_path: Path, exchanges: list[Exchange]
) -> None:
    dataset = python.dataset(name)
    dataset.append({"x": np.random.default_rng(0).random((3000, 8), np.float32)})
    [shard] = dataset.publish().shards()
    cut = Rule("cut", rf"^get .*/files/{shard.name}", Fault("partial"), times=2)
    with faulty(service, cut) as (_, url), Client(url, verify=SSL_CONTEXT) as client:
        folder = client.dataset(name).version().download(tmp_path, at_once=1)
    assert hashlib.sha256((folder / shard.name).read_bytes()).hexdigest() == shard.sha256
    asked = [(request, reply) for request, reply in exchanges if request.url.path.endswith(shard.name)]
    half = shard.num_bytes // 2
    ranges = [None, f"bytes={half}-", f"bytes={half + (shard.num_bytes - half) // 2}-"]
    assert [request.headers.get("Range") for request, _ in asked] == ranges
    assert [reply.status for _, reply in asked] == [200, 206, 206]
    assert {request.headers["If-Range"] for request, _ in asked[1:]} == {f'"{shard.sha256}"'}


@pytest.mark.parametrize("way", ["publish", "append", "iterator"])
def test_a_publication_that_takes_long_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, exchanges: list[Exchange], way: str
) -> None:
    """It writes no shard before the client has been told to wait, and one for each wait."""
    store = SteppedStore(open_store("memory://"))

    async def sleep(_: BlockingTransport, seconds: float) -> None:
        assert seconds > 0
        store.let(1)

    monkeypatch.setattr(BlockingTransport, "sleep", sleep)
    app = create_app_with(Settings(storage_url="memory://"), store=store, publish_wait_s=0.01)
    rows = [{"id": i} for i in range(8)]
    with serving(app) as http, Client(str(http.base_url), verify=SSL_CONTEXT) as client:
        dataset = client.dataset("d")
        if way == "publish":
            dataset.append(rows)
            version = dataset.publish(num_shards=3).name
        else:
            given = (row for row in rows) if way == "iterator" else rows
            version = dataset.append(given, publish=True, num_shards=3)["version"]
        store.let(1000)
        assert version == "1.0.0"
        assert [row["id"] for row in dataset.version(version).rows()] == list(range(8))
    assert [reply.status for _, reply in exchanges].count(202) > 0


def test_statistics_come_once_all_rows_have_been_read(
    python: Client, name: str, exchanges: list[Exchange]
) -> None:
    dataset = python.dataset(name)
    dataset.append({"x": np.arange(100.0), "label": ["a", "b"] * 50})
    dataset.append({"x": np.arange(100.0), "label": ["a", "b"] * 50}, split="test", publish=True)
    found = dataset.version().statistics()
    assert (found["num_records"], found["features"]["x"]["mean"]) == (200 // 2, 49.5)
    assert found["features"]["label"]["values"]["top"][0]["count"] == 50
    compared = dataset.version().statistics("train", against_split="test")
    assert compared.keys() >= {"against", "drift"}
    with pytest.raises(NotFound):
        dataset.version().statistics("none")


def test_an_import_is_followed_by_what_the_service_tells(tmp_path: Path, exchanges: list[Exchange]) -> None:
    for k in range(3):
        rows = [json.dumps({"id": 100 * k + i}) for i in range(100)]
        (tmp_path / f"{k}.ndjson").write_text("\n".join(rows) + "\n")
    (tmp_path / "bad.jsonl").write_text('{"id": 1}\n{"id": "a"}\n')
    settings = Settings(storage_url="memory://", import_sources=f"file://{tmp_path}")
    with (
        serving(create_app_with(settings)) as http,
        Client(str(http.base_url), verify=SSL_CONTEXT) as client,
    ):
        dataset = client.dataset("d")
        source = f"file://{tmp_path}/*.ndjson"
        begun = dataset.begin_import(source, key="k", range_bytes=100, publish={"num_shards": 2})
        *_, last = dataset.import_(begun.import_id).follow()
        assert (last["state"], last["rows"], last["version"]) == ("done", 300, "1.0.0")
        ids = [*range(100), *range(100, 200), *range(200, 300)]
        assert sorted(client.dataset("d").version().to_numpy()["id"].tolist()) == ids
        again = dataset.begin_import(source, key="k", range_bytes=100, publish={"num_shards": 2})
        assert (again.import_id, again.wait()) == (begun.import_id, last)
        failed = dataset.begin_import(f"file://{tmp_path}/bad.jsonl")
        stopped = failed.wait()
        assert (stopped["state"], stopped["failures"][0]["row"]) == ("stopped", 1)
        failed.cancel()
        assert failed.wait()["state"] == "cancelled"
        with pytest.raises(Refused, match="source_not_allowed"):
            dataset.begin_import("file:///etc")
    followed = [
        request.headers["Accept"]
        for request, _ in exchanges
        if request.method == "GET" and "/imports/" in request.url.path
    ]
    assert followed == ["text/event-stream"] * 4


#: What befalls requests: nobody gets them, or nobody hears of it, or they come once more.
FAULTS = [
    Rule("drop before", ".", Fault("drop", "before"), 0.1),
    Rule("drop after", ".", Fault("drop", "after"), 0.1),
    Rule("502 after", ".", Fault("error", "after", 502), 0.1),
    Rule("503 before", ".", Fault("error", "before", 503), 0.1),
    Rule("late", ".", Fault("late", seconds=0.01), 0.05),
    Rule("again", ".", Fault("again", seconds=0.01), 0.1),
    Rule("partial", ".", Fault("partial"), 0.1),
    Rule("short", "records", Fault("short"), 0.1),
]


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("whole_bytes", [0, 1 << 20], ids=["streamed", "whole"])
def test_every_acknowledged_row_is_there_exactly_once(
    service: Service, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_bytes: int
) -> None:
    """Rows, columns and iterators; an iterator that is cut off is appended again by its key."""
    monkeypatch.setattr("app.client.bodies._WHOLE_BYTES", whole_bytes)
    with faulty(service, *FAULTS) as (proxy, url), Client(url, verify=SSL_CONTEXT) as client:
        dataset = client.dataset(name)
        numbers = itertools.count()
        acknowledged: list[int] = []
        for turn in range(60):
            ids = [next(numbers) for _ in range(3)]
            rows = [{"id": i} for i in ids]
            match turn % 3:
                case 0:
                    dataset.append(rows)
                case 1:
                    dataset.append({"id": np.array(ids)})
                case 2:
                    append_until_it_is_known(dataset, [{"id": i} for i in ids])
            acknowledged += ids
        version = dataset.publish()
        assert sorted(row["id"] for row in version.rows()) == acknowledged
        assert sorted(version.to_numpy()["id"].tolist()) == acknowledged
        folder = version.download(tmp_path)
    with Client(service.url, verify=SSL_CONTEXT) as client:
        direct = client.dataset(name)
        assert Counter(row["id"] for row in direct.version().rows()) == Counter(acknowledged)
        for shard in direct.version().shards():
            assert hashlib.sha256((folder / shard.name).read_bytes()).hexdigest() == shard.sha256
    assert {fault.rpartition(" ")[0] for fault in proxy.injected} == {rule.name for rule in FAULTS}


def append_until_it_is_known(dataset: Dataset, rows: list[dict[str, Any]]) -> None:
    """As the error says: the same rows once more, under the same key."""
    key = None
    while True:
        try:
            dataset.append(iter(rows), key=key)
        except OutcomeUnknown as error:
            key = error.key
        else:
            return
