"""Boxes are drawn where names and values tell what they are, and on the image that they belong to."""

import numpy as np
import pytest

from app.api.ui.cells import IN_TABLE, Cell, show_rows
from app.api.ui.pictures import Painter
from app.codecs.columns import Batch, Column, Strings
from app.domain.feature import Feature
from app.domain.limits import Limits
from app.runtime.budget import Budget
from tests.support.image_processes import shared_images
from tests.support.images import encode
from tests.unit.api.ui.columns import feature

#: Left, top, width and height, in shares.
Found = list[tuple[float, float, float, float]]

WIDTH, HEIGHT = 40, 20
ONE = [0.2, 0.1, 0.6, 0.5]


def image(name: str) -> tuple[Feature, Column]:
    data = encode(np.zeros((HEIGHT, WIDTH, 3), np.uint8), "png")
    return feature(name, "bytes"), Column(Strings.pack([data]))


def numbers(name: str, values: list[float], dtype: str = "float32") -> tuple[Feature, Column]:
    of = feature(name, dtype, (None,))
    return of, Column(np.array(values, of.dtype.numpy), (np.array([0, len(values)]),))


def sides(prefix: str, *boxes: list[float], dtype: str = "float32") -> list[tuple[Feature, Column]]:
    """Four lists, of boxes `[xmin, ymin, xmax, ymax]`."""
    names = ("xmin", "ymin", "xmax", "ymax")
    return [numbers(prefix + name, [box[at] for box in boxes], dtype) for at, name in enumerate(names)]


def cells_of(row: list[tuple[Feature, Column]]) -> dict[str, Cell]:
    painter = Painter(shared_images(), Budget(Limits()), 128, 96)
    features, columns = [of for of, _ in row], tuple(column for _, column in row)
    [cells] = show_rows(features, [Batch(1, columns)], painter, IN_TABLE)
    return {of.name: cell for of, cell in zip(features, cells, strict=True)}


def boxes_on(name: str, row: list[tuple[Feature, Column]]) -> Found:
    boxes = cells_of(row)[name].pictures[0].boxes
    return [tuple(round(share, 4) for share in (box.x, box.y, box.width, box.height)) for box in boxes]  # type: ignore[misc]  # four


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, 0.2, 0.5, 0.6], [(0.2, 0.1, 0.4, 0.4)]),
        ([0.1, 0.2, 0.5, 0.6, 0, 0, 1, 1], [(0.2, 0.1, 0.4, 0.4), (0, 0, 1, 1)]),
        ([0.1, 0.2, 0.5, 0.6, 0, 0, 0, 0], [(0.2, 0.1, 0.4, 0.4)]),
        ([0, 0, 1.0001, 1], [(0, 0, 1, 1)]),
        ([], []),
    ],
)
def test_four_numbers_are_a_box_as_tfds_has_it(values: list[float], expected: Found) -> None:
    assert boxes_on("image", [image("image"), numbers("objects/bbox", values)]) == expected


@pytest.mark.parametrize(
    "values",
    [
        [0.5, 0.2, 0.1, 0.6],  # a centre and a size, perhaps
        [0.1, 0.2, 0.5, 0.6, 0.5, 0.2, 0.1, 0.6],  # one is none, so no other is
        [10, 20, 50, 60],  # pixels: corners, or a corner and a size
        [0.1, 0.2, 0.5, 1.3],
        [float("nan")] * 4,
        [0.1, 0.2, 0.5],
    ],
)
def test_four_numbers_that_may_be_something_else_are_not_drawn(values: list[float]) -> None:
    assert boxes_on("image", [image("image"), numbers("bbox", values)]) == []


def test_no_box_is_drawn_of_what_has_another_name_shape_or_dtype() -> None:
    four = np.array([0.1, 0.2, 0.5, 0.6], np.float32)
    matrix = feature("boxes", "float32", (4, 1)), Column(four, width=4)
    whole = numbers("bbox", [0, 0, 1, 1], "int64")
    for each in (matrix, whole, numbers("weights", four.tolist()), numbers("bbox_xyxy", four.tolist())):
        assert boxes_on("image", [image("image"), each]) == []


@pytest.mark.parametrize("prefix", ["image/object/bbox/", "objects/bbox_", "bbox.", ""])
def test_four_lists_are_boxes_as_the_object_detection_api_has_them(prefix: str) -> None:
    row = [image("image/encoded"), *sides(prefix, ONE, [0, 0, 1, 1])]
    assert boxes_on("image/encoded", row) == [(0.2, 0.1, 0.4, 0.4), (0, 0, 1, 1)]
    assert boxes_on("image/encoded", row[::-1]) == boxes_on("image/encoded", row)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_four_lists_may_be_pixels(dtype: str) -> None:
    row = [image("image"), *sides("bbox/", [8, 2, 24, 10], [0, 0, 40, 20], dtype=dtype)]
    assert boxes_on("image", row) == [(0.2, 0.1, 0.4, 0.4), (0, 0, 1, 1)]


@pytest.mark.parametrize(
    "boxes",
    [
        [[0.2, 0.1, 0.6, 0.5], [0.2, 0.1, 1.4, 0.5]],  # shares, one of which is wrong
        [[8, 2, 24, 10], [8, 2, 44, 10]],  # beyond the image
        [[8, 2, 4, 10]],
        [[-3, 2, 24, 10]],
        [],
    ],
)
def test_four_lists_that_are_neither_are_not_drawn(boxes: list[list[float]]) -> None:
    assert boxes_on("image", [image("image"), *sides("bbox/", *boxes)]) == []


def test_lists_of_different_lengths_or_less_than_four_are_not_drawn() -> None:
    row = [image("image"), *sides("bbox/", ONE)]
    assert boxes_on("image", row[:-1]) == []
    assert boxes_on("image", [*row[:-1], numbers("bbox/ymax", [0.5, 0.6])]) == []
    assert boxes_on("image", [*row[:-1], numbers("other/ymax", [0.5])]) == []
    absent = (
        feature("bbox/ymax", "float32", (None,)),
        Column(np.zeros(0, np.float32), present=np.array([False])),
    )
    assert boxes_on("image", [*row[:-1], absent]) == []


@pytest.mark.parametrize(
    ("images", "boxes", "drawn"),
    [
        (["image/encoded", "image/object/mask"], "image/object/bbox/", "image/encoded"),
        (["panoptic_image", "image"], "objects/", "image"),
        (["left/image/encoded", "right/image/encoded"], "right/image/object/bbox/", "right/image/encoded"),
        (["left/image", "right/image"], "right/objects/", "right/image"),
        (["photo"], "objects/", "photo"),
        (["left", "right"], "", None),
        (["left/image", "right/image"], "bbox/", None),
        (["left/image"], "right/objects/", None),
    ],
)
def test_boxes_belong_to_the_image_next_to_them(images: list[str], boxes: str, drawn: str | None) -> None:
    row = [*map(image, images), *sides(boxes, ONE)]
    assert [name for name in images if boxes_on(name, row)] == ([] if drawn is None else [drawn])


def test_of_several_images_in_one_value_none_has_the_boxes() -> None:
    data = encode(np.zeros((HEIGHT, WIDTH, 3), np.uint8), "png")
    several = feature("image", "bytes", (None,)), Column(Strings.pack([data, data]), (np.array([0, 2]),))
    assert boxes_on("image", [several, *sides("bbox/", ONE)]) == []


def test_boxes_are_drawn_on_pixels_and_on_no_heat_map() -> None:
    pixels = feature("pixels", "uint8", (8, 8, 3)), Column(np.zeros(192, np.uint8), width=192)
    depth = feature("depth", "float32", (8, 8)), Column(np.zeros(64, np.float32), width=64)
    row = [depth, pixels, *sides("", ONE)]
    assert boxes_on("pixels", row) == [(0.2, 0.1, 0.4, 0.4)]
    assert boxes_on("depth", row) == []


def test_no_more_than_a_hundred_boxes_are_drawn() -> None:
    many = [ONE] * 1000
    assert len(boxes_on("image", [image("image"), *sides("bbox/", *many)])) == 100
    assert len(boxes_on("image", [image("image"), numbers("bbox", [0.1, 0.2, 0.5, 0.6] * 1000)])) == 100
    several = [numbers(name, [0.1, 0.2, 0.5, 0.6] * 60) for name in ("bbox", "box")]
    assert len(boxes_on("image", [image("image"), *several])) == 100


def test_long_name_is_cut_on_boxes() -> None:
    name = "x" * 60_000
    [box] = (
        cells_of([image(f"{name}/image"), numbers(f"{name}/bbox", ONE)])[f"{name}/image"].pictures[0].boxes
    )
    assert box.title == "x" * 80 + "…"


def test_boxes_are_charged() -> None:
    budget = Budget(Limits())
    (picture, data), (of, boxes) = image("image"), numbers("bbox", ONE * 100)
    rows = [Batch(1, (data, boxes))] * 50
    show_rows([picture, of], rows, Painter(shared_images(), budget, 128, 96), IN_TABLE)
    assert budget.peak > 50 * 100 * 400
