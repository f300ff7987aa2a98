from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.arrow.batches import arrow_schema
from app.codecs.messages import write
from app.codecs.messages.example_decode import parse_frames
from app.codecs.messages.framing import iter_frames
from app.codecs.messages.write import RecordBlock, encode_blocks
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.errors import LimitExceeded, LossyConversion, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.arrow_rows import as_arrow, from_arrow


def schema_of(**feature: Any) -> Schema:
    return Schema.from_json({"features": {"x": feature}})


def batch_of(schema: Schema, values: list[Any]) -> pa.RecordBatch:
    arrow = arrow_schema(schema)
    return pa.RecordBatch.from_arrays([pa.array(values, arrow.field(0).type)], schema=arrow)


def blocks_of(
    schema: Schema, *columns: list[Any], lossy: bool = False, budget: Budget | None = None
) -> Iterator[RecordBlock]:
    batches = iter([batch_of(schema, values) for values in columns])
    return encode_blocks(from_arrow(schema, batches), RecordsEncodeOptions(lossy=lossy), budget or Budget())


def read_back(schema: Schema, blocks: list[RecordBlock]) -> list[Any]:
    data = b"".join(block.data for block in blocks)
    records = parse_frames(
        iter_frames(MemoryStream(data), Budget()), RecordsDecodeOptions(schema=schema), Budget()
    )
    return [row["x"] for batch in as_arrow(records) for row in batch.to_pylist()]


@pytest.mark.parametrize("dtype", ["float64", "uint64"])
def test_what_a_list_cannot_hold_is_refused_by_dtype_before_the_first_batch(dtype: str) -> None:
    schema = schema_of(dtype=dtype)
    with pytest.raises(LossyConversion) as caught:
        blocks_of(schema, [1])
    assert caught.value.location.feature == "x"
    assert len(list(blocks_of(schema, [1], lossy=True))) == 1


def test_a_float64_that_float32_cannot_hold_is_refused_with_its_row() -> None:
    schema = schema_of(dtype="float64", shape=[None], nullable=True)
    fine: list[Any] = [[1.0, 3.4028235677973362e38], None, [float("inf"), float("nan")]]
    assert len(list(blocks_of(schema, fine, lossy=True))) == 1
    with pytest.raises(LossyConversion) as caught:
        list(blocks_of(schema, fine, [[0.5], [1.0, 1e39]], lossy=True))
    assert (caught.value.location.row, caught.value.location.feature) == (4, "x")


def test_what_lies_under_a_null_is_not_looked_at() -> None:
    schema = schema_of(dtype="float64", nullable=True)
    buffers: list[pa.Buffer | None] = [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1.0, 1e300]).tobytes())]
    column: Any = pa.Array.from_buffers(pa.float64(), 2, buffers)
    batch = pa.RecordBatch.from_arrays([column], schema=arrow_schema(schema))
    options = RecordsEncodeOptions(lossy=True)
    blocks = list(encode_blocks(from_arrow(schema, iter([batch])), options, Budget()))
    assert read_back(schema, blocks) == [1.0, None]


def test_blocks_are_of_bounded_size_and_hold_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "BLOCK_BYTES", 5000)
    schema = schema_of(dtype="bytes")
    sizes = [10, 3000, 10, 10_000, 5, 1000, 3000, 3000]
    values = [bytes([index]) * size for index, size in enumerate(sizes)]
    budget = Budget()
    blocks = list(blocks_of(schema, values, budget=budget))
    assert [block.num_records for block in blocks] == [3, 1, 3, 1]
    assert all(len(block.data) <= 5000 or block.num_records == 1 for block in blocks)
    assert read_back(schema, blocks) == values
    assert budget.remaining == budget.limits.max_decoded_bytes


def test_a_block_stays_as_it_is_while_others_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "BLOCK_BYTES", 5000)
    schema = schema_of(dtype="bytes")
    values = [bytes([index]) * 1000 for index in range(30)]
    assert read_back(schema, list(blocks_of(schema, values))) == values


def test_large_rows_are_lowered_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_CHUNK_BYTES", 3000)
    schema = schema_of(dtype="uint8", shape=[100])
    values = [[row] * 100 for row in range(50)]
    budget = Budget()
    assert read_back(schema, list(blocks_of(schema, values, budget=budget))) == values
    assert budget.peak < 8 * 5000


def test_rows_are_numbered_through_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_CHUNK_BYTES", 16)
    schema = schema_of(dtype="float64")
    with pytest.raises(LossyConversion) as caught:
        list(blocks_of(schema, [0.0] * 7, [0.0] * 3 + [1e300], lossy=True))
    assert caught.value.location.row == 10


def test_a_row_beyond_the_budget_is_refused() -> None:
    schema = schema_of(dtype="bytes")
    with pytest.raises(LimitExceeded):
        list(blocks_of(schema, [b"x" * MIB], budget=Budget(Limits(max_decoded_bytes=MIB // 2))))


def test_a_row_that_protobuf_could_not_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_MAX_MESSAGE_BYTES", 100)
    schema = schema_of(dtype="bytes")
    with pytest.raises(UnprocessableInput) as caught:
        list(blocks_of(schema, [b"x" * 50, b"x" * 100]))
    assert (caught.value.code, caught.value.location.row) == ("example_too_large", 1)


_VALUES = {
    "float32": st.floats(width=32),
    "float64": st.floats(width=32),
    "int64": st.integers(0, 200) | st.integers(-(2**63), 2**63 - 1),
    "uint8": st.integers(0, 255),
    "bytes": st.binary(max_size=20),
}


_SHAPES: list[list[int | None]] = [[], [2], [40], [None], [0]]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Schema, pa.RecordBatch]:
    features: dict[str, Any] = {}
    columns: dict[str, list[Any]] = {}
    rows = draw(st.integers(1, 12))
    for name in draw(st.lists(st.sampled_from(["a", "ab", "b", "long" * 30]), unique=True, max_size=4)):
        dtype = draw(st.sampled_from(list(_VALUES)))
        shape = draw(st.sampled_from(_SHAPES))
        encodings = ["list"] if dtype == "bytes" else ["list", "raw", "tensor"]
        nullable = draw(st.booleans())
        encoding = draw(st.sampled_from(encodings))
        features[name] = {"dtype": dtype, "shape": shape, "nullable": nullable, "encoding": encoding}
        # Few different rows, so that sizes recur.
        width = st.integers(0, 3) if shape == [None] else st.just(math.prod(dim or 0 for dim in shape))
        sizes = draw(st.lists(width, min_size=1, max_size=3))
        rows_of = [draw(st.lists(_VALUES[dtype], min_size=size, max_size=size)) for size in sizes]
        choice = [row if shape else row[0] for row in rows_of]
        one = st.sampled_from(choice) | st.none() if nullable else st.sampled_from(choice)
        columns[name] = draw(st.lists(one, min_size=rows, max_size=rows))
    schema = Schema.from_json({"features": features})
    arrow = arrow_schema(schema)
    if not features:
        empty: Any = pa.array([{}] * rows, pa.struct([]))
        return schema, pa.RecordBatch.from_struct_array(empty)
    arrays = [pa.array(columns[column.name], column.type) for column in arrow]
    return schema, pa.RecordBatch.from_arrays(arrays, schema=arrow)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(batches(), st.sampled_from([1, 200, 1000, 100_000]))
def test_rows_written_together_are_those_written_one_by_one(
    table: tuple[Schema, pa.RecordBatch], block_bytes: int
) -> None:
    schema, batch = table
    options = RecordsEncodeOptions(lossy=True)

    def written(batches: list[pa.RecordBatch]) -> bytes:
        blocks = encode_blocks(from_arrow(schema, iter(batches)), options, Budget())
        return b"".join(block.data for block in blocks)

    alone = b"".join(written([batch.slice(row, 1)]) for row in range(batch.num_rows))
    with mock.patch.object(write, "BLOCK_BYTES", block_bytes):
        assert written([batch]) == alone
        assert written([batch.slice(0, 1), batch.slice(1)]) == alone
        with mock.patch.object(kernels, "_loaded", kernels.Kernels(lambda function: function)):
            assert written([batch]) == alone


@pytest.mark.parametrize("shape", [[2], [None]])
def test_narrow_tensors_are_written_in_the_low_bits_whether_or_not_the_shape_is_known(
    shape: list[int | None],
) -> None:
    schema = schema_of(dtype="int4", shape=shape, encoding="tensor")
    blocks = list(blocks_of(schema, [[-1, 7]]))
    assert bytes(blocks[0].data).endswith(bytes.fromhex("081d120412020802 2202 0f07") + blocks[0].data[-4:])
    assert read_back(schema, blocks) == [[-1, 7]]


def test_no_rows_are_no_blocks() -> None:
    schema = schema_of(dtype="int64")
    assert list(blocks_of(schema)) == []
    assert list(blocks_of(schema, [])) == []
