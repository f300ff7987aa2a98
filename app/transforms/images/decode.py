"""Decoding images: bytes -> pixels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from typing_extensions import override

from ...codecs.columns import Column, Strings
from ...domain.dtypes import BYTES, DType
from ...domain.feature import Feature
from ...errors import InputError
from ..step import (
    RowsRefused,
    Step,
    Tools,
    changed,
    column_of,
    invalid,
    strings_of,
)
from .codecs import Encoded, Refusal
from .header import Header, read_header
from .image_step import MAX_PIXELS, UINT8, Image


@dataclass(frozen=True, slots=True)
class DecodeImage(Step):
    """`tf.io.decode_image` of one frame: JPEG, PNG, GIF, WebP, BMP -> pixels.

    Args:
        channels: 0 for those of each image, 1 grey, 3 RGB, 4 RGBA.
        dtype: uint8, or uint16 for PNG alone.
        apply_exif_orientation: turn a JPEG as its camera says; TensorFlow never does.
    """

    name = "decode_image"
    channels: Literal[0, 1, 3, 4] = 0
    dtype: DType = UINT8
    apply_exif_orientation: bool = False

    def __post_init__(self) -> None:
        if self.dtype.name not in ("uint8", "uint16"):
            raise invalid(self.name, "dtype must be uint8 or uint16")

    @override
    def result(self, feature: Feature) -> Feature:
        if feature.dtype is not BYTES or feature.kind != "dense" or feature.shape:
            raise self.takes(feature, "one encoded image, bytes of shape []")
        return changed(feature, self.dtype, (None, None, self.channels or None))

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        strings = strings_of(column)
        images, refused = self._read_headers(strings)
        if refused:
            raise RowsRefused(refused)
        # Both the encoded and the decoded bytes are here and in the memory that is shared with the decoder.
        num_bytes = strings.nbytes + sum(image.header.num_bytes for image in images)
        tools.lease.charge(2 * num_bytes, "The decoded images of a batch")
        decoded: list[Image] = []
        for index, found in enumerate(tools.images.decode(images)):
            if isinstance(found, Refusal):
                refused[index] = f"the image cannot be decoded: {found.reason}"
            elif not refused:
                decoded.append(self._finish(found, images[index].header))
        if refused:
            raise RowsRefused(refused)
        return column_of(decoded, self.result(feature), column, tools)

    def _read_headers(self, strings: Strings) -> tuple[list[Encoded], dict[int, str]]:
        images: list[Encoded] = []
        refused: dict[int, str] = {}
        offsets = strings.offsets.tolist()
        for index, (begin, end) in enumerate(pairwise(offsets)):
            data = strings.data[begin:end].tobytes()
            try:
                header = read_header(data)
            except InputError as error:
                refused[index] = error.detail
                continue
            if reason := self._unfit(header):
                refused[index] = reason
            channels = self.channels or (header.channels if header.format == "jpeg" else 0)
            images.append(Encoded(data, header, channels))
        return images, refused

    def _unfit(self, header: Header) -> str | None:
        """Why an image of this header is not decoded, or None."""
        if header.height * header.width > MAX_PIXELS:
            return f"the image has {header.height} x {header.width} pixels; at most {MAX_PIXELS} are decoded"
        if header.depth == 16 and self.dtype is UINT8:
            return "the image has 16 bits in each channel; set the dtype uint16, or cast it afterwards"
        if self.dtype is not UINT8 and header.format != "png":
            return f"a {header.format} has 8 bits in each channel; set the dtype uint8"
        if self.channels == 4 and header.format == "jpeg":
            return "a JPEG has no alpha channel; set channels to 3"
        if self.channels == 1 and header.inverted is not None:
            return "a JPEG of four inks is not decoded as grey; set channels to 3, then rgb_to_grayscale"
        return None

    def _finish(self, image: Image, header: Header) -> Image:
        if self.dtype is not UINT8 and header.depth == 8:
            image = image.astype(np.uint16) * np.uint16(257)
        return _turned(image, header.orientation) if self.apply_exif_orientation else image


def _turned(image: Image, orientation: int) -> Image:
    """The image as it was seen, by EXIF's eight orientations."""
    if orientation in (5, 6, 7, 8):
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return image[:, ::-1] if orientation in (2, 3, 6, 7) else image
