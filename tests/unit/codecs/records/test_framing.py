from __future__ import annotations

import gzip
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.messages import framing
from app.codecs.messages.framing import (
    FrameBlock,
    compress,
    frame_footer,
    frame_header,
    iter_frames,
    masked_crc32c,
)
from app.domain.compression import Compression
from app.domain.limits import MIB, Limits
from app.errors import LimitExceeded, MalformedInput
from app.runtime.budget import Budget
from app.runtime.streams import ByteStream, MemoryStream

# What `tf.io.TFRecordWriter` writes for the one record b"abc".
ABC = bytes.fromhex("0300000000000000 b099490e 616263 6e57f121")


#: Of the tests that need many blocks: small, since they also run on the plain kernels.
SMALL_BLOCK = 4096


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "BLOCK_BYTES", SMALL_BLOCK)


def frames(payloads: Sequence[bytes]) -> bytes:
    return b"".join(frame_header(len(payload)) + payload + frame_footer(payload) for payload in payloads)


def blocks(
    data: bytes,
    *,
    chunk: int | None = None,
    compression: Compression | None = None,
    limits: Limits | None = None,
) -> list[FrameBlock]:
    return list(iter_frames(MemoryStream(data, chunk=chunk), Budget(limits), compression=compression))


def payloads_of(found: list[FrameBlock]) -> list[bytes]:
    gathered: list[bytes] = []
    offset = 0
    for block in found:
        assert (block.first_record, block.offset) == (len(gathered), offset)
        ends = block.starts + block.sizes
        gathered += [
            bytes(block.data[a:b]) for a, b in zip(block.starts.tolist(), ends.tolist(), strict=True)
        ]
        offset += len(block.data)
    return gathered


def read(data: bytes, *, chunk: int | None = None, compression: Compression | None = None) -> list[bytes]:
    return payloads_of(blocks(data, chunk=chunk, compression=compression))


def compressed(data: bytes, compression: Compression) -> bytes:
    return b"".join(compress([data], compression))


def test_a_frame_is_tensorflows() -> None:
    assert frames([b"abc"]) == ABC
    assert read(ABC) == [b"abc"]


def test_the_checksum_runs_over_all_buffers() -> None:
    assert masked_crc32c(b"123", memoryview(b"456"), bytearray(b"789")) == masked_crc32c(b"123456789")
    assert masked_crc32c() == masked_crc32c(b"") == 0xA282EAD8
    assert frame_footer(b"a", b"bc") == ABC[-4:]


def test_an_empty_stream_holds_no_records() -> None:
    for compression in (None, "none", "gzip", "zlib"):
        assert blocks(b"", compression=compression) == []


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 80))
def test_records_are_the_same_at_every_split(payloads: list[bytes], chunk: int) -> None:
    assert read(frames(payloads), chunk=chunk) == payloads


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_compressed_stream_is_the_same_at_every_split(compression: Compression) -> None:
    payloads = [b"", b"abc", b"x" * 300]
    data = compressed(frames(payloads), compression)
    for chunk in range(1, len(data) + 1):
        assert read(data, chunk=chunk) == payloads
        assert read(data, chunk=chunk, compression=compression) == payloads


@pytest.mark.usefixtures("small_blocks")
def test_blocks_are_cut_at_whole_records_and_do_not_depend_on_the_split() -> None:
    rng = np.random.default_rng(0)
    payloads = [rng.bytes(int(size)) for size in rng.integers(0, 300, 200)]
    data = frames(payloads)
    whole = blocks(data)
    assert payloads_of(whole) == payloads
    assert len(whole) > 3
    assert max(len(block.data) for block in whole) <= SMALL_BLOCK
    assert [block.num_records for block in blocks(data, chunk=977)] == [block.num_records for block in whole]


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


def outcome(stream: ByteStream) -> tuple[list[tuple[int, bytes]], str]:
    """Where each record lies and what it is, and what ended that."""
    found: list[tuple[int, bytes]] = []
    budget = Budget()
    try:
        for block in iter_frames(stream, budget, compression="none"):
            assert block.data.readonly
            for start, size in zip(block.starts.tolist(), block.sizes.tolist(), strict=True):
                found.append((block.offset + start, bytes(block.data[start : start + size])))
    except MalformedInput as error:
        return found, f"{error.code} {error.detail} {error.location}"
    assert budget.remaining == budget.limits.max_decoded_bytes
    return found, ""


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 9000), max_size=12), st.data())
def test_records_are_the_same_where_they_lie_in_stretches(sizes: list[int], data: st.DataObject) -> None:
    whole = bytearray(frames([bytes([size % 251]) * size for size in sizes]))
    if whole and data.draw(st.booleans()):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=4))
    end = data.draw(st.sampled_from([len(whole), max(0, len(whole) - 5)]))
    body = bytes(whole[:end])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "BLOCK_BYTES", SMALL_BLOCK)
        records, error = outcome(MemoryStream(body))
        found, found_error = outcome(Stretches(body, [cut for cut in cuts if cut < end]))
    assert found_error == error
    # Of the records before a fault, those are seen that lie in an earlier block.
    common = min(len(found), len(records)) if error else len(records)
    assert found[:common] == records[:common]
    assert error or len(found) == common


def test_many_small_records_come_at_most_8192_at_a_time() -> None:
    found = blocks(frames([b""] * 20_000))
    assert [block.num_records for block in found] == [8192, 8192, 20_000 - 2 * 8192]
    assert payloads_of(found) == [b""] * 20_000


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [SMALL_BLOCK - 16, SMALL_BLOCK - 15, 20 * SMALL_BLOCK])
def test_a_large_record_gets_a_block_of_its_own(size: int) -> None:
    payloads = [b"before", b"x" * size, b"after"]
    budget = Budget()
    found = list(iter_frames(MemoryStream(frames(payloads)), budget))
    assert payloads_of(found) == payloads
    assert budget.remaining == budget.limits.max_decoded_bytes
    assert budget.peak < 3 * size + 3 * SMALL_BLOCK


@pytest.mark.usefixtures("small_blocks")
def test_a_block_stays_as_it_is_while_others_are_read() -> None:
    payloads = [bytes([number]) * 1000 for number in range(30)]
    assert payloads_of(blocks(frames(payloads))) == payloads


@pytest.mark.parametrize("bit", range(8 * len(ABC)))
def test_every_flipped_bit_is_found_with_its_record_and_offset(bit: int) -> None:
    flipped = bytearray(ABC)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MalformedInput) as caught:
        blocks(frames([b"first"]) + bytes(flipped) + ABC)
    assert caught.value.code == "corrupt_record"
    assert (caught.value.location.row, caught.value.location.offset) == (1, 21)
    with pytest.raises(MalformedInput):
        blocks(bytes(flipped))


@pytest.mark.parametrize("length", [513, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_length_with_a_valid_checksum_is_not_believed(length: int) -> None:
    budget = Budget(Limits(max_record_bytes=512))
    with pytest.raises(LimitExceeded) as caught:
        list(iter_frames(MemoryStream(ABC + frame_header(length) + b"ab"), budget))
    assert caught.value.code == "record_too_large"
    assert (caught.value.location.row, caught.value.location.offset) == (1, len(ABC))
    assert budget.peak <= 2 * framing.BLOCK_BYTES


def test_nothing_is_allocated_ahead_of_what_arrives() -> None:
    budget = Budget()
    with pytest.raises(MalformedInput):
        list(iter_frames(MemoryStream(frame_header(500 * MIB) + b"ab"), budget))
    assert budget.peak <= 2 * framing.BLOCK_BYTES


@pytest.mark.parametrize("cut", range(1, len(ABC)))
def test_a_cut_inside_a_record_is_refused(cut: int) -> None:
    for compression in ("none", "gzip", "zlib"):
        with pytest.raises(MalformedInput) as caught:
            blocks(compressed(ABC + ABC[:cut], compression))
        assert caught.value.code == "truncated"
        assert (caught.value.location.row, caught.value.location.offset) == (1, len(ABC))


def test_a_stream_that_is_nothing_known_is_refused_as_its_first_record() -> None:
    with pytest.raises(MalformedInput) as caught:
        blocks(b'{"instances": [1, 2, 3]}')
    assert (caught.value.code, caught.value.location.row, caught.value.location.offset) == (
        "corrupt_record",
        0,
        0,
    )


def test_a_record_beyond_the_budget_is_refused() -> None:
    with pytest.raises(LimitExceeded) as caught:
        blocks(frame_header(4 * MIB) + bytes(4 * MIB), limits=Limits(max_decoded_bytes=2 * MIB))
    assert caught.value.code == "payload_too_large"


def test_members_of_gzip_are_joined() -> None:
    data = gzip.compress(ABC) + gzip.compress(b"") + gzip.compress(ABC[:5]) + gzip.compress(ABC[5:])
    assert read(data) == [b"abc", b"abc"]


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_compressed_stream_must_be_whole(compression: Compression) -> None:
    data = compressed(ABC * 3, compression)
    for cut in range(1, len(data)):
        with pytest.raises(MalformedInput):
            blocks(data[:cut], compression=compression)
    with pytest.raises(MalformedInput) as caught:
        blocks(data + b"garbage")
    assert caught.value.code == "trailing_bytes"


def test_a_second_zlib_stream_is_refused_because_tensorflow_would_not_see_it() -> None:
    data = compressed(ABC, "zlib")
    with pytest.raises(MalformedInput) as caught:
        blocks(data + data)
    assert caught.value.code == "trailing_bytes"


def test_a_wrong_trailer_is_found() -> None:
    data = bytearray(compressed(ABC, "gzip"))
    data[-6] ^= 1
    with pytest.raises(MalformedInput) as caught:
        blocks(bytes(data))
    assert caught.value.code == "invalid_compression"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_declared_compression_is_not_guessed(compression: Compression) -> None:
    with pytest.raises(MalformedInput) as caught:
        blocks(ABC, compression=compression)
    assert caught.value.code == "invalid_compression"
    with pytest.raises(MalformedInput) as caught:
        blocks(compressed(ABC, compression), compression="none")
    assert caught.value.code == "corrupt_record"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_bomb_is_refused_while_it_inflates(compression: Compression) -> None:
    bomb = compressed(frame_header(8 * MIB) + bytes(8 * MIB), compression)
    budget = Budget(Limits(max_amplification=100))
    with pytest.raises(LimitExceeded) as caught:
        list(iter_frames(MemoryStream(bomb), budget))
    assert caught.value.code == "compression_ratio_exceeded"
    assert budget.peak < 4 * MIB


def test_a_small_body_may_be_very_compressible() -> None:
    data = compressed(frames([bytes(MIB // 2)]), "gzip")
    assert payloads_of(blocks(data, limits=Limits(max_amplification=100))) == [bytes(MIB // 2)]
