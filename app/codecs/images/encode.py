"""Encoding images to the bytes that TensorFlow encodes them to; PNG to the same pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...runtime.images import Image, Pixels

#: The channels that each format has.
CHANNELS: Final = {"jpeg": (1, 3), "png": (1, 2, 3, 4)}


def jpeg_pixels(
    image: Image,
    quality: int = 95,
    *,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
) -> Pixels:
    """An image to be encoded as by `tf.io.encode_jpeg`.

    Args:
        image: uint8 of 1 or 3 channels, with at least one pixel.
        quality: 1 to 100.
    """
    options: dict[str, Any] = {
        "quality": quality,
        "progressive": progressive,
        "optimize": optimize_size,
        "dpi": (300, 300),  # what TensorFlow writes
    }
    if image.shape[2] == 3:
        options["subsampling"] = 2 if chroma_downsampling else 0
    return Pixels(image, "JPEG", tuple(options.items()))


def png_pixels(image: Image, compression: int = -1) -> Pixels:
    """An image to be encoded as by `tf.io.encode_png`.

    Args:
        image: uint8 of 1 to 4 channels, with at least one pixel.
        compression: 0 to 9; -1 for the default of zlib.
    """
    level = {} if compression == -1 else {"compress_level": compression}
    return Pixels(image, "PNG", tuple(level.items()))


def encoding_bytes(images: Sequence[Image]) -> int:
    """Memory that encoding images takes, the results included."""
    return encoding_room(sum(image.nbytes for image in images), len(images))


def encoding_room(num_bytes: int, num_images: int) -> int:
    """As `encoding_bytes`, for images of so many bytes together.

    The pixels are copied to memory shared with the encoder, which has room for twice as much.
    """
    return 4 * num_bytes + 4096 * num_images
