"""JSON as a tape: arrays of kinds and words that numpy cuts columns and tensors out of.

The entries of `kernels/json_tape.py` say what a value is; the children of an array or object lie side by
side in a block, behind an entry that counts them.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.limits import KIB
from ...domain.tensor import num_elements
from ...runtime.budget import Budget
from .. import kernels
from ..columns import Strings
from ..kernels import json_tape as entries

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Kinds = NDArray[np.uint8]

#: Keys that have the same number on every tape.
FIXED_KEYS: Final = (
    "b64",
    "values",
    "indices",
    "dense_shape",
    "row_splits",
    "dtype",
    "context",
    "feature_lists",
)
KEY_OF: Final = {name: number for number, name in enumerate(FIXED_KEYS)}

_SEED: Final = secrets.randbits(63)
_NUMBER: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
#: Bytes of an entry: kind and word on the tape and on the stack, and twice a word in what is made of it.
_ENTRY_BYTES: Final = 34
_FEW_ENTRIES: Final = 64
#: Bytes of a key at most: offset, stamp, the key that follows, and up to four slots, the table and its copy.
_KEY_BYTES: Final = 100
#: A key as a str, and its places in the tables by name and by number.
_NAME_BYTES: Final = 250
#: Keys beside the expected ones that there is room for, unless a text turns out to have more.
_FEW_KEYS: Final = 64
#: Of so few items Python looks at the kinds faster than numpy.
_FEW: Final = 64
#: A small text has an entry for so many bytes, unless it turns out to have more.
_BYTES_AN_ENTRY: Final = 8
#: So many bytes of a large text say how close its entries are: in long strings there are next to none.
_SAMPLE_BYTES: Final = 64 * KIB
#: Each takes an entry; a bracket has a count and the first of its children behind it.
_SEPARATORS: Final = b",:[[{{"
#: Entries in the rest of a text may be closer than those that were counted.
_MARGIN: Final = 1.1
_PLAIN_KEY: Final = re.compile(r'[^"\\\x00-\x1f]*')

_NO_INTS: Final = np.empty(0, np.int64)
_NONE: Final = np.empty(0, np.uint8)


class Unread(Exception):
    """A text that is not strict JSON within the limits.

    Attributes:
        index: which of the texts.
    """

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index


@dataclass(frozen=True, slots=True, eq=False)
class Tape:
    """Some JSON texts.

    Attributes:
        text: all of them.
        kinds, words: the blocks of arrays and objects.
        strings: of all entries, by number.
        keys: the names of members, by number.
        root_kinds, root_words: the entry of each text.
        num_bytes: what is charged for the tape, and for the columns that are made of it.
    """

    text: NDArray[np.uint8]
    kinds: Kinds
    words: Words
    strings: Strings
    keys: Strings
    root_kinds: Kinds
    root_words: Words
    num_bytes: int
    _names: dict[int, str] = field(default_factory=dict)

    @property
    def roots(self) -> Items:
        """The value of each text."""
        return Items(self, self.root_kinds, self.root_words)

    def name(self, key: int) -> str:
        """The name of a key."""
        found = self._names.get(key)
        if found is None:
            begin, end = self.keys.offsets[key : key + 2].tolist()
            found = self._names[key] = self.keys.data[begin:end].tobytes().decode()
        return found

    def string(self, number: int) -> bytes:
        """A string, or the bytes of `{"b64": ...}`."""
        begin, end = self.strings.offsets[number : number + 2].tolist()
        return self.strings.data[begin:end].tobytes()

    def number(self, position: int) -> bytes:
        """The token of a number."""
        found = _NUMBER.match(self.text.data, position)
        if found is None:
            raise AssertionError("called for what is no number")  # pragma: no cover
        return bytes(found[0])


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Some values of a tape, in any order."""

    tape: Tape
    kinds: Kinds
    words: Words

    def __len__(self) -> int:
        return len(self.kinds)

    @classmethod
    def none(cls) -> Items:
        """No values."""
        return _EMPTY.roots

    def take(self, where: Any) -> Items:
        """Those that an index of numpy selects."""
        return Items(self.tape, self.kinds[where], self.words[where])

    def each(self) -> Iterator[Items]:
        """Every value by itself."""
        for index in range(len(self)):
            yield self.take(slice(index, index + 1))

    def only(self, kind: int) -> bool:
        """Whether all are of this kind."""
        return self.found() <= {kind}

    def has(self, kind: int) -> bool:
        """Whether one is of this kind."""
        return kind in self.found()

    def found(self) -> set[int]:
        """The kinds that occur."""
        if len(self.kinds) <= _FEW:
            return set(self.kinds.tobytes())
        least, greatest = int(self.kinds.min()), int(self.kinds.max())
        return {least} if least == greatest else set(np.flatnonzero(np.bincount(self.kinds)).tolist())

    def counts(self) -> Ints:
        """Of arrays and objects: how many children or members each has."""
        return self.tape.words[self.words.view(np.int64)].view(np.int64)

    def open(self) -> tuple[Items, Ints]:
        """Of arrays: the children of all, and how many each has."""
        tape = self.tape
        starts = np.ascontiguousarray(self.words).view(np.int64)
        counts = tape.words[starts].view(np.int64)
        if len(starts) > 1:
            count, stride = int(counts[0]), int(starts[1] - starts[0])
            if stride > count and (np.diff(starts) == stride).all() and (counts == count).all():
                kinds, words = _rows(tape, int(starts[0]) + 1, len(starts), stride, count)
                return Items(tape, kinds.reshape(-1), words.reshape(-1)), counts
        elif len(starts):
            begin, end = int(starts[0]) + 1, int(starts[0]) + 1 + int(counts[0])
            return Items(tape, tape.kinds[begin:end], tape.words[begin:end]), counts
        kinds, words = np.empty(int(counts.sum()), np.uint8), np.empty(int(counts.sum()), np.uint64)
        kernels.load().gather_blocks(tape.kinds, tape.words, starts + 1, counts, kinds, words)
        return Items(tape, kinds, words), counts

    def strings(self) -> Strings:
        """Of strings: their bytes, copied, so that the memory of the tape can be used again."""
        numbers, of_tape = np.ascontiguousarray(self.words), self.tape.strings
        if len(numbers) and (np.diff(numbers) == 1).all():
            found = of_tape.part(int(numbers[0]), int(numbers[-1]) + 1)
            return Strings(found.data.copy(), found.offsets.copy())
        found, _ = gather_strings(of_tape, numbers, _NONE)
        return found

    def python(self, index: int) -> Any:
        """One value as what Python's parser gives for it; for errors, and small values."""
        kind, word = int(self.kinds[index]), int(self.words[index])
        if kind in (entries.ARRAY, entries.OBJECT):
            begin, count = word + 1, int(self.tape.words[word])
            width = 2 if kind == entries.OBJECT else 1
            block = slice(begin, begin + width * count)
            children = Items(self.tape, self.tape.kinds[block], self.tape.words[block])
            values = []
            for child in range(count):
                values.append(children.python(width * child + width - 1))  # noqa: PERF401 (one frame a level)
            if kind == entries.ARRAY:
                return values
            return dict(zip(self.member_names(index), values, strict=True))
        if kind == entries.STRING:
            return self.tape.string(word).decode()
        if kind == entries.INTEGER:
            return int(self.words[index : index + 1].view(np.int64)[0])
        if kind == entries.LARGE:
            return int(self.tape.number(word))
        if kind in (entries.DECIMAL_NUMBER, entries.NONFINITE):
            return float(self.words[index : index + 1].view(np.float64)[0])
        return {entries.NULL: None, entries.TRUE: True, entries.FALSE: False}.get(kind, word)

    def describe(self, index: int) -> str:
        """The kind of an item, as errors call it."""
        kind = int(self.kinds[index])
        if kind == entries.ARRAY:
            return f"an array of {int(self.tape.words[int(self.words[index])])}"
        return _DESCRIPTIONS[kind]

    def member_names(self, index: int) -> list[str]:
        """Of an object: the names of its members."""
        begin, count = int(self.words[index]) + 1, int(self.tape.words[int(self.words[index])])
        return [self.tape.name(key) for key in self.tape.words[begin : begin + 2 * count : 2].tolist()]

    def member(self, name: str) -> Items:
        """Of one object: the member of this name, which it has."""
        at = int(self.words[0]) + 2 + 2 * self.member_names(0).index(name)
        return Items(self.tape, self.tape.kinds[at : at + 1], self.tape.words[at : at + 1])


_DESCRIPTIONS: Final = {
    entries.NULL: "null",
    entries.FALSE: "a boolean",
    entries.TRUE: "a boolean",
    entries.INTEGER: "an integer",
    entries.UNSIGNED: "an integer",
    entries.NEGATIVE_ZERO: "an integer",
    entries.LARGE: "an integer",
    entries.DECIMAL_NUMBER: "a decimal number",
    entries.NONFINITE: "NaN or an infinity",
    entries.STRING: "a string",
    entries.OBJECT: "an object",
}


def gather_strings(strings: Strings, numbers: Words, in_b64: Kinds) -> tuple[Strings, int]:
    """The strings of these numbers, and -1 or the first that is no strict base64, at which it ends.

    Args:
        in_b64: which are base64 that is to be decoded; empty: none is.
    """
    where = numbers.view(np.int64)
    size = int((strings.offsets[where + 1] - strings.offsets[where]).sum())
    data, offsets = np.empty(size, np.uint8), np.empty(len(numbers) + 1, np.int64)
    fault = kernels.load().gather_strings(strings.data, strings.offsets, numbers, in_b64, offsets, data)
    return Strings(data[: offsets[-1]] if fault < 0 else data[:0], offsets), fault


def _rows(tape: Tape, begin: int, num_rows: int, stride: int, width: int) -> tuple[Kinds, Words]:
    """Views of `width` entries each `stride` entries from `begin` on."""
    shape = (num_rows, width)
    return (
        np.ndarray(shape, np.uint8, tape.kinds.data, begin, (stride, 1)),
        np.ndarray(shape, np.uint64, tape.words.data, 8 * begin, (8 * stride, 8)),
    )


def nest(items: Items, shape: Sequence[int]) -> Items:
    """The items of one value in nested arrays of `shape`, the first axis left open: `shape[0]` arrays."""
    tape = items.tape
    kinds, words = [tape.kinds], [tape.words]
    begin = len(tape.kinds)
    for axis in range(len(shape) - 1, 0, -1):
        dim, count = shape[axis], num_elements(shape[:axis])
        block_kinds = np.full((count, dim + 1), entries.COUNT, np.uint8)
        block_words = np.full((count, dim + 1), dim, np.uint64)
        block_kinds[:, 1:], block_words[:, 1:] = (
            items.kinds.reshape(count, dim),
            items.words.reshape(count, dim),
        )
        kinds.append(block_kinds.reshape(-1))
        words.append(block_words.reshape(-1))
        places = begin + np.arange(count, dtype=np.uint64) * np.uint64(dim + 1)
        items = Items(tape, np.full(count, entries.ARRAY, np.uint8), places)
        begin += count * (dim + 1)
    nested = replace(tape, kinds=np.concatenate(kinds), words=np.concatenate(words))
    return Items(nested, items.kinds, items.words)


def members_of(objects: Items, index: int) -> dict[str, Items]:
    """The members of one object, each as the one item of its own."""
    tape, begin = objects.tape, int(objects.words[index]) + 1
    members: dict[str, Items] = {}
    for name in objects.member_names(index):
        members[name] = Items(tape, tape.kinds[begin + 1 : begin + 2], tape.words[begin + 1 : begin + 2])
        begin += 2
    return members


class Members:
    """The members of objects that are not null, by key.

    Args:
        objects: all of them are objects.
    """

    def __init__(self, objects: Items) -> None:
        self.tape = tape = objects.tape
        self.num_rows = num_rows = len(objects)
        #: In the order in which they first occur, those of nulls among them.
        self.keys: list[int]
        self._table: tuple[Kinds, Words] | None = None
        self._column: dict[int, int] = {}
        self._found: dict[int, Cells] = {}
        starts = np.ascontiguousarray(objects.words).view(np.int64)
        counts = tape.words[starts].view(np.int64)
        if num_rows and self._are_alike(starts, counts):
            return
        total = int(counts.sum())
        self._rows = np.repeat(np.arange(num_rows), counts)
        places = np.repeat(starts + 1 - 2 * (np.cumsum(counts) - counts), counts) + 2 * np.arange(total)
        keys = tape.words[places].view(np.int64)
        present = tape.kinds[places + 1] != entries.NULL
        self.keys = _in_order(keys)
        if not present.all():
            places, keys, self._rows = places[present], keys[present], self._rows[present]
        order = np.argsort(keys.astype(np.uint16) if len(tape.keys) < 1 << 16 else keys, kind="stable")
        keys = keys[order]
        self._rows = self._rows[order]
        self._places = places[order] + 1
        bounds = np.flatnonzero(np.diff(keys, prepend=-1, append=-1)).tolist() if len(keys) else [0]
        self._bounds = {int(keys[first]): (first, last) for first, last in pairwise(bounds)}

    def _are_alike(self, starts: Ints, counts: Ints) -> bool:
        """Whether all have the same keys in the same order, at the same distance."""
        count = int(counts[0])
        stride = int(starts[1] - starts[0]) if len(starts) > 1 else 2 * count + 1
        if stride <= 2 * count or (len(starts) > 1 and not (np.diff(starts) == stride).all()):
            return False
        if not (counts == count).all():
            return False
        kinds, words = _rows(self.tape, int(starts[0]) + 1, len(starts), stride, 2 * count)
        keys = words[:, ::2]
        if not (keys == keys[0]).all():
            return False
        self.keys = keys[0].tolist()
        self._table = kinds[:, 1::2], words[:, 1::2]
        self._column = {key: column for column, key in enumerate(self.keys)}
        return True

    def of(self, key: int) -> Cells:
        """The values under a key."""
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._find(key)
        return found

    def _find(self, key: int) -> Cells:
        if self._table is not None:
            column = self._column.get(key)
            if column is None:
                return self._none()
            kinds, words = self._table[0][:, column], self._table[1][:, column]
            return Cells.of(Items(self.tape, kinds, words))
        first, last = self._bounds.get(key, (0, 0))
        places = self._places[first:last]
        cells = Items(self.tape, self.tape.kinds[places], self.tape.words[places])
        rows = self._rows[first:last]
        return Cells(cells, None if len(rows) == self.num_rows else rows, self.num_rows)

    def _none(self) -> Cells:
        return Cells.absent(self.num_rows)


def _in_order(keys: Ints) -> list[int]:
    found, first = np.unique(keys, return_index=True)
    return [int(key) for key in found[np.argsort(first, kind="stable")]]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The values of one feature in some rows.

    Attributes:
        items: none of them is null.
        rows: the row of each, rising; None where every row has one.
    """

    items: Items
    rows: Ints | None
    num_rows: int

    @classmethod
    def absent(cls, num_rows: int) -> Cells:
        """No value in any row."""
        return cls(Items.none(), _NO_INTS if num_rows else None, num_rows)

    @classmethod
    def of(cls, items: Items) -> Cells:
        """A value for each row, where null is none."""
        if not items.has(entries.NULL):
            return cls(items, None, len(items))
        rows = np.flatnonzero(items.kinds)
        return cls(items.take(rows), rows, len(items))

    def part(self, start: int, stop: int) -> Cells:
        """The cells of these rows."""
        if (start, stop) == (0, self.num_rows):
            return self
        if self.rows is None:
            return Cells(self.items.take(slice(start, stop)), None, stop - start)
        first, last = np.searchsorted(self.rows, (start, stop)).tolist()
        rows = self.rows[first:last] - start
        whole = len(rows) == stop - start
        return Cells(self.items.take(slice(first, last)), None if whole else rows, stop - start)

    def row_numbers(self, first_row: int) -> Ints:
        """The row of each cell, counted from `first_row`."""
        return first_row + (np.arange(self.num_rows) if self.rows is None else self.rows)


_NO_STRINGS: Final = Strings(_NONE, np.zeros(1, np.int64))
_EMPTY: Final = Tape(
    _NONE, _NONE, np.empty(0, np.uint64), _NO_STRINGS, _NO_STRINGS, _NONE, np.empty(0, np.uint64), 0
)


def _count_unshared() -> int:
    """What `sys.getrefcount` says of an object that only one variable refers to; Python's versions differ."""
    array = np.empty(0)
    return sys.getrefcount(array)


_UNSHARED: Final = _count_unshared()


class _Arrays:
    """Arrays that are used again as soon as nobody holds a view of them.

    Touching new pages costs more than what is then written there.
    """

    def __init__(self) -> None:
        self._kept: dict[str, NDArray[Any]] = {}

    def take(self, name: str, size: int, dtype: type[np.generic]) -> NDArray[Any]:
        """An array of `size` elements or up to a quarter more, with anything in it."""
        kept = self._kept.pop(name, None)
        if kept is None or not size <= len(kept) <= size + size // 4 or sys.getrefcount(kept) != _UNSHARED:
            kept = np.empty(size, dtype)
        self._kept[name] = kept
        return kept


class TapeReader:
    """Reads texts, one tape after the other.

    Args:
        names: keys that are likely to occur, in their likely order.
        bare: NaN, Infinity and -Infinity are read.
        enclosed_by: arrays and objects around each text, which count as its own.
    """

    def __init__(self, names: Iterable[str], budget: Budget, *, bare: bool, enclosed_by: int = 0) -> None:
        self._budget = budget
        self._names = tuple(dict.fromkeys((*FIXED_KEYS, *names)))
        self._options = np.array([bare, budget.limits.max_json_depth, enclosed_by, _SEED], np.int64)
        self._density: float | None = None
        self._key_room = _FEW_KEYS
        self._no_entries = True
        self._follow: Ints | None = None
        self._arrays = _Arrays()

    def read(self, text: NDArray[np.uint8], starts: Ints, ends: Ints) -> Tape:
        """The values of `text[start:end]` each.

        The tape is charged to the budget; the caller releases it.

        Raises:
            Unread: one of them is not strict JSON, or nested too deeply.
            LimitExceeded: more than the budget.
        """
        room = max(_FEW_ENTRIES, int(len(text) * self._estimate_density(text))) + len(starts)
        while True:
            num_bytes = self._size(room, len(text))
            self._budget.charge(num_bytes, "The parsed JSON")
            try:
                tape = self._read(text, starts, ends, room, num_bytes)
            except BaseException:
                self._budget.release(num_bytes)
                raise
            if tape is not None:
                self._density = _MARGIN * len(tape.kinds) / max(len(text), 1)
                return tape
            self._budget.release(num_bytes)
            room = min(2 * room, len(text) + _FEW_ENTRIES + len(starts)) if self._no_entries else room

    def _estimate_density(self, text: NDArray[np.uint8]) -> float:
        """Entries for each byte of a text."""
        if len(text) <= _SAMPLE_BYTES:
            return 1 / _BYTES_AN_ENTRY if self._density is None else self._density
        density = _sample_density(text)
        return density if self._density is None else min(density, self._density)

    def _size(self, room: int, text_bytes: int) -> int:
        return _ENTRY_BYTES * room + 2 * text_bytes + _KEY_BYTES * (self._key_room + len(self._names))

    def _read(
        self, text: NDArray[np.uint8], starts: Ints, ends: Ints, room: int, num_bytes: int
    ) -> Tape | None:
        # Tables of many keys are not kept: they are as large as the text of a client wants them to be.
        make_table = _known_keys if self._key_room == _FEW_KEYS else _known_keys.__wrapped__
        known = make_table(self._names, self._key_room)
        key_room = len(known.plain)
        key_chars = np.empty(len(known.chars) + min(len(text), 16 * self._key_room) + 1, np.uint8)
        key_chars[: len(known.chars)] = known.chars
        key_offsets, key_plain, slots = known.offsets.copy(), known.plain.copy(), known.slots.copy()
        follow = known.follow.copy()
        if self._follow is not None:
            follow[: len(self._follow)] = self._follow
        take = self._arrays.take
        kinds, words = take("kinds", room, np.uint8), take("words", room, np.uint64)
        stack_kinds, stack_words = take("stack kinds", room, np.uint8), take("stack words", room, np.uint64)
        chars, offsets = take("chars", len(text), np.uint8), take("offsets", room, np.int64)
        offsets[0] = 0
        state = np.zeros(entries.NUM_STATE, np.int64)
        state[entries.KEYS] = len(self._names)
        read = kernels.load().read_values(
            text, starts, ends, self._options, kinds, words, words.view(np.uint8), stack_kinds, stack_words,
            stack_words.view(np.uint8), chars, offsets, key_chars, key_offsets, key_plain, slots, follow,
            np.zeros(key_room, np.int64), np.empty(max(int(self._options[entries.MAX_DEPTH]), 1), np.int64),
            state,
        )  # fmt: skip
        status = int(state[entries.STATUS])
        if status == entries.INVALID:
            raise Unread(read)
        if status != entries.DONE:
            self._no_entries = status == entries.NO_ROOM
            if not self._no_entries:
                self._key_room = min(4 * self._key_room, len(text) + _FEW_ENTRIES)
            return None
        self._follow = follow
        size, top, num_keys = (int(state[at]) for at in (entries.SIZE, entries.TOP, entries.KEYS))
        names_bytes = _NAME_BYTES * (num_keys - len(self._names))
        self._budget.charge(names_bytes, "The names in the JSON")
        strings = Strings(chars[: state[entries.CHARS]], offsets[: state[entries.STRINGS] + 1])
        keys = Strings(key_chars[: key_offsets[num_keys]], key_offsets[: num_keys + 1])
        tape = Tape(
            text,
            kinds[:size],
            words[:size],
            strings,
            keys,
            stack_kinds[:top].copy(),
            stack_words[:top].copy(),
            num_bytes + names_bytes,
            known.names.copy(),
        )
        if state[entries.UNREAD_NUMBERS]:
            for some in (Items(tape, tape.kinds, tape.words), tape.roots):
                _read_unsure(some)
        return tape


def _sample_density(text: NDArray[np.uint8]) -> float:
    """Entries for each byte at the beginning of a text."""
    sample = text[:_SAMPLE_BYTES]
    return _MARGIN * sum(np.count_nonzero(sample == separator) for separator in _SEPARATORS) / _SAMPLE_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class _KnownKeys:
    """The table of keys of `read_values` before a text is read.

    Attributes:
        names: by number.
    """

    names: dict[int, str]
    chars: NDArray[np.uint8]
    offsets: Ints
    plain: Kinds
    slots: Ints
    follow: Ints


@lru_cache(maxsize=16)
def _known_keys(names: tuple[str, ...], more: int) -> _KnownKeys:
    """The table of these keys, with room for some more."""
    encoded = [name.encode() for name in names]
    room = len(names) + more
    offsets, plain = np.zeros(room + 1, np.int64), np.zeros(room, np.uint8)
    np.cumsum([len(key) for key in encoded], out=offsets[1 : len(names) + 1])
    plain[: len(names)] = [_PLAIN_KEY.fullmatch(name) is not None for name in names]
    chars = np.frombuffer(b"".join(encoded), np.uint8)
    slots = np.full(1 << (2 * room + 2).bit_length(), -1, np.int64)
    kernels.load().add_keys(chars, offsets, len(names), slots, _SEED)
    # Behind no key, and behind each of those that are fixed, the first that is not; then one after the other.
    follow = np.maximum(np.arange(room + 1), len(FIXED_KEYS))
    return _KnownKeys(dict(enumerate(names)), chars, offsets, plain, slots, follow)


def _read_unsure(items: Items) -> None:
    """Read the decimals that the kernel leaves: long ones between two floats, and those beyond all."""
    for index in np.flatnonzero(items.kinds == entries.UNSURE).tolist():
        value = float(items.tape.number(int(items.words[index])))
        items.words[index] = np.float64(value).view(np.uint64)
        items.kinds[index] = entries.DECIMAL_NUMBER


def read_document(text: NDArray[np.uint8], budget: Budget, *, bare: bool, names: Iterable[str] = ()) -> Tape:
    """One JSON text; as `TapeReader.read`."""
    reader = TapeReader(names, budget, bare=bare)
    return reader.read(text, np.zeros(1, np.int64), np.array([len(text)], np.int64))
