from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.codecs.json.tape_reader import Unread, read_document
from app.codecs.kernels.json import number
from app.codecs.kernels.json.number import DECIMAL, NEGATIVE, TRUNCATED
from app.runtime.budget import Budget


def read(token: str) -> Any:
    """What the compiled kernel makes of `[token]`, or None: it is not one value."""
    at_the_end, before_others = (_read(f"[{token}]{blanks}".encode()) for blanks in ("", " " * 16))
    assert repr(at_the_end) == repr(before_others)
    return at_the_end


def _read(text: bytes) -> Any:
    try:
        items, _ = read_document(np.frombuffer(text, np.uint8), Budget(), bare=False).roots.open()
    except Unread:
        return None
    return items.python(0) if len(items) == 1 else None


def float_of(token: str) -> bytes | None:
    """The bytes of the float64 that is read, or None where it is no number."""
    value = read(token)
    return struct.pack("<d", value) if type(value) in (int, float) else None


def integer_of(token: str) -> int | None:
    value = read(token)
    return value if type(value) is int else None


def expected(token: str) -> bytes:
    is_integer = token.lstrip("-").isdigit()  # -0 is 0
    return struct.pack("<d", int(token) if is_integer else float(token))


HARD = [
    "0.0", "-0.0", "0", "0e5", "0.000e-400",
    "9007199254740993.0", "9007199254740993", "9007199254740995", "18014398509481986.0",  # half way
    "9007199254740992.99999", "9007199254740993.00001",
    "1e22", "1e23", "8.5e22", "9.5e22", "1e-22", "1e-23", "123456789012345678e-30",
    "2.2250738585072011e-308", "2.2250738585072012e-308", "2.2250738585072014e-308",  # the least normal one
    "4.9406564584124654e-324", "5e-324", "2.4703282292062328e-324", "2.4703282292062327e-324", "1e-400",
    "1.7976931348623157e308", "1.797693134862315708e308",
    "7.2057594037927933e16", "6.631236846766476e-316", "3.2378839133029012895883e-319",
    "2.109808898695963e16", "4.940656e-318", "1.18575755e-316", "2.989102097996e-312",
    "9.0608011534336e15", "4.708356024711512e18", "9.409340012568248e18", "1.2345e0", "1.2345E+05",
    "0.1", "0.2", "0.3", "3.4028235677973366e38", "1448997445238699", "0.30000000000000004",
    "1.00000000000000011102230246251565", "1.00000000000000033306690738754696",
    "0." + "0" * 300 + "123456789", "123456789" + "0" * 200, "1" + "0" * 22 + "." + "0" * 22 + "1",
    "9" * 19, "9" * 20, "9" * 19 + ".5", "0." + "9" * 40, "1." + "0" * 5000 + "1", "1" * 309 + "e-200",
    "18446744073709551615", "18446744073709551616", "9223372036854775808", "-9223372036854775809",
    # The last one is half way up to the last digit, so that the first nineteen do not decide.
    "9007199254740993" + "0" * 10, "9007199254740993." + "0" * 20 + "1", "1." + "1" * 19 + "e-9999999",
]  # fmt: skip


@pytest.mark.parametrize("token", HARD)
def test_hard_decimals_are_rounded_as_python_rounds_them(token: str) -> None:
    assert float_of(token) == expected(token)


@pytest.mark.parametrize("token", ["1e309", "1.8e308", "1e400", "-1e309", "1e999999"])
def test_overflowing_number_is_infinite(token: str) -> None:
    assert float_of(token) == expected(token)


@pytest.mark.parametrize(
    "token",
    [
        "", "-", "+1", "01", "-01", "00", "00.5", "1.", "1.e5", ".5", "-.5", "1e", "1e+", "1E-", "1e5.5",
        "--1", "1_0", "0x1", "NaN", "Infinity", "-Infinity", "null", "true", '"1"', "1 2", "1.2.3",
        "\N{FULLWIDTH DIGIT ONE}",
        "1" * 20 + ".", "1" * 20 + ".e1", "0" * 20, "1\x00", "1f", "1e0x",
    ],
)  # fmt: skip
def test_malformed_number_is_not_read(token: str) -> None:
    assert type(read(token)) not in (int, float)


@pytest.mark.parametrize(
    ("token", "value"),
    [
        ("0", 0),
        ("7", 7),
        ("12345678", 12345678),
        ("123456789", 123456789),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 2**63),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 18446744073709551616),
        ("28446744073709551615", 28446744073709551615),
        ("184467440737095516150", 184467440737095516150),
        ("-1", -1),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", -9223372036854775809),
        ("-18446744073709551615", -18446744073709551615),
        ("1" * 4000, int("1" * 4000)),
        ("1" * 5000, None),
        ("-0", 0),
        ("1.0", None),
        ("1e3", None),
    ],
)
def test_integers_are_exact(token: str, value: int | None) -> None:
    assert integer_of(token) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(5e-324)
@example(1.7976931348623157e308)
@settings(deadline=None, max_examples=300)
def test_every_float_comes_back_from_its_shortest_text(value: float) -> None:
    assert float_of(repr(value)) == struct.pack("<d", value)


#: Built of integers, which takes a tenth of the time of a regular expression.
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.integers(0, 10**25 - 1),
    st.just("") | st.builds(".{:0{}d}".format, st.integers(0, 10**24 - 1), st.integers(1, 24)),
    st.just("") | st.builds("{}{}".format, st.sampled_from(["e", "E", "e+", "E-"]), st.integers(0, 999)),
)


@given(NUMBERS)
@settings(deadline=None, max_examples=500)
def test_every_number_is_rounded_as_python_rounds_it(token: str) -> None:
    assert float_of(token) == expected(token)


@given(st.integers(1, 2**64 - 1), st.integers(-400, 400))
@settings(deadline=None, max_examples=300)
def test_significand_and_power_make_the_nearest_double(significand: int, exponent: int) -> None:
    bits = int(number.double_bits(np.uint64(significand), exponent))
    assert struct.pack("<Q", bits) == struct.pack("<d", float(f"{significand}e{exponent}"))


@given(st.integers(2**52, 2**53 - 1), st.integers(-45, 45), st.sampled_from([-1, 0, 1]))
@settings(deadline=None, max_examples=200)
def test_half_way_between_two_doubles_the_even_one_is_taken(odd: int, shift: int, beside: int) -> None:
    significand = 2 * odd + 1
    token = str(significand << shift) if shift >= 0 else f"{significand * 5**-shift}e{shift}"
    digits, _, power = token.partition("e")
    token = f"{int(digits) * 100 + beside}e{int(power or 0) - 2}"
    assert float_of(token) == expected(token)


@given(st.integers(-(2**70), 2**70))
@settings(deadline=None, max_examples=200)
def test_every_integer_is_exact(value: int) -> None:
    assert integer_of(str(value)) == value


@given(st.text("0123456789.eE+- ", max_size=30))
@settings(deadline=None, max_examples=500)
def test_only_numbers_of_json_are_read(token: str) -> None:
    try:
        value: Any = json.loads(f"[{token}]")
    except ValueError:
        value = None
    if value is None or len(value) != 1:
        assert read(token) is None


@pytest.mark.parametrize(
    ("token", "scanned"),
    [
        (b"-12.5e3,", (125, 2, NEGATIVE | DECIMAL, 7)),
        (b"0", (0, 0, 0, 1)),
        (b"12345678901234567890", (1234567890123456789, 1, TRUNCATED, 20)),
        (b"0.00000000000000000000123", (123, -23, DECIMAL, 25)),
        (b"1e-007]", (1, -7, DECIMAL, 6)),
    ],
)
def test_a_token_is_taken_apart(token: bytes, scanned: tuple[int, int, int, int]) -> None:
    significand, *others = number.scan_number(np.frombuffer(token, np.uint8), 0)
    assert (int(significand), *others) == scanned
