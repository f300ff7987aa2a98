"""`mix`: rows of several splits and datasets in turns, over HTTP."""

import json
import uuid
from typing import Any

import httpx
import pyarrow as pa
import pytest


@pytest.fixture(scope="module")
def names(client: httpx.Client) -> list[str]:
    """Two datasets of rows with their numbers; the first one has two splits."""
    made = [f"m-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for which, split, first, count in (
        (0, "train", 0, 60),
        (0, "validation", 1000, 20),
        (1, "train", 2000, 40),
    ):
        rows = [{"id": first + i} for i in range(count)]
        path = f"/v1/datasets/{made[which]}/records?split={split}"
        assert client.post(path, json=rows).status_code == 201
    for name in made:
        assert client.post(f"/v1/datasets/{name}/versions").status_code == 201
    return made


def read(client: httpx.Client, name: str, **query: Any) -> httpx.Response:
    return client.get(f"/v1/datasets/{name}/versions/1.0.0/records", params=query)


def ids(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line)["id"] for line in answer.text.splitlines()]


def test_splits_and_datasets_come_in_turns(client: httpx.Client, names: list[str]) -> None:
    mix = f"train:3,{names[1]}@1.0.0/train:2,validation:1"
    answer = read(client, names[0], mix=mix)
    rows = ids(answer)
    # train ends first: 60 rows are 20 rounds of 6, of which validation has one in each.
    assert (answer.headers["Record-Count"], len(rows)) == ("120", 120)
    assert [row for row in rows if row < 1000] == list(range(60))
    assert [row for row in rows if row >= 2000] == list(range(2000, 2040))
    for begin in range(0, 120, 6):
        assert sorted(row // 1000 for row in rows[begin : begin + 6]) == [0, 0, 0, 1, 2, 2]


def test_steps_workers_and_beginnings_are_those_of_the_mixture(
    client: httpx.Client, names: list[str]
) -> None:
    order = {"mix": "train:3,validation:1", "shuffle_buffer": 16, "seed": 7, "epoch": 2, "global_batch": 12}
    alone = ids(read(client, names[0], **order))
    assert ids(read(client, names[0], **order, start=24)) == alone[24:]
    assert ids(read(client, names[0], **{**order, "epoch": 3})) != alone
    shares = []
    for worker in range(3):
        answer = read(
            client, names[0], **order, worker=worker, num_workers=3, to="arrow", drop_remainder=True
        )
        with pa.ipc.open_stream(answer.content) as stream:
            shares.append([batch.column("id").to_pylist() for batch in stream])
    together = [row for step in zip(*shares, strict=True) for part in step for row in part]
    assert together == alone[: len(alone) // 12 * 12]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"mix": ""}, 400, "invalid_parameter"),
        ({"mix": "train"}, 400, "invalid_parameter"),
        ({"mix": "train:0"}, 400, "invalid_parameter"),
        ({"mix": "train:-1"}, 400, "invalid_parameter"),
        ({"mix": "train:1,train:2"}, 400, "invalid_parameter"),
        ({"mix": "train:9999,validation:2"}, 400, "invalid_parameter"),
        ({"mix": "other/train:1"}, 400, "invalid_parameter"),
        ({"mix": ",".join(f"s{k}:1" for k in range(17))}, 400, "invalid_parameter"),
        ({"mix": "train:1", "split": "validation"}, 400, "inapplicable_parameter"),
        ({"mix": "train:1", "offset": 3}, 400, "inapplicable_parameter"),
        ({"mix": "train:1,nothing:1"}, 404, "split_not_found"),
        ({"mix": "train:1,nothing@1.0.0/train:1"}, 404, "dataset_not_found"),
    ],
    ids=["empty", "no weight", "zero", "negative", "twice", "heavy", "no version", "many", "split", "offset",
         "no split", "no dataset"],
)  # fmt: skip
def test_mixtures_that_are_none(
    client: httpx.Client, names: list[str], query: dict[str, Any], status: int, code: str
) -> None:
    answer = read(client, names[0], **query)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_other_features_are_not_mixed(client: httpx.Client, names: list[str]) -> None:
    other = f"m-{uuid.uuid4().hex[:8]}"
    assert client.post(f"/v1/datasets/{other}/records?publish=true", json=[{"x": 1.5}]).status_code == 201
    answer = read(client, names[0], mix=f"train:1,{other}@latest/train:1")
    assert (answer.status_code, answer.json()["code"]) == (422, "mixed_schemas")
