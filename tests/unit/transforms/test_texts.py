"""Text is normalized piece by piece, with the result of all at once, and never for long."""

import itertools
import sys
import unicodedata
from typing import Literal, get_args

import pytest

from app.transforms.parse import parse_steps
from app.transforms.texts import CUT_BEFORE, TextStep

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


def normalize(form: Form, text: str) -> str:
    (step,) = parse_steps([{"step": "normalize_utf8", "normalization_form": form}])
    assert isinstance(step, TextStep)
    return step.convert(text.encode()).decode()


@pytest.mark.parametrize("form", get_args(Form))
def test_a_long_text_becomes_what_it_does_at_once(form: Form) -> None:
    pieces = (
        "a\u0308\u0323",
        "\u1112\u1161\u11ab",
        "\uac00\u11a8",
        "\ufdfa",
        "e\u0301" * 9,
        "\uff76\uff9e",
        "q\u0f73",
    )
    text = (
        "".join(piece * count for count in (1, 5, 64) for piece in itertools.chain(pieces, pieces[::-1])) * 5
    )
    assert len(text) > 8192
    for begin in range(0, 40, 3):
        assert normalize(form, text[begin:]) == unicodedata.normalize(form, text[begin:])


def test_marks_without_end_are_refused() -> None:
    marks = "\u0300" * 500 + "\u0316" * 500
    assert normalize("NFD", "a" + marks) == unicodedata.normalize("NFD", "a" + marks)
    with pytest.raises(ValueError, match="combining marks"):
        normalize("NFC", "a" + marks * 3)


@pytest.mark.exhaustive
def test_text_is_cut_where_nothing_reaches_across() -> None:
    characters = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    pairs = (unicodedata.decomposition(character).split() for character in characters)
    seconds = {chr(int(pair[1], 16)) for pair in pairs if len(pair) == 2 and not pair[0].startswith("<")}
    seconds |= {chr(point) for point in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    for character in filter(CUT_BEFORE.match, characters):
        first = unicodedata.normalize("NFKD", character)[0]
        assert not unicodedata.combining(first), hex(ord(character))
        assert first not in seconds, hex(ord(character))
