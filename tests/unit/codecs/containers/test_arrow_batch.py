"""The batch of one list, as Arrow's own writer writes it."""

import io
import struct

import pyarrow as pa
import pytest

from app.codecs.arrow.batch import list_type, read_batch_head, serialize_batch

ITEMS = [pa.int8(), pa.uint16(), pa.float16(), pa.float32(), pa.int64(), pa.binary(8), pa.binary(16)]


def written(item: pa.DataType, count: int) -> bytes:
    """A stream of one row with a list of zeros."""
    values = pa.Array.from_buffers(item, count, [None, pa.py_buffer(bytes(count * item.bit_width // 8))])
    column = pa.Array.from_buffers(pa.list_(item, count), 1, [None], children=[values])
    batch = pa.record_batch({"x": column})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


@pytest.mark.parametrize("count", [1, 3, 8, 70_000])
@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_what_stands_around_the_values_is_arrows_own(item: pa.DataType, count: int) -> None:
    schema = pa.schema({"x": pa.list_(item, count)})
    before, behind = serialize_batch(schema, item, count)
    data = written(item, count)
    assert before + bytes(count * item.bit_width // 8) + behind == data
    head = read_batch_head(data[:4096])
    assert head is not None
    assert (head.schema, head.name, head.offset) == (schema, "x", len(before))


def test_anything_else_is_left_to_the_reader_of_the_whole() -> None:
    data = written(pa.float32(), 3)
    begin = read_batch_head(data)
    assert begin is not None
    for at in range(begin.offset):
        assert read_batch_head(data[:at]) is None
    for at in range(8 + struct.unpack_from("<i", data, 4)[0], begin.offset):
        assert read_batch_head(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None
    for item in (pa.bool_(), pa.string()):
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, pa.schema({"x": pa.list_(item, 1)})) as writer:
            writer.write_batch(pa.record_batch({"x": pa.array([[None]], pa.list_(item, 1))}))
        assert read_batch_head(sink.getvalue()) is None


def test_lists_of_one_size_in_the_order_of_their_axes() -> None:
    plain = pa.list_(pa.int32(), 6)
    found = list_type(pa.fixed_shape_tensor(pa.int32(), [2, 3]))
    assert found is not None
    assert (found.list_size, list_type(plain)) == (6, plain)
    assert list_type(pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])) is None
    assert list_type(pa.list_(pa.int32())) is None
