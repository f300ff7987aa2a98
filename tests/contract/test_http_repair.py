"""A damaged TFRecord body: repaired, reported, or passed over on its way into a dataset."""

import gzip
import uuid

import httpx
import pytest

from tests.support.tensor_formats import framed

# Example {"x": [n]} as Int64List.
RECORDS = [framed(bytes.fromhex(f"0a0c0a0a0a0178120 51a030a01{n:02x}".replace(" ", ""))) for n in range(5)]
SIZE = len(RECORDS[0])
BODY = b"".join(RECORDS)
TYPE = {"Content-Type": "application/x-tfrecord"}


def flipped(data: bytes, *places: int) -> bytes:
    changed = bytearray(data)
    for at in places:
        changed[at] ^= 16
    return bytes(changed)


DAMAGED = flipped(BODY, SIZE + 12, 3 * SIZE + 8)
GOOD = RECORDS[0] + RECORDS[2] + RECORDS[4]
LOST = {
    "num_bytes": 2 * SIZE,
    "num_ranges": 2,
    "ranges": [
        {"offset": SIZE, "num_bytes": SIZE, "reason": "bad_payload"},
        {"offset": 3 * SIZE, "num_bytes": SIZE, "reason": "bad_length"},
    ],
}


def test_good_records_come_back_as_they_were(client: httpx.Client) -> None:
    answer = client.post("/v1/records/repair", content=DAMAGED, headers=TYPE)
    assert answer.status_code == 200
    assert answer.content == GOOD
    assert answer.headers["content-type"] == "application/x-tfrecord"
    assert answer.headers["record-count"] == "3"
    assert answer.headers["lost-bytes"] == str(2 * SIZE)
    assert answer.headers["lost-ranges"] == f"{SIZE}-{2 * SIZE - 1}, {3 * SIZE}-{4 * SIZE - 1}"


def test_nothing_is_lost_of_a_good_file(client: httpx.Client) -> None:
    for body in (BODY, gzip.compress(BODY)):
        answer = client.post("/v1/records/repair", content=body)
        assert (answer.content, answer.headers["lost-bytes"]) == (BODY, "0")
        assert "lost-ranges" not in answer.headers


@pytest.mark.parametrize("how", ["to", "accept"])
def test_the_report_alone(client: httpx.Client, how: str) -> None:
    answer = client.post(
        "/v1/records/repair" + ("?to=json" if how == "to" else ""),
        content=DAMAGED,
        headers={**TYPE, **({"Accept": "application/json"} if how == "accept" else {})},
    )
    assert answer.json() == {"num_records": 3, "num_bytes": len(GOOD), "lost": LOST}


def test_a_compressed_file_that_ends_early(client: httpx.Client) -> None:
    answer = client.post("/v1/records/repair", content=gzip.compress(BODY)[:-6], headers=TYPE)
    assert answer.content == BODY
    assert answer.headers["lost-ranges"] == f"{len(BODY)}-"


def test_many_ranges_are_counted_but_not_all_named(client: httpx.Client) -> None:
    body = (flipped(RECORDS[0], 12) + RECORDS[1]) * 150
    headers = client.post("/v1/records/repair", content=body, headers=TYPE).headers
    assert headers["lost-bytes"] == str(150 * SIZE)
    assert headers["lost-ranges"].endswith(", ...")
    assert headers["lost-ranges"].count(",") == 100


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("repair", {"Content-Type": "application/json"}, 415, "unsupported_media_type"),
        ("repair", {**TYPE, "Accept": "text/csv"}, 406, "not_acceptable"),
        ("repair?to=csv", TYPE, 400, "invalid_parameter"),
        ("repair?damaged=skip", TYPE, 400, "unknown_parameter"),
        ("repair?to=json&to=json", TYPE, 400, "repeated_parameter"),
        ("parse?damaged=skip&from=csv", TYPE, 400, "inapplicable_parameter"),
        ("parse?damaged=drop", TYPE, 400, "invalid_parameter"),
        ("parse", TYPE, 400, "corrupt_record"),
        ("parse?damaged=refuse", TYPE, 400, "corrupt_record"),
    ],
)
def test_unusable_request_for_repair_is_refused(
    client: httpx.Client, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    answer = client.post(f"/v1/records/{path}", content=DAMAGED, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_damage_is_passed_over_where_records_are_parsed(client: httpx.Client) -> None:
    answer = client.post("/v1/records/parse?to=json&damaged=skip", content=DAMAGED, headers=TYPE)
    assert answer.json() == [{"x": [0]}, {"x": [2]}, {"x": [4]}]
    assert (answer.headers["record-count"], answer.headers["lost-bytes"]) == ("3", str(2 * SIZE))
    assert answer.headers["lost-ranges"].startswith(f"{SIZE}-")


@pytest.mark.parametrize("key", [None, "k"])
def test_damage_is_passed_over_where_records_are_appended(client: httpx.Client, key: str | None) -> None:
    url = f"/v1/datasets/repair-{uuid.uuid4().hex[:8]}"
    headers = TYPE if key is None else {**TYPE, "Idempotency-Key": key}
    refused = client.post(f"{url}/records", content=DAMAGED, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (400, "corrupt_record")
    for _ in range(2):  # again under the key: the same answer
        answer = client.post(f"{url}/records?damaged=skip", content=DAMAGED, headers=headers)
        assert (answer.status_code, answer.json()["num_records"]) == (201, 3)
        assert answer.json()["lost"] == LOST
    published = client.post(f"{url}/records?damaged=skip&publish=true", content=DAMAGED, headers=TYPE).json()
    assert published["append"]["lost"] == LOST
    assert published["splits"]["train"]["num_records"] == (9 if key is None else 6)
