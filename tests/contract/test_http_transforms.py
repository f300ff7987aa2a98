"""Transforms over HTTP: steps are done to rows that are written and to rows that are read."""

import base64
import io
import json
import os
import signal
import threading
import time
import uuid
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest

from tests.support.service import Service

Json = dict[str, Any]
Steps = list[Json]

IMAGE: Steps = [
    {"step": "decode_image", "channels": 3},
    {"step": "resize", "size": [8, 8]},
    {"step": "cast", "dtype": "uint8", "unfit": "saturate"},
    {"step": "encode_png"},
]
NUMBERS: Steps = [{"step": "quantize", "dtype": "uint8", "min": 0, "max": 255}]
TEXT: Steps = [{"step": "strip"}, {"step": "lower"}, {"step": "lookup", "vocabulary": ["cat", "dog"]}]
DECLARED: Json = {
    "image": {"dtype": "bytes", "transforms": IMAGE},
    "x": {"dtype": "float32", "shape": [3], "transforms": NUMBERS},
    "label": {"dtype": "text", "transforms": TEXT},
    "id": {"dtype": "int64"},
}


def jpeg(level: int, size: tuple[int, int] = (32, 24)) -> bytes:
    """An image of one grey: however it is resized, that stays."""
    file = io.BytesIO()
    PIL.Image.new("RGB", size, (level, level, level)).save(file, "JPEG", quality=95)
    return file.getvalue()


def b64(data: bytes) -> Json:
    return {"b64": base64.b64encode(data).decode()}


def row(index: int, **changed: Any) -> Json:
    return {
        "image": b64(jpeg(index)),
        "x": [0.2, 1.6, 300],
        "label": (" Cat ", "DOG")[index % 2],
        "id": index,
    } | changed


def schema(**features: Any) -> Json:
    return {"features": features or DECLARED}


def body(rows: list[Json], **features: Any) -> Json:
    return {"schema": schema(**features), "instances": rows}


def pixels(image: Json) -> np.ndarray[Any, Any]:
    return np.asarray(PIL.Image.open(io.BytesIO(base64.b64decode(image["b64"]))))


def check_rows(rows: list[Json], indices: list[int]) -> None:
    assert [item["id"] for item in rows] == indices
    for item in rows:
        index = item["id"]
        assert item["x"] == [0, 2, 255]
        assert item["label"] == index % 2
        image = pixels(item["image"])
        assert image.shape == (8, 8, 3)
        assert np.abs(image.astype(int) - index).max() <= 1


@pytest.fixture
def dataset(client: httpx.Client) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:10]}"
    yield f"/v1/datasets/{name}"
    client.delete(f"/v1/datasets/{name}")


@pytest.mark.parametrize("count", [1, 40])
def test_rows_are_transformed_before_they_are_written(client: httpx.Client, count: int) -> None:
    """A body of one row is small, and one of forty is not."""
    indices = list(range(count))
    answer = client.post("/v1/records/serialize?to=json", json=body([row(index) for index in indices]))
    assert answer.status_code == 200, answer.text
    check_rows(answer.json(), indices)
    assert answer.headers["Record-Count"] == str(count)
    assert "Skipped-Rows" not in answer.headers


@pytest.mark.parametrize("index", [0, 5])
def test_one_row_is_transformed(client: httpx.Client, index: int) -> None:
    query = {"schema": json.dumps(schema()), "to": "json"}
    answer = client.post("/v1/examples/serialize", params=query, json=row(index))
    assert answer.status_code == 200, answer.text
    check_rows([answer.json()], [index])


def test_schema_in_its_own_part_is_used(client: httpx.Client) -> None:
    files = {
        "schema": (None, json.dumps(schema()), "application/json"),
        "data": (None, json.dumps(row(7)), "application/x-ndjson"),
    }
    answer = client.post("/v1/records/serialize?to=json", files=files)
    assert answer.status_code == 200, answer.text
    check_rows(answer.json(), [7])


@pytest.mark.parametrize("route", ["records/serialize", "records/parse", "examples/parse"])
def test_rows_are_transformed_after_they_are_read(client: httpx.Client, route: str) -> None:
    written = client.post("/v1/examples/serialize", json={"x": [1.5, 2.5], "y": "A"}).content
    if "records" in route:
        written = client.post("/v1/records/serialize", json=[{"x": [1.5, 2.5], "y": "A"}]).content
    declared = schema(x={"dtype": "float32", "shape": [2]}, y={"dtype": "text"})
    transforms = {"x": [{"step": "scale", "factor": 2}], "y": [{"step": "lower"}]}
    query = {"schema": json.dumps(declared), "transforms": json.dumps(transforms), "to": "json"}
    headers = {"Content-Type": "application/x-tfrecord" if "records" in route else "application/protobuf"}
    answer = client.post(f"/v1/{route}", params=query, content=written, headers=headers)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found if isinstance(found, dict) else found[0]) == {"x": [3.0, 5.0], "y": "a"}


def test_inferred_floats_stay_inferred(client: httpx.Client) -> None:
    """What nobody declared is rounded and reported, transformed or not."""
    query = {"transforms": json.dumps({"x": [{"step": "scale", "factor": 1}]})}
    answer = client.post("/v1/records/serialize", params=query, json=[{"x": 0.1}])
    assert answer.status_code == 200, answer.text
    assert answer.headers["Rounded-Features"] == "x"


def test_the_answer_says_how_its_rows_were_made(client: httpx.Client) -> None:
    answer = client.post("/v1/records/describe?to=schema", json=body([row(0)]))
    assert answer.status_code == 200, answer.text
    label = answer.json()["features"]["label"]
    assert (label["dtype"], label["transformed"]["from"]["dtype"]) == ("int64", "text")
    assert label["transformed"]["steps"] == [
        {"step": "strip"},
        {"step": "lower"},
        {"step": "lookup", "vocabulary": ["cat", "dog"], "oov_buckets": 0},
    ]
    assert "transforms" not in label


LOWER: Steps = [{"step": "lower"}]
BAD_SCHEMAS: dict[str, tuple[Json, int, str, int | None]] = {
    "no such step": ({"dtype": "bytes", "transforms": [{"step": "blur"}]}, 400, "invalid_transform", 0),
    "no list": ({"dtype": "text", "transforms": LOWER[0]}, 400, "invalid_schema", None),
    "no such argument": (
        {"dtype": "bytes", "transforms": [{"step": "decode_image", "colour": 3}]},
        400,
        "invalid_transform",
        0,
    ),
    "an argument of another type": (
        {"dtype": "bytes", "transforms": [{"step": "decode_image", "channels": 2}]},
        400,
        "invalid_transform",
        0,
    ),
    "a dtype that it does not take": (
        {"dtype": "text", "transforms": [{"step": "strip"}, {"step": "decode_image"}]},
        422,
        "invalid_transform",
        1,
    ),
    "a shape that it does not take": (
        {"dtype": "uint8", "shape": [4, 4], "transforms": [{"step": "resize", "size": [2, 2]}]},
        422,
        "invalid_transform",
        0,
    ),
    "what no feature can be": (
        {"dtype": "text", "transforms": [{"step": "store_as", "encoding": "raw"}]},
        422,
        "invalid_feature",
        None,
    ),
    "too many": ({"dtype": "text", "transforms": LOWER * 33}, 413, "too_many_steps", None),
    "done and to be done": (
        {"dtype": "text", "transforms": LOWER, "transformed": {"from": {"dtype": "text"}, "steps": LOWER}},
        400,
        "invalid_schema",
        None,
    ),
    "made of something else": (
        {"dtype": "int64", "transformed": {"from": {"dtype": "text"}, "steps": LOWER}},
        422,
        "invalid_transform",
        None,
    ),
}


@pytest.mark.parametrize(("feature", "status", "code", "step"), BAD_SCHEMAS.values(), ids=BAD_SCHEMAS)
@pytest.mark.parametrize("where", ["body", "query", "dataset", "append"])
def test_steps_that_cannot_be_done_are_refused_before_any_row(
    client: httpx.Client, dataset: str, where: str, feature: Json, status: int, code: str, step: int | None
) -> None:
    if where == "body":
        answer = client.post("/v1/records/serialize", json=body([], f=feature))
    elif where == "query":
        query = {"schema": json.dumps(schema(f=feature))}
        answer = client.post("/v1/records/serialize", params=query, json=[{"f": 1}])
    elif where == "dataset":
        answer = client.put(dataset, json={"schema": schema(f=feature)})
    else:
        answer = client.post(f"{dataset}/records", json=body([], f=feature))
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert problem["feature"] == "f"
    assert problem.get("step") == step


@pytest.mark.parametrize(
    ("transforms", "status", "code"),
    [
        ("[", 400, "invalid_json"),
        ("[]", 400, "invalid_transform"),
        ('{"x": 1}', 400, "invalid_schema"),
        ('{"y": [{"step": "lower"}]}', 422, "unknown_feature"),
        ('{"x": [{"step": "lower"}]}', 422, "invalid_transform"),
        ('{"x": [{"step": "nothing"}]}', 400, "invalid_transform"),
        (json.dumps({"x": [{"step": "scale", "factor": 1}] * 400}), 400, "invalid_transform"),
    ],
)
@pytest.mark.parametrize("route", ["records/serialize", "examples/serialize"])
def test_transforms_of_a_query_that_cannot_be_done_are_refused(
    client: httpx.Client, route: str, transforms: str, status: int, code: str
) -> None:
    rows: Any = {"x": 1} if "examples" in route else [{"x": 1}]
    answer = client.post(f"/v1/{route}", params={"transforms": transforms}, json=rows)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_transforms_are_given_once(client: httpx.Client) -> None:
    query = {"transforms": '{"label": [{"step": "lower"}]}'}
    answer = client.post("/v1/records/serialize", params=query, json=body([row(0)]))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_transform")


def bomb() -> bytes:
    """A PNG of 900 megapixels, as its header says."""
    file = io.BytesIO()
    PIL.Image.new("1", (1, 1)).save(file, "PNG")
    data = bytearray(file.getvalue())
    data[16:24] = (30_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    return bytes(data)


BAD_ROWS: dict[str, tuple[str, Any, int, str]] = {
    "no image": ("image", b64(b"hello"), 0, "decode_image"),
    "cut off": ("image", b64(jpeg(3)[:-30]), 0, "decode_image"),
    "a bomb": ("image", b64(bomb()), 0, "decode_image"),
    "beyond the vocabulary": ("label", "horse", 2, "lookup"),
    "not a number": ("x", ["NaN", 0, 0], 0, "quantize"),
}


@pytest.mark.parametrize(("feature", "value", "step", "name"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_row_that_fails_is_named_with_feature_and_step(
    client: httpx.Client, dataset: str, feature: str, value: Any, step: int, name: str
) -> None:
    rows = [row(0), row(1), row(2, **{feature: value}), row(3)]
    for route in ("/v1/records/serialize", f"{dataset}/records"):
        problem = client.post(route, json=body(rows)).json()
        assert (problem["status"], problem["code"]) == (422, "transform_failed")
        assert (problem["row"], problem["feature"], problem["step"]) == (2, feature, step)
        assert f"step {step} ({name}) of feature '{feature}'" in problem["detail"]
        assert "on_error=skip" in problem["detail"]
    assert client.get(dataset).status_code == 404  # nothing is stored


def test_skipping_is_recommended_only_where_it_can_be_asked_for(client: httpx.Client) -> None:
    declared = json.dumps(schema(x={"dtype": "bytes", "transforms": [{"step": "decode_image"}]}))
    for route, content in (("examples/serialize", {"x": b64(b"")}), ("records/describe", [{"x": b64(b"")}])):
        answer = client.post(f"/v1/{route}", params={"schema": declared}, json=content)
        assert (answer.status_code, answer.json()["code"]) == (422, "transform_failed"), answer.text
        assert "on_error" not in answer.json()["detail"]
        refused = client.post(f"/v1/{route}", params={"on_error": "skip"}, json=content)
        assert refused.status_code == 400


@pytest.mark.parametrize(("feature", "value"), [item[:2] for item in BAD_ROWS.values()], ids=BAD_ROWS)
def test_rows_that_fail_are_left_out_and_counted(
    client: httpx.Client, dataset: str, feature: str, value: Any
) -> None:
    rows = [row(0), row(1, **{feature: value}), row(2), row(3, **{feature: value})]
    answer = client.post("/v1/records/serialize?to=json&on_error=skip", json=body(rows))
    assert answer.status_code == 200, answer.text
    check_rows(answer.json(), [0, 2])
    assert (answer.headers["Skipped-Rows"], answer.headers["Record-Count"]) == ("2", "2")
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    append = f"{dataset}/records?on_error=skip"
    answers = [
        client.post(f"{dataset}/records?on_error=skip", json=body(rows), headers=headers).json()
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert (answers[0]["num_records"], answers[0]["skipped"]) == (2, 2)
    without_key = client.post(append, json=rows).json()
    assert (without_key["num_records"], without_key["skipped"]) == (2, 2)
    all_whole = client.post(append, json=[row(4)]).json()
    assert (all_whole["num_records"], all_whole["skipped"]) == (1, 0)


@pytest.mark.parametrize(
    ("to", "value", "code"),
    [
        ("tfrecord", 1e300, "lossy_encoding"),
        ("csv", "a\0", "not_expressible"),
        ("oip", None, "not_expressible"),
    ],
)
def test_a_row_that_cannot_be_written_has_the_number_that_it_was_sent_with(
    client: httpx.Client, dataset: str, to: str, value: Any, code: str
) -> None:
    """Encoders count the rows that are left; row 0 and rows 2 to 1,500 are left out before row 1,502."""
    good = "text" if isinstance(value, str) else 0.5
    words = ["?", "cat", *["?"] * 1500, "dog", "?"]
    rows = [{"l": word, "x": value if word == "dog" else good} for word in words]
    dtype = "text" if isinstance(value, str) else "float32"
    transforms = json.dumps({"l": [{"step": "lookup", "vocabulary": ["cat", "dog"]}]})
    params = {"on_error": "skip", "transforms": transforms, "to": to}
    if to != "tfrecord":
        declared = {"l": {"dtype": "text"}, "x": {"dtype": dtype, "nullable": True}}
        params["schema"] = json.dumps({"features": declared})
    answer = client.post("/v1/records/serialize", params=params, json=rows)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["row"]) == (422, code, 1502), problem
    if to != "oip":  # which counts places
        assert "row 1502" in problem["detail"].lower()
    if to == "tfrecord":
        declared = {"l": {"dtype": "text", "transforms": json.loads(transforms)["l"]}}
        assert client.put(dataset, json={"schema": {"features": declared}}).status_code == 201
        append = f"{dataset}/records?on_error=skip&evolve=widen"
        problem = client.post(append, json=rows).json()
        assert (problem["code"], problem["row"]) == (code, 1502), problem


def test_unreadable_row_keeps_its_number_after_skipped_rows(
    client: httpx.Client,
) -> None:
    lines = [*[{"l": "?"}] * 3000, {"l": "cat"}, {"l": 5}]
    steps = [{"step": "lookup", "vocabulary": ["cat"]}]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    declared = json.dumps({"features": {"l": {"dtype": "text", "transforms": steps}}})
    params = {"on_error": "skip", "schema": declared}
    headers = {"Content-Type": "application/x-ndjson"}
    problem = client.post("/v1/records/serialize", params=params, content=content, headers=headers).json()
    assert (problem["code"], problem["row"]) == ("schema_conflict", 3001), problem


def test_a_dataset_keeps_its_transforms(client: httpx.Client, dataset: str) -> None:
    """Rows that are appended without a schema go through the steps of the dataset; nothing else is stored."""
    created = client.put(dataset, json={"schema": schema()})
    assert created.status_code == 201, created.text
    kept = created.json()["schema"]
    assert kept["features"]["x"]["dtype"] == "uint8"
    assert kept["features"]["x"]["transformed"]["from"]["dtype"] == "float32"
    assert client.put(dataset, json={"schema": schema()}).status_code == 200
    # the same steps, with a default written out
    same = {
        **DECLARED,
        "image": {"dtype": "bytes", "transforms": [*IMAGE[:3], {**IMAGE[3], "compression": -1}]},
    }
    bodies: list[Any] = [[row(0)], body([row(1)]), body([row(2)], **same)]
    for content in bodies:
        answer = client.post(f"{dataset}/records", json=content)
        assert answer.status_code == 201, answer.text
    query = {"schema": json.dumps(schema())}
    assert client.post(f"{dataset}/records", params=query, json=[row(3)]).status_code == 201
    assert client.post(f"{dataset}/records?publish=true", json=[row(4)]).status_code == 201
    manifest = client.get(f"{dataset}/versions/latest").json()
    assert manifest["schema"] == kept
    rows = client.get(f"{dataset}/versions/latest/records?to=json").json()
    check_rows(sorted(rows, key=lambda item: int(item["id"])), [0, 1, 2, 3, 4])
    assert client.post(f"{dataset}/versions/latest/validate").json()["valid"]


OTHER: dict[str, Json] = {
    "other arguments": {
        "dtype": "text",
        "transforms": [*TEXT[:2], {"step": "lookup", "vocabulary": ["dog", "cat"]}],
    },
    "other steps": {"dtype": "text", "transforms": TEXT[1:]},
    "no steps": {"dtype": "text"},
    "the result alone": {"dtype": "int64"},
    "of something else": {"dtype": "bytes", "transforms": TEXT[2:]},
}


@pytest.mark.parametrize("label", OTHER.values(), ids=OTHER)
@pytest.mark.parametrize("evolve", ["none", "widen"])
def test_rows_with_other_transforms_are_a_conflict(
    client: httpx.Client, dataset: str, label: Json, evolve: str
) -> None:
    client.put(dataset, json={"schema": schema()})
    rows = [row(0, label=0 if label["dtype"] == "int64" else "cat")]
    for answer in (
        client.post(f"{dataset}/records?evolve={evolve}", json=body(rows, **{**DECLARED, "label": label})),
        client.post(
            f"{dataset}/records",
            params={"evolve": evolve, "schema": json.dumps(schema(**{**DECLARED, "label": label}))},
            json=rows,
        ),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "schema_conflict"), answer.text


@pytest.mark.parametrize("form", ["tfrecord", "arrow", "json", "parquet"])
def test_rows_of_a_version_can_be_appended_as_they_are(client: httpx.Client, dataset: str, form: str) -> None:
    """They went through the steps, as the schema of the dataset says; nothing is done twice."""
    client.put(dataset, json={"schema": schema()})
    client.post(f"{dataset}/records?publish=true", json=[row(0), row(1)])
    rows = client.get(
        f"{dataset}/versions/latest/records?to={form}&batch=2"
        if form == "arrow"
        else f"{dataset}/versions/latest/records?to={form}"
    )
    query = {"from": form, "publish": "true"}
    if form in ("tfrecord", "json"):  # the others say it themselves
        query["schema"] = f"dataset:{dataset.rpartition('/')[2]}"
    answer = client.post(f"{dataset}/records", params=query, content=rows.content)
    assert answer.status_code == 201, answer.text
    check_rows(client.get(f"{dataset}/versions/latest/records?to=json").json(), [0, 1, 0, 1])


def test_a_dataset_with_transforms_is_widened(client: httpx.Client, dataset: str) -> None:
    client.put(dataset, json={"schema": schema()})
    rows = [{**row(0), "weight": 0.5}]
    assert client.post(f"{dataset}/records", json=rows).status_code == 422
    assert client.post(f"{dataset}/records?evolve=widen", json=rows).status_code == 201
    without = row(1)
    del without["label"]
    assert client.post(f"{dataset}/records", json=[without]).status_code == 422
    assert client.post(f"{dataset}/records?evolve=widen", json=[without]).status_code == 201
    declared = {**DECLARED, "size": {"dtype": "int64"}}
    answer = client.post(f"{dataset}/records?evolve=widen", json=body([{**row(2), "size": 3}], **declared))
    assert answer.status_code == 201, answer.text
    assert client.post(f"{dataset}/records?publish=true", json=[row(3)]).status_code == 201
    rows = client.get(f"{dataset}/versions/latest/records?to=json").json()
    assert [item.get("label") for item in rows] == [0, None, 0, 1]
    assert [item.get("weight") for item in rows] == [0.5, None, None, None]
    assert [item.get("size") for item in rows] == [None, None, 3, None]


def test_missing_value_is_filled_before_lookup(client: httpx.Client, dataset: str) -> None:
    feature = {
        "dtype": "text",
        "nullable": True,
        "transforms": [{"step": "fill_missing", "value": "cat"}, *TEXT],
    }
    client.put(dataset, json={"schema": schema(label=feature, id={"dtype": "int64"})})
    assert client.post(f"{dataset}/records", json=[{"id": 0}, {"id": 1, "label": "dog"}]).status_code == 201
    assert client.post(f"{dataset}/records?publish=true", json=[{"id": 2, "label": None}]).status_code == 201
    rows = client.get(f"{dataset}/versions/latest/records?to=json").json()
    assert [item["label"] for item in rows] == [0, 1, 0]


def test_feature_that_later_rows_lack_is_filled(client: httpx.Client, dataset: str) -> None:
    feature = {"dtype": "text", "transforms": [{"step": "fill_missing", "value": "cat"}, *TEXT]}
    client.put(dataset, json={"schema": schema(label=feature, id={"dtype": "int64"})})
    without = body([{"id": 0}], id={"dtype": "int64"})
    assert client.post(f"{dataset}/records", json=[{"id": 1}]).status_code == 422
    assert client.post(f"{dataset}/records?evolve=widen", json=without).status_code == 201
    for evolve in ("none", "widen"):
        answer = client.post(f"{dataset}/records?evolve={evolve}&publish=true", json=[{"id": 2}])
        assert answer.status_code == 201, answer.text
    rows = client.get(f"{dataset}/versions/latest/records?to=json").json()
    assert [item["label"] for item in rows] == [0, 0, 0]


def test_rows_of_a_version_are_transformed_as_they_are_read(client: httpx.Client, dataset: str) -> None:
    rows = [row(index) for index in range(6)] + [row(6, image=b64(b"no image"))]
    for feature in rows:
        feature["label"] = feature["label"].strip()
    client.post(f"{dataset}/records?publish=true", json=rows)
    query = {
        "to": "json",
        "offset": "2",
        "transforms": json.dumps({"image": [*IMAGE[:3], {"step": "central_crop", "central_fraction": 0.5}]}),
    }
    records = f"{dataset}/versions/latest/records"
    answer = client.get(records, params=query)
    assert (answer.status_code, answer.json()["row"], answer.json()["step"]) == (422, 4, 0)
    answer = client.get(records, params={**query, "on_error": "skip"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["Skipped-Rows"] == "1"
    found = answer.json()
    assert [item["id"] for item in found] == [2, 3, 4, 5]
    assert np.array(found[1]["image"]).shape == (4, 4, 3)
    assert np.abs(np.array([item["image"] for item in found]).mean((1, 2, 3)) - [2, 3, 4, 5]).max() <= 1
    limited = client.get(records, params={**query, "length": "4", "batch": "3", "to": "arrow"})
    assert limited.status_code == 200


def test_the_same_append_again_gives_the_same_bytes(client: httpx.Client, dataset: str) -> None:
    quality = {"step": "encode_jpeg", "quality": 70}
    declared = {**DECLARED, "image": {"dtype": "bytes", "transforms": [*IMAGE[:3], quality]}}
    client.put(dataset, json={"schema": schema(**declared)})
    rows = [row(index) for index in range(8)]
    for key in ("a", "b"):
        headers = {"Idempotency-Key": key}
        first = client.post(f"{dataset}/records", json=rows, headers=headers)
        assert first.status_code == 201, first.text
        assert client.post(f"{dataset}/records", json=rows, headers=headers).json() == first.json()
    client.post(f"{dataset}/versions")
    found = client.get(f"{dataset}/versions/latest/records?to=json").json()
    assert len(found) == 16
    assert found[:8] == found[8:]


def test_many_small_appends_at_once_are_all_stored(client: httpx.Client, dataset: str) -> None:
    client.put(dataset, json={"schema": schema()})
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda index: client.post(f"{dataset}/records", json=[row(index)]), range(40))
        )
    assert {answer.status_code for answer in answers} == {201}
    client.post(f"{dataset}/versions")
    rows = client.get(f"{dataset}/versions/latest/records?to=json").json()
    check_rows(sorted(rows, key=lambda item: int(item["id"])), list(range(40)))


def test_steps_that_keep_the_dtype_are_never_passed_over(client: httpx.Client, dataset: str) -> None:
    """However rows come: small ones, alone or together, with a key, to be widened, in any format."""
    steps = [{"step": "lower"}, {"step": "strip"}]
    client.put(dataset, json={"schema": schema(t={"dtype": "text", "transforms": steps})})
    append = f"{dataset}/records"
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post(append, json=[{"t": " A"}]), range(16)))
    answers.append(client.post(append, json=[{"t": " A"}], headers={"Idempotency-Key": "k"}))
    answers.append(client.post(f"{append}?evolve=widen", json=[{"t": " A"}]))
    answers.append(client.post(f"{append}?from=csv", content=b"t\n A\n"))
    answers.append(client.post(f"{append}?publish=true", json=[{"t": " A"}]))
    assert [answer.status_code for answer in answers] == [201] * 20
    rows = client.get(f"{dataset}/versions/latest/records?to=json").json()
    assert rows == [{"t": "a"}] * 20


def image_processes(service: Service) -> list[int]:
    """The processes that the service has started to decode images. An image has others before it."""
    found, unseen = [], [service.process.pid]
    while unseen:
        for task in Path(f"/proc/{unseen.pop()}/task").glob("*"):
            with suppress(OSError):
                children = [int(child) for child in (task / "children").read_text().split()]
                found += children
                unseen += children
    commands = {child: _command(child) for child in found}
    return [child for child, command in commands.items() if b"program.py" in command]


def _command(process_id: int) -> bytes:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_process_that_is_killed_costs_no_row(client: httpx.Client, service: Service) -> None:
    rows = [row(index % 200, id=index, image=b64(jpeg(index % 200, (640, 480)))) for index in range(150)]
    features = {**DECLARED, "id": {"dtype": "int64"}}
    client.post("/v1/records/serialize", json=body(rows[:1])).raise_for_status()
    stop = threading.Event()
    killed = 0

    def kill() -> None:
        """Kill two, as an image that ends a third one is refused."""
        nonlocal killed
        while killed < 2 and not stop.wait(0.01):
            for process_id in image_processes(service)[:1]:
                with suppress(ProcessLookupError):
                    os.kill(process_id, signal.SIGKILL)
                    killed += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        answer = client.post("/v1/records/serialize?to=json", json=body(rows, **features))
    finally:
        stop.set()
        killer.join()
    assert killed
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [item["id"] for item in found] == list(range(150))
    for item in found:
        assert np.abs(pixels(item["image"]).astype(int) - item["id"] % 200).max() <= 1
    deadline = time.monotonic() + 30
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("dtype", "value", "status"),
    [
        *((dtype, 1, 200) for dtype in ("int2", "uint2", "int4", "uint4", "bool", "complex64", "complex128")),
        *((dtype, 1000, 422) for dtype in ("int2", "uint2", "int4", "uint4", "int8", "bool")),
        ("complex64", 0.5, 200),
        ("complex64", 1e300, 422),
        ("uint4", 0.5, 422),
    ],
)
def test_missing_values_are_filled_in_every_dtype_that_holds_the_value(
    client: httpx.Client, dtype: str, value: float, status: int
) -> None:
    steps: Steps = [
        {"step": "fill_missing", "value": value},
        {"step": "pad_to", "shape": [2], "value": value},
    ]
    declared = {"x": {"dtype": dtype, "shape": [1], "nullable": True, "transforms": steps}}
    params = {"schema": json.dumps({"features": declared}), "to": "json"}
    answer = client.post("/v1/records/serialize", params=params, json=[{"x": None}])
    assert answer.status_code == status, answer.text
    if status == 200:
        read = [value, 0.0] if dtype.startswith("complex") else bool(value) if dtype == "bool" else value
        assert answer.json() == [{"x": [read, read]}]
    else:
        assert answer.json()["code"] == "invalid_transform"
