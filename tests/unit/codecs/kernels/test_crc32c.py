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


def test_the_mask_is_tensorflows() -> None:
    # crc32c_test.cc: masking is not the identity, and wraps around.
    assert int(crc32c.mask_crc(np.uint64(0))) == 0xA282EAD8
    assert int(crc32c.mask_crc(np.uint64(0xFFFFFFFF))) == (0xFFFFFFFF + 0xA282EAD8) & 0xFFFFFFFF
    assert (
        int(crc32c.mask_crc(np.uint64(0x00008001)))
        == ((0x8001 >> 15 | 0x8001 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    )
