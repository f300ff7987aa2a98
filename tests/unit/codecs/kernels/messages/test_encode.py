from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.codecs import kernels
from app.codecs.kernels.messages import encode
from app.codecs.kernels.messages.encode import (
    BYTES,
    FIRST_PART,
    FLOATS,
    HEAD_ROOM,
    IMPOSSIBLE,
    INTS,
    SECOND_PART,
    STATE_FIELDS,
)
from app.codecs.messages.examples.lower import Entries, key_field


@pytest.fixture(params=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest) -> kernels.Kernels:
    return kernels.load() if request.param == "compiled" else kernels.Kernels(lambda function: function)


KEY = key_field("x")


def floats(*values: float, **more: Any) -> Entries:
    return Entries(FLOATS, np.array(values, "<f4"), len(values), **more)


def ints(*values: int, **more: Any) -> Entries:
    words = np.array([value % 2**64 for value in values], np.uint64)
    return Entries(INTS, words, len(values), **more)


class Call:
    """The arrays of calls for the one feature x."""

    def __init__(self, entries: Entries, rows: int, slots: int = 2) -> None:
        step = len(KEY) + HEAD_ROOM
        self.entries = entries
        self.parts, self.num_first = FIRST_PART, 1
        self.table = np.array(entries.row(KEY, 0, step), np.int64)
        self.rows = rows
        self.heads = np.zeros(slots * step, np.uint8)
        self.head_bodies = np.full(slots, -1, np.int64)
        self.head_sizes = np.zeros(slots, np.int64)
        self.state = np.zeros(STATE_FIELDS, np.int64)
        self.stop = np.zeros(3, np.int64)

    def run(self, kernel: kernels.Kernels, out: NDArray[np.uint8], first: int = 0, limit: int = 2**31) -> int:
        return kernel.encode_messages(
            self.table, self.parts, self.num_first, self.rows, first, limit,
            self.heads, self.head_bodies, self.head_sizes, self.state, np.zeros(1, np.int64), out, self.stop,
        )  # fmt: skip

    def messages(self, kernel: kernels.Kernels) -> list[str]:
        out = np.zeros(1 << 16, np.uint8)
        assert self.run(kernel, out) == self.rows
        starts, sizes, why = np.zeros((3, self.rows + 3), np.int64)
        size = int(self.stop[0])
        count = kernel.scan_frames(out, 0, size, 1 << 16, starts, sizes, why)
        assert count == self.rows
        assert not out[size:].any()
        return [out[s : s + n].tobytes().hex() for s, n in zip(starts[:count], sizes[:count], strict=True)]


def test_rows_of_two_sizes_are_written_in_turns(kernel: kernels.Kernels) -> None:
    call = Call(floats(1.5, -2, 3, 1.5, -2, width=0, starts=np.array([0, 2, 3, 5])), 3)
    two, one = "0a130a110a0178120c120a0a080000c03f000000c0", "0a0f0a0d0a017812081206 0a0400004040"
    assert call.messages(kernel) == [two, one.replace(" ", ""), two]


def test_integers_take_what_their_varints_take(kernel: kernels.Kernels) -> None:
    call = Call(ints(0, 127, 128, -1, width=0, starts=np.array([0, 2, 2, 4])), 3)
    assert call.messages(kernel) == [
        "0a0d0a0b0a017812061a040a02007f",
        "0a090a070a017812021a00",
        "0a170a150a017812101a0e0a0c8001ffffffffffffffffff01",
    ]


def test_bytes_take_a_field_each_with_the_prefix(kernel: kernels.Kernels) -> None:
    entries = Entries(
        BYTES, np.frombuffer(b"abcde", np.uint8), 2, spans=np.array([1, 1, 4]), prefix=np.full(2, 7, np.uint8)
    )
    assert Call(entries, 2).messages(kernel) == [
        "0a0d0a0b0a017812060a040a020707",
        "0a100a0e0a017812090a070a050707626364",
    ]


def test_rows_that_lack_the_feature_are_empty(kernel: kernels.Kernels) -> None:
    call = Call(floats(1, 1, 1, 1, present=np.array([1, 0, 0, 1], np.uint8)), 4)
    there = "0a0f0a0d0a017812081206 0a040000803f".replace(" ", "")
    assert call.messages(kernel) == [there, "0a00", "0a00", there]


def test_full_output_reports_the_size_of_the_next_row(kernel: kernels.Kernels) -> None:
    call = Call(floats(1, 2, 3), 3)
    out = np.full(100, 7, np.uint8)
    assert call.run(kernel, out[:70]) == 2
    assert call.stop.tolist() == [66, 33, 0]
    assert (out[66:] == 7).all()
    assert call.run(kernel, out[:33], first=2) == 1
    assert call.run(kernel, out[:32], first=1) == 0
    assert call.stop.tolist() == [0, 33, 0]


def test_too_large_message_is_reported(kernel: kernels.Kernels) -> None:
    call = Call(floats(1, 2, 3, width=0, starts=np.array([0, 1, 3])), 2)
    assert call.run(kernel, np.zeros(200, np.uint8), limit=20) == 1
    assert call.stop.tolist() == [33, 0, 21]


VALUES = np.zeros(2, np.uint64)


@pytest.mark.parametrize(
    "entries",
    [
        Entries(FLOATS, VALUES, 4, width=3),
        Entries(FLOATS, VALUES, 4, width=0, starts=np.array([0, 1, 5])),
        Entries(FLOATS, VALUES, 4, width=0, starts=np.array([0, 2, 1])),
        Entries(FLOATS, VALUES, 4, width=0, starts=np.array([-1, 2, 3])),
        Entries(INTS, VALUES, 2, width=0, starts=np.array([0, 1, 3])),
        Entries(INTS, VALUES, 3, width=0, starts=np.array([0, 1, 2])),
        Entries(BYTES, VALUES, 1, spans=np.array([0, 1])),
        Entries(BYTES, VALUES, 2, spans=np.array([0, 2, 1])),
    ],
)
def test_a_table_that_points_outside_its_arrays_is_refused(entries: Entries, kernel: kernels.Kernels) -> None:
    assert Call(entries, 2).run(kernel, np.zeros(200, np.uint8)) == IMPOSSIBLE


@pytest.mark.parametrize(
    "entries",
    [
        Entries(FLOATS, VALUES, 6, width=3),
        Entries(BYTES, VALUES, 2, span=9),
        Entries(BYTES, VALUES, 2, spans=np.array([0, 1, 17])),
        Entries(BYTES, VALUES, 2, spans=np.array([-1, 1, 2])),
    ],
)
def test_values_that_are_not_there_are_not_read(entries: Entries, kernel: kernels.Kernels) -> None:
    with pytest.raises(IndexError):
        Call(entries, 2).run(kernel, np.zeros(200, np.uint8))


def test_the_heads_of_a_column_share_what_slots_there_are(kernel: kernels.Kernels) -> None:
    entries = floats(*range(45), width=0, starts=np.cumsum([0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]))
    assert Call(entries, 10, slots=1).messages(kernel) == Call(entries, 10, slots=8).messages(kernel)


def test_scratch_of_the_wrong_size_is_refused(kernel: kernels.Kernels) -> None:
    call = Call(floats(1), 1)
    call.table = call.table[:-1]
    assert call.run(kernel, np.zeros(100, np.uint8)) == encode.IMPOSSIBLE


def steps(entries: Entries, *bounds: int) -> Entries:
    return replace(entries, steps=np.array(bounds), step_bodies=np.full(bounds[-1], -1))


def test_each_step_of_a_row_has_a_list(kernel: kernels.Kernels) -> None:
    entries = steps(floats(1.5, -2, 3, width=0, starts=np.array([0, 2, 2, 3])), 0, 2, 2, 3)
    call = Call(entries, 3)
    call.parts, call.num_first = FIRST_PART | SECOND_PART, 0
    assert entries.step_bodies is not None
    assert kernel.step_bodies(call.table, 0, entries.step_bodies)
    assert entries.step_bodies.tolist() == [8, 0, 4]
    assert call.messages(kernel) == [
        "0a0012190a170a017812120a0c120a0a080000c03f000000c00a021200",
        "0a0012070a050a01781200",
        "0a0012110a0f0a0178120a0a0812060a0400004040",
    ]


@pytest.mark.parametrize("bounds", [(0, 3, 2), (-1, 1, 2), (0, 1, 3)])
def test_steps_that_are_not_there_are_refused(bounds: tuple[int, ...], kernel: kernels.Kernels) -> None:
    entries = replace(steps(floats(1, 2), 0, 1, 2), steps=np.array(bounds), step_bodies=np.full(2, 4))
    assert Call(entries, 2).run(kernel, np.zeros(200, np.uint8)) == IMPOSSIBLE


def test_steps_are_measured_within_their_values(kernel: kernels.Kernels) -> None:
    room = np.zeros(2, np.int64)
    assert kernel.step_bodies(Call(steps(ints(1, 300), 0, 2), 1).table, 0, room)
    assert room.tolist() == [1, 2]
    assert not kernel.step_bodies(Call(steps(ints(1, 300), 0, 3), 1).table, 0, room)
    assert not kernel.step_bodies(Call(steps(ints(1), 0, 2), 1).table, 0, room)
    assert not kernel.step_bodies(Call(steps(ints(1, 300), 0, 2), 1).table, 1, room)
    outside = floats(1, 2, width=0, starts=np.array([0, 1, 3]))
    assert not kernel.step_bodies(Call(steps(outside, 0, 2), 1).table, 0, room)
