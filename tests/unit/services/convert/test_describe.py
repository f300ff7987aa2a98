"""What is said of records and of tensors, against rows in every column layout."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.codecs.array import AnyTensor, Array, RaggedTensor, SparseTensor
from app.codecs.columns import Records, Strings
from app.codecs.schemas.declared import parse_schema
from app.domain.dtypes import DTYPES
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.errors import SchemaConflict, UnprocessableInput
from app.runtime.budget import Budget
from app.services.convert.describe import Description, describe_records, describe_tensors
from app.storage.obstore_store import open_store
from tests.support.arrow_rows import arrow_schema, from_arrow
from tests.support.dataset_rows import Client

FEATURES: dict[str, dict[str, Any]] = {
    "scalar": {"dtype": "int64", "nullable": True},
    "fixed": {"dtype": "float32", "shape": [2]},
    "list": {"dtype": "uint8", "shape": [None]},
    "text": {"dtype": "text", "shape": [None], "nullable": True},
    "any": {"dtype": "float32", "shape": [None, None]},
    "ragged": {"dtype": "int32", "shape": [None, None, 2], "kind": "ragged"},
    "sparse": {"dtype": "float32", "shape": [4], "kind": "sparse", "nullable": True},
    "steps": {"dtype": "int64", "shape": [None, 2], "kind": "sequence"},
    "strings": {"dtype": "bytes", "shape": [None, None], "kind": "sequence", "nullable": True},
    "z": {"dtype": "complex64", "shape": [1], "encoding": "raw"},
}
COLUMNS: dict[str, list[Any]] = {
    "scalar": [1, None, 2**62],
    "fixed": [[0.0, 1.0], [2.0, 3.0], [4.0, float("nan")]],
    "list": [[], [1, 2, 3], [0]],
    "text": [["a", "üü"], None, [""]],
    "any": [
        {"shape": [1, 2], "values": [1.0, 2.0]},
        {"shape": [0, 5], "values": []},
        {"shape": [1, 1], "values": [3.0]},
    ],
    "ragged": [[[[1, 2]], []], [], [[[3, 4], [5, 6]], [[0, 8]]]],
    "sparse": [{"indices": [0, 3], "values": [0.5, 1.5]}, None, {"indices": [], "values": []}],
    "steps": [[[1, 2]], [], [[3, 4], [5, 6]]],
    "strings": [[[b"a"], [b"bc", b""]], None, [[]]],
    "z": [[b"\0" * 8], [b"\0\0\x80?\0\0\0\0"], [b"\0" * 8]],
}
SCHEMA = Schema.from_json({"features": FEATURES})


def records(*, split_at: int | None = None, sliced: bool = False) -> Records:
    schema = arrow_schema(SCHEMA)
    arrays = [
        pa.array(
            [[text.encode() for text in row] if row else row for row in rows] if name == "text" else rows,
            schema.field(name).type,
        )
        for name, rows in COLUMNS.items()
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if sliced:
        doubled = pa.Table.from_batches([batch, batch]).combine_chunks().to_batches()[0]
        batch = doubled.slice(3, 3)
    batches = [batch] if split_at is None else [batch.slice(0, split_at), batch.slice(split_at)]
    return from_arrow(SCHEMA, iter(batches))


def described(**options: Any) -> Any:
    return json.loads(describe_records(records(**options), "json"))


def test_every_layout() -> None:
    found = described()
    assert found["num_records"] == 3
    assert found["schema"] == SCHEMA.to_json()
    features = found["features"]
    assert list(features) == list(FEATURES)
    assert features["scalar"] == {
        "num_present": 2,
        "num_missing": 1,
        "num_values": 2,
        "min": 1,
        "max": 2**62,
        "mean": 2.0**61,
        "std": 2.0**61,
        "num_zeros": 0,
    }
    assert features["fixed"] == {
        "num_present": 3,
        "num_missing": 0,
        "num_values": 6,
        "min": 0.0,
        "max": 4.0,
        "mean": 2.0,
        "std": pytest.approx(np.std(range(5))),
        "num_zeros": 1,
        "num_nan": 1,
        "num_infinite": 0,
    }
    assert features["text"] == {
        "num_present": 2,
        "num_missing": 1,
        "num_values": 3,
        "min_num_values": 1,
        "max_num_values": 2,
        "min_length": 0,
        "max_length": 4,
        "mean_length": pytest.approx(5 / 3),
        "num_empty": 1,
    }
    assert features["z"] == {
        "num_present": 3,
        "num_missing": 0,
        "num_values": 3,
        "num_zeros": 2,
        "num_nan": 0,
        "num_infinite": 0,
    }


@pytest.mark.parametrize(
    ("name", "num_values", "least", "most", "low", "high"),
    [
        ("list", 4, 0, 3, 0, 3),
        ("any", 3, 0, 2, 1, 3),
        ("ragged", 8, 0, 6, 0, 8),
        ("sparse", 2, 0, 2, 0.5, 1.5),
        ("steps", 6, 0, 4, 1, 6),
    ],
)
def test_values_of_a_row(name: str, num_values: int, least: int, most: int, low: float, high: float) -> None:
    found = described()["features"][name]
    assert found["num_values"] == num_values
    assert (found["min_num_values"], found["max_num_values"]) == (least, most)
    assert (found["min"], found["max"]) == (low, high)


@pytest.mark.parametrize("options", [{"split_at": 1}, {"split_at": 2}, {"sliced": True}])
def test_batches_may_be_cut_anywhere(options: dict[str, Any]) -> None:
    def exact(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: exact(member) for key, member in value.items()}
        return pytest.approx(value) if isinstance(value, float) else value

    assert described(**options) == exact(described())


@pytest.mark.parametrize("description", ["schema", "pbtxt"])
def test_the_schema_alone(description: Description) -> None:
    data = describe_records(records(), description)
    assert parse_schema(data).same_features(SCHEMA)


def test_python_and_what_tfds_has_no_features_for() -> None:
    assert b"sequence_features = {" in describe_records(records(), "python")
    with pytest.raises(UnprocessableInput, match="SequenceExamples"):
        describe_records(records(), "features")


@pytest.mark.parametrize("description", ["json", "schema", "pbtxt", "python"])
def test_rows_that_do_not_fit_are_refused_whatever_is_asked_for(description: Description) -> None:
    def batches() -> Any:
        yield from records().batches
        raise SchemaConflict("A later row.")

    with pytest.raises(SchemaConflict):
        describe_records(Records(SCHEMA, batches()), description)


def test_tensors() -> None:
    values = np.array([1, 2, 0], np.int16)
    tensors = [
        replace(Array(DTYPES["int16"], (3, 1), values), name="x"),
        Array(DTYPES["string"], (2,), Strings.pack([b"", b"abc"])),
    ]
    assert json.loads(describe_tensors(tensors)) == [
        {
            "name": "x",
            "kind": "dense",
            "dtype": "int16",
            "shape": [3, 1],
            "num_elements": 3,
            "num_bytes": 6,
            "min": 0,
            "max": 2,
            "mean": 1.0,
            "std": pytest.approx(np.std([0, 1, 2])),
            "num_zeros": 1,
        },
        {
            "name": None,
            "kind": "dense",
            "dtype": "string",
            "shape": [2],
            "num_elements": 2,
            "num_bytes": 3,
            "min_length": 0,
            "max_length": 3,
            "mean_length": 1.5,
            "num_empty": 1,
        },
    ]


def test_sparse_and_ragged_tensors_are_described_by_what_is_there() -> None:
    values = Array(DTYPES["int16"], (3,), np.array([0, 1, 2], "<i2"))
    tensors: list[AnyTensor] = [
        SparseTensor((5, 9), np.array([[0, 1], [2, 3], [4, 8]]), values, "s"),
        RaggedTensor(values, (np.array([0, 2, 2, 3]),), "r"),
    ]
    sparse, ragged = json.loads(describe_tensors(tensors))
    assert (sparse["kind"], sparse["shape"], sparse["num_elements"], sparse["max"]) == (
        "sparse",
        [5, 9],
        3,
        2,
    )
    assert (ragged["kind"], ragged["shape"], ragged["num_elements"], ragged["max"]) == (
        "ragged",
        [3, None],
        3,
        2,
    )


def test_a_version_is_described_in_less_memory_than_it_takes() -> None:
    client = Client(open_store("memory://"))
    client.append(range(64), pad=MIB)
    client.publish()
    budget = Budget(Limits(max_decoded_bytes=24 * MIB))
    described = json.loads(
        describe_records(client.datasets.read_records("d", "latest", "train", budget=budget), "json")
    )
    assert described["num_records"] == 64
    assert described["features"]["pad"]["min_length"] == MIB
    assert described["features"]["x"]["max"] == 63
