"""Values to JSON text: strict JSON, the shortest digits that read back as the same value.

A float of 16 bits or fewer has the digits of the float32 that it is, since most readers have no such float.
The rules are those of "Values out" of the HTTP contract.
"""

from __future__ import annotations

import json
from base64 import standard_b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..domain.dtypes import DTYPES, TEXT, DType
from ..domain.limits import KIB
from ..domain.streams import Buffer
from ..errors import UnprocessableInput
from .json_values import ItemError

__all__ = [
    "PIECE_BYTES",
    "Alphabet",
    "Spelling",
    "b64_text",
    "empty_text",
    "gather",
    "nest",
    "quote",
    "tokens",
]

#: What is sent at a time: uvicorn's own high-water mark is 64 KiB, a syscall is cheap from there on.
PIECE_BYTES: Final = 256 * KIB
#: `[]` repeated more often than this is not an answer but an amplifier (shape [2^40, 0]).
_MAX_EMPTY_LISTS: Final = 65_536

#: Strings with their quotes and escapes; non-ASCII characters as they are.
quote: Final = json.JSONEncoder(ensure_ascii=False).encode


#: Of base64: the standard one, or the web-safe one without padding.
Alphabet = Literal["standard", "websafe"]


class Spelling(Protocol):
    """How values are spelled: the part that the options of tensors and of records share."""

    @property
    def nonfinite(self) -> Literal["string", "null", "error"]: ...
    @property
    def int64(self) -> Literal["number", "string"]: ...
    @property
    def text(self) -> Literal["b64", "utf8"]: ...
    @property
    def b64(self) -> Alphabet: ...


def gather(parts: Iterable[str]) -> Iterator[Buffer]:
    """The text in pieces of at most `PIECE_BYTES`, encoded as UTF-8."""
    pending: list[str] = []
    size = 0
    for part in parts:
        pending.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield from _sliced("".join(pending).encode())
            pending, size = [], 0
    if pending:
        yield from _sliced("".join(pending).encode())


def _sliced(text: bytes) -> Iterator[Buffer]:
    view = memoryview(text)
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


def tokens(values: NDArray[Any] | Sequence[bytes], dtype: DType, spelling: Spelling) -> list[str]:
    """One JSON text for each value.

    Args:
        values: flat, of `dtype.numpy`; for strings a sequence of `bytes`.

    Raises:
        ItemError: a value that has no text under these options.
    """
    if dtype.is_string:
        if dtype is TEXT or spelling.text == "utf8":
            return [_text_token(index, value) for index, value in enumerate(values)]
        encode = _B64[spelling.b64]
        return [f'{{"b64":"{encode(value).decode()}"}}' for value in values]
    array = np.asarray(values)
    if dtype.kind == "bool":
        return ["true" if value else "false" for value in array.tolist()]
    if dtype.is_integer:
        texts = list(map(str, array.tolist()))
        quoted = dtype.itemsize == 8 and spelling.int64 == "string"
        return [f'"{text}"' for text in texts] if quoted else texts
    if dtype.kind == "complex":
        return _complex_tokens(array, dtype, spelling)
    return _float_tokens(array, spelling)


def _encode_websafe(value: bytes) -> bytes:
    """As `tf.io.encode_base64` does: the alphabet of RFC 4648, section 5, without padding."""
    return urlsafe_b64encode(value).rstrip(b"=")


_B64: Final = {"standard": standard_b64encode, "websafe": _encode_websafe}


def _text_token(index: int, value: bytes) -> str:
    try:
        return quote(value.decode())
    except UnicodeDecodeError:
        raise ItemError(
            index, 'A string is not valid UTF-8. Leave out ?bytes=utf8 to get {"b64": ...}.', "invalid_utf8"
        ) from None


def _complex_tokens(array: NDArray[Any], dtype: DType, spelling: Spelling) -> list[str]:
    part = DTYPES["float32" if dtype.itemsize == 8 else "float64"]
    try:
        texts = _float_tokens(array.view(part.numpy), spelling)
    except ItemError as error:
        raise ItemError(error.index // 2, error.detail, error.code) from None
    return [f"[{re},{im}]" for re, im in zip(texts[::2], texts[1::2], strict=True)]


def _float_tokens(values: NDArray[Any], spelling: Spelling) -> list[str]:
    # Overflow is looked for, and a signalling NaN is a value like any other: neither is worth a warning.
    with np.errstate(over="ignore", invalid="ignore"):
        texts = _shortest_texts(values.astype(np.float32) if values.dtype.itemsize < 4 else values)
        nonfinite = np.flatnonzero(~np.isfinite(values)).tolist()
    for index in nonfinite:
        if spelling.nonfinite == "error":
            raise ItemError(
                index,
                "NaN and infinities are not JSON numbers. Use ?nonfinite=string or ?nonfinite=null.",
                "nonfinite_value",
            )
        texts[index] = "null" if spelling.nonfinite == "null" else _WORDS[texts[index]]
    return texts


_WORDS: Final = {"nan": '"NaN"', "-nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def _shortest_texts(values: NDArray[Any]) -> list[str]:
    # Arrow prints the shortest digits of a float32 or float64 (double-conversion), four times faster
    # than repr. It prints 1.0 as 1, which would read back as an integer, and -0.0 as -0.
    texts = pc.cast(pa.array(values), pa.string())
    integral = pc.match_substring_regex(texts, "^-?[0-9]+$")
    texts = pc.if_else(integral, pc.binary_join_element_wise(texts, pa.scalar(".0"), ""), texts)
    found: list[str] = texts.to_pylist()
    if values.dtype.itemsize == 4:
        _survive_float64(values, texts, found)
    return found


def _survive_float64(values: NDArray[Any], texts: Any, found: list[str]) -> None:
    # Readers parse into a float64 and round that. Twice rounded, the shortest digits of a few float32
    # (7.038531e-26) arrive at a neighbour; all digits of the float64 do not.
    read_back = pc.cast(texts, pa.float64()).to_numpy().astype(np.float32)
    for index in np.flatnonzero((read_back != values) & np.isfinite(values)).tolist():
        found[index] = repr(float(values[index]))


def nest(texts: list[str], shape: Sequence[int], start: int = 0) -> list[str]:
    """The texts with the brackets of `shape` put before the first and behind the last of each list.

    Joined by commas they are nested arrays, repeated as often as `shape` fits into `texts`.

    Args:
        shape: no dimension is 0.
        start: the row-major index of the first text.
    """
    size = 1
    for dim in reversed(shape):
        size *= dim
        opening = slice(-start % size, None, size)
        closing = slice((-1 - start) % size, None, size)
        texts[opening] = ["[" + text for text in texts[opening]]
        texts[closing] = [text + "]" for text in texts[closing]]
    return texts


def empty_text(shape: Sequence[int]) -> str:
    """The nested arrays of a shape with a dimension of 0.

    Raises:
        UnprocessableInput: `shape_too_large`: that would be a great many empty arrays.
    """
    outer = list(shape[: list(shape).index(0)])
    text, count = "[]", 1
    for dim in reversed(outer):
        count *= dim
        if count > _MAX_EMPTY_LISTS:
            raise UnprocessableInput(
                f"Shape {list(shape)} is more than {_MAX_EMPTY_LISTS} empty arrays; use the flat layout.",
                code="shape_too_large",
            )
        text = "[" + ",".join([text] * dim) + "]"
    return text


def b64_text(buffers: Iterable[Buffer], alphabet: Alphabet = "standard") -> Iterator[str]:
    """The base64 of all buffers as one text, in pieces of at most `PIECE_BYTES`."""
    encode = _B64[alphabet]
    step = PIECE_BYTES // 4 * 3
    rest = b""
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        while view:
            piece, view = rest + view[: step - len(rest)], view[step - len(rest) :]
            whole = len(piece) // 3 * 3
            rest = piece[whole:]
            yield encode(piece[:whole]).decode()
    if rest:
        yield encode(rest).decode()
