"""JSON text in pieces on its way out, and the few parts of it that are no values."""

from __future__ import annotations

import json
from base64 import standard_b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from ...domain.limits import KIB
from ...errors import UnprocessableInput
from ...runtime.streams import Buffer

__all__ = ["PIECE_BYTES", "Alphabet", "b64_text", "empty_text", "gather", "num_brackets", "quote"]

#: What is sent at a time: uvicorn's own high-water mark is 64 KiB, a syscall is cheap from there on.
PIECE_BYTES: Final = 256 * KIB
#: `[]` repeated more often than this is not an answer but an amplifier (shape [2^40, 0]).
_MAX_EMPTY_LISTS: Final = 65_536

#: Strings with their quotes and escapes; non-ASCII characters as they are.
quote: Final = json.JSONEncoder(ensure_ascii=False).encode

#: Of base64: the standard one, or the web-safe one without padding.
Alphabet = Literal["standard", "websafe"]


def gather(parts: Iterable[str | Buffer]) -> Iterator[Buffer]:
    """The text in pieces of at most `PIECE_BYTES`, in UTF-8; parts that are bytes are so already."""
    pending: list[Buffer] = []
    size = 0
    for part in parts:
        text = part.encode() if isinstance(part, str) else part
        if size + len(text) > PIECE_BYTES and size:
            yield from _sliced(b"".join(pending))
            pending, size = [], 0
        if len(text) >= PIECE_BYTES:
            yield from _sliced(text)
        else:
            pending.append(text)
            size += len(text)
    if pending:
        yield from _sliced(b"".join(pending))


def _sliced(text: Buffer) -> Iterator[Buffer]:
    view = memoryview(text)
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


def num_brackets(shape: Sequence[int], index: int) -> int:
    """How many of the nested arrays of `shape` begin at an element, or end before it.

    Args:
        shape: no dimension is 0.
        index: row-major.
    """
    size = 1
    for depth, dim in enumerate(reversed(shape)):
        size *= dim
        if index % size:
            return depth
    return len(shape)


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


def _encode_websafe(value: Buffer) -> bytes:
    """As `tf.io.encode_base64` does: the alphabet of RFC 4648, section 5, without padding."""
    return urlsafe_b64encode(value).rstrip(b"=")


_B64: Final = {"standard": standard_b64encode, "websafe": _encode_websafe}
