"""The row model: rows are batches of columns, and a column is packed values and where they are cut.

Only rows that have a feature take a place in its column, so nothing is filled with zeros. By kind of feature:

| value of a row             | values                | splits                | width                 |
|----------------------------|-----------------------|-----------------------|-----------------------|
| all dimensions known       | row after row         | none                  | product of the shape  |
| one dimension unknown      | row after row         | row -> values         | 1                     |
| several dimensions unknown | row after row         | row -> values         | 1                     |
| ragged, k partitions       | row after row         | row -> ... (k + 1)    | product of the inner shape |
| sparse                     | row after row         | row -> values         | 1                     |
| sequence                   | step after step       | row -> steps          | product of a step's shape |
| the same, steps vary       | step after step       | row -> steps -> values | 1                    |

Values are row-major. Where several dimensions of a value (of a step, in a sequence) are unknown, `shapes` has
the shape of each; a sparse column has `coordinates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..domain.dtypes import DType
from ..domain.feature import Feature
from ..domain.immutable import immutable
from ..domain.schema import Schema
from ..domain.tensor import num_elements
from ..runtime.budget import Budget
from .records.lease import Lease

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Rows of a batch at most: 8 k rows of a hundred bytes stay in the second-level cache.
MAX_BATCH_ROWS: Final = 8192

_NO_ROWS: Final = np.zeros(1, np.int64)


@immutable(eq=False)
class Strings:
    """Byte strings, one behind the other.

    Attributes:
        data: the bytes of all, and nothing else.
        offsets: `[n + 1]`, from 0 on: string `i` is `data[offsets[i]:offsets[i + 1]]`.
    """

    data: NDArray[np.uint8]
    offsets: Ints

    @classmethod
    def pack(cls, strings: Iterable[bytes]) -> Strings:
        """The strings, copied."""
        parts = list(strings)
        sizes = np.fromiter(chain((0,), map(len, parts)), np.int64, len(parts) + 1)
        return cls(np.frombuffer(b"".join(parts), np.uint8), sizes.cumsum())

    def unpack(self) -> list[bytes]:
        """The strings, copied."""
        data = self.data.tobytes()
        return [data[begin:end] for begin, end in pairwise(self.offsets.tolist())]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of data and offsets."""
        return self.data.nbytes + self.offsets.nbytes

    def part(self, first: int, last: int) -> Strings:
        """The strings `first` to `last`; their data is a view."""
        offsets = _rebase(self.offsets[first : last + 1])
        begin = int(self.offsets[first])
        return Strings(self.data[begin : begin + int(offsets[-1])], offsets)


@immutable(eq=False)
class Column:
    """One feature of some rows; see the table above.

    Attributes:
        values: flat; numbers are of `dtype.numpy`. Of elements with fewer than 8 bits the upper bits mean
            nothing (`content.extend_sign` gives the numbers).
        splits: outermost first, each from 0 on.
        present: by row, whether it has the feature; None where every row has it.
        width: how many values the innermost items have.
        shapes: `[items, rank]`; the items are those that the last split cuts.
        coordinates: `[values, rank]`.
    """

    values: NDArray[Any] | Strings
    splits: tuple[Ints, ...] = ()
    present: Mask | None = None
    width: int = 1
    shapes: Ints | None = None
    coordinates: Ints | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        num_bytes = self.values.nbytes
        for array in (*self.splits, self.present, self.shapes, self.coordinates):
            if array is not None:
                num_bytes += array.nbytes
        return num_bytes

    @property
    def occurs(self) -> bool:
        """Whether a row has the feature."""
        return self.present is None or bool(self.present.any())

    def count(self, num_rows: int) -> int:
        """How many of the batch's `num_rows` rows have the feature."""
        return num_rows if self.present is None else int(np.count_nonzero(self.present))

    def rows(self, first: int, last: int) -> Column:
        """The rows `first` to `last`; values are views."""
        present = self.present
        if present is not None:
            before = int(np.count_nonzero(present[:first]))
            present = present[first:last]
            first, last = before, before + int(np.count_nonzero(present))
        splits: list[Ints] = []
        shapes = self.shapes
        for level, split in enumerate(self.splits, 1):
            if shapes is not None and level == len(self.splits):
                shapes = shapes[first:last]
            splits.append(_rebase(split[first : last + 1]))
            first, last = int(split[first]), int(split[last])
        return Column(
            part(self.values, first * self.width, last * self.width),
            tuple(splits),
            present,
            self.width,
            shapes,
            None if self.coordinates is None else self.coordinates[first:last],
        )

    def steps(self) -> Column:
        """Of a sequence, the column whose rows are the steps of all rows."""
        return Column(self.values, self.splits[1:], None, self.width, self.shapes)

    def find_row(self, bounds: Ints, index: int) -> int:
        """The row of the batch that has an item.

        Args:
            bounds: by row that has the feature, where its items begin, and where the last ones end.
            index: of the item.
        """
        row = int(np.searchsorted(bounds, index, "right")) - 1
        return row if self.present is None else int(np.flatnonzero(self.present)[row])

    def value_bounds(self, num_rows: int) -> Ints:
        """Where the values of each row that has the feature begin, and where the last ones end."""
        bounds = even_bounds(self.count(num_rows), 1)
        for split in self.splits:
            bounds = split[bounds]
        return bounds * self.width


@immutable(eq=False)
class Batch:
    """Some rows; `columns` in the order of the schema."""

    num_rows: int
    columns: tuple[Column, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all columns; what some share counts for each of them."""
        return sum(column.nbytes for column in self.columns)

    def rows(self, first: int, last: int) -> Batch:
        """The rows `first` to `last`; values are views."""
        return Batch(last - first, tuple(column.rows(first, last) for column in self.columns))


@immutable(eq=False)
class Records:
    """Rows on their way through a request.

    Attributes:
        schema: holds for every batch; known before the first one is drawn.
        batches: at most `MAX_BATCH_ROWS` rows each. Drawing one may read the body, and may raise any
            InputError.
        num_rows: of all batches together, where that is known before they are drawn.
        is_declared: the schema stood in the body.
        dropped: features of the body that the schema lacks, since no row has a value of them. More may be
            found while batches are drawn.
        as_text: features whose times or decimals become text, which no client has declared.
    """

    schema: Schema
    batches: Iterator[Batch]
    num_rows: int | None = None
    is_declared: bool = False
    dropped: list[str] = field(default_factory=list)
    as_text: tuple[str, ...] = ()


def item_width(feature: Feature) -> int:
    """`Column.width` of a feature's columns."""
    if feature.kind == "ragged":
        return num_elements(feature.inner_shape)
    if feature.kind == "sparse":
        return 1
    item = feature.step if feature.kind == "sequence" else feature
    num_values = item.num_values
    return 1 if num_values is None else num_values


def num_splits(feature: Feature) -> int:
    """How many splits a feature's columns have."""
    if feature.kind == "ragged":
        return feature.num_partitions + 1
    if feature.kind == "sparse":
        return 1
    if feature.kind == "sequence":
        return 1 + (feature.step.num_unknown > 0)
    return int(feature.num_unknown > 0)


class AbsentColumns:
    """The columns of features that no row of a batch has.

    A few bytes can name thousands of features, each of them in another row: features of one layout share a
    column.
    """

    def __init__(self, num_rows: int) -> None:
        self._present = np.zeros(num_rows, np.bool_)
        self._columns: dict[object, Column] = {}

    def column(self, feature: Feature) -> Column:
        """The column of the feature."""
        layout = (feature.kind, feature.dtype.name, feature.shape)
        found = self._columns.get(layout)
        if found is None:
            found = self._columns[layout] = _empty_column(feature, self._present)
        return found


def _empty_column(feature: Feature, present: Mask) -> Column:
    item = feature.step if feature.kind == "sequence" else feature
    has_shapes = feature.kind in ("dense", "sequence") and item.num_unknown > 1
    return Column(
        no_values(feature.dtype),
        tuple(np.zeros(1, np.int64) for _ in range(num_splits(feature))),
        present,
        item_width(feature),
        np.empty((0, len(item.shape)), np.int64) if has_shapes else None,
        np.empty((0, len(feature.shape)), np.int64) if feature.kind == "sparse" else None,
    )


def no_values(dtype: DType) -> NDArray[Any] | Strings:
    """The values of a column of no rows."""
    if dtype.is_string:
        return Strings(np.empty(0, np.uint8), np.zeros(1, np.int64))
    return np.empty(0, dtype.numpy)


def join_batches(batches: Sequence[Batch]) -> Batch:
    """All rows as one batch, copied; `batches` are one or more, of one schema."""
    num_rows = [batch.num_rows for batch in batches]
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return Batch(sum(num_rows), tuple(_join_columns(parts, num_rows) for parts in columns))


def _join_columns(parts: Sequence[Column], num_rows: Sequence[int]) -> Column:
    first = parts[0]
    present = None
    if any(part.present is not None for part in parts):
        masks = [
            np.ones(count, np.bool_) if part.present is None else part.present
            for part, count in zip(parts, num_rows, strict=True)
        ]
        present = np.concatenate(masks)
    return Column(
        join_values([part.values for part in parts]),
        tuple(_join_splits(level) for level in zip(*(part.splits for part in parts), strict=True)),
        present,
        first.width,
        None if first.shapes is None else np.concatenate([part.shapes for part in parts]),
        None if first.coordinates is None else np.concatenate([part.coordinates for part in parts]),
    )


def join_values(parts: Sequence[NDArray[Any] | Strings]) -> NDArray[Any] | Strings:
    """The values of all parts, one behind the other."""
    strings = [part for part in parts if isinstance(part, Strings)]
    return join_strings(strings) if strings else np.concatenate(parts)  # type: ignore[arg-type]  # none are Strings


def join_strings(parts: Sequence[Strings]) -> Strings:
    """All strings, copied; `parts` are one or more."""
    data = np.concatenate([part.data for part in parts])
    return Strings(data, _join_splits([part.offsets for part in parts]))


def _join_splits(parts: Sequence[Ints]) -> Ints:
    joined = np.zeros(sum(len(part) - 1 for part in parts) + 1, np.int64)
    at = 0
    for part in parts:
        after = at + len(part) - 1
        np.add(part[1:], joined[at], out=joined[at + 1 : after + 1])
        at = after
    return joined


def in_batches(records: Records, batch: int, budget: Budget, *, drop_remainder: bool = False) -> Records:
    """The same rows, `batch` of them in each batch; the last has what is left, or is left out.

    Raises, as batches are drawn:
        LimitExceeded: a batch that does not fit into the budget.
    """
    num_rows = records.num_rows
    if num_rows is not None and drop_remainder:
        num_rows -= num_rows % batch
    batches = _cut_batches(records.batches, batch, budget, drop_remainder=drop_remainder)
    return replace(records, batches=batches, num_rows=num_rows)


def _cut_batches(
    batches: Iterator[Batch], size: int, budget: Budget, *, drop_remainder: bool
) -> Iterator[Batch]:
    gathered: list[Batch] = []
    missing = size
    with Lease(budget) as lease:
        for rows in batches:
            first = 0
            while rows.num_rows - first >= missing:
                gathered.append(rows.rows(first, first + missing))
                first += missing
                yield _join_charged(gathered, lease)
                lease.release()
                gathered, missing = [], size
            if first < rows.num_rows:
                rest = rows.rows(first, rows.num_rows)
                lease.charge(rest.nbytes, "A batch")
                gathered.append(rest)
                missing -= rest.num_rows
        if gathered and not drop_remainder:
            yield _join_charged(gathered, lease)


def _join_charged(parts: list[Batch], lease: Lease) -> Batch:
    if len(parts) == 1:
        return parts[0]
    lease.charge(sum(part.nbytes for part in parts), "A batch")
    return join_batches(parts)


def even_bounds(count: int, width: int) -> Ints:
    """The bounds of `count` items of `width` values each."""
    return np.arange(count + 1, dtype=np.int64) * width


def bounds_by_row(bounds: Ints, present: Mask | None) -> Ints:
    """Bounds of the rows that have the feature -> of all rows, where the others are empty."""
    return bounds if present is None else bounds[np.concatenate((_NO_ROWS, np.cumsum(present)))]


def bounds_of_present(bounds: Ints, present: Mask | None) -> Ints:
    """Bounds of all rows -> of those that have the feature; the others are empty."""
    return bounds if present is None else bounds[np.append(present, True)]


def _rebase(split: Ints) -> Ints:
    return split - split[0] if split[0] else split


def part(values: NDArray[Any] | Strings, first: int, last: int) -> NDArray[Any] | Strings:
    """The values `first` to `last`, a view."""
    return values.part(first, last) if isinstance(values, Strings) else values[first:last]
