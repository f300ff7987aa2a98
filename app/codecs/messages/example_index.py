"""Where the features of serialized Examples lie: the known keys, and the cells of a batch of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError, MalformedInput, UnprocessableInput
from .. import kernels
from ..kernels.example_index import AMBIGUOUS, DONE, FULL, SEQUENCE, UNKNOWN_FIELDS
from ..records.lease import Lease
from .framing import FrameBlock

__all__ = ["CELL_BYTES", "MAX_CELLS", "Cells", "ExampleIndex", "UnknownFeature", "cell_rows"]

#: Cells (features x rows) that are indexed at a time.
MAX_CELLS: Final = 1 << 18
#: Bytes that the index takes for each.
CELL_BYTES: Final = 33


def cell_rows(num_features: int) -> int:
    """How many rows may be indexed at a time."""
    return max(1, MAX_CELLS // max(num_features, 1))


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """One feature of some records, by row.

    Attributes:
        data: what `begins` and `ends` point into.
        kinds: of the Feature, 0 where it is absent.
        begins, ends: of the Feature; undefined where it is absent.
        counts: values in its list.
        num_bytes: the sum of the values' bytes, in a BytesList.
        first_row: number of the first record in the whole input.
        offset: of `data` in the whole input.
        complete: whether no row is known to lack the feature without a look at `kinds`.
    """

    data: NDArray[np.uint8]
    kinds: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    counts: NDArray[np.int64]
    num_bytes: NDArray[np.int64]
    first_row: int
    offset: int
    complete: bool = False


@dataclass(frozen=True, slots=True)
class UnknownFeature:
    """A present feature with a key that the index does not know."""

    row: int
    name: str
    kind: int


class ExampleIndex:
    """Finds the features called `names`; memory is kept from batch to batch.

    Args:
        names: without duplicates.
        max_unknown: how many features of other names are noted in one batch.
        lease: charged for the index's memory.
    """

    def __init__(self, names: Sequence[str], *, max_unknown: int, lease: Lease) -> None:
        keys = sorted((name.encode(), index) for index, name in enumerate(names))
        joined = b"".join(key for key, _ in keys)
        lease.charge(64 * len(keys) + len(joined) + 32 * max_unknown, "The index of records")
        self._keys = np.frombuffer(joined, np.uint8)
        self._key_offsets = np.zeros(len(keys) + 1, np.int64)
        np.cumsum([len(key) for key, _ in keys], out=self._key_offsets[1:])
        #: Feature -> its number among the sorted keys.
        self._key_of = np.empty(len(keys), np.int64)
        self._key_of[[index for _, index in keys]] = np.arange(len(keys))
        self._follow = np.arange(len(keys) + 1, dtype=np.int64)
        self._unknown = np.empty(UNKNOWN_FIELDS * max_unknown, np.int64)
        self._num_unknown = 0
        self._lease = lease
        self._rows = 0
        self._flags = np.empty(0, np.uint8)
        self._ints = np.empty((4, 0), np.int64)

    def index(self, block: FrameBlock, first: int, last: int) -> int:
        """Find the features of the records `first` to `last` of the block.

        Returns:
            The record at which there was no more room to note unknown features, else `last`.

        Raises:
            MalformedInput: not an Example (`malformed_example`).
            UnprocessableInput: a SequenceExample (`sequence_example`), or a Feature with two meanings
                (`ambiguous_example`).
        """
        self._make_room(last - first)
        data = np.frombuffer(block.data, np.uint8)
        stop = np.zeros(3, np.int64)
        self._rows = last - first
        used = self._rows * len(self._key_of)
        self._flags[:used] = 0
        begins, ends, counts, num_bytes = self._ints
        counts[:used] = 0
        num_bytes[:used] = 0
        reason = kernels.load().index_examples(
            data, block.starts[first:last], block.sizes[first:last], self._keys, self._key_offsets,
            self._follow, self._flags, begins, ends, counts, num_bytes, self._unknown,
            np.empty(4, np.int64), stop,
        )  # fmt: skip
        row, position, filled = (int(number) for number in stop)
        self._num_unknown = filled // UNKNOWN_FIELDS
        if reason not in (DONE, FULL) and not self._num_unknown:
            raise _fault(reason, block.first_record + first + row, block.offset + position)
        return last if reason == DONE else first + row

    def _make_room(self, rows: int) -> None:
        needed = rows * len(self._key_of)
        if needed > len(self._flags):
            self._lease.charge(CELL_BYTES * (needed - len(self._flags)), "The index of records")
            self._flags = np.empty(needed, np.uint8)
            self._ints = np.empty((4, needed), np.int64)

    def unknown(self, block: FrameBlock, first: int) -> list[UnknownFeature]:
        """The unknown features that the last call of `index` noted, in the order of the records."""
        noted = self._unknown[: UNKNOWN_FIELDS * self._num_unknown].reshape(-1, UNKNOWN_FIELDS)
        return [
            UnknownFeature(block.first_record + first + row, str(block.data[begin:end], "utf-8"), kind)
            for row, begin, end, kind in noted.tolist()
        ]

    def cells(self, feature: int, block: FrameBlock, first: int) -> Cells:
        """What the last call of `index` found of a feature; valid until the next one."""
        begin = int(self._key_of[feature]) * self._rows
        part = slice(begin, begin + self._rows)
        begins, ends, counts, num_bytes = (numbers[part] for numbers in self._ints)
        return Cells(
            np.frombuffer(block.data, np.uint8),
            self._flags[part],
            begins,
            ends,
            counts,
            num_bytes,
            block.first_record + first,
            block.offset,
        )

    def kinds(self) -> NDArray[np.uint8]:
        """What the last call of `index` found, by feature and row."""
        return self._flags[: self._rows * len(self._key_of)].reshape(len(self._key_of), self._rows)[
            self._key_of
        ]

    def occurring(self) -> list[bool]:
        """Whether any record of the last call has the feature, by feature."""
        flags = self._flags[: self._rows * len(self._key_of)].reshape(len(self._key_of), self._rows)
        found: list[bool] = np.logical_or.reduce(flags, axis=1)[self._key_of].tolist()
        return found

    def last_begins(self) -> NDArray[np.int64] | None:
        """Where each feature begins in the last record of the last call; None where it lacks one."""
        cells = self._key_of * self._rows + self._rows - 1
        return self._ints[0][cells] if self._rows and self._flags[cells].all() else None


def _fault(reason: int, row: int, offset: int) -> InputError:
    if reason == SEQUENCE:
        return UnprocessableInput(
            f"Record {row} has feature_lists: it is a SequenceExample, and reading it as an Example would "
            f"lose them. Set ?message=sequence_example.",
            code="sequence_example",
            row=row,
            offset=offset,
        )
    if reason == AMBIGUOUS:
        return UnprocessableInput(
            f"Record {row} has a Feature with lists of two kinds, at byte {offset}; protobuf and "
            f"tf.io.parse_example read different values in it. Write one list a Feature.",
            code="ambiguous_example",
            row=row,
            offset=offset,
        )
    return MalformedInput(
        f"Record {row} is not a valid tf.train.Example: malformed at byte {offset}.",
        code="malformed_example",
        row=row,
        offset=offset,
    )
