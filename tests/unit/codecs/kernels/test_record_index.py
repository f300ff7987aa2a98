"""Index lines: decimals as Python writes them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.kernels.record_index import write_index_lines
from app.codecs.messages.record_index import index_lines


def test_literal_lines() -> None:
    assert bytes(index_lines(0, np.array([16, 33, 1033], np.int64))) == b"0 16\n16 17\n33 1000\n"
    assert bytes(index_lines(7, np.array([], np.int64))) == b""


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**61), st.lists(st.integers(0, 2**56) | st.integers(0, 2000), max_size=20))
def test_offsets_and_sizes_of_any_length(begin: int, sizes: list[int]) -> None:
    ends = np.cumsum(np.array(sizes, np.int64), dtype=np.int64)
    expected = "".join(
        f"{begin + int(end) - size} {size}\n" for end, size in zip(ends, sizes, strict=True)
    ).encode()
    assert bytes(index_lines(begin, ends)) == expected
    out = np.zeros(40 * len(sizes), np.uint8)
    assert out[: write_index_lines(begin, ends, out)].tobytes() == expected  # not compiled
