"""Arrow streams as the service writes them, read without pyarrow."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.client.arrow import ArrowStream, Batch, NotReadable, no_rows
from app.domain.schema import Schema
from tests.support.arrow_rows import arrow_schema, from_arrow
from tests.support.format_cases import encode

NUMBERS = [
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
]


def reader(data: bytes) -> Any:
    """Gives exactly so many bytes."""
    file = io.BytesIO(data)

    def read(n: int) -> bytearray:
        found = bytearray(file.read(n))
        if len(found) < n:
            raise EOFError
        return found

    return read


def read(data: bytes) -> list[Batch]:
    return list(ArrowStream(reader(data)))


def written(features: dict[str, Any], batches: list[dict[str, list[Any]]]) -> bytes:
    """What the service answers."""
    schema = Schema.from_json({"features": features})
    arrow = arrow_schema(schema)
    rows = [
        pa.RecordBatch.from_pydict({name: list(map(flat, batch[name])) for name in batch}, schema=arrow)
        for batch in batches
    ]
    return bytes(encode("arrow", from_arrow(schema, iter(rows))))


def flat(value: Any) -> Any:
    """A value as it lies in a column: row-major, texts as UTF-8, bools as bytes."""
    if isinstance(value, list):
        return [
            item for inner in value for item in (flat(inner) if isinstance(inner, list) else [flat(inner)])
        ]
    if isinstance(value, bool):
        return int(value)
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shape", [[], [3], [2, 0], [2, 1, 2]])
def test_numbers_have_their_dtype_and_shape(dtype: str, shape: list[int]) -> None:
    values = np.arange(4 * int(np.prod(shape))).astype(dtype).reshape(4, *shape)
    data = written({"x": {"dtype": dtype, "shape": shape}}, [{"x": list(values.tolist())}])
    [batch] = read(data)
    assert (batch["x"].dtype, batch["x"].shape) == (np.dtype(dtype), (4, *shape))
    assert batch["x"].tolist() == values.tolist()
    assert batch["x"].flags.writeable


def test_other_values_and_several_batches() -> None:
    features = {
        "yes": {"dtype": "bool", "shape": [3]},
        "text": {"dtype": "text"},
        "bytes": {"dtype": "bytes", "shape": [2]},
        "n": {"dtype": "int64"},
    }
    batches: list[dict[str, list[Any]]] = [
        {
            "yes": [[True, False, True], [False, False, True], [True, True, True]],
            "text": ["", "é", "three"],
            "bytes": [[b"\xff", b""], [b"a", b"bc"], [b"", b""]],
            "n": [1, -2, 2**62],
        },
        {"yes": [[False, False, False]], "text": ["x"], "bytes": [[b"1", b"2"]], "n": [0]},
    ]
    found = read(written(features, batches))
    assert [{name: values.tolist() for name, values in batch.items()} for batch in found] == batches
    assert [batch["yes"].dtype for batch in found] == [np.dtype(bool)] * 2
    stream = ArrowStream(reader(written(features, batches)))
    empty = no_rows(stream.features)
    assert {name: values.shape for name, values in empty.items()} == {
        "yes": (0, 3), "text": (0,), "bytes": (0, 2), "n": (0,)
    }  # fmt: skip
    assert {name: values.dtype for name, values in empty.items()} == {
        name: values.dtype for name, values in found[0].items()
    }


@pytest.mark.parametrize(
    ("feature", "what"),
    [
        ({"dtype": "int64", "shape": [None]}, r"'x' is dense of shape \[None\]"),
        ({"dtype": "int64", "shape": [None, None], "kind": "ragged"}, "'x' is ragged"),
        ({"dtype": "bfloat16"}, "'x' has the dtype bfloat16"),
    ],
)
def test_feature_that_is_not_an_array_is_refused_by_name(feature: dict[str, Any], what: str) -> None:
    with pytest.raises(NotReadable, match=what):
        ArrowStream(reader(written({"x": feature}, [])))


def test_rows_that_lack_a_feature_are_an_error() -> None:
    data = written({"x": {"dtype": "int64", "nullable": True}}, [{"x": [1, None, None]}])
    with pytest.raises(NotReadable, match="2 rows of a batch lack feature 'x'"):
        read(data)


DATA = written(
    {"x": {"dtype": "float32", "shape": [2]}, "name": {"dtype": "text"}},
    [{"x": [[1, 2]] * 9, "name": ["ab"] * 9}],
)


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, len(DATA) - 1), value=st.integers(0, 255), end=st.integers(0, len(DATA)))
def test_damaged_streams_are_read_or_refused(place: int, value: int, end: int) -> None:
    damaged = bytearray(DATA)
    damaged[place] = value
    for data in (bytes(damaged), DATA[:end]):
        try:
            batches = read(data)
        except (NotReadable, EOFError):
            continue
        assert all(isinstance(values, np.ndarray) for batch in batches for values in batch.values())


def test_bytes_that_are_not_arrow_are_refused() -> None:
    for data in (
        b"<html>nothing here</html>",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\xff\xff\xff\xff\0\0\0\0",
    ):
        with pytest.raises(NotReadable):
            read(data)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("x", pa.int64())])):
        pass
    with pytest.raises(NotReadable, match="no schema of its own"):
        read(sink.getvalue())
