"""Cells of serialized messages to a column, by what the schema says of the feature."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....domain.dtypes import TEXT
from ....domain.feature import Feature
from ....errors import LossyConversion, SchemaConflict, UnprocessableInput
from ... import kernels
from ...arrow.elements import first_not_utf8
from ...columns import Column, Ints, Mask, Strings, bounds_of_present, even_bounds
from ...kernels.messages.keys import MODE_FLOATS, MODE_INTS, MODE_SPAN
from ...kernels.messages.read import UNFIT
from ...kernels.messages.wire import KIND_ABSENT, KIND_BYTES, KIND_FLOAT, KIND_INT64
from ...records.large_integers import are_exact
from ...records.lease import Lease
from .cells import KIND_NAMES, FieldCells


def expected_kind(feature: Feature) -> int:
    """The kind of Feature that holds `feature`."""
    if feature.encoding != "list" or feature.dtype.is_string:
        return KIND_BYTES
    return KIND_FLOAT if feature.dtype.is_float else KIND_INT64


class ColumnBuilder:
    """Builds the column of one feature from the cells of a batch.

    Args:
        lease: charged for the column's memory.
    """

    def __init__(self, feature: Feature, cells: FieldCells, lease: Lease) -> None:
        self.feature = feature
        self.cells = cells
        self.lease = lease
        self.rows = len(cells.kinds)
        #: By row, whether it has the feature; None where all do.
        self.present: Mask | None = None
        if not cells.complete:
            present = np.not_equal(cells.kinds, KIND_ABSENT)
            self.present = None if present.all() else present

    def check_kinds(self) -> None:
        """Refuse rows that lack the feature or hold another kind.

        Raises:
            SchemaConflict: `schema_conflict`.
        """
        if self.cells.complete:
            return
        expected = expected_kind(self.feature)
        kinds = self.cells.kinds & ~np.uint8(UNFIT)
        other = kinds != expected
        if self._may_hold_integers:
            other &= kinds != KIND_INT64
        if (row := self.first_present(other)) is not None:
            found = KIND_NAMES[int(kinds[row])]
            raise self.conflict(row, f"is {found}, but the schema expects {KIND_NAMES[expected]}")
        if self.present is not None and not self.feature.nullable:
            row = int(np.argmin(self.present))
            raise SchemaConflict(
                f"Record {self.number(row)} lacks feature {self.feature.name!r}. Declare the feature "
                f"nullable in the schema if it may be absent.",
                row=self.number(row),
                feature=self.feature.name,
            )

    def first_unfit(self) -> int | None:
        """The first row whose values are not what the mode takes."""
        return None if self.cells.complete else self.first(self.cells.kinds >= UNFIT)

    def build_list(self) -> Column:
        """The column of a feature with encoding `list`.

        Raises:
            SchemaConflict: a row's count or a value does not fit.
            LossyConversion: a value that float16 or bfloat16 cannot hold.
            UnprocessableInput: text that is not UTF-8 (`invalid_utf8`).
        """
        cells, feature = self.cells, self.feature
        if (row := self.first_unfit()) is not None:
            raise self._count_conflict(row, "values")
        if cells.mode == MODE_SPAN:
            starts = self.starts_of_width(1)
            return self.column(self._single_strings(starts), starts)
        if cells.mode in (MODE_FLOATS, MODE_INTS):
            starts = self.starts_of_width(feature.num_values or 0)
            if cells.mode == MODE_FLOATS:
                return self.column(self._convert_floats(cells.values.view(np.float32), starts), starts)
            return self.column(self._narrow_ints(cells.values.view(np.int64), starts), starts)
        starts = self.value_starts(cells.counts, "values")
        if feature.dtype.is_string:
            return self.column(self._strings(starts), starts)
        read = self._floats if feature.dtype.is_float else self._integers
        return self.column(read(starts), starts)

    def value_starts(self, counts: Ints, unit: str) -> Ints:
        """By row, the number of its first value in the column, and of all values at the end.

        Args:
            counts: values in each row; undefined where it is absent.
            unit: names the values in the error.

        Raises:
            SchemaConflict: not as many as the shape takes.
        """
        width = self.feature.num_values
        wrong = counts != width if width is not None else counts % max(self.feature.known_values, 1) != 0
        if (row := self.first_present(wrong)) is not None:
            raise self._count_conflict(row, unit, int(counts[row]))
        if width is not None:
            return self.starts_of_width(width)
        starts = np.zeros(self.rows + 1, np.int64)
        np.cumsum(counts if self.present is None else np.where(self.present, counts, 0), out=starts[1:])
        return starts

    def starts_of_width(self, width: int) -> Ints:
        """As `value_starts`, where each row that has the feature has `width` values."""
        if self.present is None:
            return even_bounds(self.rows, width)
        starts = np.zeros(self.rows + 1, np.int64)
        np.cumsum(self.present, out=starts[1:])
        return starts * width

    def _count_conflict(self, row: int, unit: str, count: int | None = None) -> SchemaConflict:
        count = int(self.cells.counts[row]) if count is None else count
        width = self.feature.num_values
        if width is not None:
            return self.conflict(row, f"has {count} {unit} where the schema's shape takes {width}")
        known = max(self.feature.known_values, 1)
        return self.conflict(row, f"has {count} {unit}, which is not a multiple of {known}")

    def _integers(self, starts: Ints) -> NDArray[Any]:
        return self._narrow_ints(self._numbers(KIND_INT64, starts, np.dtype(np.int64)), starts)

    def _numbers(self, kind: int, starts: Ints, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The numbers in all Features of this kind; others leave their place as it is."""
        values = self.empty(int(starts[-1]), dtype)
        cells = self.cells
        kernels.load().read_number_lists(
            cells.data, cells.kinds, cells.begins, cells.ends, kind, starts, values.view(np.uint8)
        )
        return values

    def _narrow_ints(self, values: NDArray[np.int64], starts: Ints) -> NDArray[Any]:
        """The values as the feature's dtype.

        Raises:
            SchemaConflict: it does not hold all.
        """
        dtype = self.feature.dtype
        if dtype.itemsize == 8:
            return values.view(dtype.numpy)
        low, high = (0, 1) if dtype.kind == "bool" else dtype.bounds
        self.check_values((values < low) | (values > high), values, starts, f"from {low} to {high}")
        self.lease.charge(len(values) * dtype.itemsize, "Values of a batch")
        return values.astype(dtype.numpy)

    def check_values(
        self, wrong: NDArray[np.bool_], values: NDArray[Any], starts: Ints, expected: str
    ) -> None:
        """Refuse the first of the values that are wrong."""
        for index in np.flatnonzero(wrong)[:1]:
            row = int(np.searchsorted(starts, index, "right")) - 1
            raise self.conflict(
                row, f"holds {values[index]}, but {self.feature.dtype} takes values {expected}"
            )

    def _floats(self, starts: Ints) -> NDArray[Any]:
        values = self._numbers(KIND_FLOAT, starts, np.dtype(np.float32))
        if self._may_hold_integers and (of_integers := np.equal(self.cells.kinds, KIND_INT64)).any():
            self._read_integers_as_floats(np.repeat(of_integers, np.diff(starts)), starts, values)
        return self._convert_floats(values, starts)

    @property
    def _may_hold_integers(self) -> bool:
        """Whether rows that were stored when the feature was an int64 are read as well."""
        return self.feature.was_int64 and self.feature.dtype.is_float

    def _read_integers_as_floats(
        self, where: NDArray[np.bool_], starts: Ints, values: NDArray[np.float32]
    ) -> None:
        """Set the values of rows that have an Int64List.

        Raises:
            SchemaConflict: float32 does not hold one of them exactly.
        """
        integers = self._numbers(KIND_INT64, starts, np.dtype(np.int64))
        integers[~where] = 0
        values[where] = integers[where]
        self.check_values(~are_exact(integers), integers, starts, "that it holds exactly")

    def _convert_floats(self, values: NDArray[np.float32], starts: Ints) -> NDArray[Any]:
        """The values as the feature's dtype.

        Raises:
            LossyConversion: it does not hold all.
        """
        name = self.feature.dtype.name
        if name == "float32":
            return values
        self.lease.charge(len(values) * self.feature.dtype.itemsize, "Values of a batch")
        if name == "float64":
            return values.astype(np.float64)
        narrow, exact = _as_bfloat16(values) if name == "bfloat16" else _as_float16(values)
        for index in np.flatnonzero(~exact)[:1]:
            row = int(np.searchsorted(starts, index, "right")) - 1
            raise LossyConversion(
                f"Record {self.number(row)}: feature {self.feature.name!r} holds {values[index]!s}, which "
                f"{self.feature.dtype} does not hold exactly. Declare float32.",
                row=self.number(row),
                feature=self.feature.name,
            )
        return narrow

    def empty(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Memory for the values of the rows."""
        self.lease.charge(count * dtype.itemsize, "Values of a batch")
        return np.empty(count, dtype)

    def _strings(self, starts: Ints) -> Strings:
        cells = self.cells
        strings = self._empty_strings(cells.num_bytes, int(starts[-1]))
        kernels.load().read_bytes_lists(
            cells.data, cells.kinds, cells.begins, cells.ends, starts, strings.data, strings.offsets
        )
        self.check_text(strings, starts)
        return strings

    def _single_strings(self, starts: Ints) -> Strings:
        """The values of rows that have one each."""
        cells = self.cells
        strings = self._empty_strings(cells.ends - cells.begins, int(starts[-1]))
        kernels.load().gather_spans(
            cells.data, cells.kinds, cells.begins, cells.ends, strings.data, strings.offsets
        )
        self.check_text(strings, starts)
        return strings

    def _empty_strings(self, num_bytes: Ints, count: int) -> Strings:
        total = int((num_bytes if self.present is None else num_bytes[self.present]).sum())
        self.lease.charge(total + 8 * (count + 1), "Values of a batch")
        return Strings(np.empty(total, np.uint8), np.empty(count + 1, np.int64))

    def check_text(self, strings: Strings, starts: Ints) -> None:
        """Refuse values of a text feature that are not UTF-8.

        Raises:
            UnprocessableInput: `invalid_utf8`.
        """
        if self.feature.dtype is TEXT and (value := first_not_utf8(strings)) is not None:
            row = int(np.searchsorted(starts, value, "right")) - 1
            raise UnprocessableInput(
                f"Record {self.number(row)}: feature {self.feature.name!r} is not UTF-8. Declare it as "
                "bytes.",
                code="invalid_utf8",
                row=self.number(row),
                feature=self.feature.name,
            )

    def column(self, values: NDArray[Any] | Strings, starts: Ints, shapes: Ints | None = None) -> Column:
        """The column whose row `r` has the values from `starts[r]` to `starts[r + 1]`."""
        if not isinstance(values, Strings):
            values = values.view(self.feature.dtype.numpy)
        if (width := self.feature.num_values) is not None:
            return Column(values, (), self.present, width)
        return Column(values, (bounds_of_present(starts, self.present),), self.present, shapes=shapes)

    def first_present(self, wrong: Mask) -> int | None:
        """The first row that has the feature and is wrong."""
        return self.first(wrong if self.present is None else wrong & self.present)

    def first(self, wrong: Mask) -> int | None:
        """The first row that is wrong."""
        return int(np.argmax(wrong)) if wrong.any() else None

    def number(self, row: int) -> int:
        """The number in the whole input of a row of the batch."""
        return self.cells.first_row + row

    def conflict(self, row: int, what: str) -> SchemaConflict:
        """The error of a row of the batch that does not fit."""
        name, number = self.feature.name, self.number(row)
        return SchemaConflict(f"Record {number}: feature {name!r} {what}.", row=number, feature=name)


def _as_float16(values: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.bool_]]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow = values.astype(np.float16)
        return narrow, (narrow.astype(np.float32) == values) | np.isnan(values)


def _as_bfloat16(values: NDArray[np.float32]) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
    """The upper halves; a NaN is kept a NaN by its topmost bit of payload."""
    bits = values.view(np.uint32)
    is_nan = np.isnan(values)
    exact = (bits & np.uint32(0xFFFF)) == 0
    narrow = (bits >> np.uint32(16)).astype(np.uint16)
    narrow[is_nan & ~exact] |= np.uint16(0x40)
    return narrow, exact | is_nan
