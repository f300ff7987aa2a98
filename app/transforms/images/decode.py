"""Decoding images: bytes -> pixels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from typing_extensions import override

from ...codecs.columns import Column, Strings
from ...codecs.images.decode import UINT8, decoding_bytes, finish_image, prepare_image, reason_of
from ...domain.dtypes import BYTES, DType
from ...domain.feature import Feature
from ...errors import InputError
from ...runtime.images import EncodedImage, Image, ImageHeader, Refusal
from ...runtime.turns import offer_turn
from ..step import (
    RowsRefused,
    Step,
    Tools,
    changed,
    column_of,
    invalid,
    strings_of,
)


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
        images, refused = self._prepare(strings_of(column))
        if refused:
            raise RowsRefused(refused)
        tools.lease.budget.amplify("decoded", sum(image.header.num_bytes for image in images))
        tools.lease.charge(decoding_bytes(images), "The decoded images of a batch")
        decoded: list[Image] = []
        for index, found in enumerate(tools.images.decode(images)):
            if isinstance(found, Refusal):
                refused[index] = f"the image cannot be decoded: {found.reason}"
            elif not refused:
                decoded.append(self._finish(found, images[index].header))
        if refused:
            raise RowsRefused(refused)
        return column_of(decoded, self.result(feature), column, tools)

    def _prepare(self, strings: Strings) -> tuple[list[EncodedImage], dict[int, str]]:
        images: list[EncodedImage] = []
        refused: dict[int, str] = {}
        for index, (begin, end) in enumerate(pairwise(strings.offsets.tolist())):
            offer_turn()
            try:
                data = strings.data[begin:end].tobytes()
                images.append(prepare_image(data, self.channels, self.dtype))
            except InputError as error:
                refused[index] = reason_of(error)
        return images, refused

    def _finish(self, image: Image, header: ImageHeader) -> Image:
        image = finish_image(image, header, self.dtype)
        return _turned(image, header.orientation) if self.apply_exif_orientation else image


def _turned(image: Image, orientation: int) -> Image:
    """The image as it was seen, by EXIF's eight orientations."""
    if orientation in (5, 6, 7, 8):
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return image[:, ::-1] if orientation in (2, 3, 6, 7) else image
