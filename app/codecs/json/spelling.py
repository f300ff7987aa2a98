"""Numbers and strings to JSON text, without an object for each: strict JSON, the shortest digits.

A float of 16 bits or fewer has the digits of the float32 that it is, since most readers have no such float.
The rules are those of "Values out" of the HTTP contract. orjson spells the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from ...domain.dtypes import DTYPES, TEXT, DType
from ...domain.tensor import num_elements
from ...runtime.streams import Buffer
from .. import kernels
from .out import Alphabet
from .texts import Bytes, Ints, Texts, joined, nested, text_array
from .values import ItemError

__all__ = ["Spelling", "Strings", "integer_texts", "joined_values", "strings_from", "value_texts"]

#: numpy's dtypes that orjson spells.
_SPELLED: Final = frozenset("bBhHiIlLqQfd")
#: numpy holds 64 dimensions; more brackets than these are put around afterwards.
_MAX_NESTED: Final = 32
#: The one float32 (with its negative) whose shortest digits, read into a float64 and rounded from there,
#: become a neighbour. That there is no other was found by trying all.
_TWICE_ROUNDED: Final = 0x15AE43FD
_WORDS: Final = {"nan": b'"NaN"', "inf": b'"Infinity"', "-inf": b'"-Infinity"'}

_STANDARD: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_WEBSAFE: Final = _STANDARD.replace(b"+/", b"-_")


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


@dataclass(frozen=True, slots=True, eq=False)
class Strings:
    """Byte strings side by side: each from one offset to the next."""

    data: Bytes
    offsets: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1


def strings_from(values: Sequence[bytes]) -> Strings:
    """The strings of a sequence, copied."""
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    return Strings(text_array(b"".join(values)), offsets)


def joined_values(
    values: NDArray[Any] | Strings, dtype: DType, spelling: Spelling, shape: Sequence[int] = ()
) -> Buffer:
    """As `value_texts`, with commas between them.

    Raises:
        ItemError: as `value_texts`.
    """
    if isinstance(values, Strings) or _is_quoted(dtype, spelling) or len(shape) >= _MAX_NESTED:
        return joined(value_texts(values, dtype, spelling, shape))
    return memoryview(_number_text(values, dtype, spelling, shape))[1:-1]


def value_texts(
    values: NDArray[Any] | Strings, dtype: DType, spelling: Spelling, shape: Sequence[int] = ()
) -> Texts:
    """One text for each value, or for each `shape` of them, as nested arrays.

    Args:
        values: flat, of `dtype.numpy`; Strings where `dtype` is a string.
        shape: no dimension is 0.

    Raises:
        ItemError: a value that has no text under these options, by its flat index.
    """
    if isinstance(values, Strings):
        return nested(_string_texts(values, dtype, spelling), shape)
    if _is_quoted(dtype, spelling):
        return nested(_quoted(_found(_number_text(values, dtype, spelling, ()), len(values), 0)), shape)
    if len(shape) >= _MAX_NESTED:
        return nested(value_texts(values, dtype, spelling), shape)
    text = _number_text(values, dtype, spelling, shape)
    arrays = (*shape, 2) if dtype.kind == "complex" else shape
    return _found(text, len(values) // num_elements(shape), _num_closings(arrays))


def integer_texts(values: NDArray[np.int64], shape: Sequence[int]) -> Texts:
    """One text for each `shape` of integers that are never strings: those that say where, and how many."""
    return _found(_dumps(values, shape), len(values) // num_elements(shape), _num_closings(shape))


def _num_closings(shape: Sequence[int]) -> int:
    return sum(num_elements(shape[:axis]) for axis in range(len(shape)))


def _is_quoted(dtype: DType, spelling: Spelling) -> bool:
    return dtype.is_integer and dtype.itemsize == 8 and spelling.int64 == "string"


def _found(text: bytes, num_items: int, closings: int) -> Texts:
    """The items of an array of numbers, or of arrays with so many closing brackets each."""
    begins, ends = np.empty(num_items, np.int64), np.empty(num_items, np.int64)
    data = text_array(text)[1:-1]
    if closings:
        kernels.load().find_arrays(data, closings, begins, ends)
    elif num_items:
        kernels.load().find_scalars(data, begins, ends)
    return Texts(data, begins, ends)


def _quoted(texts: Texts) -> Texts:
    """Numbers that commas part, as strings."""
    data = b'"' + texts.data.tobytes().replace(b",", b'","') + b'"'
    shift = np.arange(len(texts), dtype=np.int64) * 2
    return Texts(text_array(data), texts.begins + shift, texts.ends + shift + 2)


def _number_text(values: NDArray[Any], dtype: DType, spelling: Spelling, shape: Sequence[int]) -> bytes:
    """All of them in one array."""
    if dtype.kind == "bool":
        # A byte that is neither 0 nor 1 is no bool to orjson.
        return _dumps(values.view(np.uint8) != 0, shape)
    if dtype.kind == "complex":
        part = DTYPES["float32" if dtype.itemsize == 8 else "float64"]
        try:
            return _float_text(values.view(part.numpy), spelling, (*shape, 2))
        except ItemError as error:
            raise ItemError(error.index // 2, error.detail, error.code) from None
    if dtype.is_float:
        return _float_text(values, spelling, shape)
    return _dumps(values if values.dtype.char in _SPELLED else values.astype(np.int64), shape)


def _dumps(values: NDArray[Any], shape: Sequence[int]) -> bytes:
    """One array around them all."""
    aligned = np.require(values, requirements=["C", "ALIGNED"])
    return orjson.dumps(aligned.reshape(-1, *shape), option=orjson.OPT_SERIALIZE_NUMPY)


def _float_text(values: NDArray[Any], spelling: Spelling, shape: Sequence[int]) -> bytes:
    if values.dtype.itemsize < 4:
        # Nothing overflows, and a signalling NaN is a value like any other.
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.astype(np.float32)
    finite = np.isfinite(values)
    all_finite = bool(finite.all())
    if not all_finite and spelling.nonfinite == "error":
        raise ItemError(
            int(np.argmin(finite)),
            "NaN and infinities are not JSON numbers. Use ?nonfinite=string or ?nonfinite=null.",
            "nonfinite_value",
        )
    text = _dumps(values, shape)
    if values.dtype.itemsize == 4:
        text = _survive_float64(values, text)
    if all_finite or spelling.nonfinite == "null":
        return text
    return _with_words(text, values[~finite])


def _survive_float64(values: NDArray[Any], text: bytes) -> bytes:
    # Readers parse into a float64 and round that.
    if not np.any((values.view(np.uint32) & np.uint32(0x7FFFFFFF)) == _TWICE_ROUNDED):
        return text
    exact = float(np.array(_TWICE_ROUNDED, np.uint32).view(np.float32))
    return text.replace(b"7.038531e-26", repr(exact).encode())


def _with_words(text: bytes, nonfinite: NDArray[Any]) -> bytes:
    """Each null replaced by the name of the value that it stands for."""
    if np.isnan(nonfinite).all() or (nonfinite == nonfinite[0]).all():
        return text.replace(b"null", _WORDS[str(nonfinite[0].item())])
    pieces = text.split(b"null")
    names = [_WORDS[str(value)] for value in nonfinite.tolist()]
    return b"".join(chain.from_iterable(zip(pieces, [*names, b""], strict=True)))


def _string_texts(values: Strings, dtype: DType, spelling: Spelling) -> Texts:
    if dtype is TEXT or spelling.text == "utf8":
        return _quoted_strings(values)
    return _b64_strings(values, spelling)


def _quoted_strings(values: Strings) -> Texts:
    size = kernels.load().quoted_size(values.data, values.offsets)
    if size < 0:
        raise ItemError(
            -1 - size,
            'A string is not valid UTF-8. Leave out ?bytes=utf8 to get {"b64": ...}.',
            "invalid_utf8",
        )
    texts = _room(size, len(values))
    kernels.load().write_quoted(values.data, values.offsets, texts.data, texts.begins, texts.ends)
    return Texts(texts.data[: max(size - 1, 0)], texts.begins, texts.ends)


def _b64_strings(values: Strings, spelling: Spelling) -> Texts:
    """In the standard alphabet, or as `tf.io.encode_base64`: RFC 4648, section 5, without padding."""
    websafe = spelling.b64 == "websafe"
    opening, closing = text_array(b'{"b64":"'), text_array(b'"}')
    num_bytes = int(values.offsets[-1] - values.offsets[0])
    framing = len(opening) + len(closing) + 4 + 1
    texts = _room(num_bytes // 3 * 4 + framing * len(values), len(values))
    size = kernels.load().write_b64(
        opening,
        values.data,
        values.offsets,
        text_array(_WEBSAFE if websafe else _STANDARD),
        text_array(b"" if websafe else b"="),
        closing,
        texts.data,
        texts.begins,
        texts.ends,
    )
    return Texts(texts.data[:size], texts.begins, texts.ends)


def _room(num_bytes: int, num_items: int) -> Texts:
    begins, ends = np.empty(num_items, np.int64), np.empty(num_items, np.int64)
    return Texts(np.empty(num_bytes, np.uint8), begins, ends)
