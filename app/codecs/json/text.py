"""JSON text to Python values, strictly as in RFC 8259 and RFC 7493 (I-JSON), within a budget.

The standard library's parser is the one that keeps integer and float tokens apart exactly. What it
lets pass is refused here: duplicate keys, NaN and Infinity, lone surrogates, deep nesting, integers
of thousands of digits. (1e400 becomes an infinite `float`.)
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from ...domain.limits import KIB, MIB, Limits
from ...errors import MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from .bounds import check_depth, take_census, too_deep

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
_LONG_INTEGER: Final = re.compile(rf"{_STRING}|(-?[0-9]{{500,}})", re.DOTALL)
_KEY_OR_BRACKET: Final = re.compile(rf"({_STRING})(\s*:)?|[{{}}\[\]]", re.DOTALL)
#: What Python 3.13 says at a comma before a bracket -> what 3.11 and 3.12 say at the bracket.
_TRAILING_COMMAS: Final = {
    "Illegal trailing comma before end of array": "Expecting value",
    "Illegal trailing comma before end of object": "Expecting property name enclosed in double quotes",
}


#: Characters of a text that is read in less than a tenth of a second.
_LARGE: Final = 4 * MIB
#: What a text inside another format may take.
_METADATA_BYTES: Final = 64 * KIB


class _DuplicateKey(Exception):
    """Raised by a hook of the parser."""


class _NonFiniteToken(Exception):
    """Raised by a hook of the parser."""


@dataclass(frozen=True, slots=True)
class JsonDocument:
    """A parsed text.

    Attributes:
        value: dict, list, str, int, float, bool or None.
        num_bytes: what was charged for it and for the arrays made of it; release it with them.
    """

    value: Any
    num_bytes: int


def parse_json(
    text: Buffer, budget: Budget, *, bare_nonfinite: bool = False, enclosed_by: int = 0
) -> JsonDocument:
    """One JSON text, charged to `budget` before it is parsed, with what it takes meanwhile.

    Args:
        bare_nonfinite: accept the tokens NaN, Infinity and -Infinity.
        enclosed_by: arrays and objects around the text, which count as its own.

    Raises:
        MalformedInput: not strict JSON; `offset` says where.
        LimitExceeded: nested too deeply (`json_too_deep`), or too large for the budget.
        UnprocessableInput: an integer of more digits than Python converts (`integer_too_large`).
    """
    if bytes(text[: len(_BOM)]) == _BOM:
        raise MalformedInput(
            "The text begins with a byte order mark (EF BB BF). Send plain UTF-8 without it.",
            code="byte_order_mark",
            offset=0,
        )
    max_depth = budget.limits.max_json_depth
    census = take_census(text)
    budget.charge(census.num_bytes, "The parsed JSON")
    if census.num_brackets + enclosed_by > max_depth:
        check_depth(text, max_depth, enclosed_by)
    decoded = _decode_utf8(text)
    if "\\u" in decoded:
        _check_surrogates(decoded)
    value = _parse(decoded, max_depth, bare_nonfinite=bare_nonfinite)
    return JsonDocument(value, census.num_bytes)


def parse_metadata(text: Buffer) -> Any:
    """A short JSON text inside another format.

    Raises:
        InputError: as `parse_json`; also where it takes more than 64 KiB.
    """
    return parse_json(text, Budget(Limits(max_decoded_bytes=_METADATA_BYTES))).value


def _decode_utf8(text: Buffer) -> str:
    try:
        return str(text, "utf-8")
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


def _float(digits: str) -> float:
    return float(digits)


def _int(digits: str) -> int:
    return int(digits)


def _decoder(*, bare_nonfinite: bool, large: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_constant=float if bare_nonfinite else _refuse_token,
        # A call for each number, for large texts: other threads run between calls of Python functions, and
        # not while C reads an array of numbers.
        parse_float=_float if large else None,
        parse_int=_int if large else None,
    )


#: By whether bare NaN is accepted, and whether the text is large.
_DECODERS: Final = {
    (bare, large): _decoder(bare_nonfinite=bare, large=large)
    for bare in (False, True)
    for large in (False, True)
}


def _parse(text: str, max_depth: int, *, bare_nonfinite: bool) -> Any:
    try:
        return _DECODERS[bare_nonfinite, len(text) > _LARGE].decode(text)
    except _DuplicateKey:
        raise _duplicate_key(text) from None
    except _NonFiniteToken:
        raise _nonfinite_token(text) from None
    except json.JSONDecodeError as error:
        raise _invalid(text, error) from None
    except ValueError:
        raise _integer_too_large(text) from None
    except RecursionError:
        raise too_deep(max_depth) from None


# The parser's hooks know no offset. What follows runs once, when a text has failed, and finds it.


def _byte_offset(text: str, position: int) -> int:
    return len(text[:position].encode())


def _outside_strings(pattern: re.Pattern[str], text: str) -> tuple[str, int]:
    """The first match of the pattern's group, and its byte offset."""
    for match in pattern.finditer(text):
        if match[1] is not None:
            return match[1], _byte_offset(text, match.start())
    raise AssertionError("called for a text that holds no match")  # pragma: no cover


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
        f'{token} is not JSON. Write "{token}" where a float dtype is declared, or set nonfinite=bare.',
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
    what, position = error.msg.removesuffix(" at") if text.strip() else "the text is empty", error.pos
    if what in _TRAILING_COMMAS:
        what, position = _TRAILING_COMMAS[what], len(text) - len(text[position + 1 :].lstrip())
    return MalformedInput(f"Not JSON: {what}.", code="invalid_json", offset=_byte_offset(text, position))
