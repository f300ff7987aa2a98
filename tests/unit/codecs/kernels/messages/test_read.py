from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.codecs import kernels
from app.codecs.kernels.messages import head, keys, layout, read
from app.codecs.kernels.messages.keys import MODE_CELL, MODE_CONTENT, MODE_FLOATS, MODE_INTS, MODE_SPAN
from app.codecs.kernels.messages.read import (
    AMBIGUOUS,
    DONE,
    FEATURE_LISTS,
    FEATURES,
    FOREIGN,
    FULL,
    MALFORMED,
    SEQUENCE,
    UNFIT,
)
from app.codecs.kernels.messages.wire import (
    KIND_ABSENT,
    KIND_BYTES,
    KIND_FLOAT,
    KIND_INT64,
    KIND_MIXED,
    KIND_NONE,
)
from tests.support.example_messages import example, floats, ints, lists, strings
from tests.support.feature_values import field

PLAIN = kernels.Kernels(lambda function: function)
ROOM = 64


@pytest.fixture(params=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest) -> kernels.Kernels:
    return kernels.load() if request.param == "compiled" else PLAIN


class Reading:
    """The arrays of calls of `read_messages` for the feature x and the feature list x.

    Args:
        mode, kind, width, prefix: of the feature.
        room: how many unknown features can be noted.
    """

    def __init__(
        self,
        mode: int = MODE_CELL,
        kind: int = KIND_ABSENT,
        width: int = 0,
        prefix: bytes = b"",
        room: int = 1,
    ) -> None:
        self.mode = mode
        self.texts = np.frombuffer(b"x" + prefix, np.uint8)
        self.table = np.zeros((2 + keys.NUM_PARTS, keys.KEY_FIELDS), np.int64)
        self.table[0, :9] = mode, kind, width, 8, 1, 1 + len(prefix), 0, 1, 1
        self.table[1, :9] = MODE_CELL, KIND_ABSENT, 0, 0, 1, 1, 0, 1, 2
        self.table[3, keys.NEXT] = 1
        self.heads = np.zeros(3 * head.HEAD_SLOTS * head.HEAD_BYTES, np.uint8)
        self.layouts = np.zeros(layout.layouts_size(1), np.int64)
        self.words = np.zeros(layout.LAYOUTS * layout.layout_words(1), np.uint64)
        self.unknown = np.zeros(read.UNKNOWN_FIELDS * room, np.int64)

    def read(
        self, kernel: kernels.Kernels, data: bytes, starts: list[int], sizes: list[int], is_sequence: int = 1
    ) -> int:
        self.data = np.frombuffer(data, np.uint8)
        rows = len(starts)
        self.table[:, keys.FITTING] = 0
        self.kinds = np.zeros((2, rows), np.uint8)
        numbers = np.zeros((4, 2, rows), np.int64)
        self.begins, self.ends, self.counts, self.num_bytes = numbers
        self.arena = np.zeros(ROOM, np.uint8)
        self.stop = np.zeros(read.STOP_FIELDS, np.int64)
        return kernel.read_messages(
            self.data, np.array(starts, np.int64), np.array(sizes, np.int64), is_sequence,
            self.table.reshape(-1), self.texts, 1, self.heads, self.layouts, self.words,
            self.kinds.reshape(-1), numbers.reshape(-1), rows, self.arena, self.unknown, self.stop,
        )  # fmt: skip

    @property
    def fitting(self) -> NDArray[np.int64]:
        """By key, how many rows have it as the mode says."""
        return self.table[:2, keys.FITTING]

    def read_all(self, kernel: kernels.Kernels, *messages: bytes, is_sequence: int = 1) -> int:
        sizes = [len(message) for message in messages]
        starts = [sum(sizes[:row]) for row in range(len(messages))]
        return self.read(kernel, b"".join(messages), starts, sizes, is_sequence)

    def found(self) -> list[object]:
        """All that is defined."""
        arrays = (self.kinds, self.fitting, self.unknown, self.stop[:3], self.arena)
        cells = [
            (self.begins[part, row], self.ends[part, row], self.counts[part, row])
            for part, row in np.argwhere(self.kinds).tolist()
            if part == FEATURE_LISTS or self.mode not in (MODE_FLOATS, MODE_INTS)
        ]
        return [*(array.tolist() for array in arrays), cells]


def test_both_parts_are_found(kernel: kernels.Kernels) -> None:
    reading = Reading()
    message = example(x=ints(1, 300)) + lists(x=[ints(1), ints(2)])
    assert reading.read(kernel, b"ab" + message, [2, 2], [len(message), 0]) == DONE
    assert reading.kinds.tolist() == [[KIND_INT64, KIND_ABSENT]] * 2
    begin, end = int(reading.begins[FEATURES, 0]), int(reading.ends[FEATURES, 0])
    assert reading.data[begin:end].tobytes() == ints(1, 300)
    assert reading.counts[:, 0].tolist() == [2, 2]
    assert reading.num_bytes[FEATURE_LISTS, 0] == 1  # value in each step


@pytest.mark.parametrize(
    ("mode", "kind", "width", "good", "odd", "wrong", "arena"),
    [
        (MODE_FLOATS, KIND_FLOAT, 2, floats(1, 2), floats(1) + floats(2), floats(1), floats(1, 2)[4:]),
        (MODE_INTS, KIND_INT64, 2, ints(1, 300), ints(1) + ints(300), ints(1), b"\1" + bytes(7) + b"\x2c\1"),
        (MODE_CONTENT, KIND_BYTES, 2, strings(b"pab"), strings() + strings(b"pab"), strings(b"qab"), b"ab"),
    ],
)
def test_fitting_values_are_contiguous(
    kernel: kernels.Kernels,
    mode: int,
    kind: int,
    width: int,
    good: bytes,
    odd: bytes,
    wrong: bytes,
    arena: bytes,
) -> None:
    reading = Reading(mode, kind, width, b"p" if mode == MODE_CONTENT else b"")
    itemsize = {MODE_FLOATS: 8, MODE_INTS: 16, MODE_CONTENT: 2}[mode]
    for value in (good, odd):
        rows = [example(x=value), b"", example(x=wrong), example(x=wrong) + example(x=value)]
        assert reading.read_all(kernel, *rows) == DONE
        assert reading.kinds[FEATURES].tolist() == [kind, KIND_ABSENT, kind | UNFIT, kind]
        assert reading.fitting.tolist() == [2, 0]
        assert reading.arena[:8].tolist() == [0] * 8
        for place in (8, 8 + itemsize):
            assert reading.arena[place : place + len(arena)].tobytes() == arena
    rows = [example(x=good) + example(x=wrong), example(x=good) + example(x=b""), example(x=good)]
    assert reading.read_all(kernel, *rows) == DONE
    assert reading.kinds[FEATURES].tolist() == [kind | UNFIT, KIND_ABSENT, kind]
    assert reading.fitting.tolist() == [1, 0]
    assert not reading.arena[8 + itemsize + len(arena) :].any()


def test_the_one_value_is_found(kernel: kernels.Kernels) -> None:
    reading = Reading(MODE_SPAN, KIND_BYTES)
    rows = [example(x=strings(b"ab")), example(x=strings() + strings(b"c")), example(x=strings())]
    assert reading.read_all(kernel, *rows) == DONE
    spans = zip(reading.begins[0].tolist(), reading.ends[0].tolist(), strict=True)
    assert [reading.data[begin:end].tobytes() for begin, end in spans][:2] == [b"ab", b"c"]
    assert reading.kinds[FEATURES].tolist() == [KIND_BYTES, KIND_BYTES, KIND_BYTES | UNFIT]
    assert reading.counts[FEATURES].tolist() == [1, 1, 0]


@pytest.mark.parametrize(("start", "size"), [(-1, 5), (0, 100), (100, 0), (0, -1)])
def test_records_outside_the_data_are_refused(kernel: kernels.Kernels, start: int, size: int) -> None:
    assert Reading().read(kernel, example(x=ints(1)), [start], [size]) == MALFORMED


@pytest.mark.parametrize(
    ("message", "is_sequence", "reason"),
    [
        (b"\x0a\x05", 1, MALFORMED),
        (b"\x0b\x0c", 1, MALFORMED),
        (lists(x=[b"\x1a\x03\x0a\x01\x80"]), 1, MALFORMED),
        (lists(x=[b"\x12\x05\x0a\x03abc"]), 1, MALFORMED),
        (lists(x=[b"\x0a\x03\x0a\x02a"]), 1, MALFORMED),
        (example({"y": b"\x12\x7f"}), 1, MALFORMED),
        (field(0x0A, field(0x0A, b"\x0a\x01\xff")), 1, MALFORMED),  # no UTF-8
        (lists(), 0, SEQUENCE),
        (example(x=ints(1) + floats(1)), 0, AMBIGUOUS),
        (lists(x=[ints(1) + floats(1)]), 1, AMBIGUOUS),
        (b"\x18\x01", 0, FOREIGN),
        (b"\x0a\x02\x18\x01", 1, FOREIGN),
        (b"\x18\x01" + example(y=b""), 0, DONE),
        (b"\x18\x01" + lists(x=[]), 1, DONE),
        (b"\x0a\x00", 0, DONE),
        (b"", 0, DONE),
    ],
)
def test_why_a_message_is_refused(
    kernel: kernels.Kernels, message: bytes, is_sequence: int, reason: int
) -> None:
    good = example(x=ints(1))
    reading = Reading()
    assert reading.read_all(kernel, good, message, is_sequence=is_sequence) == reason
    assert reading.stop[0] == 1
    assert reading.stop[1] >= len(good)


@pytest.mark.parametrize(
    ("steps", "kind", "width"),
    [
        ([ints(1), ints(1)], KIND_INT64, 1),
        ([b"", ints(1)], KIND_INT64, -1),
        ([floats(0), b"", b"\x20\x05"], KIND_FLOAT, -1),
        ([b"\x0a\x00"], KIND_BYTES, 0),
        ([b""], KIND_NONE, 0),
        ([], KIND_NONE, -2),
        ([ints(1), floats(0)], KIND_MIXED, 1),
        ([ints(1), floats(0), floats(0), ints(1)], KIND_MIXED, 1),
    ],
)
def test_a_list_is_of_the_kind_of_its_steps(
    kernel: kernels.Kernels, steps: list[bytes], kind: int, width: int
) -> None:
    reading = Reading()
    assert (
        reading.read_all(kernel, b"", lists(x=[ints(1)] * 9) + lists(x=steps)) == DONE
    )  # the last list wins
    assert reading.kinds[FEATURE_LISTS].tolist() == [KIND_ABSENT, kind]
    assert reading.counts[FEATURE_LISTS, 1] == len(steps)
    assert reading.num_bytes[FEATURE_LISTS, 1] == width


@pytest.mark.parametrize(
    ("step", "kind", "count", "num_bytes"),
    [
        (floats(*[0] * 30), KIND_FLOAT, 30, 0),
        (floats(*[0] * 31) + b"\x20\x05", KIND_FLOAT, 31, 0),
        (floats(), KIND_FLOAT, 0, 0),
        (field(0x12, b"\x0d\0\0\0\0"), KIND_FLOAT, 1, 0),
        (ints(), KIND_INT64, 0, 0),
        (ints(127), KIND_INT64, 1, 0),
        (ints(255, 5), KIND_INT64, 2, 0),
        (field(0x1A, b"\x08\x05"), KIND_INT64, 1, 0),
        (strings(b"abc"), KIND_BYTES, 1, 3),
        (strings(b"a", b"bc"), KIND_BYTES, 2, 3),
        (field(0x0A, b"\x20\x05"), KIND_BYTES, 0, 0),
        (strings() + strings(b"a"), KIND_BYTES, 1, 1),
        (b"\x20\x05", KIND_INT64, 0, 0),  # without a kind
    ],
)
def test_steps_are_found_by_row(
    kernel: kernels.Kernels, step: bytes, kind: int, count: int, num_bytes: int
) -> None:
    reading = Reading()
    assert reading.read_all(kernel, lists(x=[step, step]), b"", lists(x=[step])) == DONE
    kinds = np.zeros(3, np.uint8)
    begins, ends, counts, sizes = np.zeros((4, 3), np.int64)
    for mode in (MODE_CELL, MODE_SPAN):
        kernel.index_steps(
            reading.data, reading.kinds[1], reading.begins[1], reading.ends[1], np.array([0, 2, 2, 3]), kind,
            mode, kinds, begins, ends, counts, sizes,
        )  # fmt: skip
        assert kinds.tolist() == [kind] * 3
        assert counts.tolist() == [count] * 3
        assert sizes.tolist() == [num_bytes] * 3
        is_span = mode == MODE_SPAN and kind == KIND_BYTES and count == 1
        assert (ends - begins).tolist() == [num_bytes if is_span else len(step)] * 3


def test_unknown_keys_are_noted_while_there_is_room(kernel: kernels.Kernels) -> None:
    first, second = example(y=ints(1)), lists(z=[])
    reading = Reading()
    assert reading.read_all(kernel, first, second) == FULL
    assert reading.unknown.tolist() == [0, 6, 7, KIND_INT64, FEATURES]
    assert reading.stop[[0, 2]].tolist() == [1, read.UNKNOWN_FIELDS]
    reading = Reading(room=2)
    assert reading.read_all(kernel, first, second) == DONE
    assert reading.unknown[5:].tolist() == [1, len(first) + 6, len(first) + 7, KIND_NONE, FEATURE_LISTS]
    assert Reading(room=0).read_all(kernel, first, second) == DONE


_PLANS = [
    (MODE_CELL, KIND_INT64, 0, b""),
    (MODE_FLOATS, KIND_FLOAT, 2, b""),
    (MODE_INTS, KIND_INT64, 2, b""),
    (MODE_CONTENT, KIND_BYTES, 2, b"p"),
    (MODE_SPAN, KIND_BYTES, 0, b""),
]
_VALUES = [floats(1, 2), ints(300, 5), strings(b"pab"), strings(b"a", b"b"), b"", floats(1)]


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_compiled_and_plain_kernels_find_the_same_in_any_bytes(data: st.DataObject) -> None:
    plan = data.draw(st.sampled_from(_PLANS))
    values = data.draw(st.lists(st.sampled_from(_VALUES), min_size=1, max_size=2))
    messages = [bytearray(example(x=value) + lists(x=[value, value])) for value in values]
    for _ in range(data.draw(st.integers(0, 4))):
        message = data.draw(st.sampled_from(messages))
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    compiled, plain = Reading(*plan), Reading(*plan)
    for _ in range(2):  # the second time, what was learnt is used
        found = compiled.read_all(kernels.load(), *map(bytes, messages))
        assert found == plain.read_all(PLAIN, *map(bytes, messages))
        assert compiled.found() == plain.found()


@settings(deadline=None, max_examples=200)
@given(
    st.binary(max_size=40), st.integers(-5, 50), st.integers(-5, 50), st.sampled_from([MODE_CELL, MODE_SPAN])
)
def test_steps_are_found_within_bounds_whatever_the_cells_say(
    data: bytes, begin: int, end: int, mode: int
) -> None:
    guarded = np.full((5, 20), 7, np.int64)
    kinds = np.full(20, 7, np.uint8)
    with contextlib.suppress(IndexError):
        kernels.load().index_steps(
            np.frombuffer(data, np.uint8), np.array([1], np.uint8), np.array([begin]), np.array([end]),
            np.array([0, 2]), KIND_INT64, mode, kinds[:2], *(row[:2] for row in guarded[:4]),
        )  # fmt: skip
    assert (guarded[:, 2:] == 7).all()
    assert (kinds[2:] == 7).all()
