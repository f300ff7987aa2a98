"""JSON texts to a tape: an entry for each value, with the children of an array or object side by side.

What is read is strict JSON (RFC 8259, and RFC 7493: no key twice in an object, no half of a surrogate pair).
The kernel does not say what is wrong with a text; `json/text.py` does.
"""

from __future__ import annotations

import numpy as np

from ..memory import (
    Bytes,
    Ints,
    MutableBytes,
    MutableInts,
    MutableWords,
    Words,
    copy_bytes,
    load_word,
    multiply_low,
    same_bytes,
)
from .number import (
    DECIMAL,
    INFINITY,
    NEGATIVE,
    UNREAD,
    byte_at,
    float_bits,
    integer_bits,
    integer_magnitude,
    scan_number,
    skip_blanks,
)
from .string import read_string

#: What an entry is, and what its word holds.
NULL = 0
FALSE = 1
TRUE = 2
INTEGER = 3  # an int64
UNSIGNED = 4  # a uint64 beyond int64
NEGATIVE_ZERO = 5  # the token -0
DECIMAL_NUMBER = 6  # the bits of a float64, from a token with a point or an exponent
NONFINITE = 7  # the bits of a float64, from a bare NaN or Infinity
LARGE = 8  # the position of an integer that 64 bits do not hold
UNSURE = 9  # the position of a decimal that has to be read digit by digit
STRING = 10  # the number of the string
ARRAY = 11  # where its block begins
OBJECT = 12  # where its block begins
KEY = 13  # the number of the key
COUNT = 14  # in front of a block: how many children, or members, follow

#: What `read_values` needs to know, by position in `options`.
BARE = 0  # whether NaN and Infinity are read
MAX_DEPTH = 1
ENCLOSED_BY = 2  # arrays and objects around each text
SEED = 3  # of the hashes of keys

#: What it tells, by position in `state`.
SIZE = 0  # entries of the tape
TOP = 1  # roots: one for each text
STRINGS = 2
CHARS = 3
KEYS = 4
SERIAL = 5  # objects so far
STATUS = 6
UNREAD_NUMBERS = 7  # whether a number is `LARGE` or `UNSURE`

#: Where more of a text follows, what it goes on from, beside the others.
MORE = 8  # whether more of the only text follows
PHASE = 9
POSITION = 10  # of what was not read, in `text`
DEPTH = 11
BASE = 12  # of the open array or object, on the stack
IS_OBJECT = 13  # whether that is an object
COUNTED = 14  # numbers of an array that were read behind the end of the tape
NUM_STATE = 15

#: `state[PHASE]`: what comes next.
BEFORE = 0  # a key, or a value
BEHIND = 1  # a comma, or the bracket that closes
IN_NUMBERS = 2  # a number of an array that has had nothing but numbers

#: How an array of numbers goes on.
CLOSED = 0
CUT = 1
MIXED = 2

#: `state[STATUS]`
DONE = 0
INVALID = 1
NO_ROOM = 2  # of entries or strings
NO_KEY_ROOM = 3

_OPEN = 0x5B
_CLOSE = 0x5D
_OPEN_OBJECT = 0x7B
_CLOSE_OBJECT = 0x7D
_COMMA = 0x2C
_COLON = 0x3A
_QUOTE = 0x22
_SPACE = 0x20
_MINUS = 0x2D
_ZERO = 0x30
_NINE = 0x39
_PADDING = 0x3D
_UPPER_I = 0x49

# The letters of a word, the first lowest; "false" without its f.
_TRUE = 0x65757274
_ALSE = 0x65736C61
_NULL = 0x6C6C756E
_INFI = 0x69666E49
_NITY = 0x7974696E

_NAN_BITS = np.uint64(0x7FF8000000000000)
_SIGN = np.uint64(1 << 63)
#: Python converts no integers of more digits.
_MAX_DIGITS = 4300


def _b64_table() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """By byte: the value of a digit of base64, +64 or +128 where only one alphabet has it; or -1."""
    table = np.full(256, -1, np.int64)
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    for value, byte in enumerate(letters):
        table[byte] = value
    table[0x2B], table[0x2F] = 64 + 62, 64 + 63
    table[0x2D], table[0x5F] = 128 + 62, 128 + 63
    return table


_B64 = _b64_table()


def _letters_at(text: Bytes, position: int) -> int:
    """The next four bytes, the first lowest."""
    letters = 0
    for index in range(4):
        letters |= byte_at(text, position + index) << (8 * index)
    return letters


def _digits_end(text: Bytes, position: int) -> int:
    while _ZERO <= byte_at(text, position) <= _NINE:
        position += 1
    return position


def _number_end(text: Bytes, position: int) -> int:
    """The position behind a number of any length, or `UNREAD`."""
    if byte_at(text, position) == _MINUS:
        position += 1
    end = _digits_end(text, position)
    if end == position or (end > position + 1 and byte_at(text, position) == _ZERO):
        return UNREAD
    if byte_at(text, end) == 0x2E:
        position = end + 1
        end = _digits_end(text, position)
        if end == position:
            return UNREAD
    if byte_at(text, end) in (0x45, 0x65):
        position = end + 1
        if byte_at(text, position) in (0x2B, _MINUS):
            position += 1
        end = _digits_end(text, position)
        if end == position:
            return UNREAD
    return end


def _read_number(text: Bytes, position: int) -> tuple[int, np.uint64, int]:
    """The kind, the word, and the position behind the number or `UNREAD`."""
    significand, exponent, flags, end = scan_number(text, position)
    if end < 0:
        return UNSURE, np.uint64(position), _number_end(text, position)
    if flags & DECIMAL:
        bits = float_bits(significand, exponent, flags)
        if bits == INFINITY:
            return UNSURE, np.uint64(position), end
        return DECIMAL_NUMBER, bits, end
    magnitude, fits = integer_magnitude(text, significand, exponent, flags, end)
    if fits and np.uint64(0) < magnitude < _SIGN:
        return INTEGER, integer_bits(magnitude, flags), end
    if not fits or (flags & NEGATIVE and magnitude > _SIGN):
        if end - position > _MAX_DIGITS:
            return LARGE, np.uint64(0), UNREAD
        return LARGE, np.uint64(position), end
    if flags & NEGATIVE:
        return NEGATIVE_ZERO if magnitude == np.uint64(0) else INTEGER, integer_bits(magnitude, flags), end
    return INTEGER if magnitude < _SIGN else UNSIGNED, magnitude, end


def _read_numbers(
    text: Bytes, position: int, kinds: MutableBytes, words: MutableWords, at: int
) -> tuple[int, int, int]:
    """Read an array of numbers, filled in from `at` on, up to its end or what is no number that is read here.

    Returns:
        Where the numbers end that were read, the position behind the array or of what was not read, and
        `CLOSED`, `CUT` where the text may have ended inside a number, or `MIXED`.
    """
    start = position
    while 0 <= at < min(len(kinds), len(words)):
        start = position
        kind, word, position = _read_number(text, position)
        if position < 0 or kind in (LARGE, UNSURE):
            break
        kinds[at] = np.uint8(kind)
        words[at] = word
        byte = byte_at(text, position)
        if byte <= _SPACE:
            position = skip_blanks(text, position)
            byte = byte_at(text, position)
        if byte == _CLOSE:
            return at + 1, position + 1, CLOSED
        if byte != _COMMA:
            break
        at += 1
        position += 1
        if byte_at(text, position) <= _SPACE:
            position = skip_blanks(text, position)
    if at >= min(len(kinds), len(words)):
        return at, position, MIXED
    if position < 0:
        byte = byte_at(text, start)
        is_number = _ZERO <= byte <= _NINE or (byte == _MINUS and byte_at(text, start + 1) != _UPPER_I)
        return at, start, CUT if is_number or start >= len(text) else MIXED
    return at, start, CUT if position >= len(text) else MIXED


def _read_word(text: Bytes, position: int, bare: int) -> tuple[int, np.uint64, int]:
    """As `_read_number`, of true, false, null and what is no number."""
    letters = _letters_at(text, position)
    if letters == _NULL:
        return NULL, np.uint64(0), position + 4
    if letters == _TRUE:
        return TRUE, np.uint64(1), position + 4
    if byte_at(text, position) == 0x66 and _letters_at(text, position + 1) == _ALSE:
        return FALSE, np.uint64(0), position + 5
    if bare:
        if letters & 0xFFFFFF == 0x4E614E:
            return NONFINITE, _NAN_BITS, position + 3
        negative = 1 if byte_at(text, position) == _MINUS else 0
        position += negative
        if _letters_at(text, position) == _INFI and _letters_at(text, position + 4) == _NITY:
            return NONFINITE, INFINITY | (np.uint64(negative) << np.uint64(63)), position + 8
    return NULL, np.uint64(0), UNREAD


def _hash(data: Bytes, begin: int, end: int, seed: np.uint64) -> int:
    """A hash that nobody can foresee who does not know the seed."""
    state = seed ^ np.uint64(end - begin)
    while begin < end:
        word = np.uint64(0)
        if begin + 8 <= end:
            word = load_word(data, begin)
        else:
            for index in range(begin, end):
                word |= np.uint64(data[index]) << np.uint64(8 * (index - begin))
        # Twice, or a change of the last letters that the next eight undo would be a collision for any seed.
        state = multiply_low(state ^ word, seed | np.uint64(1))
        state = multiply_low(state ^ (state >> np.uint64(29)), seed | np.uint64(1))
        begin += 8
    return int(np.int64(state >> np.uint64(32)))


def find_key(
    key_chars: Bytes, key_offsets: Ints, num_keys: int, end: int, slots: MutableInts, seed: np.uint64
) -> tuple[int, int]:
    """The key that lies behind the last one, up to `end`: its number or -1, and its slot.

    Args:
        slots: by hash, numbers of keys, or -1; a power of two of them, and more than there are keys.
    """
    begin = key_offsets[num_keys]
    slot = _hash(key_chars, begin, end, seed) & (slots.size - 1)
    while slots[slot] >= 0:
        key = slots[slot]
        size = key_offsets[key + 1] - key_offsets[key]
        if size == end - begin and same_bytes(key_chars, key_offsets[key], key_chars, begin, size):
            return key, slot
        slot = (slot + 1) & (slots.size - 1)
    return -1, slot


def add_keys(key_chars: Bytes, key_offsets: Ints, num_keys: int, slots: MutableInts, seed: int) -> None:
    """Put keys, of which no two are alike, into `slots`."""
    for key in range(num_keys):
        _, slot = find_key(key_chars, key_offsets, key, key_offsets[key + 1], slots, np.uint64(seed))
        slots[slot] = key


def _read_key(
    text: Bytes,
    position: int,
    guess: int,
    key_chars: MutableBytes,
    key_offsets: MutableInts,
    key_plain: MutableBytes,
    slots: MutableInts,
    seed: np.uint64,
    state: MutableInts,
) -> tuple[int, int]:
    """The number of the key whose quote is at `position`, and the position behind it; or `UNREAD`."""
    if guess < state[KEYS] and key_plain[guess]:
        begin = key_offsets[guess]
        size = key_offsets[guess + 1] - begin
        is_quoted = byte_at(text, position + 1 + size) == _QUOTE and byte_at(text, position) == _QUOTE
        if is_quoted and same_bytes(text, position + 1, key_chars, begin, size):
            return guess, position + size + 2
    num_keys = state[KEYS]
    begin = key_offsets[num_keys]
    if num_keys + 2 > key_plain.size or 2 * num_keys + 2 > slots.size:
        state[STATUS] = NO_KEY_ROOM
        return 0, UNREAD
    # A key takes no more than its text; there may be less room than the rest of the text would take.
    end = position + 1
    while byte_at(text, end) != _QUOTE and end < text.size:
        end += 2 if byte_at(text, end) == 0x5C else 1
    if begin + end - position > key_chars.size:
        state[STATUS] = NO_KEY_ROOM
        return 0, UNREAD
    end, behind = read_string(text, position, key_chars, begin)
    if behind < 0:
        return 0, UNREAD
    key, slot = find_key(key_chars, key_offsets, num_keys, end, slots, seed)
    if key < 0:
        key = num_keys
        slots[slot] = key
        key_offsets[key + 1] = end
        key_plain[key] = np.uint8(1 if end - begin == behind - position - 2 else 0)
        state[KEYS] = key + 1
    return key, behind


def _is_b64(chars: Bytes, begin: int, end: int) -> bool:
    """Whether this is strict base64 of RFC 4648, section 4 or 5, padded or not."""
    digits = end
    while digits > begin and chars[digits - 1] == _PADDING:
        digits -= 1
    size = digits - begin
    if size & 3 == 1 or end - digits not in (0, -size & 3):
        return False
    seen = 0
    value = 0
    for index in range(begin, digits):
        value = _B64[chars[index]]
        if value < 0:
            return False
        seen |= value
    unused = 3 if size & 3 == 3 else (15 if size & 3 == 2 else 0)
    return not (seen & 64 and seen & 128) and value & unused == 0


def _decode_b64(chars: Bytes, begin: int, end: int, out: MutableBytes, at: int) -> int:
    """Decode base64 that `_is_b64` accepts to `out`; the position behind the bytes."""
    bits = 0
    num_bits = 0
    for index in range(begin, end):
        if chars[index] == _PADDING:
            break
        bits = ((bits << 6) | (_B64[chars[index]] & 63)) & 0xFFFF
        num_bits += 6
        if num_bits >= 8:
            num_bits -= 8
            out[at] = np.uint8((bits >> num_bits) & 0xFF)
            at += 1
    return at


def _keep(
    state: MutableInts,
    phase: int,
    position: int,
    depth: int,
    base: int,
    is_object: int,
    size: int,
    top: int,
    strings: int,
    num_chars: int,
    serial: int,
) -> None:
    """Note from where to go on when more of the text is there."""
    state[PHASE], state[POSITION] = phase, position
    state[DEPTH], state[BASE], state[IS_OBJECT] = depth, base, is_object
    state[SIZE], state[TOP], state[STRINGS], state[CHARS], state[SERIAL] = (
        size,
        top,
        strings,
        num_chars,
        serial,
    )


def read_values(
    text: Bytes,
    starts: Ints,
    ends: Ints,
    options: Ints,
    kinds: MutableBytes,
    words: MutableWords,
    word_bytes: MutableBytes,
    stack_kinds: MutableBytes,
    stack_words: MutableWords,
    stack_bytes: MutableBytes,
    chars: MutableBytes,
    offsets: MutableInts,
    key_chars: MutableBytes,
    key_offsets: MutableInts,
    key_plain: MutableBytes,
    slots: MutableInts,
    follow: MutableInts,
    stamps: MutableInts,
    bases: MutableInts,
    state: MutableInts,
) -> int:
    """Read the texts `text[starts[i]:ends[i]]`, each of one value.

    Args:
        kinds, words: filled with the blocks of arrays and objects, from `state[SIZE]` on.
        word_bytes, stack_bytes: the memory of `words` and `stack_words`.
        stack_kinds, stack_words: filled with one entry for each text, from `state[TOP]` on.
        chars: as large as `text`, or larger.
        offsets: filled with where each string ends in `chars`; `offsets[0]` is 0.
        key_plain: by key, whether its text is the key itself.
        slots: as `find_key` takes them.
        follow: by number of a key plus one, which one to expect next.
        stamps: by key, scratch that is less than `state[SERIAL]` + 1.
        bases: scratch, for each level of nesting.

    Where `state[MORE]` is set, there is one text, and `text` is the beginning of it. It is invalid then, as
    far as can be told; the same again from `state[POSITION]` on, with more behind it, goes on from there.

    Returns:
        How many texts were read; where it is not all, `state[STATUS]` says why.
    """
    max_depth = options[MAX_DEPTH] - options[ENCLOSED_BY]
    seed = np.uint64(options[SEED])
    size = state[SIZE]
    top = state[TOP]
    strings = state[STRINGS]
    num_chars = state[CHARS]
    serial = state[SERIAL]
    room = stack_words.size - 2
    more = state[MORE]
    state[STATUS] = INVALID
    for row in range(starts.size):
        position = skip_blanks(text, starts[row])
        state[POSITION] = position
        depth = state[DEPTH]
        base = state[BASE] if depth else top
        is_object = state[IS_OBJECT]
        phase = state[PHASE]
        while True:
            if top > room:
                state[STATUS] = NO_ROOM
                return row
            if more and phase == BEFORE:
                _keep(state, BEFORE, position, depth, base, is_object, size, top, strings, num_chars, serial)
            if is_object and phase == BEFORE:
                previous = np.int64(0)
                if top > base:
                    previous = np.int64(stack_words[top - 2]) + 1
                key, position = _read_key(
                    text, position, follow[previous], key_chars, key_offsets, key_plain, slots, seed, state
                )
                if position < 0:
                    return row
                follow[previous] = key
                stack_kinds[top] = np.uint8(KEY)
                stack_words[top] = np.uint64(key)
                top += 1
                if byte_at(text, position) != _COLON:
                    position = skip_blanks(text, position)
                    if byte_at(text, position) != _COLON:
                        return row
                position += 1
                if byte_at(text, position) <= _SPACE:
                    position = skip_blanks(text, position)
            byte = byte_at(text, position) if phase == BEFORE else 0
            has_value = 1
            kind = NULL
            word = np.uint64(0)
            if _ZERO <= byte <= _NINE or (byte == _MINUS and byte_at(text, position + 1) != _UPPER_I):
                kind, word, position = _read_number(text, position)
                if position >= 0 and kind in (LARGE, UNSURE):
                    state[UNREAD_NUMBERS] = 1
            elif byte == _QUOTE:
                if strings + 1 >= offsets.size:
                    state[STATUS] = NO_ROOM
                    return row
                kind = STRING
                word = np.uint64(strings)
                num_chars, position = read_string(text, position, chars, num_chars)
                strings += 1
                offsets[strings] = num_chars
            elif byte == _OPEN_OBJECT:
                if depth >= max_depth or depth >= bases.size:
                    return row
                position = skip_blanks(text, position + 1)
                if more and position >= len(text):
                    return row  # it may be empty
                bases[depth] = 2 * base + is_object
                depth += 1
                base = top
                is_object = 1
                if byte_at(text, position) != _CLOSE_OBJECT:
                    continue
                has_value = 0
            elif byte == _OPEN or phase == IN_NUMBERS:
                count = state[COUNTED]
                if phase != IN_NUMBERS:
                    if depth >= max_depth or depth >= bases.size:
                        return row
                    count = 0
                    position = skip_blanks(text, position + 1)
                at, position, how = _read_numbers(text, position, kinds, words, size + 1 + count)
                count = at - size - 1
                if how == CUT and more:
                    _keep(
                        state,
                        IN_NUMBERS,
                        position,
                        depth,
                        base,
                        is_object,
                        size,
                        top,
                        strings,
                        num_chars,
                        serial,
                    )
                    state[COUNTED] = count
                    return row
                if how == CLOSED:
                    kinds[size] = np.uint8(COUNT)
                    words[size] = np.uint64(count)
                    kind = ARRAY
                    word = np.uint64(size)
                    size += 1 + count
                else:
                    # An array like any other from here on: its children are gathered on the stack.
                    if top + count > room or size + 1 + count > words.size:
                        state[STATUS] = NO_ROOM
                        return row
                    bases[depth] = 2 * base + is_object
                    depth += 1
                    base = top
                    is_object = 0
                    copy_bytes(stack_kinds, top, kinds, size + 1, count)
                    copy_bytes(stack_bytes, 8 * top, word_bytes, 8 * (size + 1), 8 * count)
                    top += count
                    phase = BEFORE
                    if count > 0 or byte_at(text, position) != _CLOSE:
                        continue
                    has_value = 0
            elif phase == BEHIND:
                has_value = 0
            else:
                kind, word, position = _read_word(text, position, options[BARE])
            if position < 0:
                return row
            phase = BEFORE
            if has_value:
                stack_kinds[top] = np.uint8(kind)
                stack_words[top] = word
                top += 1
            # Behind a value, or in front of the end of an empty array or object.
            while depth > 0:
                byte = byte_at(text, position)
                if byte <= _SPACE:
                    position = skip_blanks(text, position)
                    byte = byte_at(text, position)
                if byte == _COMMA:
                    position += 1
                    if byte_at(text, position) <= _SPACE:
                        position = skip_blanks(text, position)
                    break
                if byte != (_CLOSE_OBJECT if is_object else _CLOSE):
                    return row
                position += 1
                count = top - base
                if is_object:
                    serial += 1
                    for member in range(base, top, 2):
                        name = np.int64(stack_words[member])
                        if stamps[name] == serial:
                            return row
                        stamps[name] = serial
                if size + 1 + count > words.size:
                    state[STATUS] = NO_ROOM
                    return row
                kind = OBJECT if is_object else ARRAY
                word = np.uint64(size)
                kinds[size] = np.uint8(COUNT)
                words[size] = np.uint64(count // 2 if is_object else count)
                copy_bytes(kinds, size + 1, stack_kinds, base, count)
                copy_bytes(word_bytes, 8 * (size + 1), stack_bytes, 8 * base, 8 * count)
                size += 1 + count
                top = base
                depth -= 1
                is_object = bases[depth] & 1
                base = bases[depth] >> 1
                if top > room:
                    state[STATUS] = NO_ROOM
                    return row
                stack_kinds[top] = np.uint8(kind)
                stack_words[top] = word
                top += 1
                if more:
                    _keep(
                        state, BEHIND, position, depth, base, is_object, size, top, strings, num_chars, serial
                    )
            if depth == 0:
                break
        # Blanks may have led into another text.
        if more or position > ends[row] or skip_blanks(text, position) < ends[row]:
            return row
    state[SIZE] = size
    state[TOP] = top
    state[STRINGS] = strings
    state[CHARS] = num_chars
    state[SERIAL] = serial
    state[STATUS] = DONE
    return starts.size


def gather_members(
    kinds: Bytes,
    words: Words,
    starts: Ints,
    keys: MutableInts,
    out_kinds: MutableBytes,
    out_words: MutableWords,
) -> bool:
    """Gather the members of objects that have as many each, member by member.

    Args:
        starts: of the blocks of the objects.
        keys: filled with those of the first object.
        out_kinds, out_words: filled with the first member of all objects, then with the second.

    Returns:
        Whether all have the same keys in the same order; where not, what was filled means nothing.
    """
    num_objects = starts.size
    for index in range(num_objects):
        for member in range(keys.size):
            at = starts[index] + 1 + 2 * member
            key = np.int64(words[at])
            if index == 0:
                keys[member] = key
            elif keys[member] != key:
                return False
            out_kinds[member * num_objects + index] = kinds[at + 1]
            out_words[member * num_objects + index] = words[at + 1]
    return True


def count_children(words: Words, blocks: Words, counts: MutableInts) -> int:
    """Write how many children each block has; how many that is together.

    Args:
        blocks: where each begins.
    """
    total = 0
    for index in range(blocks.size):
        count = int(np.int64(words[np.int64(blocks[index])]))
        counts[index] = count
        total += count
    return total


def gather_blocks(
    kinds: Bytes, words: Words, blocks: Words, counts: Ints, out_kinds: MutableBytes, out_words: MutableWords
) -> None:
    """Copy the children of each block, one behind the other.

    Args:
        blocks, counts: as for `count_children`.
    """
    word_bytes = words.view(np.uint8)
    out_word_bytes = out_words.view(np.uint8)
    at = 0
    for index in range(blocks.size):
        begin = int(np.int64(blocks[index])) + 1
        count = counts[index]
        copy_bytes(out_kinds, at, kinds, begin, count)
        copy_bytes(out_word_bytes, 8 * at, word_bytes, 8 * begin, 8 * count)
        at += count


def gather_strings(
    chars: Bytes,
    offsets: Ints,
    numbers: Words,
    in_b64: Bytes,
    out_offsets: MutableInts,
    out: MutableBytes,
) -> int:
    """Copy strings by their numbers; `out` has room for all.

    Args:
        in_b64: by string, whether it is base64 that is to be decoded; empty: none is.

    Returns:
        -1, or the first that is no strict base64.
    """
    at = 0
    out_offsets[0] = 0
    for index in range(numbers.size):
        number = np.int64(numbers[index])
        begin = offsets[number]
        end = offsets[number + 1]
        if in_b64.size and in_b64[index]:
            if not _is_b64(chars, begin, end):
                return index
            at = _decode_b64(chars, begin, end, out, at)
        else:
            copy_bytes(out, at, chars, begin, end - begin)
            at += end - begin
        out_offsets[index + 1] = at
    return -1
