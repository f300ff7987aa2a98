"""Rows and tensors as the cells of a table. Only what is shown is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ...codecs.columns import Batch, Column, Strings
from ...codecs.content import extend_sign
from ...codecs.images.header import read_header
from ...domain.dtypes import DType
from ...domain.feature import Feature
from ...domain.schema import Schema
from ...errors import InputError
from .terminal import count_text, size_text

#: Values of a cell that are shown, and bytes of a string.
_VALUES: Final = 8
_STRING: Final = 200
_ABSENT: Final = "·"


def row_cells(schema: Schema, batch: Batch, first: int, last: int) -> Iterator[list[str]]:
    """Of each row, the text of every feature."""
    for row in range(first, last):
        one = batch.rows(row, row + 1)
        yield [cell_text(feature, column) for feature, column in zip(schema, one.columns, strict=True)]


def cell_text(feature: Feature, column: Column) -> str:
    """The value of the one row of a column; one without it is a dot."""
    if not column.count(1):
        return _ABSENT
    shown = values_text(column.values, feature.dtype)
    if feature.is_scalar:
        return shown
    if feature.kind == "sparse":
        return f"{{{shown}}} {len(column.values)} of {list(feature.shape)}"
    if feature.kind == "dense" and feature.num_unknown == 0:
        return f"[{shown}]"
    return f"[{shown}]" + (
        f" {count_text(count, 'value')}" if (count := len(column.values)) > _VALUES else ""
    )


def values_text(values: Any, dtype: DType, most: int = _VALUES) -> str:
    """The first of the values, and dots for the rest."""
    if isinstance(values, Strings):
        begin = values.offsets[: most + 1].tolist()
        data = values.data
        texts = [
            string_text(
                data[a : min(b, a + max(_STRING, _HEADER_BYTES))].tobytes(),
                b - a,
                is_text=dtype.name == "text",
            )
            for a, b in pairwise(begin)
        ]
    else:
        texts = [_number(value) for value in extend_sign(values[:most], dtype).tolist()]
    return ", ".join(texts) + (", …" if len(values) > most else "")


#: Enough of an image to say how large it is.
_HEADER_BYTES: Final = 64 * 1024


def string_text(head: bytes, size: int, *, is_text: bool) -> str:
    """A string as text, an image as its size, other bytes as hexadecimal digits."""
    try:
        header = read_header(head)
    except InputError:
        pass
    else:
        return f"<{header.format} {header.width}x{header.height}, {size_text(size)}>"
    if is_text or _is_text(head[:_STRING]):
        return head[:_STRING].decode("utf-8", "replace") + ("…" if size > _STRING else "")
    return f"0x{head[:12].hex()}{'…' if size > 12 else ''} ({size_text(size)})"


def _is_text(data: bytes) -> bool:
    """Whether most of the bytes are characters that can be shown; the last one may be cut."""
    text = data.decode("utf-8", "replace")
    faults = text.rstrip("\ufffd").count("\ufffd")
    return not faults and 4 * sum(map(str.isprintable, text)) >= 3 * len(text)


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def shape_text(shape: Sequence[int | None]) -> str:
    """`28x28x1`; a dimension that differs is a question mark."""
    return "x".join("?" if dim is None else str(dim) for dim in shape) or "scalar"


def image_of(column: Column, row: int) -> bytes | None:
    """The first value of a row, if it is an encoded image."""
    one = column.rows(row, row + 1)
    if not one.count(1) or not isinstance(one.values, Strings) or not len(one.values):
        return None
    end = int(one.values.offsets[1])
    data = one.values.data
    try:
        read_header(data[: min(end, _HEADER_BYTES)].tobytes())
    except InputError:
        return None
    return bytes(np.asarray(data[:end]).tobytes())
