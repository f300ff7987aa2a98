"""Training straight over HTTP: rows shuffled, batched and shared out."""

import io
import json
import tarfile
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from tests.support.zstandard import zstd

ROWS = 6000


@pytest.fixture(scope="module")
def url(client: httpx.Client) -> str:
    """Points on two sides of a line, all of one side first, in four shards."""
    name = f"d-{uuid.uuid4().hex[:8]}"
    random = np.random.default_rng(1)
    x = random.normal(size=(ROWS, 2)).astype(np.float32)
    y = (x.sum(axis=1) > 0).astype(np.int64)
    order = np.argsort(y, kind="stable")
    x, y = x[order], y[order]
    lines = (
        json.dumps({"id": i, "x": x[i].tolist(), "y": int(y[i])}, separators=(",", ":")) for i in range(ROWS)
    )
    answer = client.post(
        f"/v1/datasets/{name}/records",
        headers={"Content-Type": "application/x-ndjson"},
        content="\n".join(lines).encode(),
    )
    assert answer.status_code == 201, answer.text
    assert client.post(f"/v1/datasets/{name}/versions", params={"num_shards": 4}).status_code == 201
    return f"/v1/datasets/{name}/versions/1.0.0/records"


def batches(client: httpx.Client, url: str, **parameters: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of an Arrow stream, as a training loop draws them."""
    parameters = {"to": "arrow", **parameters}
    with client.stream("GET", url, params=parameters) as answer:
        assert answer.status_code == 200
        yield from pa.ipc.open_stream(answer.read())


def ids(client: httpx.Client, url: str, **parameters: Any) -> list[int]:
    found: list[Any] = [
        row for batch in batches(client, url, **parameters) for row in batch.column("id").to_pylist()
    ]
    return found


def test_a_training_loop_learns_from_the_stream(client: httpx.Client, url: str) -> None:
    # Here, since every process that collects tests would take two seconds to import it.
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(random_state=0)
    for epoch in range(3):
        seen: list[Any] = []
        for batch in batches(client, url, shuffle_buffer=3000, batch=64, seed=1, epoch=epoch):
            x = np.array(batch.column("x").to_pylist())
            y = batch.column("y").to_numpy()
            model.partial_fit(x, y, classes=[0, 1])
            seen += batch.column("id").to_pylist()
        assert sorted(seen) == list(range(ROWS))
    rows = pa.Table.from_batches(batches(client, url))
    x = np.array(rows["x"].to_pylist())
    assert model.score(x, rows["y"].to_numpy()) > 0.97


def test_batches_have_one_size(client: httpx.Client, url: str) -> None:
    sizes = [batch.num_rows for batch in batches(client, url, batch=256)]
    assert sizes == [256] * 23 + [112]
    kept = list(batches(client, url, batch=256, drop_remainder="true"))
    assert [batch.num_rows for batch in kept] == [256] * 23


def test_the_order_is_that_of_seed_and_epoch(client: httpx.Client, url: str) -> None:
    one = ids(client, url, shuffle_buffer=500, seed=1)
    assert one == ids(client, url, shuffle_buffer=500, seed=1, to="arrow")
    assert one != ids(client, url, shuffle_buffer=500, seed=2)
    assert one != ids(client, url, shuffle_buffer=500, seed=1, epoch=1)
    assert ids(client, url) == list(range(ROWS)) == sorted(one)


def test_workers_share_the_rows(client: httpx.Client, url: str) -> None:
    shares = [
        ids(client, url, shuffle_buffer=500, seed=1, worker=worker, num_workers=3) for worker in range(3)
    ]
    assert [len(share) for share in shares] == [ROWS // 3] * 3
    assert sorted(row for share in shares for row in share) == list(range(ROWS))


def test_the_rows_of_a_step_are_the_same_however_many_share_them(client: httpx.Client, url: str) -> None:
    one = ids(client, url, shuffle_buffer=500, seed=1)
    for workers in (1, 3, 2, 8):
        shares = [
            list(
                batches(
                    client,
                    url,
                    shuffle_buffer=500,
                    seed=1,
                    global_batch=48,
                    worker=worker,
                    num_workers=workers,
                )
            )
            for worker in range(workers)
        ]
        assert {batch.num_rows for share in shares for batch in share} == {48 // workers}
        steps = zip(*shares, strict=True)
        assert [row for step in steps for batch in step for row in batch.column("id").to_pylist()] == one


@pytest.mark.parametrize("buffer", [0, 500])
def test_an_epoch_goes_on_from_any_row(client: httpx.Client, url: str, buffer: int) -> None:
    whole = ids(client, url, shuffle_buffer=buffer)
    for start in (0, 48, 1234, 5999, 6000, 7000):
        assert ids(client, url, shuffle_buffer=buffer, global_batch=48, start=start) == whole[start:]
    assert ids(client, url, shuffle_buffer=buffer, start=1234, stop=1300) == whole[1234:1300]
    shares = [ids(client, url, shuffle_buffer=buffer, start=9, worker=w, num_workers=2) for w in range(2)]
    assert shares[0] + shares[1] == whole[9:]


def test_the_last_step_is_left_out_where_it_is_not_full(client: httpx.Client, url: str) -> None:
    parameters: dict[str, Any] = {"global_batch": 64, "num_workers": 2, "shuffle_buffer": 500}
    whole = ids(client, url, shuffle_buffer=500)
    for worker in range(2):
        found = list(batches(client, url, worker=worker, drop_remainder="true", **parameters))
        assert [batch.num_rows for batch in found] == [32] * (ROWS // 64)
        last = list(batches(client, url, worker=worker, **parameters))[-1]
        begin = ROWS // 64 * 64
        assert last.column("id").to_pylist() == whole[begin:][24 * worker : 24 * (worker + 1)]


def test_steps_come_in_messages_of_any_form(client: httpx.Client, url: str) -> None:
    parameters: dict[str, Any] = {"global_batch": 64, "num_workers": 2, "shuffle_buffer": 500, "start": 128}
    found = list(batches(client, url, batch=8, **parameters))
    assert {batch.num_rows for batch in found[:-3]} == {8}
    expected = [row for batch in found for row in batch.column("id").to_pylist()]
    lines = client.get(url, params={**parameters, "layout": "columns"}).text.splitlines()
    columns = [json.loads(line)["id"] for line in lines]
    assert {len(column) for column in columns[:-1]} == {32}
    assert [row for column in columns for row in column] == expected
    rows = client.get(url, params={**parameters, "to": "npz"}).content
    assert np.load(io.BytesIO(rows))["id"].tolist() == expected
    answer = client.get(url, params={**parameters, "to": "npz", "batch": 32})
    assert answer.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        files = [(file.name, tar.extractfile(file)) for file in tar]
    assert [name for name, _ in files] == [f"{number:09d}.npz" for number in range(len(columns))]
    assert [np.load(io.BytesIO(file.read()))["id"].tolist() for _, file in files if file] == columns


def test_files_of_batches_name_the_row_at_fault(client: httpx.Client, url: str) -> None:
    name = f"{url.split('/')[3]}-sparse"
    rows = [{"id": i, "x": 0.5} for i in range(20)] + [{"id": 20}]
    assert client.post(f"/v1/datasets/{name}/records?publish=true", json=rows).status_code == 201
    records = f"/v1/datasets/{name}/versions/1.0.0/records"
    answer = client.get(records, params={"to": "npz", "batch": 8})
    assert (answer.status_code, answer.json()["code"], answer.json()["row"]) == (422, "not_expressible", 20)
    whole = client.get(records, params={"to": "npz", "batch": 8, "drop_remainder": "true"})
    with tarfile.open(fileobj=io.BytesIO(whole.content)) as tar:
        assert len(tar.getnames()) == 2
    assert whole.headers["Record-Count"] == "16"


def test_a_message_may_be_compressed(client: httpx.Client, url: str) -> None:
    parameters: dict[str, Any] = {"global_batch": 64, "to": "arrow"}
    plain = client.get(url, params=parameters, headers={"Accept-Encoding": "identity"}).content
    headers = {"Accept-Encoding": "zstd, identity;q=0"}
    with client.stream("GET", url, params=parameters, headers=headers) as answer:
        assert answer.headers["content-encoding"] == "zstd"
        assert zstd.decompress(b"".join(answer.iter_raw())) == plain


def test_a_part_of_the_rows_is_shuffled(client: httpx.Client, url: str) -> None:
    found = ids(client, url, offset=1000, length=50, shuffle_buffer=500)
    assert sorted(found) == list(range(1000, 1050))
    assert found != sorted(found)


def test_ndjson_has_a_line_of_columns_for_each_batch(client: httpx.Client, url: str) -> None:
    parameters: dict[str, Any] = {"batch": 1000, "layout": "columns", "length": 2500}
    answer = client.get(url, params=parameters)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [len(line["x"]) for line in lines] == [1000, 1000, 500]
    assert [row for line in lines for row in line["id"]] == list(range(2500))


def test_the_number_of_rows_is_known_beforehand(client: httpx.Client, url: str) -> None:
    parameters: dict[str, Any] = {"batch": 64, "drop_remainder": "true", "layout": "columns", "length": 100}
    answer = client.get(url, params={**parameters, "delivery": "checked"})
    assert answer.headers["record-count"] == "64"


def test_any_form_may_be_shuffled(client: httpx.Client, url: str) -> None:
    rows = client.get(url, params={"shuffle_buffer": 100, "length": 300}).text.splitlines()
    content = client.get(url, params={"shuffle_buffer": 100, "length": 300, "to": "tfrecord"}).content
    schema = json.dumps(client.get(url.removesuffix("/records")).json()["schema"])
    again = client.post("/v1/records/parse", params={"schema": schema}, content=content).text.splitlines()
    assert list(map(json.loads, again)) == list(map(json.loads, rows))


@pytest.mark.parametrize(
    ("parameters", "code", "parameter"),
    [
        ({"seed": 1}, "inapplicable_parameter", "seed"),
        ({"epoch": 1, "shuffle_buffer": 0}, "inapplicable_parameter", "epoch"),
        ({"drop_remainder": "true"}, "inapplicable_parameter", "drop_remainder"),
        ({"batch": 5}, "inapplicable_parameter", "batch"),
        ({"batch": 5, "to": "json", "layout": "columns"}, "inapplicable_parameter", "batch"),
        ({"batch": 5, "to": "tfrecord"}, "inapplicable_parameter", "batch"),
        ({"layout": "columns"}, "inapplicable_parameter", "layout"),
        ({"worker": 2, "num_workers": 2}, "invalid_parameter", "worker"),
        ({"worker": 1}, "invalid_parameter", "worker"),
        ({"num_workers": 0}, "invalid_parameter", "num_workers"),
        ({"batch": 0, "to": "arrow"}, "invalid_parameter", "batch"),
        ({"shuffle_buffer": -1}, "invalid_parameter", "shuffle_buffer"),
        ({"seed": 2**63, "shuffle_buffer": 5}, "invalid_parameter", "seed"),
        ({"global_batch": 0}, "invalid_parameter", "global_batch"),
        ({"global_batch": 10, "num_workers": 4}, "invalid_parameter", "global_batch"),
        ({"global_batch": 12, "num_workers": 4, "batch": 2, "to": "arrow"}, "invalid_parameter", "batch"),
        ({"global_batch": 12, "batch": 4}, "inapplicable_parameter", "batch"),
        ({"global_batch": 12, "on_error": "skip"}, "inapplicable_parameter", "on_error"),
        ({"global_batch": 12, "layout": "columns", "to": "arrow"}, "inapplicable_parameter", "layout"),
        ({"start": -1}, "invalid_parameter", "start"),
        ({"stop": -1}, "invalid_parameter", "stop"),
    ],
)
def test_parameter_without_effect_is_refused(
    client: httpx.Client, url: str, parameters: dict[str, Any], code: str, parameter: str
) -> None:
    answer = client.get(url, params=parameters)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert answer.json()["parameter"] == parameter
