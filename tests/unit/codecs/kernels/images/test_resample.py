"""Resampling by hand; tests/differential/test_images.py compares it with TensorFlow."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from app.codecs import kernels


def ints(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def singles(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


ROWS = singles(1, 2, 3, 4, 5, 6)


def test_rows_are_weighed() -> None:
    target = np.full(4, 9, np.float32)
    indices, weights = ints(0, 1, 2, 0), singles(0.5, 0.25, 2, 7)
    assert kernels.load().weigh_rows(ROWS, 2, indices, weights, ints(2, 1), target)
    assert target.tolist() == [0.5 + 0.75, 1 + 1, 10, 12]


@pytest.mark.parametrize(
    ("width", "channels", "indices", "weights", "counts", "expected"),
    [
        (3, 1, ints(0, 1, 1, 0), singles(1, 1, 3, 9), ints(2, 1), [3, 6, 9, 15]),
        (2, 3, ints(0, 1), singles(0.5, 2), ints(2), [8.5, 11, 13.5]),
    ],
)
def test_columns_are_weighed(
    width: int, channels: int, indices: Any, weights: Any, counts: Any, expected: list[float]
) -> None:
    target = np.full(len(expected), 9, np.float32)
    assert kernels.load().weigh_columns(ROWS, width, channels, indices, weights, counts, target)
    assert target.tolist() == expected


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_pixels_are_interpolated(dtype: Any) -> None:
    target = np.empty(2, np.float32)
    # One row between rows 0 and 1; its values between columns 0 and 1, and 1 and 1.
    tables = (2, ints(0, 1), singles(0.5), ints(0, 1, 1, 1), singles(0.25, 0.5))
    if dtype is np.uint8:
        scratch = np.empty(4, np.float32)
        assert kernels.load().interpolate_bytes(ROWS.astype(dtype), *tables, scratch, target)
        assert not kernels.load().interpolate_bytes(ROWS.astype(dtype), *tables, scratch[1:], target)
    else:
        assert kernels.load().interpolate_singles(ROWS, *tables, target)
    assert target.tolist() == [2.25, 3]


GOOD: dict[str, Any] = {
    "width": 3,
    "indices": ints(0, 1, 2, 0),
    "weights": singles(1, 1, 1, 1),
    "counts": ints(2, 1),
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 0},
        {"width": 4},
        {"indices": ints(0, 1, 3, 0)},
        {"indices": ints(0, -1, 2, 0)},
        {"indices": ints(0, 1, 2)},
        {"weights": singles(1, 1, 1)},
        {"counts": ints(2, 0)},
        {"counts": ints(3, 1)},
        {"counts": ints()},
        {"surplus": 1},
        {"surplus": -1},
    ],
)
def test_tables_that_do_not_fit_the_image_are_refused(wrong: dict[str, Any]) -> None:
    given = GOOD | wrong
    source = np.ones(9, np.float32)
    tables = (given["indices"], given["weights"], given["counts"])
    size = 3 * len(given["counts"]) + given.get("surplus", 0)
    target = np.full(size, 9, np.float32)
    assert not kernels.load().weigh_rows(source, given["width"], *tables, target)
    assert not kernels.load().weigh_columns(source, given["width"], 1, *tables, target)
    assert (target == 9).all()


def test_an_image_has_a_channel() -> None:
    target = np.full(6, 9, np.float32)
    assert not kernels.load().weigh_columns(ROWS, 3, 0, ints(0), singles(1), ints(1), target)


@pytest.mark.parametrize(
    ("pitch", "rows", "columns", "size"),
    [
        (0, ints(0, 1), ints(0, 1, 1, 1), 2),
        (4, ints(0, 1), ints(0, 1, 1, 1), 2),
        (2, ints(0, 3), ints(0, 1, 1, 1), 2),
        (2, ints(-1, 1), ints(0, 1, 1, 1), 2),
        (2, ints(0, 1), ints(0, 1, 1, 2), 2),
        (2, ints(0, 1), ints(0, 1, -1, 1), 2),
        (2, ints(0), ints(0, 1, 1, 1), 2),
        (2, ints(0, 1), ints(0, 1, 1), 2),
        (2, ints(0, 1), ints(0, 1, 1, 1), 3),
    ],
)
def test_places_beyond_the_image_are_refused(pitch: int, rows: Any, columns: Any, size: int) -> None:
    target = np.full(size, 9, np.float32)
    tables = (pitch, rows, singles(0.5), columns, singles(0.25, 0.5))
    assert not kernels.load().interpolate_singles(ROWS, *tables, target)
    scratch = np.empty(2 * pitch, np.float32)
    assert not kernels.load().interpolate_bytes(ROWS.astype(np.uint8), *tables, scratch, target)
    assert (target == 9).all()
