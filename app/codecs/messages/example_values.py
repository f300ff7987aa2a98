"""Cells of serialized Examples to an Arrow column, by what the schema says of the feature."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.schema import Feature
from ...errors import LimitExceeded, LossyConversion, SchemaConflict, UnprocessableInput
from .. import kernels
from ..kernels.example_index import KIND_ABSENT, KIND_BYTES, KIND_FLOAT, KIND_INT64
from ..records.columns import column_type, storage_type
from ..records.large_integers import are_exact
from ..records.lease import Lease
from .example_columns import storage_dtype
from .example_index import Cells

__all__ = ["KIND_NAMES", "ColumnBuilder", "arrow_buffer", "expected_kind"]

Ints = NDArray[np.int64]

KIND_NAMES: Final = {
    KIND_ABSENT: "nothing",
    KIND_BYTES: "a BytesList",
    KIND_FLOAT: "a FloatList",
    KIND_INT64: "an Int64List",
}
_MAX_INT32: Final = 2**31 - 1


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

    def __init__(self, feature: Feature, cells: Cells, lease: Lease) -> None:
        self.feature = feature
        self.cells = cells
        self.lease = lease
        self.rows = len(cells.kinds)
        self.all_present = cells.complete or bool(self.present.all())

    @property
    def present(self) -> NDArray[np.bool_]:
        """By row, whether it has the feature."""
        return np.not_equal(self.cells.kinds, KIND_ABSENT)

    def check_kinds(self) -> None:
        """Refuse rows that lack the feature or hold another kind.

        Raises:
            SchemaConflict: `schema_conflict`.
        """
        expected = expected_kind(self.feature)
        other = self.cells.kinds != expected
        if self._may_hold_integers:
            other &= self.cells.kinds != KIND_INT64
        if (row := self.first(self.present & other)) is not None:
            found = KIND_NAMES[int(self.cells.kinds[row])]
            raise self.conflict(row, f"is {found}, but the schema expects {KIND_NAMES[expected]}")
        if not self.all_present and not self.feature.nullable:
            row = int(np.argmin(self.present))
            raise SchemaConflict(
                f"Record {self.number(row)} lacks feature {self.feature.name!r}. Declare the feature "
                f"nullable in the schema if it may be absent.",
                row=self.number(row),
                feature=self.feature.name,
            )

    def build_list(self) -> pa.Array[Any]:
        """The column of a feature with encoding `list`.

        Raises:
            SchemaConflict: a row's count or a value does not fit.
            LossyConversion: a value that float16 or bfloat16 cannot hold.
            UnprocessableInput: text that is not UTF-8 (`invalid_utf8`).
        """
        starts = self.value_starts(self.cells.counts, "values")
        if self.feature.dtype.is_string:
            return self.nested(self._strings(starts), starts)
        read = self._floats if self.feature.dtype.is_float else self._integers
        return self.nested(self.storage(read(starts)), starts)

    def value_starts(self, counts: Ints, unit: str) -> Ints:
        """By row, the number of its first value in the column, and of all values at the end.

        Args:
            counts: values in each row, 0 where it is absent.
            unit: names the values in the error.

        Raises:
            SchemaConflict: not as many as the shape takes.
        """
        width = self.feature.num_values
        if width is not None:
            self._check_counts(counts != width, counts, f"{unit} where the schema's shape takes {width}")
            return np.arange(self.rows + 1, dtype=np.int64) * width
        known = max(self.feature.known_values, 1)
        self._check_counts(counts % known != 0, counts, f"{unit}, which is not a multiple of {known}")
        starts = np.zeros(self.rows + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        self.check_int32(int(starts[-1]))
        return starts

    def _check_counts(self, wrong: NDArray[np.bool_], counts: Ints, what: str) -> None:
        if (row := self.first(wrong & self.present)) is not None:
            raise self.conflict(row, f"has {counts[row]} {what}")

    def check_int32(self, number: int) -> None:
        """Refuse what Arrow's offsets of 32 bits cannot count."""
        if number > _MAX_INT32:
            raise LimitExceeded(
                f"Feature {self.feature.name!r} of record {self.cells.first_row} takes {number} bytes or "
                f"values; at most {_MAX_INT32} can be read at a time.",
                code="record_too_large",
                row=self.cells.first_row,
                feature=self.feature.name,
            )

    def _integers(self, starts: Ints) -> NDArray[Any]:
        values = self.empty(int(starts[-1]), np.dtype(np.int64))
        cells = self.cells
        kernels.load().read_ints(cells.data, cells.kinds, cells.begins, cells.ends, starts, values)
        return self.narrow_ints(values, starts)

    def narrow_ints(self, values: NDArray[np.int64], starts: Ints) -> NDArray[Any]:
        """The values as the feature's storage holds them.

        Raises:
            SchemaConflict: it does not hold all.
        """
        storage = storage_dtype(self.feature.dtype)
        if storage.itemsize == 8:
            return values.view(storage)
        if self.feature.dtype.kind == "bool":
            low, high = 0, 1
        else:
            low, high = int(np.iinfo(storage).min), int(np.iinfo(storage).max)
        self.check_values((values < low) | (values > high), values, starts, f"from {low} to {high}")
        self.lease.charge(len(values) * storage.itemsize, "Values of a batch")
        return values.astype(storage)

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
        values = self.empty(int(starts[-1]), np.dtype(np.float32))
        cells = self.cells
        kernels.load().read_floats(
            cells.data, cells.kinds, cells.begins, cells.ends, starts, values.view(np.uint8)
        )
        if self._may_hold_integers and (of_integers := np.equal(cells.kinds, KIND_INT64)).any():
            self._read_integers_as_floats(np.repeat(of_integers, np.diff(starts)), starts, values)
        return self.convert_floats(values, starts)

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
        cells = self.cells
        integers = self.empty(len(values), np.dtype(np.int64))
        kernels.load().read_ints(cells.data, cells.kinds, cells.begins, cells.ends, starts, integers)
        integers[~where] = 0
        values[where] = integers[where]
        self.check_values(~are_exact(integers), integers, starts, "that it holds exactly")

    def convert_floats(self, values: NDArray[np.float32], starts: Ints) -> NDArray[Any]:
        """The values as the feature's storage holds them.

        Raises:
            LossyConversion: it does not hold all.
        """
        if self.feature.dtype.name == "float32":
            return values
        self.lease.charge(len(values) * self.feature.dtype.itemsize, "Values of a batch")
        if self.feature.dtype.name == "float64":
            return values.astype(np.float64)
        narrow, exact = _as_bfloat16(values) if self.feature.dtype.name == "bfloat16" else _as_float16(values)
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
        """Memory for the values of the rows; zeros where some are absent."""
        self.lease.charge(count * dtype.itemsize, "Values of a batch")
        return np.empty(count, dtype) if self.all_present else np.zeros(count, dtype)

    def _strings(self, starts: Ints) -> pa.Array[Any]:
        cells = self.cells
        total = int(cells.num_bytes.sum())
        self.check_int32(total)
        self.lease.charge(total + 4 * (int(starts[-1]) + 1), "Values of a batch")
        data = np.empty(total, np.uint8)
        offsets = np.empty(int(starts[-1]) + 1, np.int32)
        kernels.load().read_bytes(cells.data, cells.kinds, cells.begins, cells.ends, starts, data, offsets)
        return self.strings(data, offsets, starts)

    def strings(self, data: NDArray[np.uint8], offsets: NDArray[np.int32], starts: Ints) -> pa.Array[Any]:
        """Values `data[offsets[v]:offsets[v + 1]]` as an Arrow array.

        Raises:
            UnprocessableInput: the feature is text, and a value is not UTF-8 (`invalid_utf8`).
        """
        buffers = [arrow_buffer(offsets), arrow_buffer(data)]
        if self.feature.dtype.name == "text":
            try:
                pa.Array.from_buffers(pa.utf8(), len(offsets) - 1, [None, *buffers]).validate(full=True)
            except pa.ArrowInvalid:
                raise self._invalid_utf8(data, offsets, starts) from None
        validity = self.validity() if self.feature.is_scalar else None
        return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [validity, *buffers])

    def _invalid_utf8(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int32], starts: Ints
    ) -> UnprocessableInput:
        row = 0
        for value in range(len(offsets) - 1):
            try:
                str(data.data[offsets[value] : offsets[value + 1]], "utf-8")
            except UnicodeDecodeError:
                row = int(np.searchsorted(starts, value, "right")) - 1
                break
        return UnprocessableInput(
            f"Record {self.number(row)}: feature {self.feature.name!r} is not UTF-8. Declare it as bytes.",
            code="invalid_utf8",
            row=self.number(row),
            feature=self.feature.name,
        )

    def storage(self, values: NDArray[Any]) -> pa.Array[Any]:
        """Flat numeric values as an Arrow array of the feature's storage type."""
        validity = self.validity() if self.feature.is_scalar else None
        kind = storage_type(self.feature.dtype)
        count = values.nbytes // self.feature.dtype.itemsize
        return pa.Array.from_buffers(kind, count, [validity, arrow_buffer(values)])

    def nested(self, values: pa.Array[Any], starts: Ints) -> pa.Array[Any]:
        """The column whose row `r` holds the values from `starts[r]` to `starts[r + 1]`."""
        if self.feature.is_scalar:
            return values
        kind = column_type(self.feature)
        if self.feature.num_values is not None:
            buffers = [self.validity()]
        else:
            buffers = [self.validity(), arrow_buffer(starts.astype(np.int32))]
        return pa.Array.from_buffers(kind, self.rows, buffers, children=[values])

    def validity(self) -> pa.Buffer | None:
        """Arrow's bitmap of the rows that have the feature; None where all do."""
        if self.all_present:
            return None
        return arrow_buffer(np.packbits(self.present, bitorder="little"))

    def first(self, wrong: NDArray[np.bool_]) -> int | None:
        """The first row that is wrong."""
        return int(np.argmax(wrong)) if wrong.any() else None

    def number(self, row: int) -> int:
        """The number in the whole input of a row of the batch."""
        return self.cells.first_row + row

    def conflict(self, row: int, what: str) -> SchemaConflict:
        """A row of the batch does not fit."""
        name, number = self.feature.name, self.number(row)
        return SchemaConflict(f"Record {number}: feature {name!r} {what}.", row=number, feature=name)


def arrow_buffer(array: NDArray[Any]) -> pa.Buffer:
    """The memory of `array`, not copied."""
    return pa.py_buffer(array.view(np.uint8).data)


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
