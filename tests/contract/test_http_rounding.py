"""Decimals that nobody declared: kept, or rounded where an Example takes them, and then said so."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save as save_safetensors

from app.domain.dtypes import DTYPES

SERIALIZE = "/v1/records/serialize"
PARSE = "/v1/records/parse"
JSON = {"Content-Type": "application/json"}
PRICES = b'[{"t":1700000000.123,"price":123456789.12}]'


@pytest.fixture
def dataset() -> str:
    return f"rounding-{uuid.uuid4().hex[:12]}"


def append(client: httpx.Client, dataset: str, rows: Any, **params: str) -> dict[str, Any]:
    answer = client.post(f"/v1/datasets/{dataset}/records", params=params, json=rows)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_decimals_come_back_as_they_were_sent(client: httpx.Client) -> None:
    answer = client.post(SERIALIZE, params={"to": "ndjson"}, content=PRICES, headers=JSON)
    assert answer.text == '{"t":1700000000.123,"price":123456789.12}\n'
    assert "rounded-features" not in answer.headers


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        (b"[1700000000.123]", "float64", "1"),
        (b"[1, 2.5]", "float64", "2"),
        (b"1e3", "float64", ""),
        (b"[]", "float32", "0"),
    ],
)
def test_a_tensor_of_decimals_is_float64(client: httpx.Client, text: bytes, dtype: str, shape: str) -> None:
    answer = client.post("/v1/tensors/parse", params={"to": "raw"}, content=text, headers=JSON)
    assert (answer.headers["tensor-dtype"], answer.headers["tensor-shape"]) == (dtype, shape)
    assert answer.content == np.array(json.loads(text), dtype).tobytes()


def test_number_beyond_float32_is_refused_with_its_remedies(client: httpx.Client) -> None:
    answer = client.post(SERIALIZE, content=b'[{"price":1},{"price":123456789.12}]', headers=JSON)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "lossy_encoding")
    assert (problem["row"], problem["feature"]) == (1, "price")
    for way in ("'raw'", "'tensor'", "float32", "?lossy=allow"):
        assert way in problem["detail"]


@pytest.mark.parametrize(
    "feature", [{"dtype": "float64", "encoding": "raw"}, {"dtype": "float64", "encoding": "tensor"}]
)
def test_declared_with_another_encoding_they_are_kept(client: httpx.Client, feature: dict[str, Any]) -> None:
    params = {"schema": json.dumps({"features": {"price": feature}})}
    there = client.post(SERIALIZE, params=params, content=b'[{"price":123456789.12}]', headers=JSON)
    assert "rounded-features" not in there.headers
    assert client.post(PARSE, params=params, content=there.content).text == '{"price":123456789.12}\n'


def test_the_answer_says_what_was_rounded(client: httpx.Client) -> None:
    rows = b'[{"exact":0.5,"a, \xc3\xa9":0.1,"n":1}]'
    for to in ("tfrecord", "b64"):
        answer = client.post(SERIALIZE, params={"to": to}, content=rows, headers=JSON)
        assert answer.headers["rounded-features"] == "a%2C%20%C3%A9"
    one = client.post("/v1/examples/serialize", content=rows[1:-1], headers=JSON)
    assert one.headers["rounded-features"] == "a%2C%20%C3%A9"
    exact = client.post(SERIALIZE, content=b'[{"x":0.5,"n":1}]', headers=JSON)
    assert "rounded-features" not in exact.headers


def test_an_answer_that_begins_early_names_what_may_be_rounded(client: httpx.Client) -> None:
    rows = b'{"exact":0.5,"price":0.1,"name":"a"}\n' * 100_000
    ndjson = {"Content-Type": "application/x-ndjson"}
    answer = client.post(SERIALIZE, content=rows, headers=ndjson)
    assert "content-length" not in answer.headers
    assert answer.headers["rounded-features"] == "exact, price"
    checked = client.post(SERIALIZE, params={"delivery": "checked"}, content=rows, headers=ndjson)
    assert checked.headers["rounded-features"] == "price"
    assert checked.content == answer.content


def test_a_header_holds_only_so_many_names(client: httpx.Client) -> None:
    row = json.dumps({f"feature-{number:04}": 0.1 for number in range(2000)})
    answer = client.post("/v1/examples/serialize", content=row, headers=JSON)
    names = answer.headers["rounded-features"]
    assert names.startswith("feature-0000, feature-0001, ")
    assert names.endswith(", ...")
    assert len(names) < 5000


@pytest.mark.parametrize(("value", "status"), [("0.5", 200), ("0.1", 422), ("16777217.0", 422)])
def test_lossy_error_rounds_nothing(client: httpx.Client, value: str, status: int) -> None:
    rows = f'[{{"x":1}},{{"x":{value}}}]'
    answer = client.post(SERIALIZE, params={"lossy": "error"}, content=rows, headers=JSON)
    assert answer.status_code == status
    if status == 422:
        problem = answer.json()
        assert (problem["code"], problem["row"], problem["feature"]) == ("lossy_encoding", 1, "x")


def test_lossy_allow_rounds_everything(client: httpx.Client) -> None:
    answer = client.post(SERIALIZE, params={"lossy": "allow"}, content=PRICES, headers=JSON)
    assert answer.headers["rounded-features"] == "price, t"
    assert client.post(PARSE, content=answer.content).text == '{"price":[123456790.0],"t":[1700000000.0]}\n'


#: As pandas, polars and DuckDB have them.
FRAME = {"x": np.array([0.5, 0.25]), "price": np.array([0.1, 99.95])}
Frame = dict[str, Any]


def as_arrow(frame: Frame) -> bytes:
    table = pa.table(frame)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def as_parquet(frame: Frame) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(frame), sink)
    return sink.getvalue()


def as_npz(frame: Frame) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, **frame)
    return sink.getvalue()


def as_safetensors(frame: Frame) -> bytes:
    return bytes(save_safetensors(frame))


def as_oip(frame: Frame) -> bytes:
    inputs = [
        {"name": name, "datatype": "FP64", "shape": [len(values)], "data": values.tolist()}
        for name, values in frame.items()
    ]
    return json.dumps({"inputs": inputs}).encode()


FORMS: dict[str, tuple[Callable[[Frame], bytes], str]] = {
    "arrow": (as_arrow, "application/vnd.apache.arrow.stream"),
    "parquet": (as_parquet, "application/vnd.apache.parquet"),
    "npz": (as_npz, "application/x-npz"),
    "safetensors": (as_safetensors, "application/octet-stream"),
    "json": (as_oip, "application/json"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_goes_in_without_a_word_about_dtypes(client: httpx.Client, form: str, dataset: str) -> None:
    write, media_type = FORMS[form]
    params, headers = {"from": form}, {"Content-Type": media_type}
    answer = client.post(SERIALIZE, params=params, content=write(FRAME), headers=headers)
    assert (answer.status_code, answer.headers.get("rounded-features")) == (200, "price")
    large = {**FRAME, "price": np.array([0.1, 123456789.12])}
    refused = client.post(SERIALIZE, params=params, content=write(large), headers=headers)
    assert (refused.json()["code"], refused.json()["row"]) == ("lossy_encoding", 1)
    # The same to a dataset, as its first rows and as later ones.
    for _ in range(2):
        stored = client.post(
            f"/v1/datasets/{dataset}/records", params=params, content=write(FRAME), headers=headers
        )
        assert (stored.status_code, stored.json().get("rounded")) == (201, ["price"]), stored.text
    late = client.post(
        f"/v1/datasets/{dataset}/records", params=params, content=write(large), headers=headers
    )
    assert late.json()["code"] == "lossy_encoding"
    schema = client.get(f"/v1/datasets/{dataset}").json()["schema"]
    assert {feature["dtype"] for feature in schema["features"].values()} == {"float32"}


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_an_answer_of_ours_goes_in_again(client: httpx.Client, form: str, dataset: str) -> None:
    rows = b'[{"x":0.5,"price":0.1}]'
    table = client.post(SERIALIZE, params={"to": form}, content=rows, headers=JSON)
    headers = {"Content-Type": table.headers["content-type"]}
    answer = client.post(SERIALIZE, content=table.content, headers=headers)
    assert (answer.status_code, answer.headers.get("rounded-features")) == (200, "price"), answer.text
    assert answer.content == client.post(SERIALIZE, content=rows, headers=JSON).content
    for params in ({}, {}, {"evolve": "widen"}):
        stored = client.post(
            f"/v1/datasets/{dataset}/records", params=params, content=table.content, headers=headers
        )
        assert (stored.status_code, stored.json().get("rounded")) == (201, ["price"]), stored.text


def test_columns_of_float32_and_decimals_meet_in_one_dataset(client: httpx.Client, dataset: str) -> None:
    narrow = {name: values.astype(np.float32) for name, values in FRAME.items()}
    headers = {"Content-Type": FORMS["arrow"][1]}
    first = client.post(f"/v1/datasets/{dataset}/records", content=as_arrow(narrow), headers=headers)
    assert "rounded" not in first.json()
    assert append(client, dataset, [{"x": 0.1, "price": 2}])["rounded"] == ["x"]
    again = client.post(f"/v1/datasets/{dataset}/records", content=as_arrow(narrow), headers=headers)
    assert (again.status_code, "rounded" in again.json()) == (201, False)


def test_rounding_is_reported_for_each_small_append(client: httpx.Client, dataset: str) -> None:
    append(client, dataset, [{"x": 0.5, "y": 0.5}])
    bodies: list[tuple[Any, list[str] | None]] = [
        ([{"x": 0.5, "y": 1}], None),
        ([{"x": 0.1, "y": 1}], ["x"]),
        ([{"x": 0.5, "y": 1}, {"x": 0.1, "y": 0.3}], ["x", "y"]),
        ([{"x": 2, "y": 0.3}], ["y"]),
    ] * 8
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda body: append(client, dataset, body[0]), bodies))
    assert [answer.get("rounded") for answer in answers] == [expected for _, expected in bodies]
    assert len({answer["append_id"] for answer in answers}) < len(bodies)


def test_repeated_append_reports_the_first_rounding(client: httpx.Client, dataset: str) -> None:
    path = f"/v1/datasets/{dataset}/records"
    answers = [
        client.post(path, json=[{"x": 0.1}], headers={"Idempotency-Key": "k"}).json() for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert answers[0]["rounded"] == ["x"]


def test_an_append_that_publishes_tells_it_too(client: httpx.Client, dataset: str) -> None:
    assert append(client, dataset, [{"x": 0.1}], publish="true")["append"]["rounded"] == ["x"]


def test_a_feature_that_is_added_is_float32(client: httpx.Client, dataset: str) -> None:
    append(client, dataset, [{"x": 1}])
    assert append(client, dataset, [{"x": 1, "y": 0.1}], evolve="widen")["rounded"] == ["y"]
    assert append(client, dataset, [{"x": 1, "y": 0.1}], evolve="widen")["rounded"] == ["y"]
    schema = client.get(f"/v1/datasets/{dataset}").json()["schema"]
    assert schema["features"]["y"]["dtype"] == "float32"


def test_a_declared_float32_rounds_without_a_word(client: httpx.Client, dataset: str) -> None:
    schema = json.dumps({"features": {"x": {"dtype": "float32"}}})
    assert "rounded" not in append(client, dataset, [{"x": 0.1}], schema=schema)
    assert "rounded" not in append(client, dataset, [{"x": 123456789.12}])


@pytest.mark.parametrize("place", ["query", "body"])
@pytest.mark.parametrize("params", [{}, {"evolve": "widen"}])
def test_float32_that_is_declared_for_one_append_is_not_reported(
    client: httpx.Client, dataset: str, place: str, params: dict[str, str]
) -> None:
    append(client, dataset, [{"x": 0.5, "y": 0.5}])
    rows: Any = [{"x": 123456789.12, "y": 0.1}]
    path = f"/v1/datasets/{dataset}/records"
    problem = client.post(path, params=params, json=rows).json()
    assert (problem["code"], problem["feature"]) == ("lossy_encoding", "x")
    assert "Append to a new dataset" in problem["detail"]
    schema = {"features": {name: {"dtype": "float32"} for name in "xy"}}
    if place == "query":
        params = {**params, "schema": json.dumps(schema)}
    else:
        rows = {"schema": schema, "instances": rows}
    assert "rounded" not in append(client, dataset, rows, **params)
    # The declaration was for those rows alone.
    assert append(client, dataset, [{"x": 0.5, "y": 0.1}])["rounded"] == ["y"]
    assert client.post(path, json=[{"x": 123456789.12, "y": 0.1}]).json()["code"] == "lossy_encoding"


def test_a_schema_that_adds_a_feature_declares_no_other(client: httpx.Client, dataset: str) -> None:
    append(client, dataset, [{"x": 0.5}])
    schema = json.dumps({"features": {"z": {"dtype": "float32", "nullable": True}}})
    answer = append(client, dataset, [{"x": 0.1, "z": 0.1}], schema=schema, evolve="widen")
    assert answer["rounded"] == ["x"]


def test_rows_are_described_as_they_are_and_their_examples_as_they_will_be(client: httpx.Client) -> None:
    def described(to: str) -> str:
        return client.post("/v1/records/describe", params={"to": to}, content=PRICES, headers=JSON).text

    body = json.loads(described("json"))
    assert body["schema"]["features"]["price"]["dtype"] == "float64"
    assert body["features"]["price"]["max"] == 123456789.12
    assert "float64" in described("schema")
    for to in ("features", "pbtxt", "python"):
        assert "float64" not in described(to)


def test_later_rows_may_bring_the_first_decimals(client: httpx.Client) -> None:
    rows = b'{"x":[]}\n' * 1000 + b'{"x":[1700000000.123]}\n'
    headers, params = {"Content-Type": "application/x-ndjson"}, {"to": "ndjson"}
    # Empty lists decide no dtype, as null does not.
    refused = client.post(SERIALIZE, params=params, content=rows, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "schema_conflict")
    assert "infer=all" in refused.json()["detail"]
    answer = client.post(SERIALIZE, params=params | {"infer": "all"}, content=rows, headers=headers)
    assert answer.text.endswith('{"x":[1700000000.123]}\n')


def npy_body(values: Any) -> bytes:
    sink = io.BytesIO()
    np.save(sink, values)
    return sink.getvalue()


NPY = {"Content-Type": "application/x-npy"}


@pytest.mark.parametrize("size", [10, 200_001])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_tensor_is_rounded_to_the_declared_float_when_allowed(
    client: httpx.Client, size: int, dtype: str
) -> None:
    values = np.linspace(-2, 2, size, dtype=np.float32)
    params = {"dtype": dtype, "to": "raw"}
    refused = client.post("/v1/tensors/serialize", params=params, content=npy_body(values), headers=NPY)
    assert (refused.status_code, refused.json()["code"]) == (422, "dtype_mismatch")
    assert "?lossy=allow" in refused.json()["detail"]
    answer = client.post(
        "/v1/tensors/serialize", params=params | {"lossy": "allow"}, content=npy_body(values), headers=NPY
    )
    assert (answer.headers["tensor-dtype"], answer.headers["tensor-shape"]) == (dtype, str(size))
    assert answer.content == values.astype(DTYPES[dtype].numpy).tobytes()


@pytest.mark.parametrize("size", [10, 200_001])
def test_overflow_of_the_declared_float_is_refused(client: httpx.Client, size: int) -> None:
    values = np.zeros(size, np.float32)
    values[-1] = 70_000
    answer = client.post(
        "/v1/tensors/serialize",
        params={"dtype": "float16", "lossy": "allow", "delivery": "checked"},
        content=npy_body(values),
        headers=NPY,
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "out_of_range")
    assert f"Element {size - 1} " in answer.json()["detail"]


def test_records_of_tensors_are_rounded_large_and_small(client: httpx.Client) -> None:
    tensors = [np.linspace(0, 1, size, dtype=np.float32) for size in (3, 100_000, 2)]
    sink = io.BytesIO()
    np.savez(sink, *tensors)
    npz = {"Content-Type": "application/x-npz"}
    serialized = client.post(
        "/v1/tensors/serialize", params={"to": "tfrecord"}, content=sink.getvalue(), headers=npz
    )
    assert serialized.status_code == 200, serialized.text
    answer = client.post(
        "/v1/tensors/parse",
        params={"from": "tfrecord", "to": "npz", "dtype": "float16", "lossy": "allow"},
        content=serialized.content,
    )
    found = np.load(io.BytesIO(answer.content))
    assert [found[name].tobytes() for name in found.files] == [
        values.astype(np.float16).tobytes() for values in tensors
    ]


def test_other_dtypes_still_have_to_agree(client: httpx.Client) -> None:
    for values, dtype in ((np.zeros(2, np.float32), "float64"), (np.zeros(2, np.int64), "float16")):
        answer = client.post(
            "/v1/tensors/serialize",
            params={"dtype": dtype, "lossy": "allow"},
            content=npy_body(values),
            headers=NPY,
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "dtype_mismatch")


def test_sequences_widen_without_a_word_about_the_message(client: httpx.Client, dataset: str) -> None:
    row = {"context": {"c": 0.5}, "feature_lists": {"s": [[0.5], [0.25]]}}
    append(client, dataset, [row], message="sequence_example")
    row["context"] = {"c": 0.1, "new": 0.1}
    assert append(client, dataset, [row], evolve="widen")["rounded"] == ["c", "new"]
    refused = client.post(
        f"/v1/datasets/{dataset}/records", params={"evolve": "widen"}, json=[{"c": 0.5, "other": 1}]
    )
    assert refused.json()["code"] == "invalid_sequence_example"
