"""Rows that are laid out as an earlier one: what is no value is the same, byte for byte.

In most files rows differ in their values alone. Of such a row the tags, lengths and names are kept, as words
with masks. Rows that have the same words are not walked: their values are copied, a feature at a time.
"""

from __future__ import annotations

import numpy as np

from ..addresses import copy_from, raw_address, raw_int_from, raw_word_from
from ..memory import Bytes, Ints, MutableBytes, MutableFlags, MutableInts, MutableWords, Words
from ..varint import read_length, read_tag
from .head import copy_content, count_values, only_value, read_body, read_key, read_run
from .keys import (
    FITTING,
    KEY_FIELDS,
    KIND,
    MODE,
    MODE_CELL,
    MODE_CONTENT,
    MODE_FLOATS,
    MODE_INTS,
    NEXT,
    NUM_PARTS,
    OUT,
    PREFIX,
    PREFIX_END,
    WIDTH,
    find_key,
    key_field,
)
from .wire import FIELD_1, KIND_ABSENT, KIND_BYTES

#: Layouts that are kept, by the size of the row.
LAYOUTS = 4
#: Rows that are read together.
ALIKE_ROWS = 64

#: Numbers of a layout, in front of those of its entries:
_FIELDS = 6
_SIZE = 0  # of the row
_NUM_WORDS = 1  # 0 where there is no layout
_NUM_ENTRIES = 2
_GROUP = 3  # the same for layouts of the same features in the same order
_MISSES = 4  # rows in its place since the last one that had it
_PATIENCE = 5  # as many misses before another layout takes its place
#: Of an entry: its key, and where Feature, values and entry begin or end, counted from the row's begin.
_ENTRY_FIELDS = 4
_VALUE = 1
_BODY = 2
_END = 3
#: Words of a layout at most, for each feature and besides.
_WORDS = 4
_MORE_WORDS = 8
#: Numbers of a word: where it is, counted from the row's begin; the word; and its bits that count.
_WORD_FIELDS = 3
_LEAST_PATIENCE = 16
_MOST_PATIENCE = 1024


def layout_words(num_features: int) -> int:
    """How many numbers the words of each layout take."""
    return _WORD_FIELDS * (_WORDS * num_features + _MORE_WORDS)


def layout_size(num_features: int) -> int:
    """How many numbers each layout takes besides."""
    return _FIELDS + _ENTRY_FIELDS * num_features


def layouts_size(num_features: int) -> int:
    """How many numbers all layouts take, with those of the rows that are read together, and of each key."""
    return LAYOUTS * layout_size(num_features) + ALIKE_ROWS + num_features + 1


def _number(numbers: Ints, at: int) -> int:
    """A number of an array whose size was checked."""
    return raw_int_from(raw_address(numbers) + 8 * at)


def match_rows(
    data: Bytes, starts: Ints, sizes: Ints, first: int, num_features: int, layouts: MutableInts, words: Words
) -> int:
    """How many rows from `first` on have a layout that is known, with the same features in the same order.

    Their layouts are noted behind all layouts.

    Raises:
        IndexError: the arrays are smaller than `layouts_size` and `layout_words` say.
    """
    step = layout_size(num_features)
    word_step = layout_words(num_features)
    if layouts.size < layouts_size(num_features) or words.size < LAYOUTS * word_step:
        raise IndexError("layouts out of bounds")
    group = 0
    count = 0
    for row in range(first, min(first + ALIKE_ROWS, min(starts.size, sizes.size))):
        begin = _number(starts, row)
        size = _number(sizes, row)
        if begin < 0 or size < 0 or begin + size + 8 > data.size:
            break
        number = size % LAYOUTS
        layout = number * step
        num_words = _number(layouts, layout + _NUM_WORDS)
        if _number(layouts, layout + _SIZE) != size or num_words == 0:
            break
        if count > 0 and _number(layouts, layout + _GROUP) != group:
            break
        if not _has_words(data, begin, words, number * word_step, num_words):
            break
        group = _number(layouts, layout + _GROUP)
        layouts[layout + _MISSES] = 0
        layouts[layout + _PATIENCE] = _LEAST_PATIENCE
        layouts[LAYOUTS * step + count] = layout
        count += 1
    return count


def _has_words(data: Bytes, begin: int, words: Words, at: int, num_words: int) -> bool:
    """Whether the row that begins there has these words."""
    address = raw_address(words) + 8 * at
    row = raw_address(data) + begin
    difference = np.uint64(0)
    for _ in range(num_words):
        word = raw_word_from(row + raw_int_from(address))
        difference |= (word ^ raw_word_from(address + 8)) & raw_word_from(address + 16)
        address += 8 * _WORD_FIELDS
    return bool(difference == np.uint64(0))


def read_alike(
    data: Bytes,
    starts: Ints,
    first: int,
    count: int,
    num_features: int,
    table: MutableInts,
    texts: Bytes,
    layouts: MutableInts,
    kinds: MutableFlags,
    numbers: MutableInts,
    stride: int,
    arena: MutableBytes,
) -> int:
    """Read the rows that `match_rows` has found, as `read_messages` does.

    Returns:
        How many were read: up to the first one whose values are not what the features' modes take.
    """
    noted = LAYOUTS * layout_size(num_features)
    entries = layouts[noted] + _FIELDS
    num_entries = layouts[layouts[noted] + _NUM_ENTRIES]
    num_cells = kinds.size
    left = count
    for entry in range(num_entries):
        key = layouts[entries + _ENTRY_FIELDS * entry]
        mode, kind = key_field(table, key, MODE), key_field(table, key, KIND)
        width, out = key_field(table, key, WIDTH), key_field(table, key, OUT)
        prefix, prefix_end = key_field(table, key, PREFIX), key_field(table, key, PREFIX_END)
        place = key_field(table, key, FITTING)
        cell = key * stride + first
        index = 0
        while index < left:
            at = _number(layouts, noted + index) + _FIELDS + _ENTRY_FIELDS * entry
            begin = _number(starts, first + index)
            body = begin + _number(layouts, at + _BODY)
            end = begin + _number(layouts, at + _END)
            if mode == MODE_FLOATS:
                if end - body != 4 * width:
                    break
                to = out + 4 * width * (place + index)
                copy_from(arena, to, raw_address(data), data.size, body, 4 * width)
            elif mode == MODE_INTS:
                if not read_run(data, body, end, width, arena, out + 8 * width * (place + index)):
                    break
            elif mode == MODE_CELL:
                number, value_bytes = count_values(data, body, end, kind)
                if number < 0:
                    break
                numbers[cell + index] = begin + _number(layouts, at + _VALUE)
                numbers[num_cells + cell + index] = end
                numbers[2 * num_cells + cell + index] = number
                numbers[3 * num_cells + cell + index] = value_bytes
            else:
                to = out + width * (place + index)
                if mode == MODE_CONTENT and not copy_content(
                    data, body, end, texts, prefix, prefix_end, width, arena, to
                ):
                    break
                numbers[cell + index] = body
                numbers[num_cells + cell + index] = end
                numbers[2 * num_cells + cell + index] = 1
            kinds[cell + index] = np.uint8(kind)
            index += 1
        left = index
    for entry in range(num_entries):
        key = layouts[entries + _ENTRY_FIELDS * entry]
        table[KEY_FIELDS * key + FITTING] += left
        for index in range(left, count):
            kinds[key * stride + first + index] = np.uint8(KIND_ABSENT)
    return left


def note_layout(
    data: Bytes,
    begin: int,
    end: int,
    num_features: int,
    table: Ints,
    texts: Bytes,
    layouts: MutableInts,
    words: MutableWords,
) -> None:
    """Keep the layout of a well-formed row that was walked, in place of one that rows no longer have."""
    number = (end - begin) % LAYOUTS
    layout = number * layout_size(num_features)
    layouts[layout + _MISSES] += 1
    if layouts[layout + _MISSES] <= layouts[layout + _PATIENCE]:
        return
    patience = 2 * layouts[layout + _PATIENCE]
    layouts[layout + _PATIENCE] = min(max(patience, _LEAST_PATIENCE), _MOST_PATIENCE)
    layouts[layout + _MISSES] = 0
    layouts[layout + _SIZE] = end - begin
    layouts[layout + _NUM_WORDS] = 0
    num_entries, num_words = _note_entries(
        data, begin, end, num_features, table, texts, layouts, layout, words, number
    )
    if num_entries > 0:
        layouts[layout + _NUM_ENTRIES] = num_entries
        layouts[layout + _NUM_WORDS] = num_words
        layouts[layout + _GROUP] = _find_group(num_features, layouts, layout)


def _note_entries(
    data: Bytes,
    begin: int,
    end: int,
    num_features: int,
    table: Ints,
    texts: Bytes,
    layouts: MutableInts,
    layout: int,
    words: MutableWords,
    number: int,
) -> tuple[int, int]:
    """How many entries the row has, and how many words; 0 where it is not as TensorFlow writes it."""
    seen = LAYOUTS * layout_size(num_features) + ALIKE_ROWS
    layouts[layouts.size - 1] += 1
    serial = layouts[layouts.size - 1]
    tag, position = read_tag(data, begin, end)
    if position < 0 or tag != FIELD_1:
        return 0, 0
    size, position = read_length(data, position, end)
    if position < 0 or position + size != end:
        return 0, 0
    key = table.size // KEY_FIELDS - NUM_PARTS
    num_entries = 0
    num_words = 0
    constant = begin
    while position < end:
        guess = key_field(table, key, NEXT)
        key_begin, key_end, entry_end = read_key(data, position, end)
        if key_begin < 0:
            return 0, 0
        key = find_key(data, key_begin, key_end, guess, table, texts, 0, num_features)
        if key < 0 or layouts[seen + key] == serial or key_field(table, key, KIND) == KIND_ABSENT:
            return 0, 0
        layouts[seen + key] = serial
        kind = key_field(table, key, KIND)
        value, body = read_body(data, key_end, entry_end, kind)
        if value >= 0 and kind == KIND_BYTES and key_field(table, key, MODE) != MODE_CELL:
            body = only_value(data, body, entry_end)
        if value < 0 or body < 0:
            return 0, 0
        at = layout + _FIELDS + _ENTRY_FIELDS * num_entries
        layouts[at] = key
        layouts[at + _VALUE] = value - begin
        layouts[at + _BODY] = body - begin
        layouts[at + _END] = entry_end - begin
        num_entries += 1
        num_words = _note_words(data, begin, constant, body, num_features, words, number, num_words)
        if num_words < 0:
            return 0, 0
        constant = entry_end
        position = entry_end
    return num_entries, num_words


def _note_words(
    data: Bytes,
    row: int,
    begin: int,
    end: int,
    num_features: int,
    words: MutableWords,
    number: int,
    num_words: int,
) -> int:
    """Note the constant bytes `data[begin:end]`; the number of words then, or -1 where there is no room."""
    at = number * layout_words(num_features) + _WORD_FIELDS * num_words
    for position in range(begin, end, 8):
        if num_words == _WORDS * num_features + _MORE_WORDS:
            return -1
        word = np.uint64(0)
        mask = np.uint64(0)
        for index in range(min(8, end - position)):
            word |= np.uint64(data[position + index]) << np.uint64(8 * index)
            mask |= np.uint64(0xFF) << np.uint64(8 * index)
        words[at] = np.uint64(position - row)
        words[at + 1] = word
        words[at + 2] = mask
        at += _WORD_FIELDS
        num_words += 1
    return num_words


def _find_group(num_features: int, layouts: Ints, layout: int) -> int:
    """The group of the layouts with the features of this one, or a new one."""
    num_entries = _number(layouts, layout + _NUM_ENTRIES)
    for other in range(0, LAYOUTS * layout_size(num_features), layout_size(num_features)):
        if other == layout or _number(layouts, other + _NUM_WORDS) == 0:
            continue
        if _number(layouts, other + _NUM_ENTRIES) != num_entries:
            continue
        same = 0
        for at in range(_FIELDS, _FIELDS + _ENTRY_FIELDS * num_entries, _ENTRY_FIELDS):
            if _number(layouts, other + at) != _number(layouts, layout + at):
                break
            same += 1
        if same == num_entries:
            return _number(layouts, other + _GROUP)
    return _number(layouts, layouts.size - 1)
