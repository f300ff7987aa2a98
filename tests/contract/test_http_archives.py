"""Archives of files as rows, over a real connection."""

import gzip
import json
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.archives import files_of, npy_of, tar_of, zip_of

SERIALIZE = "/v1/records/serialize"
PARSE = "/v1/records/parse"
TAR = {"Content-Type": "application/x-tar"}
ZIP = {"Content-Type": "application/zip"}
JSON = {"Content-Type": "application/json"}
SAMPLES = tar_of(
    *(("a/0.jpg", b"\xff\xd8"), ("a/0.cls", b"7\n"), ("a/0.json", b"{}"), ("a/0.x.npy", npy_of([[1.5, 2]]))),
    *(("a/1.jpg", b"\xff"), ("a/1.cls", b"8"), ("a/1.json", b"[]"), ("a/1.x.npy", npy_of(np.zeros((0, 2))))),
)
PETS = (("pets/cat/1.jpg", b"1"), ("pets/dog/2.png", b"2"))


def rows(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text[:200]
    return answer.status_code, answer.json()["code"]


def test_samples_are_rows(client: httpx.Client) -> None:
    answer = client.post(SERIALIZE, params={"to": "ndjson", "bytes": "b64"}, content=SAMPLES, headers=TAR)
    first = {"__key__": "a/0", "jpg": {"b64": "/9g="}, "cls": 7, "json": "{}", "x.npy": [[1.5, 2.0]]}
    second = {"__key__": "a/1", "jpg": {"b64": "/w=="}, "cls": 8, "json": "[]", "x.npy": []}
    assert rows(answer) == [first, second]
    encoded = {**TAR, "Content-Encoding": "gzip"}
    answer = client.post(SERIALIZE, params={"to": "ndjson"}, content=gzip.compress(SAMPLES), headers=encoded)
    assert rows(answer) == [first, second]


def test_samples_go_through_a_tfrecord_and_back(client: httpx.Client) -> None:
    records = client.post(SERIALIZE, content=SAMPLES, headers=TAR)
    assert records.headers["record-count"] == "2"
    schema = client.post("/v1/records/describe", params={"to": "schema"}, content=SAMPLES, headers=TAR)
    answer = client.post(
        PARSE,
        params={"schema": schema.text},
        content=records.content,
        headers={"Accept": "application/x-tar"},
    )
    assert answer.headers["content-type"] == "application/x-tar"
    assert files_of(answer.content) == [
        (name, content.strip() if name.endswith("cls") else content) for name, content in files_of(SAMPLES)
    ]


@pytest.mark.parametrize(
    ("body", "headers", "params"),
    [
        (zip_of(*PETS), ZIP, {}),
        (zip_of(*PETS), {"Content-Type": "application/x-zip-compressed"}, {}),
        (tar_of(*PETS), TAR, {"archive": "folders"}),
    ],
)
def test_images_in_folders_are_rows(
    client: httpx.Client, body: bytes, headers: dict[str, str], params: dict[str, str]
) -> None:
    asked = {**params, "to": "ndjson", "bytes": "utf8"}
    answer = client.post(SERIALIZE, params=asked, content=body, headers=headers)
    assert rows(answer) == [
        {"path": "pets/cat/1.jpg", "image": "1", "label": "cat"},
        {"path": "pets/dog/2.png", "image": "2", "label": "dog"},
    ]
    answer = client.post(SERIALIZE, params={**asked, "labels": "dog,cat"}, content=body, headers=headers)
    assert [row["label"] for row in rows(answer)] == [1, 0]


def test_an_archive_is_appended_and_read_back(client: httpx.Client) -> None:
    path = "/v1/datasets/archived-pets"
    params = {"labels": "cat,dog", "publish": "true"}
    answer = client.post(f"{path}/records", params=params, content=zip_of(*PETS), headers=ZIP)
    assert answer.status_code == 201, answer.text
    answer = client.post(
        f"{path}/records", params={"archive": "folders", **params}, content=tar_of(*PETS), headers=TAR
    )
    assert answer.status_code == 201, answer.text
    asked = {"to": "ndjson", "bytes": "utf8"}
    found = rows(client.get(f"{path}/versions/latest/records", params=asked))
    assert sorted((row["path"], row["label"]) for row in found) == [
        *[("pets/cat/1.jpg", 0)] * 2,
        *[("pets/dog/2.png", 1)] * 2,
    ]


@pytest.mark.parametrize(
    ("body", "headers", "params", "expected"),
    [
        (SAMPLES[:-9000], TAR, {}, (400, "truncated")),
        (b"no archive at all", TAR, {}, (400, "invalid_tar")),
        (b"no archive at all", ZIP, {}, (400, "invalid_zip")),
        (SAMPLES, TAR, {"labels": "cat"}, (400, "inapplicable_parameter")),
        (SAMPLES, TAR, {"archive": "folders"}, (422, "invalid_member_name")),
        (zip_of(*PETS), ZIP, {"labels": "cat,"}, (400, "invalid_labels")),
        (zip_of(*PETS), ZIP, {"labels": "cat,cat"}, (400, "invalid_labels")),
        (zip_of(*PETS), ZIP, {"labels": "cat"}, (422, "schema_conflict")),
        (zip_of(*PETS), ZIP, {"archive": "pets"}, (400, "invalid_parameter")),
        (zip_of(*PETS), ZIP, {"to": "zip"}, (406, "not_acceptable")),
        (b"[{}]", JSON, {"archive": "folders"}, (400, "inapplicable_parameter")),
        (b"[{}]", JSON, {"to": "tar"}, (422, "not_expressible")),
    ],
)
def test_bad_archive_is_a_problem(
    client: httpx.Client,
    body: bytes,
    headers: dict[str, str],
    params: dict[str, str],
    expected: tuple[int, str],
) -> None:
    assert problem(client.post(SERIALIZE, params=params, content=body, headers=headers)) == expected
