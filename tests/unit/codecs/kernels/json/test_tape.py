from __future__ import annotations

import contextlib
import gc
import itertools
import json
import math
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.json import tape_reader
from app.codecs.json.tape import FIXED_KEYS, nest
from app.codecs.json.tape_reader import TapeReader, Unread, read_document
from app.codecs.json.text import parse_json
from app.domain.limits import Limits
from app.errors import InputError, LimitExceeded
from app.runtime.budget import Budget

LIMITS = Limits(max_json_depth=8, max_decoded_bytes=1 << 24)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*FIXED_KEYS, "a", "é", '"', ""]) | st.text(max_size=3), inner, max_size=4
        )
    ),
    max_leaves=12,
)


def tape_of(text: bytes, *, bare: bool = False) -> Any:
    return read_document(np.frombuffer(text, np.uint8), Budget(LIMITS), bare=bare)


def parsed(text: bytes, *, bare: bool = False) -> Any:
    return parse_json(text, Budget(LIMITS), bare_nonfinite=bare).value


@settings(deadline=None, max_examples=300)
@given(value=VALUES, is_ascii=st.booleans(), indent=st.none() | st.integers(0, 2))
def test_a_text_is_read_as_the_standard_parser_reads_it(
    value: Any, is_ascii: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "surrogatepass")
    try:
        expected = parsed(text)
    except InputError:
        with pytest.raises(Unread):
            tape_of(text)
    else:
        assert repr(tape_of(text).roots.python(0)) == repr(expected)


@settings(deadline=None, max_examples=500)
@given(value=VALUES, data=st.data(), bare=st.booleans())
def test_a_text_is_strict_json_where_the_standard_parser_says_so(
    value: Any, data: st.DataObject, bare: bool
) -> None:
    text = bytearray(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    pieces = [
        b",",
        b"]",
        b"}",
        b'"',
        b"\\",
        b"0",
        b"-",
        b".",
        b"e",
        b"NaN",
        b"Infinity",
        b"\n",
        b"\xff",
        b"1e400",
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(pieces))
    try:
        expected = parsed(bytes(text), bare=bare)
    except InputError:
        with pytest.raises(Unread):
            tape_of(bytes(text), bare=bare)
    else:
        assert repr(tape_of(bytes(text), bare=bare).roots.python(0)) == repr(expected)


def read_ahead(reader: TapeReader, text: bytes, size: int, num_bytes: int) -> Any:
    """The tape of a text of which so many bytes more are there each time."""
    texts = (memoryview(text[: begin + size]) for begin in range(0, len(text), size))
    return reader.read_ahead(texts, num_bytes)


def tape_of_pieces(text: bytes, size: int, budget: Budget | None = None) -> Any:
    """The tape of a text that is read each time that so many bytes more are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tape_reader, "_BLOCK_BYTES", size)
        return read_ahead(TapeReader((), budget or Budget(LIMITS), bare=True), text, size, len(text))


@settings(deadline=None, max_examples=500)
@given(value=VALUES, indent=st.none() | st.integers(0, 2), size=st.integers(1, 9), data=st.data())
def test_a_text_that_arrives_in_pieces_is_read_like_one_that_is_there(
    value: Any, indent: int | None, size: int, data: st.DataObject
) -> None:
    text = bytearray(json.dumps(value, ensure_ascii=False, indent=indent).encode("utf-8", "surrogatepass"))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(
                [b",", b"]", b"}", b'"', b"-", b"e", b" ", b"\n", b"\\", b"NaN", b"-Infinity", b"1e400"]
            )
        )
    tape = tape_of_pieces(bytes(text), size)
    try:
        whole = tape_of(bytes(text), bare=True)
    except Unread:
        assert tape is None
        return
    if tape is None:
        assert_is_left_for_the_whole(whole)
        return
    assert repr(tape.roots.python(0)) == repr(whole.roots.python(0))
    assert (tape.kinds.tolist(), tape.words.tolist()) == (whole.kinds.tolist(), whole.words.tolist())


def assert_is_left_for_the_whole(whole: Any) -> None:
    """It has more entries than its beginning promised."""
    assert len(whole.kinds) + len(whole.strings) >= 64


@pytest.mark.parametrize(
    "text",
    [
        b"[1,2.5,-3e2, 4 ,5]",
        b" [ ] ",
        b'{"a":[1,2,null,4],"b":{"c":[[],[1],[1,"x"]]}}',
        b"[[1,2],[3,4] , [5,6]]\n",
        b'{"dtype":"float32","shape":[3],"data":[1.0,2.0,-0.5]}  ',
        b"12345",
        b'"a \\u00e9 text"',
        b"[true,false,null,NaN,-Infinity,Infinity]",
        b'[{"key":1},{"key":2},{"other":[{}]}]',
        b"[123456789012345678901234567890,1e400,0.12345678901234567890123456789]",
        b"123456789012345678901234567890",
    ],
)
def test_a_text_may_be_cut_anywhere(text: bytes) -> None:
    whole = tape_of(text, bare=True)
    for size in range(1, len(text) + 1):
        tape = tape_of_pieces(text, size)
        assert repr(tape.roots.python(0)) == repr(whole.roots.python(0))
        assert (tape.kinds.tolist(), tape.words.tolist()) == (whole.kinds.tolist(), whole.words.tolist())


@pytest.mark.parametrize(
    "text",
    [
        b"[1,2,]",
        b"[1 2]",
        b"[1,2}",
        b"[1,2",
        b"[01]",
        b"[1]]",
        b"[1],",
        b'{"a":1,"a":2}',
        b'{"a" 1}',
        b'"ab',
        b'"\xff"',
        b"tru",
        b"1 2",
        b"",
        b"[" * 9 + b"]" * 9,
    ],
)
def test_malformed_text_in_pieces_makes_no_tape(text: bytes) -> None:
    budget = Budget(LIMITS)
    for size in range(1, len(text) + 1):
        assert tape_of_pieces(text, size, budget) is None
    assert budget.remaining == LIMITS.max_decoded_bytes


def test_pieces_that_end_early_or_are_too_many_make_no_tape() -> None:
    reader = TapeReader((), Budget(LIMITS), bare=False)
    for size in (3, 4, 6, 7):
        assert read_ahead(reader, b"[1,2,3]", size, 8) is None
        assert read_ahead(reader, b"[1,2,3]", size, 6) is None
        assert read_ahead(reader, b"[1,2,3] ", size, 7) is None
        assert read_ahead(reader, b"[1,2,3]", size, 7).roots.python(0) == [1, 2, 3]


def test_a_tape_of_pieces_is_charged_like_one_of_the_whole() -> None:
    text = b"[" + b"0.25," * 200_000 + b"1]"
    budget = Budget()
    tape = tape_of_pieces(text, 100_000, budget)
    assert tape.num_bytes >= tape.kinds.nbytes + tape.words.nbytes
    assert budget.remaining == budget.limits.max_decoded_bytes - tape.num_bytes


def test_a_tape_that_the_budget_may_not_hold_is_left_for_a_reader_of_all_of_it() -> None:
    text = b"[" + b"0.25," * 200_000 + b"1]"
    small = Budget(Limits(max_decoded_bytes=4 << 20))
    assert tape_of_pieces(text, 100_000, small) is None
    assert small.remaining == 4 << 20


def test_a_string_that_does_not_end_is_not_held_without_end() -> None:
    text = b'["' + b"x" * (3 << 20) + b'"]'
    assert tape_of_pieces(text, 65_536, Budget()) is None


def test_several_texts_lie_on_one_tape_and_the_first_that_is_wrong_is_named() -> None:
    text = np.frombuffer(b'{"a":1}|{"a":[2,"x"],"b":null}|{"a"', np.uint8)
    starts, ends = np.array([0, 8, 31]), np.array([7, 30, 35])
    reader = TapeReader(["a"], Budget(), bare=False)
    roots = reader.read(text, starts[:2], ends[:2]).roots
    assert [roots.python(index) for index in range(2)] == [{"a": 1}, {"a": [2, "x"], "b": None}]
    with pytest.raises(Unread) as caught:
        reader.read(text, starts, ends)
    assert caught.value.index == 2


@pytest.mark.parametrize("size", [1, 500, 4_000])
def test_a_tape_keeps_its_values_while_others_are_read(size: int) -> None:
    budget = Budget()
    first_value = {"key": [{"a": "text", "b": [1, 2.5]}] * size, "other": "x" * size}
    other_value = [{"another": ["y", 1], "key": True}] * size
    first = tape_of(json.dumps(first_value).encode())
    other = TapeReader(["another"], budget, bare=False)
    text = np.frombuffer(json.dumps(other_value).encode(), np.uint8)
    for _ in range(2):
        tape = other.read(text, np.zeros(1, np.int64), np.array([len(text)]))
        assert tape.roots.python(0) == other_value
        held = (tape.kinds, tape.words, tape.strings.data, tape.strings.offsets)
        assert tape.num_bytes >= sum(array.nbytes for array in held)
        assert budget.remaining == budget.limits.max_decoded_bytes - tape.num_bytes
        budget.release(tape.num_bytes)
    assert first.roots.python(0) == first_value


def test_a_small_text_is_charged_before_its_tape_is_made() -> None:
    text = np.frombuffer(b"[" + b"1," * 2_000 + b"1]", np.uint8)
    budget = Budget(Limits(max_decoded_bytes=2_001 * 9))
    with pytest.raises(LimitExceeded):
        read_document(text, budget, bare=False)
    assert budget.remaining == 2_001 * 9


def test_a_text_does_not_lead_into_the_next_one() -> None:
    reader = TapeReader([], Budget(), bare=False)
    for text, cut in ((b"[1 ,2]", 2), (b'"ab"', 2), (b"[1] [2]", 7), (b"12", 1)):
        starts, ends = np.array([0, cut]), np.array([cut, len(text)])
        if text == b"12":
            assert reader.read(np.frombuffer(text, np.uint8), starts[:1], ends[1:]).roots.python(0) == 12
        with pytest.raises(Unread) as caught:
            reader.read(np.frombuffer(text, np.uint8), starts, ends)
        assert caught.value.index == 0


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 5000])
def test_tape_has_room_for_all_values_and_keys(count: int) -> None:
    value = [[[] for _ in range(count)], {f"k{index}": "v" for index in range(count)}, {"": {}}]
    text = json.dumps(value, separators=(",", ":")).encode()
    budget = Budget()
    tape = read_document(np.frombuffer(text, np.uint8), budget, bare=False)
    assert tape.roots.python(0) == value
    assert budget.remaining + tape.num_bytes == Limits().max_decoded_bytes


@pytest.mark.parametrize(
    "text", ["[1, 2.5,\n-3 ]", "[1,[2,3],[4,true,5],[]]", '[1,"x"]', "[18446744073709551616,1]"]
)
def test_arrays_of_numbers_alone_are_read_as_all_others(text: str) -> None:
    assert tape_of(text.encode()).roots.python(0) == json.loads(text)
    for end in range(len(text)):
        with pytest.raises(Unread):
            tape_of(text[:end].encode())


def test_keys_of_one_slot_cannot_be_made_without_the_seed() -> None:
    # The second eight letters undo what the first change, unless that has spread to bits nobody can foresee.
    pieces = (b"aaaaaaa1aaaaaaa1", b"aaaaaaaqaaaacaaq")
    keys = [b"".join(key) for key in itertools.product(pieces, repeat=10)]
    slots = np.full(1 << 16, -1, np.int64)
    offsets = np.arange(len(keys) + 1) * 160
    kernels.load().add_keys(
        np.frombuffer(b"".join(keys), np.uint8), offsets, len(keys), slots, 0x1B872B4F9D3C
    )
    assert (np.diff(np.flatnonzero(slots >= 0)) > 1).mean() > 0.9


def test_a_tape_shows_nothing_of_the_one_before() -> None:
    names = ("a", "b")
    texts = [
        (b'{"a": 1, "b": 2}', {"a": 1, "b": 2}),
        (b'{"x": 1, "b": 2, "y": 3}', {"x": 1, "b": 2, "y": 3}),
        (b'{"y": 1, "a": 2, "z": 3}', {"y": 1, "a": 2, "z": 3}),
        (b'{"a": 1, "a": 2}', None),
        (b'{"a": 1, "w": {"a": 2', None),
        (b'{"b": {"b": {"a": 1}}}', {"b": {"b": {"a": 1}}}),
        (b'{"w": 1, "x": 1, "w": 2}', None),
        (b'[{"a": 1}, {"b": 2, "a": 1}, {"a": 3}]', [{"a": 1}, {"b": 2, "a": 1}, {"a": 3}]),
    ]
    kept = []
    for first, second in itertools.product(texts, texts):
        for text, expected in (first, second):
            array = np.frombuffer(text, np.uint8)
            if expected is None:
                with pytest.raises(Unread):
                    read_document(array, Budget(LIMITS), bare=False, names=names)
                continue
            tape = read_document(array, Budget(LIMITS), bare=False, names=names)
            assert tape.roots.python(0) == expected
            assert len(tape.keys) == len(FIXED_KEYS) + 2 + len(set(re.findall(rb"[w-z]", text)))
            kept.append((tape, expected))
    assert all(tape.roots.python(0) == expected for tape, expected in kept)
    other = read_document(np.frombuffer(b'{"a": 1}', np.uint8), Budget(LIMITS), bare=False, names=("c", "d"))
    assert other.roots.member_names(0) == ["a"]
    assert len(other.keys) == len(FIXED_KEYS) + 3


@pytest.mark.parametrize("names", [("k" * 100_000,), tuple(f"k{index}" for index in range(5_000))])
def test_a_thread_keeps_no_large_table_of_keys(names: tuple[str, ...]) -> None:
    for some in (names, ()):  # what the process keeps, and then another table in its place
        read_document(np.frombuffer(b"{}", np.uint8), Budget(), bare=False, names=some)
    tracemalloc.start()
    try:
        read_document(np.frombuffer(b"{}", np.uint8), Budget(), bare=False, names=names)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1 << 16
    finally:
        tracemalloc.stop()


def test_tables_of_many_keys_are_not_kept() -> None:
    kernels.compile_all()
    text = np.frombuffer(json.dumps({f"k{index}": 0 for index in range(50_000)}).encode(), np.uint8)
    tracemalloc.start()
    try:
        read_document(text, Budget(), bare=False)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("limit", "arrays"), [(230_000, 1 << 17), (1 << 30, 1 << 18)])
def test_a_reader_keeps_no_table_of_the_keys_that_it_met(limit: int, arrays: int) -> None:
    """But the arrays in which it reads."""
    text = np.frombuffer(json.dumps({f"key-{index}": 0 for index in range(1_200)}).encode(), np.uint8)
    starts, ends = np.array([0]), np.array([len(text)])
    budget = Budget(Limits(max_decoded_bytes=limit))
    TapeReader((), Budget(), bare=False).read(text, starts, ends)  # what a thread keeps for all
    reader = TapeReader((), budget, bare=False)
    tracemalloc.start()
    try:
        with contextlib.suppress(LimitExceeded):
            budget.release(reader.read(text, starts, ends).num_bytes)
        gc.collect()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < arrays
    assert peak < limit + (1 << 16)


def test_items_open_to_their_children() -> None:
    items, counts = tape_of(b"[[1,2],[3,4],[5,6]]").roots.open()[0].open()
    assert (items.words.tolist(), counts.tolist()) == ([1, 2, 3, 4, 5, 6], [2, 2, 2])
    items, counts = tape_of(b"[[1],[],[2,3]]").roots.open()[0].open()
    assert (items.words.tolist(), counts.tolist()) == ([1, 2, 3], [1, 0, 2])
    flat, _ = tape_of(b"[1,2,3,4,5,6]").roots.open()
    nested = nest(flat, (3, 1, 2))
    assert [nested.python(index) for index in range(3)] == [[[1, 2]], [[3, 4]], [[5, 6]]]


def test_numbers_that_take_all_their_digits_are_exact() -> None:
    tokens = [
        "0.1234567890123456789012345678901",
        "9007199254740992.99999999999999999999999",
        "1e400",
        "-1e-400",
    ]
    items, _ = tape_of(f"[{','.join(tokens)}]".encode()).roots.open()
    found = [items.python(index) for index in range(len(tokens))]
    assert list(map(repr, found)) == [repr(float(token)) for token in tokens]
    assert math.isinf(found[2])
