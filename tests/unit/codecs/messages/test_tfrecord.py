"""TFRecord of rows, through the form table: frames, checksums, compression, and what is damaged."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.columns import join_batches
from app.codecs.forms import RECORDS_CODECS
from app.codecs.options import RecordsDecodeOptions
from app.domain.limits import KIB, MIB, Limits
from app.domain.losses import Losses, LostRange
from app.errors import InputError
from app.runtime.budget import Budget
from tests.support.feature_values import field
from tests.support.format_cases import PIECES, Refusal, Rows, decode, read, records, schema_of, write
from tests.support.tfrecord_frames import frame

SCHEMA = schema_of(s="bytes")
#: How much is read at once.
BLOCK = 512 * KIB


def example(value: bytes) -> bytes:
    """A `tf.train.Example` of one bytes feature."""
    return field(0x0A, field(0x0A, field(0x0A, b"s") + field(0x12, field(0x0A, field(0x0A, value)))))


def framed(values: Sequence[bytes]) -> bytes:
    return b"".join(frame(example(value)) for value in values)


def packed(data: bytes, compression: str) -> bytes:
    if compression == "none":
        return data
    return gzip.compress(data) if compression == "gzip" else zlib.compress(data)


def rows(data: bytes, **options: Any) -> Rows:
    found = read("tfrecord", data, schema=SCHEMA, **options)
    assert isinstance(found, Rows), found
    assert found.left == 0
    return found


def values(data: bytes, **options: Any) -> list[bytes]:
    return [row["s"] for row in rows(data, **options).rows]


def refused(data: bytes, **options: Any) -> Refusal:
    found = read("tfrecord", data, schema=SCHEMA, **options)
    assert isinstance(found, Refusal), found
    return found


ABC = frame(example(b"abc"))


def test_a_frame_is_that_of_tensorflows_writer() -> None:
    """What `tf.io.TFRecordWriter` writes for the record b"abc"."""
    assert frame(b"abc") == bytes.fromhex("0300000000000000 b099490e 616263 6e57f121")
    assert write("tfrecord", records([{"s": {"b64": "YWJj"}}])) == ABC


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_rows_return_in_every_compression(compression: Any) -> None:
    made = [{"x": 1, "s": "one"}, {"x": -2, "s": None}]
    plain = write("tfrecord", records(made))
    body = write("tfrecord", records(made), compression=compression)
    assert isinstance(plain, bytes)
    assert isinstance(body, bytes)
    if compression != "none":
        inflater = zlib.decompressobj(31 if compression == "gzip" else 15)
        assert (inflater.decompress(body), inflater.eof, inflater.unused_data) == (plain, True, b"")
        assert compression == "zlib" or body[4:8] == bytes(4)  # no time stamp
    schema = schema_of(x="int64", s={"dtype": "text", "nullable": True})
    for options in ({}, {"compression": compression}):
        found = read("tfrecord", body, pieces=(None, 1, 7), schema=schema, **options)
        assert isinstance(found, Rows)
        assert found.rows == [{"x": 1, "s": b"one"}, {"x": -2, "s": None}]
    inferred = read("tfrecord", body)
    assert isinstance(inferred, Rows)
    assert inferred.features == {"s": "bytes[null]?", "x": "int64[null]?"}


def test_no_rows_are_zero_bytes() -> None:
    assert write("tfrecord", records([])) == b""
    empty = write("tfrecord", records([]), compression="gzip")
    assert isinstance(empty, bytes)
    assert gzip.decompress(empty) == b""
    for body, compression in ((b"", None), (b"", "none"), (b"", "gzip"), (b"", "zlib"), (empty, None)):
        assert values(body, compression=compression) == []


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 80))
def test_records_are_the_same_at_every_split(payloads: list[bytes], chunk: int) -> None:
    assert values(framed(payloads), pieces=(None, chunk)) == payloads


def test_blocks_are_cut_at_whole_records_and_do_not_depend_on_the_split() -> None:
    payloads = [bytes([number % 251]) * (number % 3000) for number in range(2000)]
    body = framed(payloads)
    found = rows(body)
    assert [row["s"] for row in found.rows] == payloads
    assert len(found.batches) > 2
    for chunk in (977, BLOCK):
        assert rows(body, pieces=(chunk,)).batches == found.batches


def test_many_small_records_come_at_most_8192_at_a_time() -> None:
    assert rows(framed([b""] * 20_000)).batches[:2] == [8192, 8192]


@pytest.mark.parametrize("size", [BLOCK - 64, BLOCK, 5 * BLOCK])
def test_a_large_record_gets_a_block_of_its_own(size: int) -> None:
    payloads = [b"before", b"x" * size, b"after"]
    found = rows(framed(payloads), pieces=(None, 70_000))
    assert [row["s"] for row in found.rows] == payloads
    assert found.peak < 5 * size + 5 * BLOCK


def test_after_a_large_record_blocks_are_as_small_as_before() -> None:
    small, large = [bytes(1000)] * 600, bytes(2 * BLOCK)
    body = framed([*small, large, *small])
    # 507 of them make a block; the 93 that were read with the first one's end come with what is left of it.
    assert rows(body).batches == [507, 93, 1, 507, 93]
    options = RecordsDecodeOptions(schema=SCHEMA, compression="none")
    source: Any = Stretches(body, [])
    batches = RECORDS_CODECS["tfrecord"].decode(source, options, Budget()).batches
    assert [batch.num_rows for batch in batches] == [507, 93, 1, 507, 93]


def test_memory_for_a_large_record_comes_back_with_it() -> None:
    budget = Budget()
    free = budget.remaining
    body = framed([b"", bytes(4 * BLOCK), *[bytes(1000)] * 600])
    found = decode("tfrecord", body, budget, schema=SCHEMA)
    held = [free - budget.remaining for _ in found.batches]
    assert held[1] > 4 * BLOCK
    assert max(held[0], *held[2:]) < 2.5 * BLOCK


class Stretches:
    """A `ViewStream` of `data` in stretches that end at `cuts`."""

    def __init__(self, data: bytes, cuts: Sequence[int]) -> None:
        bounds = [0, *sorted(cuts), len(data)]
        self._left = [data[a:b] for a, b in pairwise(bounds) if a < b]

    def read(self, n: int, /) -> bytes:
        head = self._left.pop(0) if self._left else b""
        if len(head) > n:
            self._left.insert(0, head[n:])
        return head[:n]

    def read_view(self) -> memoryview:
        return memoryview(self._left.pop(0) if self._left else b"")

    @property
    def ended(self) -> bool:
        return not self._left


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 9000), max_size=12), st.data())
def test_records_are_the_same_where_they_lie_in_stretches(sizes: list[int], data: st.DataObject) -> None:
    whole = bytearray(framed([bytes([size % 251]) * size for size in sizes]))
    if whole and data.draw(st.booleans()):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1
    body = bytes(whole[: data.draw(st.sampled_from([len(whole), max(0, len(whole) - 5)]))])
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=4))
    wanted: Any = read("tfrecord", body, schema=SCHEMA, compression="none")
    options, budget = RecordsDecodeOptions(schema=SCHEMA, compression="none"), Budget()
    source: Any = Stretches(body, cuts)
    batches = RECORDS_CODECS["tfrecord"].decode(source, options, budget).batches
    if isinstance(wanted, Rows):
        assert sum(batch.num_rows for batch in batches) == len(wanted.rows)
    else:
        with pytest.raises(InputError) as caught:
            list(batches)
        assert repr(Refusal.of(caught.value)) == repr(wanted)
    assert budget.remaining == budget.limits.max_decoded_bytes


# What is refused.


@pytest.mark.parametrize("bit", range(0, 8 * len(ABC), 3))
def test_every_flipped_bit_is_found_with_its_record_and_offset(bit: int) -> None:
    flipped = bytearray(ABC)
    flipped[bit // 8] ^= 1 << bit % 8
    first = framed([b"first"])
    body = first + bytes(flipped) + ABC
    assert refused(body, pieces=(None, 7)) == Refusal("corrupt_record", row=1, offset=len(first))
    assert refused(bytes(flipped)) in (
        Refusal("corrupt_record", row=0, offset=0),
        Refusal("invalid_compression", offset=0),  # it may look like a header of zlib
    )


@pytest.mark.parametrize("number", range(7))
def test_flipped_bit_is_found_whichever_record_has_it(number: int) -> None:
    frames = [framed([b"%d" % index]) for index in range(7)]
    offset = sum(map(len, frames[:number]))
    body = bytearray(b"".join(frames))
    body[offset + len(frames[number]) - 5] ^= 1
    assert refused(bytes(body)) == Refusal("corrupt_record", row=number, offset=offset)


@pytest.mark.parametrize("length", [513, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_length_with_a_valid_checksum_is_not_believed(length: int) -> None:
    header = struct.pack("<Q", length)
    body = ABC + header + frame(header)[-4:] + b"ab"
    found = refused(body, limits=Limits(max_record_bytes=512))
    assert found == Refusal("record_too_large", row=1, offset=len(ABC))


def test_nothing_is_allocated_ahead_of_what_arrives() -> None:
    header = struct.pack("<Q", 500 * MIB)
    body = header + frame(header)[-4:] + b"ab"
    limits = Limits(max_decoded_bytes=2 * BLOCK)  # a length is only a claim
    assert refused(body, limits=limits) == Refusal("truncated", row=0, offset=0)


@pytest.mark.parametrize("cut", range(1, len(ABC)))
def test_a_cut_inside_a_record_is_refused(cut: int) -> None:
    for compression in ("none", "gzip", "zlib"):
        found = refused(packed(ABC + ABC[:cut], compression), compression=compression)
        assert found == Refusal("truncated", row=1, offset=len(ABC))
        assert f"{(12 if cut < 12 else len(ABC)) - cut} more bytes expected" in found.detail


def test_the_same_fault_is_named_however_the_body_arrives() -> None:
    found = read("tfrecord", ABC + ABC[:-3], pieces=PIECES, schema=schema_of(t="bytes"))
    assert found == Refusal("truncated", row=1, offset=len(ABC))


def test_a_stream_that_is_nothing_known_is_refused_as_its_first_record() -> None:
    found = refused(b'{"instances": [1, 2, 3]}')
    assert found == Refusal("corrupt_record", row=0, offset=0)
    assert "no TFRecord" in found.detail


def test_a_record_beyond_the_budget_is_refused() -> None:
    body = framed([bytes(4 * MIB)])
    assert refused(body, limits=Limits(max_decoded_bytes=2 * MIB)).code == "payload_too_large"


def test_a_row_that_is_not_as_declared_names_itself() -> None:
    found = read("tfrecord", ABC + frame(example(b"x")[:-1]), schema=SCHEMA)
    assert isinstance(found, Refusal)
    assert (found.code, found.row) == ("malformed_example", 1)
    other = read("tfrecord", ABC, schema=schema_of(x="int64"))
    assert isinstance(other, Refusal)
    assert (other.code, other.feature) == ("schema_conflict", "s")


# Compression.


def test_members_of_gzip_are_joined() -> None:
    parts = [ABC, b"", ABC[:5], ABC[5:]]
    assert values(b"".join(map(gzip.compress, parts)), pieces=(None, 1)) == [b"abc", b"abc"]


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_compressed_stream_must_be_whole(compression: Any) -> None:
    data = packed(ABC * 3, compression)
    for cut in range(1, len(data)):
        assert refused(data[:cut], compression=compression).code in ("truncated", "invalid_compression")
    assert refused(data + b"garbage").code == "trailing_bytes"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.parametrize("back", range(1, 9))
def test_a_wrong_trailer_is_found(compression: Any, back: int) -> None:
    data = bytearray(packed(ABC, compression))
    if compression == "zlib" and back > 4:
        return
    data[-back] ^= 1
    assert refused(bytes(data)).code == "invalid_compression"


def test_a_second_zlib_stream_is_refused_because_tensorflow_would_not_see_it() -> None:
    assert refused(packed(ABC, "zlib") * 2).code == "trailing_bytes"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_declared_compression_is_not_guessed(compression: Any) -> None:
    assert refused(ABC, compression=compression).code == "invalid_compression"
    assert refused(packed(ABC, compression), compression="none").code == "corrupt_record"


@pytest.mark.parametrize("level", [1, 6, 9])
def test_every_level_of_zlib_is_known_by_its_header(level: int) -> None:
    assert values(zlib.compress(ABC, level)) == [b"abc"]


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_bomb_is_refused_while_it_inflates(compression: Any) -> None:
    bomb = packed(framed([bytes(8 * MIB)]), compression)
    limits = Limits(max_amplification=100, max_decoded_bytes=4 * MIB)
    assert refused(bomb, limits=limits).code == "compression_ratio_exceeded"
    small = packed(framed([bytes(MIB // 2)]), compression)
    assert values(small, limits=Limits(max_amplification=100)) == [bytes(MIB // 2)]


# Damage that is passed over.


def test_good_records_of_a_damaged_body_are_read_and_losses_reported() -> None:
    bad = bytearray(ABC)
    bad[-1] ^= 1
    body = ABC + bytes(bad) + b"garbage" + framed([b"x"]) + ABC[:9]
    losses = Losses()
    assert values(body, pieces=(None, 1, 7), losses=losses) == [b"abc", b"x"]
    end = 2 * len(ABC) + len(b"garbage")
    assert losses.ranges == [
        LostRange(len(ABC), end - len(ABC), "bad_payload"),
        LostRange(len(body) - 9, 9, "truncated"),
    ]
    assert values(ABC, losses=losses) == [b"abc"]
    assert losses.num_ranges == 0


# Records that are no messages.

FOREIGN = [b"\xff\x00", b"", b"abc", bytes(3000), b"\x0a\x03abc"]


def test_records_of_bytes_round_trip() -> None:
    body = b"".join(map(frame, FOREIGN))
    expected = [{"value": record} for record in FOREIGN]
    for schema in (None, schema_of(value="bytes")):
        found = read("tfrecord", body, pieces=(None, 1, 7), as_bytes=True, schema=schema)
        assert isinstance(found, Rows)
        assert (found.rows, found.features, found.left) == (expected, {"value": "bytes"}, 0)
    made = decode("tfrecord", body, Budget(), as_bytes=True)
    assert write("tfrecord", made, as_bytes=True) == body
    made = decode("tfrecord", body, Budget(), as_bytes=True)
    packed_body = write("tfrecord", made, as_bytes=True, compression="gzip")
    assert isinstance(packed_body, bytes)
    assert gzip.decompress(packed_body) == body


@pytest.mark.parametrize("sizes", [[BLOCK - 1, 1, 1], [BLOCK + 1, 0], [1000] * 1500, [0] * 9000])
def test_records_of_any_size_are_written_whole(sizes: list[int]) -> None:
    body = b"".join(frame(bytes([number % 251]) * size) for number, size in enumerate(sizes))
    made = decode("tfrecord", body, Budget(), as_bytes=True)
    assert write("tfrecord", made, as_bytes=True) == body


def test_a_name_and_text_are_taken_from_the_schema() -> None:
    text = schema_of(line="text")
    found = read("tfrecord", frame("ü".encode()) + frame(b""), as_bytes=True, schema=text)
    assert isinstance(found, Rows)
    assert (found.rows, found.features) == ([{"line": "ü".encode()}, {"line": b""}], {"line": "text"})
    body = frame(b"a" * BLOCK) + frame(b"a") + frame(b"\xff") + frame(b"\xff")
    expected = Refusal("invalid_utf8", row=2, feature="line")
    assert read("tfrecord", body, as_bytes=True, schema=text) == expected
    assert write("tfrecord", records([{"line": "ü"}]), as_bytes=True) == frame("ü".encode())


@pytest.mark.parametrize(
    "features",
    [
        {"x": "int64"},
        {"x": {"dtype": "bytes", "shape": [1]}},
        {"x": {"dtype": "bytes", "shape": [None]}},
        {"x": {"dtype": "bytes", "encoding": "tensor"}},
        {"x": "bytes", "y": "bytes"},
        {},
    ],
)
def test_other_schemas_hold_no_bare_records(features: dict[str, Any]) -> None:
    schema = schema_of(**features)
    assert read("tfrecord", frame(b"a"), as_bytes=True, schema=schema) == Refusal("invalid_feature")
    made = decode("json", b"[]", Budget(), schema=schema)
    assert write("tfrecord", made, as_bytes=True) == Refusal("invalid_feature")


def test_row_without_a_value_is_refused() -> None:
    schema = schema_of(value={"dtype": "bytes", "nullable": True})
    first = records([{"value": "a"}] * 3, schema=schema)
    second = records([{"value": "a"}, {"value": None}, {"value": None}], schema=schema)
    both = replace(first, batches=chain(first.batches, second.batches))
    expected = Refusal("schema_conflict", row=4, feature="value")
    assert write("tfrecord", both, as_bytes=True) == expected


def test_damaged_bare_records_are_refused_or_passed_over() -> None:
    body = b"".join(map(frame, FOREIGN[2:]))
    broken = body[:13] + b"X" + body[14:]
    assert read("tfrecord", broken, as_bytes=True) == Refusal("corrupt_record", row=0, offset=0)
    losses = Losses()
    made = decode("tfrecord", broken, Budget(), as_bytes=True, losses=losses)
    assert write("tfrecord", made, as_bytes=True) == body[19:]
    assert losses.num_bytes == 19


def test_bare_records_are_charged() -> None:
    body = frame(bytes(3 * BLOCK))
    refusal = Refusal("payload_too_large")
    limits = Limits(max_decoded_bytes=4 * BLOCK)
    assert read("tfrecord", body, as_bytes=True, limits=limits) == refusal
    made = decode("tfrecord", body, Budget(), as_bytes=True)
    limits = Limits(max_decoded_bytes=2 * BLOCK)
    assert write("tfrecord", made, as_bytes=True, limits=limits) == refusal


def test_short_bare_records_are_written_in_blocks() -> None:
    body = frame(bytes(1000)) * 4000
    made = decode("tfrecord", body, Budget(), as_bytes=True, schema=schema_of(x="bytes"))
    whole = replace(made, batches=iter([join_batches(list(made.batches))]))
    limits = Limits(max_decoded_bytes=BLOCK + 64 * KIB)
    assert write("tfrecord", whole, as_bytes=True, limits=limits) == body


def test_zlib_with_a_preset_dictionary_is_refused() -> None:
    """Its header is that of a record of which the length is damaged."""
    header = b"\x78\xbb"
    assert int.from_bytes(header, "big") % 31 == 0
    assert read("tfrecord", header + bytes(30)) == Refusal("corrupt_record", 0, offset=0)
