"""Numbers and strings to JSON text, without an object for each: strict JSON, the shortest digits.

orjson spells the numbers. A float of 16 bits or fewer has the digits of the float32 that it is, since most
readers have no such float. The rules are those of "Values out" of the HTTP contract.
"""

from __future__ import annotations

from base64 import standard_b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Literal, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from ...domain.dtypes import DTYPES, TEXT, DType
from ...domain.tensor import num_elements
from ...runtime.streams import Buffer
from .. import kernels
from ..columns import Ints, Strings, even_bounds
from .texts import PIECE_BYTES, Texts, byte_array, empty_lists, in_lists, join, repeat
from .values import ItemError

#: Of base64: the standard one, or the web-safe one without padding.
Alphabet = Literal["standard", "websafe"]

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


_B64_OPENING: Final = b'{"b64":"'
_B64_CLOSING: Final = b'"}'
#: Bytes around the base64 of a string at most, with the last four digits and a comma.
_B64_FRAMING: Final = len(_B64_OPENING) + len(_B64_CLOSING) + 4 + 1


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


def nested_texts(
    values: NDArray[Any] | Strings,
    dtype: DType,
    spelling: Spelling,
    shape: Sequence[int],
    levels: Sequence[Ints],
    num_texts: int,
) -> Texts:
    """`num_texts` texts, each of values in arrays of `shape`, in lists of any length.

    Args:
        values: as of `value_texts`.
        shape: of the innermost items; a dimension may be 0.
        levels: where the lists of each level are cut, outermost first.

    Raises:
        ItemError: as `value_texts`.
        UnprocessableInput: too many empty arrays (`shape_too_large`).
    """
    if 0 in shape:
        texts = repeat(empty_lists(shape), int(levels[-1][-1]) if levels else num_texts)
    else:
        texts = value_texts(values, dtype, spelling, shape)
    for splits in reversed(levels):
        texts = in_lists(texts, splits)
    return texts


def joined_values(
    values: NDArray[Any] | Strings, dtype: DType, spelling: Spelling, shape: Sequence[int] = ()
) -> Buffer:
    """As `value_texts`, with commas between them.

    Raises:
        ItemError: as `value_texts`.
    """
    if isinstance(values, Strings) or _is_quoted(dtype, spelling) or len(shape) >= _MAX_NESTED:
        return join(value_texts(values, dtype, spelling, shape))
    return memoryview(_spell(values, dtype, spelling, shape))[1:-1]


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
        texts = _string_texts(values, dtype, spelling)
    elif _is_quoted(dtype, spelling):
        texts = _quote(_find(_spell(values, dtype, spelling, ()), len(values), ()))
    elif len(shape) >= _MAX_NESTED:
        texts = value_texts(values, dtype, spelling)
    else:
        parts = (*shape, 2) if dtype.kind == "complex" else shape
        return _find(_spell(values, dtype, spelling, shape), len(values) // num_elements(shape), parts)
    for dim in reversed(shape):
        texts = in_lists(texts, even_bounds(len(texts) // dim, dim))
    return texts


def integer_texts(values: NDArray[np.int64], shape: Sequence[int]) -> Texts:
    """One text for each `shape` of integers that are never strings: those that say where, and how many."""
    return _find(_dump(values, shape), len(values) // num_elements(shape), shape)


def _is_quoted(dtype: DType, spelling: Spelling) -> bool:
    return dtype.is_integer and dtype.itemsize == 8 and spelling.int64 == "string"


def _find(text: bytes, num_items: int, shape: Sequence[int]) -> Texts:
    """The items of an array of numbers, or of arrays of `shape`."""
    closings = sum(num_elements(shape[:axis]) for axis in range(len(shape)))
    begins, ends = np.empty(num_items, np.int64), np.empty(num_items, np.int64)
    data = byte_array(text)[1:-1]
    if closings:
        kernels.load().find_arrays(data, closings, begins, ends)
    elif num_items:
        kernels.load().find_scalars(data, begins, ends)
    return Texts(data, begins, ends)


def _quote(texts: Texts) -> Texts:
    """Numbers that commas part, as strings."""
    data = b'"' + texts.data.tobytes().replace(b",", b'","') + b'"'
    shift = even_bounds(len(texts) - 1, 2)
    return Texts(byte_array(data), texts.begins + shift, texts.ends + shift + 2)


def _spell(values: NDArray[Any], dtype: DType, spelling: Spelling, shape: Sequence[int]) -> bytes:
    """All numbers in one array of arrays of `shape`."""
    if dtype.kind == "bool":
        # A byte that is neither 0 nor 1 is no bool to orjson.
        return _dump(values.view(np.uint8) != 0, shape)
    if dtype.kind == "complex":
        part = DTYPES["float32" if dtype.itemsize == 8 else "float64"]
        try:
            return _spell_floats(values.view(part.numpy), spelling, (*shape, 2))
        except ItemError as error:
            raise ItemError(error.index // 2, error.detail, error.code) from None
    if dtype.is_float:
        return _spell_floats(values, spelling, shape)
    return _dump(values if values.dtype.char in _SPELLED else values.astype(np.int64), shape)


def _dump(values: NDArray[Any], shape: Sequence[int]) -> bytes:
    aligned = np.require(values, requirements=["C", "ALIGNED"])
    return orjson.dumps(aligned.reshape(-1, *shape), option=orjson.OPT_SERIALIZE_NUMPY)


def _spell_floats(values: NDArray[Any], spelling: Spelling, shape: Sequence[int]) -> bytes:
    if values.dtype.itemsize < 4:
        # Nothing overflows, and a signalling NaN is a value like any other.
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.astype(np.float32)
    finite = np.isfinite(values)
    all_finite = bool(finite.all())
    if not all_finite and spelling.nonfinite == "error":
        raise ItemError(
            int(np.argmin(finite)),
            "NaN and infinities are not JSON numbers. Use nonfinite=string or nonfinite=null.",
            "nonfinite_value",
        )
    text = _dump(values, shape)
    if values.dtype.itemsize == 4:
        text = _survive_float64(values, text)
    if all_finite or spelling.nonfinite == "null":
        return text
    return _insert_words(text, values[~finite])


def _survive_float64(values: NDArray[Any], text: bytes) -> bytes:
    # Readers parse into a float64 and round that.
    if not np.any((values.view(np.uint32) & np.uint32(0x7FFFFFFF)) == _TWICE_ROUNDED):
        return text
    exact = float(np.array(_TWICE_ROUNDED, np.uint32).view(np.float32))
    return text.replace(b"7.038531e-26", repr(exact).encode())


def _insert_words(text: bytes, nonfinite: NDArray[Any]) -> bytes:
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


def strings_bytes(values: Strings, dtype: DType, spelling: Spelling) -> int:
    """How much text the strings make."""
    if dtype is TEXT or spelling.text == "utf8":
        return abs(kernels.load().quoted_size(values.data, values.offsets))
    return int(values.offsets[-1] - values.offsets[0]) // 3 * 4 + _B64_FRAMING * len(values)


def _quoted_strings(values: Strings) -> Texts:
    size = kernels.load().quoted_size(values.data, values.offsets)
    if size < 0:
        raise ItemError(
            -1 - size,
            'A string is not valid UTF-8. Leave out bytes=utf8 to get {"b64": ...}.',
            "invalid_utf8",
        )
    texts = Texts.allocate(size, len(values))
    kernels.load().write_quoted(values.data, values.offsets, texts.data, texts.begins, texts.ends)
    return Texts(texts.data[: max(size - 1, 0)], texts.begins, texts.ends)


def _b64_strings(values: Strings, spelling: Spelling) -> Texts:
    """In the standard alphabet, or as `tf.io.encode_base64`: RFC 4648, section 5, without padding."""
    websafe = spelling.b64 == "websafe"
    opening, closing = byte_array(_B64_OPENING), byte_array(_B64_CLOSING)
    num_bytes = int(values.offsets[-1] - values.offsets[0])
    texts = Texts.allocate(num_bytes // 3 * 4 + _B64_FRAMING * len(values), len(values))
    size = kernels.load().write_b64(
        opening,
        values.data,
        values.offsets,
        byte_array(_WEBSAFE if websafe else _STANDARD),
        byte_array(b"" if websafe else b"="),
        closing,
        texts.data,
        texts.begins,
        texts.ends,
    )
    return Texts(texts.data[:size], texts.begins, texts.ends)


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
