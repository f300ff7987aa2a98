"""What the values of a feature mean beyond their dtype and shape, for those who read them.

| member        | of                   | says                                                        |
|---------------|----------------------|-------------------------------------------------------------|
| `image`       | one value of bytes   | an encoded image, its format and the shape that it decodes to |
| `class_names` | integers             | the name of each value, from 0 on                           |
| `quantized`   | integers             | what they stand for: `(value - zero_point) * scale`         |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Literal, NotRequired, get_args

from typing_extensions import TypedDict

ImageFormat = Literal["jpeg", "png", "gif", "webp", "bmp"]


class ImageJson(TypedDict):
    """An encoded image: height, width and channels, null where they differ from row to row."""

    format: ImageFormat | None
    shape: list[int | None]


class QuantizedJson(TypedDict):
    """One scale and zero point for all numbers, or one for each place of the last axis."""

    scale: list[float]
    zero_point: list[int]


class MeaningJson(TypedDict):
    """The members that say what values mean."""

    image: NotRequired[ImageJson]
    class_names: NotRequired[list[str]]
    quantized: NotRequired[QuantizedJson]


@dataclass(frozen=True, slots=True)
class ImageContent:
    """Attributes: see `ImageJson`."""

    format: ImageFormat | None = None
    shape: tuple[int | None, int | None, int | None] = (None, None, None)


@dataclass(frozen=True, slots=True)
class Quantized:
    """Attributes: see `QuantizedJson`; both of one length."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What values mean; at most one of the three is set."""

    image: ImageContent | None = None
    class_names: tuple[str, ...] = ()
    quantized: Quantized | None = None

    def agrees_with(self, other: Meaning) -> bool:
        """Whether both say the same, or one of them nothing."""
        return self is other or self == PLAIN or other in (self, PLAIN)

    def to_json(self) -> MeaningJson:
        found: MeaningJson = {}
        if self.image is not None:
            found["image"] = {"format": self.image.format, "shape": list(self.image.shape)}
        if self.class_names:
            found["class_names"] = list(self.class_names)
        if self.quantized is not None:
            scale, zero_point = list(self.quantized.scale), list(self.quantized.zero_point)
            found["quantized"] = {"scale": scale, "zero_point": zero_point}
        return found


#: Of values that mean what they are.
PLAIN: Final = Meaning()
MEMBERS: Final = frozenset({"image", "class_names", "quantized"})


def parse_meaning(members: Mapping[str, Any]) -> Meaning:
    """The meaning that the members of a feature's JSON say.

    Raises:
        ValueError: what is wrong, as the rest of a sentence about the feature.
    """
    given = MEMBERS.intersection(members)
    if not given:
        return PLAIN
    if len(given) > 1:
        raise ValueError(f"has {' and '.join(sorted(given))}; one value has one meaning")
    if "image" in given:
        return Meaning(image=_parse_image(members["image"]))
    if "class_names" in given:
        return Meaning(class_names=_parse_names(members["class_names"]))
    return Meaning(quantized=_parse_quantized(members["quantized"]))


def _parse_image(value: Any) -> ImageContent:
    if not isinstance(value, dict) or not {"format", "shape"}.issuperset(value):
        raise ValueError('"image" must be {"format": "jpeg", "shape": [height, width, channels]}')
    form, shape = value.get("format"), value.get("shape", [None, None, None])
    if form is not None and form not in get_args(ImageFormat):
        raise ValueError(f'"format" must be null or one of {list(get_args(ImageFormat))}')
    if not isinstance(shape, list) or len(shape) != 3 or not all(map(_is_length, shape)):
        raise ValueError('"shape" of an image must be [height, width, channels], each a number or null')
    if shape[2] not in (None, 1, 2, 3, 4):
        raise ValueError("an image has 1 to 4 channels")
    return ImageContent(form, (shape[0], shape[1], shape[2]))


def _is_length(dim: object) -> bool:
    return dim is None or (type(dim) is int and 0 < dim < 1 << 31)


def _parse_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError('"class_names" must be a list of strings')
    if len(set(value)) != len(value):
        raise ValueError('"class_names" has a name twice')
    return tuple(value)


def _parse_quantized(value: Any) -> Quantized:
    if not isinstance(value, dict) or set(value) != {"scale", "zero_point"}:
        raise ValueError('"quantized" must be {"scale": [...], "zero_point": [...]}')
    scale, zero_point = value["scale"], value["zero_point"]
    if not isinstance(scale, list) or not scale or not all(map(_is_scale, scale)):
        raise ValueError('"scale" must be a list of numbers above 0')
    if not isinstance(zero_point, list) or len(zero_point) != len(scale):
        raise ValueError('"zero_point" must be as long as "scale"')
    if not all(type(item) is int for item in zero_point):
        raise ValueError('"zero_point" must be a list of integers')
    return Quantized(tuple(map(float, scale)), tuple(zero_point))


def _is_scale(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return isfinite(value) and value > 0
    except OverflowError:  # an integer beyond the range of float64
        return False
