"""JSON text to Python values, strictly as in RFC 8259 and RFC 7493 (I-JSON), within a budget.

The standard library's parser is the one that keeps integer and float tokens apart exactly. What it
lets pass is refused here: duplicate keys, NaN and Infinity, lone surrogates, deep nesting, integers
of thousands of digits. (1e400 becomes an infinite `float`; only a `NonFinite` is a real infinity.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..domain.limits import MIB, Budget
from ..domain.streams import ByteStream, read_all
from ..errors import LimitExceeded, MalformedInput, UnprocessableInput

__all__ = ["JsonDocument", "NegativeZero", "NonFinite", "parse_body", "parse_json", "read_json"]

_BOM: Final = b"\xef\xbb\xbf"
#: Nothing is given back that was matched: of each repetition that can be, `re` keeps more than 100 bytes.
_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'

#: A pair of surrogates, a lone one (the group), any other escape.
_SURROGATES: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\."
)
_NON_FINITE_TOKEN: Final = re.compile(rf"{_STRING}|(NaN|-?Infinity)", re.DOTALL)
#: Also matches inside strings and in `1e-0`, which costs such a text some speed and nothing else.
_NEGATIVE_ZERO_TOKEN: Final = re.compile(r"-0(?![0-9.eE])")
_LONG_INTEGER: Final = re.compile(rf"{_STRING}|(-?[0-9]{{500,}})", re.DOTALL)
_KEY_OR_BRACKET: Final = re.compile(rf"({_STRING})(\s*:)?|[{{}}\[\]]", re.DOTALL)

#: Cuts any text as `_check_depth` does: an escape is skipped outside strings too, and a string that does
#: not end takes all that follows.
_BRACKET: Final = re.compile(rf"{_STRING}?|\\.|([\[{{\]}}])".encode(), re.DOTALL)

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


#: Characters of a text that is read in less than a tenth of a second.
_LARGE: Final = 4 * MIB


class NonFinite(float):
    """NaN or an infinity that was written as such, unlike a decimal that overflowed."""

    __slots__ = ()


class NegativeZero(int):
    """The integer token `-0`: 0 among integers, -0.0 among floats (Go writes a float's -0.0 so)."""

    __slots__ = ()


class _DuplicateKey(Exception):
    """Raised by a hook of the parser."""


class _NonFiniteToken(Exception):
    """Raised by a hook of the parser."""


@dataclass(frozen=True, slots=True)
class JsonDocument:
    """A parsed text.

    Attributes:
        value: dict, list, str, int, float, bool or None; `NonFinite` for bare NaN and Infinity,
            `NegativeZero` for -0.
        num_bytes: what was charged for it and for the arrays made of it; release it with them.
    """

    value: Any
    num_bytes: int


def read_json(source: ByteStream, budget: Budget, *, bare_nonfinite: bool = False) -> JsonDocument:
    """All of `source` as one JSON text; see `parse_json`.

    Raises:
        LimitExceeded: larger than the budget allows.
    """
    return parse_body(read_all(source, budget, "The JSON body"), budget, bare_nonfinite=bare_nonfinite)


def parse_body(body: memoryview, budget: Budget, *, bare_nonfinite: bool = False) -> JsonDocument:
    """A whole body, charged to `budget` as it was read; that charge is released.

    Raises:
        InputError: as `parse_json`.
    """
    num_bytes = len(body)
    budget.charge(num_bytes, "The JSON body")
    text = bytes(body)
    del body
    document = parse_json(text, budget, bare_nonfinite=bare_nonfinite)
    budget.release(2 * num_bytes)
    return document


def parse_json(text: bytes, budget: Budget, *, bare_nonfinite: bool = False) -> JsonDocument:
    """One JSON text, charged to `budget` before it is parsed.

    Args:
        bare_nonfinite: accept the tokens NaN, Infinity and -Infinity.

    Raises:
        MalformedInput: not strict JSON; `offset` says where.
        LimitExceeded: nested too deeply (`json_too_deep`), or too large for the budget.
        UnprocessableInput: an integer of more digits than Python converts (`integer_too_large`).
    """
    if text.startswith(_BOM):
        raise MalformedInput(
            "The text begins with a byte order mark (EF BB BF). Send plain UTF-8 without it.",
            code="byte_order_mark",
            offset=0,
        )
    lists, dicts = text.count(b"["), text.count(b"{")
    num_bytes = _estimate(text, lists, dicts)
    budget.charge(num_bytes, "The parsed JSON")
    if lists + dicts > budget.limits.max_json_depth:
        _check_depth(text, budget.limits.max_json_depth)
    decoded = _decode_utf8(text)
    if "\\u" in decoded:
        _check_surrogates(decoded)
    value = _parse(decoded, budget.limits.max_json_depth, bare_nonfinite=bare_nonfinite)
    return JsonDocument(value, num_bytes)


def _estimate(text: bytes, lists: int, dicts: int) -> int:
    # One non-Latin character widens the whole str to 2 or 4 bytes a character; an escape hides it.
    width = 1 if text.isascii() and b"\\u" not in text else 4
    return (
        _BYTES_A_VALUE * (text.count(b",") + 1)
        + _BYTES_A_LIST * lists
        + _BYTES_A_DICT * dicts
        + _BYTES_A_MEMBER * text.count(b":")
        + _BYTES_A_STRING * (text.count(b'"') // 2)
        + len(text) * (2 * width + 1)
    )


def _check_depth(text: bytes, max_depth: int) -> None:
    # Ahead of the parser, whose own bound is the recursion limit: it differs with the caller's stack.
    depth = 0
    for steps in _nesting_steps(text):
        depths = depth + np.cumsum(steps, dtype=np.int64)
        if len(depths) and int(depths.max()) > max_depth:
            raise _too_deep(max_depth, offset=_find_depth(text, max_depth))
        depth = int(depths[-1]) if len(depths) else depth


def _nesting_steps(text: bytes) -> Iterator[NDArray[np.int8]]:
    """+1 and -1 for the brackets outside strings; in pieces, since no other thread runs during a `sub`."""
    begun = b""  # what the piece before left open: a string, an escape
    for start in range(0, len(text), MIB):
        piece = begun + text[start : start + MIB]
        plain = _ESCAPE.sub(b"", piece) if b"\\" in piece else piece
        escape = b"\\" if plain.endswith(b"\\") else b""
        structure = plain.translate(None, _NOT_STRUCTURE)
        begun = (b'"' if structure.count(b'"') % 2 else b"") + escape
        yield np.frombuffer(_QUOTED.sub(b"", structure).translate(_STEPS), np.int8)


def _too_deep(max_depth: int, *, offset: int | None = None) -> LimitExceeded:
    return LimitExceeded(
        f"The JSON is nested too deeply; at most {max_depth} arrays and objects may enclose a value.",
        code="json_too_deep",
        offset=offset,
    )


def _decode_utf8(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise MalformedInput(
            f"The byte 0x{text[error.start]:02x} is not valid UTF-8 here. Send JSON as UTF-8; "
            'bytes that are not text go as {"b64": ...}.',
            code="invalid_utf8",
            offset=error.start,
        ) from None


def _check_surrogates(text: str) -> None:
    for match in _SURROGATES.finditer(text):
        if match[1] is not None:
            raise MalformedInput(
                f"The escape {match[1]} is half of a surrogate pair and stands alone.",
                code="lone_surrogate",
                offset=_byte_offset(text, match.start()),
            )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _DuplicateKey
    return members


def _refuse_token(_: str) -> NoReturn:
    raise _NonFiniteToken


_NEGATIVE_ZERO: Final = NegativeZero()


def _signed_integer(digits: str) -> int:
    return _NEGATIVE_ZERO if digits == "-0" else int(digits)


def _float(digits: str) -> float:
    return float(digits)


def _int(digits: str) -> int:
    return int(digits)


def _decoder(*, bare_nonfinite: bool, negative_zero: bool, large: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_constant=NonFinite if bare_nonfinite else _refuse_token,
        # A call for each number: only for texts that have such a token, and for large ones, since other
        # threads run between calls of Python functions, and not while C reads an array of numbers.
        parse_float=_float if large else None,
        parse_int=_signed_integer if negative_zero else _int if large else None,
    )


#: By whether bare NaN is accepted, whether the text may hold the token -0, and whether it is large.
_DECODERS: Final = {
    (bare, negative, large): _decoder(bare_nonfinite=bare, negative_zero=negative, large=large)
    for bare in (False, True)
    for negative in (False, True)
    for large in (False, True)
}


def _parse(text: str, max_depth: int, *, bare_nonfinite: bool) -> Any:
    negative_zero = "-" in text and _NEGATIVE_ZERO_TOKEN.search(text) is not None
    try:
        return _DECODERS[bare_nonfinite, negative_zero, len(text) > _LARGE].decode(text)
    except _DuplicateKey:
        raise _duplicate_key(text) from None
    except _NonFiniteToken:
        raise _nonfinite_token(text) from None
    except json.JSONDecodeError as error:
        raise _invalid(text, error) from None
    except ValueError:
        raise _integer_too_large(text) from None
    except RecursionError:
        raise _too_deep(max_depth) from None


# The parser's hooks know no offset. What follows runs once, when a text has failed, and finds it.


def _byte_offset(text: str, position: int) -> int:
    return len(text[:position].encode())


def _outside_strings(pattern: re.Pattern[str], text: str) -> tuple[str, int]:
    """The first match of the pattern's group, and its byte offset."""
    for match in pattern.finditer(text):
        if match[1] is not None:
            return match[1], _byte_offset(text, match.start())
    raise AssertionError("called for a text that holds no match")  # pragma: no cover


def _find_depth(text: bytes, max_depth: int) -> int:
    depth = 0
    for match in _BRACKET.finditer(text):
        if match[1] is not None:
            depth += 1 if match[1] in b"[{" else -1
        if depth > max_depth:
            return match.start()
    raise AssertionError("called for a text that is not too deep")  # pragma: no cover


def _duplicate_key(text: str) -> MalformedInput:
    key, position = _find_duplicate(text)
    return MalformedInput(
        f"The key {key[:64]!r} occurs twice in one object; which value counts would be a guess.",
        code="duplicate_key",
        offset=_byte_offset(text, position),
    )


def _find_duplicate(text: str) -> tuple[str, int]:
    open_keys: list[set[str]] = []
    for match in _KEY_OR_BRACKET.finditer(text):
        if match[2] is not None:
            key = json.loads(match[1])
            if key in open_keys[-1]:
                return key, match.start()
            open_keys[-1].add(key)
        elif match[0] in "[{":
            open_keys.append(set())
        elif match[0] in "]}":
            open_keys.pop()
    raise AssertionError("called for a text without duplicates")  # pragma: no cover


def _nonfinite_token(text: str) -> MalformedInput:
    token, offset = _outside_strings(_NON_FINITE_TOKEN, text)
    return MalformedInput(
        f'{token} is not JSON. Write "{token}" where a float dtype is declared, or set ?nonfinite=bare.',
        code="nonfinite_token",
        offset=offset,
    )


def _integer_too_large(text: str) -> UnprocessableInput:
    token, offset = _outside_strings(_LONG_INTEGER, text)
    return UnprocessableInput(
        f"An integer of {len(token.lstrip('-'))} digits; no dtype holds more than 20.",
        code="integer_too_large",
        offset=offset,
    )


def _invalid(text: str, error: json.JSONDecodeError) -> MalformedInput:
    what = error.msg.removesuffix(" at") if text.strip() else "the text is empty"
    return MalformedInput(f"Not JSON: {what}.", code="invalid_json", offset=_byte_offset(text, error.pos))
