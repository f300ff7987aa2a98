"""Sizes, counts and strangers' text as people read them, at the terminal and on the pages."""

from __future__ import annotations

from codecs import getincrementaldecoder


def size_text(num_bytes: float) -> str:
    """`1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} TiB"


def count_text(count: int, what: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """The text on one line; control characters and those that turn text around are written as escapes.

    Names and values come from strangers: raw, an escape sequence could rewrite what was printed before.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def looks_like_text(data: bytes) -> bool:
    """Whether these are characters that can be shown, most of them; the last one may be cut."""
    try:
        text = getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return 4 * sum(map(str.isprintable, text)) >= 3 * len(text) and (bool(text) or not data)
