"""What goes to a terminal: text that cannot steer it, tables that fit, and how far something is."""

from __future__ import annotations

import codecs
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from ...domain.limits import MIB
from ...domain.wording import count_text as count_text
from ...domain.wording import printable as printable
from ...domain.wording import size_text as size_text

#: What lasts less shows no progress.
_SHOWN_AFTER_S: Final = 1.0
_LEAST_COLUMN: Final = 6
_GAP: Final = "  "


def changes(told: Mapping[str, Any]) -> list[str]:
    """Which features were rounded, and which became text."""
    notes = (("rounded to float32", told.get("rounded")), ("times and decimals as text", told.get("as_text")))
    return [f"{note}: {', '.join(names)}" for note, names in notes if names]


def width_of(text: str) -> int:
    """The columns that printable text takes."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, width: int) -> str:
    """The text, made printable, in so many columns; one that is cut ends with an ellipsis."""
    text = printable(text[: 2 * width + 1])
    if width_of(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += _width(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None) -> Iterator[str]:
    """The lines of a table that fits the terminal: wide columns give way, the last ones may be left out."""
    most = (width or terminal_width()) - 1
    cells = [[shorten(cell, most) for cell in row] for row in (header, *rows)]
    widths = _fit([max(width_of(row[at]) for row in cells) for at in range(len(header))], most)
    for row in cells:
        line = [shorten(cell, size) for cell, size in zip(row, widths, strict=False)]
        padded = [cell + " " * (size - width_of(cell)) for cell, size in zip(line, widths, strict=True)]
        yield _GAP.join(padded).rstrip() + (f"{_GAP}…" if len(widths) < len(header) else "")


def _fit(widths: list[int], most: int) -> list[int]:
    """The widths of the columns that are shown."""
    widths = widths[: max(1, (most - 3) // (_LEAST_COLUMN + len(_GAP)))]
    while sum(widths) + len(_GAP) * len(widths) > most and max(widths) > _LEAST_COLUMN:
        widest = max(widths)
        excess = sum(widths) + len(_GAP) * len(widths) - most
        second = max([size for size in widths if size < widest], default=_LEAST_COLUMN)
        share = -(-excess // widths.count(widest))
        smaller = max(second, widest - share, _LEAST_COLUMN)
        widths = [smaller if size == widest else size for size in widths]
    return widths


def terminal_width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns


class Progress:
    """How far work has come, on standard error; shown once it has lasted a second, and only on a terminal.

    Attributes:
        is_hidden: nobody looks.
    """

    def __init__(self, label: str, total: int | None, *, in_bytes: bool) -> None:
        self._label = printable(label)[:40]
        self._total = total
        self._in_bytes = in_bytes
        self._began = time.time()
        self._done = self._shown = 0
        self._bar: Any = None  # the class of click.progressbar has no public name
        self.is_hidden = not sys.stderr.isatty()

    def reach(self, done: int) -> None:
        """So much is done in all."""
        self.add(done - self._done)

    def add(self, more: int) -> None:
        """So much more is done."""
        if self.is_hidden:
            return
        self._done += more
        elapsed = time.time() - self._began
        step = MIB if self._in_bytes else 1
        if elapsed < _SHOWN_AFTER_S or (self._done - self._shown < step and self._bar is not None):
            return
        if self._bar is None:
            self._bar = click.progressbar(
                length=self._total,
                label=self._label,
                file=sys.stderr,
                item_show_func=self._rate if self._in_bytes else None,
            )
            self._bar.start = self._bar.last_eta = self._began
        self._bar.update(self._done - self._shown, 0)
        self._shown = self._done

    def _rate(self, _: object) -> str:
        return f"{size_text(self._done / (time.time() - self._began))}/s"

    def end(self) -> None:
        """Leave the line."""
        if self._bar is not None:
            self._bar.render_finish()


@contextmanager
def progress(label: str, total: int | None, *, in_bytes: bool = True) -> Iterator[Progress]:
    """Progress of work on `total` bytes, where it is known how many there are; or, else, in percent."""
    shown = Progress(label, total, in_bytes=in_bytes)
    try:
        yield shown
    finally:
        shown.end()


class SafeText:
    """Standard output, where it is a terminal: bytes of text are made printable, and lines stay."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, data: bytes) -> None:
        """Write bytes of a text, cut anywhere."""
        text = self._decoder.decode(data)
        shown = "".join(
            c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text
        )
        self._stream.write(shown.encode("utf-8", "backslashreplace"))
