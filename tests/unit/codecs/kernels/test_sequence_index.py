from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.kernels import example_index
from app.codecs.kernels.example_index import (
    AMBIGUOUS,
    DONE,
    FULL,
    KIND_ABSENT,
    KIND_BYTES,
    KIND_FLOAT,
    KIND_INT64,
    MALFORMED,
)
from app.codecs.kernels.sequence_index import KIND_MIXED, KIND_NONE
from tests.feature_values import field

PLAIN = kernels.Kernels(lambda function: function)

CONTEXT = bytes.fromhex("0a0c 0a0a 0a0161 1205 1a03 0a0101")
INT = bytes.fromhex("1a04 0a02 8001")
FLOAT = bytes.fromhex("1206 0a04 00000000")


def lists(*steps: bytes, key: bytes = b"x") -> bytes:
    value = b"".join(field(0x0A, step) for step in steps)
    return field(0x12, field(0x0A, field(0x0A, key) + field(0x12, value)))


@pytest.fixture(params=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest) -> kernels.Kernels:
    return kernels.load() if request.param == "compiled" else PLAIN


class Lists:
    """The arrays of one call of `index_feature_lists` for the one key x."""

    def __init__(self, *messages: bytes, room: int = 1) -> None:
        sizes = np.array([len(message) for message in messages], np.int64)
        self.data = np.frombuffer(b"".join(messages), np.uint8)
        self.starts = np.cumsum(sizes) - sizes
        self.sizes = sizes
        self.kinds = np.zeros(len(messages), np.uint8)
        self.begins, self.ends, self.steps = np.zeros((3, len(messages)), np.int64)
        self.unknown = np.zeros(example_index.UNKNOWN_FIELDS * room, np.int64)
        self.stop = np.zeros(3, np.int64)

    def run(self, kernel: kernels.Kernels) -> int:
        return kernel.index_feature_lists(
            self.data, self.starts, self.sizes, np.frombuffer(b"x", np.uint8), np.array([0, 1]),
            np.array([0, 1]), self.kinds, self.begins, self.ends, self.steps, self.unknown,
            np.zeros(4, np.int64), self.stop,
        )  # fmt: skip

    def found(self) -> list[list[int]]:
        arrays = (self.kinds, self.begins, self.ends, self.steps, self.unknown, self.stop)
        return [array.tolist() for array in arrays]


def contexts(kernel: kernels.Kernels, *messages: bytes) -> tuple[int, list[tuple[int, int]], list[int]]:
    """What `find_contexts` answers: by row, where its contexts begin in the message, and their bytes."""
    found = Lists(*messages)
    begins, sizes = np.zeros((2, len(messages)), np.int64)
    stop = np.zeros(2, np.int64)
    reason = kernel.find_contexts(found.data, found.starts, found.sizes, begins, sizes, stop)
    return reason, list(zip((begins - found.starts).tolist(), sizes.tolist(), strict=True)), stop.tolist()


def test_contexts_are_found_where_they_lie(kernel: kernels.Kernels) -> None:
    beside = b"\x18\x05"
    reason, found, _ = contexts(
        kernel,
        CONTEXT + lists(INT),
        lists(INT) + CONTEXT,
        beside + CONTEXT + beside + CONTEXT + lists(INT),
        lists(INT),
        b"",
        CONTEXT + lists() + CONTEXT,
        lists() + CONTEXT + lists() + lists() + CONTEXT,
    )
    size, step = len(CONTEXT), len(lists(INT))
    assert reason == DONE
    assert found[:5] == [(0, size), (step, size), (2, 2 * size + 2), (0, 0), (0, 0)]
    assert [context_size for _, context_size in found[5:]] == [-1, -1]


@pytest.mark.parametrize("message", [b"\x0a\x05", b"\x12", b"\x12\x01", b"\x00", b"\x0b\x0c"])
def test_fields_that_are_none_are_refused_with_their_place(kernel: kernels.Kernels, message: bytes) -> None:
    reason, _, (row, position) = contexts(kernel, CONTEXT, CONTEXT + message)
    assert (reason, row) == (MALFORMED, 1)
    assert position >= 2 * len(CONTEXT)
    assert Lists(CONTEXT, CONTEXT + message).run(kernel) == MALFORMED


def test_scattered_contexts_are_copied_one_behind_the_other(kernel: kernels.Kernels) -> None:
    message = b"\x18\x05" + CONTEXT + lists(INT) + CONTEXT + lists()
    out = np.zeros(100, np.uint8)
    end = kernel.copy_contexts(np.frombuffer(b"\0" + message, np.uint8), 1, len(message) + 1, out, 3)
    assert out[3:end].tobytes() == CONTEXT * 2


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([INT, INT], KIND_INT64),
        ([b"", INT], KIND_INT64),
        ([FLOAT, b"", b"\x20\x05"], KIND_FLOAT),
        ([b"\x0a\x00"], KIND_BYTES),
        ([b""], KIND_NONE),
        ([], KIND_NONE),
        ([INT, FLOAT], KIND_MIXED),
        ([INT, FLOAT, FLOAT, INT], KIND_MIXED),
    ],
)
def test_a_list_is_of_the_kind_of_its_steps(kernel: kernels.Kernels, steps: list[bytes], kind: int) -> None:
    index = Lists(CONTEXT, lists(*steps) + CONTEXT)
    assert index.run(kernel) == DONE
    assert index.kinds.tolist() == [KIND_ABSENT, kind]
    assert index.steps.tolist() == [0, len(steps)]
    assert index.ends[1] - index.begins[1] == sum(2 + len(step) for step in steps)


@pytest.mark.parametrize(
    ("step", "kind", "count", "num_bytes"),
    [
        (field(0x12, field(0x0A, b"\0" * 120)), KIND_FLOAT, 30, 0),
        (b"\x12\x80\x01" + b"\x0a\x7c" + b"\0" * 124 + b"\x20\x05", KIND_FLOAT, 31, 0),
        (field(0x12, b"\x0a\x00"), KIND_FLOAT, 0, 0),
        (field(0x12, b"\x0d\0\0\0\0"), KIND_FLOAT, 1, 0),
        (field(0x1A, b"\x0a\x00"), KIND_INT64, 0, 0),
        (field(0x1A, b"\x0a\x01\x7f"), KIND_INT64, 1, 0),
        (field(0x1A, b"\x0a\x03\xff\x01\x05"), KIND_INT64, 2, 0),
        (field(0x1A, b"\x08\x05"), KIND_INT64, 1, 0),
        (field(0x0A, b"\x0a\x03abc"), KIND_BYTES, 1, 3),
        (field(0x0A, b"\x0a\x01a\x0a\x02bc"), KIND_BYTES, 2, 3),
        (field(0x0A, b"\x20\x05"), KIND_BYTES, 0, 0),
        (field(0x0A, b"") + field(0x0A, b"\x0a\x01a"), KIND_BYTES, 1, 1),
    ],
)
def test_steps_are_counted_however_they_are_written(
    kernel: kernels.Kernels, step: bytes, kind: int, count: int, num_bytes: int
) -> None:
    index = Lists(lists(step))
    assert index.run(kernel) == DONE
    assert index.kinds.tolist() == [kind]
    kinds = np.zeros(1, np.uint8)
    begins, ends, counts, sizes = np.zeros((4, 1), np.int64)
    starts = np.array([0, 1])
    kernel.index_steps(
        index.data, index.kinds, index.begins, index.ends, starts, kind, kinds, begins, ends, counts, sizes
    )
    assert (kinds[0], counts[0], sizes[0]) == (kind, count, num_bytes)


@pytest.mark.parametrize("step", [b"\x1a\x03\x0a\x01\x80", b"\x12\x05\x0a\x03abc", b"\x0a\x03\x0a\x02a"])
def test_short_steps_are_checked(kernel: kernels.Kernels, step: bytes) -> None:
    assert Lists(lists(step)).run(kernel) == MALFORMED


def test_the_last_list_of_a_key_wins(kernel: kernels.Kernels) -> None:
    index = Lists(lists(INT, INT) + lists(FLOAT))
    assert index.run(kernel) == DONE
    assert (index.kinds.tolist(), index.steps.tolist()) == ([KIND_FLOAT], [1])


@pytest.mark.parametrize(("start", "size"), [(-1, 5), (0, 100), (100, 0), (0, -1)])
def test_records_outside_the_data_are_refused(kernel: kernels.Kernels, start: int, size: int) -> None:
    index = Lists(lists(INT))
    index.starts[0], index.sizes[0] = start, size
    assert index.run(kernel) == MALFORMED
    begins, sizes = np.zeros((2, 1), np.int64)
    found = kernel.find_contexts(index.data, index.starts, index.sizes, begins, sizes, index.stop)
    assert found == MALFORMED


def test_two_kinds_in_one_step_are_ambiguous(kernel: kernels.Kernels) -> None:
    assert Lists(lists(INT + FLOAT)).run(kernel) == AMBIGUOUS


def test_unknown_lists_are_noted_while_there_is_room(kernel: kernels.Kernels) -> None:
    index = Lists(lists(key=b"y"), lists(INT, key=b"z"))
    assert index.run(kernel) == FULL
    assert index.unknown.tolist() == [0, 6, 7, KIND_NONE]
    assert index.stop.tolist()[::2] == [1, example_index.UNKNOWN_FIELDS]
    assert Lists(lists(INT, key=b"y"), room=0).run(kernel) == DONE
    assert Lists(lists(INT, key=b"\xff"), room=0).run(kernel) == MALFORMED


def test_steps_are_found_by_row(kernel: kernels.Kernels) -> None:
    index = Lists(lists(INT, b"", INT), CONTEXT, lists(b"\x20\x05", INT))
    index.run(kernel)
    kinds = np.zeros(5, np.uint8)
    begins, ends, counts, num_bytes = np.zeros((4, 5), np.int64)
    starts = np.array([0, 3, 3, 5])
    kernel.index_steps(
        index.data, index.kinds, index.begins, index.ends, starts, KIND_INT64,
        kinds, begins, ends, counts, num_bytes,
    )  # fmt: skip
    assert kinds.tolist() == [KIND_INT64] * 5
    assert counts.tolist() == [1, 0, 1, 0, 1]
    assert (ends - begins).tolist() == [6, 0, 6, 2, 6]
    assert index.data[begins[4] : ends[4]].tobytes() == INT


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_compiled_and_plain_kernels_find_the_same_in_any_bytes(data: st.DataObject) -> None:
    message = bytearray(CONTEXT + lists(INT, FLOAT[:0], INT) + CONTEXT)
    for _ in range(data.draw(st.integers(0, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    compiled, plain = (Lists(bytes(message)) for _ in range(2))
    assert compiled.run(kernels.load()) == plain.run(PLAIN)
    assert compiled.found() == plain.found()
    assert contexts(kernels.load(), bytes(message)) == contexts(PLAIN, bytes(message))
