from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.kernels import crc32c


def bitwise(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def plain(data: bytes) -> int:
    return int(crc32c.crc32c(np.frombuffer(data, np.uint8), 0, len(data)))


# RFC 3720, appendix B.4.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
    ],
)
def test_the_vectors_of_the_rfc(data: bytes, expected: int) -> None:
    assert plain(data) == expected
    assert (
        int(kernels.load().extend_crc(np.uint64(0), np.frombuffer(data, np.uint8), 0, len(data))) == expected
    )


@pytest.mark.parametrize("size", [3071, 3072, 3073, 6144, 10_000])
def test_the_lanes_of_long_buffers_join(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    expected = bitwise(data)
    assert plain(data) == expected
    assert int(kernels.load().extend_crc(np.uint64(0), np.frombuffer(data, np.uint8), 0, size)) == expected


@given(st.binary(max_size=80), st.integers(0, 80))
def test_a_crc_can_be_taken_in_pieces(data: bytes, cut: int) -> None:
    view = np.frombuffer(data, np.uint8)
    cut = min(cut, len(data))
    for extend in (crc32c.extend_crc, kernels.load().extend_crc):
        first = np.uint64(extend(np.uint64(0), view, 0, cut))
        assert int(extend(first, view, cut, len(data))) == bitwise(data)


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), min_size=6, max_size=6))
def test_three_crcs_are_those_of_each(data: bytes, cuts: list[int]) -> None:
    view = np.frombuffer(data, np.uint8)
    ranges = [sorted(min(cut, len(data)) for cut in cuts[index : index + 2]) for index in (0, 2, 4)]
    found = crc32c.three_crcs(view, *ranges[0], *ranges[1], *ranges[2])
    assert [int(crc) for crc in found] == [bitwise(data[begin:end]) for begin, end in ranges]


@pytest.mark.parametrize(("begin", "end"), [(-1, 2), (2, 1), (0, 6)])
def test_ranges_outside_the_data_are_refused(begin: int, end: int) -> None:
    data = np.zeros(5, np.uint8)
    for extend in (crc32c.extend_crc, kernels.load().extend_crc):
        with pytest.raises(IndexError):
            extend(np.uint64(0), data, begin, end)
    with pytest.raises(IndexError):
        crc32c.three_crcs(data, 0, 1, begin, end, 0, 1)
    with pytest.raises(IndexError):
        crc32c.word_crc(data, 0)


def test_the_mask_is_tensorflows() -> None:
    # crc32c_test.cc: masking is not the identity, and wraps around.
    assert int(crc32c.mask_crc(np.uint64(0))) == 0xA282EAD8
    assert int(crc32c.mask_crc(np.uint64(0xFFFFFFFF))) == (0xFFFFFFFF + 0xA282EAD8) & 0xFFFFFFFF
    assert (
        int(crc32c.mask_crc(np.uint64(0x00008001)))
        == ((0x8001 >> 15 | 0x8001 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    )
