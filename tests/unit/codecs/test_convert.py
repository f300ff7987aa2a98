"""Values of one dtype that are declared to be of another: exact, rounded if both are floats, or refused."""

import io
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.dtypes import DTYPES, DType
from app.errors import LossyConversion, SchemaConflict
from tests.support.arrow_rows import storage_type
from tests.support.format_cases import Refusal, Rows, read, schema_of

INTEGERS = [dtype for dtype in DTYPES.values() if dtype.is_integer]
FLOATS = [dtype for dtype in DTYPES.values() if dtype.is_float]
NUMBERS = [*INTEGERS, *FLOATS]


def column_of(values: Any, dtype: DType) -> bytes:
    """An Arrow stream of one column x, whose metadata says the dtype where Arrow has none of that name."""
    storage = storage_type(dtype)
    if dtype.is_narrow and dtype.is_integer:
        values = values.astype(np.int8 if dtype.kind == "int" else np.uint8)
    if dtype.kind == "complex":
        column: Any = pa.array([value.tobytes() for value in values], storage)
    else:
        column = pa.array(values.view(storage.to_pandas_dtype()))
    field = pa.field("x", storage, nullable=False, metadata={"shardsmith:dtype": dtype.name})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([field])) as writer:
        writer.write_batch(pa.record_batch([column], schema=pa.schema([field])))
    return sink.getvalue()


def converted(values: Any, source: DType, target: DType) -> Rows | Refusal:
    """What becomes of a column of `source` that is declared to be `target`."""
    return read("arrow", column_of(values, source), schema=schema_of(x=target.name))


def convert(values: list[Any], source: str, target: str) -> list[Any]:
    found = converted(np.array(values).astype(DTYPES[source].numpy), DTYPES[source], DTYPES[target])
    assert isinstance(found, Rows), found
    return [row["x"] for row in found.rows]


def lossy(values: Any, source: str, target: str) -> int | None:
    """The row of the first value that is lost."""
    found = converted(np.array(values, DTYPES[source].numpy), DTYPES[source], DTYPES[target])
    assert isinstance(found, Refusal)
    assert (found.error, found.code, found.feature) == (LossyConversion, "out_of_range", "x")
    return found.row


@given(st.data(), st.sampled_from(INTEGERS), st.sampled_from(NUMBERS))
@settings(deadline=None, max_examples=300)
def test_an_integer_stays_that_integer_or_is_refused(data: st.DataObject, source: Any, target: Any) -> None:
    low, high = source.bounds
    values = np.array(data.draw(st.lists(st.integers(low, high), max_size=4)), source.numpy)
    # numpy compares integers with floats inexactly; Python does not.
    held = [_holds(target, int(value)) for value in values]
    if not all(held):
        assert lossy(values, source.name, target.name) == held.index(False)
        return
    assert [int(value) for value in convert(values.tolist(), source.name, target.name)] == values.tolist()


def _holds(target: Any, value: int) -> bool:
    if target.is_integer:
        low, high = target.bounds
        return bool(low <= value <= high)
    with np.errstate(over="ignore", invalid="ignore"):
        number = float(np.array([value], np.float64).astype(target.numpy)[0])
    return math.isfinite(number) and int(number) == value


#: Integers, halves, what lies at the bounds of integers, and what is none.
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 127.0, 128.0, 2.0**63, 2.0**64, -(2.0**63), np.nan, np.inf]


@given(st.lists(st.sampled_from(EDGES), max_size=3), st.sampled_from(FLOATS), st.sampled_from(INTEGERS))
@settings(deadline=None, max_examples=200)
def test_a_float_becomes_an_integer_only_where_it_is_one(
    values: list[float], source: Any, target: Any
) -> None:
    with np.errstate(over="ignore"):
        array = np.array(values, np.float64).astype(source.numpy)
    exact = [float(value) for value in array]
    low, high = target.bounds
    held = [np.isfinite(v) and v == int(v) and low <= int(v) <= high for v in exact]
    if not all(held):
        assert lossy(array, source.name, target.name) == held.index(False)
        return
    assert convert(exact, source.name, target.name) == exact


@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        ([300], "int64", "int8"),
        ([-1], "int8", "uint64"),
        ([2**63], "uint64", "int64"),
        ([2**53 + 1], "int64", "float64"),
        ([2**24 + 1], "int32", "float32"),
        ([-(2**63) + 1], "int64", "float64"),
        ([2**64 - 1], "uint64", "float64"),
        ([257], "int16", "bfloat16"),
        ([65536], "int32", "float16"),
        ([2**24 + 1], "int32", "complex64"),
        ([2], "int8", "bool"),
        ([0.5], "float32", "int32"),
        ([float("nan")], "float64", "int64"),
        ([2.0**63], "float64", "int64"),
        ([1e300], "float64", "float32"),
        ([-70000.0], "float32", "float16"),
        ([1e300 + 1j], "complex128", "complex64"),
    ],
)
def test_values_that_the_target_does_not_hold(values: list[Any], source: str, target: str) -> None:
    assert lossy([values[0], *values], source, target) == 0


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([2**53, -(2**63), 2**62 + 2**12], "int64", "float64", [2**53, -(2**63), 2**62 + 2**12]),
        ([2**63], "uint64", "float32", [2**63]),
        ([0, 1], "uint8", "bool", [False, True]),
        ([0.0, 1.0], "float32", "bool", [False, True]),
        ([False, True], "bool", "int64", [0, 1]),
        ([False, True], "bool", "float32", [0, 1]),
        ([0.1], "float64", "float32", [float(np.float32(0.1))]),
        ([1.5], "float16", "bfloat16", [1.5]),
        ([float("inf")], "float64", "float16", [float("inf")]),
        ([1.5], "float32", "complex128", [1.5]),
        ([0.1 + 1j], "complex128", "complex64", [complex(np.complex64(0.1 + 1j))]),
        ([], "int64", "int8", []),
    ],
)
def test_values_that_it_holds(values: list[Any], source: str, target: str, expected: list[Any]) -> None:
    assert repr(convert(values, source, target)) == repr(_as(target, expected))


def _as(target: str, expected: list[Any]) -> list[Any]:
    kind = {"float": float, "complex": complex, "bool": bool}.get(DTYPES[target].kind, int)
    return [kind(value) for value in expected]


def test_nan_stays_nan() -> None:
    assert math.isnan(convert([float("nan")], "float64", "float32")[0])


def npz(array: Any) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, x=array)
    return sink.getvalue()


def test_the_row_is_that_of_the_first_axis() -> None:
    values = np.zeros((4, 3, 2), np.int64)
    values[2, 1, 0] = 300
    found = read("npz", npz(values), schema=schema_of(x={"dtype": "int8", "shape": [3, 2]}))
    assert found == Refusal("out_of_range", 2, "x")


@pytest.mark.parametrize(
    ("array", "target"),
    [
        (np.array([b"1"]), "int64"),
        (np.array([1]), "text"),
        (np.array([1]), "bytes"),
        (np.array([1j], np.complex64), "float64"),
        (np.array([1j], np.complex64), "int8"),
        (np.array([True]), "text"),
    ],
)
def test_dtypes_that_do_not_convert(array: Any, target: str) -> None:
    found = read("npz", npz(array), schema=schema_of(x=target))
    assert found == Refusal("schema_conflict", None, "x")
    assert isinstance(found, Refusal)
    assert found.error is SchemaConflict


def test_bytes_are_text_only_where_they_are_utf8() -> None:
    good, wrong = np.array([b"a", "\u00e9".encode(), b"b", b"c"]), np.array([b"a", b"b", b"c", b"\xff"])
    for array, declared, outcome in (
        (good.reshape(2, 2), {"dtype": "text", "shape": [2]}, [[b"a", "\u00e9".encode()], [b"b", b"c"]]),
        (wrong, {"dtype": "bytes"}, wrong.tolist()),
        (wrong, {"dtype": "text"}, Refusal("invalid_utf8", 3, "x")),
        (wrong.reshape(2, 2), {"dtype": "text", "shape": [2]}, Refusal("invalid_utf8", 1, "x")),
    ):
        found = read("npz", npz(array), schema=schema_of(x=declared))
        assert ([row["x"] for row in found.rows] if isinstance(found, Rows) else found) == outcome


def test_the_first_row_that_is_lost_is_named_whatever_the_reason() -> None:
    overflow_then_inexact = np.array([0, 65536, 2049], np.int32)
    assert lossy(overflow_then_inexact, "int32", "float16") == 1
