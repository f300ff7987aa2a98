"""Where the parts of serialized SequenceExamples lie: contexts, and the cells of feature lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError, MalformedInput, UnprocessableInput
from .. import kernels
from ..kernels.example_index import AMBIGUOUS, DONE, FULL, UNKNOWN_FIELDS
from ..records.lease import Lease
from .example_index import ExampleIndex
from .framing import FrameBlock

__all__ = ["ListIndex", "contexts_of", "in_sequence_example"]

Ints = NDArray[np.int64]


def contexts_of(block: FrameBlock, first: int, last: int, lease: Lease) -> FrameBlock:
    """The contexts of the records `first` to `last`, as if each were an Example.

    protobuf merges contexts that are repeated, and so does whoever reads an Example. Those with
    feature lists between them are copied together, behind the data of the block.

    Raises:
        MalformedInput: not a SequenceExample (`malformed_example`).
    """
    starts, sizes = block.starts[first:last], block.sizes[first:last]
    lease.charge(16 * len(starts), "The index of records")
    data = np.frombuffer(block.data, np.uint8)
    begins, context_sizes = np.empty((2, len(starts)), np.int64)
    stop = np.zeros(2, np.int64)
    if kernels.load().find_contexts(data, starts, sizes, begins, context_sizes, stop) != DONE:
        row, position = stop.tolist()
        raise _malformed(block.first_record + first + row, block.offset + position)
    view = block.data
    if (context_sizes < 0).any():
        view = _gathered(data, starts, sizes, (begins, context_sizes), lease)
    return FrameBlock(view, begins, context_sizes, block.first_record + first, block.offset)


def _gathered(
    data: NDArray[np.uint8], starts: Ints, sizes: Ints, contexts: tuple[Ints, Ints], lease: Lease
) -> memoryview:
    """The data and, behind it, the contexts that lie scattered; `contexts` are made to point there."""
    begins, context_sizes = contexts
    rows = np.flatnonzero(context_sizes < 0).tolist()
    room = len(data) + int(sizes[rows].sum())
    lease.charge(room, "Contexts of records")
    gathered = np.empty(room, np.uint8)
    gathered[: len(data)] = data
    at = len(data)
    for row in rows:
        begins[row] = at
        begin = int(starts[row])
        at = kernels.load().copy_contexts(data, begin, begin + int(sizes[row]), gathered, at)
        context_sizes[row] = at - begins[row]
    return gathered.data.toreadonly()


def in_sequence_example(error: InputError, block: FrameBlock) -> InputError:
    """The error that reading a context as an Example raised, as one of the records of `block`."""
    row, offset = error.location.row, error.location.offset
    if row is None or offset is None:
        return error
    if offset >= block.offset + len(block.data):  # in a copy
        offset = block.offset + int(block.starts[row - block.first_record])
    if isinstance(error, MalformedInput):
        return _malformed(row, offset)
    error.location = replace(error.location, offset=offset)
    return error


class ListIndex(ExampleIndex):
    """Finds the feature lists called `names`, as `ExampleIndex` finds features.

    Cells are those of whole feature lists: `kinds` are of their steps, and also what
    `kernels/sequence_index.py` names; `counts` are the numbers of steps; `num_bytes` says nothing.
    """

    def index(self, block: FrameBlock, first: int, last: int) -> int:
        """Find the feature lists of the records `first` to `last`, which `contexts_of` has seen.

        Returns:
            The record at which there was no more room to note unknown feature lists, else `last`.

        Raises:
            MalformedInput: not a SequenceExample (`malformed_example`).
            UnprocessableInput: a Feature with two meanings (`ambiguous_example`).
        """
        self._make_room(last - first)
        self._rows = last - first
        used = self._rows * len(self._key_of)
        begins, ends, steps, _ = self._ints
        self._flags[:used] = 0
        steps[:used] = 0
        stop = np.zeros(3, np.int64)
        reason = kernels.load().index_feature_lists(
            np.frombuffer(block.data, np.uint8), block.starts[first:last], block.sizes[first:last],
            self._keys, self._key_offsets, self._follow, self._flags, begins, ends, steps, self._unknown,
            np.empty(4, np.int64), stop,
        )  # fmt: skip
        row, position, filled = (int(number) for number in stop)
        self._num_unknown = filled // UNKNOWN_FIELDS
        if reason not in (DONE, FULL) and not self._num_unknown:
            raise _fault(reason, block.first_record + first + row, block.offset + position)
        return last if reason == DONE else first + row


def _fault(reason: int, row: int, offset: int) -> InputError:
    if reason == AMBIGUOUS:
        return UnprocessableInput(
            f"Record {row} has a Feature with lists of two kinds, at byte {offset}; protobuf and "
            f"tf.io.parse_sequence_example read different values in it. Write one list a Feature.",
            code="ambiguous_example",
            row=row,
            offset=offset,
        )
    return _malformed(row, offset)


def _malformed(row: int, offset: int) -> MalformedInput:
    return MalformedInput(
        f"Record {row} is not a valid tf.train.SequenceExample: malformed at byte {offset}.",
        code="malformed_example",
        row=row,
        offset=offset,
    )
