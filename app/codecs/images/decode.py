"""Decoding images to the pixels that TensorFlow decodes them to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ...domain.dtypes import DTYPES, DType
from ...errors import InputError, UnprocessableInput
from ...runtime.images import EncodedImage, Image, ImageHeader
from .header import read_header

#: Of one image; more is a mistake, or meant to be one.
MAX_PIXELS: Final = 1 << 28
UINT8: Final = DTYPES["uint8"]
UINT16: Final = DTYPES["uint16"]

#: What a decoder holds, in times of `ImageHeader.num_bytes`: 6 bytes a pixel for a progressive JPEG, up to 18
#: for others (WebP).
_WORKING_JPEG: Final = 2
_WORKING: Final = 5
#: Images that are decoded at a time.
_AT_A_TIME: Final = 2


def prepare_image(data: bytes | memoryview, channels: int, dtype: DType) -> EncodedImage:
    """An image to be decoded, of which nothing but the header has been read.

    Args:
        channels: 0 for those of the image, 1 grey, 3 RGB, 4 RGBA.
        dtype: uint8, or uint16 for a PNG.

    Raises:
        MalformedInput: no image, or one that is cut off (`not_an_image`).
        UnprocessableInput: an image that is not decoded to that, with the reason (`unsupported_image`).
    """
    header = read_header(bytes(data))
    if reason := _unfit(header, channels, dtype):
        raise UnprocessableInput(f"This image is not decoded: {reason}.", code="unsupported_image")
    return EncodedImage(data, header, channels or (header.channels if header.format == "jpeg" else 0))


def _unfit(header: ImageHeader, channels: int, dtype: DType) -> str | None:
    """Why an image of this header is not decoded to these channels and this dtype, or None."""
    if header.height * header.width > MAX_PIXELS:
        return f"it has {header.height} x {header.width} pixels, and at most {MAX_PIXELS} are decoded"
    if header.depth == 16 and dtype is UINT8:
        return "it has 16 bits in each channel; set the dtype uint16"
    if dtype is not UINT8 and header.format != "png":
        return f"a {header.format} has 8 bits in each channel; set the dtype uint8"
    if channels == 4 and header.format == "jpeg":
        return "a JPEG has no alpha channel; set channels to 3"
    if channels == 1 and header.inverted is not None:
        return "a JPEG of four inks is not decoded as grey; set channels to 3"
    return None


def decoding_bytes(images: Sequence[EncodedImage]) -> int:
    """Memory that decoding images takes, the results included.

    The encoded and the decoded bytes are here and in the memory that is shared with the decoder.
    """
    working = sorted(_working_bytes(image.header) for image in images)
    held = sum(len(image.data) + image.header.num_bytes for image in images)
    return 2 * held + sum(working[-_AT_A_TIME:])


def _working_bytes(header: ImageHeader) -> int:
    is_plain_jpeg = header.format == "jpeg" and header.inverted is None
    return header.num_bytes * (_WORKING_JPEG if is_plain_jpeg else _WORKING)


def finish_image(image: Image, header: ImageHeader, dtype: DType) -> Image:
    """What was decoded, as `dtype`: 8 bits are spread over the range of 16."""
    if dtype is not UINT8 and header.depth == 8:
        return image.astype(np.uint16) * np.uint16(257)
    return image


def reason_of(error: InputError) -> str:
    """The reason alone, for an error that names the place itself."""
    return error.detail.rstrip(".")
