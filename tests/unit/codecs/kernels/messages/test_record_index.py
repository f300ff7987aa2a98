"""Index lines: decimals as Python writes them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.kernels.messages.record_index import MAX_LINE_BYTES

PLAIN = kernels.Kernels(lambda function: function)
KERNELS = ["compiled", "plain"]


def lines(kernel: str, begin: int, ends: list[int]) -> bytes:
    out = np.zeros(MAX_LINE_BYTES * len(ends), np.uint8)
    write = (kernels.load() if kernel == "compiled" else PLAIN).write_index_lines
    return out[: write(begin, np.array(ends, np.int64), out)].tobytes()


@pytest.mark.parametrize("kernel", KERNELS)
def test_literal_lines(kernel: str) -> None:
    assert lines(kernel, 0, [16, 33, 1033]) == b"0 16\n16 17\n33 1000\n"
    assert lines(kernel, 7, []) == b""


@pytest.mark.parametrize("kernel", KERNELS)
@settings(deadline=None, max_examples=50)
@given(begin=st.integers(0, 2**61), sizes=st.lists(st.integers(0, 2**56) | st.integers(0, 2000), max_size=20))
def test_offsets_and_sizes_of_any_length(kernel: str, begin: int, sizes: list[int]) -> None:
    ends = np.cumsum(np.array(sizes, np.int64), dtype=np.int64).tolist()
    expected = "".join(f"{begin + end - size} {size}\n" for end, size in zip(ends, sizes, strict=True))
    assert lines(kernel, begin, ends) == expected.encode()
