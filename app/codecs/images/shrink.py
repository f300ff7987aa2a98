"""Smaller images, to be looked at: their pixels are means, which no TensorFlow has to agree with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def shrink(pixels: NDArray[Any], height: int, width: int) -> NDArray[np.uint8]:
    """The mean of the pixels that each small one covers; of a large image, of some of them.

    Args:
        pixels: `[height, width, channels]` of uint8.
        height, width: of the result; no larger than the image's, but at least 1.
    """
    step = max(1, min(pixels.shape[0] // (4 * height), pixels.shape[1] // (4 * width)))
    means: NDArray[Any] = pixels[::step, ::step].astype(np.float32)
    for axis, size in ((0, height), (1, width)):
        edges = np.linspace(0, means.shape[axis], size + 1)[:-1].astype(np.int64)
        ends = np.append(edges[1:], means.shape[axis])
        sums = np.add.reduceat(means, edges, axis=axis)
        shape = [1, 1, 1]
        shape[axis] = size
        means = sums / np.maximum(ends - edges, 1).reshape(shape)
    small: NDArray[np.uint8] = np.clip(means + 0.5, 0, 255).astype(np.uint8)
    return small
