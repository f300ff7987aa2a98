"""Values in JSON that was stored: of the type that was written, since what lies there may be damaged."""

from __future__ import annotations

import re
from typing import Final

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


def count(value: object) -> int:
    """`value`, if it can count something.

    Raises:
        ValueError: it cannot.
    """
    if type(value) is not int or value < 0:
        raise ValueError("not a count")
    return value


def text(value: object) -> str:
    """`value`, if it is a string.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not str:
        raise ValueError("not a string")
    return value


def digest(value: object) -> str:
    """`value`, if it is a SHA-256 in hex.

    Raises:
        ValueError: it is none.
    """
    if _SHA256.fullmatch(text(value)) is None:
        raise ValueError("not a SHA-256")
    return text(value)
