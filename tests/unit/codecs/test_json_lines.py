"""The lines of NDJSON: a long one is copied a few times only, however it arrives."""

from app.codecs.json.rows.lines import MAX_TEXT, LineReader
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream


class _Counting(LineReader):
    grown = 0

    def _hold(self, piece: bytes) -> None:
        before = self._buffer
        super()._hold(piece)
        self.grown += self._buffer is not before


def test_a_long_line_is_copied_a_few_times() -> None:
    text = b"1\n" + b"x" * (32 * MAX_TEXT) + b"\n2\n"
    reader = _Counting(MemoryStream(text), Budget(), 100)
    assert b"".join(bytes(lines.text) for lines in reader) == text
    assert 3 < reader.grown < 10
