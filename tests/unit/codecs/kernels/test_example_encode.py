from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from app.codecs import kernels
from app.codecs.kernels.example_encode import HEAD_ROOM


@pytest.fixture(params=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest) -> kernels.Kernels:
    return kernels.load() if request.param == "compiled" else kernels.Kernels(lambda function: function)


KEY = np.frombuffer(b"\x0a\x01x", np.uint8)


def offsets(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def test_integers_take_what_their_varints_take(kernel: kernels.Kernels) -> None:
    bodies = np.zeros(3, np.int64)
    values = np.array([0, 127, 128, 2**64 - 1], np.uint64)
    kernel.int_bodies(values, offsets(0, 2, 2, 4), bodies)
    assert bodies.tolist() == [2, 0, 12]


def test_bytes_take_a_field_each_with_the_prefix(kernel: kernels.Kernels) -> None:
    bodies = np.zeros(3, np.int64)
    kernel.bytes_bodies(3, offsets(0, 0, 5, 130), offsets(0, 1, 1, 3), bodies)
    assert bodies.tolist() == [2 + 3, 0, 2 + 8 + 3 + 128]


def test_two_rows_are_written_into_two_frames(kernel: kernels.Kernels) -> None:
    bodies, present = offsets(8, 4), np.ones(2, np.uint8)
    features, ends, cursors = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64)
    kernel.add_entry_sizes(bodies, present, 1, len(KEY), features)
    kernel.frame_ends(features, ends)
    out = np.zeros(int(ends[-1]), np.uint8)
    kernel.begin_frames(features, 0, 2, cursors, out)
    raw = np.array([1.5, -2, 3], "<f4").view(np.uint8)
    head = np.zeros(len(KEY) + HEAD_ROOM, np.uint8)
    kernel.write_floats(raw, offsets(0, 2, 3), bodies, present, KEY, head, 0, 2, cursors, out)
    assert cursors.tolist() == (ends - 4).tolist()
    assert kernel.end_frames(features, 0, 2, out) == len(out)
    assert out[12:33].tobytes() == bytes.fromhex("0a13 0a11 0a0178 120c 120a 0a08 0000c03f 000000c0")
    assert out[49:66].tobytes() == bytes.fromhex("0a0f 0a0d 0a0178 1208 1206 0a04 00004040")


@pytest.mark.parametrize("room", [0, 20, 36])
def test_nothing_is_written_beyond_the_end(kernel: kernels.Kernels, room: int) -> None:
    """Sizes that do not fit what is written are a fault of ours, and must not touch foreign memory."""
    out = np.full(100, 7, np.uint8)
    cursors = offsets(12)
    raw = np.zeros(400, np.uint8)
    head = np.zeros(len(KEY) + HEAD_ROOM, np.uint8)
    with pytest.raises(IndexError):
        kernel.write_floats(
            raw, offsets(0, 100), offsets(400), np.ones(1, np.uint8), KEY, head, 0, 1, cursors, out[:room]
        )
    assert (out[room:] == 7).all()
