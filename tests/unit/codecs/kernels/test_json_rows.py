from __future__ import annotations

import numpy as np
import pytest

from app.codecs import kernels
from app.codecs.kernels.json_rows import ANY, FLOAT, INTEGER, TEXT


def read(text: bytes, num_values: int = 9) -> tuple[int, list[int], bytes, list[int], list[int]]:
    """Rows of `n`, an integer up to 9, `t`, a text or null, and `x`, any number of pairs of floats."""
    starts = [0, *(index + 1 for index, byte in enumerate(text[:-1]) if byte == 0x0A)]
    ends = [*(start - 1 for start in starts[1:]), len(text.rstrip(b"\n"))]
    rows = len(starts)
    values, chars = np.zeros(num_values, np.uint64), np.zeros(len(text), np.uint8)
    begins, counts = np.full(3 * rows, -1), np.zeros(3 * rows, np.int64)
    read = kernels.load().read_rows(
        np.frombuffer(text, np.uint8),
        np.array(starts),
        np.array(ends),
        np.frombuffer(b"ntx", np.uint8),
        np.arange(4),
        np.array([INTEGER, TEXT, FLOAT]),
        np.array([9, 5, 0, 0, 24, 0], np.uint64),
        np.array([0, 1, 0]),
        np.array([ANY, 2]),
        np.array([0, 0, 0, 2]),
        np.zeros(4, np.int64),
        np.zeros(3, np.int64),
        np.zeros(2, np.int64),
        values,
        chars,
        begins,
        counts,
    )
    return read, values.tolist(), chars.tobytes().rstrip(b"\0"), begins.tolist(), counts.tolist()


def test_cells_say_where_values_lie() -> None:
    text = b'{"n":1,"t":"ab","x":[[1,2],[3,4]]}\n{"x":[],"n":-5}\n{"t":null,"x":[[5,6]],"n":9}\n'
    found, values, chars, begins, counts = read(text)
    assert found == 3
    floats = np.array([1, 2, 3, 4, 5, 6], np.float64).view(np.uint64).tolist()
    assert values == [1, *floats[:4], 2**64 - 5, *floats[4:], 9]
    assert chars == b"ab"
    assert begins == [0, 5, 8, 0, -1, -1, 1, 5, 6]
    assert counts == [1, 1, 1, 2, 0, 0, 4, 0, 2]


@pytest.mark.parametrize(
    "line",
    [
        b'{"n":10,"x":[]}',
        b'{"n":-6,"x":[]}',
        b'{"n":null,"x":[]}',
        b'{"n":1,"n":1,"x":[]}',
        b'{"n":1}',
        b'{"n":1,"x":[[1]]}',
        b'{"n":1,"x":[[16777217,1]]}',
        b'{"n":1,"x":[],"y":1}',
        b'{"n":1,"x":[]}}',
        b'{"n":1,"x":[]',
        b"{}",
        b"",
    ],
)
def test_the_walk_ends_at_a_row_that_is_not_plain(line: bytes) -> None:
    good = b'{"n":1,"x":[[1,2]]}\n'
    assert read(good + line + b"\n" + good)[0] == 1


def test_the_room_for_values_bounds_what_is_read() -> None:
    line = b'{"n":1,"x":[[1,2]]}\n'
    assert read(line * 2, num_values=6)[0] == 2
    assert read(line * 2, num_values=5)[0] == 1


def test_cells_are_gathered_row_by_row() -> None:
    data, out = np.arange(10, dtype=np.uint8), np.zeros(6, np.uint8)
    kernels.load().gather_cells(
        data, np.array([3, -1, 0]), np.array([1, 0, 1]), 2, np.array([0, 1, 2, 3]), out
    )
    assert out.tolist() == [6, 7, 0, 0, 0, 1]
