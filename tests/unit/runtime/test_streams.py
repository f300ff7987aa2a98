"""Streams read as far as they go."""

import pytest

from app.runtime.streams import read_up_to
from tests.bodies import stream_of


@pytest.mark.parametrize("chunk", [None, 1, 3])
@pytest.mark.parametrize(("n", "expected"), [(0, b""), (4, b"abcd"), (6, b"abcdef"), (9, b"abcdef")])
def test_as_many_bytes_are_read_as_there_are(n: int, expected: bytes, chunk: int | None) -> None:
    source = stream_of(b"abcdef", chunk)
    assert read_up_to(source, n) == expected
    assert read_up_to(source, 10) == b"abcdef"[n:]
