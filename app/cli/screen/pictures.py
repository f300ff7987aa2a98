"""Images on a terminal, as half blocks: each character shows two pixels, one above the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...codecs.images.decode import UINT8, UINT16, decoding_bytes, prepare_image
from ...codecs.images.header import read_header
from ...codecs.images.shrink import shrink
from ...errors import InputError, Overloaded
from ...runtime.budget import Budget
from ...runtime.images import ImageCodecs, Refusal

#: More colours than 256, as most terminals of today say that they have them.
_TRUE_COLOUR: Final = ("truecolor", "24bit")
_UPPER_HALF: Final = "▀"


def can_show() -> bool:
    """Whether standard output is a terminal that shows colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def decode(data: bytes, images: ImageCodecs, budget: Budget) -> NDArray[Any] | None:
    """The pixels, `[height, width, channels]` of uint8; None where the image is not decoded."""
    try:
        dtype = UINT16 if read_header(data).depth == 16 else UINT8
        image = prepare_image(data, 3 if dtype is UINT8 else 0, dtype)
        budget.charge(decoding_bytes([image]), "An image")
        try:
            (decoded,) = images.decode([image])
        finally:
            budget.release(decoding_bytes([image]))
    except (InputError, Overloaded):
        return None
    if isinstance(decoded, Refusal):
        return None
    return (decoded >> 8).astype(np.uint8) if decoded.dtype == np.uint16 else decoded


def half_blocks(pixels: NDArray[Any], width: int) -> Iterator[str]:
    """The lines that show an image in so many columns.

    Args:
        pixels: `[height, width, channels]` of uint8 or uint16, with 1, 2, 3 or 4 channels.
        width: the most columns; one at least is taken.
    """
    colours = _rgb(pixels >> 8 if pixels.dtype == np.uint16 else pixels)
    height, across = colours.shape[:2]
    columns = max(1, min(width, across))
    rows = max(2, round(height * columns / across))
    small = shrink(colours, rows + rows % 2, columns)
    paint = _paint_true if os.environ.get("COLORTERM") in _TRUE_COLOUR else _paint_256
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        cells = (paint(above, below) for above, below in zip(upper.tolist(), lower.tolist(), strict=True))
        yield "".join(cells) + "\x1b[0m"


def _rgb(pixels: NDArray[Any]) -> NDArray[Any]:
    channels = pixels.shape[2]
    return np.repeat(pixels[..., :1], 3, axis=2) if channels < 3 else pixels[..., :3]


def _paint_true(above: list[int], below: list[int]) -> str:
    front, back = (";".join(map(str, colour)) for colour in (above, below))
    return f"\x1b[38;2;{front};48;2;{back}m{_UPPER_HALF}"


def _paint_256(above: list[int], below: list[int]) -> str:
    return f"\x1b[38;5;{_index(above)};48;5;{_index(below)}m{_UPPER_HALF}"


def _index(colour: list[int]) -> int:
    """The nearest of the 6×6×6 colours of xterm, or of its 24 greys."""
    if max(colour) - min(colour) < 8:
        return 232 + min(23, colour[0] * 24 // 256)
    red, green, blue = (round(part / 255 * 5) for part in colour)
    return 16 + 36 * red + 6 * green + blue
