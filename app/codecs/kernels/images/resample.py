"""Resampling of images: weighted sums along one axis, and bilinear interpolation along both.

Images are row-major `[height, width, channels]`, flat. Values are summed as float32, from the first weight
to the last, because sums in another order differ in their last bits.

The compiled kernels check no index: each first checks its tables and sizes, once for all values, and returns
whether it did its work.
"""

from __future__ import annotations

import numpy as np

from ..memory import Bytes, Ints, MutableSingles, Singles


def _are_within(indices: Ints, limit: int) -> bool:
    for index in indices:  # noqa: SIM110  # kernels have no generators
        if index < 0 or index >= limit:
            return False
    return True


def _tables_fit(indices: Ints, weights: Singles, counts: Ints, limit: int) -> bool:
    """Whether each of `counts` items has at least one weight, and all indices lie below `limit`."""
    if counts.size == 0 or indices.size != weights.size or indices.size % counts.size != 0:
        return False
    taps = indices.size // counts.size
    for count in counts:
        if count < 1 or count > taps:
            return False
    return _are_within(indices, limit)


def weigh_rows(
    source: Singles, width: int, indices: Ints, weights: Singles, counts: Ints, target: MutableSingles
) -> bool:
    """Each row of `target` is a weighted sum of rows of `source`.

    Args:
        width: values in a row.
        indices, weights: `[rows of target, taps]`.
        counts: by row of `target`, how many of its taps count, at least one.
    """
    if width < 1 or source.size % width != 0 or target.size != counts.size * width:
        return False
    if not _tables_fit(indices, weights, counts, source.size // width):
        return False
    taps = indices.size // counts.size
    for y in range(counts.size):
        row = target[y * width : (y + 1) * width]
        at = indices[y * taps] * width
        weight = weights[y * taps]
        values = source[at : at + width]
        for i in range(width):
            row[i] = weight * values[i]
        for tap in range(1, counts[y]):
            at = indices[y * taps + tap] * width
            weight = weights[y * taps + tap]
            values = source[at : at + width]
            for i in range(width):
                row[i] += weight * values[i]
    return True


def weigh_columns(
    source: Singles,
    width: int,
    channels: int,
    indices: Ints,
    weights: Singles,
    counts: Ints,
    target: MutableSingles,
) -> bool:
    """Each pixel of a row of `target` is a weighted sum of pixels of that row of `source`.

    Args:
        width: pixels in a row of `source`.
        indices, weights: `[pixels in a row of target, taps]`.
        counts: by pixel, how many of its taps count, at least one.
    """
    if width < 1 or channels < 1 or source.size % (width * channels) != 0:
        return False
    height = source.size // (width * channels)
    if target.size != height * counts.size * channels:
        return False
    if not _tables_fit(indices, weights, counts, width):
        return False
    taps = indices.size // counts.size
    out_width = counts.size
    for y in range(height):
        row = source[y * width * channels : (y + 1) * width * channels]
        result = target[y * out_width * channels : (y + 1) * out_width * channels]
        if channels == 3:
            for x in range(out_width):
                at = indices[x * taps] * 3
                weight = weights[x * taps]
                first = weight * row[at]
                second = weight * row[at + 1]
                third = weight * row[at + 2]
                for tap in range(1, counts[x]):
                    at = indices[x * taps + tap] * 3
                    weight = weights[x * taps + tap]
                    first += weight * row[at]
                    second += weight * row[at + 1]
                    third += weight * row[at + 2]
                result[x * 3] = first
                result[x * 3 + 1] = second
                result[x * 3 + 2] = third
        else:
            for x in range(out_width):
                for channel in range(channels):
                    total = weights[x * taps] * row[indices[x * taps] * channels + channel]
                    for tap in range(1, counts[x]):
                        at = indices[x * taps + tap] * channels + channel
                        total += weights[x * taps + tap] * row[at]
                    result[x * channels + channel] = total
    return True


def _blend(first: np.float32, second: np.float32, share: np.float32) -> np.float32:
    return first + (second - first) * share


def _places_fit(
    size: int,
    pitch: int,
    rows: Ints,
    row_shares: Singles,
    columns: Ints,
    column_shares: Singles,
    target: MutableSingles,
) -> bool:
    """Whether tables of `interpolate_singles` fit an image of `size` values."""
    if pitch < 1 or size % pitch != 0 or target.size != row_shares.size * column_shares.size:
        return False
    if rows.size != 2 * row_shares.size or columns.size != 2 * column_shares.size:
        return False
    return _are_within(rows, size // pitch) and _are_within(columns, pitch)


def _interpolate_row(
    above: Singles, below: Singles, down: np.float32, columns: Ints, shares: Singles, result: MutableSingles
) -> None:
    lefts, rights = columns[: shares.size], columns[shares.size :]
    for x in range(shares.size):
        left, right = np.uint64(lefts[x]), np.uint64(rights[x])
        upper = _blend(above[left], above[right], shares[x])
        lower = _blend(below[left], below[right], shares[x])
        result[x] = _blend(upper, lower, down)


def interpolate_singles(
    source: Singles,
    pitch: int,
    rows: Ints,
    row_shares: Singles,
    columns: Ints,
    column_shares: Singles,
    target: MutableSingles,
) -> bool:
    """Each value of `target` lies between two rows and two columns of `source`.

    Args:
        pitch: values in a row of `source`, those of all channels.
        rows, columns: `[2, rows of target]` and `[2, values in a row of target]`: between which it lies.
        row_shares, column_shares: how far it lies towards the second one, from 0 to 1.
    """
    if not _places_fit(source.size, pitch, rows, row_shares, columns, column_shares, target):
        return False
    height, width = row_shares.size, column_shares.size
    for y in range(height):
        above = source[rows[y] * pitch : (rows[y] + 1) * pitch]
        below = source[rows[height + y] * pitch : (rows[height + y] + 1) * pitch]
        result = target[y * width : (y + 1) * width]
        _interpolate_row(above, below, row_shares[y], columns, column_shares, result)
    return True


def interpolate_bytes(
    source: Bytes,
    pitch: int,
    rows: Ints,
    row_shares: Singles,
    columns: Ints,
    column_shares: Singles,
    scratch: MutableSingles,
    target: MutableSingles,
) -> bool:
    """As `interpolate_singles`, of bytes; `scratch` holds two rows of `source`."""
    if not _places_fit(source.size, pitch, rows, row_shares, columns, column_shares, target):
        return False
    if scratch.size != 2 * pitch:
        return False
    height, width = row_shares.size, column_shares.size
    above, below = scratch[:pitch], scratch[pitch:]
    for y in range(height):
        upper = source[rows[y] * pitch : (rows[y] + 1) * pitch]
        lower = source[rows[height + y] * pitch : (rows[height + y] + 1) * pitch]
        if y == 0 or rows[y] != rows[y - 1]:
            for x in range(pitch):
                above[x] = upper[x]
        if y == 0 or rows[height + y] != rows[height + y - 1]:
            for x in range(pitch):
                below[x] = lower[x]
        result = target[y * width : (y + 1) * width]
        _interpolate_row(above, below, row_shares[y], columns, column_shares, result)
    return True
