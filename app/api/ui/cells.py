"""A value of a row -> what is shown of it. Rows of a version and rows of a file are shown by this alone.

`show_rows` makes cells of rows, and the macro `cell` of `cells.html` draws one. What is shown of a value is
bounded, however large the value is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...codecs.array import AnyTensor, Array
from ...codecs.columns import Batch, Column, Strings
from ...codecs.content import extend_sign
from ...domain.dtypes import DType
from ...domain.feature import Feature
from ...domain.tensor import num_elements
from ...domain.wording import looks_like_text, printable, size_text
from .boxes import draw_boxes
from .features import shape_text, shorten
from .pictures import Painter, Picture, finite_range, real_pieces

#: absent: the row has no such value; number, text, bytes: one value; list: several, as text; wave: a signal;
#: picture: images or a heat map.
Kind = Literal["absent", "number", "text", "bytes", "list", "wave", "picture"]

#: Fewer numbers than this are shown as such, more as a wave.
_WAVE: Final = 16
_WAVE_OF_INTEGERS: Final = 64
_WAVE_WIDTH: Final = 160
#: Of so many numbers each is a point of it.
_WAVE_POINTS: Final = 512
_WAVE_HEIGHT: Final = 36
#: Bytes that a character takes until its page is sent, in some copies.
_COPIES: Final = 4
#: Of a page, for a box: two rectangles and a title.
_BOX_CHARACTERS: Final = 400
#: Characters of the name of a class.
_CLASS_NAME: Final = 120
#: Pictures in a cell.
_PICTURES: Final = 4
_MAX_NESTING: Final = 16


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is shown of a value.

    Attributes:
        is_exact: numbers have all of their digits.
        values: of a list.
        text: characters that are always seen.
        folded: characters that are seen once they are asked for.
        bytes: of what is no text.
        width, height: most of a picture, in pixels of CSS.
    """

    is_exact: bool
    values: int
    text: int
    folded: int
    bytes: int
    width: int
    height: int


#: In a table of rows, and where a row stands alone.
IN_TABLE: Final = Extent(False, 8, 120, 2_000, 12, 128, 96)
ALONE: Final = Extent(True, 256, 2_000, 100_000, 512, 640, 480)


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown of a value.

    Attributes:
        text: its value, or the beginning of it.
        note: what it is: shape, dtype, size.
        folded: what of a long text is shown once it is asked for.
        points: of a wave, in a box of 160 x 36, y down.
        pictures: images, or the one heat map.
    """

    kind: Kind
    text: str = ""
    note: str = ""
    folded: str = ""
    points: str = ""
    pictures: tuple[Picture, ...] = ()


_ABSENT: Final = Cell("absent")


def show_rows(
    features: Sequence[Feature], rows: Iterable[Batch], painter: Painter, extent: Extent
) -> list[list[Cell]]:
    """The cells of rows, feature by feature. The painter still has to paint.

    Args:
        features: those of the batches' columns that are shown, and nothing else.
        rows: batches of one row each.
    """
    cells = [_row(features, row, painter, extent) for row in rows]
    num_characters = sum(
        len(cell.text) + len(cell.folded) + len(cell.points) for row in cells for cell in row
    )
    boxes = sum(len(picture.boxes) for row in cells for cell in row for picture in cell.pictures)
    num_characters += _BOX_CHARACTERS * boxes
    painter.budget.charge(_COPIES * num_characters, "What is shown of rows")
    return cells


def show_tensor(tensor: AnyTensor, painter: Painter, extent: Extent) -> Cell:
    """The cell of a tensor whose values are in memory; of a ragged one, or a sparse one, that of its values.

    Nothing is shown of a tensor that is still arriving.
    """
    values = tensor if isinstance(tensor, Array) else tensor.values
    if values.is_arriving:
        return _ABSENT
    shape = values.shape if isinstance(tensor, Array) else (num_elements(values.shape),)
    name = printable((values.name or "tensor")[:80])
    return _cell(Feature(name, values.dtype, shape), Column(values.elements), painter, extent)


def _row(features: Sequence[Feature], row: Batch, painter: Painter, extent: Extent) -> list[Cell]:
    cells = [
        _cell(feature, column, painter, extent) for feature, column in zip(features, row.columns, strict=True)
    ]
    draw_boxes(features, row, dict(_images(features, row, cells)))
    return cells


def _images(features: Sequence[Feature], row: Batch, cells: Sequence[Cell]) -> Iterator[tuple[str, Picture]]:
    """The values that are one image each."""
    for feature, column, cell in zip(features, row.columns, cells, strict=True):
        is_one = len(column.values) == 1 if isinstance(column.values, Strings) else len(feature.shape) == 3
        if is_one and cell.pictures and not cell.pictures[0].is_map:
            yield feature.name, cell.pictures[0]


def _cell(feature: Feature, column: Column, painter: Painter, extent: Extent) -> Cell:
    if not column.count(1):
        return _ABSENT
    if isinstance(column.values, Strings):
        return _strings(feature, column, column.values, painter, extent)
    is_float = feature.dtype.is_float
    numbers = column.values if is_float else extend_sign(column.values, feature.dtype)
    if feature.kind == "sparse":
        return _sparse(feature, column, numbers, extent)
    shape = shape_of(feature, column)
    if shape == ():
        return Cell("number", _label(feature, numbers[0], extent))
    if shape is None:
        return Cell("list", _nested(column, numbers, feature, extent), "ragged")
    # Where it is the same for all rows, the head of the table has it.
    note = "" if shape == feature.shape else shape_text(shape)
    text = _listed(feature, numbers, extent)
    if not numbers.size:
        return Cell("list", text, note)
    if len(shape) == 1:
        long_enough = _WAVE if is_float else _WAVE_OF_INTEGERS
        if numbers.size < long_enough:
            return Cell("list", text, note if len(numbers) > extent.values else "")
        return Cell("wave", text, _joined(note, _range(numbers)), points=_points(numbers))
    picture = _matrix(numbers, shape, painter)
    picture.alt = f"{feature.name[:80]} as a picture"
    return Cell("picture", text, _joined(note, _range(numbers)), pictures=(picture,))


def shape_of(feature: Feature, column: Column) -> tuple[int, ...] | None:
    """The shape of the value of a column's one row; None where it is ragged."""
    num_values = len(column.values)
    if feature.kind == "ragged":
        return None
    if feature.kind == "sequence":
        steps = int(column.splits[0][-1])
        if len(column.splits) > 1:
            return None
        return (steps, *(dim or 0 for dim in feature.shape[1:]))
    if column.shapes is not None:
        return tuple(column.shapes[0].tolist())
    if feature.num_unknown == 0:
        return tuple(dim or 0 for dim in feature.shape)
    others = math.prod(dim for dim in feature.shape if dim is not None)
    unknown = num_values // others if others else 0
    return tuple(unknown if dim is None else dim for dim in feature.shape)


# Numbers


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _number(value: Any, extent: Extent) -> str:
    """A scalar of numpy; `str` gives as many digits as it takes to read it back."""
    if isinstance(value, np.bool_):
        return "true" if value else "false"
    is_float = isinstance(value, np.floating) and not extent.is_exact
    return f"{value:.6g}" if is_float else str(value)


def _label(feature: Feature, value: Any, extent: Extent) -> str:
    names = feature.meaning.class_names
    if names and 0 <= value < len(names):
        return f"{shorten(names[int(value)], _CLASS_NAME)} ({value})"
    return _number(value, extent)


def _listed(feature: Feature, numbers: NDArray[Any], extent: Extent) -> str:
    shown = [_label(feature, value, extent) for value in numbers[: extent.values]]
    return f"[{', '.join(shown)}{', …' if numbers.size > extent.values else ''}]"


def _range(numbers: NDArray[Any]) -> str:
    low, high, count = finite_range(numbers)
    odd = f", {numbers.size - count:,} not finite" if count < numbers.size else ""
    return f"{low:.6g} to {high:.6g}{odd}" if count else "nothing finite"


def _points(numbers: NDArray[Any]) -> str:
    """A line through the numbers; of many, through the lowest and highest of each step."""
    low, high, count = finite_range(numbers)
    if not count:
        return ""

    def heights(some: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
        for piece in real_pieces(some):
            yield np.nan_to_num(piece, nan=low, posinf=high, neginf=low)

    if numbers.size > _WAVE_POINTS:
        edges = np.linspace(0, numbers.size, _WAVE_WIDTH + 1).astype(np.int64).tolist()
        values = np.array([_ends(heights(numbers[a:b])) for a, b in pairwise(edges)]).reshape(-1)
    else:
        [values] = heights(numbers)
    x = np.linspace(0, _WAVE_WIDTH, values.size)
    y = _WAVE_HEIGHT - 1 - (values - low) / ((high - low) or 1.0) * (_WAVE_HEIGHT - 2)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _ends(pieces: Iterator[NDArray[np.float64]]) -> tuple[float, float]:
    """The lowest and the highest of a step, in the order in which a line goes through them."""
    low, high, edges = math.inf, -math.inf, list[float]()
    for piece in pieces:
        low, high = min(low, float(piece.min())), max(high, float(piece.max()))
        edges += [float(piece[0]), float(piece[-1])]
    return (high, low) if edges[0] > edges[-1] else (low, high)


def _matrix(numbers: NDArray[Any], shape: tuple[int, ...], painter: Painter) -> Picture:
    """An image where the shape is that of one, else a heat map; of more dimensions, of their first."""
    values = numbers.reshape(shape)
    while values.ndim > 3 or (values.ndim == 3 and not _is_image(values)):
        values = values[0]
    if values.ndim == 2:
        return painter.heat_map(values)
    if values.shape[2] == 1 and values.dtype != np.uint8:
        return painter.heat_map(values[:, :, 0])
    return painter.pixels(values)


def _is_image(values: NDArray[Any]) -> bool:
    height, width, channels = values.shape
    if channels not in (1, 3, 4) or min(height, width) < 2:
        return False
    if values.dtype == np.uint8 or channels == 1:
        return True
    low, high, count = finite_range(values)
    return values.dtype.kind not in "iu" and count == values.size and low >= 0 and high <= 1


def _sparse(feature: Feature, column: Column, numbers: NDArray[Any], extent: Extent) -> Cell:
    assert column.coordinates is not None  # noqa: S101  # sparse columns have them
    pairs = zip(column.coordinates[: extent.values].tolist(), numbers[: extent.values], strict=True)
    shown = [
        f"{place[0] if len(place) == 1 else tuple(place)}: {_number(value, extent)}" for place, value in pairs
    ]
    more = ", …" if numbers.size > extent.values else ""
    note = f"{numbers.size:,} of {math.prod(dim or 0 for dim in feature.shape):,}, sparse"
    return Cell("list", f"{{{', '.join(shown)}{more}}}", note)


def _nested(column: Column, numbers: NDArray[Any], feature: Feature, extent: Extent) -> str:
    """Ragged values as lists in one another, as far as they are shown."""
    if len(column.splits) > _MAX_NESTING:
        return _listed(feature, numbers, extent)
    left = 4 * extent.values

    def write(level: int, first: int, last: int) -> Iterator[str]:
        nonlocal left
        for index in range(first, last):
            if left <= 0:
                yield "…"
                return
            if level == len(column.splits):
                left -= 1
                leaf = numbers[index * column.width : (index + 1) * column.width]
                yield _number(leaf[0], extent) if column.width == 1 else _listed(feature, leaf, extent)
            else:
                left -= 1
                split = column.splits[level]
                yield f"[{', '.join(write(level + 1, int(split[index]), int(split[index + 1])))}]"

    return ", ".join(write(0, 0, 1))


# Strings


def _strings(feature: Feature, column: Column, strings: Strings, painter: Painter, extent: Extent) -> Cell:
    pictures: list[Picture] = []
    texts: list[Cell] = []
    most, head = (1, extent.folded) if feature.is_scalar else (extent.values, 4 * extent.text)
    left = extent.folded
    for begin, end in pairwise(strings.offsets[: most + 1].tolist()):
        data = memoryview(strings.data[begin:end])  # type: ignore[arg-type]  # arrays are buffers
        picture = painter.image(data) if feature.dtype.name != "text" and len(pictures) < _PICTURES else None
        if picture is not None:
            picture.words += f", {size_text(end - begin)}"
            picture.alt = f"{feature.name[:80]} as a picture"
            pictures.append(picture)
        elif not pictures:
            texts.append(string_cell(bytes(data[:head]), end - begin, feature.dtype, extent))
            left -= len(texts[-1].text)
            if left <= 0:
                break
    count = len(strings)
    if pictures:
        more = f", {len(pictures)} of {count}" if count > len(pictures) else ""
        return Cell("picture", note=pictures[0].words + more, pictures=tuple(pictures))
    if feature.is_scalar:
        return texts[0]
    listed = ", ".join(f"“{cell.text}”" if cell.kind == "text" else cell.text for cell in texts)
    more = ", …" if count > len(texts) else ""
    shape = shape_of(feature, column)
    if shape is None or feature.kind == "sparse":
        return Cell("list", f"[{listed}{more}]", "ragged" if shape is None else "sparse")
    return Cell("list", f"[{listed}{more}]", "" if shape == feature.shape else shape_text(shape))


def string_cell(head: bytes, size: int, dtype: DType, extent: Extent) -> Cell:
    """A string by its first bytes: text, long ones folded; or bytes, as hexadecimal digits."""
    if dtype.name == "text" or looks_like_text(head[:200]):
        text = head.decode("utf-8", "ignore" if size > len(head) else "replace").translate(_CONTROLS)
        note = f"{size_text(size)} of text" if size > extent.folded else ""
        if len(text) <= extent.text:
            return Cell("text", text, note)
        return Cell("text", text[: extent.text], note or f"{len(text):,} characters", text[extent.text :])
    digits = head[: extent.bytes].hex(" ")
    return Cell("bytes", digits + (" …" if size > extent.bytes else ""), size_text(size))


#: Control characters as pictures of themselves, but for those that part lines; as escapes, what turns text.
_CONTROLS: Final[dict[int, int | str]] = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    **{code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    0x7F: 0x2421,
}
