"""Streams read as far as they go."""

import tracemalloc

import pytest

from app.domain.limits import KIB
from app.runtime.streams import read_exactly, read_up_to
from tests.support.bodies import stream_of


@pytest.mark.parametrize("chunk", [None, 1, 3])
@pytest.mark.parametrize(("n", "expected"), [(0, b""), (4, b"abcd"), (6, b"abcdef"), (9, b"abcdef")])
def test_as_many_bytes_are_read_as_there_are(n: int, expected: bytes, chunk: int | None) -> None:
    source = stream_of(b"abcdef", chunk)
    assert read_up_to(source, n) == expected
    assert read_up_to(source, 10) == b"abcdef"[n:]


def test_body_in_small_chunks_takes_at_most_twice_its_size() -> None:
    data = bytes(range(256)) * (256 * KIB // 256)
    source = stream_of(data, 3)
    tracemalloc.start()
    try:
        found = read_exactly(source, len(data), "the body")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == data
    assert peak < 3 * len(data)
