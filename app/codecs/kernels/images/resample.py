"""Resampling of images: weighted sums of pixels along both axes, and bilinear interpolation.

Images are row-major `[height, width, channels]`, flat. Values are summed as float32, from the first weight
to the last, because sums in another order differ in their last bits.

The compiled kernels check no index: each first checks its tables and sizes, once for all values, and returns
whether it did its work. Along a row they compute `LANES` channels at a time, even where an image has fewer:
the surplus is overwritten by the next pixel, and behind the last one scratch rows have room for it.
"""

from __future__ import annotations

import numpy as np

from ..memory import Bytes, Ints, MutableSingles, Singles

#: Values that one instruction computes.
LANES = 4


def scratch_size(pitch: int, width: int) -> int:
    """Values of scratch that a kernel needs: a row of the source, and two of the target.

    Args:
        pitch: values in a row of the source, those of all channels.
        width: values in a row of the target.
    """
    return pitch + 2 * width + 3 * LANES


def raw_blend_lanes(
    target: MutableSingles, at: int, source: Singles, left: int, right: int, share: np.float32
) -> None:
    """Set `LANES` values of `target` to what lies between those at `left` and at `right`."""
    lefts, rights = source[left : left + LANES], source[right : right + LANES]
    target[at : at + LANES] = lefts + (rights - lefts) * share


def raw_sum_lanes(
    target: MutableSingles,
    at: int,
    source: Singles,
    channel: int,
    channels: int,
    indices: Ints,
    weights: Singles,
    first: int,
    count: int,
) -> None:
    """Set `LANES` values of `target` to a weighted sum of `count` pixels, from the tap `first` on."""
    begin = indices[first] * channels + channel
    sums = weights[first] * source[begin : begin + LANES]
    for tap in range(first + 1, first + count):
        begin = indices[tap] * channels + channel
        sums += weights[tap] * source[begin : begin + LANES]
    target[at : at + LANES] = sums


def _are_within(indices: Ints, limit: int) -> bool:
    for index in indices:  # noqa: SIM110  # kernels have no generators
        if index < 0 or index >= limit:
            return False
    return True


def _sums_fit(indices: Ints, weights: Singles, counts: Ints, limit: int) -> bool:
    """Whether each of `counts` items has at least one weight, and all indices lie below `limit`."""
    if counts.size == 0 or indices.size != weights.size or indices.size % counts.size != 0:
        return False
    taps = indices.size // counts.size
    for count in counts:
        if count < 1 or count > taps:
            return False
    return _are_within(indices, limit)


def _image_fits(size: int, pitch: int, channels: int) -> bool:
    """Whether `size` values are rows of `pitch`, and those pixels of `channels`."""
    return channels >= 1 and pitch >= 1 and pitch % channels == 0 and size % pitch == 0


def _widen(source: Bytes | Singles, begin: int, row: MutableSingles, size: int) -> None:
    values = source[begin : begin + size]
    for i in range(size):
        row[i] = np.float32(values[i])


def _sum_columns(
    row: Singles, channels: int, indices: Ints, weights: Singles, counts: Ints, result: MutableSingles
) -> None:
    """The pixels of `result` as weighted sums of those of `row`."""
    taps = indices.size // counts.size
    for x in range(counts.size):
        at, first, count = x * channels, x * taps, counts[x]
        raw_sum_lanes(result, at, row, 0, channels, indices, weights, first, count)
        for more in range(LANES, channels, LANES):
            raw_sum_lanes(result, at + more, row, more, channels, indices, weights, first, count)


def sum_rows_first(
    source: Bytes | Singles,
    pitch: int,
    channels: int,
    row_indices: Ints,
    row_weights: Singles,
    row_counts: Ints,
    column_indices: Ints,
    column_weights: Singles,
    column_counts: Ints,
    scratch: MutableSingles,
    target: MutableSingles,
) -> bool:
    """Each row of `target` is a weighted sum of rows of `source`, of which each pixel is one of pixels.

    Args:
        pitch: values in a row of `source`, those of all channels.
        row_indices, row_weights: `[rows of target, taps]`.
        row_counts: by row of `target`, how many of its taps count, at least one.
        column_indices, column_weights, column_counts: the same of the pixels in a row of `target`.
        scratch: of `scratch_size`.
    """
    if not _image_fits(source.size, pitch, channels):
        return False
    if not _sums_fit(row_indices, row_weights, row_counts, source.size // pitch):
        return False
    if not _sums_fit(column_indices, column_weights, column_counts, pitch // channels):
        return False
    height, width = row_counts.size, column_counts.size * channels
    if target.size != height * width or scratch.size != scratch_size(pitch, width):
        return False
    row, across = scratch[: pitch + LANES], scratch[pitch + LANES :]
    taps = row_indices.size // height
    for y in range(height):
        for tap in range(row_counts[y]):
            begin = row_indices[y * taps + tap] * pitch
            weight = row_weights[y * taps + tap]
            values = source[begin : begin + pitch]
            if tap == 0:
                for i in range(pitch):
                    row[i] = weight * np.float32(values[i])
            else:
                for i in range(pitch):
                    row[i] += weight * np.float32(values[i])
        _sum_columns(row, channels, column_indices, column_weights, column_counts, across)
        result = target[y * width : (y + 1) * width]
        for i in range(width):
            result[i] = across[i]
    return True


def sum_columns_first(
    source: Bytes | Singles,
    pitch: int,
    channels: int,
    row_indices: Ints,
    row_weights: Singles,
    row_counts: Ints,
    column_indices: Ints,
    column_weights: Singles,
    column_counts: Ints,
    scratch: MutableSingles,
    target: MutableSingles,
) -> bool:
    """As `sum_rows_first`, in the other order, which gives other last bits."""
    if not _image_fits(source.size, pitch, channels):
        return False
    if not _sums_fit(row_indices, row_weights, row_counts, source.size // pitch):
        return False
    if not _sums_fit(column_indices, column_weights, column_counts, pitch // channels):
        return False
    height, width = row_counts.size, column_counts.size * channels
    if target.size != height * width or scratch.size != scratch_size(pitch, width):
        return False
    row, across = scratch[: pitch + LANES], scratch[pitch + LANES :]
    taps = row_indices.size // height
    held = -1
    for y in range(height):
        result = target[y * width : (y + 1) * width]
        for tap in range(row_counts[y]):
            index = row_indices[y * taps + tap]
            weight = row_weights[y * taps + tap]
            if index != held:  # neighbours share rows
                _widen(source, index * pitch, row, pitch)
                _sum_columns(row, channels, column_indices, column_weights, column_counts, across)
                held = index
            if tap == 0:
                for i in range(width):
                    result[i] = weight * across[i]
            else:
                for i in range(width):
                    result[i] += weight * across[i]
    return True


def _interpolate_row(
    source: Bytes | Singles,
    begin: int,
    pitch: int,
    channels: int,
    columns: Ints,
    shares: Singles,
    row: MutableSingles,
    result: MutableSingles,
) -> None:
    """The pixels of `result` between those of a row of `source`."""
    _widen(source, begin, row, pitch)
    lefts, rights = columns[: shares.size], columns[shares.size :]
    for x in range(shares.size):
        at, left, right = x * channels, lefts[x] * channels, rights[x] * channels
        raw_blend_lanes(result, at, row, left, right, shares[x])
        for more in range(LANES, channels, LANES):
            raw_blend_lanes(result, at + more, row, left + more, right + more, shares[x])


def interpolate(
    source: Bytes | Singles,
    pitch: int,
    channels: int,
    rows: Ints,
    row_shares: Singles,
    columns: Ints,
    column_shares: Singles,
    scratch: MutableSingles,
    target: MutableSingles,
) -> bool:
    """Each pixel of `target` lies between two rows and two columns of `source`.

    Args:
        pitch: values in a row of `source`, those of all channels.
        rows, columns: `[2, rows of target]` and `[2, pixels in a row of target]`: between which it lies.
        row_shares, column_shares: how far it lies towards the second one, from 0 to 1.
        scratch: of `scratch_size`.
    """
    if not _image_fits(source.size, pitch, channels):
        return False
    height, width = row_shares.size, column_shares.size * channels
    if target.size != height * width or scratch.size != scratch_size(pitch, width):
        return False
    if rows.size != 2 * height or columns.size != 2 * column_shares.size:
        return False
    if not _are_within(rows, source.size // pitch) or not _are_within(columns, pitch // channels):
        return False
    row = scratch[: pitch + LANES]
    above = scratch[pitch + LANES : pitch + width + 2 * LANES]
    below = scratch[pitch + width + 2 * LANES :]
    for y in range(height):
        if y == 0 or rows[y] != rows[y - 1]:
            begin = rows[y] * pitch
            _interpolate_row(source, begin, pitch, channels, columns, column_shares, row, above)
        if y == 0 or rows[height + y] != rows[height + y - 1]:
            begin = rows[height + y] * pitch
            _interpolate_row(source, begin, pitch, channels, columns, column_shares, row, below)
        share = row_shares[y]
        result = target[y * width : (y + 1) * width]
        for i in range(width):
            result[i] = above[i] + (below[i] - above[i]) * share
    return True
