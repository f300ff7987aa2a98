"""The boxes of a row, and the picture that they are drawn on: as far as names and values tell, else none.

| features                                                   | a box is in                                 |
|------------------------------------------------------------|---------------------------------------------|
| four lists: `xmin`, `ymin`, `xmax`, `ymax`, or `x_min` ... | shares of the image, as TensorFlow's Object |
| behind the same name                                       | Detection API has them, or pixels           |
| `bbox`, `box`, `bounding_box`, or their plural: four       | shares of the image, as TFDS and `tf.image` |
| floats a box, `ymin`, `xmin`, `ymax`, `xmax`               | have them                                   |

Four numbers of one feature that are no shares may be two corners, or a corner and a size; nothing tells
which. Where one box of a row is none as it is read, it is not what all of them are: none is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...codecs.columns import Batch, Column, Strings
from ...domain.feature import Feature
from .features import shorten
from .pictures import Box, Picture

_WORDS: Final = ("bbox", "bboxes", "box", "boxes", "bounding_box", "bounding_boxes")
_SIDES: Final = (("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"))
#: What stands in names between a place and its boxes, or its image.
_OBJECTS: Final = ("object", "objects", "annotation", "annotations", "image", "encoded")
#: Boxes of a row, and characters of the name that each has.
_MOST: Final = 100
_TITLE: Final = 80
#: Shares may be beyond the image by this, and pixels by one: they were rounded.
_BEYOND: Final = 0.01

_Numbers = NDArray[np.float64]
#: By the names of features in small letters.
_Values = Mapping[str, tuple[Feature, Column]]


@dataclass(frozen=True, slots=True)
class _Boxes:
    """The boxes of one name.

    Attributes:
        name: of the feature, or what the four have in common.
        sides: left, top, right and bottom, `[4, boxes]`.
    """

    name: str
    sides: _Numbers
    may_be_shares: bool
    may_be_pixels: bool


def draw_boxes(features: Sequence[Feature], row: Batch, pictures: Mapping[str, Picture]) -> None:
    """Give the pictures of a row its boxes.

    Args:
        pictures: those that are the one image of a feature, by its name.
    """
    if not pictures:
        return
    values = {f.name.lower(): (f, column) for f, column in zip(features, row.columns, strict=True)}
    left = _MOST
    for boxes in (*_boxes_of_one(values), *_boxes_of_four(values)):
        picture = _choose_picture(boxes.name, pictures)
        if picture is not None:
            placed = tuple(islice(_place(boxes, picture), left))
            picture.boxes += placed
            left -= len(placed)


def _boxes_of_one(values: _Values) -> Iterator[_Boxes]:
    for name, (feature, column) in values.items():
        shape = feature.shape
        is_list_of_four = len(shape) == 1 or (len(shape) > 1 and shape[-1] == 4)
        if name.rsplit("/", 1)[-1] in _WORDS and feature.dtype.is_float and is_list_of_four:
            numbers = _read(feature, column, 4 * _MOST)
            if numbers.size % 4 == 0:
                top, left, bottom, right = numbers.reshape(-1, 4).T
                yield _Boxes(feature.name, np.stack([left, top, right, bottom]), True, False)


def _boxes_of_four(values: _Values) -> Iterator[_Boxes]:
    for sides in _SIDES:
        for name in values:
            before = name.removesuffix(sides[0])
            if before == name or before[-1:].isalnum():
                continue
            found = [values[before + side] for side in sides if before + side in values]
            numbers = [_read(feature, column, _MOST) for feature, column in found]
            if len(found) == 4 and len({each.size for each in numbers}) == 1:
                are_floats = all(feature.dtype.is_float for feature, _ in found)
                yield _Boxes(before.rstrip("/_."), np.stack(numbers), are_floats, True)


def _read(feature: Feature, column: Column, most: int) -> _Numbers:
    """The first numbers of a row; none of what is no list of real numbers."""
    values = column.values
    if (
        not column.count(1)
        or isinstance(values, Strings)
        or feature.kind == "sparse"
        or values.dtype.kind == "c"
    ):
        return np.zeros(0)
    return values[:most].astype(np.float64)


def _choose_picture(name: str, pictures: Mapping[str, Picture]) -> Picture | None:
    """That which stands where the boxes do; or the only one, unless it stands elsewhere."""
    place = _place_of(name.rpartition("/")[0])
    places = {each: _place_of(each) for each in pictures}
    near = [each for each in pictures if places[each] == place]
    if not near and len(pictures) == 1:
        near = [each for each in pictures if all(a == b for a, b in zip(places[each], place, strict=False))]
    return pictures[near[0]] if len(near) == 1 else None


def _place_of(name: str) -> list[str]:
    """`left/image/encoded` and `left/image/object` stand at `left`."""
    place = [part for part in name.lower().split("/") if part]
    while place and place[-1] in _OBJECTS:
        place.pop()
    return place


def _place(boxes: _Boxes, picture: Picture) -> Iterator[Box]:
    # Four zeros fill up a list to some length.
    sides = boxes.sides[:, boxes.sides.any(axis=0)]
    left, top, right, bottom = sides
    if not (sides.size and np.isfinite(sides).all() and (left <= right).all() and (top <= bottom).all()):
        return
    if boxes.may_be_shares and sides.min() >= -_BEYOND and sides.max() <= 1 + _BEYOND:
        shares = sides
    elif boxes.may_be_pixels and _are_pixels(sides, picture):
        shares = sides / np.array([picture.size, picture.size]).reshape(4, 1)
    else:
        return
    title = shorten(boxes.name, _TITLE)
    for x, y, end_x, end_y in shares.clip(0, 1).T.tolist():
        yield Box(x, y, end_x - x, end_y - y, title)


def _are_pixels(sides: _Numbers, picture: Picture) -> bool:
    """Whether all boxes are within the image, and larger than shares could be."""
    (left, top, right, bottom), (width, height) = sides, picture.size
    is_within = sides.min() >= 0 and right.max() <= width + 1 and bottom.max() <= height + 1
    return bool(is_within and (right - left).min() >= 1 and (bottom - top).min() >= 1)
