"""What steps from images to images share: images are `[height, width, channels]`."""

from __future__ import annotations

from abc import abstractmethod

from typing_extensions import override

from ...codecs.images.decode import MAX_PIXELS
from ...domain.dtypes import DType
from ...domain.feature import Feature, FeatureShape
from ...domain.tensor import num_elements
from ...runtime.images import Image
from ..step import (
    ArrayRefused,
    ArrayStep,
    changed,
    invalid,
)

Dim = int | None


class ImageStep(ArrayStep):
    """A step from an image to an image."""

    @override
    def result(self, feature: Feature) -> Feature:
        rank_fits = feature.kind == "dense" and len(feature.shape) == 3
        if not rank_fits or feature.dtype.kind not in ("int", "uint", "float") or feature.dtype.is_narrow:
            raise self.takes(feature, "an image, numbers of shape [height, width, channels]")
        height, width, channels = feature.shape
        shape = self.image_shape(feature, height, width, channels)
        return changed(feature, self.image_dtype(feature.dtype), shape)

    def image_dtype(self, dtype: DType) -> DType:
        """The dtype that images of `dtype` become."""
        return dtype

    @abstractmethod
    def image_shape(self, feature: Feature, height: Dim, width: Dim, channels: Dim) -> FeatureShape:
        """The shape that images of a shape become.

        Raises:
            UnprocessableInput: it does not take images of that shape.
        """


def check_size(name: str, *sizes: int) -> None:
    if any(size < 1 for size in sizes) or num_elements(list(sizes)) > MAX_PIXELS:
        raise invalid(name, f"a size must be at least 1 and have at most {MAX_PIXELS} pixels")


def require_pixels(image: Image) -> None:
    if not image.size:
        raise ArrayRefused("the image has no pixels")
