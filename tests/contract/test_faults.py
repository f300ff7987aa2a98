"""Bodies that must not be believed, rows 1-34 of the catalogue of faults, over a real connection.

The corpus is tests/corpora/faults.py, and tests/corpora/hostile_bodies.py with lies that the catalogue does
not spell out. Each body goes to every route that takes such, and is answered by a problem that names the
place; /livez answers meanwhile, and memory stays within what one request may hold. Further cases of each
row, and mutations of good bytes, are tested in tests/unit/codecs:

| row   | here                 | there                                                                     |
|-------|----------------------|---------------------------------------------------------------------------|
| 1-8   | headers of NPY       | test_array_tensors.py                                                      |
| 9, 10 | NPY                  | test_array_tensors.py                                                      |
| 11-13 | NPZ                  | test_array_tensors.py                                                      |
| 14-17 | compression          | test_tfrecord.py, test_decoded_bodies.py                                   |
| 18-21 | TensorProto          | test_tensor_messages.py                                                    |
| 22    | protobuf             | the same; test_messages_wire.py                                            |
| 23-25 | TFRecord             | test_tfrecord.py                                                           |
| 26-31 | JSON                 | test_json_text.py, test_json_tensors_in.py, test_json_rows.py              |
| 32-33 | Arrow, Parquet       | test_arrow.py, test_parquet.py                                            |
| 34    | images               | test_images.py                                                            |

Rows 14-17 of Content-Encoding are in test_http_content_encoding.py.
The fuzzers of tests/fuzz hold the same for bytes that nobody thought of.
"""

import io
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.corpora.faults import FAULTS, MIB, Fault
from tests.corpora.hostile_bodies import LIES
from tests.support.service import Service, ready

#: What one request may hold in the service of these tests, and what the process may grow by beside it.
HELD = 64 * MIB
SLACK = 96 * MIB


@pytest.fixture(scope="module")
def bounded_client(bounded: Service) -> Iterator[httpx.Client]:
    """A client of that service."""
    with httpx.Client(base_url=bounded.url, timeout=60) as opened:
        yield opened


@pytest.fixture(scope="module")
def watching_client(bounded: Service) -> Iterator[httpx.Client]:
    """Another, for the thread that watches the service: to make one takes longer than most requests."""
    with httpx.Client(base_url=bounded.url, timeout=10) as opened:
        yield opened


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose requests may hold little."""
    with ready(tmp_path_factory.mktemp("bounded"), SHARDSMITH_MAX_DECODED_BYTES=str(HELD)) as started:
        yield started


def cases() -> Iterator[Any]:
    """Each fault, and the routes it goes to; of a large body all but the first are left to the slow tests."""
    for fault in [*FAULTS, *LIES]:
        name, routes = f"{fault.row} {fault.name}", list(fault.routes.items())
        first = len(routes) if isinstance(fault.body, bytes) else 1
        yield pytest.param(fault, routes[:first], id=name)
        if routes[first:]:
            yield pytest.param(fault, routes[first:], id=f"{name}, elsewhere", marks=pytest.mark.exhaustive)


@pytest.mark.sampled
@pytest.mark.parametrize(("fault", "routes"), list(cases()))
def test_lying_body_is_refused_with_its_place(
    bounded: Service,
    bounded_client: httpx.Client,
    watching_client: httpx.Client,
    fault: Fault,
    routes: list[tuple[str, dict[str, str]]],
) -> None:
    body = fault.body if isinstance(fault.body, bytes) else fault.body()
    before = bounded.resident_mib()
    status, code, *place = fault.answer.split()
    for route, params in routes:
        with Watch(bounded, watching_client) as watch:
            answer = bounded_client.post(route, params=params, content=body, headers=fault.headers)
        assert answer.headers["content-type"] == "application/problem+json", (route, answer.text[:200])
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (int(status), code), (route, problem)
        assert set(place) <= problem.keys(), (route, problem)
        assert watch.peak_mib - before < (HELD + SLACK) / MIB, route


class Watch:
    """Asks for /livez, and looks at the memory of the process, as long as something else goes on."""

    def __init__(self, service: Service, client: httpx.Client) -> None:
        self._service = service
        self._client = client
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._statuses: set[int] = set()
        self.peak_mib = service.resident_mib()

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert self._statuses == {200}

    def _look(self) -> None:
        while True:
            self._statuses.add(self._client.get("/livez").status_code)
            self.peak_mib = max(self.peak_mib, self._service.resident_mib())
            if self._over.wait(0.02):
                return


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip, zstd", "br", "deflate, compress"])
def test_stacked_and_unknown_encodings_are_refused_by_name(bounded: Service, encoding: str) -> None:
    headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
    answer = httpx.post(f"{bounded.url}/v1/tensors/serialize", content=b"[1]", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_content_encoding")


@pytest.mark.parametrize("media_type", ["image/png", "image/gif", "image/jpeg"])
@pytest.mark.parametrize(
    ("noun", "refusal"),
    [
        ("tensors", (400, "not_an_image")),
        ("records", (415, "unsupported_media_type")),
        ("examples", (415, "unsupported_media_type")),
    ],
)
def test_an_image_is_a_tensor_and_no_rows(
    bounded: Service, noun: str, refusal: tuple[int, str], media_type: str
) -> None:
    answer = httpx.post(
        f"{bounded.url}/v1/{noun}/serialize", content=b"\x89PNG", headers={"Content-Type": media_type}
    )
    assert (answer.status_code, answer.json()["code"]) == refusal


def test_every_row_of_the_catalogue_is_here() -> None:
    elsewhere = {15, 16, 34}  # the tests above
    assert {fault.row for fault in FAULTS} | elsewhere == set(range(1, 35))


def test_big_endian_and_fortran_order_are_converted_exactly(bounded: Service) -> None:
    values = np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3))
    sink = io.BytesIO()
    np.save(sink, values)
    answer = httpx.post(f"{bounded.url}/v1/tensors/parse", params={"from": "npy"}, content=sink.getvalue())
    assert answer.json() == {"dtype": "float32", "shape": [2, 3], "data": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]}


DIGITS = "9" * 5000
LONG = "x" * 30_000


@pytest.mark.parametrize(
    ("path", "params", "code"),
    [
        ("tensors/parse", {"from": LONG}, "415 unsupported_media_type"),
        ("tensors/parse", {"to": LONG}, "406 not_acceptable"),
        ("tensors/parse", {LONG: "1"}, "400 unknown_parameter"),
        ("tensors/parse", {"from": "raw", "dtype": LONG, "shape": "1"}, "400 unknown_dtype"),
        ("tensors/parse", {"from": "raw", "dtype": "int8", "shape": DIGITS}, "400 invalid_shape"),
        ("tensors/parse", {"from": "raw", "dtype": "int8", "shape": "1," * 5000 + "1"}, "400 invalid_shape"),
        (
            "tensors/parse",
            {"from": "raw", "dtype": "int8", "shape": f"{2**62},{2**62}"},
            "413 shape_too_large",
        ),
        ("records/serialize", {"schema": "x" * 9000}, "400 invalid_schema"),
        ("records/serialize", {"schema": "[" * 8000, "from": "ndjson"}, "413 json_too_deep"),
        ("records/serialize", {"schema": "a{" * 4000, "from": "ndjson"}, "413 too_deep"),
        ("records/serialize", {"schema": f"dataset:{LONG}", "from": "ndjson"}, "400 invalid_dataset_name"),
        ("datasets/faulty/records", {"sequence": DIGITS}, "400 invalid_parameter"),
        ("datasets/faulty/records", {"split": "../train", "from": "json"}, "400 invalid_split_name"),
        ("datasets/faulty/versions", {"seed": DIGITS}, "400 invalid_parameter"),
        ("datasets/faulty/versions", {"num_shards": DIGITS}, "400 invalid_parameter"),
        ("datasets/faulty/versions", {"fractions": "train:0.1," * 1500}, "400 invalid_fractions"),
        ("datasets/faulty/versions", {"exclude": "," * 9000}, "400 invalid_exclude"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_query_parameters_that_must_not_be_believed(
    bounded_client: httpx.Client, path: str, params: dict[str, str], code: str
) -> None:
    body = b"" if path.endswith("versions") else b'[{"x": 1}]'
    answer = bounded_client.post(f"/v1/{path}", params=params, content=body)
    assert f"{answer.status_code} {answer.json()['code']}" == code, answer.text[:300]


@pytest.mark.parametrize("key", ["", "x" * 129, LONG, '""', '"a', 'a"b', "a\tb", "\xe9", "%00", "a/b", "a b"])
def test_keys_that_are_none(bounded_client: httpx.Client, key: str) -> None:
    headers = {b"Idempotency-Key": key.encode("latin-1"), b"Content-Type": b"application/json"}
    answer = bounded_client.post("/v1/datasets/faulty/records", content=b'[{"x": 1}]', headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_idempotency_key")


def test_nothing_of_all_this_was_stored_or_took_the_service_by_surprise(
    bounded: Service, bounded_client: httpx.Client
) -> None:
    assert bounded_client.get("/v1/datasets").json() == {"datasets": []}
    assert "Traceback" not in bounded.log()
