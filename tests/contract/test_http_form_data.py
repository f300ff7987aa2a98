"""Files in a `multipart/form-data` body as rows, over a real connection."""

import gzip
import json
from typing import Any

import httpx
import pytest

from tests.support.archives import File, form_of, part_of

SERIALIZE = "/v1/records/serialize"
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
PETS: tuple[str | File, ...] = ("cat", ("a.jpg", b"1"), ("b.jpg", b"2"), "dog", ("c.png", b"3"))
BODY = form_of(*PETS)
ROWS = [
    {"path": "a.jpg", "image": "1", "label": "cat"},
    {"path": "b.jpg", "image": "2", "label": "cat"},
    {"path": "c.png", "image": "3", "label": "dog"},
]
TEXT = {"to": "ndjson", "bytes": "utf8"}


def rows(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text[:200]
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("route", ["serialize", "parse"])
@pytest.mark.parametrize("params", [{}, {"from": "multipart"}, {"from": "multipart/form-data"}])
def test_each_file_is_a_row(client: httpx.Client, route: str, params: dict[str, str]) -> None:
    path = f"/v1/records/{route}"
    answer = client.post(path, params={**TEXT, **params}, content=BODY, headers=FORM)
    assert rows(answer) == ROWS
    packed = {**FORM, "Content-Encoding": "gzip"}
    answer = client.post(path, params={**TEXT, **params}, content=gzip.compress(BODY), headers=packed)
    assert rows(answer) == ROWS
    answer = client.post(path, params={**TEXT, **params, "labels": "dog,cat"}, content=BODY, headers=FORM)
    assert rows(answer) == [{**row, "label": n} for row, n in zip(ROWS, [1, 1, 0], strict=True)]


def test_form_of_httpx_is_read(client: httpx.Client) -> None:
    files = [("file", (f"ü {n}.jpg", bytes([n]) * 300_000, "image/jpeg")) for n in range(5)]
    answer = client.post(SERIALIZE, params={"to": "ndjson"}, files=[("label", (None, "cat")), *files])
    assert [(row["path"], row["label"]) for row in rows(answer)] == [(f"ü {n}.jpg", "cat") for n in range(5)]


def test_schema_before_the_files_is_used(client: httpx.Client) -> None:
    for dtype, labels in (("int64", [0, 0, 1]), ("float32", [0.0, 0.0, 1.0]), ("int64", [0, 0, 1])):
        schema = {"features": {"label": {"dtype": dtype}, "path": {"dtype": "text"}}}
        body = part_of("schema", json.dumps(schema).encode()) + BODY
        params = {"labels": "cat,dog", "undeclared": "drop", **TEXT}
        answer = client.post(SERIALIZE, params=params, content=body, headers=FORM)
        assert [row["label"] for row in rows(answer)] == labels
    answer = client.post(SERIALIZE, params={"schema": "{}", **TEXT}, content=body, headers=FORM)
    assert problem(answer)[0] == 400


def test_files_are_described(client: httpx.Client) -> None:
    params = {"labels": "cat,dog", "to": "schema"}
    answer = client.post("/v1/records/describe", params=params, content=BODY, headers=FORM)
    assert answer.status_code == 200, answer.text
    assert answer.json()["features"]["label"]["class_names"] == ["cat", "dog"]


def test_files_are_appended_once_under_any_boundary_and_published(client: httpx.Client) -> None:
    path = "/v1/datasets/form-of-pets"

    def send(boundary: bytes, body: bytes, **params: str) -> httpx.Response:
        headers = {
            "Content-Type": f"multipart/form-data; boundary={boundary.decode()}",
            "Idempotency-Key": "pets-1",
        }
        body = body.replace(b"--b\r\n", b"--%s\r\n" % boundary).replace(b"--b--", b"--%s--" % boundary)
        return client.post(f"{path}/records", params=params, content=body, headers=headers)

    first = send(b"b", BODY, labels="cat,dog")
    assert first.status_code == 201, first.text
    for boundary in (b"a", b"--------x", b"y" * 70):
        assert send(boundary, BODY, labels="cat,dog").json() == first.json()
    other = form_of("dog", *PETS[1:3], "cat", PETS[4])
    assert problem(send(b"b", other, labels="cat,dog")) == (422, "idempotency_key_reused")

    version = client.post(f"{path}/versions").json()["version"]
    found = rows(client.get(f"{path}/versions/{version}/records", params=TEXT))
    assert sorted((row["path"], row["label"]) for row in found) == [
        ("a.jpg", 0), ("b.jpg", 0), ("c.png", 1)
    ]  # fmt: skip
    files = f"{path}/versions/{version}/files"
    features = client.get(f"{files}/features.json").json()
    assert features["content"]["features"]["label"]["classLabel"] == {"numClasses": "2"}
    assert client.get(f"{files}/label.labels.txt").text == "cat\ndog\n"

    for params, expected in (
        ({"labels": "dog,cat"}, (422, "schema_conflict")),
        ({"labels": "cat,dog,bird"}, (422, "schema_conflict")),
    ):
        answer = client.post(f"{path}/records", params=params, content=BODY, headers=FORM)
        assert problem(answer) == expected
    for params in ({"labels": "cat,dog"}, {}):
        answer = client.post(f"{path}/records", params=params, content=BODY, headers=FORM)
        assert answer.status_code == 201, answer.text
    bird = client.post(f"{path}/records", content=form_of("bird", PETS[1]), headers=FORM)
    assert problem(bird) == (422, "inexact_integer")


def test_a_dataset_without_names_takes_labels(client: httpx.Client) -> None:
    path = "/v1/datasets/form-of-unnamed"
    features = {"path": {"dtype": "text"}, "image": {"dtype": "bytes"}, "label": {"dtype": "int64"}}
    assert client.put(path, json={"schema": {"features": features}}).status_code == 201
    for key in ({}, {"Idempotency-Key": "1"}):
        answer = client.post(
            f"{path}/records", params={"labels": "cat,dog"}, content=BODY, headers={**FORM, **key}
        )
        assert answer.status_code == 201, answer.text
    assert client.get(path).json()["schema"]["features"]["label"]["dtype"] == "int64"


@pytest.mark.parametrize(
    ("body", "params", "expected"),
    [
        (BODY[:-6], {}, (400, "malformed_multipart")),
        (form_of(("a.jpg", b"1")), {}, (422, "invalid_member_name")),
        (form_of("cat", ("a.txt", b"1")), {}, (422, "invalid_member_name")),
        (form_of("cat", part_of("file", b"", b"\xff.jpg")), {}, (422, "invalid_member_name")),
        (form_of("cat"), {}, (400, "malformed_multipart")),
        (form_of(*PETS, part_of("data", b"")), {}, (400, "malformed_multipart")),
        (form_of(part_of("data", b"[]", None,
                         b"Content-Type: application/json\r\nContent-Encoding: gzip\r\n")), {},
         (415, "unsupported_content_encoding")),
        (form_of(part_of("data", BODY.replace(b"--b", b"--c"), None,
                         b"Content-Type: multipart/form-data; boundary=c\r\n")), {},
         (400, "malformed_multipart")),
        (form_of(part_of("data", b"", None, b"Content-Type: multipart/form-data; boundary=c\r\n")), {},
         (400, "malformed_multipart")),
        (form_of(part_of("image", b"1", b"a.jpg")), {}, (400, "malformed_multipart")),
        (BODY, {"from": "csv"}, (415, "unsupported_media_type")),
        (BODY, {"labels": "cat"}, (422, "schema_conflict")),
        (BODY, {"archive": "samples"}, (400, "malformed_multipart")),
        (BODY, {"delimiter": "tab"}, (400, "inapplicable_parameter")),
        (BODY, {"to": "multipart"}, (406, "not_acceptable")),
        (b"[{}]", {"from": "multipart"}, (400, "malformed_multipart")),
    ],
)  # fmt: skip
def test_bad_form_is_a_problem(
    client: httpx.Client, body: bytes, params: dict[str, str], expected: tuple[int, str]
) -> None:
    assert problem(client.post(SERIALIZE, params=params, content=body, headers=FORM)) == expected


def test_the_form_says_itself_that_it_is_one(client: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post(SERIALIZE, params={"from": "multipart"}, content=BODY, headers=headers)
    assert problem(answer) == (400, "malformed_multipart")


def test_form_data_is_415_for_one_example(client: httpx.Client) -> None:
    for params in ({}, {"from": "json"}):
        answer = client.post("/v1/examples/serialize", params=params, content=BODY, headers=FORM)
        assert answer.status_code == 415, answer.text
