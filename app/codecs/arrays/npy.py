"""NPY: one array in numpy's own format (`numpy.lib.format`, versions 1.0 to 3.0). Nothing is ever unpickled.

numpy keeps strings at one fixed width, filled up with NULs, and strips NULs from their ends when it reads
them; so does this reader, and the writer refuses strings that end in one. numpy's "U" is UTF-32 in the file
and UTF-8 here. bfloat16 is written as numpy and ml_dtypes write it, "<V2": two bytes, whose meaning a reader
has to be told.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import BYTES, DTYPES, TEXT, DType
from ...domain.limits import MIB, Limits
from ...domain.tensor import Shape, check_shape, num_elements
from ...errors import InputError, LimitExceeded, MalformedInput, UnknownForm, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import CHUNK_BYTES, Buffer, ByteStream, iter_exactly, read_exactly
from ..array import Array, only_array
from ..arrow.elements import first_not_utf8
from ..columns import Strings
from ..content import check_pieces, num_axes, read_content, row_major, swap_pieces
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..records.lease import Lease

_MAGIC: Final = b"\x93NUMPY"
#: Version -> size of the length field, encoding of the text.
_VERSIONS: Final[dict[bytes, tuple[int, str]]] = {
    b"\x01\x00": (2, "latin-1"),
    b"\x02\x00": (4, "latin-1"),
    b"\x03\x00": (4, "utf-8"),
}
#: numpy 2 reads no array of more dimensions (`NPY_MAXDIMS`).
_MAX_NUMPY_RANK: Final = 64
#: numpy pads the header to a multiple of this, and leaves room for the first axis to grow to 21 digits.
_ALIGNMENT: Final = 64
_GROWTH_DIGITS: Final = 21
#: Longer headers are not kept: numpy's are of 118 bytes unless the array has many axes.
_KEPT_BELOW: Final = 256
_KEYS: Final = frozenset({"descr", "fortran_order", "shape"})
#: What `ast.parse` and `ast.literal_eval` raise on a text that is no literal.
_LITERAL_ERRORS: Final = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)
_DESCR: Final = re.compile(
    r"(?P<order>[<>|=]?)(?P<kind>[?a-zA-Z])(?P<size>\d{0,10})(?P<unit>\[[^\]]*\])?", re.ASCII
)
_BFLOAT16: Final = DTYPES["bfloat16"]
#: numpy's kind and size ("f4") -> dtype. Not bfloat16: numpy writes it as "V2", two bytes of anything.
_BY_CODE: Final[dict[str, DType]] = {
    dtype.numpy.str[1:]: dtype for dtype in DTYPES.values() if not dtype.is_string and dtype.in_numpy
} | {"?": DTYPES["bool"]}
#: The most bytes that strings padded to the longest one may take (one long string among a million short
#: ones).
_MAX_PADDED_BYTES: Final = 1024 * MIB


def read(stream: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[Array]:
    """The one array of the body, which must end with it. Strings and Fortran order are read into memory.

    Raises:
        MalformedInput: not NPY (`not_npy`), cut short (`truncated`), longer than the header says
            (`trailing_bytes`), or not a header that numpy writes (`invalid_npy_header`, `invalid_shape`).
        UnprocessableInput: objects, structures or bare bytes (`unsupported_dtype`); bools other than 0 and 1
            (`invalid_bool`); code points that are not Unicode (`invalid_text`).
        UnknownForm: dates and extended floats, which have no exact counterpart (`unsupported_dtype`).
        LimitExceeded: a header longer than `limits.max_npy_header_bytes` (`npy_header_too_large`), or what is
            held is larger than the budget.
    """
    return [read_npy(stream, budget, declared=options.dtype)]


def write(arrays: Sequence[Array], _options: TensorEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """The array as `numpy.save` writes it: text as numpy's "U", other strings as "S".

    Raises:
        UnprocessableInput: not exactly one array (`no_tensors`, `several_tensors`), or one that NPY does not
            hold (`not_expressible`).
    """
    header, _, content = npy_pieces(only_array(arrays, "npy"), budget)
    return chain([header], content)


def read_npy(
    stream: ByteStream, budget: Budget, *, declared: DType | None = None, name: str | None = None
) -> Array:
    """The one array of `stream`.

    Args:
        declared: what the client says the elements are; only bfloat16 needs it.

    Raises:
        InputError: see `read`.
    """
    header = _read_header(stream, budget.limits, declared)
    dtype = header.dtype
    if dtype.is_string:
        return Array(dtype, header.shape, _read_strings(stream, header, budget), name)
    content: Iterator[Buffer] = check_pieces(_pieces(stream, header), dtype, offset=header.num_bytes)
    if header.big_endian:
        content = swap_pieces(content, dtype)
    array = Array(dtype, header.shape, content, name)
    if not header.fortran_order or num_axes(header.shape) < 2:
        return array
    stored = array.read(budget)
    return Array(dtype, header.shape, _row_major(stored.values, header.shape, budget), name)


@dataclass(frozen=True, slots=True)
class _Header:
    """What an NPY header says.

    Attributes:
        dtype: `text` for numpy's "U" (UTF-32), `bytes` for "S"; otherwise numeric.
        itemsize: bytes that an element takes in the file.
        big_endian: the byte order of the elements, or of their code points.
        fortran_order: the first axis varies fastest.
        num_bytes: of the header itself, magic included: where the content begins.
    """

    dtype: DType
    itemsize: int
    big_endian: bool
    shape: Shape
    fortran_order: bool
    num_bytes: int

    @property
    def content_bytes(self) -> int:
        return num_elements(self.shape) * self.itemsize


def _read_header(stream: ByteStream, limits: Limits, declared: DType | None) -> _Header:
    start = read_exactly(stream, len(_MAGIC) + 2, "the NPY magic")
    if not start.startswith(_MAGIC):
        raise MalformedInput("This is not NPY: it does not begin with \\x93NUMPY.", code="not_npy", offset=0)
    version = _VERSIONS.get(start[len(_MAGIC) :])
    if version is None:
        raise MalformedInput(
            f"NPY version {start[-2]}.{start[-1]} is not known; 1.0, 2.0 and 3.0 are.",
            code="invalid_npy_header",
            offset=len(_MAGIC),
        )
    length_size, encoding = version
    length = int.from_bytes(read_exactly(stream, length_size, "the NPY header", offset=len(start)), "little")
    if length > limits.max_npy_header_bytes:
        raise LimitExceeded(
            f"The NPY header claims {length} bytes; at most {limits.max_npy_header_bytes} are allowed.",
            code="npy_header_too_large",
            offset=len(start),
        )
    begin = len(start) + length_size
    text = read_exactly(stream, length, "the NPY header", offset=begin).decode(encoding, "replace")
    parse = _parse_short_header if length <= _KEPT_BELOW else _parse_header
    descr, fortran_order, dims = parse(text, begin)
    dtype, itemsize, big_endian = _parse_descr(descr, declared, begin)
    shape = check_shape(dims, offset=begin)
    return _Header(dtype, itemsize, big_endian, shape, fortran_order, begin + length)


def _parse_header(text: str, offset: int) -> tuple[str, bool, tuple[object, ...]]:
    """The values of `descr`, `fortran_order` and `shape`: the header is a dictionary, as Python writes it.

    The length of the text is bounded, and with it what the parser takes.
    """
    try:
        tree = ast.parse(text.lstrip(" \t"), mode="eval")
        # A key that stands twice would be lost in the dictionary.
        found = ast.literal_eval(tree) if isinstance(tree.body, ast.Dict) and len(tree.body.keys) == 3 else {}
    except _LITERAL_ERRORS:
        raise _invalid(
            "is not a dictionary of strings, truth values and tuples of integers", offset
        ) from None
    if found.keys() != _KEYS:
        raise _invalid(f"must have the keys {sorted(_KEYS)}, each of them once", offset)
    descr, fortran_order, shape = found["descr"], found["fortran_order"], found["shape"]
    if isinstance(descr, list):
        raise _unsupported_error(
            "a structure of several fields", "Send each field as an array of its own.", offset
        )
    for key, value, kind in (
        ("descr", descr, str),
        ("fortran_order", fortran_order, bool),
        ("shape", shape, tuple),
    ):
        if not isinstance(value, kind):
            raise _invalid(f"has a value of the wrong type for {key!r}", offset)
    return descr, fortran_order, shape


#: Most requests repeat a header, and Python's parser takes half the time of reading a small array.
_parse_short_header = lru_cache(maxsize=256)(_parse_header)


def _parse_descr(descr: str, declared: DType | None, offset: int) -> tuple[DType, int, bool]:
    """The dtype, the bytes of an element, and whether it is big-endian."""
    match = _DESCR.fullmatch(descr)
    if match is None:
        raise _invalid(f"has the unreadable descr {descr[:40]!r}", offset)
    kind, size, big_endian = match["kind"], match["size"], match["order"] == ">"
    code = kind + size
    if match["unit"] is None and (dtype := _BY_CODE.get(code)) is not None:
        return dtype, dtype.itemsize, big_endian
    if kind in "SaU" and size and match["unit"] is None:
        text = kind == "U"
        return (TEXT if text else BYTES), int(size) * (4 if text else 1), big_endian
    if code == "V2" and declared is _BFLOAT16:
        return _BFLOAT16, 2, big_endian
    raise _no_such_element(descr, code, offset)


def _no_such_element(descr: str, code: str, offset: int) -> InputError:
    if code == "V2":
        return _unsupported_error(
            "two bytes of anything",
            "If they are bfloat16, say so: dtype=bfloat16 for tensors, a schema for rows.",
            offset,
        )
    if code[0] == "O":
        return _unsupported_error(
            "Python objects", "They would have to be unpickled; send plain numbers or strings.", offset
        )
    if code[0] == "V":
        return _unsupported_error(
            f"bare bytes ({descr[:40]})", "Send uint8, and the length as another axis.", offset
        )
    if code[0] in "mMfcg":
        return UnknownForm(
            f"NPY arrays of {descr[:40]} have no exact counterpart here. "
            f"Convert to one of: {', '.join(name for name, dtype in DTYPES.items() if dtype.in_numpy)}.",
            code="unsupported_dtype",
            offset=offset,
        )
    return _invalid(f"has the unknown descr {descr[:40]!r}", offset)


def _unsupported_error(what: str, hint: str, offset: int) -> UnprocessableInput:
    return UnprocessableInput(f"The NPY array holds {what}. {hint}", code="unsupported_dtype", offset=offset)


def _invalid(what: str, offset: int) -> MalformedInput:
    return MalformedInput(f"The NPY header {what}.", code="invalid_npy_header", offset=offset)


def _pieces(stream: ByteStream, header: _Header) -> Iterator[bytes]:
    yield from iter_exactly(stream, header.content_bytes, "the NPY array", offset=header.num_bytes)
    _check_end(stream, header)


def _check_end(stream: ByteStream, header: _Header) -> None:
    if stream.read(1):
        raise MalformedInput(
            "There are more bytes after the NPY array than its header says. Send one array.",
            code="trailing_bytes",
            offset=header.num_bytes + header.content_bytes,
        )


def _row_major(stored: NDArray[Any], shape: Shape, budget: Budget) -> NDArray[Any]:
    budget.charge(stored.nbytes, "The NPY array, turned from Fortran order,")
    ordered = row_major(stored, shape)
    budget.release(stored.nbytes)
    return ordered


def _read_strings(stream: ByteStream, header: _Header, budget: Budget) -> Strings:
    """The strings without the NULs at their ends; text is converted to UTF-8."""
    count, num_bytes = num_elements(header.shape), header.content_bytes
    budget.charge(num_bytes, "The NPY array")
    content = read_content(stream, num_bytes, "the NPY array", offset=header.num_bytes)
    _check_end(stream, header)
    is_text = header.dtype is TEXT
    # Text takes as many bytes here as it has code points, and up to four times that.
    budget.charge(8 * (count + 1) + num_bytes, "The strings of the NPY array")
    if not header.itemsize:
        return Strings(np.empty(0, np.uint8), np.zeros(count + 1, np.int64))
    units = np.frombuffer(content, (">u4" if header.big_endian else "<u4") if is_text else "u1")
    if is_text:
        _check_code_points(units, header.num_bytes)
    if header.fortran_order and num_axes(header.shape) > 1:
        units = _row_major(units.view(f"V{header.itemsize}"), header.shape, budget).view(units.dtype)
    width = header.itemsize // units.itemsize
    strings = _strip(units.reshape(count, width), budget, is_text=is_text)
    budget.release(8 * (count + 1) + 2 * num_bytes - strings.nbytes)
    return strings


def _check_code_points(points: NDArray[Any], offset: int) -> None:
    step = CHUNK_BYTES // 4
    for start in range(0, len(points), step):
        chunk = points[start : start + step]
        if chunk.max() < 0xD800:
            continue
        invalid = (chunk > 0x10FFFF) | ((chunk >= 0xD800) & (chunk < 0xE000))
        if invalid.any():
            where = start + int(np.argmax(invalid))
            raise UnprocessableInput(
                f"The NPY array holds {int(points[where]):#x}, which is the code of no Unicode character.",
                code="invalid_text",
                offset=offset + 4 * where,
            )


def _strip(units: NDArray[Any], budget: Budget, *, is_text: bool) -> Strings:
    """The strings of a table of bytes or code points, one a row, without the NULs at their ends."""
    count, width = units.shape
    offsets = np.zeros(count + 1, np.int64)
    parts: list[NDArray[np.uint8]] = []
    step = max(1, CHUNK_BYTES // (width * units.itemsize))
    for start in range(0, count, step):
        chunk = units[start : start + step]
        # Marks, and what is kept; text other than ASCII is also counted, and decoded.
        working = chunk.size * (4 if not is_text else 8 if chunk.max() <= 0x7F else 48)
        budget.charge(working, "Strings of the NPY array")
        if chunk[:, -1].all():  # all strings are as wide as the table
            sizes, kept = np.full(len(chunk), width), chunk.reshape(-1)
        else:
            is_kept = np.maximum.accumulate(chunk[:, ::-1] != 0, axis=1)[:, ::-1]
            sizes, kept = is_kept.sum(axis=1), chunk[is_kept]
        if is_text and kept.size and kept.max() > 0x7F:
            wider = np.add(chunk > 0x7F, chunk > 0x7FF, dtype=np.int64) + (chunk > 0xFFFF)
            sizes += wider.sum(axis=1)
            kept = np.frombuffer(kept.astype("<u4").tobytes().decode("utf-32-le").encode(), np.uint8)
        parts.append(kept.astype(np.uint8))
        offsets[start + 1 : start + 1 + len(chunk)] = sizes
        budget.release(working)
    np.cumsum(offsets, out=offsets)
    num_bytes = sum(part.nbytes for part in parts)
    budget.charge(num_bytes, "Strings of the NPY array, joined,")
    data = np.concatenate(parts) if parts else np.empty(0, np.uint8)
    del parts
    budget.release(num_bytes)
    return Strings(data, offsets)


def npy_pieces(array: Array, budget: Budget) -> tuple[bytes, int, Iterator[Buffer]]:
    """The header of the array, the bytes of its content, and the content, as `numpy.save` writes them.

    Raises:
        UnprocessableInput: numpy has no such array (`not_expressible`); text that is not UTF-8
            (`invalid_utf8`).
        LimitExceeded: as the content is drawn, a string that is larger than the budget once it is padded.
    """
    dtype, shape = array.dtype, array.shape
    if len(shape) > _MAX_NUMPY_RANK:
        raise _not_expressible(f"it has {len(shape)} dimensions, and numpy holds at most {_MAX_NUMPY_RANK}")
    if dtype.is_string:
        return _string_pieces(array.strings, shape, budget, is_text=dtype is TEXT)
    if not (dtype.in_numpy or dtype is _BFLOAT16):
        raise UnprocessableInput(
            f"NPY has no name for {dtype}. Choose 'raw', 'json' or 'tensorproto', or another dtype.",
            code="not_expressible",
        )
    # ml_dtypes gives bfloat16 the kind and order of a structure; numpy.save writes "<V2".
    return npy_header(dtype.numpy.str, shape), array.num_bytes, array.pieces()


def npy_header(descr: str, shape: Shape) -> bytes:
    """The header that `numpy.save` writes for a C-ordered array of `descr` and `shape`."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    if shape:
        text += " " * (_GROWTH_DIGITS - len(str(shape[0])))
    begin = len(_MAGIC) + 4
    padding = _ALIGNMENT - (begin + len(text) + 1) % _ALIGNMENT
    body = text.encode("latin-1") + b" " * padding + b"\n"
    return _MAGIC + b"\x01\x00" + len(body).to_bytes(2, "little") + body


def _string_pieces(
    strings: Strings, shape: Shape, budget: Budget, *, is_text: bool
) -> tuple[bytes, int, Iterator[Buffer]]:
    lengths = np.diff(strings.offsets)
    ends = strings.offsets[1:][lengths > 0] - 1
    if (strings.data[ends] == 0).any():
        raise _not_expressible("a string ends in NUL, which numpy would strip")
    if is_text:
        lengths = _count_characters(strings)
    width = max(1, int(lengths.max(initial=0)))  # as numpy: no strings of width 0
    stored = np.dtype(f"<U{width}" if is_text else f"S{width}")
    num_bytes = stored.itemsize * len(strings)
    if num_bytes > _MAX_PADDED_BYTES:
        raise _not_expressible(f"every string would be padded to the longest one, {stored.itemsize} bytes")
    content = _pad(strings, lengths, width, budget, is_text=is_text)
    return npy_header(stored.str, shape), num_bytes, content


def _count_characters(strings: Strings) -> NDArray[np.int64]:
    """The number of characters in each UTF-8 string."""
    if first_not_utf8(strings) is not None:
        raise UnprocessableInput(
            "The array is declared as text, but its strings are not UTF-8. Declare it as bytes.",
            code="invalid_utf8",
        )
    counts = np.zeros(len(strings), np.int64)
    # Some of the strings at a time: a count for each byte would take eight times the text.
    cuts = np.searchsorted(strings.offsets, np.arange(0, len(strings.data), CHUNK_BYTES))
    for first, last in pairwise(np.unique([*cuts, len(strings)]).tolist()):
        part = strings.part(first, last)
        filled = np.flatnonzero(np.diff(part.offsets))
        begins = (part.data & 0xC0) != 0x80
        if len(filled):
            counts[first + filled] = np.add.reduceat(begins, part.offsets[filled], dtype=np.int64)
    return counts


def _pad(
    strings: Strings, lengths: NDArray[np.int64], width: int, budget: Budget, *, is_text: bool
) -> Iterator[Buffer]:
    step = max(1, CHUNK_BYTES // (width * (4 if is_text else 1)))
    with Lease(budget) as lease:
        if step == 1:  # padded; text is also encoded, decoded, and in UTF-32
            lease.charge(width * (16 if is_text else 1), "A string, padded,")
        for start in range(0, len(strings), step):
            part = strings.part(start, min(start + step, len(strings)))
            units: NDArray[Any] = part.data
            if is_text:
                units = np.frombuffer(part.data.tobytes().decode().encode("utf-32-le"), "<u4")
            table = np.zeros((len(part), width), units.dtype)
            if step == 1:
                table[0, : len(units)] = units
            else:
                table[np.arange(width) < lengths[start : start + step, None]] = units
            yield table.reshape(-1).view(np.uint8).data


def _not_expressible(why: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"The array has no NPY format: {why}. Choose another output format.", code="not_expressible"
    )
