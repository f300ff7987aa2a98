import math
import re
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.kernels.number_fields import (
    DECIMAL,
    INTEGER,
    MAX_FIELD,
    NEGATIVE_ZERO,
    NONFINITE,
    OTHER,
)

NUMBER = re.compile(r"[+-]?(?:(0|[1-9][0-9]*)(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?")
NONFINITE_WORD = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


def read(*fields: str) -> list[tuple[int, int]]:
    """Kind and word of each field."""
    encoded = [field.encode() for field in fields]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    kinds, words = np.zeros(len(fields), np.uint8), np.zeros(len(fields), np.uint64)
    kernels.load().read_number_fields(data, offsets, kinds, words, np.empty(2 * MAX_FIELD, np.uint8))
    return list(zip(kinds.tolist(), words.tolist(), strict=True))


def expected(field: str) -> tuple[int, int]:
    field = field.strip(" \t")
    if NONFINITE_WORD.fullmatch(field):
        value = math.nan if math.isnan(float(field)) else float(field)
        return NONFINITE, int.from_bytes(struct.pack("<d", value), "little")
    match = NUMBER.fullmatch(field)
    if match is None or len(field) > MAX_FIELD:
        return OTHER, 0
    if match[2] or match[3] or match[4]:
        bits = int.from_bytes(struct.pack("<d", float(field)), "little")
        # More than 19 digits are left to others, counted with the zero that stands for none after a point.
        digits = ((match[1] or "") + (match[2] or match[3] or "")).replace(".", "").lstrip("0")
        many = len(digits) + (match[2] == ".") > 19
        return (OTHER, 0) if many or math.isinf(float(field)) else (DECIMAL, bits)
    if field == "-0":
        return NEGATIVE_ZERO, 0
    value = int(field)
    return (INTEGER, value % 2**64) if -(2**63) <= value < 2**63 else (OTHER, 0)


@pytest.mark.parametrize(
    "fields",
    [
        ["1", "2", "", "34", "-5", "0", "-0", "007", "a", "1a", "a1", "-", "+1", " 1", "1 ", "0x1"],
        ["1.5", "2", ".5", "1.", "1e5", "1e", "1E-5", "1e+5", "-0.0", "1e400", "-1e400", "1e-400", "5e-324"],
        ["9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809"],
        ["99999999999999999999", "0.1234567890123456789", "0.12345678901234567891", "1" * 31, "1" * 33],
        [
            "NaN",
            "Infinity",
            "-Infinity",
            "nan",
            "-NaN",
            "Infinit",
            "Infinityy",
            "-infinity",
            "INF",
            "+inf",
            "in",
        ],
        [
            "+5",
            "+0",
            "++5",
            "+-5",
            "-+5",
            "+",
            "+.5",
            "-.5",
            ".",
            "-.",
            "5.",
            "-5.e3",
            ".e3",
            "1..5",
            "1.5.",
            "1e.5",
        ],
        [
            " 2",
            "2 ",
            "\t-2.5 ",
            "  ",
            " nan ",
            "1 2",
            "\n2",
            "+true",
            "+007",
            "00.5",
            "1." * 16,
            "+" + "1" * 32,
        ],
        [],
    ],
)
def test_field_is_classified(fields: list[str]) -> None:
    assert read(*fields) == [expected(field) for field in fields]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(-(2**65), 2**65).map(str),
            st.floats(allow_nan=False, allow_infinity=False).map(repr),
            st.from_regex(r" ?[+-]?[0-9]{0,3}(\.[0-9]{0,18})?([eE][+-]?[0-9]{0,3})?", fullmatch=True),
            st.text("0123456789.eE+-naNiIfF \t", max_size=8),
        ),
        max_size=6,
    )
)
def test_fields_next_to_each_other(fields: list[str]) -> None:
    assert read(*fields) == [expected(field) for field in fields]
