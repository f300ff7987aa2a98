from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.json.texts import Texts, concatenated, in_lists, joined, nested, repeated, spread, text_array


def texts_of(*items: str) -> Texts:
    """Items that lie one byte apart."""
    sizes = np.array([len(item.encode()) for item in items], np.int64)
    ends = np.cumsum(sizes + 1) - 1
    return Texts(text_array(",".join(items).encode()), ends - sizes, ends)


def items(texts: Texts) -> list[str]:
    return [texts[index] for index in range(len(texts))]


def test_nulls_are_put_between() -> None:
    present = np.array([False, True, False, True])
    found = spread(texts_of("1", "é"), present)
    assert items(found) == ["null", "1", "null", "é"]
    assert bytes(joined(found)) == "null,1,null,é".encode()
    assert items(spread(texts_of(), present[:1])) == ["null"]


def test_the_same_text_again() -> None:
    assert items(repeated("[]", 2)) == ["[]", "[]"]
    assert bytes(joined(repeated("[]", 2))) == b"[],[]"
    assert bytes(joined(repeated("[]", 0))) == b""


def test_lists_take_items_by_offsets() -> None:
    found = in_lists(texts_of("1", "2", "3"), np.array([0, 0, 2, 3]))
    assert items(found) == ["[]", "[1,2]", "[3]"]
    assert found.data.tobytes() == b"[],[1,2],[3]"


@settings(deadline=None, max_examples=40)
@given(shape=st.lists(st.integers(1, 4), max_size=4), count=st.integers(0, 3))
def test_nested_arrays(shape: list[int], count: int) -> None:
    array = np.arange(count * int(np.prod(shape, dtype=int))).reshape(count, *shape)
    found = nested(texts_of(*map(str, array.reshape(-1).tolist())), shape)
    assert [json.loads(text) for text in items(found)] == array.tolist()


def test_parts_stand_one_behind_the_other() -> None:
    found = concatenated(["<", texts_of("a", "bc"), "-", "-", texts_of("", "d"), ">"], 2, "\n")
    assert items(found) == ["<a-->", "<bc--d>"]
    assert found.data.tobytes() == b"<a-->\n<bc--d>"
    assert items(concatenated([texts_of("a"), texts_of("b")], 1)) == ["ab"]
    assert concatenated(["{}"], 3, ", ").data.tobytes() == b"{}, {}, {}"
    assert len(concatenated(["{", texts_of(), "}"], 0)) == 0
