"""What a JSON text costs, and how deep it is nested, before it is parsed.

A text may be large, and lie on disk: it is looked at a piece at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.limits import MIB
from ...errors import LimitExceeded
from ...runtime.streams import Buffer

_PIECE: Final = 1 * MIB

#: Cuts any text as `check_depth` does: an escape is skipped outside strings too, and a string that does
#: not end takes all that follows. Nothing is given back that was matched, as in `json_text`.
_BRACKET: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|\\.|([\[{\]}])', re.DOTALL)

_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_QUOTED: Final = re.compile(rb'"[^"]*"?')
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
#: +1 for an opening bracket, -1 (as int8) for a closing one.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")

# What parsed values take at most in CPython 3.11 (64-bit), with the arrays that are made of them:
# a float of 24 bytes and its slot in a list, in a flattened list and in two arrays of 8 bytes; the
# headers of a list and of a dict; a member's tuple and its slots in a dict that grows; the headers
# of a str and of the bytes object it becomes.
_BYTES_A_VALUE: Final = 72
_BYTES_A_LIST: Final = 96
_BYTES_A_DICT: Final = 160
_BYTES_A_MEMBER: Final = 120
_BYTES_A_STRING: Final = 90


@dataclass(frozen=True, slots=True)
class TextCensus:
    """What there is in a text.

    Attributes:
        num_brackets: that open an array or an object, or stand in a string.
        num_bytes: what its values take at most, with the arrays that are made of them, and the text itself
            while it is parsed.
    """

    num_brackets: int
    num_bytes: int


def take_census(text: Buffer) -> TextCensus:
    """Count what makes values."""
    commas = colons = quotes = lists = dicts = 0
    # One non-Latin character widens the whole str to 2 or 4 bytes a character; an escape hides it.
    width, last = 1, b""
    for piece in _pieces(text):
        commas += piece.count(b",")
        colons += piece.count(b":")
        quotes += piece.count(b'"')
        lists += piece.count(b"[")
        dicts += piece.count(b"{")
        if not piece.isascii() or b"\\u" in piece or (last == b"\\" and piece.startswith(b"u")):
            width = 4
        last = piece[-1:]
    num_bytes = (
        _BYTES_A_VALUE * (commas + 1)
        + _BYTES_A_LIST * lists
        + _BYTES_A_DICT * dicts
        + _BYTES_A_MEMBER * colons
        + _BYTES_A_STRING * (quotes // 2)
        + len(text) * (2 * width + 1)
    )
    return TextCensus(lists + dicts, num_bytes)


def _pieces(text: Buffer) -> Iterator[bytes]:
    for start in range(0, len(text), _PIECE):
        yield bytes(text[start : start + _PIECE])


def check_depth(text: Buffer, max_depth: int, enclosed_by: int) -> None:
    """Refuse a text of more arrays and objects within one another, `enclosed_by` of them around it.

    Raises:
        LimitExceeded: `json_too_deep`, with the offset.
    """
    # Ahead of the parser, whose own bound is the recursion limit: it differs with the caller's stack.
    depth = enclosed_by
    for steps in _nesting_steps(text):
        depths = depth + np.cumsum(steps, dtype=np.int64)
        if len(depths) and int(depths.max()) > max_depth:
            raise too_deep(max_depth, offset=_find_depth(text, max_depth, enclosed_by))
        depth = int(depths[-1]) if len(depths) else depth


def _nesting_steps(text: Buffer) -> Iterator[NDArray[np.int8]]:
    """+1 and -1 for the brackets outside strings; in pieces, since no other thread runs during a `sub`."""
    begun = b""  # what the piece before left open: a string, an escape
    for held in _pieces(text):
        piece = begun + held
        plain = _ESCAPE.sub(b"", piece) if b"\\" in piece else piece
        escape = b"\\" if plain.endswith(b"\\") else b""
        structure = plain.translate(None, _NOT_STRUCTURE)
        begun = (b'"' if structure.count(b'"') % 2 else b"") + escape
        yield np.frombuffer(_QUOTED.sub(b"", structure).translate(_STEPS), np.int8)


def too_deep(max_depth: int, *, offset: int | None = None) -> LimitExceeded:
    """The error of a text that is nested deeper; `offset` says where."""
    return LimitExceeded(
        f"The JSON is nested too deeply; at most {max_depth} arrays and objects may enclose a value.",
        code="json_too_deep",
        offset=offset,
    )


def _find_depth(text: Buffer, max_depth: int, depth: int) -> int:
    for match in _BRACKET.finditer(text):
        if match[1] is not None:
            depth += 1 if match[1] in b"[{" else -1
        if depth > max_depth:
            return match.start()
    raise AssertionError("called for a text that is not too deep")  # pragma: no cover
