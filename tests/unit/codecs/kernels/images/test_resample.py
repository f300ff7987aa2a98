"""Resampling by hand; tests/differential/test_images.py compares it with TensorFlow."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from app.codecs import kernels
from app.codecs.kernels.images import resample


def ints(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def singles(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


# Two rows of three pixels of one channel, or three rows of one pixel of two.
ROWS = singles(1, 2, 3, 4, 5, 6)
DTYPES = (np.uint8, np.float32)
EVERY_PIXEL = (ints(0, 1, 2), singles(1, 1, 1), ints(1, 1, 1))


def scratch(pitch: int, width: int) -> npt.NDArray[np.float32]:
    # What it held before must not matter.
    return np.full(resample.scratch_size(pitch, width), np.nan, np.float32)


def sums(kernel: str, source: Any, pitch: int, channels: int, rows: Any, columns: Any) -> list[float] | None:
    """What a kernel makes of an image; None if it refuses it."""
    width = len(columns[2]) * channels
    target = np.full(len(rows[2]) * width, 9, np.float32)
    tables = (*rows, *columns)
    if getattr(kernels.load(), kernel)(source, pitch, channels, *tables, scratch(pitch, width), target):
        return list(target.tolist())
    assert (target == 9).all()
    return None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", ["sum_rows_first", "sum_columns_first"])
@pytest.mark.parametrize(
    ("pitch", "channels", "rows", "columns", "expected"),
    [
        (
            2,
            2,
            (ints(0, 1, 2, 0), singles(0.5, 0.25, 2, 7), ints(2, 1)),
            (ints(0), singles(1), ints(1)),
            [0.5 + 0.75, 1 + 1, 10, 12],
        ),
        (
            3,
            1,
            (ints(0, 1), singles(1, 1), ints(1, 1)),
            (ints(0, 1, 1, 0), singles(1, 1, 3, 9), ints(2, 1)),
            [3, 6, 9, 15],
        ),
        (6, 3, (ints(0), singles(1), ints(1)), (ints(0, 1), singles(0.5, 2), ints(2)), [8.5, 11, 13.5]),
        (3, 1, (ints(1, 0, 1), singles(1, 1, 1), ints(1, 1, 1)), EVERY_PIXEL, [4, 5, 6, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_pixels_are_summed(
    kernel: str, pitch: int, channels: int, rows: Any, columns: Any, expected: list[float], dtype: Any
) -> None:
    assert sums(kernel, ROWS.astype(dtype), pitch, channels, rows, columns) == expected


@pytest.mark.parametrize("channels", range(1, 10))
@pytest.mark.parametrize("taps", range(1, 8))
def test_any_number_of_channels_and_weights(channels: int, taps: int) -> None:
    random = np.random.default_rng(channels * 10 + taps)
    image = random.integers(0, 256, (5, 7, channels)).astype(np.float32)

    def table(size: int, resized: int) -> tuple[Any, ...]:
        counts = random.integers(1, taps + 1, resized)
        weights = random.integers(-3, 4, resized * taps).astype(np.float32)
        return random.integers(0, size, resized * taps), weights, counts

    def matrix(size: int, indices: Any, weights: Any, counts: Any) -> Any:
        matrix = np.zeros((len(counts), size), np.float32)
        for y, count in enumerate(counts):
            np.add.at(matrix[y], indices[y * taps : y * taps + count], weights[y * taps : y * taps + count])
        return matrix

    rows, columns = table(5, 3), table(7, 4)
    # Whole numbers, so that the order of sums does not matter.
    expected = np.einsum("yh,xw,hwc->yxc", matrix(5, *rows), matrix(7, *columns), image)
    for kernel in ("sum_rows_first", "sum_columns_first"):
        found = sums(kernel, image.reshape(-1), 7 * channels, channels, rows, columns)
        assert found == expected.reshape(-1).tolist()


def between(
    source: Any, pitch: int, channels: int, rows: Any, row_shares: Any, columns: Any, column_shares: Any
) -> list[float] | None:
    width = len(column_shares) * channels
    target = np.full(len(row_shares) * width, 9, np.float32)
    tables = (rows, row_shares, columns, column_shares)
    if kernels.load().interpolate(source, pitch, channels, *tables, scratch(pitch, width), target):
        return list(target.tolist())
    assert (target == 9).all()
    return None


@pytest.mark.parametrize("dtype", DTYPES)
def test_pixels_are_interpolated(dtype: Any) -> None:
    # One row between rows 0 and 1; its values between columns 0 and 1, and 1 and 1.
    rows = (ints(0, 1), singles(0.5))
    assert between(ROWS.astype(dtype), 2, 1, *rows, ints(0, 1, 1, 1), singles(0.25, 0.5)) == [2.25, 3]
    # Two rows of one pixel of two channels, the second one as it is.
    rows = (ints(0, 2, 1, 2), singles(0.25, 0))
    assert between(ROWS.astype(dtype), 2, 2, *rows, ints(0, 0), singles(0)) == [1.5, 2.5, 5, 6]


@pytest.mark.parametrize("channels", range(1, 10))
def test_any_number_of_channels_is_interpolated(channels: int) -> None:
    image = np.random.default_rng(channels).integers(0, 256, (2, 2, channels)).astype(np.float32)
    tables = (ints(0, 1), singles(0.5), ints(0, 0, 1, 0), singles(0.5, 0))
    expected = [image.mean((0, 1)).tolist(), image[:, 0].mean(0).tolist()]
    assert between(image.reshape(-1), 2 * channels, channels, *tables) == [*expected[0], *expected[1]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", ["sum_rows_first", "sum_columns_first"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"pitch": 0},
        {"pitch": 4},
        {"channels": 0},
        {"channels": 2},
        {"indices": ints(0, 1, 3, 0)},
        {"indices": ints(0, -1, 2, 0)},
        {"indices": ints(0, 1, 2)},
        {"weights": singles(1, 1, 1)},
        {"counts": ints(2, 0)},
        {"counts": ints(3, 1)},
        {"counts": ints()},
        {"surplus": 1},
        {"surplus": -1},
        {"scratch": 1},
        {"scratch": -1},
    ],
)
def test_tables_that_do_not_fit_the_image_are_refused(wrong: dict[str, Any], kernel: str, dtype: Any) -> None:
    good: dict[str, Any] = {
        "pitch": 3,
        "channels": 1,
        "indices": ints(0, 1, 2, 0),
        "weights": singles(1, 1, 1, 1),
        "counts": ints(2, 1),
    }
    source = np.ones(9, dtype)
    given = good | wrong
    table = (given["indices"], given["weights"], given["counts"])
    for tables, size in (((*table, *EVERY_PIXEL), 3), ((*EVERY_PIXEL, *table), 3)):
        target = np.full(
            len(given["counts"]) * size * given["channels"] + given.get("surplus", 0), 9, np.float32
        )
        width = len(tables[5]) * given["channels"]
        room = scratch(given["pitch"], width)
        room = np.append(room, room)[: len(room) + given.get("scratch", 0)]
        run = getattr(kernels.load(), kernel)
        assert not run(source, given["pitch"], given["channels"], *tables, room, target)
        assert (target == 9).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("pitch", "channels", "rows", "columns", "surplus"),
    [
        (0, 1, ints(0, 1), ints(0, 1, 1, 1), 0),
        (4, 1, ints(0, 1), ints(0, 1, 1, 1), 0),
        (2, 0, ints(0, 1), ints(0, 1, 1, 1), 0),
        (2, 4, ints(0, 1), ints(0, 0, 0, 0), 0),
        (2, 2, ints(0, 1), ints(0, 1, 0, 0), 0),
        (2, 1, ints(0, 3), ints(0, 1, 1, 1), 0),
        (2, 1, ints(-1, 1), ints(0, 1, 1, 1), 0),
        (2, 1, ints(0, 1), ints(0, 1, 1, 2), 0),
        (2, 1, ints(0, 1), ints(0, 1, -1, 1), 0),
        (2, 1, ints(0), ints(0, 1, 1, 1), 0),
        (2, 1, ints(0, 1), ints(0, 1, 1), 0),
        (2, 1, ints(0, 1), ints(0, 1, 1, 1), 1),
    ],
)
def test_places_beyond_the_image_are_refused(
    pitch: int, channels: int, rows: Any, columns: Any, surplus: int, dtype: Any
) -> None:
    target = np.full(2 * max(channels, 1) + surplus, 9, np.float32)
    tables = (pitch, channels, rows, singles(0.5), columns, singles(0.25, 0.5))
    room = scratch(pitch, 2 * channels)
    assert not kernels.load().interpolate(ROWS.astype(dtype), *tables, room, target)
    assert (target == 9).all()


@pytest.mark.parametrize("surplus", [-1, 1])
def test_scratch_that_does_not_fit_is_refused(surplus: int) -> None:
    target = np.full(2, 9, np.float32)
    tables = (2, 1, ints(0, 1), singles(0.5), ints(0, 1, 1, 1), singles(0.25, 0.5))
    room = np.zeros(resample.scratch_size(2, 2) + surplus, np.float32)
    assert not kernels.load().interpolate(ROWS, *tables, room, target)
    assert (target == 9).all()
