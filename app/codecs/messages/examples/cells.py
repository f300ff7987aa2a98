"""Where the features of serialized messages lie, found a batch of records at a time by the reading kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ....domain.schema import Message
from ....errors import InputError, MalformedInput, UnprocessableInput
from ... import kernels
from ...columns import Ints
from ...kernels.messages.head import HEAD_BYTES, HEAD_SLOTS
from ...kernels.messages.keys import (
    FITTING,
    KEY,
    KEY_END,
    KEY_FIELDS,
    KIND,
    MODE,
    MODE_CELL,
    MODE_CONTENT,
    MODE_FLOATS,
    MODE_INTS,
    MODE_SPAN,
    NEXT,
    NUM_PARTS,
    OUT,
    PREFIX,
    PREFIX_END,
    WIDTH,
)
from ...kernels.messages.layout import LAYOUTS, layout_words, layouts_size
from ...kernels.messages.read import (
    AMBIGUOUS,
    DONE,
    FEATURES,
    FOREIGN,
    FULL,
    SEQUENCE,
    STOP_FIELDS,
    UNKNOWN_FIELDS,
)
from ...kernels.messages.wire import KIND_ABSENT, KIND_BYTES, KIND_FLOAT, KIND_INT64
from ...records.lease import Lease
from ..framing import FrameBlock

#: Cells (features x rows) that are read at a time.
MAX_CELLS: Final = 1 << 18
#: Bytes that each takes.
CELL_BYTES: Final = 33
#: Bytes of one value that goes to the arena, by mode; in `MODE_CONTENT` the width counts bytes.
VALUE_BYTES: Final = {MODE_CELL: 0, MODE_SPAN: 0, MODE_FLOATS: 4, MODE_INTS: 8, MODE_CONTENT: 1}
#: What the modes become where the arena would be too large.
_MODES_OF_CELLS: Final = {MODE_FLOATS: MODE_CELL, MODE_INTS: MODE_CELL, MODE_CONTENT: MODE_SPAN}
_CACHE_LINE: Final = 64
#: No record holds more values: protobuf stops at 2 GiB.
MAX_WIDTH: Final = 2**31

KIND_NAMES: Final = {
    KIND_ABSENT: "nothing",
    KIND_BYTES: "a BytesList",
    KIND_FLOAT: "a FloatList",
    KIND_INT64: "an Int64List",
}


def cell_rows(num_features: int) -> int:
    """How many rows may be read at a time."""
    return max(1, MAX_CELLS // max(num_features, 1))


def _stride(rows: int) -> int:
    """Cells from one feature to the next.

    Where there are many, an odd number of cache lines, lest the cells of one row fall on the same few.
    """
    if rows < _CACHE_LINE**2:
        return rows
    return (-(-rows // _CACHE_LINE) | 1) * _CACHE_LINE + _CACHE_LINE // 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """A feature to look for.

    Attributes:
        key: in its part of the message.
        part: FEATURES or FEATURE_LISTS.
        kind: of its Features; KIND_ABSENT where that is not known.
        mode, width, prefix: what is read of it (see `kernels/message_read.py`).
    """

    key: str
    part: int = FEATURES
    kind: int = KIND_ABSENT
    mode: int = MODE_CELL
    width: int = 0
    prefix: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class FieldCells:
    """One feature of some records, by row; or one feature list's steps, by step.

    Attributes:
        data: what `begins` and `ends` point into.
        kinds: of the Feature, KIND_ABSENT where there is none; `UNFIT` is added where the values are not what
            the mode takes.
        numbers: `begins`, `ends`, `counts` and `num_bytes` as `read_messages` fills them; undefined where
            there is no Feature.
        first_row: number of the first record in the whole input.
        offset: of `data` in the whole input.
        mode: what was read.
        values: of all rows that fit, one behind the other, in the modes that read them.
        complete: whether all rows fit.
    """

    data: NDArray[np.uint8]
    kinds: NDArray[np.uint8]
    numbers: Ints
    first_row: int
    offset: int
    mode: int
    values: NDArray[np.uint8]
    complete: bool

    @property
    def begins(self) -> Ints:
        """Where each Feature begins, or its one value."""
        return cast("Ints", self.numbers[0])

    @property
    def ends(self) -> Ints:
        """Where it ends."""
        return cast("Ints", self.numbers[1])

    @property
    def counts(self) -> Ints:
        """How many values it has."""
        return cast("Ints", self.numbers[2])

    @property
    def num_bytes(self) -> Ints:
        """The bytes of a BytesList's values."""
        return cast("Ints", self.numbers[3])


@dataclass(frozen=True, slots=True)
class UnknownFeature:
    """A present feature with a key that is not looked for."""

    row: int
    key: str
    kind: int
    part: int


class MessageCells:
    """Finds and reads the features that are wanted; memory is kept from batch to batch.

    Args:
        wanted: no two of one part with one key.
        max_unknown: how many features with other keys are noted in one batch.
        lease: charged for what is kept.
    """

    def __init__(self, wanted: Sequence[Wanted], message: Message, *, max_unknown: int, lease: Lease) -> None:
        places = [(feature.part, feature.key.encode()) for feature in wanted]
        order = sorted(range(len(wanted)), key=places.__getitem__)
        texts = [places[number][1] for number in order] + [wanted[number].prefix for number in order]
        joined = b"".join(texts)
        num_features = [part for part, _ in places].count(FEATURES)
        head_bytes = (len(order) + 1) * HEAD_SLOTS * HEAD_BYTES
        num_layouts, num_words = layouts_size(num_features), LAYOUTS * layout_words(num_features)
        lease.charge(
            (64 + 8 * KEY_FIELDS) * len(order)
            + len(joined)
            + head_bytes
            + 8 * (num_layouts + num_words + UNKNOWN_FIELDS * max_unknown),
            "The index of records",
        )
        self._message: Message = message
        self._num_features = num_features
        #: Number of a feature -> that of its key.
        self._key_of = np.empty(len(order), np.int64)
        self._key_of[order] = np.arange(len(order))
        self._keys_of: list[int] = self._key_of.tolist()
        self._texts = np.frombuffer(joined, np.uint8)
        self._table = _key_table([wanted[number] for number in order], texts, self._num_features)
        self._heads = np.zeros(head_bytes, np.uint8)
        self._layouts = np.zeros(num_layouts, np.int64)
        self._words = np.zeros(num_words, np.uint64)
        self._unknown = np.empty(UNKNOWN_FIELDS * max_unknown, np.int64)
        self._num_unknown = 0
        self._stop = np.zeros(STOP_FIELDS, np.int64)
        #: By key, the mode asked for, and the one that the last call of `read` took.
        self._wanted_modes: list[int] = self._table[: len(order), MODE].tolist()
        self._modes = self._wanted_modes
        #: By key, the bytes of a row's values in the arena.
        self._value_bytes = [
            VALUE_BYTES[mode] * width
            for mode, width in zip(self._modes, self._table[:, WIDTH].tolist(), strict=False)
        ]
        self._row_bytes = sum(self._value_bytes)
        self._fitting = [0] * len(order)
        #: By key, where its values begin in the arena; for how many rows, and the bytes of the arena then.
        self._places: list[int] = []
        self._arena_rows, self._arena_bytes = -1, 0
        self._arena = np.empty(0, np.uint8)
        self._data = np.empty(0, np.uint8)
        self._lease = lease
        self._rows = self._stride = 0
        self._kinds = np.empty(0, np.uint8)
        self._numbers = np.empty(0, np.int64)

    def read(self, block: FrameBlock, first: int, last: int, lease: Lease) -> int:
        """Read the records `first` to `last` of the block.

        Args:
            lease: charged for the values.

        Returns:
            The record at which there was no more room to note unknown features, else `last`.

        Raises:
            MalformedInput: not such a message (`malformed_example`).
            UnprocessableInput: a SequenceExample where Examples are read (`sequence_example`), a Feature with
                two meanings (`ambiguous_example`), or no feature in a message that is not empty
                (`not_an_example`).
        """
        self._rows = last - first
        self._make_room()
        starts, sizes = block.starts[first:last], block.sizes[first:last]
        # An integer takes a byte at least: where there is not as much, no memory is asked for.
        self._make_arena(lease, fits=self._row_bytes * self._rows <= 8 * int(sizes.sum()))
        self._data = np.frombuffer(block.data, np.uint8)
        table = self._table
        table[:, FITTING] = 0
        reason = kernels.load().read_messages(
            self._data, starts, sizes, int(self._message == "sequence_example"), table.reshape(-1),
            self._texts, self._num_features, self._heads, self._layouts, self._words, self._kinds,
            self._numbers, self._stride, self._arena, self._unknown, self._stop,
        )  # fmt: skip
        row, position, filled = self._stop[:3].tolist()
        self._num_unknown = filled // UNKNOWN_FIELDS
        if reason not in (DONE, FULL) and not self._num_unknown:
            raise _fault(reason, self._message, block.first_record + first + row, block.offset + position)
        self._fitting = table[: len(self._modes), FITTING].tolist()
        return last if reason == DONE else first + row

    def _make_room(self) -> None:
        """A cell for each feature and row, with nothing in it."""
        self._stride = _stride(self._rows)
        needed = self._stride * len(self._modes)
        if needed > len(self._kinds):
            self._lease.charge(CELL_BYTES * (needed - len(self._kinds)), "The index of records")
            self._kinds = np.empty(needed, np.uint8)
            self._numbers = np.empty(4 * needed, np.int64)
        self._kinds[:needed] = 0

    def _make_arena(self, lease: Lease, *, fits: bool) -> None:
        """Memory for the values of all rows, where there can be as many; else cells say where they lie."""
        modes = self._wanted_modes
        if not fits:
            modes = [_MODES_OF_CELLS.get(mode, mode) for mode in modes]
        if modes is not self._modes:
            self._modes = modes
            self._table[: len(modes), MODE] = modes
        self._arena = np.empty(0, np.uint8)
        if not fits:
            return
        if self._rows != self._arena_rows:
            # An odd number of cache lines each, lest the columns of one row fall on the same few of them.
            sizes = np.array([0, *self._value_bytes]) * self._rows
            bounds = np.cumsum((-(-sizes // _CACHE_LINE) | 1) * _CACHE_LINE)
            self._table[: len(modes), OUT] = bounds[:-1]
            self._places = bounds[:-1].tolist()
            self._arena_rows, self._arena_bytes = self._rows, int(bounds[-1])
        lease.charge(self._arena_bytes, "Values of a batch")
        self._arena = np.empty(self._arena_bytes, np.uint8)

    def unknown(self, block: FrameBlock, first: int) -> list[UnknownFeature]:
        """The unknown features that the last call of `read` noted, in the order of the records."""
        if not self._num_unknown:
            return []
        noted = self._unknown[: UNKNOWN_FIELDS * self._num_unknown].reshape(-1, UNKNOWN_FIELDS)
        return [
            UnknownFeature(block.first_record + first + row, str(block.data[begin:end], "utf-8"), kind, part)
            for row, begin, end, kind, part in noted.tolist()
        ]

    def whole_values(self, number: int) -> NDArray[np.uint8] | None:
        """The values of a feature that went to the arena, if all rows have them as the mode takes them."""
        key = self._keys_of[number]
        if self._fitting[key] < self._rows or not VALUE_BYTES[self._modes[key]]:
            return None
        return self._values(key)

    def _values(self, key: int) -> NDArray[np.uint8]:
        place = self._places[key]
        return self._arena[place : place + self._fitting[key] * self._value_bytes[key]]

    def cells(self, number: int, block: FrameBlock, first: int) -> FieldCells:
        """What the last call of `read` found of a feature; valid until the next one."""
        key = self._keys_of[number]
        begin = key * self._stride
        part = slice(begin, begin + self._rows)
        mode = self._modes[key]
        values = self._values(key) if VALUE_BYTES[mode] else self._arena[:0]
        return FieldCells(
            self._data, self._kinds[part], self._numbers.reshape(4, -1)[:, part], block.first_record + first,
            block.offset, mode, values, self._fitting[key] == self._rows,
        )  # fmt: skip

    def _by_feature(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Of the last call of `read`, one number of each cell, as `[features, rows]`."""
        used = self._stride * len(self._key_of)
        return numbers[:used].reshape(len(self._key_of), self._stride)[self._key_of, : self._rows]

    def kinds(self) -> NDArray[np.uint8]:
        """What the last call of `read` found, as `[features, rows]`."""
        return self._by_feature(self._kinds)

    def widths(self) -> Ints:
        """How many values each cell has, as `[features, rows]`; of a feature list, each of its steps.

        -1 where steps differ, -2 where there are none.
        """
        _, _, counts, num_bytes = map(self._by_feature, self._numbers.reshape(4, -1))
        is_list = self._key_of >= self._num_features
        return np.where(is_list[:, None], num_bytes, counts)

    def find_occurring(self) -> list[bool]:
        """Whether any record of the last call has the feature, by feature."""
        if self._fitting and min(self._fitting) > 0:
            return [True] * len(self._fitting)
        found: list[bool] = np.logical_or.reduce(self.kinds(), axis=1).tolist()
        return found


def _key_table(wanted: Sequence[Wanted], texts: Sequence[bytes], num_features: int) -> Ints:
    """The table of keys that the kernel takes.

    Args:
        wanted: in the order of their keys.
        texts: the keys and then the prefixes, as they lie in memory.
    """
    num_keys = len(wanted)
    table = np.zeros((num_keys + NUM_PARTS, KEY_FIELDS), np.int64)
    keys, bounds = table[:num_keys], np.cumsum([0, *map(len, texts)])
    for field, column in (
        (MODE, [feature.mode for feature in wanted]),
        (KIND, [feature.kind for feature in wanted]),
        (WIDTH, [feature.width for feature in wanted]),
        (KEY, bounds[:num_keys]),
        (KEY_END, bounds[1 : num_keys + 1]),
        (PREFIX, bounds[num_keys:-1]),
        (PREFIX_END, bounds[num_keys + 1 :]),
        (NEXT, np.arange(1, num_keys + 1)),
    ):
        keys[:, field] = column
    table[num_keys:, NEXT] = 0, num_features
    return table


_OTHER_MESSAGE: Final = (
    "If the records are protobuf messages of another kind, or no messages, parsing them as records with "
    "message=bytes gives the bytes of each."
)


def _fault(reason: int, message: Message, row: int, offset: int) -> InputError:
    name, parser = "tf.train.Example", "tf.io.parse_example"
    if message == "sequence_example":
        name, parser = "tf.train.SequenceExample", "tf.io.parse_sequence_example"
    if reason == SEQUENCE:
        return UnprocessableInput(
            f"Record {row} has feature_lists: it is a SequenceExample, and reading it as an Example would "
            f"lose them. Set message=sequence_example.",
            code="sequence_example",
            row=row,
            offset=offset,
        )
    if reason == AMBIGUOUS:
        return UnprocessableInput(
            f"Record {row} has a Feature with lists of two kinds, at byte {offset}; protobuf and "
            f"{parser} read different values in it. Write one list a Feature.",
            code="ambiguous_example",
            row=row,
            offset=offset,
        )
    if reason == FOREIGN:
        return UnprocessableInput(
            f"Record {row} is no {name}: it has fields, but no feature is among them. {_OTHER_MESSAGE}",
            code="not_an_example",
            row=row,
            offset=offset,
        )
    # Only the first record tells a file of other messages from a damaged one.
    hint = "" if row else f" {_OTHER_MESSAGE}"
    return MalformedInput(
        f"Record {row} is not a valid {name}: malformed at byte {offset}.{hint}",
        code="malformed_example",
        row=row,
        offset=offset,
    )
