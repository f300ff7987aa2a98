"""Bytes in JSON, as the base64 of `{"b64": ...}`."""

from __future__ import annotations

import binascii
import re
from contextlib import suppress
from typing import Final

from ...errors import MalformedInput

_URL_SAFE: Final = str.maketrans("-_", "+/")
_ALPHABET: Final = re.compile(r"[A-Za-z0-9+/]*", re.ASCII)
#: The last digit of 2 or 3 must leave the bits unset that belong to no byte (RFC 4648, 3.5).
_LAST_DIGITS: Final = {0: None, 2: frozenset("AQgw"), 3: frozenset("AEIMQUYcgkosw048")}


def decode_b64(text: object) -> bytes:
    """The bytes of the member of `{"b64": ...}`: either alphabet, padding optional, else strict.

    Source: RFC 4648, sections 4 and 5.

    Raises:
        MalformedInput: `invalid_base64`.
    """
    if not isinstance(text, str):
        raise MalformedInput('{"b64": ...} takes a string of base64.', code="invalid_base64")
    digits = text.rstrip("=")
    if "+" not in digits and "/" not in digits:
        digits = digits.translate(_URL_SAFE)
    last = _LAST_DIGITS.get(len(digits) % 4, frozenset())
    padding = -len(digits) % 4
    is_padded = len(text) - len(digits) in (0, padding)
    if is_padded and (last is None or digits[-1] in last):
        with suppress(ValueError):  # binascii.Error, or characters beyond ASCII
            return binascii.a2b_base64(digits + "=" * padding, strict_mode=True)
    raise MalformedInput(
        f'The base64 in {{"b64": ...}} {_b64_fault(digits, is_padded=is_padded)}.', code="invalid_base64"
    )


def _b64_fault(digits: str, *, is_padded: bool) -> str:
    # The alphabet first: a stray character shifts all that the other two count.
    if not _ALPHABET.fullmatch(digits):
        return "has a character of neither alphabet, or of both"
    return "ends inside a byte" if is_padded else "has the wrong padding"
