from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.json.ndjson_lines import LineReader
from app.domain.limits import MIB, Limits
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream


def blocks(
    text: bytes, max_rows: int = 2, chunk: int | None = None, limits: Limits | None = None
) -> list[tuple[bytes, list[bytes], int]]:
    """The text, the rows, and the length of the longest line of each block."""
    return [
        (
            lines.text,
            [
                lines.text[start:end]
                for start, end in zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)
            ],
            lines.longest,
        )
        for lines in LineReader(MemoryStream(text, chunk=chunk), Budget(limits), max_rows)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"a", [(b"a", [b"a"], 1)]),
        (b"a\n", [(b"a\n", [b"a"], 1)]),
        (b"\n \t\r\n", [(b"\n \t\r\n", [], 3)]),
        (b"a\nbc\nd", [(b"a\nbc\n", [b"a", b"bc"], 2), (b"d", [b"d"], 1)]),
        (b" a \r\n\n\nb\n\nc\n", [(b" a \r\n\n\nb\n", [b" a \r", b"b"], 4), (b"\nc\n", [b"c"], 1)]),
        (b"\x0b\n\x00\n", [(b"\x0b\n\x00\n", [b"\x0b", b"\x00"], 1)]),
    ],
)
def test_blocks_are_whole_lines(text: bytes, expected: list[tuple[bytes, list[bytes], int]]) -> None:
    for chunk in (None, *range(1, len(text) + 1)):
        assert blocks(text, chunk=chunk) == expected


@given(st.lists(st.sampled_from([b"", b" ", b"ab", b" c", b"\r"])), st.integers(1, 4), st.integers(1, 9))
@settings(deadline=None, max_examples=100)
def test_every_line_is_in_one_block(lines: list[bytes], max_rows: int, chunk: int) -> None:
    text = b"\n".join(lines)
    found = blocks(text, max_rows, chunk)
    assert found == blocks(text, max_rows)
    assert b"".join(block for block, _, _ in found) == text
    assert [row for _, rows, _ in found for row in rows] == [line for line in lines if line.strip(b" \t\r")]
    assert all(len(rows) == max_rows for _, rows, _ in found[:-1])


def test_a_block_ends_at_four_mebibytes() -> None:
    line = b"x" * (MIB - 1) + b"\n"
    assert [len(text) for text, _, _ in blocks(line * 9, 8192)] == [4 * MIB, 4 * MIB, MIB]
    assert [len(text) for text, _, _ in blocks(b"\n" * 5 * MIB, 8192)] == [4 * MIB, MIB]


def test_a_line_over_the_limit_is_handed_out_as_it_is() -> None:
    limits = Limits(max_record_bytes=10)
    assert blocks(b"a\n" + b"x" * 100, chunk=5, limits=limits)[0] == (
        b"a\n" + b"x" * 13,
        [b"a", b"x" * 13],
        13,
    )
    assert blocks(b"a\n" + b"x" * 11 + b"\nb\n", 8, limits=limits)[0][2] == 11


def test_the_number_of_rows_may_change_between_blocks() -> None:
    reader = LineReader(MemoryStream(b"a\nb\nc\nd\n"), Budget(), 1)
    blocks = iter(reader)
    assert next(blocks).text == b"a\n"
    reader.max_rows = 8
    assert [lines.text for lines in blocks] == [b"b\nc\nd\n"]
