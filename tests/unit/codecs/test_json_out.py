from __future__ import annotations

import base64
import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.json.out import PIECE_BYTES, b64_text, empty_text, gather, num_brackets, quote
from app.errors import UnprocessableInput


@settings(deadline=None, max_examples=60)
@given(shape=npst.array_shapes(min_dims=0, max_dims=5, min_side=1, max_side=4))
def test_brackets_are_counted_where_arrays_begin_and_end(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    text = "".join(
        "," * bool(index)
        + "[" * num_brackets(shape, index)
        + str(index)
        + "]" * num_brackets(shape, index + 1)
        for index in range(array.size)
    )
    assert json.loads(text) == array.tolist()


@pytest.mark.parametrize(("shape", "text"), [([0], "[]"), ([2, 0, 3], "[[],[]]"), ([0, 2**62], "[]")])
def test_empty_arrays(shape: list[int], text: str) -> None:
    assert empty_text(shape) == text


def test_empty_arrays_are_no_amplifier() -> None:
    started = time.perf_counter()
    for shape in ([2**40, 0], [1000, 1000, 0]):
        with pytest.raises(UnprocessableInput) as caught:
            empty_text(shape)
        assert caught.value.code == "shape_too_large"
    assert time.perf_counter() - started < 1


def test_gathered_pieces_are_bounded() -> None:
    parts = ["a", "é" * PIECE_BYTES, "b" * 10, "c" * (PIECE_BYTES - 1)]
    pieces = list(gather(parts))
    assert b"".join(pieces) == "".join(parts).encode()
    assert max(map(len, pieces)) == PIECE_BYTES
    assert list(gather([])) == []


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=20)))
def test_base64_over_the_seams_of_buffers(buffers: list[bytes]) -> None:
    data = b"".join(buffers)
    assert "".join(b64_text(buffers)) == base64.b64encode(data).decode()
    assert "".join(b64_text(buffers, "websafe")) == base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_base64_of_large_buffers_comes_in_pieces() -> None:
    data = np.random.default_rng(0).bytes(3 * PIECE_BYTES)
    pieces = list(b64_text([data[:7], data[7:]]))
    assert "".join(pieces) == base64.b64encode(data).decode()
    assert max(map(len, pieces)) <= PIECE_BYTES


def test_quoted_names_keep_their_characters() -> None:
    assert quote('é"\N{GRINNING FACE}') == '"é\\"\N{GRINNING FACE}"'
