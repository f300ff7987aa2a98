"""Features with encoding `raw` and `tensor` of the dtypes beyond `tf.io.serialize_tensor`'s kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.codecs.arrow.batches import arrow_schema
from app.codecs.messages.example import parse_example, serialize_example
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.codecs.records.arrays import column_from_values, values_from_column
from app.domain.dtypes import DTYPES, DType
from app.domain.schema import Feature, Schema
from app.errors import InputError
from app.runtime.budget import Budget
from tests.arrow_rows import as_arrow, from_arrow

BEYOND = [dtype for dtype in DTYPES.values() if not dtype.has_kernel]


def every_value(dtype: DType) -> Any:
    if dtype.itemsize > 1:
        return np.array([*dtype.bounds, 0, 1], dtype.numpy)
    return np.arange(1 << dtype.num_bits, dtype=np.uint8).view(dtype.numpy)


def serialized(feature: Feature, column: pa.Array[Any]) -> bytes:
    schema = Schema((feature,))
    batch = pa.RecordBatch.from_arrays([column], schema=arrow_schema(schema))
    return bytes(serialize_example(from_arrow(schema, iter([batch])), RecordsEncodeOptions(), Budget()))


def parsed(feature: Feature, message: bytes) -> pa.Array[Any]:
    records = parse_example(message, RecordsDecodeOptions(schema=Schema((feature,))), Budget())
    [batch] = list(as_arrow(records))
    batch.validate(full=True)
    return batch.column(0)


@pytest.mark.parametrize("dtype", BEYOND, ids=str)
@pytest.mark.parametrize("encoding", ["tensor", "raw"])
@pytest.mark.parametrize("unknown", [0, 1])
def test_every_value_returns(dtype: DType, encoding: Any, unknown: int) -> None:
    values = every_value(dtype)
    feature = Feature("x", dtype, (None if unknown else len(values),), encoding=encoding)
    column = column_from_values(values, feature, (len(values),), 1)
    found = parsed(feature, serialized(feature, column))
    assert found.equals(column)
    if not unknown:
        assert repr(values_from_column(found, feature).tolist()) == repr(values.tolist())
    if dtype.is_integer:
        assert found.to_pylist() == [values.tolist()]


@pytest.mark.parametrize("encoding", ["tensor", "raw"])
def test_bits_that_an_int4_does_not_have_are_refused(encoding: Any) -> None:
    feature = Feature("x", DTYPES["int4"], (2,), encoding=encoding)
    message = serialized(feature, column_from_values(np.array([1, 2], "i1"), feature, (2,), 1))
    assert message.count(b"\x01\x02") == 1
    with pytest.raises(InputError):
        parsed(feature, message.replace(b"\x01\x02", b"\x01\x12"))
    signs = parsed(feature, message.replace(b"\x01\x02", b"\xff\x0f"))
    assert signs.to_pylist() == [[-1, -1]]
