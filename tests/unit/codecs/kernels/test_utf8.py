from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.codecs.kernels.utf8 import valid_utf8


def python_reads(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.binary(max_size=8) | st.text(max_size=4).map(str.encode))
@example(b"\xc0\x80")  # overlong
@example(b"\xe0\x9f\xbf")
@example(b"\xed\xa0\x80")  # a surrogate
@example(b"\xf0\x8f\xbf\xbf")
@example(b"\xf4\x90\x80\x80")  # beyond U+10FFFF
@example(b"\xf4\x8f\xbf\xbf")
@example(b"\xe2\x82")
def test_bytes_are_utf8_exactly_where_python_says_so(data: bytes) -> None:
    padded = np.frombuffer(b"\x80" + data + b"\x80", np.uint8)
    assert valid_utf8(padded, 1, 1 + len(data)) == python_reads(data)


@pytest.mark.parametrize("lead", range(256))
def test_every_lead_byte_is_judged_like_python(lead: int) -> None:
    for second in (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0):
        for tail in (b"", b"\x80", b"\x80\x80", b"\x80\x80\x80"):
            data = bytes([lead, second]) + tail
            assert valid_utf8(np.frombuffer(data, np.uint8), 0, len(data)) == python_reads(data)
