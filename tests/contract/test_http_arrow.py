"""Arrow, Parquet and CSV over a real connection."""

import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SERIALIZE = "/v1/records/serialize"
PARSE = "/v1/records/parse"
STREAM = "application/vnd.apache.arrow.stream"
FILE = "application/vnd.apache.arrow.file"
PARQUET = "application/vnd.apache.parquet"
TABLE = pa.table({"x": pa.array([[1.5, 2.0], [2.5, -1.0]], pa.list_(pa.float32(), 2)), "name": ["a", "ü"]})
ROWS = [{"x": [1.5, 2.0], "name": "a"}, {"x": [2.5, -1.0], "name": "ü"}]
SCHEMA = {
    "features": {
        "x": {"dtype": "float32", "shape": [2], "nullable": True},
        "name": {"dtype": "text", "nullable": True},
    }
}


def written(form: str, table: pa.Table = TABLE) -> bytes:
    sink = io.BytesIO()
    if form == PARQUET:
        pq.write_table(table, sink)
        return sink.getvalue()
    with (pa.ipc.new_stream if form == STREAM else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def read(form: str, data: bytes) -> pa.Table:
    if form == PARQUET:
        return pq.read_table(io.BytesIO(data))
    return (pa.ipc.open_stream(data) if form == STREAM else pa.ipc.open_file(data)).read_all()


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return [{"x": row["x"], "name": row["name"]} for row in table.to_pylist()]


@pytest.mark.parametrize("form", [STREAM, FILE, PARQUET])
def test_each_goes_in_by_its_media_type_and_comes_out_by_accept(client: httpx.Client, form: str) -> None:
    records = client.post(SERIALIZE, content=written(form), headers={"Content-Type": form})
    assert records.status_code == 200, records.text
    assert records.headers["content-type"] == "application/x-tfrecord"
    assert records.headers["record-count"] == "2"
    answer = client.post(
        PARSE, params={"schema": json.dumps(SCHEMA)}, content=records.content, headers={"Accept": form}
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == form
    assert rows_of(read(form, answer.content)) == ROWS
    # The schema travels along: nothing has to be declared again.
    again = client.post(SERIALIZE, content=answer.content, headers={"Content-Type": form})
    assert again.content == records.content


def test_short_names(client: httpx.Client) -> None:
    for body in (STREAM, FILE):
        answer = client.post(PARSE, params={"from": "arrow", "to": "arrow"}, content=written(body))
        assert answer.headers["content-type"] == STREAM
        assert rows_of(read(STREAM, answer.content)) == ROWS
    answer = client.post(PARSE, params={"from": "arrow", "to": "parquet"}, content=written(FILE))
    assert rows_of(read(PARQUET, answer.content)) == ROWS
    answer = client.post(
        PARSE, headers={"Content-Type": "text/csv", "Accept": "text/csv"}, content=b"a,b\n1,x\n"
    )
    assert (answer.headers["content-type"], answer.text) == ("text/csv", "a,b\r\n1,x\r\n")


def test_a_stream_that_is_sent_and_answered_in_pieces(client: httpx.Client) -> None:
    table = pa.table({"x": np.arange(500_000), "t": ["abc"] * 500_000})
    data = written(STREAM, table)

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(data), 100_001):
            yield data[start : start + 100_001]

    for form in (STREAM, FILE, PARQUET):
        answer = client.post(PARSE, headers={"Content-Type": STREAM, "Accept": form}, content=pieces())
        assert answer.status_code == 200
        assert read(form, answer.content)["x"].to_pylist() == list(range(500_000))
    text = client.post(PARSE, params={"from": "arrow", "to": "csv"}, content=data).content
    back = client.post(PARSE, params={"from": "csv", "to": "arrow"}, content=text)
    assert read(STREAM, back.content).to_pydict() == table.to_pydict()


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("arrow", b""),
        ("arrow", b"nonsense, and more of it"),
        ("arrow", written(STREAM)[:200]),
        ("arrow", written(FILE)[:-5]),
        ("parquet", b"PAR1"),
        ("parquet", written(PARQUET)[:-5]),
        ("csv", b""),
        ("csv", b'a\n"'),
    ],
)
def test_bytes_that_cannot_be_read_are_problems(client: httpx.Client, form: str, content: bytes) -> None:
    answer = client.post(SERIALIZE, params={"from": form}, content=content)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"]


def test_a_schema_twice(client: httpx.Client) -> None:
    table = TABLE.replace_schema_metadata({"shardsmith:schema": json.dumps(SCHEMA)})
    for form in (STREAM, PARQUET):
        headers = {"Content-Type": form}
        body = written(form, table)
        assert client.post(SERIALIZE, content=body, headers=headers).status_code == 200
        answer = client.post(SERIALIZE, params={"schema": json.dumps(SCHEMA)}, content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "schema_twice")


def test_tensors_as_arrow(client: httpx.Client) -> None:
    for media_type in (STREAM, FILE):
        answer = client.post(
            "/v1/tensors/parse",
            headers={"Content-Type": "application/json", "Accept": media_type},
            content=b'{"data": [1, 2, 3, 4], "shape": [2, 2], "dtype": "bfloat16"}',
        )
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == media_type
        back = client.post(
            "/v1/tensors/parse",
            params={"to": "json"},
            headers={"Content-Type": media_type},
            content=answer.content,
        )
        expected = {"name": "tensor", "dtype": "bfloat16", "shape": [2, 2], "data": [1.0, 2.0, 3.0, 4.0]}
        assert back.json() == expected


def test_appends_to_a_dataset(client: httpx.Client) -> None:
    path = "/v1/datasets/columnar"
    for form in (STREAM, FILE, PARQUET):
        answer = client.post(f"{path}/records", content=written(form), headers={"Content-Type": form})
        assert (answer.status_code, answer.json().get("num_records")) == (201, 2), answer.text
    assert client.post(f"{path}/versions").status_code == 201
    found = client.get(f"{path}/versions/latest/records", headers={"Accept": FILE})
    assert found.headers["content-type"] == FILE
    assert rows_of(read(FILE, found.content)) == ROWS * 3
    # What was read goes back in: its schema is that of the dataset.
    again = client.post(f"{path}/records", content=found.content, headers={"Content-Type": FILE})
    assert again.status_code == 201, again.text
    text = client.post(
        "/v1/datasets/lines/records", content=b"n\n1\n2\n", headers={"Content-Type": "text/csv"}
    )
    assert text.status_code == 201, text.text


@pytest.mark.parametrize("to", ["arrow", "parquet"])
@pytest.mark.parametrize(
    "feature",
    [
        {"shape": [2**31]},
        {"shape": [None, 2**31]},
        {"shape": [None, None, 2**31], "kind": "ragged"},
        {"shape": [2**31], "encoding": "tensor"},
    ],
    ids=str,
)
def test_a_dimension_that_arrow_does_not_have_is_not_expressible(
    client: httpx.Client, to: str, feature: dict[str, Any]
) -> None:
    declared = {"x": {"dtype": "int32", "nullable": True, **feature}}
    params = {"schema": json.dumps({"features": declared}), "to": to}
    answer = client.post("/v1/records/serialize", params=params, json=[{}])
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["feature"]) == (422, "not_expressible", "x")
    written = client.post("/v1/records/serialize", params={**params, "to": "ndjson"}, json=[{}])
    assert (written.status_code, written.text) == (200, '{"x":null}\n')


TIMES = pa.table(
    {
        "at": pa.array([0, 1], pa.timestamp("us")),
        "days": pa.array([[1], [2, 3]], pa.list_(pa.date32())),
        "price": pa.array([1.1, 2.2]),
        "name": ["a", "b"],
    }
)


@pytest.mark.parametrize("form", [STREAM, PARQUET])
def test_times_that_become_text_are_named(client: httpx.Client, form: str) -> None:
    body, headers = written(form, TIMES), {"Content-Type": form}
    answer = client.post(SERIALIZE, content=body, headers=headers)
    assert answer.headers["text-features"] == "at, days"
    schema = {"features": {"at": {"dtype": "text", "nullable": True}}}
    params = {"schema": json.dumps(schema), "undeclared": "drop"}
    declared = client.post(SERIALIZE, params=params, content=body, headers=headers)
    assert (declared.status_code, "text-features" in declared.headers) == (200, False)

    url = f"/v1/datasets/times-{form.rpartition('.')[2]}/records"
    headers["Idempotency-Key"] = "monday"
    told = client.post(url, content=body, headers=headers).json()
    assert (told["as_text"], told["rounded"]) == (["at", "days"], ["price"])
    again = client.post(url, content=body, headers=headers)
    assert (again.headers["idempotency-replayed"], again.json()) == ("true", told)
    later = client.post(url, content=body, headers={"Content-Type": form}).json()
    assert later["as_text"] == ["at", "days"], "the dataset has text, which no request has declared"
