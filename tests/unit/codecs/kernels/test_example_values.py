from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.kernels.example_index import KIND_ABSENT, KIND_BYTES, KIND_FLOAT, KIND_INT64


@pytest.fixture(params=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest) -> kernels.Kernels:
    return kernels.load() if request.param == "compiled" else kernels.Kernels(lambda function: function)


class Cells:
    """Features one behind the other, and an absent one at the end."""

    def __init__(self, kind: int, *features: str) -> None:
        encoded = [bytes.fromhex(feature) for feature in features]
        sizes = np.array([*map(len, encoded), 0], np.int64)
        self.data = np.frombuffer(b"".join(encoded), np.uint8)
        self.kinds = np.array([kind] * len(encoded) + [KIND_ABSENT], np.uint8)
        self.ends = np.cumsum(sizes)
        self.begins = self.ends - sizes


def test_packed_and_single_integers_are_joined_across_lists(kernel: kernels.Kernels) -> None:
    cells = Cells(KIND_INT64, "1a0b 0a03 01ac02 0805 1000 0806", "2005 1a02 0807 1a04 0a02 0809")
    out = np.zeros(7, np.int64)
    kernel.read_ints(cells.data, cells.kinds, cells.begins, cells.ends, np.array([0, 4, 7]), out)
    assert out.tolist() == [1, 300, 5, 6, 7, 8, 9]


def test_packed_and_single_floats_are_joined_across_lists(kernel: kernels.Kernels) -> None:
    cells = Cells(KIND_FLOAT, "120d 0a04 0000803f 1000 0d 00000040", "1202 0a00 1205 0d 00004040")
    out = np.zeros(3, np.float32)
    starts = np.array([0, 2, 3])
    kernel.read_floats(cells.data, cells.kinds, cells.begins, cells.ends, starts, out.view(np.uint8))
    assert out.tolist() == [1, 2, 3]


def test_bytes_are_copied_one_behind_the_other_and_absent_rows_are_empty(kernel: kernels.Kernels) -> None:
    cells = Cells(KIND_BYTES, "0a08 0a026162 1000 0a00", "0a00", "0a03 0a0163")
    out, offsets = np.zeros(3, np.uint8), np.full(6, -1, np.int64)
    starts = np.array([0, 2, 2, 3, 5])
    kernel.read_bytes(cells.data, cells.kinds, cells.begins, cells.ends, starts, out, offsets)
    assert out.tobytes() == b"abc"
    assert offsets.tolist() == [0, 2, 2, 3, 3, 3]


def test_single_values_are_found_and_copied_behind_their_prefix(kernel: kernels.Kernels) -> None:
    cells = Cells(KIND_BYTES, "0a06 1000 0a026162", "0a00 0a04 0a026163")
    kernel.single_spans(cells.data, cells.kinds, cells.begins, cells.ends)
    spans = zip(cells.begins[:2].tolist(), cells.ends[:2].tolist(), strict=True)
    assert [cells.data[begin:end].tobytes() for begin, end in spans] == [b"ab", b"ac"]
    out = np.zeros(2, np.uint8)
    arrays = (cells.data, cells.kinds, cells.begins, cells.ends)
    prefix = np.frombuffer(b"a", np.uint8)
    assert kernel.copy_spans(*arrays, prefix, np.array([0, 1, 2, 2]), out) == -1
    assert out.tobytes() == b"bc"
    assert kernel.copy_spans(*arrays, prefix, np.array([0, 1, 1, 1]), out) == 1  # another size
    assert kernel.copy_spans(*arrays, prefix + np.uint8(1), np.array([0, 1, 2, 2]), out) == 0


@settings(deadline=None, max_examples=300)
@given(
    st.binary(max_size=40), st.integers(-5, 50), st.integers(-5, 50), st.integers(0, 3), st.integers(0, 12)
)
def test_values_are_read_within_bounds_whatever_the_cells_say(
    data: bytes, begin: int, end: int, kind: int, room: int
) -> None:
    """`index_examples` never gives such cells; if it did, memory must stay what it is."""
    view = np.frombuffer(data, np.uint8)
    kinds = np.array([kind], np.uint8)
    begins, ends = np.array([begin]), np.array([end])
    starts = np.array([0, room])
    kernel = kernels.load()
    guarded = np.full(room + 64, 7, np.uint8)
    numbers = np.full(room + 64, 7, np.int64)
    offsets = np.zeros(room + 1, np.int64)
    calls = (
        lambda: kernel.read_floats(view, kinds, begins, ends, starts, guarded[:room]),
        lambda: kernel.read_ints(view, kinds, begins, ends, starts, numbers[:room]),
        lambda: kernel.read_bytes(view, kinds, begins, ends, starts, guarded[:room], offsets),
        lambda: kernel.copy_spans(view, kinds, begins, ends, view[:0], starts, guarded[:room]),
        lambda: kernel.single_spans(view, kinds, begins.copy(), ends.copy()),
    )
    for call in calls:
        with contextlib.suppress(IndexError):
            call()
        assert (guarded[room:] == 7).all()
        assert (numbers[room:] == 7).all()
