from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.kernels.json import rows


def found(text: bytes, position: int = 0, most: int = 9) -> tuple[int, list[bytes], int]:
    """How many, the objects, and where the walk has come to."""
    starts, ends = np.full(most + 1, -7), np.full(most + 1, -7)
    count = kernels.load().find_objects(np.frombuffer(text, np.uint8), position, starts, ends)
    spans = zip(starts[: max(count, 0)].tolist(), ends.tolist(), strict=False)
    return count, [text[start:end] for start, end in spans], int(starts[max(count, 0)])


def test_objects_are_found_with_what_is_in_them() -> None:
    text = b' [ {} ,\n{"a":[{"b":"]}\\"}"}]}\t, { "c" : 1 } ] '
    assert found(text, 1) == (3, [b"{}", b'{"a":[{"b":"]}\\"}"}]}', b'{ "c" : 1 }'], text.rindex(b"]"))
    assert found(b"[ ]") == (0, [], 2)


def test_a_walk_goes_on_where_it_stopped() -> None:
    text = b'[{"a":1}, {"a":2},{"a":3}]'
    count, objects, position = found(text, 0, 2)
    assert (count, objects, text[position : position + 1]) == (2, [b'{"a":1}', b'{"a":2}'], b",")
    assert found(text, position, 2) == (1, [b'{"a":3}'], len(text) - 1)


@pytest.mark.parametrize(
    "text",
    [
        b"[",
        b"[{}",
        b"[{}, ",
        b"[{",
        b'[{"a":1}',
        b'[{"a":1},',
        b'[{"a":1},]',
        b"[,{}]",
        b"[{}{}]",
        b"[{},,{}]",
        b"[{},1]",
        b"[[]]",
        b"[null]",
        b'[{"a":"]}]',
        b'[{"a":"\\"}]',
        b'[{"a":"\n"}]',
        b'[{"a":"x\\',
        b"[{}\0]",
        b"[\xa0{}]",
    ],
)
def test_the_walk_ends_before_anything_else(text: bytes) -> None:
    count, objects, position = found(text)
    assert text[position : position + 1] == (b"," if count else b"[")
    assert b"[" + b",".join(objects) == text[:position] or not count


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('ab"\\]}{[,é', max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('a"}', max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(
    rows=st.lists(st.dictionaries(st.text('ab"}', max_size=3), VALUES, max_size=3), max_size=8),
    indent=st.sampled_from([None, 0, 3]),
    ascii_only=st.booleans(),
    most=st.integers(1, 4),
)
def test_every_array_of_objects_is_cut_into_them(
    rows: list[Any], indent: int | None, ascii_only: bool, most: int
) -> None:
    text = json.dumps(rows, indent=indent, ensure_ascii=ascii_only).encode()
    objects: list[bytes] = []
    position = 0
    while text[position : position + 1] != b"]":
        count, some, position = found(text, position, most)
        assert count >= 0
        objects += some
    assert position == len(text) - 1
    assert [json.loads(item) for item in objects] == rows


def lines_of(text: bytes) -> list[tuple[int, int]]:
    """Where each whole line begins and ends."""
    ends = [position for position, byte in enumerate(text) if byte == 10]
    return list(zip([0, *(end + 1 for end in ends)], ends, strict=False))


class Finder:
    """`find_lines`, going on from one call to the next."""

    def __init__(self, most: int, enough: int) -> None:
        self.starts, self.ends = np.full(most, -7), np.full(most, -7)
        self.state = np.zeros(rows.NUM_STATE, np.int64)
        self.enough = enough

    def find(self, text: bytes) -> bool:
        array = np.frombuffer(text, np.uint8)
        return bool(kernels.load().find_lines(array, self.enough, self.starts, self.ends, self.state))

    @property
    def found(self) -> tuple[list[tuple[int, int]], int, int]:
        """The lines that are not blank, the end of all lines, and the longest."""
        begin, _, count, longest = self.state.tolist()
        spans = list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))
        assert spans[count:] == [(-7, -7)] * (len(spans) - count)
        return spans[:count], begin, longest


def expected_lines(text: bytes, most: int, enough: int) -> tuple[bool, list[tuple[int, int]], int, int]:
    spans: list[tuple[int, int]] = []
    end = longest = 0
    for start, stop in lines_of(text):
        end, longest = stop + 1, max(longest, stop - start)
        if text[start:stop].strip(b" \t\r"):
            spans.append((start, stop))
        if len(spans) == most or end >= enough:
            return True, spans, end, longest
    return False, spans, end, longest


@given(
    st.lists(st.sampled_from([b"\n", b" ", b"\t\r", b"a", b"\x0b", b"\x8a", b"b" * 7, b"c" * 33, b"\n\n"])),
    st.integers(0, 99),
    st.integers(1, 5),
    st.integers(1, 200),
)
@settings(deadline=None)
def test_lines_are_found_however_the_text_comes(parts: list[bytes], cut: int, most: int, enough: int) -> None:
    text = b"".join(parts)
    finder = Finder(most, enough)
    is_enough = finder.find(text[:cut])
    assert (is_enough, *finder.found) == expected_lines(text[:cut], most, enough)
    if not is_enough:
        assert (finder.find(text), *finder.found) == expected_lines(text, most, enough)


@pytest.mark.parametrize("size", range(70))
def test_line_ends_at_its_line_feed(size: int) -> None:
    finder = Finder(1, 1)
    assert finder.find(b"x" * size + b"\n" + b"x" * 40)
    assert finder.found == ([(0, size)] if size else [], size + 1, size)
