"""What a file of a sample is, by its extension, and the column that the files of some samples make.

| last part of the extension | value                        | written from            |
|----------------------------|------------------------------|-------------------------|
| `cls`                      | int64, a number in text      | integers                |
| `txt`, `json`              | text                         | text                    |
| `npy`                      | an array, shape and dtype    | other numbers, arrays   |
| any other                  | bytes, as they are           | bytes                   |

The feature has the name of the whole extension, `left.png`. A declared schema may leave out the last part of
the table's first three rows: the feature `label` is read from `label.cls`, and written there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from ...domain.dtypes import BYTES, INT64, TEXT, DType
from ...domain.feature import Feature, FeatureShape
from ...domain.meaning import PLAIN, ImageContent, ImageFormat, Meaning
from ...domain.schema import Schema
from ...domain.tensor import Shape, num_elements
from ...errors import InputError, SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, MemoryStream
from ...runtime.turns import offer_turn
from ..array import Array
from ..arrays.npy import read_npy
from ..arrow.elements import first_not_utf8
from ..columns import Column, Ints, Mask, Strings, item_width, join_values
from ..convert import convert_strings, convert_values
from ..csv.fields import convert_texts, require_nullable
from ..images.header import read_header
from ..json.errors import cell_error
from ..json.values import ItemError, Reading
from ..records.lease import Lease

NUMBER: Final = "cls"
ARRAY: Final = "npy"
_TEXTS: Final = ("txt", "json")
#: What may stand behind a feature's name.
_TYPED: Final = frozenset({NUMBER, ARRAY, *_TEXTS})
#: What a number in text takes while it is converted.
_NUMBER_BYTES: Final = 64


#: Images of which `tf.io.decode_image` makes three dimensions, whichever of them it is given.
_MIXED: Final = frozenset[ImageFormat]({"jpeg", "png", "bmp"})


class File(NamedTuple):
    """One file of a sample."""

    extension: str
    content: bytes


def last_part(extension: str) -> str:
    """What says the type: `png` of `left.png`."""
    return extension.rpartition(".")[2]


def dtype_of(extension: str) -> DType | None:
    """The dtype of such files, each a scalar; None of arrays, which say it themselves."""
    last = last_part(extension)
    if last == ARRAY:
        return None
    return INT64 if last == NUMBER else TEXT if last in _TEXTS else BYTES


def meaning_of(contents: Iterable[bytes]) -> Meaning:
    """That of an image, if all files are images; without a format if they are JPEG, PNG and BMP together."""
    formats: set[ImageFormat] = set()
    for content in contents:
        offer_turn()
        try:
            formats.add(read_header(content).format)
        except InputError:
            return PLAIN
    if len(formats) == 1:
        return Meaning(image=ImageContent(formats.pop()))
    return Meaning(image=ImageContent()) if formats and formats <= _MIXED else PLAIN


def feature_name(extension: str, schema: Schema) -> str | None:
    """The feature of the schema that such a file holds, or None."""
    if extension in schema.by_name:
        return extension
    name, _, last = extension.rpartition(".")
    return name if last in _TYPED and name in schema.by_name else None


def extension_of(feature: Feature) -> str:
    """The extension of the files that a feature is written to."""
    last = last_part(feature.name)
    if feature.is_scalar and feature.dtype is TEXT:
        return feature.name if last in _TEXTS else f"{feature.name}.{_TEXTS[0]}"
    if feature.is_scalar and feature.dtype.is_string:
        return feature.name
    wanted = NUMBER if is_number(feature) else ARRAY
    return feature.name if last == wanted else f"{feature.name}.{wanted}"


def is_number(feature: Feature) -> bool:
    """Whether it is written as a number in text."""
    return feature.is_scalar and feature.dtype.is_integer and not feature.dtype.is_narrow


def read_array(content: bytes, name: str, row: int, budget: Budget, declared: DType | None = None) -> Array:
    """The array of a `.npy`, in memory and charged.

    Raises:
        InputError: as `npy.read`, with row and feature.
    """
    try:
        return read_npy(MemoryStream(content), budget, declared=declared, name=name).read(budget)
    except InputError as error:
        raise _in_row(error, name, row) from None


def build_column(
    feature: Feature, files: Mapping[int, File], rows: range, reading: Reading, lease: Lease
) -> Column:
    """The column of a dense feature.

    Args:
        files: by the number of the row, in order; one or more.
        rows: the numbers of all rows.
        lease: charged for the column.

    Raises:
        SchemaConflict: a row without the feature, or a value of another type or shape.
        InputError: a value that cannot be read, or that the dtype does not hold.
    """
    present: Mask | None = None
    if len(files) < len(rows):
        present = np.zeros(len(rows), np.bool_)
        present[np.fromiter(files, np.int64, len(files)) - rows.start] = True
        require_nullable(feature, rows.start + int(np.argmin(present)), reading)
    is_text = feature.is_scalar and (
        feature.dtype.is_string or not any(last_part(file.extension) == ARRAY for file in files.values())
    )
    if is_text:
        contents = [file.content for file in files.values()]
        return Column(_read_texts(feature, contents, list(files), reading, lease), (), present)
    arrays = [_read_cell(feature, file, row, reading, lease) for row, file in files.items()]
    return _join(feature, arrays, present, lease)


def _read_texts(
    feature: Feature, contents: list[bytes], rows: list[int], reading: Reading, lease: Lease
) -> Any:
    """The values of a scalar from files of text, or bytes."""
    is_string = feature.dtype.is_string
    size = sum(map(len, contents))
    lease.charge((1 if is_string else 2) * size + _NUMBER_BYTES * len(contents), "The files of a batch")
    if not is_string:
        contents = [content.strip() for content in contents]
    texts = Strings.pack(contents)
    if not is_string and (index := first_not_utf8(texts)) is not None:
        raise SchemaConflict(
            f"Feature {feature.name!r} is {feature.dtype}, but the file of row {rows[index]} is no number in "
            "text.",
            row=rows[index],
            feature=feature.name,
        )
    try:
        if is_string:
            return convert_strings(texts, BYTES, feature.dtype, feature=feature.name)
        return convert_texts(texts, feature.dtype, reading, lease.budget)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[error.index]) from None
    except InputError as error:
        row = error.location.row
        raise error if row is None else _in_row(error, feature.name, rows[row]) from None


def _read_cell(feature: Feature, file: File, row: int, reading: Reading, lease: Lease) -> Array:
    """The value of one row, as the dtype of the feature."""
    if last_part(file.extension) != ARRAY:
        if not feature.is_scalar:
            raise SchemaConflict(
                f"Feature {feature.name!r} is declared with the shape {list(feature.shape)}, but row {row} "
                f"has it in a file .{file.extension[:64]}: an array is a file .{ARRAY}.",
                row=row,
                feature=feature.name,
            )
        return Array(feature.dtype, (), _read_texts(feature, [file.content], [row], reading, lease))
    before = lease.budget.remaining
    array = read_array(file.content, feature.name, row, lease.budget, feature.dtype)
    lease.adopt(before)
    _check_shape(feature, array.shape, row)
    lease.charge(num_elements(array.shape) * feature.dtype.itemsize, "The arrays of a batch")
    try:
        if array.dtype.is_string:
            values: Any = convert_strings(array.strings, array.dtype, feature.dtype, feature=feature.name)
        else:
            values = convert_values(array.values, array.dtype, feature.dtype, feature=feature.name)
    except InputError as error:
        raise _in_row(error, feature.name, row) from None
    return Array(feature.dtype, array.shape, values)


def _check_shape(feature: Feature, shape: Shape, row: int) -> None:
    dims = feature.shape
    fits = len(dims) == len(shape) and all(dim in (None, size) for dim, size in zip(dims, shape, strict=True))
    # Beside a dimension of 0 the values do not tell an unknown one.
    hidden = fits and feature.num_unknown == 1 and not feature.known_values
    if not fits or (hidden and shape[dims.index(None)]):
        raise SchemaConflict(
            f"Feature {feature.name!r} has the shape {list(shape)[:16]} in row {row}; {list(dims)} is "
            "declared, or was found in the first rows.",
            row=row,
            feature=feature.name,
        )


def _join(feature: Feature, arrays: list[Array], present: Mask | None, lease: Lease) -> Column:
    lease.charge(sum(array.num_bytes + 16 for array in arrays), "The arrays of a batch")
    values = join_values([array.elements for array in arrays])
    splits: tuple[Ints, ...] = ()
    shapes = None
    if feature.num_unknown:
        bounds = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([num_elements(array.shape) for array in arrays], out=bounds[1:])
        splits = (bounds,)
    if feature.num_unknown > 1:
        shapes = np.array([array.shape for array in arrays], np.int64).reshape(-1, len(feature.shape))
    return Column(values, splits, present, item_width(feature), shapes)


def infer_array(name: str, arrays: Iterable[tuple[int, DType, Shape]]) -> tuple[DType, FeatureShape]:
    """The dtype and the shape of arrays that are given with their rows; null where lengths differ.

    Raises:
        SchemaConflict: two dtypes, or shapes of different rank.
    """
    found: tuple[DType, FeatureShape] | None = None
    for row, dtype, shape in arrays:
        if found is None:
            found = dtype, shape
        if dtype is not found[0] or len(shape) != len(found[1]):
            raise SchemaConflict(
                f"The arrays of {name!r} are {found[0]} with {len(found[1])} dimensions, but that of row "
                f"{row} is {dtype} with {len(shape)}.",
                row=row,
                feature=name,
            )
        found = dtype, tuple(a if a == b else None for a, b in zip(found[1], shape, strict=True))
    if found is None:
        raise AssertionError("no array")  # pragma: no cover
    return found


def contents_of(feature: Feature, column: Column, num_rows: int) -> Sequence[Array | Buffer]:
    """The value of each row that has the dense feature: an array, or what its file holds."""
    values = column.values
    if feature.is_scalar and isinstance(values, Strings):
        data = values.data.data
        return [data[begin:end] for begin, end in pairwise(values.offsets.tolist())]
    if isinstance(values, Strings):
        raise TypeError("arrays of strings are refused")
    if is_number(feature):
        return [str(value).encode() for value in values.tolist()]
    bounds = column.value_bounds(num_rows).tolist()
    pieces = (values[begin:end] for begin, end in pairwise(bounds))
    if column.shapes is not None:
        shapes = column.shapes.tolist()
        return [
            Array(feature.dtype, tuple(shape), piece) for piece, shape in zip(pieces, shapes, strict=True)
        ]
    known = feature.known_values

    def shape_of(size: int) -> Shape:
        return tuple((size // known if known else 0) if dim is None else dim for dim in feature.shape)

    return [Array(feature.dtype, shape_of(len(piece)), piece) for piece in pieces]


def require_dense(schema: Schema) -> None:
    """Refuse features that files do not hold.

    Raises:
        UnprocessableInput: `unsupported_kind`.
    """
    for feature in schema:
        if feature.kind != "dense":
            raise UnprocessableInput(
                f"Feature {feature.name!r} is {feature.kind}, and a file of a tar archive is one dense "
                "value. Choose another format.",
                code="unsupported_kind",
                feature=feature.name,
            )


def _in_row(error: InputError, name: str, row: int) -> InputError:
    """The error with its place in the whole input: the row, in place of that in a batch."""
    moved = type(error)(error.detail, code=error.code, row=row, feature=name, extra=error.extra)
    moved.__cause__ = error.__cause__
    return moved
