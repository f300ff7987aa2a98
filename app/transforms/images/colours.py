"""Steps on the values of pixels, with the names and arguments of `tf.image`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from ...domain.dtypes import DTYPES, FLOAT32, DType
from ...domain.feature import Feature, FeatureShape
from ...domain.tensor import num_elements
from ...runtime.images import Image
from ..step import (
    ArrayRefused,
    Memory,
    invalid,
)
from .image_step import Dim, ImageStep, require_pixels


@dataclass(frozen=True, slots=True)
class ConvertImageDtype(ImageStep):
    """`tf.image.convert_image_dtype`: integers stand for 0 to 1 of their range."""

    name = "convert_image_dtype"
    dtype: DType
    saturate: bool = False

    def __post_init__(self) -> None:
        if (
            self.dtype.kind not in ("int", "uint", "float")
            or self.dtype.is_narrow
            or not self.dtype.has_kernel
        ):
            raise invalid(self.name, f"{self.dtype} is no dtype of images")

    @override
    def image_dtype(self, dtype: DType) -> DType:
        return self.dtype

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        return (height, width, channels)

    @override
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        return Memory(num_elements(shape) * self.dtype.itemsize)

    @override
    def convert(self, array: Image) -> Image:
        return convert_dtype(array, self.dtype, saturate=self.saturate)


def convert_dtype(image: Image, dtype: DType, *, saturate: bool = False) -> Image:
    """As `ConvertImageDtype`.

    Raises:
        ArrayRefused: values that the dtype does not hold.
    """
    target = dtype.numpy
    if image.dtype == target:
        return image
    if dtype.is_float:
        with np.errstate(over="ignore"):
            converted = image.astype(target)
        if (np.isinf(converted) & np.isfinite(image)).any():
            raise ArrayRefused(f"a value is beyond the range of {dtype}")
        if image.dtype.kind in "iu":
            converted *= target.type(1.0 / np.iinfo(image.dtype).max)
        return converted
    limits = np.iinfo(target)
    if image.dtype.kind not in "iu":
        scaled = image * image.dtype.type(limits.max + 0.5)
        return _as_integers(scaled, target, saturate=saturate)
    most = int(np.iinfo(image.dtype).max)
    if most > limits.max:
        return _as_integers(
            image // image.dtype.type((most + 1) // (limits.max + 1)), target, saturate=saturate
        )
    result: Image = _as_integers(image, target, saturate=saturate) * target.type(
        (limits.max + 1) // (most + 1)
    )
    return result


def _as_integers(values: Image, target: np.dtype[Any], *, saturate: bool) -> Image:
    limits = np.iinfo(target)
    wide = values if values.dtype.kind in "iu" else np.trunc(values.astype(np.float64))
    low, high = (
        wide < limits.min,
        wide >= limits.max + 1 if values.dtype.kind not in "iu" else wide > limits.max,
    )
    if values.dtype.kind not in "iu" and np.isnan(wide).any():
        raise ArrayRefused("NaN is no colour")
    if not (low.any() or high.any()):
        return wide.astype(target)
    if not saturate:
        raise ArrayRefused(f"a value is beyond the range of {target}; set saturate to take the nearest")
    return np.where(low, limits.min, np.where(high, limits.max, np.where(low | high, 0, wide))).astype(target)


@dataclass(frozen=True, slots=True)
class RgbToGrayscale(ImageStep):
    """`tf.image.rgb_to_grayscale`."""

    name = "rgb_to_grayscale"

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        if channels not in (None, 3):
            raise self.takes(feature, "images of 3 channels")
        return (height, width, 1)

    @override
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        return Memory(num_elements(shape) * 4)

    @override
    def convert(self, array: Image) -> Image:
        if array.shape[2] != 3:
            raise ArrayRefused(f"the image has {array.shape[2]} channels, not 3")
        dtype = DTYPES[array.dtype.name]
        colours = convert_dtype(array, FLOAT32)
        grey = colours[:, :, 0] * np.float32(0.2989)
        grey += colours[:, :, 1] * np.float32(0.5870)
        grey += colours[:, :, 2] * np.float32(0.1140)
        return convert_dtype(grey[:, :, None], dtype)


@dataclass(frozen=True, slots=True)
class GrayscaleToRgb(ImageStep):
    """`tf.image.grayscale_to_rgb`."""

    name = "grayscale_to_rgb"

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        if channels not in (None, 1):
            raise self.takes(feature, "images of 1 channel")
        return (height, width, 3)

    @override
    def convert(self, array: Image) -> Image:
        if array.shape[2] != 1:
            raise ArrayRefused(f"the image has {array.shape[2]} channels, not 1")
        return np.broadcast_to(array, (*array.shape[:2], 3))


@dataclass(frozen=True, slots=True)
class PerImageStandardization(ImageStep):
    """`tf.image.per_image_standardization`: float32 of mean 0 and, unless it is even, deviation 1."""

    name = "per_image_standardization"

    @override
    def image_dtype(self, dtype: DType) -> DType:
        return FLOAT32

    @override
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        return (height, width, channels)

    @override
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        return Memory(num_elements(shape) * 4)

    @override
    def convert(self, array: Image) -> Image:
        require_pixels(array)
        image = array.astype(np.float32)
        mean = image.mean(dtype=np.float64)
        deviation = np.float32(np.sqrt(np.square(image - mean, dtype=np.float64).mean()))
        image -= np.float32(mean)
        image /= max(deviation, np.float32(1) / np.sqrt(np.float32(image.size)))
        return image
