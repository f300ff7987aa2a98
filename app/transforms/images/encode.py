"""Encoding images: pixels -> bytes, with the names and arguments of `tf.io`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override

from ...codecs.columns import Column, Strings
from ...domain.dtypes import BYTES
from ...domain.feature import Feature
from ..step import (
    RowsRefused,
    Step,
    Tools,
    changed,
    invalid,
    row_arrays,
)
from .codecs import Pixels, Refusal
from .image_step import UINT8, Image


class EncodeStep(Step):
    """A step from images to the bytes of a file each."""

    @abstractmethod
    def channels(self) -> tuple[int, ...]:
        """How many channels the format has."""

    @abstractmethod
    def pixels(self, image: Image) -> Pixels:
        """What is to be encoded, and how."""

    @override
    def result(self, feature: Feature) -> Feature:
        fits = feature.kind == "dense" and len(feature.shape) == 3 and feature.dtype is UINT8
        if not fits or feature.shape[2] not in (None, *self.channels()):
            raise self.takes(
                feature, f"uint8 of shape [height, width, channels], channels of {self.channels()}"
            )
        return changed(feature, BYTES, ())

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        images = row_arrays(column, feature, num_rows)
        refused: dict[int, str] = {}
        for index, image in enumerate(images):
            if image.shape[2] not in self.channels() or not image.size:
                refused[index] = f"an image of shape {list(image.shape)} has no such encoding"
        if refused:
            raise RowsRefused(refused)
        # The pixels are copied to memory shared with the encoder, which has room for twice as much.
        tools.lease.charge(sum(4 * image.nbytes + 4096 for image in images), "The encoded images of a batch")
        encoded: list[bytes] = []
        for index, found in enumerate(tools.images.encode([self.pixels(image) for image in images])):
            if isinstance(found, Refusal):
                refused[index] = f"the image cannot be encoded: {found.reason}"
            else:
                encoded.append(found)
        if refused:
            raise RowsRefused(refused)
        return replace(column, values=Strings.pack(encoded), splits=(), width=1, shapes=None)


@dataclass(frozen=True, slots=True)
class EncodeJpeg(EncodeStep):
    """`tf.io.encode_jpeg`."""

    name = "encode_jpeg"
    quality: int = 95
    progressive: bool = False
    optimize_size: bool = False
    chroma_downsampling: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.quality <= 100:
            raise invalid(self.name, "quality must be 1 to 100")

    @override
    def channels(self) -> tuple[int, ...]:
        return (1, 3)

    @override
    def pixels(self, image: Image) -> Pixels:
        options: dict[str, Any] = {
            "quality": self.quality,
            "progressive": self.progressive,
            "optimize": self.optimize_size,
            "dpi": (300, 300),  # what TensorFlow writes
        }
        if image.shape[2] == 3:
            options["subsampling"] = 2 if self.chroma_downsampling else 0
        return Pixels(image, "JPEG", tuple(options.items()))


@dataclass(frozen=True, slots=True)
class EncodePng(EncodeStep):
    """`tf.io.encode_png` of 8 bits: the same pixels, in other bytes where another zlib compresses."""

    name = "encode_png"
    compression: int = -1

    def __post_init__(self) -> None:
        if not -1 <= self.compression <= 9:
            raise invalid(self.name, "compression must be -1 to 9")

    @override
    def channels(self) -> tuple[int, ...]:
        return (1, 2, 3, 4)

    @override
    def pixels(self, image: Image) -> Pixels:
        level = {} if self.compression == -1 else {"compress_level": self.compression}
        return Pixels(image, "PNG", tuple(level.items()))
