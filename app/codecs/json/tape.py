"""JSON as a tape: arrays of kinds and words that numpy cuts columns and tensors out of.

The entries of `kernels/json/tape.py` say what a value is; the children of an array or object lie side by
side in a block, behind an entry that counts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.tensor import num_elements
from .. import kernels
from ..columns import Strings
from ..kernels.json import tape as entries

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

_NUMBER: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
#: Of so few items Python looks at the kinds faster than numpy.
_SOME: Final = 1024

_NONE: Final = np.empty(0, np.uint8)


# Neither is frozen, and nobody changes one: frozen they take three times as long to make, and a small tensor
# has a dozen of them.
@dataclass(slots=True, eq=False)
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


@dataclass(slots=True, eq=False)
class Items:
    """Some values of a tape, in any order."""

    tape: Tape
    kinds: Kinds
    words: Words
    _found: frozenset[int] | None = field(default=None, init=False, repr=False)

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

    def found(self) -> frozenset[int]:
        """The kinds that occur."""
        if self._found is None:
            self._found = _kinds_in(self.kinds)
        return self._found

    def counts(self) -> Ints:
        """Of arrays and objects: how many children or members each has."""
        return self.tape.words[self.words.view(np.int64)].view(np.int64)

    def open(self) -> tuple[Items, Ints]:
        """Of arrays: the children of all, and how many each has."""
        if len(self.words) == 1:
            children = self.children(0)
            return children, np.array([len(children)], np.int64)
        tape = self.tape
        kernel, blocks = kernels.load(), np.ascontiguousarray(self.words)
        counts = np.empty(len(blocks), np.int64)
        num_items = kernel.count_children(tape.words, blocks, counts)
        kinds, words = np.empty(num_items, np.uint8), np.empty(num_items, np.uint64)
        kernel.gather_blocks(tape.kinds, tape.words, blocks, counts, kinds, words)
        return Items(tape, kinds, words), counts

    def children(self, index: int) -> Items:
        """Of one array: its children."""
        tape, start = self.tape, self.words.item(index)
        block = slice(start + 1, start + 1 + tape.words.item(start))
        return Items(tape, tape.kinds[block], tape.words[block])

    def strings(self) -> Strings:
        """Of strings: their bytes, copied, so that the memory of the tape can be used again."""
        numbers, of_tape = np.ascontiguousarray(self.words), self.tape.strings
        if len(numbers) == 1 or (len(numbers) and (np.diff(numbers) == 1).all()):
            found = of_tape.part(int(numbers[0]), int(numbers[-1]) + 1)
            return Strings(found.data.copy(), found.offsets.copy())
        found, _ = gather_strings(of_tape, numbers, _NONE)
        return found

    def python(self, index: int) -> Any:
        """One value as what Python's parser gives for it; for errors, and small values."""
        kind, word = self.kinds.item(index), self.words.item(index)
        if kind == entries.STRING:
            return self.tape.string(word).decode()
        if kind == entries.ARRAY:
            children = self.children(index)
            if children.only(entries.INTEGER):
                return children.words.view(np.int64).tolist()
            values = []
            for child in range(len(children)):
                values.append(children.python(child))  # noqa: PERF401 (one frame a level)
            return values
        if kind == entries.OBJECT:
            members = {}
            for name, member in members_of(self, index).items():
                members[name] = member.python(0)
            return members
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
        tape, start = self.tape, self.words.item(index)
        keys = tape.words[start + 1 : start + 1 + 2 * tape.words.item(start) : 2]
        return [tape.name(key) for key in keys.tolist()]

    def member(self, name: str) -> Items:
        """Of one object: the member of this name, which it has."""
        at = int(self.words[0]) + 2 + 2 * self.member_names(0).index(name)
        return Items(self.tape, self.tape.kinds[at : at + 1], self.tape.words[at : at + 1])


def _kinds_in(kinds: Kinds) -> frozenset[int]:
    if len(kinds) <= _SOME:
        some = kinds.tobytes()
        first = some[:1]
        return frozenset(first) if some == first * len(some) else frozenset(some)
    least, greatest = int(kinds.min()), int(kinds.max())
    return frozenset([least] if least == greatest else np.flatnonzero(np.bincount(kinds)).tolist())


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
    tape, at = objects.tape, objects.words.item(index) + 2
    kinds, words = tape.kinds, tape.words
    members: dict[str, Items] = {}
    for name in objects.member_names(index):
        members[name] = Items(tape, kinds[at : at + 1], words[at : at + 1])
        at += 2
    return members


NO_STRINGS: Final = Strings(_NONE, np.zeros(1, np.int64))
_EMPTY: Final = Tape(
    _NONE, _NONE, np.empty(0, np.uint64), NO_STRINGS, NO_STRINGS, _NONE, np.empty(0, np.uint64), 0
)
