"""Texts to tapes: what `kernels/json/tape.py` needs to read them, used again from one tape to the next."""

from __future__ import annotations

import re
import secrets
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.limits import KIB, MIB
from ...runtime.budget import Budget
from .. import kernels
from ..columns import Strings
from ..kernels.json import tape as entries
from .tape import FIXED_KEYS, KEY_OF, NO_STRINGS, Ints, Items, Kinds, Tape

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
#: Characters that there is room for, for each of them.
_KEY_CHARS: Final = 16
#: A thread keeps a table of keys up to this size; the keys are a client's.
_KEPT_TABLE: Final = 64 * KIB
#: A small text has an entry for so many bytes, unless it turns out to have more.
_BYTES_AN_ENTRY: Final = 8
#: So many bytes of a large text say how close its entries are: in long strings there are next to none.
_SAMPLE_BYTES: Final = 64 * KIB
#: Each takes an entry; a bracket has a count and the first of its children behind it.
_SEPARATORS: Final = b",:[[{{"
#: Entries in the rest of a text may be closer than those that were counted.
_MARGIN: Final = 1.1
_AT_ZERO: Final = np.zeros(1, np.int64)
#: Of a text that arrives, at least so much is read at a time; and so much of it may be a string or a number.
_BLOCK_BYTES: Final = 256 * KIB
_LONGEST: Final = 2 * MIB
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
        "room",
        "stack_bytes",
        "stack_kinds",
        "stack_words",
        "text_bytes",
        "word_bytes",
        "words",
    )

    def __init__(self, room: int, text_bytes: int) -> None:
        self.room, self.text_bytes = room, text_bytes
        self.kinds, self.words = np.empty(room, np.uint8), np.empty(room, np.uint64)
        self.stack_kinds, self.stack_words = np.empty(room, np.uint8), np.empty(room, np.uint64)
        self.chars, self.offsets = np.empty(text_bytes, np.uint8), np.empty(room, np.int64)
        self.offsets[0] = 0
        self.word_bytes, self.stack_bytes = self.words.view(np.uint8), self.stack_words.view(np.uint8)

    def fits(self, room: int, text_bytes: int) -> bool:
        """Whether it is as large as that, but not more than twice, and nobody holds a view of it."""
        return (
            room <= self.room <= 2 * room
            and text_bytes <= self.text_bytes <= 2 * text_bytes
            and sys.getrefcount(self.kinds) == _UNSHARED
            and sys.getrefcount(self.words) == _UNSHARED + 1  # `word_bytes` is a view
            and sys.getrefcount(self.chars) == _UNSHARED
            and sys.getrefcount(self.offsets) == _UNSHARED
        )


@dataclass(frozen=True, slots=True, eq=False)
class _KnownKeys:
    """The keys that a reader expects, numbered.

    Attributes:
        names: by number.
        plain: by number, whether JSON spells the key as it is.
        slots: as `find_key` takes them.
        follow: by number plus one, which key to expect next.
    """

    names: dict[int, str]
    keys: Strings
    plain: Kinds
    slots: Ints
    follow: Ints


class _KeyTable:
    """The keys of a tape: those that are known, with room for more, and what is noted while it is read.

    A tape without other keys leaves all of it as it was, but for `follow`, which is a guess.
    """

    __slots__ = ("chars", "follow", "is_small", "known", "offsets", "plain", "slots", "stamps", "state")

    def __init__(self, known: _KnownKeys, room: int, follow: Ints | None) -> None:
        num_keys, num_chars = len(known.keys), len(known.keys.data)
        self.known = known
        self.chars = np.empty(num_chars + _KEY_CHARS * room, np.uint8)
        self.chars[:num_chars] = known.keys.data
        self.offsets = np.empty(num_keys + room + 1, np.int64)
        self.offsets[: num_keys + 1] = known.keys.offsets
        self.plain, self.slots, self.follow = known.plain.copy(), known.slots.copy(), known.follow.copy()
        if follow is not None:
            self.follow[: len(follow)] = follow
        self.stamps = np.empty(num_keys + room, np.int64)
        arrays = (self.chars, self.offsets, self.plain, self.slots, self.follow, self.stamps)
        #: Whether it may be kept beyond the request.
        self.is_small = sum(array.nbytes for array in arrays) <= _KEPT_TABLE
        self.state = np.empty(entries.NUM_STATE, np.int64)

    def begin(self) -> None:
        """Get ready for the next tape."""
        self.stamps.fill(0)
        self.state.fill(0)
        self.state[entries.KEYS] = len(self.known.names)


class _OfThread(threading.local):
    """What each thread keeps. Nothing refers to it after a read.

    Attributes:
        space: where small texts are read; the tape has copies.
        table: the last table of keys that no tape has taken.
    """

    def __init__(self) -> None:
        self.space = _Space(_SMALL_TEXT + _FEW_ENTRIES, _SMALL_TEXT)
        self.table: _KeyTable | None = None


_THREAD: Final = _OfThread()


class TapeReader:
    """Reads texts, one tape after the other.

    Args:
        names: keys that are likely to occur, in their likely order.
        bare: NaN, Infinity and -Infinity are read.
        enclosed_by: arrays and objects around each text, which count as its own.
    """

    __slots__ = (
        "_bases",
        "_budget",
        "_density",
        "_follow",
        "_key_room",
        "_known",
        "_names",
        "_no_entries",
        "_options",
        "_read_bytes",
        "_space",
    )

    def __init__(self, names: Iterable[str], budget: Budget, *, bare: bool, enclosed_by: int = 0) -> None:
        self._budget = budget
        self._names = tuple(names)
        self._known = _number_keys(self._names, _FEW_KEYS)
        self._bases = np.empty(max(budget.limits.max_json_depth, 1), np.int64)
        self._options = _options(bare, budget.limits.max_json_depth, enclosed_by)
        self._density = 1 / _BYTES_AN_ENTRY
        self._read_bytes = 0
        self._key_room = _FEW_KEYS
        self._no_entries = True
        self._follow: Ints | None = None
        self._space: _Space | None = None

    def read(self, text: NDArray[np.uint8], starts: Ints, ends: Ints) -> Tape:
        """The values of `text[start:end]` each.

        The tape is charged to the budget; the caller releases it.

        Raises:
            Unread: one of them is not strict JSON, or nested too deeply.
            LimitExceeded: more than the budget.
        """
        if len(text) <= _SMALL_TEXT and self._key_room <= _SMALL_TEXT + _FEW_ENTRIES:
            # The tape is charged once its size is known, before anything is copied to it.
            tape = self._read(text, starts, ends, _THREAD.space, None)
            if tape is not None:
                return tape
        room = max(_FEW_ENTRIES, int(len(text) * self._estimate_density(text))) + len(starts)
        while True:
            room, text_bytes = self._fit_space(room, len(text))
            num_bytes = self._size(room, text_bytes)
            self._budget.charge(num_bytes, "The parsed JSON")
            try:
                space = self._space = self._space or _Space(room, text_bytes)
                tape = self._read(text, starts, ends, space, num_bytes)
            except BaseException:
                self._budget.release(num_bytes)
                raise
            if tape is not None:
                return tape
            self._budget.release(num_bytes)
            room = min(2 * room, len(text) + _FEW_ENTRIES + len(starts)) if self._no_entries else room

    def read_ahead(self, texts: Iterable[memoryview], num_bytes: int) -> Tape | None:
        """The value of one text, read while it arrives; as `read`.

        Args:
            texts: as much of it as has arrived, from the beginning on, each time that there is more.
            num_bytes: of all of it.

        Returns:
            None where the text has to be read at once: it is no strict JSON, has a string or a number that is
            very long, or many keys, seems to take more than the budget has, or does not arrive.
        """
        space: _Space | None = None
        num_charged = num_read = 0
        rest = iter(texts)
        try:
            for arrived in rest:
                is_last = len(arrived) >= num_bytes
                if len(arrived) - num_read < _BLOCK_BYTES and not is_last:
                    continue
                num_read = len(arrived)
                text = np.frombuffer(arrived, np.uint8)
                if space is None:
                    room = max(_FEW_ENTRIES, int(num_bytes * self._estimate_density(text))) + 1
                    needed = self._size(room, num_bytes)
                    if needed > self._budget.remaining:
                        break  # Whether it is too large shows where all of it is there: this is an estimate.
                    self._budget.charge(needed, "The parsed JSON")
                    num_charged = needed
                    space, table = _Space(room, num_bytes), self._take_table()
                position = int(table.state[entries.POSITION])
                if num_read > num_bytes or num_read - position > _LONGEST:
                    break
                table.state[entries.MORE] = not is_last
                self._run(text, np.array([position]), np.array([num_read]), space, table)
                status = table.state[entries.STATUS]
                # At its end a body may still turn out to be broken, or longer.
                if is_last and status == entries.DONE and next(rest, None) is None:
                    tape = self._take_tape(text, num_bytes, space, table, num_charged)
                    num_charged = 0
                    return tape
                if is_last or status != entries.INVALID:
                    break
        finally:
            self._budget.release(num_charged)
        return None

    def _estimate_density(self, text: NDArray[np.uint8]) -> float:
        """Entries for each byte of a text."""
        if len(text) <= max(_SAMPLE_BYTES, 2 * self._read_bytes):
            return self._density
        density = _sample_density(text)
        return min(density, self._density) if self._read_bytes else density

    def _fit_space(self, room: int, text_bytes: int) -> tuple[int, int]:
        """How large the space has to be: as the last one, if that fits so much; else that one goes."""
        space = self._space
        if space is None:
            return room, text_bytes
        if space.fits(room, text_bytes):
            return space.room, space.text_bytes
        self._space = None
        # The next texts may be a little larger than this one.
        return room + room // 16, text_bytes + text_bytes // 16

    def _size(self, room: int, text_bytes: int) -> int:
        return _ENTRY_BYTES * room + 2 * text_bytes + _KEY_BYTES * (self._key_room + len(self._known.names))

    def _read(
        self, text: NDArray[np.uint8], starts: Ints, ends: Ints, space: _Space, num_charged: int | None
    ) -> Tape | None:
        """The tape, or None if there is not enough room.

        Args:
            num_charged: what is charged already for a tape that keeps `space`; None: it gets copies.
        """
        table = self._take_table()
        read = self._run(text, starts, ends, space, table)
        status = table.state[entries.STATUS]
        if status == entries.INVALID:
            raise Unread(read)
        if status != entries.DONE:
            self._no_entries = bool(status == entries.NO_ROOM)
            if not self._no_entries:
                self._key_room = min(4 * self._key_room, len(text) + _FEW_ENTRIES)
            return None
        return self._take_tape(text, len(text), space, table, num_charged)

    def _run(self, text: NDArray[np.uint8], starts: Ints, ends: Ints, space: _Space, table: _KeyTable) -> int:
        """How many of the texts were read; the state of the table says why, where it is not all."""
        return kernels.load().read_values(
            text, starts, ends, self._options, space.kinds, space.words, space.word_bytes, space.stack_kinds,
            space.stack_words, space.stack_bytes, space.chars, space.offsets, table.chars, table.offsets,
            table.plain, table.slots, table.follow, table.stamps, self._bases, table.state,
        )  # fmt: skip

    def _take_tape(
        self,
        text: NDArray[np.uint8],
        text_bytes: int,
        space: _Space,
        table: _KeyTable,
        num_charged: int | None,
    ) -> Tape:
        """The tape of texts that were read to their ends; as `_read`."""
        known, told = table.known, table.state.tolist()
        size, top, num_keys = told[entries.SIZE], told[entries.TOP], told[entries.KEYS]
        num_strings, num_chars = told[entries.STRINGS], told[entries.CHARS]
        self._density, self._read_bytes = _MARGIN * size / max(text_bytes, 1), text_bytes
        keys, names = known.keys, known.names
        num_bytes = _NAME_BYTES * (num_keys - len(names))
        if num_charged is None:
            num_bytes += self._size(size + top, text_bytes)
        self._budget.charge(num_bytes, "The parsed JSON")
        if num_keys > len(names):
            keys, names = (
                Strings(table.chars[: table.offsets[num_keys]], table.offsets[: num_keys + 1]),
                names.copy(),
            )
            self._follow = table.follow
        elif table.is_small and known is self._known:
            _THREAD.table = table
        kinds, words = space.kinds[:size], space.words[:size]
        strings = NO_STRINGS
        if num_strings:
            strings = Strings(space.chars[:num_chars], space.offsets[: num_strings + 1])
        if num_charged is None:
            kinds, words = kinds.copy(), words.copy()
            if num_strings:
                strings = Strings(strings.data.copy(), strings.offsets.copy())
        tape = Tape(
            text,
            kinds,
            words,
            strings,
            keys,
            space.stack_kinds[:top].copy(),
            space.stack_words[:top].copy(),
            num_bytes + (num_charged or 0),
            names,
        )
        if told[entries.UNREAD_NUMBERS]:
            for some in (Items(tape, tape.kinds, tape.words), tape.roots):
                _read_unsure(some)
        return tape

    def _take_table(self) -> _KeyTable:
        """A table of keys, ready for a tape; the thread's own until that is known to take no keys from it."""
        known = self._known
        if self._key_room != _FEW_KEYS:
            # Neither kept nor made before the charge: it is as large as the text of a client wants it to be.
            known = _number_keys.__wrapped__(self._names, self._key_room)
        table, _THREAD.table = _THREAD.table, None
        if table is None or table.known is not known:
            table = _KeyTable(known, self._key_room, self._follow)
        table.begin()
        return table


@lru_cache(maxsize=16)
def _options(bare: bool, max_depth: int, enclosed_by: int) -> Ints:
    return np.array([bare, max_depth, enclosed_by, _SEED], np.int64)


def _sample_density(text: NDArray[np.uint8]) -> float:
    """Entries for each byte at the beginning of a text."""
    sample = text[:_SAMPLE_BYTES]
    return _MARGIN * sum(np.count_nonzero(sample == separator) for separator in _SEPARATORS) / _SAMPLE_BYTES


@lru_cache(maxsize=16)
def _number_keys(names: tuple[str, ...], more: int) -> _KnownKeys:
    """The fixed keys and these, with slots for some more."""
    known = FIXED_KEYS + tuple(name for name in dict.fromkeys(names) if name not in KEY_OF)
    keys = Strings.pack(name.encode() for name in known)
    room = len(known) + more
    plain = np.zeros(room, np.uint8)
    plain[: len(known)] = [_PLAIN_KEY.fullmatch(name) is not None for name in known]
    slots = np.full(1 << (2 * room + 2).bit_length(), -1, np.int64)
    kernels.load().add_keys(keys.data, keys.offsets, len(known), slots, _SEED)
    # Behind no key, and behind each of those that are fixed, the first that is not; then one after the other.
    follow = np.maximum(np.arange(room + 1), len(FIXED_KEYS))
    return _KnownKeys(dict(enumerate(known)), keys, plain, slots, follow)


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
