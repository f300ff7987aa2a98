from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.kernels.messages.wire import KIND_ABSENT, KIND_BYTES, KIND_FLOAT, KIND_INT64


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


def test_packed_and_single_numbers_are_joined_across_lists(kernel: kernels.Kernels) -> None:
    cells = Cells(KIND_INT64, "1a0b 0a03 01ac02 0805 1000 0806", "2005 1a02 0807 1a04 0a02 0809")
    arrays = (cells.data, cells.kinds, cells.begins, cells.ends)
    ints = np.zeros(7, np.int64)
    kernel.read_number_lists(*arrays, KIND_INT64, np.array([0, 4, 7, 7]), ints.view(np.uint8))
    assert ints.tolist() == [1, 300, 5, 6, 7, 8, 9]
    kernel.read_number_lists(*arrays, KIND_FLOAT, np.array([0, 4, 7, 7]), np.zeros(0, np.uint8))
    cells = Cells(KIND_FLOAT, "120d 0a04 0000803f 1000 0d 00000040", "1202 0a00 1205 0d 00004040")
    arrays = (cells.data, cells.kinds, cells.begins, cells.ends)
    floats = np.zeros(3, np.float32)
    kernel.read_number_lists(*arrays, KIND_FLOAT, np.array([0, 2, 3, 3]), floats.view(np.uint8))
    assert floats.tolist() == [1, 2, 3]


def test_bytes_are_copied_contiguously(kernel: kernels.Kernels) -> None:
    cells = Cells(KIND_BYTES, "0a08 0a026162 1000 0a00", "0a00", "0a03 0a0163")
    arrays = (cells.data, cells.kinds, cells.begins, cells.ends)
    out, offsets = np.zeros(3, np.uint8), np.full(4, -1, np.int64)
    kernel.read_bytes_lists(*arrays, np.array([0, 2, 2, 3, 3]), out, offsets)
    assert out.tobytes() == b"abc"
    assert offsets.tolist() == [0, 2, 2, 3]


def test_spans_are_copied_after_their_prefix(kernel: kernels.Kernels) -> None:
    cells = Cells(KIND_BYTES, "6162", "6163")
    arrays = (cells.data, cells.kinds, cells.begins, cells.ends)
    out, offsets = np.zeros(4, np.uint8), np.full(3, -1, np.int64)
    kernel.gather_spans(*arrays, out, offsets)
    assert (out.tobytes(), offsets.tolist()) == (b"abac", [0, 2, 4])
    out = np.zeros(2, np.uint8)
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
    """`read_messages` never gives such cells; if it did, memory must stay what it is."""
    view = np.frombuffer(data, np.uint8)
    cells = (view, np.array([kind], np.uint8), np.array([begin]), np.array([end]))
    starts = np.array([0, room])
    kernel = kernels.load()
    guarded = np.full(room + 64, 7, np.uint8)
    offsets = np.full(room + 65, 7, np.int64)
    calls = (
        lambda: kernel.read_number_lists(*cells, kind, starts, guarded[:room]),
        lambda: kernel.read_bytes_lists(*cells, starts, guarded[:room], offsets[: room + 1]),
        lambda: kernel.gather_spans(*cells, guarded[:room], offsets[: room + 1]),
        lambda: kernel.copy_spans(*cells, view[:0], starts, guarded[:room]),
    )
    for call in calls:
        with contextlib.suppress(IndexError):
            call()
        assert (guarded[room:] == 7).all()
        assert (offsets[room + 1 :] == 7).all()


#: Two strings of tag 0x42 between other bytes; the second length takes two bytes.
STRINGS = b"\x08\7" + b"\x42\3abc" + b"\x42\x81\1" + b"x" * 129 + b"\x18\7"


def test_strings_that_follow_one_another_are_counted_and_read(kernel: kernels.Kernels) -> None:
    data = np.frombuffer(STRINGS, np.uint8)
    assert kernel.count_strings(data, 2, 0x42) == (2, 132, len(STRINGS) - 2)
    assert kernel.count_strings(data, 0, 0x42) == (0, 0, 0)
    assert kernel.count_strings(data, len(STRINGS), 0x42) == (0, 0, len(STRINGS))
    out, offsets = np.zeros(132, np.uint8), np.ones(3, np.int64)
    kernel.read_strings(data, 2, out, offsets)
    assert (out.tobytes(), offsets.tolist()) == (b"abc" + b"x" * 129, [0, 3, 132])


@pytest.mark.parametrize("rest", ["42", "4202 61", "42ff ffff ffff 01", "4280"])
def test_strings_end_in_front_of_one_that_is_malformed(kernel: kernels.Kernels, rest: str) -> None:
    data = np.frombuffer(b"\x42\1a" + bytes.fromhex(rest), np.uint8)
    assert kernel.count_strings(data, 0, 0x42) == (1, 1, 3)


def test_nothing_is_read_or_written_beyond_the_arrays(kernel: kernels.Kernels) -> None:
    data = np.frombuffer(STRINGS, np.uint8)
    with pytest.raises(IndexError):
        kernel.read_strings(data, 2, np.zeros(131, np.uint8), np.zeros(3, np.int64))
    offsets = np.array([0, 3, 200])
    for out in (np.zeros(4, np.uint8), np.zeros(400, np.uint8)):
        with pytest.raises(IndexError):
            kernel.write_strings(data, offsets, 0, 2, 0x42, out)


@given(sizes=st.lists(st.sampled_from([0, 1, 7, 127, 128, 300]), max_size=12), most=st.integers(1, 700))
@settings(deadline=None, max_examples=60)
def test_strings_are_written_as_many_at_a_time_as_fit(sizes: list[int], most: int) -> None:
    values = [bytes([65 + index]) * size for index, size in enumerate(sizes)]
    fields = [
        b"\x42" + (bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7])) + v
        for n, v in zip(sizes, values, strict=True)
    ]
    data, offsets = np.frombuffer(b"".join(values), np.uint8), np.cumsum([0, *sizes])
    for kernel in (kernels.load(), kernels.Kernels(lambda function: function)):
        assert kernel.measure_strings(offsets, 0, 2**62, 2**62) == (len(sizes), len(b"".join(fields)))
        first, written = 0, b""
        while first < len(sizes):
            stop, num_bytes = kernel.measure_strings(offsets, first, most, 128)
            assert first < stop
            alone = stop == first + 1
            assert alone or (num_bytes <= most and max(sizes[first:stop]) < 128)
            assert (
                stop == len(sizes)
                or max(sizes[first], sizes[stop]) >= 128
                or num_bytes + len(fields[stop]) > most
            )
            out = np.zeros(num_bytes, np.uint8)
            kernel.write_strings(data, offsets, first, stop, 0x42, out)
            written += out.tobytes()
            first = stop
        assert written == b"".join(fields)
