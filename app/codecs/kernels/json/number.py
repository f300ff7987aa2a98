"""JSON numbers (RFC 8259, section 6) from text to the nearest float64, or to an exact integer.

Digits are read eight at a time, as lanes of one word. A decimal of up to 19 digits becomes a float64 by
one or two multiplications with a truncated power of five, which always decides the rounding to nearest
even (D. Lemire, "Number parsing at a gigabyte per second", 2021; N. Mushtak and D. Lemire, "Fast number
parsing without fallback", 2023). Of a longer one the first 19 digits are taken; where the
others could matter, the answer is `UNREAD`, and the caller has another way to read the text.
"""

from __future__ import annotations

import numpy as np

from ..memory import (
    Bytes,
    bit_length,
    load_word,
    multiply_high,
    multiply_low,
    quotient_bits,
    raw_bit_length,
    raw_load,
)

#: In place of a position: not a JSON number, or one that is not read here.
UNREAD = -1

#: What `scan_number` says of a token, as bits.
NEGATIVE = 1
DECIMAL = 2  # has a point or an exponent
TRUNCATED = 4  # has more than 19 digits, of which the significand holds the first 19

#: The bits of an infinite float64; those of finite ones are below.
INFINITY = np.uint64(0x7FF0000000000000)

_MINUS = 0x2D
_PLUS = 0x2B
_POINT = 0x2E
_ZERO = 0x30
_SPACE = 0x20
_LINE_FEED = 0x0A
_RETURN = 0x0D
_TAB = 0x09
_UPPER_E = 0x45
_LOWER_E = 0x65

_ZEROS = np.uint64(0x3030303030303030)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
#: Brings a lane of 10 or more up to its high bit.
_BEYOND_NINE = np.uint64(0x7676767676767676)
_POINT_LANE = np.uint64(_POINT ^ _ZERO)
_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_QUADS = np.uint64(0x0000FFFF0000FFFF)

#: 64 bits hold any of so many.
_MAX_DIGITS = 19
_TENS = np.array([10**power for power in range(20)], np.uint64)
#: Exponents beyond are left to others: even with a MiB of zeros behind the point they are no numbers.
_MAX_EXPONENT = 1_000_000

# Both are exact as float64, so that their quotient is rounded once (W. Clinger, "How to read floating
# point numbers accurately", 1990). 16 digits may be below 2^53 too, but doubles of 16 and 17 digits come
# mixed, and a branch wants to be foreseen.
_FEW_DIGITS = np.uint64(10**15)
_MAX_EXACT_POWER = 22
_EXACT_POWERS = np.array([10.0**power for power in range(_MAX_EXACT_POWER + 1)])

# 10^-342 times 19 digits is less than half the least float64; 10^309 is more than the greatest.
_MIN_POWER = -342
_MAX_POWER = 308

#: The greatest integer of 64 bits is 18446744073709551615.
_UINT64_HEAD = np.uint64(1844674407370955161)
_UINT64_LAST = 5


def _powers_of_five() -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    """The leading 128 bits of 5^q, high and low word; rounded up from 5^-27 to 5^-1, else truncated."""
    powers = np.zeros((2, _MAX_POWER - _MIN_POWER + 1), np.uint64)
    for index in range(powers.shape[1]):
        power = 5 ** abs(index + _MIN_POWER)
        length = power.bit_length()
        if index + _MIN_POWER >= 0:
            bits = power << (128 - length) if length <= 128 else power >> (length - 128)
        else:
            bits = (1 << (127 + length)) // power + 1
            if index + _MIN_POWER < -27:
                bits = ((1 << (2 * length + 128)) // power + 1) >> (length + 1)
        powers[:, index] = bits >> 64, bits & (2**64 - 1)
    return powers


_POWERS, _LOW_POWERS = _powers_of_five()


def byte_at(text: Bytes, position: int) -> int:
    """The byte, or 0 outside of the text."""
    # Both bounds, and by `len`, which is what numba compares with: its own check is left out then.
    return int(text[position]) if 0 <= position < len(text) else 0


def skip_blanks(text: Bytes, position: int) -> int:
    """The position of the next byte that is no whitespace of JSON."""
    while position < len(text):
        byte = byte_at(text, position)
        if byte > _SPACE or (byte != _SPACE and byte != _LINE_FEED and byte != _RETURN and byte != _TAB):
            break
        position += 1
    return position


def _lanes_at(text: Bytes, position: int) -> np.uint64:
    """The next eight bytes, those behind the end being 0."""
    if position + 8 <= text.size:
        return load_word(text, position)
    if text.size >= 8 and position < text.size:
        # The last word of the text, without what lies before the position.
        return load_word(text, text.size - 8) >> np.uint64(8 * (position + 8 - text.size))
    word = np.uint64(0)
    for index in range(position, text.size):
        word |= np.uint64(text[index]) << np.uint64(8 * (index - position))
    return word


def _combine(lanes: np.uint64) -> np.uint64:
    """The value of eight digits, the first of which lies lowest."""
    # Each product adds a lane, times a power of ten, to the one above it.
    lanes = multiply_low(lanes, np.uint64(10 << 8 | 1)) >> np.uint64(8)
    lanes = multiply_low(lanes & _PAIRS, np.uint64(100 << 16 | 1)) >> np.uint64(16)
    return multiply_low(lanes & _QUADS, np.uint64(10_000 << 32 | 1)) >> np.uint64(32)


def _stops(lanes: np.uint64) -> np.uint64:
    """The high bit of each lane that is no digit."""
    return (((lanes & _LOW_BITS) + _BEYOND_NINE) | lanes) & _HIGH_BITS


def _num_digits(stops: np.uint64) -> int:
    """The digits before the first stop; there is one."""
    return (raw_bit_length(stops & (~stops + np.uint64(1))) - 1) >> 3


def _read_digits(text: Bytes, position: int, significand: np.uint64, room: int) -> tuple[np.uint64, int]:
    """Append all digits from `position` to the significand; the position behind, or `UNREAD`: over `room`."""
    begin = position
    while True:
        lanes = _lanes_at(text, position) ^ _ZEROS
        stops = _stops(lanes)
        if stops != np.uint64(0):
            break
        # A branch, not a choice of two counts: the next eight are read ahead while this is decided.
        position += 8
        if position - begin > room:
            return significand, UNREAD
        significand = significand * np.uint64(100_000_000) + _combine(lanes)
    count = _num_digits(stops)
    position += count
    if position - begin > room:
        return significand, UNREAD
    # What is shifted in below are leading zeros. Shifted twice, since 64 is no shift.
    lanes = (lanes << np.uint64(56 - 8 * count)) << np.uint64(8)
    return significand * _TENS[count] + _combine(lanes), position


def _scan_slowly(text: Bytes, position: int, flags: int) -> tuple[np.uint64, int, int, int]:
    """As `scan_number`, digit by digit, from behind the sign up to the exponent."""
    significand = np.uint64(0)
    exponent = 0
    begin = position
    while position < len(text):
        byte = int(text[position])
        digit = byte - _ZERO
        if 0 <= digit <= 9:
            if flags & TRUNCATED or significand >= _TENS[18]:
                flags |= TRUNCATED
                exponent += 1
            else:
                significand = significand * np.uint64(10) + np.uint64(digit)
            if flags & DECIMAL:
                exponent -= 1
        elif byte == _POINT and not flags & DECIMAL and position > begin:
            flags |= DECIMAL
        else:
            break
        position += 1
    has_leading_zero = byte_at(text, begin) == _ZERO and 0 <= byte_at(text, begin + 1) - _ZERO <= 9
    if position == begin or int(text[position - 1]) == _POINT or has_leading_zero:
        return significand, exponent, flags, UNREAD
    return significand, exponent, flags, position


def _scan_exponent(text: Bytes, position: int) -> tuple[int, int]:
    sign = byte_at(text, position)
    if sign in (_PLUS, _MINUS):
        position += 1
    exponent = 0
    begin = position
    while 0 <= byte_at(text, position) - _ZERO <= 9:
        exponent = 10 * exponent + byte_at(text, position) - _ZERO
        position += 1
        if exponent > _MAX_EXPONENT:
            return 0, UNREAD
    if position == begin:
        return 0, UNREAD
    return -exponent if sign == _MINUS else exponent, position


def scan_number(text: Bytes, position: int) -> tuple[np.uint64, int, int, int]:
    """The token at `position`: significand, power of ten, flags, and the position behind it or `UNREAD`.

    What follows the token is the caller's to check.
    """
    if position < 0 or position + 9 > len(text):
        flags = NEGATIVE if byte_at(text, position) == _MINUS else 0
        significand, exponent, flags, position = _scan_slowly(text, position + flags, flags)
    else:
        significand, exponent, flags, position = _scan_digits(text, position)
    byte = byte_at(text, position)
    if byte in (_LOWER_E, _UPPER_E):
        flags |= DECIMAL
        power, position = _scan_exponent(text, position + 1)
        exponent += power
    return significand, exponent, flags, position


def _scan_digits(text: Bytes, position: int) -> tuple[np.uint64, int, int, int]:
    """As `scan_number` up to the exponent, where nine bytes can be read at `position`.

    Signs and lengths of numbers are as good as random, and a branch on them costs as much as all the rest:
    short numbers take the same way whatever they are.
    """
    flags = NEGATIVE if text[position] == _MINUS else 0
    begin = position + flags
    # Both are loaded before the sign is known: where the next number begins waits for this.
    word, following = raw_load(text, position), raw_load(text, position + 1)
    lanes = (following if flags else word) ^ _ZEROS
    two = ((lanes & np.uint64(0xFF)) << np.uint64(8)) | ((lanes >> np.uint64(8)) & np.uint64(0xFF))
    if two < np.uint64(10):  # a zero before another digit
        return np.uint64(0), 0, flags, UNREAD
    stops = _stops(lanes)
    if stops == np.uint64(0):
        return _scan_long(text, begin, _combine(lanes), flags)
    count = _num_digits(stops)
    if count == 0:
        return np.uint64(0), 0, flags, UNREAD
    where = np.uint64(8 * count)
    if (lanes >> where) & np.uint64(0xFF) != _POINT_LANE:
        return _combine((lanes << (np.uint64(56) - where)) << np.uint64(8)), 0, flags, begin + count
    flags |= DECIMAL
    before = (np.uint64(1) << where) - np.uint64(1)
    digits = ((lanes & before) << np.uint64(8)) | (lanes & (~before << np.uint64(8)))
    stops &= stops - np.uint64(1)
    if stops != np.uint64(0):
        size = _num_digits(stops)
        if size == count + 1:
            return np.uint64(0), 0, flags, UNREAD
        return _combine(digits << np.uint64(64 - 8 * size)), count + 1 - size, flags, begin + size
    significand, position = _read_digits(text, begin + 8, _combine(digits), _MAX_DIGITS - 7)
    if position < 0:
        return _scan_slowly(text, begin, flags & NEGATIVE)
    if position == begin + count + 1:
        return np.uint64(0), 0, flags, UNREAD
    return significand, begin + count + 1 - position, flags, position


def _scan_long(
    text: Bytes, begin: int, significand: np.uint64, flags: int
) -> tuple[np.uint64, int, int, int]:
    """As `_scan_digits`, of a number that begins with the eight digits of the significand."""
    significand, position = _read_digits(text, begin + 8, significand, _MAX_DIGITS - 8)
    exponent = 0
    if position >= 0 and byte_at(text, position) == _POINT:
        flags |= DECIMAL
        point = position + 1
        significand, position = _read_digits(text, point, significand, _MAX_DIGITS - (position - begin))
        exponent = point - position
        if exponent == 0:
            return significand, 0, flags, UNREAD
    if position < 0:
        return _scan_slowly(text, begin, flags & NEGATIVE)
    return significand, exponent, flags, position


def integer_magnitude(
    text: Bytes, significand: np.uint64, exponent: int, flags: int, position: int
) -> tuple[np.uint64, bool]:
    """The magnitude of an integer token that `scan_number` has read, and whether 64 bits hold it."""
    if not flags & TRUNCATED:
        return significand, True
    last = byte_at(text, position - 1) - _ZERO
    if exponent > 1 or significand > _UINT64_HEAD or (significand == _UINT64_HEAD and last > _UINT64_LAST):
        return significand, False
    return significand * np.uint64(10) + np.uint64(last), True


def double_bits(significand: np.uint64, exponent: int) -> np.uint64:
    """The bits of the float64 nearest to `significand * 10**exponent`, ties to even; or of infinity."""
    if significand < _FEW_DIGITS and -_MAX_EXACT_POWER <= exponent <= 0:
        return quotient_bits(int(np.int64(significand)), _EXACT_POWERS[-exponent])
    if significand == np.uint64(0) or exponent < _MIN_POWER:
        return np.uint64(0)
    if exponent > _MAX_POWER:
        return INFINITY
    length = bit_length(significand)
    significand = significand << np.uint64(64 - length)
    high_power = _POWERS[exponent - _MIN_POWER]
    high = multiply_high(significand, high_power)
    low = multiply_low(significand, high_power)
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        # The bits below those that are kept could carry: take the power's low word as well.
        below = multiply_high(significand, _LOW_POWERS[exponent - _MIN_POWER])
        if below > ~low:
            low = below - ~low - np.uint64(1)
            high += np.uint64(1)
        else:
            low += below
    upper = high >> np.uint64(63)
    # 54 bits: those of the significand, and one that says how to round.
    shift = upper + np.uint64(9)
    bits = high >> shift
    # floor(log2(10^q)) for every q of the table, by a multiplication; then the exponent's bias.
    biased = ((217706 * exponent) >> 16) + length + int(np.int64(upper)) + 1022
    if biased <= 0:
        return _subnormal_bits(bits, 1 - biased)
    is_half_way = low <= np.uint64(1) and -4 <= exponent <= 23 and (bits << shift) == high
    if is_half_way and bits & np.uint64(3) == np.uint64(1):
        bits -= np.uint64(1)  # it is even as it is
    bits = (bits + (bits & np.uint64(1))) >> np.uint64(1)
    # Where rounding made it 2^53, the addition carries into the exponent, as it should.
    bits += np.uint64(biased - 1) << np.uint64(52)
    return bits if bits < INFINITY else INFINITY


def _subnormal_bits(bits: np.uint64, shift: int) -> np.uint64:
    if shift >= 64:
        return np.uint64(0)
    bits = bits >> np.uint64(shift)
    return (bits + (bits & np.uint64(1))) >> np.uint64(1)


def float_bits(significand: np.uint64, exponent: int, flags: int) -> np.uint64:
    """The float64 that `scan_number` has read; the bits of an infinity where it is none that is sure."""
    bits = np.uint64(0)
    for more in range(2 if flags & TRUNCATED else 1):
        # What was cut off lies between this significand and the next one.
        nearest = double_bits(significand + np.uint64(more), exponent)
        if more and nearest != bits:
            return INFINITY
        bits = nearest
    if bits < INFINITY:
        bits |= np.uint64(flags & NEGATIVE) << np.uint64(63)
    return bits


def integer_bits(magnitude: np.uint64, flags: int) -> np.uint64:
    """The two's complement of an integer."""
    # -n is ~(n - 1), of all but 0. Uncompiled, numpy warns of integers that wrap around.
    less = min(np.uint64(flags & NEGATIVE), magnitude)
    return (magnitude - less) ^ np.uint64(-np.int64(less))
