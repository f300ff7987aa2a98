"""Rows, tensors and their statistics as the cells of a table. Only what is shown is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ...codecs.array import AnyTensor, Array
from ...codecs.columns import Batch, Column, Strings
from ...codecs.content import extend_sign
from ...codecs.images.header import read_header
from ...domain.dtypes import DType
from ...domain.feature import Feature
from ...domain.schema import Schema
from ...domain.wording import count_text, looks_like_text, size_text
from ...errors import InputError
from .inspect import Findings

#: Values of a cell that are shown, and bytes of a string.
_VALUES: Final = 8
_STRING: Final = 200
_ABSENT: Final = "·"
#: Members of statistics that are worth a word where they are not 0.
_NOTED: Final = (
    ("num_missing", "missing"), ("num_zeros", "zeros"), ("num_nan", "NaN"), ("num_infinite", "infinite"),
    ("num_empty", "empty"),
)  # fmt: skip
#: What the cells of a line of statistics, and of a tensor, are.
STATISTICS: Final = ("feature", "shape", "rows", "values", "min", "max", "mean", "std", "")
TENSORS: Final = ("name", "kind", "dtype", "shape", "size", "min", "max", "mean", "first values")


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
    if is_text or looks_like_text(head[:_STRING]):
        return head[:_STRING].decode("utf-8", "replace") + ("…" if size > _STRING else "")
    return f"0x{head[:12].hex()}{'…' if size > 12 else ''} ({size_text(size)})"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def shape_text(shape: Sequence[int | None]) -> str:
    """`28x28x1`; a dimension that differs is a question mark."""
    return "x".join("?" if dim is None else str(dim) for dim in shape) or "scalar"


def statistics_cells(schema: Schema, features: Mapping[str, Any]) -> Iterator[list[str]]:
    """Of each feature, a line as `STATISTICS` says; of strings, the numbers are those of their lengths."""
    for feature in schema:
        of = features[feature.name]
        is_text = "min_length" in of
        least, most, mean = ("min_length", "max_length", "mean_length") if is_text else ("min", "max", "mean")
        notes = [f"{of[key]:,} {what}" for key, what in _NOTED if of.get(key)]
        counts = [shape_text(feature.shape), f"{of['num_present']:,}", f"{of['num_values']:,}"]
        numbers = [_statistic(of.get(key)) for key in (least, most, mean, "std")]
        yield [feature.name, *counts, *numbers, "; ".join(["lengths in bytes"] * is_text + notes)]


def tensor_cells(findings: Findings) -> Iterator[list[str]]:
    """Of each tensor, a line as `TENSORS` says, but for its values."""
    for of in findings.tensors:
        least, most, mean = (
            _statistic(of.get(name, of.get(f"{name}_length"))) for name in ("min", "max", "mean")
        )
        shape, size = shape_text(of["shape"]), size_text(of["num_bytes"])
        yield [of["name"] or "", of["kind"], of["dtype"], shape, size, least, most, mean]


def tensor_text(tensor: AnyTensor) -> str:
    """The first values of a tensor; nothing of one that is still arriving."""
    values = tensor if isinstance(tensor, Array) else tensor.values
    return "" if values.is_arriving else values_text(values.elements, values.dtype)


def _statistic(value: object) -> str:
    return "" if value is None else _number(value)


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
