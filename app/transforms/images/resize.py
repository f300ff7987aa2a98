"""`tf.image.resize`: the weights of each method, as float32, and what the kernels make of them.

The same float32 operations in the same order as TensorFlow 2.21 on a processor: results are equal to the
last bit (tests/differential/test_images.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...codecs import kernels
from ...codecs.kernels.images.resample import scratch_size

Method = Literal[
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"
]
Image = NDArray[Any]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

#: Entries of the table that bicubic weights come from.
_CUBIC_STEPS: Final = 1024
#: Tables of an axis that are kept: images of a data set mostly have few sizes.
_KEPT: Final = 256
#: Weights whose sum is smaller are left as they are.
_LEAST_SUM: Final = np.float32(1000) * np.finfo(np.float32).tiny

#: Whole numbers below it are exact in float32, and so are their sums.
_FIRST_INEXACT: Final = 1 << 24

_one, _half = np.float32(1), np.float32(0.5)


@dataclass(frozen=True, eq=False)
class Weights:
    """What the pixels of one axis are summed from.

    Attributes:
        indices, weights: `[pixels, taps]`, flat.
        counts: by pixel, how many of its taps count.
        are_ones: whether all weights are 1.
    """

    indices: Ints
    weights: Singles
    counts: Ints
    are_ones: bool = False


def resize(image: Image, height: int, width: int, method: Method, *, antialias: bool) -> Image:
    """An image `[height, width, channels]` of another size.

    Returns:
        float32; of the same dtype for the method `nearest`.
    """
    if method == "nearest":
        return image.take(_nearest(image.shape[0], height), 0).take(_nearest(image.shape[1], width), 1)
    if method == "bilinear" and not antialias:
        return _interpolate(image, height, width)
    if method == "area":
        rows, columns = _area(image.shape[0], height), _area(image.shape[1], width)
        # Sums of bytes are whole numbers, exact in either order; with rows first there are fewer to be made.
        is_exact = image.dtype == np.uint8 and rows.are_ones and columns.are_ones
        is_exact = is_exact and 255 * int(rows.counts[0] * columns.counts[0]) < _FIRST_INEXACT
        kernel = kernels.load().sum_rows_first if is_exact else kernels.load().sum_columns_first
        resized = _sum(image, rows, columns, kernel)
        scale = _one / (_scale(image.shape[0], height) * _scale(image.shape[1], width))
        np.multiply(resized, scale, out=resized)
        return resized
    if method == "bicubic" and not antialias:
        rows, columns = _cubic(image.shape[0], height), _cubic(image.shape[1], width)
    else:
        rows = _sampled(image.shape[0], height, method, antialias)
        columns = _sampled(image.shape[1], width, method, antialias)
    return _sum(image, rows, columns, kernels.load().sum_rows_first)


def fitted_size(height: int, width: int, target: tuple[int, int]) -> tuple[int, int]:
    """The largest size within `target` with the aspect ratio of the image, rounded, as TensorFlow has it."""
    rows, columns = np.float32(height), np.float32(width)
    scale = min(np.float32(target[0]) / rows, np.float32(target[1]) / columns)
    return int(np.round(scale * rows)), int(np.round(scale * columns))


def _scale(size: int, resized: int) -> np.float32:
    return np.float32(size) / np.float32(resized)


@lru_cache(_KEPT)
def _nearest(size: int, resized: int) -> Ints:
    centers = (np.arange(resized, dtype=np.float32) + _half) * _scale(size, resized)
    nearest: Ints = np.minimum(np.floor(centers).astype(np.int64), size - 1)
    return nearest


@lru_cache(_KEPT)
def _neighbours(size: int, resized: int) -> tuple[Ints, Singles]:
    """Between which two pixels each lies, and how far towards the second one."""
    places = (np.arange(resized, dtype=np.float32) + _half) * _scale(size, resized) - _half
    below = np.floor(places)
    first = np.maximum(below.astype(np.int64), 0)
    second = np.minimum(np.ceil(places).astype(np.int64), size - 1)
    return np.concatenate((first, second)), places - below


def _interpolate(image: Image, height: int, width: int) -> Image:
    tables = (*_neighbours(image.shape[0], height), *_neighbours(image.shape[1], width))
    return _resampled(image, height, width, tables, kernels.load().interpolate)


@lru_cache(1)
def _cubic_table() -> Singles:
    """Keys' cubic at distances from 0 to 2, computed in float64 from float32 distances."""
    distance = (np.arange(_CUBIC_STEPS + 1) / _CUBIC_STEPS).astype(np.float32)
    near = distance.astype(np.float64)
    far = (distance + _one).astype(np.float64)
    a = -0.5
    inner = ((a + 2) * near - (a + 3)) * near * near + 1
    outer = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    return np.stack((inner, outer)).astype(np.float32)


@lru_cache(_KEPT)
def _cubic(size: int, resized: int) -> Weights:
    """Four pixels around each; those outside of the image weigh nothing."""
    places = (np.arange(resized, dtype=np.float32) + _half) * _scale(size, resized) - _half
    below = np.floor(places)
    step = np.rint((places - below) * np.float32(_CUBIC_STEPS)).astype(np.int64)
    inner, outer = _cubic_table()
    rest = _CUBIC_STEPS - step
    weights = np.stack((outer[step], inner[step], inner[rest], outer[rest]), 1)
    wanted = below.astype(np.int64)[:, None] + np.arange(-1, 3)
    indices = np.clip(wanted, 0, size - 1)
    weights[indices != wanted] = 0
    return Weights(indices.reshape(-1), _normalized(weights), np.full(resized, 4, np.int64))


def _normalized(weights: Singles) -> Singles:
    """Weights `[pixels, taps]` divided by their sums, flat."""
    sums = weights.cumsum(1, dtype=np.float32)[:, -1:]  # from the first to the last, as a loop adds
    large = np.abs(sums) >= _LEAST_SUM
    factors = np.divide(_one, sums, out=np.ones_like(sums), where=large)
    normalized: Singles = (weights * factors).reshape(-1)
    return normalized


@lru_cache(_KEPT)
def _area(size: int, resized: int) -> Weights:
    """All pixels under each, with the part of them that lies under it."""
    scale = _scale(size, resized)
    begins = np.arange(resized, dtype=np.float32) * scale
    ends = np.arange(1, resized + 1, dtype=np.float32) * scale
    first, last = np.floor(begins).astype(np.int64), np.ceil(ends).astype(np.int64)
    counts = last - first
    pixels = first[:, None] + np.arange(counts.max())
    lower, upper = pixels.astype(np.float32), (pixels + 1).astype(np.float32)
    begins, ends = begins[:, None], ends[:, None]
    cut_before = np.where(upper > ends, scale, upper - begins)
    cut_behind = np.where(upper > ends, ends - lower, _one)
    weights = np.where(lower < begins, cut_before, cut_behind).astype(np.float32)
    indices = np.clip(pixels, 0, size - 1).reshape(-1)
    return Weights(indices, weights.reshape(-1), counts, are_ones=bool((weights == 1).all()))


@lru_cache(_KEPT)
def _sampled(size: int, resized: int, method: Method, antialias: bool) -> Weights:
    """All pixels within the radius of a sampling function, which is widened where an image gets smaller."""
    radius = _RADIUS[method]
    inverse = _one / (np.float32(resized) / np.float32(size))
    widened = max(inverse, _one) if antialias else _one
    taps = min(2 * int(np.ceil(radius * widened)) + 1, size)
    centers = (np.arange(resized, dtype=np.float32) + _half) * inverse
    first = np.ceil(centers - radius * widened - _half).astype(np.int64)
    last = np.floor(centers + radius * widened - _half).astype(np.int64)
    first, last = np.clip(first, 0, size - 1), np.clip(last, 0, size - 1)
    pixels = first[:, None] + np.arange(taps)
    distances = pixels.astype(np.float32) + _half - centers[:, None]
    weights = _sampling(method, np.abs(distances * (_one / widened)))
    weights[pixels > last[:, None]] = 0
    counts = np.minimum(first + taps, size) - first
    return Weights(np.minimum(pixels, size - 1).reshape(-1), _normalized(weights), counts)


_RADIUS: Final[dict[str, np.float32]] = {
    "bilinear": np.float32(1),
    "bicubic": np.float32(2),
    "mitchellcubic": np.float32(2),
    "lanczos3": np.float32(3),
    "lanczos5": np.float32(5),
    "gaussian": np.float32(1.5),
}


def _sampling(method: Method, x: Singles) -> Singles:
    """The sampling function at distances `x`."""
    if method == "bilinear":
        return np.where(x < 1, _one - x, np.float32(0))
    if method == "bicubic":
        outer = ((np.float32(-0.5) * x + np.float32(2.5)) * x - np.float32(4)) * x + np.float32(2)
        inner = ((np.float32(1.5) * x - np.float32(2.5)) * x) * x + _one
        return np.where(x >= 2, np.float32(0), np.where(x >= 1, outer, inner))
    if method == "mitchellcubic":
        outer = (
            (np.float32(-7) / np.float32(18) * x + np.float32(2)) * x - np.float32(10) / np.float32(3)
        ) * x
        inner = ((np.float32(7) / np.float32(6) * x - np.float32(2)) * x) * x
        outer, inner = outer + np.float32(16) / np.float32(9), inner + np.float32(8) / np.float32(9)
        return np.where(x >= 2, np.float32(0), np.where(x >= 1, outer, inner))
    radius = _RADIUS[method]
    if method == "gaussian":
        sigma = np.float64(radius / np.float32(3))
        return np.where(x >= radius, 0, np.exp(-x * x / (2.0 * sigma * sigma))).astype(np.float32)
    pi = np.float32(3.14159265359)
    safe = np.where(x <= np.float32(1e-3), _one, x)
    waves = radius * _sine(pi * safe) * _sine(pi * safe / radius) / (pi * pi * safe * safe)
    return np.where(x > radius, np.float32(0), np.where(x <= np.float32(1e-3), _one, waves))


def _sine(x: Singles) -> Singles:
    """The float32 sine of numbers from 0 to 120 as the GNU C library computes it, on every machine.

    The polynomials are those of glibc 2.28 (sysdeps/ieee754/flt-32/s_sincosf_data.c): sine and cosine on
    [-pi/4, pi/4], in float64.
    """
    wide = x.astype(np.float64)
    quarter = np.where(wide < np.pi / 4, 0, np.rint(wide * (2 / np.pi))).astype(np.int64)
    rest = wide - quarter * _HALF_PI
    rest = np.where(quarter & 2, -rest, rest)
    square = rest * rest
    cube = rest * square
    sine = (rest + cube * _SINE[0]) + cube * square * (_SINE[1] + square * _SINE[2])
    fourth = square * square
    cosine = ((1 + square * _COSINE[0]) + fourth * _COSINE[1]) + fourth * square * (
        _COSINE[2] + square * _COSINE[3]
    )
    cosine = np.where(quarter & 2, -cosine, cosine)
    result: Singles = np.where(quarter & 1, cosine, sine).astype(np.float32)
    return result


_HALF_PI: Final = float.fromhex("0x1.921FB54442D18p0")
_SINE: Final = tuple(
    map(float.fromhex, ("-0x1.555545995a603p-3", "0x1.1107605230bc4p-7", "-0x1.994eb3774cf24p-13"))
)
_COSINE: Final = tuple(
    map(
        float.fromhex,
        ("-0x1.ffffffd0c621cp-2", "0x1.55553e1068f19p-5", "-0x1.6c087e89a359dp-10", "0x1.99343027bf8c3p-16"),
    )
)


def _sum(image: Image, rows: Weights, columns: Weights, kernel: Callable[..., bool]) -> Image:
    tables = (rows.indices, rows.weights, rows.counts, columns.indices, columns.weights, columns.counts)
    return _resampled(image, len(rows.counts), len(columns.counts), tables, kernel)


def _resampled(
    image: Image, height: int, width: int, tables: tuple[Any, ...], kernel: Callable[..., bool]
) -> Image:
    channels = image.shape[2]
    pitch = image.shape[1] * channels
    # Bytes become float32 in the kernel, row by row.
    source = np.ascontiguousarray(image, np.uint8 if image.dtype == np.uint8 else np.float32)
    target = np.empty((height, width, channels), np.float32)
    scratch = np.empty(scratch_size(pitch, width * channels), np.float32)
    if not kernel(source.reshape(-1), pitch, channels, *tables, scratch, target.reshape(-1)):
        raise AssertionError("a kernel was given tables that do not fit its image")
    return target
