"""Smaller images, to be looked at: their pixels are means, which no TensorFlow has to agree with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def thin(pixels: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Some of the pixels, as a view: in each direction all if they are few, else less than twice as many."""
    return pixels[:: max(1, pixels.shape[0] // height), :: max(1, pixels.shape[1] // width)]


def shrink(pixels: NDArray[Any], height: int, width: int) -> NDArray[np.uint8]:
    """The mean of the pixels that each small one covers; of a large image, of some of them.

    Args:
        pixels: `[height, width, channels]` of uint8.
        height, width: of the result; no larger than the image's, but at least 1.
    """
    means = thin(pixels, 2 * height, 2 * width)
    for axis, size in ((0, height), (1, width)):
        edges = np.linspace(0, means.shape[axis], size + 1)[:-1].astype(np.int64)
        ends = np.append(edges[1:], means.shape[axis])
        sums = np.add.reduceat(means, edges, axis=axis, dtype=np.float32)
        shape = [1, 1, 1]
        shape[axis] = size
        means = sums / np.maximum(ends - edges, 1).reshape(shape)
    small: NDArray[np.uint8] = np.clip(means + 0.5, 0, 255).astype(np.uint8)
    return small
