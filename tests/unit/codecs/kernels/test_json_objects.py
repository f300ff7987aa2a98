from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs import kernels


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
def test_anything_else_is_not_read(text: bytes) -> None:
    assert found(text)[0] == -1


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
