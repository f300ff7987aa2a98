"""Records of one layout to columns, the quick way: see `kernels/example_rows.py`."""

from __future__ import annotations

from collections.abc import Set
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from ...domain.schema import Feature, Schema
from ...domain.tensor import Shape
from .. import kernels
from ..columns import AbsentColumns, Column, Strings
from ..kernels.example_rows import (
    HEAD_BYTES,
    HEAD_SLOTS,
    MODE_CELL,
    MODE_CONTENT,
    MODE_FLOATS,
    MODE_INTS,
    MODE_SPAN,
    PLAN_FIELDS,
)
from ..records.lease import Lease
from .example_columns import key_field, storage_dtype, wire_order
from .example_content import build_content, finish_content
from .example_index import CELL_BYTES, Cells
from .example_values import ColumnBuilder, expected_kind
from .framing import FrameBlock
from .tensor_proto_write import tensor_proto_header

__all__ = ["RowReader"]

Ints = NDArray[np.int64]

_OUT: Final = 3
_CELL: Final = 7
_CACHE_LINE: Final = 64
#: Batches are not tried for a while where rows are not alike, at most for so many.
_MAX_PAUSE: Final = 16
#: No record holds more values: protobuf stops at 2 GiB.
_MAX_WIDTH: Final = 2**31


class RowReader:
    """Reads batches whose rows are alike; what it learns is kept from batch to batch.

    Args:
        lease: charged for the memory.
    """

    def __init__(self, schema: Schema, lease: Lease) -> None:
        self._schema = schema
        self._lease = lease
        self._modes = [_mode(feature) for feature in schema]
        self._widths = [_width(feature, mode) for feature, mode in zip(schema, self._modes, strict=True)]
        self._order = sorted(range(len(schema)), key=lambda number: wire_order(schema.features[number].name))
        noted = [number for number, mode in enumerate(self._modes) if mode in (MODE_CELL, MODE_SPAN)]
        self._cells_at = {number: index for index, number in enumerate(noted)}
        self._room = 0  # rows for which there are cells
        self._heads = np.empty(0, np.uint8)
        self._cells = np.empty((4, 0), np.int64)
        self._kinds = np.empty(0, np.uint8)
        self._pause = 0
        self._skip = 0
        self._lay_out()

    def _lay_out(self) -> None:
        """Expect the features in their present order."""
        features = [self._schema.features[number] for number in self._order]
        texts = [
            part for feature in features for part in (key_field(feature.name).tobytes(), _prefix(feature))
        ]
        ends = np.cumsum([0, *(len(text) for text in texts)], dtype=np.int64)
        self._texts = np.frombuffer(b"".join(texts), np.uint8)
        self._plan = np.zeros((len(features), PLAN_FIELDS), np.int64)
        for row, number in enumerate(self._order):
            feature = features[row]
            self._plan[row] = (
                self._modes[number], expected_kind(feature), self._widths[number], 0,
                *ends[2 * row : 2 * row + 3], self._room * self._cells_at.get(number, 0),
            )  # fmt: skip
        self._heads = np.zeros(len(features) * HEAD_SLOTS * HEAD_BYTES, np.uint8)
        #: Bytes that each feature's values take in the arena, a row.
        itemsizes = np.array([_ITEMSIZES[self._modes[number]] for number in self._order], np.int64)
        self._row_bytes = itemsizes * self._plan[:, 2]

    def read(self, block: FrameBlock, first: int, last: int, lease: Lease) -> list[Column] | None:
        """The columns of the records `first` to `last`; None where the general way must be gone.

        Raises:
            InputError: as the general way does.
        """
        if self._skip:
            self._skip -= 1
            return None
        rows = last - first
        # An integer takes a byte at least: where there is not as much, no memory is asked for.
        if int(self._row_bytes.sum()) * rows > 8 * int(block.sizes[first:last].sum()):
            return None
        arena, places = self._make_room(rows, lease)
        begins, ends, counts, num_bytes = self._cells
        data = np.frombuffer(block.data, np.uint8)
        found = kernels.load().read_examples(
            data, block.starts[first:last], block.sizes[first:last], self._plan.reshape(-1), self._texts,
            self._heads, self._kinds, begins, ends, counts, num_bytes, arena,
        )  # fmt: skip
        if found < rows:
            self._pause = min(2 * self._pause + 1, _MAX_PAUSE)
            self._skip = self._pause - 1
            return None
        self._pause = 0
        empty = np.empty(0, np.int64)
        whole = Cells(
            data, np.ones(rows, np.uint8), empty, empty, empty, empty,
            block.first_record + first, block.offset, complete=True,
        )  # fmt: skip
        absent, lacking = AbsentColumns(rows), self._lacking(rows)
        return [
            absent.column(feature)
            if number in lacking
            else self._column(number, feature, whole, arena[places[number] :], lease)
            for number, feature in enumerate(self._schema)
        ]

    def _lacking(self, rows: int) -> Set[int]:
        """The numbers of the features that none of the rows has."""
        if not self._cells_at:
            return frozenset()
        kinds = self._kinds.reshape(len(self._cells_at), -1)[:, :rows]
        occurring: list[bool] = np.logical_or.reduce(kinds, axis=1).tolist()
        return {
            number
            for number, occurs in zip(self._cells_at, occurring, strict=True)
            if not occurs and self._schema.features[number].nullable
        }

    def _make_room(self, rows: int, lease: Lease) -> tuple[NDArray[np.uint8], list[int]]:
        """Memory for the values, and where each feature's begin."""
        if rows > self._room and self._cells_at:
            count = len(self._cells_at) * rows
            self._lease.charge(CELL_BYTES * (count - self._kinds.size), "The index of records")
            self._cells = np.empty((4, count), np.int64)
            self._kinds = np.empty(count, np.uint8)
            self._room = rows
            self._plan[:, _CELL] = [rows * self._cells_at.get(number, 0) for number in self._order]
        # An odd number of cache lines each, lest the columns of one row fall on the same few of them.
        lines = (self._row_bytes * rows + _CACHE_LINE - 1) // _CACHE_LINE | 1
        ends = np.cumsum(lines * _CACHE_LINE)
        self._plan[:, _OUT] = ends - lines * _CACHE_LINE
        size = int(ends[-1]) if len(ends) else 0
        lease.charge(size, "Values of a batch")
        begins = np.empty(len(ends), np.int64)
        begins[self._order] = self._plan[:, _OUT]
        return np.empty(size, np.uint8), begins.tolist()

    def _column(
        self, number: int, feature: Feature, whole: Cells, arena: NDArray[np.uint8], lease: Lease
    ) -> Column:
        mode = self._modes[number]
        if mode == MODE_CELL:
            builder = ColumnBuilder(feature, self._cells_of(number, whole), lease)
            builder.check_kinds()
            return builder.build_list() if feature.encoding == "list" else build_content(builder)
        builder = ColumnBuilder(feature, whole, lease)
        if mode == MODE_SPAN:
            return self._strings(builder, self._cells_of(number, whole))
        rows, width = builder.rows, feature.num_values or 0
        size = rows * self._widths[number] * _ITEMSIZES[mode]
        if mode == MODE_CONTENT:
            values = arena[:size].view(storage_dtype(feature.dtype))
            return finish_content(builder, values, _starts(rows, width))
        if mode == MODE_FLOATS:
            floats = arena[:size].view(np.float32)
            if feature.dtype.name != "float32":
                floats = builder.convert_floats(floats, _starts(rows, width))
            return builder.column(floats, _NO_STARTS)
        values = arena[:size].view(np.int64)
        if feature.dtype.itemsize < 8:
            values = builder.narrow_ints(values, _starts(rows, width))
        return builder.column(values, _NO_STARTS)

    def _cells_of(self, number: int, whole: Cells) -> Cells:
        begin = self._room * self._cells_at[number]
        part = slice(begin, begin + len(whole.kinds))
        begins, ends, counts, num_bytes = (numbers[part] for numbers in self._cells)
        return Cells(
            whole.data, self._kinds[part], begins, ends, counts, num_bytes, whole.first_row, whole.offset
        )

    def _strings(self, builder: ColumnBuilder, cells: Cells) -> Column:
        rows = builder.rows
        total = int((cells.ends - cells.begins).sum())
        builder.lease.charge(total + 8 * (rows + 1), "Values of a batch")
        strings = Strings(np.empty(total, np.uint8), np.empty(rows + 1, np.int64))
        kernels.load().gather_spans(cells.data, cells.begins, cells.ends, strings.data, strings.offsets)
        starts = _starts(rows, 1)
        builder.check_text(strings, starts)
        return builder.column(strings, starts)

    def learn(self, begins: Ints | None) -> None:
        """Expect the features in the order in which they begin in a row that has all of them."""
        order = self._order if begins is None else np.argsort(begins).tolist()
        if order != self._order:
            self._order = order
            self._lay_out()
            self._skip = 0


_ITEMSIZES: Final = {MODE_CELL: 0, MODE_SPAN: 0, MODE_FLOATS: 4, MODE_INTS: 8, MODE_CONTENT: 1}
_NO_STARTS: Final = np.empty(0, np.int64)


def _starts(rows: int, width: int) -> Ints:
    return np.arange(rows + 1, dtype=np.int64) * width


def _mode(feature: Feature) -> int:
    if feature.nullable or (feature.num_values or 0) > _MAX_WIDTH:
        return MODE_CELL
    if feature.encoding != "list":
        return MODE_CONTENT if feature.num_values is not None and not feature.dtype.is_string else MODE_CELL
    if feature.dtype.is_string:
        return MODE_SPAN if feature.is_scalar else MODE_CELL
    if feature.num_values is None:
        return MODE_CELL
    return MODE_FLOATS if feature.dtype.is_float else MODE_INTS


def _width(feature: Feature, mode: int) -> int:
    """What the kernel counts of a row's values: values, or bytes of content."""
    width = feature.num_values or 0
    return width * feature.dtype.itemsize if mode == MODE_CONTENT else width


def _prefix(feature: Feature) -> bytes:
    if _mode(feature) != MODE_CONTENT or feature.encoding != "tensor":
        return b""
    return tensor_proto_header(feature.dtype, cast("Shape", feature.shape))
