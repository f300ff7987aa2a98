"""The fast path for rows of JSON: a kernel reads lines straight into columns.

It takes the plain case alone: dense features of numbers, booleans and single strings, rows that fit
them. Where anything at all is unusual or wrong, there is no answer, and the general path (`json_text`,
`json_blocks`, `json_arrays`) reads the same lines; the result is the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.dtypes import BYTES, PRECISION, TEXT, DType
from ...domain.limits import MIB
from ...domain.schema import Feature, Schema
from .. import kernels
from ..arrow.batches import arrow_schema, column_type, storage_type
from ..content import content_view
from ..kernels import json_rows
from ..records.lease import Lease
from ..rounding import rounded
from .ndjson_lines import Lines
from .numbers import NotPlain

__all__ = ["PlainRows", "plain_rows"]

_MAX_BATCH_BYTES: Final = 32 * MIB
_WORD_BYTES: Final = 8
#: Two numbers of 64 bits for each cell, and what a row takes in a column even where it lacks the feature.
_CELL_BYTES: Final = 2 * _WORD_BYTES
_COMMA: Final = 0x2C
#: What the JSON text of a key would escape.
_ESCAPED: Final = frozenset('"\\') | frozenset(map(chr, range(0x20)))


def plain_rows(schema: Schema, *, declared: bool) -> PlainRows | None:
    """The reader of rows of this schema, or None where it has features that the kernel does not read."""
    is_plain = schema.message == "example" and all(_is_plain(feature, declared) for feature in schema)
    return PlainRows(schema) if is_plain and len(schema.features) else None


def _is_plain(feature: Feature, declared: bool) -> bool:
    if feature.kind != "dense" or 0 in feature.shape or not _ESCAPED.isdisjoint(feature.name):
        return False
    if feature.dtype.is_string:
        # Text stands for bytes only where they are declared.
        return feature.is_scalar and (feature.dtype is TEXT or (declared and feature.dtype is BYTES))
    return feature.dtype.has_kernel and feature.dtype.kind != "complex" and None not in feature.shape[1:]


def _kind(dtype: DType) -> int:
    if dtype.is_string:
        return json_rows.TEXT
    if dtype.is_integer:
        return json_rows.INTEGER
    return json_rows.FLOAT if dtype.is_float else json_rows.BOOLEAN


def _limits(dtype: DType) -> tuple[int, int]:
    """As `json_rows.read_rows` takes them."""
    if dtype.is_integer:
        bounds = np.iinfo(dtype.numpy)
        return int(bounds.max), -int(bounds.min)
    return PRECISION.get(dtype.name, 0), 0


def _offsets(sizes: list[int]) -> NDArray[np.int64]:
    return np.cumsum([0, *sizes], dtype=np.int64)


class PlainRows:
    """Reads lines of one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        features = sorted(schema, key=lambda feature: feature.name.encode())
        keys = [feature.name.encode() for feature in features]
        shapes = [[json_rows.ANY if dim is None else dim for dim in feature.shape] for feature in features]
        self._number = {feature.name: number for number, feature in enumerate(features)}
        self._row_bytes = sum(
            1 + (feature.num_values or 1) * max(feature.dtype.itemsize, 12) for feature in features
        )
        #: Numbers in a row, where every feature has a known number of them.
        self._row_values = sum(feature.known_values for feature in features if not feature.dtype.is_string)
        self._varies = any(feature.num_unknown for feature in features)
        #: The arguments of the kernel that say what a row is.
        self._layout = (
            np.frombuffer(b"".join(keys), np.uint8),
            _offsets([len(key) for key in keys]),
            np.array([_kind(feature.dtype) for feature in features], np.int64),
            np.array([_limits(feature.dtype) for feature in features], np.uint64).reshape(-1),
            np.array([feature.nullable for feature in features], np.int64),
            np.array([dim for shape in shapes for dim in shape], np.int64),
            _offsets([len(shape) for shape in shapes]),
        )
        self._follow = np.zeros(len(features) + 1, np.int64)
        self._lengths = np.zeros(max(map(len, shapes)), np.int64)

    def read(self, lines: Lines, lease: Lease) -> pa.RecordBatch:
        """The rows as a batch.

        Raises:
            NotPlain: a row that the general path has to look at.
            LimitExceeded: more than the budget allows.
        """
        rows, text = len(lines.starts), np.frombuffer(lines.text, np.uint8)
        held = rows * self._row_bytes
        if not rows or held > _MAX_BATCH_BYTES or lines.longest > lease.budget.limits.max_record_bytes:
            raise NotPlain
        num_values = rows * self._row_values
        if self._varies:
            # Between two values of a row there is a comma.
            num_values = rows + int(np.count_nonzero(text == _COMMA))
        num_cells = rows * len(self._number)
        # Twice: as the kernel finds them, and as the columns hold them.
        held += 2 * (num_values * _WORD_BYTES + len(text)) + num_cells * _CELL_BYTES
        lease.charge(held, "A batch of rows")
        cells = _Cells(
            rows,
            np.empty(num_values, np.uint64),
            np.empty(len(text), np.uint8),
            np.full(num_cells, -1, np.int64),
            np.zeros(num_cells, np.int64),
        )
        read = kernels.load().read_rows(
            text, lines.starts, lines.ends, *self._layout,
            self._follow, np.zeros(len(self._number), np.int64), self._lengths,
            cells.values, cells.chars, cells.begins, cells.counts,
        )  # fmt: skip
        if read < rows:
            raise NotPlain
        columns = [cells.column(feature, self._number[feature.name]) for feature in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self.schema))


class _Cells:
    """What `read_rows` has found."""

    def __init__(
        self,
        rows: int,
        values: NDArray[np.uint64],
        chars: NDArray[np.uint8],
        begins: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> None:
        self.rows = rows
        self.values = values
        self.chars = chars
        self.begins = begins
        self.counts = counts

    def column(self, feature: Feature, number: int) -> pa.Array[Any]:
        """The column of a feature, in the layouts of `columns.py`.

        Raises:
            NotPlain: a number that overflows.
        """
        cells = slice(number * self.rows, (number + 1) * self.rows)
        begins, counts = self.begins[cells], self.counts[cells]
        present = begins >= 0
        validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little").data)
        width = None if feature.dtype.is_string else feature.num_values
        starts = np.zeros(self.rows + 1, np.int64)
        np.cumsum(counts if width is None else np.full(self.rows, width), out=starts[1:])
        offsets = pa.py_buffer(starts.astype(np.int32).data)
        layout = column_type(feature)
        if feature.dtype.is_string:
            chars = pa.py_buffer(_gather(self.chars, 1, begins, counts, starts).data)
            return pa.Array.from_buffers(layout, self.rows, [validity, offsets, chars])
        values = _values(_gather(self.values, _WORD_BYTES, begins, counts, starts), feature.dtype)
        buffer = pa.py_buffer(content_view(values))
        if feature.is_scalar:
            return pa.Array.from_buffers(layout, self.rows, [validity, buffer])
        elements = pa.Array.from_buffers(storage_type(feature.dtype), len(values), [None, buffer])
        buffers = [validity, offsets] if width is None else [validity]
        return pa.Array.from_buffers(layout, self.rows, buffers, children=[elements])


def _gather(
    data: NDArray[Any],
    itemsize: int,
    begins: NDArray[np.int64],
    counts: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """The items of every row where `starts` says; zeros where it has none."""
    out = np.zeros(int(starts[-1]) * itemsize, np.uint8)
    kernels.load().gather_cells(data.view(np.uint8), begins, counts, itemsize, starts, out)
    return out


def _values(words: NDArray[np.uint8], dtype: DType) -> NDArray[Any]:
    if not dtype.is_float:
        return words.view(np.int64).astype(dtype.numpy)  # the kernel has seen that they fit
    values, lost = rounded(words.view(np.float64), dtype)
    if lost.any():
        raise NotPlain
    return values
