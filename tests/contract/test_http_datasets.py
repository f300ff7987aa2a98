"""Datasets over a real connection: create, append, publish, download, read back."""

import base64
import hashlib
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

ROWS: list[dict[str, Any]] = [{"x": [1.5, 2.0], "label": i, "name": f"row {i}"} for i in range(10)]


@pytest.fixture
def name() -> str:
    return f"d-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def published(client: httpx.Client, name: str) -> dict[str, Any]:
    """A dataset with ten rows in train and three in test, in two shards each."""
    for split, rows in (("train", ROWS), ("test", ROWS[:3])):
        answer = client.post(f"/v1/datasets/{name}/records", params={"split": split}, json=rows)
        assert answer.status_code == 201, answer.text
    answer = client.post(f"/v1/datasets/{name}/versions", params={"num_shards": 2})
    assert answer.status_code == 201, answer.text
    manifest: dict[str, Any] = answer.json()
    return manifest


def test_the_whole_road(client: httpx.Client, name: str, published: dict[str, Any]) -> None:
    assert published["dataset"] == name
    assert published["version"] == "1.0.0"
    assert published["splits"]["train"]["num_records"] == 10
    assert published["schema"]["features"]["x"]["shape"] == [2]
    base = f"/v1/datasets/{name}/versions/1.0.0"
    content = b""
    for shard in published["splits"]["train"]["shards"]:
        answer = client.get(f"{base}/shards/{shard['file']}")
        assert len(answer.content) == shard["num_bytes"]
        assert hashlib.sha256(answer.content).hexdigest() == shard["sha256"]
        assert answer.headers["content-type"] == "application/x-tfrecord"
        content += answer.content
    schema = json.dumps(published["schema"])
    rows = client.post("/v1/records/parse", params={"schema": schema}, content=content)
    assert [json.loads(line) for line in rows.text.splitlines()] == ROWS
    assert client.get(f"/v1/datasets/{name}/versions/latest").json() == published
    assert client.get(f"/v1/datasets/{name}/versions").json()["versions"] == ["1.0.0"]
    assert {"dataset": name} in client.get("/v1/datasets").json()["datasets"]


def test_an_append_says_what_was_stored(client: httpx.Client, name: str) -> None:
    answer = client.post(f"/v1/datasets/{name}/records", json=ROWS)
    body = answer.json()
    assert answer.status_code == 201
    assert set(body) == {"dataset", "split", "append_id", "num_records", "num_bytes"}
    assert (body["dataset"], body["split"], body["num_records"]) == (name, "train", 10)
    assert answer.headers["location"] == f"/v1/datasets/{name}/appends/{body['append_id']}"
    assert client.get(answer.headers["location"]).status_code == 200


def test_publish_in_one_call(client: httpx.Client, name: str) -> None:
    answer = client.post(f"/v1/datasets/{name}/records", params={"publish": "true"}, json=ROWS)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/datasets/{name}/versions/1.0.0"
    assert answer.json()["append"]["num_records"] == 10
    again = client.post(f"/v1/datasets/{name}/records", params={"publish": "true"}, json=ROWS[:2])
    assert again.json()["version"] == "1.1.0"
    assert again.json()["splits"]["train"]["num_records"] == 12
    nothing = client.post(f"/v1/datasets/{name}/versions")
    assert nothing.status_code == 409


def test_an_idempotency_key_stores_once(client: httpx.Client, name: str) -> None:
    url, headers = f"/v1/datasets/{name}/records", {"Idempotency-Key": "job-17"}
    first = client.post(url, json=ROWS, headers=headers)
    second = client.post(url, json=ROWS, headers=headers)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert first.json()["append_id"] == hashlib.sha256(b"job-17").hexdigest()[:32]
    other = client.post(url, json=ROWS[:1], headers=headers)
    assert other.status_code == 422
    assert client.post(f"/v1/datasets/{name}/versions").json()["splits"]["train"]["num_records"] == 10


def test_a_second_idempotency_key_is_refused(client: httpx.Client, name: str) -> None:
    headers = [("Idempotency-Key", "one"), ("Idempotency-Key", "two")]
    for path in ("records", "versions"):
        answer = client.post(f"/v1/datasets/{name}/{path}", json=ROWS, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "repeated_header")


@pytest.mark.parametrize("path", ["versions", "versions/1.0.0/abort", "versions/1.0.0/validate", "collect"])
def test_options_in_a_body_are_refused_rather_than_lost(client: httpx.Client, name: str, path: str) -> None:
    client.post(f"/v1/datasets/{name}/records", json=ROWS)
    answer = client.post(f"/v1/datasets/{name}/{path}", json={"num_shards": 2})
    assert (answer.status_code, answer.json()["code"]) == (400, "unexpected_body")
    assert client.get(f"/v1/datasets/{name}/versions").json()["versions"] == []


def test_a_version_of_excluded_rows_alone_is_published_and_read(client: httpx.Client, name: str) -> None:
    url = f"/v1/datasets/{name}"
    append_id = client.post(f"{url}/records", json=ROWS).json()["append_id"]
    published = client.post(f"{url}/versions", params={"exclude": append_id})
    assert (published.status_code, published.json()["splits"]) == (201, {})
    assert client.get(f"{url}/versions/latest").json() == published.json()
    assert client.get(f"{url}/versions/latest/tar").status_code == 200


def test_a_form_is_the_same_request_under_another_boundary(client: httpx.Client, name: str) -> None:
    def send(boundary: str, row: bytes) -> httpx.Response:
        body = (
            b'--%(b)s\r\nContent-Disposition: form-data; name="data"\r\n'
            b"Content-Type: application/x-ndjson\r\n\r\n%(row)s\r\n--%(b)s--\r\n"
        ) % {b"b": boundary.encode(), b"row": row}
        headers = {
            "Idempotency-Key": "form-1",
            "Content-Type": f"multipart/form-data; boundary={boundary}",
        }
        return client.post(f"/v1/datasets/{name}/records", content=body, headers=headers)

    first = send("one", b'{"x": 1}')
    assert first.status_code == 201, first.text
    assert send("another", b'{"x": 1}').json() == first.json()
    assert send("one", b'{"x": 2}').json()["code"] == "idempotency_key_reused"


def test_options_of_a_publication_need_one(client: httpx.Client, name: str) -> None:
    answer = client.post(f"/v1/datasets/{name}/records", params={"num_shards": 2}, json=ROWS)
    assert (answer.status_code, answer.json()["code"]) == (400, "inapplicable_parameter")


def test_a_compression_needs_a_tfrecord(client: httpx.Client, name: str) -> None:
    answer = client.post(f"/v1/datasets/{name}/records", params={"compression": "gzip"}, json=ROWS)
    assert (answer.status_code, answer.json()["code"]) == (400, "inapplicable_parameter")
    assert client.get(f"/v1/datasets/{name}").status_code == 404


def test_description_that_is_not_json_is_415(client: httpx.Client, name: str) -> None:
    answer = client.put(f"/v1/datasets/{name}", content=b"{}", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415


def test_rows_back_by_offset_in_any_form(client: httpx.Client, name: str, published: dict[str, Any]) -> None:
    url = f"/v1/datasets/{name}/versions/latest/records"
    rows = client.get(url, params={"offset": 3, "length": 4})
    assert [json.loads(line) for line in rows.text.splitlines()] == ROWS[3:7]
    assert rows.headers["record-count"] == "4"
    assert client.get(url, params={"split": "test", "to": "json"}).json() == ROWS[:3]
    assert client.get(url, params={"offset": 100}).text == ""
    assert client.get(url, params={"split": "dev"}).status_code == 404
    whole = client.get(url, params={"to": "tfrecord"}).content
    shards = published["splits"]["train"]["shards"]
    parts = [
        client.get(f"/v1/datasets/{name}/versions/latest/shards/{shard['file']}").content for shard in shards
    ]
    assert whole == b"".join(parts)


def test_ranges_validators_and_head(client: httpx.Client, name: str, published: dict[str, Any]) -> None:
    shard = published["splits"]["train"]["shards"][0]
    url = f"/v1/datasets/{name}/versions/1.0.0/shards/{shard['file']}"
    whole = client.get(url)
    etag = whole.headers["etag"]
    assert etag == f'"{shard["sha256"]}"'
    digest = base64.b64encode(bytes.fromhex(shard["sha256"])).decode()
    assert whole.headers["repr-digest"] == f"sha-256=:{digest}:"
    assert shard["file"] in whole.headers["content-disposition"]
    head = client.head(url)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(shard["num_bytes"])
    part = client.get(url, headers={"Range": "bytes=5-14"})
    assert (part.status_code, part.content) == (206, whole.content[5:15])
    assert part.headers["content-range"] == f"bytes 5-14/{shard['num_bytes']}"
    same = client.get(url, headers={"Range": "bytes=-3", "If-Range": etag})
    assert (same.status_code, same.content) == (206, whole.content[-3:])
    other = client.get(url, headers={"Range": "bytes=-3", "If-Range": '"another"'})
    assert (other.status_code, other.content) == (200, whole.content)
    assert client.get(url, headers={"If-None-Match": etag}).status_code == 304
    beyond = client.get(url, headers={"Range": f"bytes={shard['num_bytes']}-"})
    assert beyond.status_code == 416
    assert beyond.headers["content-range"] == f"bytes */{shard['num_bytes']}"
    assert beyond.json()["code"] == "range_not_satisfiable"


def test_latest_is_not_cached(client: httpx.Client, name: str, published: dict[str, Any]) -> None:
    file = published["splits"]["train"]["shards"][0]["file"]
    fixed = client.get(f"/v1/datasets/{name}/versions/1.0.0/shards/{file}")
    latest = client.get(f"/v1/datasets/{name}/versions/latest/shards/{file}")
    assert "immutable" in fixed.headers["cache-control"]
    assert latest.headers["cache-control"] == "private, no-cache"


def test_side_files_are_served(client: httpx.Client, name: str, published: dict[str, Any]) -> None:
    url = f"/v1/datasets/{name}/versions/latest/files"
    info = client.get(f"{url}/dataset_info.json")
    assert info.headers["content-type"] == "application/json"
    assert info.json()["splits"][0]["shardLengths"]
    assert client.get(f"{url}/features.json").status_code == 200
    assert client.get(f"{url}/_manifest.json").status_code == 404
    assert client.get(f"{url}/..%2f..%2fsecret").status_code in (400, 404)


def test_create_show_delete(client: httpx.Client, name: str) -> None:
    url = f"/v1/datasets/{name}"
    body = {"schema": {"features": {"x": {"dtype": "float32", "shape": [2]}}}}
    assert client.get(url).status_code == 404
    created = client.put(url, json=body)
    assert created.status_code == 201, created.text
    assert client.put(url, json=body).status_code == 200
    other = client.put(url, json={"schema": {"features": {"y": {"dtype": "int64"}}}})
    assert other.status_code == 409
    shown = client.get(url).json()
    assert shown["schema"]["features"]["x"]["dtype"] == "float32"
    refused = client.post(f"{url}/records", json=[{"x": [1, 2, 3]}])
    assert refused.status_code == 422
    assert client.post(f"{url}/records", json=[{"x": [1, 2]}], params={"publish": "true"}).status_code == 201
    assert client.delete(url).status_code == 204
    assert client.get(url).status_code == 404
    assert client.get(f"{url}/versions/1.0.0").status_code == 404
    reborn = client.post(f"{url}/records", json=ROWS, params={"publish": "true"})
    assert reborn.json()["version"] == "2.0.0"


def test_a_refused_append_stores_nothing(client: httpx.Client, name: str) -> None:
    url = f"/v1/datasets/{name}/records"
    bad = client.post(url, json=[*ROWS, {"x": [1.0, "two"], "label": 1, "name": "n"}])
    assert bad.status_code == 422
    assert client.get(f"/v1/datasets/{name}").status_code == 404
    assert client.post(url, json=ROWS, params={"spilt": "test"}).status_code == 400
    assert client.get(f"/v1/datasets/{name}").status_code == 404


@pytest.mark.parametrize("bad", ["_gen", "a b", "a%00b", "ü", "x" * 65, "%2e%2e", "a.b"])
def test_bad_dataset_names_are_refused(client: httpx.Client, bad: str) -> None:
    answer = client.put(f"/v1/datasets/{bad}")
    assert answer.status_code in (400, 404), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("version", ["1.0", "v1", "0.0.1", "latest"])
def test_versions_that_do_not_exist(client: httpx.Client, name: str, version: str) -> None:
    client.put(f"/v1/datasets/{name}")
    answer = client.get(f"/v1/datasets/{name}/versions/{version}")
    assert answer.status_code in (400, 404)
    assert answer.json()["code"] in ("invalid_version", "version_not_found")


def test_rows_are_dealt_out_to_splits(client: httpx.Client, name: str) -> None:
    rows = [{"x": i, "user": f"user-{i % 20}"} for i in range(200)]
    url = f"/v1/datasets/{name}"
    params = {"publish": "true", "fractions": "train:0.5,test:0.5", "by": "user", "seed": "3"}
    answer = client.post(f"{url}/records", params=params, json=rows)
    assert answer.status_code == 201, answer.text
    users = {}
    for split in ("train", "test"):
        read = client.get(f"{url}/versions/latest/records", params={"split": split, "to": "json"}).json()
        users[split] = {row["user"] for row in read}
        assert len(read) == answer.json()["splits"][split]["num_records"]
    assert not users["train"] & users["test"]
    assert len(users["train"] | users["test"]) == 20


def test_a_split_that_would_have_no_rows_is_refused_with_the_counts(client: httpx.Client, name: str) -> None:
    rows = [{"label": number % 2} for number in range(100)]
    url = f"/v1/datasets/{name}"
    client.post(f"{url}/records", json=rows)
    params = {"fractions": "train:0.8,validation:0.1,test:0.1", "by": "label"}
    refused = client.post(f"{url}/versions", params=params)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_division")
    assert "train 50, validation 0, test 50" in refused.json()["detail"]
    del params["by"]
    published = client.post(f"{url}/versions", params=params)
    assert (published.status_code, published.json()["version"]) == (201, "1.0.0"), published.text


@pytest.mark.parametrize("params", [{"num_shards": 1250}, {"shard_bytes": 1}])
def test_more_shards_than_small_data_needs_are_refused(
    client: httpx.Client, name: str, params: dict[str, int]
) -> None:
    client.post(f"/v1/datasets/{name}/records", json=[{"x": number} for number in range(1250)])
    refused = client.post(f"/v1/datasets/{name}/versions", params=params)
    assert (refused.status_code, refused.json()["code"]) == (413, "too_many_shards")
    most = refused.json()["max_num_shards"]
    assert most == 257
    published = client.post(f"/v1/datasets/{name}/versions", params={"num_shards": most})
    assert published.json()["version"] == "1.0.0", "nothing was begun before"
    assert len(published.json()["splits"]["train"]["shards"]) == most


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({"num_shards": "2", "shard_bytes": "9"}, 422, "contradictory_options"),
        ({"index": "true", "compression": "gzip"}, 422, "contradictory_options"),
        ({"by": "x"}, 422, "contradictory_options"),
        ({"divide": "x"}, 422, "contradictory_options"),
        ({"seed": "1"}, 422, "contradictory_options"),
        ({"fractions": "train:0.5"}, 422, "fractions_not_one"),
        ({"fractions": "train=1"}, 400, "invalid_fractions"),
        ({"fractions": "train:1", "by": "nothing"}, 422, "invalid_division"),
        ({"fractions": "train:1", "by": "x"}, 422, "invalid_division"),
        ({"fractions": "train:1", "divide": "tset"}, 422, "split_not_found"),
        ({"fractions": "all:1"}, 422, "reserved_split_name"),
        ({"shard_bytes": "0"}, 400, "invalid_parameter"),
        ({"shard_bytes": "9" * 20}, 400, "invalid_shard_bytes"),
        ({"shuffle": "true", "seed": "9" * 20}, 400, "invalid_seed"),
        ({"compression": "lz4"}, 400, "invalid_parameter"),
        ({"exclude": "x"}, 400, "invalid_append_id"),
        ({"exclude": ""}, 400, "invalid_append_id"),
        ({"exclude": "0" * 32}, 404, "append_not_found"),
    ],
)
def test_impossible_publication_is_refused(
    client: httpx.Client, name: str, params: dict[str, str], status: int, code: str
) -> None:
    client.post(f"/v1/datasets/{name}/records", json=ROWS)
    answer = client.post(f"/v1/datasets/{name}/versions", params=params)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert client.get(f"/v1/datasets/{name}/versions").json()["versions"] == []


def test_options_that_contradict_each_other_are_refused_before_the_rows_are_stored(
    client: httpx.Client, name: str
) -> None:
    params = {"publish": "true", "shard_compression": "gzip", "index": "true"}
    answer = client.post(f"/v1/datasets/{name}/records", params=params, json=ROWS)
    assert (answer.status_code, answer.json()["code"]) == (422, "contradictory_options")
    assert client.get(f"/v1/datasets/{name}").status_code == 404
    alone = client.post(f"/v1/datasets/{name}/records", params={"shard_compression": "gzip"}, json=ROWS)
    assert (alone.status_code, alone.json()["code"]) == (400, "inapplicable_parameter")


def test_an_append_is_left_out_by_its_id(client: httpx.Client, name: str) -> None:
    url = f"/v1/datasets/{name}"
    kept = client.post(f"{url}/records", json=ROWS, headers={"Idempotency-Key": "a"}).json()["append_id"]
    left = client.post(f"{url}/records", json=ROWS, headers={"Idempotency-Key": "b"}).json()["append_id"]
    answer = client.post(f"{url}/versions", params={"exclude": left})
    assert answer.json()["splits"]["train"]["num_records"] == 10
    states = [client.get(f"{url}/appends/{append_id}").json() for append_id in (kept, left)]
    assert [(state["state"], state["version"]) for state in states] == [
        ("published", "1.0.0"),
        ("excluded", "1.0.0"),
    ]
    again = client.post(f"{url}/versions", params={"exclude": left})
    assert (again.status_code, again.json()["code"]) == (409, "append_published")


def test_a_published_version_is_not_aborted(
    client: httpx.Client, name: str, published: dict[str, Any]
) -> None:
    url = f"/v1/datasets/{name}/versions"
    answer = client.post(f"{url}/{published['version']}/abort")
    assert (answer.status_code, answer.json()["code"]) == (409, "version_published")
    assert client.post(f"{url}/1.1.0/abort").status_code == 404
    assert client.post(f"{url}/latest/abort").status_code == 400
    assert client.post(f"{url}/1.1.0/abort", params={"why": "x"}).status_code == 400


def test_appends_at_one_time_share_a_slot_and_are_all_there(client: httpx.Client, name: str) -> None:
    url = f"/v1/datasets/{name}"
    assert client.put(url, json={"schema": {"features": {"x": {"dtype": "int64"}}}}).status_code == 201
    with ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(lambda x: client.post(f"{url}/records", json=[{"x": x}]), range(300)))
    assert {answer.status_code for answer in answers} == {201}
    bodies = [answer.json() for answer in answers]
    assert {body["num_records"] for body in bodies} == {1}
    ids = {body["append_id"] for body in bodies}
    assert len(ids) < 300
    found = [client.get(f"{url}/appends/{append_id}").json() for append_id in ids]
    assert sum(slot["num_records"] for slot in found) == 300
    assert sum(slot["num_bytes"] for slot in found) == sum(body["num_bytes"] for body in bodies)
    client.post(f"{url}/versions")
    rows = client.get(f"{url}/versions/latest/records").text.splitlines()
    assert sorted(json.loads(row)["x"] for row in rows) == list(range(300))


@pytest.mark.parametrize("size", [0, 60_000, 70_000, 300_000])
def test_a_small_append_is_answered_as_any_other(client: httpx.Client, name: str, size: int) -> None:
    url = f"/v1/datasets/{name}/records"
    body = b'[{"x": 1}' + b" " * size + b"]"
    headers = {"Content-Type": "application/json"}
    for extra in ({}, {}, {"Idempotency-Key": "k"}):
        answer = client.post(url, content=body, headers={**headers, **extra})
        assert answer.status_code == 201
        digest = base64.b64encode(hashlib.sha256(answer.content).digest()).decode()
        assert answer.headers["repr-digest"] == f"sha-256=:{digest}:"
        assert answer.headers["content-length"] == str(len(answer.content))
        assert answer.headers["location"].endswith(answer.json()["append_id"])


@pytest.mark.parametrize(
    ("body", "code"),
    [(b'[{"x": "a"}]', "inexact_integer"), (b'[{"x": 1', "invalid_json"), (b"", "invalid_json")],
)
def test_one_refused_row_does_not_refuse_those_sent_with_it(
    client: httpx.Client, name: str, body: bytes, code: str
) -> None:
    url = f"/v1/datasets/{name}/records"
    client.post(url, json=[{"x": 0}])
    bodies = [b'[{"x": 1}]', body] * 20
    with ThreadPoolExecutor(20) as threads:
        answers = list(
            threads.map(
                lambda content: client.post(
                    url, content=content, headers={"Content-Type": "application/json"}
                ),
                bodies,
            )
        )
    assert [answer.status_code == 201 for answer in answers] == [True, False] * 20
    assert {answer.json()["code"] for answer in answers[1::2]} == {code}
    manifest = client.post(f"/v1/datasets/{name}/versions").json()
    assert manifest["splits"]["train"]["num_records"] == 21


def test_a_sequence_orders_appends(client: httpx.Client, name: str) -> None:
    url = f"/v1/datasets/{name}"
    for x, sequence in [(3, 9), (2, 0), (1, -(2**63))]:
        answer = client.post(f"{url}/records", params={"sequence": sequence}, json=[{"x": x}])
        assert answer.status_code == 201, answer.text
    client.post(f"{url}/versions")
    rows = client.get(f"{url}/versions/latest/records").text.splitlines()
    assert [json.loads(row)["x"] for row in rows] == [1, 2, 3]
    for wrong in (str(2**63), "1.5", "x"):
        answer = client.post(f"{url}/records", params={"sequence": wrong}, json=[{"x": 1}])
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")


def test_a_schema_widens_where_that_is_asked_for(client: httpx.Client, name: str) -> None:
    url = f"/v1/datasets/{name}"
    client.post(f"{url}/records", json=[{"x": 1}])
    wide = [{"x": 2, "y": "a"}]
    refused = client.post(f"{url}/records", json=wide)
    assert (refused.status_code, refused.json()["code"]) == (422, "schema_conflict")
    assert "evolve=widen" in refused.json()["detail"]
    both = {"evolve": "widen", "undeclared": "drop"}
    contradictory = client.post(f"{url}/records", params=both, json=wide)
    assert (contradictory.status_code, contradictory.json()["code"]) == (400, "inapplicable_parameter")
    assert client.post(f"{url}/records", params={"evolve": "widen"}, json=wide).status_code == 201
    assert client.get(url).json()["schema"]["features"]["y"]["nullable"] is True
    assert client.post(f"{url}/records", json=[{"x": 3}]).status_code == 201
    client.post(f"{url}/versions")
    rows = client.get(f"{url}/versions/latest/records").text.splitlines()
    assert sorted(json.loads(row)["x"] for row in rows) == [1, 2, 3]


@pytest.mark.parametrize("in_query", [True, False])
def test_no_rows_with_a_declared_schema_create_the_dataset(
    client: httpx.Client, name: str, in_query: bool
) -> None:
    schema = {"features": {"x": {"dtype": "int8"}}}
    url = f"/v1/datasets/{name}/records"
    if in_query:
        answer = client.post(url, params={"schema": json.dumps(schema)}, json=[])
    else:
        answer = client.post(url, json={"schema": schema, "instances": []})
    assert (answer.status_code, answer.json()["num_records"]) == (201, 0)
    assert client.get(f"/v1/datasets/{name}").json()["schema"]["features"]["x"]["dtype"] == "int8"


def test_no_rows_and_no_schema_are_refused(client: httpx.Client, name: str) -> None:
    answer = client.post(f"/v1/datasets/{name}/records", json=[])
    assert (answer.status_code, answer.json()["code"]) == (422, "no_records")


def test_integers_of_clients_without_floats_become_floats(client: httpx.Client, name: str) -> None:
    url = f"/v1/datasets/{name}"
    for _ in range(2):  # the second one is decoded with others
        assert client.post(f"{url}/records", json=[{"x": [1, 2]}]).status_code == 201
    assert client.post(f"{url}/versions").json()["schema"]["features"]["x"]["dtype"] == "int64"
    refused = client.post(f"{url}/records", json=[{"x": [1.5, 2, 3]}])
    assert refused.status_code == 422
    assert "?evolve=widen it may become float32 and have lists of any length" in refused.json()["detail"]
    widened = client.post(f"{url}/records", params={"evolve": "widen"}, json=[{"x": [1.5, 2, 3]}])
    assert widened.status_code == 201, widened.text
    assert client.post(f"{url}/records", json=[{"x": [4]}]).status_code == 201
    x = client.post(f"{url}/versions").json()["schema"]["features"]["x"]
    assert x == {"dtype": "float32", "shape": [None], "kind": "dense", "encoding": "list", "nullable": False}
    rows = client.get(f"{url}/versions/latest/records").text
    assert rows.splitlines() == ['{"x":[1.0,2.0]}', '{"x":[1.0,2.0]}', '{"x":[1.5,2.0,3.0]}', '{"x":[4.0]}']


def test_an_integer_that_float32_does_not_hold_keeps_its_dtype(client: httpx.Client, name: str) -> None:
    url = f"/v1/datasets/{name}/records"
    for value in (1, 16777217):
        assert client.post(url, json=[{"x": value}]).status_code == 201
    refused = client.post(url, params={"evolve": "widen"}, json=[{"x": 1.5}])
    assert refused.status_code == 422
    assert (
        "float32 does not hold all its integers exactly. Append to a new dataset" in refused.json()["detail"]
    )


def test_late_float_widens_with_infer_all(client: httpx.Client, name: str) -> None:
    url = f"/v1/datasets/{name}/records"
    assert client.post(url, json=[{"x": 1}]).status_code == 201
    rows = b'{"x": 2}\n' * 1500 + b'{"x": 2.5}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    refused = client.post(url, params={"evolve": "widen"}, content=rows, headers=headers)
    assert refused.status_code == 422
    assert "set ?infer=all" in refused.json()["detail"]
    widened = client.post(url, params={"evolve": "widen", "infer": "all"}, content=rows, headers=headers)
    assert (widened.status_code, widened.json()["num_records"]) == (201, 1501)
