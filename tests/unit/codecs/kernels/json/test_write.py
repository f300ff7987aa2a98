from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.codecs import kernels
from app.codecs.kernels import Kernels

PLAIN = Kernels(lambda function: function)
BOTH = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
BYTES_TO_SPELL = st.lists(st.binary(max_size=7), max_size=5)
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=5)


def kernel(compiled: bool) -> Kernels:
    return kernels.load() if compiled else PLAIN


def array(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text, np.uint8)


def room(items: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.full(items, -1, np.int64), np.full(items, -1, np.int64)


def packed(strings: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The strings behind two bytes that are none of theirs."""
    offsets = np.cumsum([2, *map(len, strings)], dtype=np.int64)
    return array(b"\xff\xff" + b"".join(strings)), offsets


def cut(data: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[bytes]:
    return [data[begin:end].tobytes() for begin, end in zip(begins, ends, strict=True)]


@BOTH
@pytest.mark.parametrize("text", [b"1", b"1,2.5,-3e+20", b'"NaN",null,0'])
def test_numbers_lie_between_commas(compiled: bool, text: bytes) -> None:
    data = array(text)
    begins, ends = room(text.count(b",") + 1)
    kernel(compiled).find_scalars(data, begins, ends)
    assert cut(data, begins, ends) == text.split(b",")


@BOTH
@settings(deadline=None, max_examples=40)
@given(shape=st.lists(st.integers(1, 4), min_size=2, max_size=4), low=st.integers(0, 10**9))
def test_arrays_end_with_the_last_of_their_brackets(compiled: bool, shape: list[int], low: int) -> None:
    values = low + np.arange(np.prod(shape)).reshape(shape)
    rows = [json.dumps(row, separators=(",", ":")).encode() for row in values.tolist()]
    data = array(b",".join(rows))
    begins, ends = room(len(rows))
    kernel(compiled).find_arrays(data, rows[0].count(b"]"), begins, ends)
    assert cut(data, begins, ends) == rows


@BOTH
@settings(deadline=None, max_examples=40)
@given(
    lists=st.lists(st.lists(st.text("ab]", max_size=3), max_size=3), max_size=4), gap=st.sampled_from([1, 2])
)
def test_lists_hold_their_items_however_far_those_lie_apart(
    compiled: bool, lists: list[list[str]], gap: int
) -> None:
    items = [item.encode() for items in lists for item in items]
    data = array(b",".ljust(gap, b"#").join(items))
    sizes = np.array([len(item) for item in items], np.int64)
    begins = np.cumsum(sizes + gap) - sizes - gap
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    out = np.zeros(len(data) + 3 * len(lists), np.uint8)
    found = room(len(lists))
    size = kernel(compiled).write_lists(data, begins, begins + sizes, offsets, out, *found)
    expected = [f"[{','.join(items)}]".encode() for items in lists]
    assert out[:size].tobytes() == b",".join(expected)
    assert cut(out, *found) == expected


@BOTH
def test_spans_are_written_after_their_key_at_the_cursors(compiled: bool) -> None:
    data = array(b"abc")
    begins, ends = np.array([1, 0], np.int64), np.array([3, 0], np.int64)
    cursors, out = np.array([3, 0], np.int64), np.full(6, ord("-"), np.uint8)
    kernel(compiled).append_spans(array(b"k"), data, begins, ends, cursors, out)
    assert (out.tobytes(), cursors.tolist()) == (b"k--kbc", [6, 1])


@BOTH
@settings(deadline=None, max_examples=50)
@given(texts=TEXTS)
def test_strings_are_escaped_as_python_does(compiled: bool, texts: list[str]) -> None:
    check_quoted(kernel(compiled), texts)


@BOTH
def test_every_control_character_is_escaped(compiled: bool) -> None:
    check_quoted(kernel(compiled), [chr(code) for code in range(0x80)] + ["é\u2028\N{GRINNING FACE}"])


def check_quoted(loaded: Kernels, texts: list[str]) -> None:
    data, offsets = packed([text.encode() for text in texts])
    size = loaded.quoted_size(data, offsets)
    out = np.zeros(size, np.uint8)
    found = room(len(texts))
    loaded.write_quoted(data, offsets, out, *found)
    expected = [json.dumps(text, ensure_ascii=False).encode() for text in texts]
    assert cut(out, *found) == expected
    assert out[: max(size - 1, 0)].tobytes() == b",".join(expected)


@BOTH
def test_the_first_string_that_is_not_utf8_is_named(compiled: bool) -> None:
    data, offsets = packed([b"a", "é".encode(), b"\xff", b"\xff"])
    assert kernel(compiled).quoted_size(data, offsets) == -1 - 2


@BOTH
@settings(deadline=None, max_examples=50)
@given(values=BYTES_TO_SPELL)
def test_base64_in_both_alphabets(compiled: bool, values: list[bytes]) -> None:
    data, offsets = packed(values)
    standard = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for alphabet, padding in ((standard, b"="), (standard[:62] + b"-_", b"")):
        out = np.zeros(100, np.uint8)
        found = room(len(values))
        arguments = array(b"<"), data, offsets, array(alphabet), array(padding), array(b">")
        size = kernel(compiled).write_b64(*arguments, out, *found)
        encode = base64.b64encode if padding else base64.urlsafe_b64encode
        expected = [b"<" + encode(value) + b">" for value in values]
        if not padding:
            expected = [text.replace(b"=", b"") for text in expected]
        assert cut(out, *found) == expected
        assert out[:size].tobytes() == b",".join(expected)
