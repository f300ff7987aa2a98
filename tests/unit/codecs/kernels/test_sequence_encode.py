from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from app.codecs import kernels
from app.codecs.kernels.sequence_encode import STEP_HEAD_BYTES


@pytest.fixture(params=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest) -> kernels.Kernels:
    return kernels.load() if request.param == "compiled" else kernels.Kernels(lambda function: function)


KEY = np.frombuffer(b"\x0a\x01x", np.uint8)
PRESENT = np.ones(1, np.uint8)


def ints(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def head() -> NDArray[np.uint8]:
    return np.zeros(STEP_HEAD_BYTES, np.uint8)


def written(out: NDArray[np.uint8], cursors: NDArray[np.int64]) -> str:
    assert cursors.tolist() == [len(out)]
    return out.tobytes().hex()


def test_a_list_takes_a_field_for_each_step(kernel: kernels.Kernels) -> None:
    lists = np.zeros(3, np.int64)
    kernel.list_sizes(ints(8, 0, 200), 1, 1, ints(0, 2, 2, 3), lists)
    assert lists.tolist() == [14 + 4, 0, 2 + 1 + 3 + 3 + 200]
    kernel.list_sizes(ints(8, 0, 200), 0, 1, ints(0, 2, 2, 3), lists)
    assert lists.tolist() == [12 + 4, 0, 3 + 3 + 200]


def test_the_feature_of_a_context_is_a_step_of_its_own(kernel: kernels.Kernels) -> None:
    lists = np.zeros(2, np.int64)
    kernel.list_sizes(ints(8, 0), 1, 0, ints(0, 1, 2), lists)
    assert lists.tolist() == [12, 2]
    out, cursors = np.zeros(34, np.uint8), ints(0, 19)
    raw = np.array([1.5, -2], "<f4").view(np.uint8)
    present = np.ones(2, np.uint8)
    kernel.write_float_steps(
        raw, ints(0, 2, 2), head(), ints(8, 0), 0, ints(0, 1, 2), lists, present, KEY, 0, 2, cursors, out
    )
    assert cursors.tolist() == [19, 28]
    assert out[:28].tobytes().hex() == "0a110a0178120c120a0a080000c03f000000c00a070a017812021200"
    kernel.write_bytes_steps(
        np.zeros(0, np.uint8), raw, ints(0, 1), ints(0, 1), ints(3), 0, ints(0, 1), ints(5), PRESENT, KEY,
        0, 1, ints(0), out[:12],
    )  # fmt: skip
    assert out[:12].tobytes().hex() == "0a0a0a017812050a030a0100"


def test_bodies_are_what_values_take(kernel: kernels.Kernels) -> None:
    bodies = np.zeros(3, np.int64)
    kernel.int_step_bodies(np.array([0, 127, 128, 2**64 - 1], np.uint64), ints(0, 2, 2, 4), bodies)
    assert bodies.tolist() == [2, 0, 12]
    kernel.bytes_step_bodies(3, ints(0, 0, 5, 130), ints(0, 1, 1, 3), bodies)
    assert bodies.tolist() == [2 + 3, 0, 2 + 8 + 3 + 128]


def test_only_the_parts_that_all_rows_have_take_room(kernel: kernels.Kernels) -> None:
    payloads = np.zeros(2, np.int64)
    for parts, sizes in (((1, 1), [2 + 7, 7 + 2]), ((1, 0), [2, 7]), ((0, 1), [7, 2]), ((0, 0), [0, 0])):
        kernel.payload_sizes(ints(0, 5), parts[0], ints(5, 0), parts[1], payloads)
        assert payloads.tolist() == sizes


def test_a_row_is_written_into_a_frame(kernel: kernels.Kernels) -> None:
    lists, feature_lists, payloads, cursors = (np.zeros(1, np.int64) for _ in range(4))
    bodies, steps = ints(8, 0), ints(0, 2)
    kernel.list_sizes(bodies, 1, 1, steps, lists)
    kernel.add_map_entry_sizes(lists, PRESENT, len(KEY), feature_lists)
    kernel.payload_sizes(ints(0), 1, feature_lists, 1, payloads)
    out = np.zeros(int(payloads[0]) + 16, np.uint8)
    kernel.begin_contexts(payloads, ints(0), 1, 0, 1, cursors, out)
    kernel.begin_feature_lists(feature_lists, 0, 1, cursors, out)
    raw = np.array([1.5, -2], "<f4").view(np.uint8)
    kernel.write_float_steps(
        raw, ints(0, 2, 2), head(), bodies, 1, steps, lists, PRESENT, KEY, 0, 1, cursors, out
    )
    assert cursors.tolist() == [len(out) - 4]
    kernel.end_payloads(payloads, 0, 1, out)
    expected = "0a00 1219 0a17 0a0178 1212 0a0c 120a 0a08 0000c03f 000000c0 0a02 1200"
    assert out[12:-4].tobytes() == bytes.fromhex(expected)
    found, sizes = np.zeros(2, np.int64), np.zeros(2, np.int64)
    assert kernel.scan_frames(out, 0, len(out), 1 << 20, found, sizes, np.zeros(3, np.int64)) == 1


def test_integers_are_written_step_by_step(kernel: kernels.Kernels) -> None:
    out, cursors = np.zeros(23, np.uint8), ints(0)
    values = np.array([1, 300, 2], np.uint64)
    kernel.write_int_steps(
        values, ints(0, 2, 3), head(), ints(3, 1), 1, ints(0, 2), ints(16), PRESENT, KEY, 0, 1, cursors, out
    )
    assert written(out, cursors) == "0a150a017812100a071a050a0301ac020a051a030a0102"


def test_strings_are_written_behind_their_prefix(kernel: kernels.Kernels) -> None:
    out, cursors = np.zeros(22, np.uint8), ints(0)
    data, prefix = np.frombuffer(b"abc", np.uint8), np.frombuffer(b"-", np.uint8)
    kernel.write_bytes_steps(
        prefix, data, ints(0, 1, 1, 3), ints(0, 2, 2), ints(7, 0), 1, ints(0, 2), ints(15), PRESENT, KEY,
        0, 1, cursors, out,
    )  # fmt: skip
    assert written(out, cursors) == "0a140a0178120f0a090a070a022d610a012d0a020a00"


@pytest.mark.parametrize("room", [0, 5, 10, 17])
def test_nothing_is_written_beyond_the_end(kernel: kernels.Kernels, room: int) -> None:
    """Sizes that do not fit what is written are a fault of ours, and must not touch foreign memory."""
    out = np.full(100, 7, np.uint8)
    raw = np.zeros(400, np.uint8)
    with pytest.raises(IndexError):
        kernel.write_float_steps(
            raw, ints(0, 2), head(), ints(8), 1, ints(0, 1), ints(14), PRESENT, KEY, 0, 1, ints(0), out[:room]
        )
    assert (out[room:] == 7).all()


def test_rows_without_the_list_are_passed_over(kernel: kernels.Kernels) -> None:
    sizes, cursors, out = ints(0), ints(3), np.full(10, 7, np.uint8)
    absent = np.zeros(1, np.uint8)
    kernel.add_map_entry_sizes(ints(5), absent, len(KEY), sizes)
    assert sizes.tolist() == [0]
    words = np.zeros(1, np.uint64)
    rows = (ints(1), 1, ints(0, 1), ints(7), absent, KEY)
    kernel.write_float_steps(np.zeros(4, np.uint8), ints(0, 1), head(), *rows, 0, 1, cursors, out)
    kernel.write_int_steps(words, ints(0, 1), head(), *rows, 0, 1, cursors, out)
    none = np.zeros(0, np.uint8)
    kernel.write_bytes_steps(none, none, ints(0, 0), ints(0, 1), *rows, 0, 1, cursors, out)
    assert (out == 7).all()
    assert cursors.tolist() == [3]
