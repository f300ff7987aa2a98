"""Encoding images: pixels -> bytes, with the names and arguments of `tf.io`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from typing_extensions import override

from ...codecs.columns import Column, Strings
from ...codecs.images.decode import UINT8
from ...codecs.images.encode import CHANNELS, encoding_bytes, jpeg_pixels, png_pixels
from ...domain.dtypes import BYTES
from ...domain.feature import Feature
from ...domain.meaning import ImageContent, Meaning
from ...runtime.images import Image, Pixels, Refusal
from ..step import (
    RemoteStep,
    RowsRefused,
    Started,
    Tools,
    changed,
    invalid,
    row_arrays,
)


class EncodeStep(RemoteStep):
    """A step from images to the bytes of a file each."""

    format: ClassVar[Literal["jpeg", "png"]]

    @abstractmethod
    def pixels(self, image: Image) -> Pixels:
        """What is to be encoded, and how."""

    @override
    def result(self, feature: Feature) -> Feature:
        fits = feature.kind == "dense" and len(feature.shape) == 3 and feature.dtype is UINT8
        if not fits or feature.shape[2] not in (None, *CHANNELS[self.format]):
            raise self.takes(
                feature, f"uint8 of shape [height, width, channels], channels of {CHANNELS[self.format]}"
            )
        height, width, channels = feature.shape
        image = ImageContent(self.format, (height, width, channels))
        return changed(feature, BYTES, (), Meaning(image=image))

    @override
    def start(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Started[Any]:
        images = row_arrays(column, feature, num_rows)
        found = ((index, self.unfit(image)) for index, image in enumerate(images))
        if refused := {index: reason for index, reason in found if reason}:
            raise RowsRefused(refused)
        tools.lease.charge(encoding_bytes(images), "The encoded images of a batch")
        pending = tools.images.start_encoding([self.pixels(image) for image in images])
        return Started(pending, partial(_collect, column))

    def unfit(self, image: Image) -> str | None:
        """Why an image is not encoded, or None."""
        if image.shape[2] not in CHANNELS[self.format] or not image.size:
            return f"an image of shape {list(image.shape)} has no such encoding"
        return None


def _collect(column: Column, found: Sequence[bytes | Refusal]) -> Column:
    refused = {
        index: f"the image cannot be encoded: {one.reason}"
        for index, one in enumerate(found)
        if isinstance(one, Refusal)
    }
    if refused:
        raise RowsRefused(refused)
    return encoded_column([one for one in found if isinstance(one, bytes)], column)


def encoded_column(encoded: Sequence[bytes], old: Column) -> Column:
    """The column of encoded images, of the rows that `old` has values of."""
    return replace(old, values=Strings.pack(encoded), splits=(), width=1, shapes=None)


@dataclass(frozen=True, slots=True)
class EncodeJpeg(EncodeStep):
    """`tf.io.encode_jpeg`."""

    name = "encode_jpeg"
    format = "jpeg"
    quality: int = 95
    progressive: bool = False
    optimize_size: bool = False
    chroma_downsampling: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.quality <= 100:
            raise invalid(self.name, "quality must be 1 to 100")

    @override
    def pixels(self, image: Image) -> Pixels:
        return jpeg_pixels(
            image,
            self.quality,
            progressive=self.progressive,
            optimize_size=self.optimize_size,
            chroma_downsampling=self.chroma_downsampling,
        )


@dataclass(frozen=True, slots=True)
class EncodePng(EncodeStep):
    """`tf.io.encode_png` of 8 bits: the same pixels, in other bytes where another zlib compresses."""

    name = "encode_png"
    format = "png"
    compression: int = -1

    def __post_init__(self) -> None:
        if not -1 <= self.compression <= 9:
            raise invalid(self.name, "compression must be -1 to 9")

    @override
    def pixels(self, image: Image) -> Pixels:
        return png_pixels(image, self.compression)
