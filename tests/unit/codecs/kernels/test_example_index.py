from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.codecs import kernels
from app.codecs.kernels import example_index

PLAIN = kernels.Kernels(lambda function: function)

MESSAGE = bytes.fromhex("0a18 0a16 0a0178 1211 1a0f 0a0d ffffffffffffffffff01 00 ac02")


class Index:
    """The arrays of one call of `index_examples` for the one key x."""

    def __init__(self, data: bytes, starts: list[int], sizes: list[int], room: int = 1) -> None:
        rows = len(starts)
        self.data = np.frombuffer(data, np.uint8)
        self.starts = np.array(starts, np.int64)
        self.sizes = np.array(sizes, np.int64)
        self.kinds = np.zeros(rows, np.uint8)
        self.begins, self.ends, self.counts, self.num_bytes = np.zeros((4, rows), np.int64)
        self.unknown = np.zeros(example_index.UNKNOWN_FIELDS * room, np.int64)
        self.stop = np.zeros(3, np.int64)

    def run(self, kernel: kernels.Kernels) -> int:
        keys = np.frombuffer(b"x", np.uint8)
        entry = np.zeros(4, np.int64)
        return kernel.index_examples(
            self.data, self.starts, self.sizes, keys, np.array([0, 1]), np.array([0, 1]), self.kinds,
            self.begins, self.ends, self.counts, self.num_bytes, self.unknown, entry, self.stop,
        )  # fmt: skip

    def found(self) -> list[list[int]]:
        arrays: list[NDArray[np.int64]] = [self.counts, self.num_bytes, self.stop]
        there = self.kinds != 0
        return [
            self.kinds.tolist(),
            self.begins[there].tolist(),
            self.ends[there].tolist(),
            *(array.tolist() for array in arrays),
        ]


@pytest.fixture(params=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest) -> kernels.Kernels:
    return kernels.load() if request.param == "compiled" else PLAIN


def test_a_feature_is_found(kernel: kernels.Kernels) -> None:
    index = Index(b"ab" + MESSAGE, [2, 2], [len(MESSAGE), 0])
    assert index.run(kernel) == example_index.DONE
    assert index.kinds.tolist() == [example_index.KIND_INT64, 0]
    assert (index.begins[0], index.ends[0], index.counts[0]) == (11, 28, 3)


@pytest.mark.parametrize(
    ("start", "size"), [(-1, 5), (0, len(MESSAGE) + 1), (len(MESSAGE), 1), (0, -1), (100, 0)]
)
def test_records_outside_the_data_are_refused(kernel: kernels.Kernels, start: int, size: int) -> None:
    assert Index(MESSAGE, [start], [size]).run(kernel) == example_index.MALFORMED


def test_unknown_keys_are_noted_while_there_is_room(kernel: kernels.Kernels) -> None:
    other = MESSAGE.replace(b"x", b"y")
    index = Index(other + other, [0, len(other)], [len(other)] * 2, room=1)
    assert index.run(kernel) == example_index.FULL
    assert index.unknown.tolist() == [0, 6, 7, example_index.KIND_INT64]
    assert index.stop.tolist()[::2] == [1, example_index.UNKNOWN_FIELDS]
    assert Index(other, [0], [len(other)], room=0).run(kernel) == example_index.DONE


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_compiled_and_plain_kernels_find_the_same_in_any_bytes(data: st.DataObject) -> None:
    message = bytearray(MESSAGE)
    for _ in range(data.draw(st.integers(0, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    compiled, plain = (Index(bytes(message), [0], [len(message)]) for _ in range(2))
    assert compiled.run(kernels.load()) == plain.run(PLAIN)
    assert compiled.found() == plain.found()
