"""Salvage: every good record is kept, every other byte is named, and hostile input costs little."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.compression import Compression
from app.domain.limits import KIB, MIB, Limits
from app.domain.losses import LostRange
from app.errors import LimitExceeded, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from app.services.convert.repair import repair_records
from tests.support.bodies import stream_of
from tests.support.tfrecord_frames import frame

SMALL = Limits(max_record_bytes=1000)


def frames(payloads: Sequence[bytes]) -> bytes:
    return b"".join(map(frame, payloads))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]


def salvaged(
    data: bytes,
    *,
    chunk: int | None = None,
    compression: Compression | None = None,
    limits: Limits = SMALL,
) -> tuple[bytes, list[LostRange]]:
    budget = Budget(limits)
    repair = repair_records(stream_of(data, chunk), compression, budget)
    good = b"".join(repair.chunks)
    assert repair.num_bytes == len(good)
    assert budget.remaining == limits.max_decoded_bytes
    return good, repair.losses.ranges


RECORDS = [b"first", b"second record", b"", b"fourth" * 20]
STARTS = [0, 21, 50, 66]
BODY = frames(RECORDS)


def test_undamaged_file_is_returned_unchanged() -> None:
    assert salvaged(BODY) == (BODY, [])
    assert salvaged(b"") == (b"", [])


@pytest.mark.parametrize("record", range(4))
@pytest.mark.parametrize(
    ("field", "reason"), [(0, "bad_length"), (8, "bad_length"), (12, "bad_payload"), (-1, "bad_payload")]
)
def test_a_flipped_bit_costs_its_record_alone(record: int, field: int, reason: str) -> None:
    start, size = STARTS[record], len(RECORDS[record]) + 16
    at = start + (field if field >= 0 else size + field)
    good, lost = salvaged(flipped(BODY, at))
    assert good == frames([payload for index, payload in enumerate(RECORDS) if index != record])
    assert lost == [LostRange(start, size, reason, reason == "bad_payload")]


def test_adjacent_damaged_payloads_are_each_reported() -> None:
    good, lost = salvaged(flipped(flipped(BODY, 12), 21 + 12))
    assert good == frames(RECORDS[2:])
    assert lost == [LostRange(0, 21, "bad_payload", True), LostRange(21, 29, "bad_payload", True)]


@pytest.mark.parametrize("end", [1, 11, 12, 20])
def test_a_file_cut_short_keeps_what_is_whole(end: int) -> None:
    assert salvaged(BODY + BODY[:end]) == (BODY, [LostRange(len(BODY), end, "truncated")])


def test_a_file_cut_short_and_carried_on_by_another_loses_the_cut_record_alone() -> None:
    cut = frame(b"x" * 500)[:300]
    assert salvaged(cut + BODY + BODY) == (BODY + BODY, [LostRange(0, 300, "bad_payload")])
    assert salvaged(cut + BODY) == (BODY, [LostRange(0, 300, "truncated")])


@pytest.mark.parametrize("garbage", [b"\0" * 1000, b"\xff" * 1000, bytes(range(256)) * 10])
def test_garbage_around_records_is_skipped(garbage: bytes) -> None:
    good, lost = salvaged(garbage + BODY + garbage + BODY + garbage)
    assert good == BODY + BODY
    size = len(garbage)
    assert [(item.offset, item.num_bytes) for item in lost] == [
        (0, size),
        (size + len(BODY), size),
        (2 * size + 2 * len(BODY), size),
    ]


def test_records_inside_a_damaged_record_are_not_taken_for_records() -> None:
    nested = frame(frames([b"inner", b"other"]) + b"tail")
    body = frame(b"a") + flipped(nested, len(nested) - 5) + frame(b"b")
    assert salvaged(body) == (
        frame(b"a") + frame(b"b"),
        [LostRange(17, len(nested), "bad_payload", True)],
    )


def test_a_record_larger_than_allowed_is_lost() -> None:
    large = frame(b"x" * 1001)
    assert salvaged(BODY + large + BODY) == (
        BODY + BODY,
        [LostRange(len(BODY), len(large), "record_too_large")],
    )


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_gzip_that_ends_early_gives_what_came_before(compression: Compression | None) -> None:
    body = frames([bytes([value]) * 50 for value in range(200)])
    packed = gzip.compress(body, mtime=0)
    for end in (len(packed) - 1, len(packed) - 9, len(packed) // 2):
        good, lost = salvaged(packed[:end], compression=compression)
        assert body.startswith(good)
        assert len(good) > len(body) // 3
        assert (lost[-1].num_bytes, lost[-1].reason) == (0, "truncated")
    assert salvaged(packed, compression=compression) == (body, [])


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_a_wrong_checksum_of_the_whole_costs_no_record(compress: object) -> None:
    packed = zlib.compress(BODY) if compress is zlib.compress else gzip.compress(BODY)
    good, lost = salvaged(flipped(packed, len(packed) - 5 if compress is gzip.compress else len(packed) - 1))
    assert good == BODY
    assert lost == [LostRange(len(BODY), 0, "invalid_compression")]


def test_bytes_after_a_zlib_stream_are_reported() -> None:
    assert salvaged(zlib.compress(BODY) + b"more") == (BODY, [LostRange(len(BODY), 0, "trailing_bytes")])


def test_damage_inside_gzip_gives_every_record_before_it() -> None:
    body = frames([struct.pack("<Q", value * 2654435761) * 5 for value in range(2000)])
    packed = gzip.compress(body, 9, mtime=0)
    good, lost = salvaged(flipped(packed, len(packed) // 2))
    assert body.startswith(good[: len(body) // 4])
    assert lost


def test_damaged_length_like_zlib_is_not_compression() -> None:
    body = frame(b"x" * 0x0178) + BODY
    assert body[:2] == b"\x78\x01"
    assert salvaged(flipped(body, 8)) == (BODY, [LostRange(0, 0x0178 + 16, "bad_length")])


def test_good_length_like_gzip_is_not_compression() -> None:
    head = frame(bytes(0x088B1F))[:12]
    assert head[:3] == b"\x1f\x8b\x08"
    # Nothing that is wrong in gzip, but too little of it.
    assert salvaged(head, limits=Limits()) == (b"", [LostRange(0, 12, "truncated")])


def test_declared_to_be_uncompressed_nothing_is_detected() -> None:
    packed = gzip.compress(BODY)
    good, lost = salvaged(packed, compression="none")
    assert (good, lost) == (b"", [LostRange(0, len(packed), "bad_length")])


def test_a_bomb_is_refused() -> None:
    with pytest.raises(LimitExceeded) as caught:
        salvaged(gzip.compress(bytes(16 * MIB), 1), limits=Limits(max_amplification=100))
    assert caught.value.code == "compression_ratio_exceeded"


def test_records_in_many_blocks_are_kept() -> None:
    payloads = [bytes([value % 251]) * (value % 900) for value in range(3000)]
    body = frames(payloads)
    assert salvaged(body) == (body, [])
    damaged = b"\1" * MIB + body + b"\2" * MIB + body
    good, lost = salvaged(damaged)
    assert good == body + body
    assert [item.num_bytes for item in lost] == [MIB, MIB]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=60), st.binary(max_size=40).map(frame)), max_size=8),
    st.integers(1, 40),
)
def test_every_split_alike_and_nothing_good_is_lost(pieces: list[bytes], chunk: int) -> None:
    body = b"".join(pieces)
    good, lost = salvaged(body, compression="none")
    assert salvaged(body, compression="none", chunk=chunk) == (good, lost)
    assert salvaged(good, compression="none") == (good, [])
    assert len(good) + sum(item.num_bytes for item in lost) == len(body)


def hostile(size: int, claim: int) -> bytes:
    """Good lengths one after the other, each of which promises `claim` bytes."""
    length = struct.pack("<Q", claim)
    return (length + frame(length)[-4:]) * (size // 12)


def test_lengths_that_promise_much_are_given_up_in_time() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        salvaged(hostile(8 * MIB, 2 * MIB + 1), limits=Limits(max_record_bytes=4 * MIB))
    assert caught.value.code == "too_damaged"


def test_long_payloads_with_good_records_inside_are_given_up_in_time() -> None:
    """Each length has its payload checked in vain, and the record behind it is good."""
    body = (frame(bytes(64 * KIB))[:12] + frame(b"")) * 8000
    with pytest.raises(UnprocessableInput) as caught:
        salvaged(body, limits=Limits())
    assert caught.value.code == "too_damaged"


@pytest.mark.parametrize("claim", [0, 100 * MIB])
def test_many_good_lengths_without_a_record_are_given_up_in_time(claim: int) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        salvaged(hostile(MIB, claim), limits=Limits())
    assert caught.value.code == "too_damaged"


def test_damage_in_too_many_places_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.domain.losses.MAX_RANGES", 3)  # a million take too long
    bad = flipped(frame(b"x"), 12)
    assert len(salvaged(bad * 3)[1]) == 3
    with pytest.raises(UnprocessableInput) as caught:
        salvaged(bad * 4)
    assert caught.value.code == "too_damaged"


def test_a_few_lengths_that_promise_more_than_there_is_are_passed_over() -> None:
    body = hostile(32 * KIB, 100 * MIB)
    good, lost = salvaged(body, limits=Limits())
    assert (good, lost) == (b"", [LostRange(0, len(body), "truncated")])


def test_memory_stays_within_the_record() -> None:
    limits = Limits(max_record_bytes=64 * KIB)
    budget = Budget(limits)
    repair = repair_records(MemoryStream(b"\7" * (16 * MIB)), "none", budget)
    assert b"".join(repair.chunks) == b""
    assert [item.offset for item in repair.losses.ranges] == [0]
    assert budget.peak < 2 * MIB


def test_losses_are_counted_and_the_first_are_named() -> None:
    body = b"".join(flipped(frame(b"x"), 12) + frame(b"y") for _ in range(1500))
    repair = repair_records(MemoryStream(body), None, Budget())
    assert b"".join(repair.chunks) == frame(b"y") * 1500
    found, losses = repair.to_json(), repair.losses
    assert (found["num_records"], found["num_bytes"]) == (1500, 1500 * 17)
    assert (losses.num_ranges, losses.num_bytes, len(losses.ranges)) == (1500, 1500 * 17, 1000)
    assert found["lost"]["ranges"][1] == {"offset": 34, "num_bytes": 17, "reason": "bad_payload"}
