from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from app.codecs.arrow.batches import arrow_schema
from app.codecs.messages import write
from app.codecs.messages.framing import iter_frames
from app.codecs.messages.sequence_decode import parse_sequences
from app.codecs.messages.write import RecordBlock, encode_blocks
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.errors import LimitExceeded, LossyConversion, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.arrow_rows import as_arrow, from_arrow
from tests.feature_values import payloads


def schema_of(**feature: Any) -> Schema:
    feature = {"shape": [None], "kind": "sequence"} | feature
    return Schema.from_json({"features": {"x": feature}})


def blocks_of(
    schema: Schema, *columns: list[Any], lossy: bool = False, budget: Budget | None = None
) -> Iterator[RecordBlock]:
    arrow = arrow_schema(schema)
    batches = [pa.RecordBatch.from_pylist([{"x": v} for v in column], schema=arrow) for column in columns]
    return encode_blocks(
        from_arrow(schema, iter(batches)), RecordsEncodeOptions(lossy=lossy), budget or Budget()
    )


def read_back(schema: Schema, blocks: list[RecordBlock]) -> list[Any]:
    data = b"".join(block.data for block in blocks)
    frames = iter_frames(MemoryStream(data), Budget())
    records = parse_sequences(frames, RecordsDecodeOptions(schema=schema), Budget())
    return [row["x"] for batch in as_arrow(records) for row in batch.to_pylist()]


def test_a_sequence_example_byte_by_byte() -> None:
    schema = Schema.from_json(
        {
            "features": {
                "x": {"dtype": "int64", "shape": [None, None], "kind": "sequence", "nullable": True},
                "b": {"dtype": "bytes", "shape": [None], "kind": "sequence"},
                "c": {"dtype": "float32", "nullable": True},
            }
        }
    )
    rows: list[dict[str, Any]] = [{"x": [[1], []], "b": [b"s"], "c": 1.5}, {"x": None, "b": [], "c": None}]
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))
    blocks = encode_blocks(from_arrow(schema, iter([batch])), RecordsEncodeOptions(), Budget())
    assert payloads(b"".join(block.data for block in blocks)) == [
        bytes.fromhex(
            "0a0f 0a0d 0a0163 1208 1206 0a04 0000c03f"
            "1220 0a0c 0a0162 1207 0a05 0a03 0a0173"
            "     0a10 0a0178 120b 0a05 1a03 0a0101 0a02 1a00"
        ),
        bytes.fromhex("0a00 1207 0a05 0a0162 1200"),
    ]


@pytest.mark.parametrize("dtype", ["float64", "uint64"])
def test_what_a_list_cannot_hold_is_refused_by_dtype_before_the_first_batch(dtype: str) -> None:
    schema = schema_of(dtype=dtype)
    with pytest.raises(LossyConversion) as caught:
        blocks_of(schema, [[1]])
    assert caught.value.location.feature == "x"
    assert read_back(schema, list(blocks_of(schema, [[1]], lossy=True))) == [[1]]


def test_a_float64_that_float32_cannot_hold_is_refused_with_its_row() -> None:
    schema = schema_of(dtype="float64", shape=[None, 2], nullable=True)
    fine: list[Any] = [[[1.0, 3.4e38], [0.0, 1.0]], None, []]
    assert len(list(blocks_of(schema, fine, lossy=True))) == 1
    with pytest.raises(LossyConversion) as caught:
        list(blocks_of(schema, fine, [[], [[0.5, 1.0]], [[0.5, 1.0], [1.0, 1e39]], []], lossy=True))
    assert (caught.value.location.row, caught.value.location.feature) == (5, "x")


def test_what_lies_under_a_null_is_not_looked_at() -> None:
    schema = schema_of(dtype="float64", nullable=True)
    mask = pa.array([False, True])
    steps = pa.array([1.0, 1e300, 2.0])
    column: Any = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), steps, mask=mask)
    batch = pa.RecordBatch.from_arrays([column], schema=arrow_schema(schema))
    records = from_arrow(schema, iter([batch]))
    blocks = list(encode_blocks(records, RecordsEncodeOptions(lossy=True), Budget()))
    assert read_back(schema, blocks) == [[1.0], None]


def test_blocks_are_of_bounded_size_and_hold_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "BLOCK_BYTES", 5000)
    schema = schema_of(dtype="bytes")
    sizes = [10, 3000, 10, 10_000, 5, 1000, 3000, 3000]
    values = [[bytes([index]) * size] for index, size in enumerate(sizes)]
    budget = Budget()
    blocks = list(blocks_of(schema, values, budget=budget))
    assert [block.num_records for block in blocks] == [3, 1, 3, 1]
    assert all(len(block.data) <= 5000 or block.num_records == 1 for block in blocks)
    assert read_back(schema, blocks) == values
    assert budget.remaining == budget.limits.max_decoded_bytes


def test_large_rows_are_lowered_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_CHUNK_BYTES", 3000)
    schema = schema_of(dtype="uint8", shape=[None, 5])
    values = [[[row] * 5] * 20 for row in range(50)]
    budget = Budget()
    assert read_back(schema, list(blocks_of(schema, values, budget=budget))) == values
    assert budget.peak < 10 * 5000


def test_rows_are_numbered_through_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_CHUNK_BYTES", 16)
    schema = schema_of(dtype="float64")
    with pytest.raises(LossyConversion) as caught:
        list(blocks_of(schema, [[0.0]] * 7, [[0.0]] * 3 + [[0.0, 1e300]], lossy=True))
    assert caught.value.location.row == 10


def test_a_row_beyond_the_budget_is_refused() -> None:
    schema = schema_of(dtype="bytes")
    with pytest.raises(LimitExceeded):
        list(blocks_of(schema, [[b"x" * MIB]], budget=Budget(Limits(max_decoded_bytes=MIB // 2))))


def test_a_row_that_protobuf_could_not_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_MAX_MESSAGE_BYTES", 100)
    schema = schema_of(dtype="bytes")
    with pytest.raises(UnprocessableInput) as caught:
        list(blocks_of(schema, [[b"x" * 50], [b"x" * 50, b"x" * 50]]))
    assert (caught.value.code, caught.value.location.row) == ("example_too_large", 1)


def test_no_rows_are_no_blocks() -> None:
    schema = schema_of(dtype="int64")
    assert list(blocks_of(schema)) == []
    assert list(blocks_of(schema, [])) == []
