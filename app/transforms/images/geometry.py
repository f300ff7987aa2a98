"""Steps on the size and the places of pixels, with the names and arguments of `tf.image`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from ...domain.dtypes import FLOAT32, DType
from ...domain.feature import Feature, FeatureShape
from ...domain.tensor import num_elements
from ...runtime.images import Image
from ..step import (
    ArrayRefused,
    Memory,
    invalid,
)
from .image_step import Dim, ImageStep, check_size, require_pixels
from .resize import Method, fitted_size, resize


@dataclass(frozen=True, slots=True)
class Resize(ImageStep):
    """`tf.image.resize`: float32, but for the method `nearest`."""

    name = "resize"
    size: tuple[int, int]
    method: Method = "bilinear"
    antialias: bool = False
    preserve_aspect_ratio: bool = False

    def __post_init__(self) -> None:
        check_size(self.name, *self.size)

    @override
    def image_dtype(self, dtype: DType) -> DType:
        return dtype if self.method == "nearest" else FLOAT32

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        if not self.preserve_aspect_ratio:
            return (*self.size, channels)
        if height is None or width is None or 0 in (height, width):
            return (None, None, channels)
        return (*fitted_size(height, width, self.size), channels)

    @override
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        size = self.size
        if self.preserve_aspect_ratio and all(shape):
            size = fitted_size(shape[0], shape[1], size)
        return _resizing_memory(shape, *size)

    @override
    def convert(self, array: Image) -> Image:
        require_pixels(array)
        height, width = self.size
        if self.preserve_aspect_ratio:
            height, width = fitted_size(array.shape[0], array.shape[1], self.size)
            if not height or not width:
                raise ArrayRefused(f"an image of {array.shape[0]} x {array.shape[1]} leaves no pixels")
        return resize(array, height, width, self.method, antialias=self.antialias)


def _resizing_memory(shape: Sequence[int], height: int, width: int) -> Memory:
    """Meanwhile there are the image as float32, and what one of the two passes makes."""
    channels = shape[2]
    between = num_elements(shape) + channels * max(height * shape[1], width * shape[0])
    return Memory(4 * height * width * channels, 4 * between)


@dataclass(frozen=True, slots=True)
class ResizeWithPad(ImageStep):
    """`tf.image.resize_with_pad`: as large as fits, black around it."""

    name = "resize_with_pad"
    target_height: int
    target_width: int
    method: Method = "bilinear"
    antialias: bool = False

    def __post_init__(self) -> None:
        check_size(self.name, self.target_height, self.target_width)

    @override
    def image_dtype(self, dtype: DType) -> DType:
        return dtype if self.method == "nearest" else FLOAT32

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        return (self.target_height, self.target_width, channels)

    @override
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        kept, working = _resizing_memory(shape, self.target_height, self.target_width)
        return Memory(2 * kept, working)

    @override
    def convert(self, array: Image) -> Image:
        require_pixels(array)
        sizes = np.array(array.shape[:2], np.float32)
        targets = np.array((self.target_height, self.target_width), np.float32)
        fitted = sizes / (sizes / targets).max()
        height, width = np.floor(fitted).astype(int).tolist()
        if not height or not width:
            raise ArrayRefused(f"an image of {array.shape[0]} x {array.shape[1]} leaves no pixels")
        above, left = np.maximum(np.floor((targets - fitted) / np.float32(2)), 0).astype(int).tolist()
        resized = resize(array, height, width, self.method, antialias=self.antialias)
        return _padded(resized, above, left, self.target_height, self.target_width)


def _padded(image: Image, above: int, left: int, height: int, width: int) -> Image:
    padded = np.zeros((height, width, image.shape[2]), image.dtype)
    padded[above : above + image.shape[0], left : left + image.shape[1]] = image
    return padded


@dataclass(frozen=True, slots=True)
class ResizeWithCropOrPad(ImageStep):
    """`tf.image.resize_with_crop_or_pad`: cut or padded on both sides, never scaled."""

    name = "resize_with_crop_or_pad"
    target_height: int
    target_width: int

    def __post_init__(self) -> None:
        check_size(self.name, self.target_height, self.target_width)

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        return (self.target_height, self.target_width, channels)

    @override
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        return Memory(self.target_height * self.target_width * shape[2] * dtype.itemsize)

    @override
    def convert(self, array: Image) -> Image:
        height, width = min(self.target_height, array.shape[0]), min(self.target_width, array.shape[1])
        top, first = (array.shape[0] - height) // 2, (array.shape[1] - width) // 2
        above, left = (self.target_height - height) // 2, (self.target_width - width) // 2
        cut = array[top : top + height, first : first + width]
        return _padded(cut, above, left, self.target_height, self.target_width)


@dataclass(frozen=True, slots=True)
class CentralCrop(ImageStep):
    """`tf.image.central_crop`."""

    name = "central_crop"
    central_fraction: float

    def __post_init__(self) -> None:
        if not 0 < self.central_fraction <= 1:
            raise invalid(self.name, "central_fraction must be above 0 and at most 1")

    def _begin(self, size: int) -> int:
        return int((float(size) - float(size) * self.central_fraction) / 2)

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        dims = [None if dim is None else dim - 2 * self._begin(dim) for dim in (height, width)]
        return (*dims, channels)

    @override
    def convert(self, array: Image) -> Image:
        top, left = self._begin(array.shape[0]), self._begin(array.shape[1])
        return array[top : array.shape[0] - top, left : array.shape[1] - left]


@dataclass(frozen=True, slots=True)
class BoxStep(ImageStep):
    """A step with a box, by its place and its size."""

    offset_height: int
    offset_width: int
    target_height: int
    target_width: int

    def __post_init__(self) -> None:
        if self.offset_height < 0 or self.offset_width < 0:
            raise invalid(self.name, "an offset must be 0 or more")
        check_size(self.name, self.target_height, self.target_width)

    @abstractmethod
    def fits(self, height: int, width: int) -> bool:
        """Whether the box and an image of that size fit one another."""

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        if height is not None and width is not None and not self.fits(height, width):
            raise self.takes(feature, "an image that fits its box")
        return (self.target_height, self.target_width, channels)

    def require_fit(self, image: Image) -> None:
        """Refuse an image that does not fit."""
        if not self.fits(image.shape[0], image.shape[1]):
            raise ArrayRefused(f"an image of {image.shape[0]} x {image.shape[1]} does not fit the box")


@dataclass(frozen=True, slots=True)
class CropToBoundingBox(BoxStep):
    """`tf.image.crop_to_bounding_box`."""

    name = "crop_to_bounding_box"

    @override
    def fits(self, height: int, width: int) -> bool:
        below, right = self.offset_height + self.target_height, self.offset_width + self.target_width
        return below <= height and right <= width

    @override
    def convert(self, array: Image) -> Image:
        self.require_fit(array)
        below, right = self.offset_height + self.target_height, self.offset_width + self.target_width
        return array[self.offset_height : below, self.offset_width : right]


@dataclass(frozen=True, slots=True)
class PadToBoundingBox(BoxStep):
    """`tf.image.pad_to_bounding_box`."""

    name = "pad_to_bounding_box"

    @override
    def fits(self, height: int, width: int) -> bool:
        below, right = self.offset_height + height, self.offset_width + width
        return below <= self.target_height and right <= self.target_width

    @override
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        return Memory(self.target_height * self.target_width * shape[2] * dtype.itemsize)

    @override
    def convert(self, array: Image) -> Image:
        self.require_fit(array)
        offsets = (self.offset_height, self.offset_width)
        return _padded(array, *offsets, self.target_height, self.target_width)


@dataclass(frozen=True, slots=True)
class FlipLeftRight(ImageStep):
    """`tf.image.flip_left_right`."""

    name = "flip_left_right"

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        return (height, width, channels)

    @override
    def convert(self, array: Image) -> Image:
        return array[:, ::-1]


@dataclass(frozen=True, slots=True)
class FlipUpDown(ImageStep):
    """`tf.image.flip_up_down`."""

    name = "flip_up_down"

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        return (height, width, channels)

    @override
    def convert(self, array: Image) -> Image:
        return array[::-1]


@dataclass(frozen=True, slots=True)
class Rot90(ImageStep):
    """`tf.image.rot90`: counter-clockwise, `k` times."""

    name = "rot90"
    k: int = 1

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        return (width, height, channels) if self.k % 2 else (height, width, channels)

    @override
    def convert(self, array: Image) -> Image:
        return np.rot90(array, self.k % 4)
