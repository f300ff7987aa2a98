"""The lines by which a version is loaded, run as printed against a real service: they give the rows back."""

import importlib
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.service import Service, ready

# What TensorFlow and TFDS warn of while they are imported is theirs.
pytestmark = pytest.mark.filterwarnings("default")

tf = importlib.import_module("tensorflow")
importlib.import_module("tensorflow_datasets")

Row = dict[str, Any]

DENSE = {
    "x": {"dtype": "float32", "shape": [2, 2]},
    "label": {"dtype": "int64"},
    "flag": {"dtype": "bool"},
    "small": {"dtype": "uint8", "shape": [3]},
    "name": {"dtype": "text"},
    "tags": {"dtype": "text", "shape": [None]},
    "exact": {"dtype": "float64", "encoding": "raw"},
    "steps": {"dtype": "float32", "shape": [None, 2]},
}
RAGGED = {
    "words": {"dtype": "text", "shape": [None, None], "kind": "ragged"},
    "n": {"dtype": "int64"},
}
SPARSE = {
    "s": {"dtype": "float32", "shape": [3, 4], "kind": "sparse"},
    "n": {"dtype": "int64"},
}
SEQUENCE = {
    "n": {"dtype": "int64"},
    "frame": {"dtype": "float32", "shape": [None, 2], "kind": "sequence"},
    "tokens": {"dtype": "int64", "shape": [None, None], "kind": "sequence"},
}


def dense_row(i: int) -> Row:
    return {
        "x": [[i, 1.5], [2.0, -1.0]],
        "label": i,
        "flag": i % 2 == 0,
        "small": [i, 2, 3],
        "name": f"row {i} é",
        "tags": ["a"] * (i % 3),
        "exact": i + 0.1,
        "steps": [[0.5, i]] * (i % 2),
    }


def sparse_row(i: int) -> Row:
    return {"s": {"values": [1.5, i], "indices": [[0, 1], [2, 3]], "dense_shape": [3, 4]}, "n": i}


def sequence_row(i: int) -> Row:
    lists = {"frame": [[0.5, i]] * (i + 1), "tokens": [[1] * step for step in range(i + 1)]}
    return {"context": {"n": i}, "feature_lists": lists}


KINDS: dict[str, tuple[dict[str, Any], list[Row]]] = {
    "dense": (DENSE, [dense_row(i) for i in range(7)]),
    "ragged": (RAGGED, [{"words": [["a"] * j for j in range(i)], "n": i} for i in range(1, 6)]),
    "sparse": (SPARSE, [sparse_row(i) for i in range(1, 5)]),
    "sequence": (SEQUENCE, [sequence_row(i) for i in range(4)]),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with ready(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def lines(service: Service, kind: str) -> dict[str, str]:
    """The lines of a version with rows of one kind, in two shards."""
    features, rows = KINDS[kind]
    schema = {"features": features, **({"message": "sequence_example"} if kind == "sequence" else {})}
    url = f"{service.url}/v1/datasets/d-{uuid.uuid4().hex[:8]}"
    with httpx.Client(timeout=60) as client:
        assert client.put(url, json={"schema": schema}).status_code == 201
        params = {"publish": "true", "num_shards": "2", "split": "fit", "lossy": "allow"}
        answer = client.post(f"{url}/records", params=params, json=rows)
        assert answer.status_code == 201, answer.text
        published = answer.json()
        load: dict[str, str] = client.get(f"{url}/versions/latest").json()["load"]
        assert published["load"] == load
    return load


@pytest.fixture
def folder(lines: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the download was run."""
    monkeypatch.chdir(tmp_path)
    ended = subprocess.run(["sh", "-c", lines["download"]], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    return tmp_path


def run(source: str) -> Any:
    module: dict[str, Any] = {}
    exec(compile(source, "<printed>", "exec"), module)  # noqa: S102  # which is the test
    return module["rows"]


def plain(value: Any) -> Any:
    """Lists; of a sparse tensor the object that JSON has for it."""
    if isinstance(value, tf.SparseTensor):
        return {
            "values": value.values.numpy().tolist(),
            "indices": value.indices.numpy().tolist(),
            "dense_shape": value.dense_shape.numpy().tolist(),
        }
    found = value.to_list() if isinstance(value, tf.RaggedTensor) else np.asarray(value).tolist()
    return decoded(found)


def decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [decoded(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def expected(kind: str) -> list[Row]:
    """The rows, those of a SequenceExample as TensorFlow gives them: in one."""
    rows = KINDS[kind][1]
    return [{**row["context"], **row["feature_lists"]} for row in rows] if kind == "sequence" else rows


@pytest.mark.usefixtures("folder")
def test_tf_data(lines: dict[str, str], kind: str) -> None:
    rows = [{name: plain(value) for name, value in row.items()} for row in run(lines["tf.data"])]
    assert rows == expected(kind)


@pytest.mark.usefixtures("folder")
def test_tfds(lines: dict[str, str], kind: str) -> None:
    if kind == "sequence":
        assert "tfds" not in lines
        return
    rows = list(run(lines["tfds"]))
    assert len(rows) == len(KINDS[kind][1])
    number = "label" if kind == "dense" else "n"
    assert [int(row[number]) for row in rows] == [row[number] for row in KINDS[kind][1]]
    if kind == "dense":
        assert [plain(row["x"]) for row in rows] == [row["x"] for row in KINDS[kind][1]]
        assert [plain(row["name"]) for row in rows] == [row["name"] for row in KINDS[kind][1]]


def test_plain_python(lines: dict[str, str], kind: str) -> None:
    rows = run(lines["python"])
    assert list(rows) == KINDS[kind][1]


def test_parse_example_takes_the_printed_description(lines: dict[str, str], folder: Path, kind: str) -> None:
    if kind != "dense":
        return
    module: dict[str, Any] = {}
    exec(compile(lines["tf.data"], "<printed>", "exec"), module)  # noqa: S102
    shards = sorted(str(path) for path in folder.glob("*/*/d-*.tfrecord-*"))
    messages = list(tf.data.TFRecordDataset(shards).batch(100))
    (batch,) = (tf.io.parse_example(message, module["feature_description"]) for message in messages)
    assert batch["x"].numpy().tolist() == [row["x"] for row in KINDS[kind][1]]
    assert batch["label"].numpy().tolist() == [row["label"] for row in KINDS[kind][1]]
