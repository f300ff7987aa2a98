"""Texts to tapes: what `kernels/json_tape.py` needs to read them, used again from one tape to the next."""

from __future__ import annotations

import re
import secrets
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.limits import KIB
from ...runtime.budget import Budget
from .. import kernels
from ..columns import Strings
from ..kernels import json_tape as entries
from .tape import FIXED_KEYS, KEY_OF, Ints, Items, Kinds, Tape

_SEED: Final = secrets.randbits(63)
#: Texts up to this size are read in memory that the thread keeps: some 27 bytes for each byte of it.
_SMALL_TEXT: Final = 16 * KIB
#: Bytes of an entry: kind and word on the tape and on the stack, and twice a word in what is made of it.
_ENTRY_BYTES: Final = 34
_FEW_ENTRIES: Final = 64
#: Bytes of a key at most: offset, stamp, the key that follows, and up to four slots, the table and its copy.
_KEY_BYTES: Final = 100
#: A key as a str, and its places in the tables by name and by number.
_NAME_BYTES: Final = 250
#: Keys beside the expected ones that there is room for, unless a text turns out to have more.
_FEW_KEYS: Final = 64
#: A small text has an entry for so many bytes, unless it turns out to have more.
_BYTES_AN_ENTRY: Final = 8
#: So many bytes of a large text say how close its entries are: in long strings there are next to none.
_SAMPLE_BYTES: Final = 64 * KIB
#: Each takes an entry; a bracket has a count and the first of its children behind it.
_SEPARATORS: Final = b",:[[{{"
#: Entries in the rest of a text may be closer than those that were counted.
_MARGIN: Final = 1.1
_AT_ZERO: Final = np.zeros(1, np.int64)
_PLAIN_KEY: Final = re.compile(r'[^"\\\x00-\x1f]*')


class Unread(Exception):
    """A text that is not strict JSON within the limits.

    Attributes:
        index: which of the texts.
    """

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index


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


class _Space:
    """Memory that the kernel writes entries and strings to.

    Args:
        room: entries.
        text_bytes: of the longest text.
    """

    __slots__ = (
        "chars",
        "kinds",
        "offsets",
        "stack_bytes",
        "stack_kinds",
        "stack_words",
        "word_bytes",
        "words",
    )

    def __init__(self, arrays: _Arrays, room: int, text_bytes: int) -> None:
        take = arrays.take
        self.kinds, self.words = take("kinds", room, np.uint8), take("words", room, np.uint64)
        self.stack_kinds = take("stack kinds", room, np.uint8)
        self.stack_words = take("stack words", room, np.uint64)
        self.chars, self.offsets = take("chars", text_bytes, np.uint8), take("offsets", room, np.int64)
        self.offsets[0] = 0
        self.word_bytes, self.stack_bytes = self.words.view(np.uint8), self.stack_words.view(np.uint8)


class _ThreadSpace(threading.local):
    """Where each thread reads small texts. Nothing refers to it after a read: the tape has copies."""

    def __init__(self) -> None:
        self.space = _Space(_Arrays(), _SMALL_TEXT + _FEW_ENTRIES, _SMALL_TEXT)


_THREAD: Final = _ThreadSpace()


class TapeReader:
    """Reads texts, one tape after the other.

    Args:
        names: keys that are likely to occur, in their likely order.
        bare: NaN, Infinity and -Infinity are read.
        enclosed_by: arrays and objects around each text, which count as its own.
    """

    def __init__(self, names: Iterable[str], budget: Budget, *, bare: bool, enclosed_by: int = 0) -> None:
        self._budget = budget
        self._names = FIXED_KEYS + tuple(name for name in dict.fromkeys(names) if name not in KEY_OF)
        self._max_depth = max(budget.limits.max_json_depth, 1)
        self._options = _options(bare, budget.limits.max_json_depth, enclosed_by)
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
        if len(text) <= _SMALL_TEXT:
            # The tape is charged once its size is known, before anything is copied to it.
            tape = self._read(text, starts, ends, _THREAD.space, None)
            if tape is not None:
                return tape
        room = max(_FEW_ENTRIES, int(len(text) * self._estimate_density(text))) + len(starts)
        while True:
            num_bytes = self._size(room, len(text))
            self._budget.charge(num_bytes, "The parsed JSON")
            try:
                space = _Space(self._arrays, room, len(text))
                tape = self._read(text, starts, ends, space, num_bytes)
            except BaseException:
                self._budget.release(num_bytes)
                raise
            if tape is not None:
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
        self, text: NDArray[np.uint8], starts: Ints, ends: Ints, space: _Space, num_charged: int | None
    ) -> Tape | None:
        """The tape, or None if there is not enough room.

        Args:
            num_charged: what is charged already for a tape that keeps `space`; None: it gets copies.
        """
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
        state = np.zeros(entries.NUM_STATE, np.int64)
        state[entries.KEYS] = len(self._names)
        read = kernels.load().read_values(
            text, starts, ends, self._options, space.kinds, space.words, space.word_bytes, space.stack_kinds,
            space.stack_words, space.stack_bytes, space.chars, space.offsets, key_chars, key_offsets,
            key_plain, slots, follow, np.zeros(key_room, np.int64), np.empty(self._max_depth, np.int64),
            state,
        )  # fmt: skip
        told = state.tolist()
        status = told[entries.STATUS]
        if status == entries.INVALID:
            raise Unread(read)
        if status != entries.DONE:
            self._no_entries = status == entries.NO_ROOM
            if not self._no_entries:
                self._key_room = min(4 * self._key_room, len(text) + _FEW_ENTRIES)
            return None
        self._follow = follow
        size, top, num_keys = told[entries.SIZE], told[entries.TOP], told[entries.KEYS]
        num_strings, num_chars = told[entries.STRINGS], told[entries.CHARS]
        self._density = _MARGIN * size / max(len(text), 1)
        num_bytes = _NAME_BYTES * (num_keys - len(self._names))
        if num_charged is None:
            num_bytes += self._size(size + len(starts), len(text))
        self._budget.charge(num_bytes, "The parsed JSON")
        kinds, words = space.kinds[:size], space.words[:size]
        chars, offsets = space.chars[:num_chars], space.offsets[: num_strings + 1]
        if num_charged is None:
            kinds, words, chars, offsets = kinds.copy(), words.copy(), chars.copy(), offsets.copy()
        keys = known.keys
        if num_keys > len(self._names):
            keys = Strings(key_chars[: key_offsets[num_keys]], key_offsets[: num_keys + 1])
        tape = Tape(
            text,
            kinds,
            words,
            Strings(chars, offsets),
            keys,
            space.stack_kinds[:top].copy(),
            space.stack_words[:top].copy(),
            num_bytes + (num_charged or 0),
            known.names.copy(),
        )
        if told[entries.UNREAD_NUMBERS]:
            for some in (Items(tape, tape.kinds, tape.words), tape.roots):
                _read_unsure(some)
        return tape


@lru_cache(maxsize=16)
def _options(bare: bool, max_depth: int, enclosed_by: int) -> Ints:
    return np.array([bare, max_depth, enclosed_by, _SEED], np.int64)


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
    keys: Strings
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
    keys = Strings(chars, offsets[: len(names) + 1])
    return _KnownKeys(dict(enumerate(names)), chars, offsets, keys, plain, slots, follow)


def _read_unsure(items: Items) -> None:
    """Read the decimals that the kernel leaves: long ones between two floats, and those beyond all."""
    for index in np.flatnonzero(items.kinds == entries.UNSURE).tolist():
        value = float(items.tape.number(int(items.words[index])))
        items.words[index] = np.float64(value).view(np.uint64)
        items.kinds[index] = entries.DECIMAL_NUMBER


def read_document(text: NDArray[np.uint8], budget: Budget, *, bare: bool, names: Iterable[str] = ()) -> Tape:
    """One JSON text; as `TapeReader.read`."""
    reader = TapeReader(names, budget, bare=bare)
    return reader.read(text, _AT_ZERO, np.array([len(text)], np.int64))
