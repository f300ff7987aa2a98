from __future__ import annotations

import numpy as np
import pytest

from app.codecs import kernels
from app.codecs.kernels.json_array import COUNT, END, NOT_INTEGERS, RANK, READ, SEEN, SPAN, WIDE
from app.codecs.kernels.json_number import DECIMAL, NEGATIVE, UNREAD


def read(
    text: bytes, *, as_floats: bool = False, position: int = 0, room: int = 16, max_rank: int = 4
) -> tuple[int, list[int], list[int], list[int]]:
    """The status, the words, the shape, and what was found."""
    values, found = np.zeros(room, np.uint64), np.zeros(6, np.int64)
    shape, lengths = np.zeros(max_rank, np.int64), np.zeros(max_rank, np.int64)
    data = np.frombuffer(text, np.uint8)
    kernel = kernels.load().read_number_array
    status = kernel(data, position, int(as_floats), values, shape, lengths, found)
    return status, values[: found[COUNT]].tolist(), shape[: found[RANK]].tolist(), found.tolist()


@pytest.mark.parametrize(
    ("text", "values", "shape"),
    [
        (b"[1]", [1], [1]),
        (b"[1,2,3]", [1, 2, 3], [3]),
        (b" [ 1 ,\t2\r\n,3 ] ", [1, 2, 3], [3]),
        (b"[[1,2],[3,4],[5,6]]", [1, 2, 3, 4, 5, 6], [3, 2]),
        (b"[ [ [ 1 ] , [ 2 ] ] ]", [1, 2], [1, 2, 1]),
        (b"[[[[7]]]]", [7], [1, 1, 1, 1]),
        (b"[[1],[2],[3],[4]]", [1, 2, 3, 4], [4, 1]),
    ],
)
def test_nested_arrays_are_flat_values_and_a_shape(text: bytes, values: list[int], shape: list[int]) -> None:
    status, words, found_shape, found = read(text)
    assert (status, words, found_shape) == (READ, values, shape)
    assert found[END] == len(text.rstrip())


@pytest.mark.parametrize(
    "text",
    [
        b"", b" ", b"[", b"]", b"[]", b"[[]]", b"[[],[]]",
        b"[1", b"[1,", b"[1,]", b"[,1]", b"[1 2]", b"[1,,2]", b"1",
        b"[1,[2]]", b"[[1],2]",
        b"[[1,2],[3]]", b"[[1],[2,3]]", b"[[[1]],[2]]", b"[[1],[[2]]]", b"[[1][2]]",
        b"[[1],]", b"[[1],[2],", b"[[1]", b"[[1}", b"{1}", b"[true]", b"[null]", b'["1"]', b"[{}]", b"[1,[]]",
        b"[[1],[]]", b"[[],[1]]", b"[1\x0b]", b"[\xa01]", b"[[[[[1]]]]]", b"\xef\xbb\xbf[1]", b"[[1,2],[3,4]",
        b"[[[1],[2]],[[3]]]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_floats", [False, True])
def test_anything_else_is_not_read(text: bytes, as_floats: bool) -> None:
    assert read(text, as_floats=as_floats)[0] == UNREAD


def test_it_begins_anywhere_and_leaves_what_follows() -> None:
    status, words, shape, found = read(b'{"data":[1,2]}', position=8)
    assert (status, words, shape, found[END]) == (READ, [1, 2], [2], 13)
    assert read(b"[1]]")[3][END] == 3


@pytest.mark.parametrize("text", [b"[1,2.5]", b"[1e2]", b"[-0]", b"[[1],[2.0]]"])
def test_integers_end_where_a_float_begins(text: bytes) -> None:
    assert read(text)[0] == NOT_INTEGERS
    assert read(text, as_floats=True)[0] == READ


def test_what_was_seen_is_told() -> None:
    assert read(b"[1,-2]")[3][SEEN] == NEGATIVE
    assert read(b"[1,2.5]", as_floats=True)[3][SEEN] == DECIMAL
    assert read(b"[3,-2.5]", as_floats=True)[3][SEEN] == DECIMAL | NEGATIVE
    assert read(b"[9223372036854775807]")[3][WIDE] == 0
    assert read(b"[1,9223372036854775808]")[3][WIDE] == 1
    assert read(b"[-9223372036854775808]")[3][WIDE] == 0
    assert read(b"[16777216,0.5]", as_floats=True)[3][SPAN] == 1
    assert read(b"[[0.5],[16777217]]", as_floats=True)[3][SPAN] == 25


def test_the_arrays_bound_what_is_read() -> None:
    assert read(b"[1,2,3]", room=3)[0] == READ
    assert read(b"[1,2,3]", room=2)[0] == UNREAD
    assert read(b"[1]", room=0)[0] == UNREAD
    assert read(b"[[1]]", max_rank=2)[0] == READ
    assert read(b"[[1]]", max_rank=1)[0] == UNREAD
    assert read(b"[1]", max_rank=0)[0] == UNREAD


def test_a_text_that_is_cut_off_is_not_read() -> None:
    text = b"[[-1.25e1, 22222222222, 3], [4, 5.5, 1e5]]"
    assert read(text, as_floats=True)[0] == READ
    for size in range(len(text)):
        assert read(text[:size], as_floats=True)[0] == UNREAD
