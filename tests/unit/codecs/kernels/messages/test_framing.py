from __future__ import annotations

import numpy as np
import pytest

from app.codecs import kernels
from app.codecs.kernels.messages import framing


@pytest.fixture(params=["compiled", "plain"])
def scan(request: pytest.FixtureRequest) -> kernels.Kernels:
    return kernels.load() if request.param == "compiled" else kernels.Kernels(lambda function: function)


def two_frames() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    out = np.zeros(16 + 3 + 16, np.uint8)
    at = framing.write_header(out, 0, 3)
    out[at : at + 3] = 97, 98, 99
    at = framing.write_footer(out, at, at + 3)
    at = framing.write_header(out, at, 0)
    assert framing.write_footer(out, at, at) == len(out)
    return out


def test_frames_are_written_as_tensorflow_writes_them() -> None:
    assert two_frames()[:19].tobytes().hex() == "0300000000000000b099490e6162636e57f121"


@pytest.mark.parametrize(
    ("room", "end", "starts", "stop"),
    [
        (4, 35, [12, 31], [framing.INCOMPLETE, 35, 12]),
        (4, 34, [12], [framing.INCOMPLETE, 19, 16]),
        (4, 20, [12], [framing.INCOMPLETE, 19, 12]),
        (4, 18, [], [framing.INCOMPLETE, 0, 19]),
        (4, 0, [], [framing.INCOMPLETE, 0, 12]),
        (1, 35, [12], [0, 19, 19]),
    ],
)
def test_whole_frames_are_found(
    scan: kernels.Kernels, room: int, end: int, starts: list[int], stop: list[int]
) -> None:
    found, sizes, why = np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros(3, np.int64)
    count = scan.scan_frames(two_frames(), 0, end, 100, found, sizes, why)
    assert found[:count].tolist() == starts
    assert sizes[:count].tolist() == [3, 0][:count]
    assert why.tolist() == stop


@pytest.mark.parametrize(
    ("position", "limit", "reason"),
    [
        (0, 100, framing.BAD_LENGTH),
        (8, 100, framing.BAD_LENGTH),
        (12, 100, framing.BAD_DATA),
        (18, 100, framing.BAD_DATA),
        (-1, 2, framing.TOO_LARGE),
    ],
)
def test_fault_of_a_frame_is_reported(scan: kernels.Kernels, position: int, limit: int, reason: int) -> None:
    data = two_frames()[:19].copy()
    if position >= 0:
        data[position] ^= 1
    why = np.zeros(3, np.int64)
    assert scan.scan_frames(data, 0, 19, limit, np.zeros(1, np.int64), np.zeros(1, np.int64), why) == 0
    assert why[:2].tolist() == [reason, 0]


SIZES = [3, 0, 8, 4000, 21, 16, 150, 9, 3071, 3072, 1, 2]


def frames(sizes: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    out = np.zeros(sum(sizes) + 16 * len(sizes), np.uint8)
    position = 0
    for size in sizes:
        at = framing.write_header(out, position, size)
        out[at : at + size] = np.arange(size, dtype=np.int64).astype(np.uint8) + np.uint8(size % 251)
        position = framing.write_footer(out, at, at + size)
    return out


@pytest.mark.parametrize("count", range(len(SIZES) + 1))
def test_footers_written_three_at_a_time_are_those_of_each(count: int) -> None:
    expected = frames(SIZES[:count])
    out, position = expected.copy(), 0
    for size in SIZES[:count]:
        position += size + 16
        out[position - 4 : position] = 0
    framing.write_footers(out, 0, len(out))
    assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("room", [0, 1, 2, 3, 4, 12, 20])
def test_frames_checked_three_at_a_time_are_all_found(scan: kernels.Kernels, room: int) -> None:
    data = frames(SIZES)
    found, sizes, why = np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros(3, np.int64)
    count = scan.scan_frames(data, 0, len(data), 5000, found, sizes, why)
    assert sizes[:count].tolist() == SIZES[:room]
    assert why[1] == sum(SIZES[:count]) + 16 * count


@pytest.mark.parametrize("wrong", range(6))
@pytest.mark.parametrize(("part", "reason"), [(0, framing.BAD_LENGTH), (-1, framing.BAD_DATA)])
def test_first_bad_frame_is_reported(scan: kernels.Kernels, wrong: int, part: int, reason: int) -> None:
    data = frames([10] * 6)
    data[26 * wrong + (0 if part == 0 else 25)] ^= 1
    if wrong < 5:
        data[26 * 5] ^= 1  # a later one does not hide it
    found, sizes, why = np.zeros(9, np.int64), np.zeros(9, np.int64), np.zeros(3, np.int64)
    assert scan.scan_frames(data, 0, len(data), 100, found, sizes, why) == wrong
    assert why[:2].tolist() == [reason, 26 * wrong]


def test_a_header_is_found_in_garbage(scan: kernels.Kernels) -> None:
    data = np.concatenate([np.zeros(21, np.uint8), two_frames(), np.full(30, 255, np.uint8)])
    end = len(data)
    assert scan.find_header(data, 0, end, 100) == 21
    assert scan.find_header(data, 22, end, 100) == 21 + 19
    assert scan.find_header(data, 22, end, 0) == 21 + 19
    assert scan.find_header(data, 0, end, 2) == 21 + 19
    assert scan.find_header(data, 0, 21 + 12, 100) == 21
    assert scan.find_header(data, 0, 21 + 11, 100) == -1
    assert scan.find_header(data, 41, end, 100) == -1
    assert scan.find_header(data, end, end, 100) == -1


@pytest.mark.parametrize(("begin", "end"), [(-1, 35), (0, 36)])
def test_a_search_outside_is_refused(scan: kernels.Kernels, begin: int, end: int) -> None:
    with pytest.raises(IndexError):
        scan.find_header(two_frames(), begin, end, 100)


def test_strings_are_written_as_frames(scan: kernels.Kernels) -> None:
    data, offsets = np.frombuffer(b"-abc-", np.uint8), np.array([1, 4, 4])
    out = np.zeros(35, np.uint8)
    scan.write_frames(data, offsets, out)
    assert out.tobytes() == two_frames().tobytes()


@pytest.mark.parametrize(("offsets", "room"), [([1, 4, 4], 34), ([1, 6], 35), ([-1, 4], 35), ([4, 1], 35)])
def test_frames_that_do_not_fit_are_refused(scan: kernels.Kernels, offsets: list[int], room: int) -> None:
    with pytest.raises(IndexError):
        scan.write_frames(np.zeros(5, np.uint8), np.array(offsets), np.zeros(room, np.uint8))
