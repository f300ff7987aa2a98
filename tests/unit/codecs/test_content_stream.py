"""Pieces of elements: exact lengths, other byte orders, and arrays cut out of them."""

from collections.abc import Iterator

import numpy as np
import pytest

from app.codecs.content_stream import (
    ElementReader,
    arriving_pieces,
    checked_pieces,
    materialised,
    swapped_pieces,
)
from app.codecs.tensor_stream import TensorStream
from app.domain.dtypes import BOOL, DTYPES
from app.domain.limits import Limits
from app.errors import LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream

INT32 = DTYPES["int32"]


def stream(values: list[int], sizes: list[int], drawn: list[str] | None = None) -> TensorStream:
    """The elements in pieces of these sizes; says when it was drawn to its end."""

    def content() -> Iterator[bytes]:
        left = np.array(values, "<i4").tobytes()
        for size in sizes:
            piece, left = left[:size], left[size:]
            yield piece
        assert not left
        if drawn is not None:
            drawn.append("end")

    return TensorStream(INT32, (len(values),), content())


def test_so_many_bytes_are_read_and_no_more() -> None:
    source = MemoryStream(b"abcdef", chunk=2)
    assert list(arriving_pieces(source, 3, "it")) == [b"ab", b"c"]
    assert source.read(9) == b"de"
    with pytest.raises(MalformedInput) as caught:
        list(arriving_pieces(source, 3, "it", offset=10))
    assert (caught.value.code, caught.value.location.offset) == ("truncated", 11)


def test_pieces_that_nothing_can_be_wrong_with_are_not_looked_at() -> None:
    pieces = iter([b"\x02"])
    assert checked_pieces(pieces, INT32) is pieces
    assert swapped_pieces(pieces, DTYPES["int8"]) is pieces


def test_a_bad_element_is_counted_over_all_pieces() -> None:
    with pytest.raises(UnprocessableInput, match="Element 3 ") as caught:
        list(checked_pieces(iter([b"\0\1", b"\0\2"]), BOOL, offset=100))
    assert (caught.value.code, caught.value.location.offset) == ("invalid_bool", 103)


def test_elements_are_turned_around_across_pieces() -> None:
    pieces = iter([b"\0", b"\0\0\1\0\0", b"\0\2"])
    assert b"".join(swapped_pieces(pieces, INT32)) == b"\1\0\0\0\2\0\0\0"


def test_elements_are_taken_wherever_pieces_are_cut() -> None:
    drawn: list[str] = []
    reader = ElementReader(stream([1, 2, 3, 4], [1, 8, 2, 0, 5], drawn))
    assert reader.take(1).tolist() == [1]
    assert reader.take(2).tolist() == [2, 3]
    assert drawn == []
    assert reader.take(1).tolist() == [4]
    assert drawn == ["end"]  # where the last checks are


def test_a_stream_is_held_within_the_budget() -> None:
    assert materialised(stream([1, 2], [8]), Budget()).values.tolist() == [1, 2]
    with pytest.raises(LimitExceeded):
        materialised(stream([1, 2], [8]), Budget(Limits(max_decoded_bytes=7)))
