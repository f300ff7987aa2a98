import io
import struct
from typing import Any

import pyarrow as pa
import pytest

from app.codecs.arrow.ipc import ArrowReader
from app.domain.limits import Limits
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream

END = b"\xff\xff\xff\xff\0\0\0\0"
BATCH = pa.RecordBatch.from_pydict(
    {"x": pa.array([1, 2, 3]), "s": pa.array(["a", "b", "a"]).dictionary_encode()}
)


def written(*batches: pa.RecordBatch, file: bool = False, **options: Any) -> bytes:
    sink = io.BytesIO()
    new = pa.ipc.new_file if file else pa.ipc.new_stream
    with new(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


STREAM = written(BATCH, BATCH)
FILE = written(BATCH, BATCH, file=True)


def read(data: bytes, **limits: int) -> list[dict[str, list[Any]]]:
    reader = ArrowReader(MemoryStream(data), Budget(Limits(**limits)))
    return [batch.to_pydict() for batch in reader]


def refused(data: bytes, error: type[InputError], code: str, **limits: int) -> InputError:
    with pytest.raises(error) as caught:
        read(data, **limits)
    assert caught.value.code == code
    return caught.value


def test_both_formats() -> None:
    assert read(STREAM) == read(FILE) == [BATCH.to_pydict()] * 2


def test_memory_is_given_back_with_each_batch() -> None:
    batch = pa.RecordBatch.from_pydict({"x": pa.array(range(1000))})
    budget = Budget()
    for _ in ArrowReader(MemoryStream(written(*[batch] * 50)), budget):
        assert budget.peak < 20_000
    assert budget.limits.max_decoded_bytes - budget.remaining < 2000  # the schema


def test_a_stream_without_its_end_marker_ends_with_its_last_message() -> None:
    assert STREAM.endswith(END)
    assert read(STREAM[: -len(END)]) == read(STREAM)


@pytest.mark.parametrize("data", [STREAM, FILE])
def test_a_body_that_is_cut_short(data: bytes) -> None:
    # A stream may end wherever a message does; its schema is there by then.
    starts = {at for at in range(8, len(data)) if data is STREAM and data[at : at + 4] == END[:4]}
    for size in set(range(len(data))) - starts:
        refused(data[:size], MalformedInput, "truncated")
    for size in starts:
        assert len(read(data[:size])) <= 2


def test_what_follows_the_end() -> None:
    refused(STREAM + b"\0", MalformedInput, "trailing_bytes")
    refused(STREAM + STREAM, MalformedInput, "trailing_bytes")
    refused(FILE + b"\0", MalformedInput, "truncated")


def test_the_footer_of_a_file_names_its_batches() -> None:
    one, two = written(BATCH, file=True), FILE
    footer = one[-10 - int.from_bytes(one[-10:-6], "little") :]
    body = two[: -10 - int.from_bytes(two[-10:-6], "little")]
    refused(body + footer, MalformedInput, "invalid_arrow")
    refused(body + footer[:-10] + struct.pack("<i", 7) + b"ARROW1", MalformedInput, "invalid_arrow")
    refused(b"ARROW1\1\0" + two[8:], MalformedInput, "invalid_arrow")


@pytest.mark.parametrize("data", [b"", b"\xff", b"ARROW1\0\0"])
def test_a_body_with_nothing_in_it(data: bytes) -> None:
    with pytest.raises(MalformedInput):
        read(data)


@pytest.mark.parametrize("data", [b"hello world, this is text", STREAM[4:], b"PAR1" + bytes(100)])
def test_what_is_no_arrow(data: bytes) -> None:
    refused(data, UnprocessableInput, "unsupported_arrow")


@pytest.mark.parametrize("size", [-1, 2**31 - 1, 2**25 + 8])
def test_a_length_of_metadata_that_cannot_be(size: int) -> None:
    refused(b"\xff" * 4 + struct.pack("<i", size) + bytes(64), MalformedInput, "invalid_arrow")


def test_a_body_that_is_declared_and_not_there() -> None:
    batch = pa.RecordBatch.from_pydict({"x": pa.array(range(100))})
    data = written(batch)
    size = (800).to_bytes(8, "little")
    assert data.count(size) >= 1
    refused(data.replace(size, (2**31).to_bytes(8, "little")), LimitExceeded, "payload_too_large")
    refused(data.replace(size, (2**50).to_bytes(8, "little")), MalformedInput, "invalid_arrow")
    refused(data.replace(size, (816).to_bytes(8, "little")), MalformedInput, "truncated")


def test_a_buffer_outside_of_its_body() -> None:
    sizes = [pa.RecordBatch.from_pydict({"x": pa.array(range(100)), "y": pa.array(range(100))})]
    data = written(*sizes)
    buffer = struct.pack("<4q", 800, 0, 800, 800)
    assert data.count(buffer) == 1
    for offset, length in ((801, 800), (-8, 800), (800, -1), (2**62, 2**62)):
        refused(
            data.replace(buffer, struct.pack("<4q", 800, 0, offset, length)), MalformedInput, "invalid_arrow"
        )


def test_offsets_that_lead_out_of_their_buffer() -> None:
    batch = pa.RecordBatch.from_pydict({"x": pa.array(["ab", "cd", "ef"])})
    offsets = struct.pack("<4i", 0, 2, 4, 6)
    data = written(batch)
    assert data.count(offsets) == 1
    for wrong in ((0, 2, 4, 2**30), (0, -2, 4, 6), (0, 4, 2, 6)):
        refused(data.replace(offsets, struct.pack("<4i", *wrong)), MalformedInput, "invalid_arrow")


def test_text_that_is_not_utf8() -> None:
    data = written(pa.RecordBatch.from_pydict({"x": pa.array(["grüße" * 4])}))
    refused(data.replace("ü".encode(), b"\xff\xff"), MalformedInput, "invalid_arrow")


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffers_are_charged_before_they_are_inflated(codec: str) -> None:
    batch = pa.RecordBatch.from_pydict({"x": pa.array([bytes(2**22)])})
    data = written(batch, compression=codec)
    assert len(data) < 2**17
    assert read(data)[0]["x"] == [bytes(2**22)]
    refused(data, LimitExceeded, "payload_too_large", max_decoded_bytes=2**21)
    begin = data.rindex((2**22).to_bytes(8, "little"))
    declared = data[begin : begin + 16]
    refused(
        data.replace(declared, (2**62).to_bytes(8, "little") + declared[8:]),
        LimitExceeded,
        "payload_too_large",
    )
    refused(
        data.replace(declared, (-2).to_bytes(8, "little", signed=True) + declared[8:]),
        MalformedInput,
        "invalid_arrow",
    )


def test_dictionaries_in_pieces_and_big_endian_numbers() -> None:
    longer = pa.RecordBatch.from_arrays(
        [
            pa.array([1]),
            pa.DictionaryArray.from_arrays(pa.array([3], pa.int32()), pa.array(["a", "b", "c", "d"])),
        ],
        schema=BATCH.schema,
    )
    pieces = written(BATCH, longer, emit_dictionary_deltas=True)
    refused(pieces, UnprocessableInput, "unsupported_arrow")
    replaced = written(BATCH, longer)
    assert read(replaced)[1] == {"x": [1], "s": ["d"]}


def test_tensors_are_no_batches() -> None:
    sink = io.BytesIO()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(pa.array([1, 2, 3]).to_numpy()), pa.PythonFile(sink, "w"))
    refused(sink.getvalue(), UnprocessableInput, "unsupported_arrow")


def nested(depth: int) -> pa.DataType:
    layout: pa.DataType = pa.int8()
    for _ in range(depth):
        layout = pa.list_(layout)
    return layout


def test_a_schema_that_is_too_deep() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([], nested(40))], names=["x"])
    refused(written(batch), LimitExceeded, "schema_too_large")


def shared_fields(fan: int, depth: int) -> bytes:
    """A schema message of which every level has `fan` children that are all one table."""
    # Laid out backwards: FlatBuffers point forward, so the root stands first.
    out = bytearray(struct.pack("<I", 16) + bytes(12))
    # message: vtable at 4 (12 bytes), table at 16
    out[4:16] = struct.pack("<6H", 12, 16, 4, 6, 8, 0)
    out += struct.pack("<i", 12) + struct.pack("<hBxI", 4, 1, 0) + bytes(4)
    position = len(out) + 12
    struct.pack_into("<I", out, 16 + 8, position - 24)
    # schema: vtable (8 bytes: size, size of table, endianness, fields), padded
    out += struct.pack("<4H", 8, 8, 0, 4) + bytes(4)
    out += struct.pack("<iI", 12, 4)
    for _ in range(depth):
        start = len(out)
        table = start + 4 + 4 * fan + 16
        out += struct.pack("<I", fan)
        out += b"".join(struct.pack("<I", table - (start + 4 + 4 * i)) for i in range(fan))
        out += struct.pack("<8H", 16, 8, 0, 0, 0, 0, 0, 4)
        out += struct.pack("<iI", 16, 4)
    out += struct.pack("<I", 0) + bytes(4)
    out += bytes(-len(out) % 8)
    return b"\xff" * 4 + struct.pack("<i", len(out)) + bytes(out)


def test_a_schema_of_shared_tables_is_counted_as_the_tree_that_it_spells() -> None:
    data = shared_fields(fan=100, depth=10)
    assert len(data) < 10_000
    refused(data, LimitExceeded, "schema_too_large")
