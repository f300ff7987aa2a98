"""What TensorFlow wrote is read, and written byte for byte; `tests/golden/make.py` made it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.codecs.array import Array
from app.codecs.columns import Strings
from app.domain.dtypes import DTYPES
from app.domain.schema import Schema
from tests.elements import numpy_values
from tests.unit.codecs.seam import Rows, read, records, serialize, tensors_of, write

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "tensorflow.json").read_text("utf-8")
)
MESSAGES = ["example", "sequence_example"]


def array_of(tensor: dict[str, Any]) -> Array:
    dtype, content = DTYPES[tensor["dtype"]], tensor["content"]
    values: Any = (
        Strings.pack([bytes.fromhex(value) for value in content])
        if dtype.is_string
        else np.frombuffer(bytes.fromhex(content), dtype.numpy)
    )
    return Array(dtype, tuple(tensor["shape"]), values)


@pytest.mark.parametrize(
    "tensor", GOLDEN["tensors"], ids=lambda tensor: f"{tensor['dtype']}{tensor['shape']}"
)
def test_a_tensor_proto(tensor: dict[str, Any]) -> None:
    array, message = array_of(tensor), bytes.fromhex(tensor["message"])
    assert serialize("tensorproto", array) == message
    [found] = tensors_of("tensorproto", message)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert numpy_values(found).tobytes() == numpy_values(array).tobytes() or array.dtype.is_string
    assert serialize("tensorproto", found) == message


def test_every_dtype_that_tensorflow_writes_is_there() -> None:
    assert {tensor["dtype"] for tensor in GOLDEN["tensors"]} == {
        dtype.name for dtype in DTYPES.values() if dtype.has_kernel
    }


@pytest.mark.parametrize("name", MESSAGES)
def test_rows_are_written_as_tensorflow_writes_them(name: str) -> None:
    case = GOLDEN[name]
    rows = records(case["rows"], schema=Schema.from_json(case["schema"]))
    assert write("tfrecord", rows) == bytes.fromhex(case["files"][""])


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("name", MESSAGES)
def test_files_that_tensorflow_wrote_are_read(name: str, compression: str) -> None:
    case = GOLDEN[name]
    schema = Schema.from_json(case["schema"])
    found = read("tfrecord", bytes.fromhex(case["files"][compression]), schema=schema)
    wanted = read("json", json.dumps(case["rows"]).encode(), schema=schema)
    assert isinstance(found, Rows)
    assert isinstance(wanted, Rows)
    assert found == wanted
