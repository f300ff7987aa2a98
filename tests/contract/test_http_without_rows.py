"""Bodies without rows: conversions give none, appends store none, and rows of any features may follow."""

import io
import json
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from app.codecs.forms import RECORDS_CODECS
from tests.support import row_formats
from tests.support.archives import tar_of, zip_of
from tests.support.tensor_formats import npz_of, oip_of

_SCHEMA = pa.schema({"n": pa.int64()})
_NONE = {"n": np.zeros(0, "<i8")}


def arrow_of(*batches: pa.RecordBatch) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, _SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return out.getvalue()


def parquet_of_none() -> bytes:
    out = io.BytesIO()
    pq.write_table(_SCHEMA.empty_table(), out)
    return out.getvalue()


#: Form, and body. Those that say which features rows would have:
WITH_SCHEMA: list[tuple[str, Any]] = [
    ("arrow", arrow_of()),
    ("arrow", arrow_of(pa.record_batch({"n": pa.array([], pa.int64())}))),
    ("parquet", parquet_of_none()),
    ("npz", npz_of(_NONE)),
    ("safetensors", safetensors.numpy.save(_NONE)),
    ("oip", oip_of(_NONE)),
    ("zip", zip_of()),
]
#: and those that do not.
WITHOUT_SCHEMA: list[tuple[str, Any]] = [
    ("json", b"[]"),
    ("json", b'{"columns": {"n": []}}'),
    ("json", b'{"instances": []}'),
    ("ndjson", b""),
    ("ndjson", b"\n\n"),
    ("csv", b"n\n"),
    ("csv", b"n"),
    ("libsvm", b""),
    ("libsvm", b"# nothing\n"),
    ("tar", tar_of()),
    ("tfrecord", b""),
    ("b64", b'{"instances": []}'),
]
#: What no bytes at all are.
EMPTY = {
    "json": "invalid_json",
    "csv": "no_header",
    "arrow": "truncated",
    "parquet": "invalid_parquet",
    "npz": "invalid_npz",
    "safetensors": "truncated",
    "tar": "invalid_tar",
    "zip": "invalid_zip",
    "multipart": "malformed_multipart",
    "b64": "invalid_json",
}


def request_of(form: str, body: Any) -> dict[str, Any]:
    if form == "multipart":
        return {"content": body, "headers": {"Content-Type": "multipart/form-data; boundary=b"}}
    request = body if isinstance(body, dict) else {"content": body}
    return {**request, "params": {"from": form}}


def test_every_format_of_records_is_in_the_table() -> None:
    # A form of files cannot be without parts; `oip` has JSON in front.
    forms = {form for form, _ in [*WITH_SCHEMA, *WITHOUT_SCHEMA]}
    assert forms | {"multipart"} == set(RECORDS_CODECS)
    assert {form for form, body in WITHOUT_SCHEMA if body == b""} | EMPTY.keys() | {"oip"} == set(
        RECORDS_CODECS
    )


@pytest.mark.parametrize(("form", "body"), [*WITH_SCHEMA, *WITHOUT_SCHEMA])
def test_body_without_rows_converts_to_no_rows(client: httpx.Client, form: str, body: Any) -> None:
    request = request_of(form, body)
    request["params"]["to"] = "ndjson"
    answer = client.post("/v1/records/parse", **request)
    assert (answer.status_code, answer.headers["record-count"], answer.content) == (200, "0", b"")
    request["params"]["to"] = "tfrecord"
    answer = client.post("/v1/records/serialize", **request)
    assert (answer.status_code, answer.headers["record-count"], answer.content) == (200, "0", b"")


@pytest.mark.parametrize(
    ("form", "body", "says"),
    [(*case, True) for case in WITH_SCHEMA] + [(*case, False) for case in WITHOUT_SCHEMA],
)
def test_an_append_stores_none_of_them(
    client: httpx.Client, form: str, body: Any, says: bool, request: pytest.FixtureRequest
) -> None:
    dataset = f"/v1/datasets/none-{request.node.callspec.indices['form']}"
    answer = client.post(f"{dataset}/records", **request_of(form, body))
    if says:
        assert answer.status_code == 201, answer.text
        assert answer.json()["num_records"] == 0
        return
    assert (answer.status_code, answer.json()["code"]) == (422, "no_records")
    assert client.get(dataset).status_code == 404
    kind = RECORDS_CODECS[form].kinds_in[0]  # type: ignore[index]  # the names of the table
    features, rows = row_formats.sample(kind, form)
    schema = {"params": {"from": form, "schema": json.dumps({"features": features})}}
    assert (
        client.post(f"{dataset}/records", **{**request_of(form, body), **schema}).json()["num_records"] == 0
    )
    written = row_formats.written(form, kind, rows)
    stored = client.post(f"{dataset}/records", **written, params={"from": form})
    assert stored.status_code == 201, stored.text
    assert client.post(f"{dataset}/versions").json()["splits"]["train"]["num_records"] == len(rows)


@pytest.mark.parametrize(("form", "code"), EMPTY.items())
def test_empty_body_is_refused_by_most_formats(client: httpx.Client, form: str, code: str) -> None:
    for path in ("/v1/records/parse", "/v1/records/serialize", f"/v1/datasets/no-bytes-{form}/records"):
        answer = client.post(path, **request_of(form, b""))
        assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert client.get(f"/v1/datasets/no-bytes-{form}").status_code == 404
