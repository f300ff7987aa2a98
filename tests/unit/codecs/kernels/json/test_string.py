from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.kernels.json import string
from app.codecs.kernels.json.number import UNREAD


def read(text: bytes) -> tuple[bytes, int]:
    """The string at the beginning of the text as UTF-8, and the position behind it."""
    data, out = np.frombuffer(text, np.uint8), np.zeros(len(text), np.uint8)
    size, position = string.read_string(data, 0, out, 0)
    return out[:size].tobytes(), position


@given(st.text(), st.booleans())
@settings(deadline=None, max_examples=50)
def test_every_text_comes_back(text: str, escaped: bool) -> None:
    literal = json.dumps(text, ensure_ascii=escaped).encode(errors="surrogatepass")
    try:
        expected = text.encode()
    except UnicodeEncodeError:
        assert read(literal)[1] == UNREAD
        return
    assert read(literal + b'x"') == (expected, len(literal))


@pytest.mark.parametrize(
    "text", [b"", b"x", b'"', b'"x', b'"\\', b'"\\"', b'"\\u123', b'"\\u12345', b'"\x1f"']
)
def test_malformed_string_is_not_read(text: bytes) -> None:
    assert read(text)[1] == UNREAD


@pytest.mark.parametrize("stop", [b'"', b"\\", b"\0", b"\x1f", b"\n"])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 20])
def test_a_run_of_characters_ends_where_json_ends_it(stop: bytes, size: int) -> None:
    run = b" ~\x7f\x80\xff!#[]^"[: size % 10] * 3
    data = np.frombuffer(run + stop + b"abcdefgh", np.uint8)
    assert string.string_end(data, 0) == len(run)
    assert string.string_end(data[: len(run)], 0) == len(run)
