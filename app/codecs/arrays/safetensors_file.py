"""safetensors: several named arrays of numbers behind one JSON header.

Source: the section "Format" of the README of github.com/huggingface/safetensors, and what version 0.8 of
the library reads and writes. A u64 (little-endian) gives the length of the header, a JSON object padded
with spaces to a multiple of 8:

    {"__metadata__": {text: text}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}

The data of all arrays follow it, little-endian, row-major; sorted by their offsets the arrays cover the
data without a gap or an overlap. Refused here, though the library lets it pass: a name that stands twice,
members that the format does not know, bools other than 0 and 1. `__metadata__` is checked and left out.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...domain.dtypes import DTYPES, DType
from ...domain.limits import Limits
from ...domain.tensor import Shape, Tensor, check_distinct, check_shape, num_elements
from ...errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteFile, ByteStream, FileStream, read_exactly
from ..content import check_content, content_view, read_content
from ..content_stream import arriving_pieces, checked_pieces
from ..json.forms import check_name
from ..json.text import parse_json
from ..json.texts import quote
from ..tensor_stream import TensorStream
from .array import Array, ChunkedArray, FoundArray

__all__ = [
    "check_dtype",
    "open_safetensors",
    "open_safetensors_file",
    "read_safetensors",
    "safetensors_header",
    "safetensors_order",
    "serialize_safetensors",
]

#: The format's own bound (MAX_HEADER_SIZE in safetensors/src/tensor.rs).
_MAX_HEADER_BYTES: Final = 100_000_000
_LENGTH: Final = struct.Struct("<Q")
_ALIGNMENT: Final = 8
_METADATA: Final = "__metadata__"
_MEMBERS: Final = frozenset({"dtype", "shape", "data_offsets"})

#: TensorFlow's names -> those of the format, in the order in which the library lays the data out.
_NAMES: Final[dict[str, str]] = {
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
    "float32": "F32",
    "uint32": "U32",
    "int32": "I32",
    "bfloat16": "BF16",
    "float16": "F16",
    "uint16": "U16",
    "int16": "I16",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
_POSITION: Final = {name: position for position, name in enumerate(_NAMES)}
_DTYPES: Final = {label: DTYPES[name] for name, label in _NAMES.items() if name in DTYPES}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One array of the header; `begin` and `end` count from the end of the header."""

    name: str
    dtype: DType
    shape: Shape
    begin: int
    end: int


def read_safetensors(stream: ByteStream, budget: Budget) -> dict[str, Array]:
    """The arrays by name, in the order of the header.

    Raises:
        MalformedInput: cut short (`truncated`), bytes behind the last array (`trailing_bytes`), a header
            that is not strict JSON (as `parse_json`) or not of the form (`invalid_safetensors`).
        UnprocessableInput: a dtype that is not known here (`unsupported_dtype`), a bool that is neither
            0 nor 1 (`invalid_bool`).
        LimitExceeded: a header over 100 MB (`safetensors_header_too_large`), too many arrays
            (`too_many_members`), a name that is too long, or larger than the budget.
    """
    length = _read_length(stream)
    return _read_arrays(stream, length, _read_header(stream, length, budget), budget)


def _read_arrays(
    stream: ByteStream, length: int, entries: Sequence[_Entry], budget: Budget
) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for entry in _tiled(entries):
        found[entry.name] = _read_array(stream, entry, _LENGTH.size + length, budget)
    _check_end(stream, length, entries)
    return {entry.name: found[entry.name] for entry in entries}


def open_safetensors_file(file: ByteFile, budget: Budget, *, streamed_from: int) -> dict[str, FoundArray]:
    """The arrays by name, in the order of the header, read as they are drawn, in whatever order that is.

    Those of less than `streamed_from` bytes are in memory.

    Raises: as `read_safetensors`, here or as the contents are drawn.
    """
    stream = FileStream(file, 0, file.size)
    length = _read_length(stream)
    entries = _read_header(stream, length, budget)
    begin = _LENGTH.size + length
    if file.size != begin + max((entry.end for entry in _tiled(entries)), default=0):
        return {**_read_arrays(stream, length, entries, budget)}  # which says what is wrong

    def found(entry: _Entry) -> FoundArray:
        content = FileStream(file, begin + entry.begin, begin + entry.end)
        if entry.end - entry.begin < streamed_from:
            return _read_array(content, entry, begin, budget)
        return TensorStream(entry.dtype, entry.shape, _arriving(content, entry, length, ()))

    return {entry.name: found(entry) for entry in entries}


def open_safetensors(stream: ByteStream, budget: Budget) -> dict[str, TensorStream | Tensor]:
    """The arrays by name, in the order of the header, while they arrive; each is drawn before the next.

    Where the data lie in another order than the header has, the arrays are in memory.

    Raises: as `read_safetensors`, here or as the contents are drawn.
    """
    length = _read_length(stream)
    entries = _read_header(stream, length, budget)
    tiled = _tiled(entries)
    if tiled != entries:
        arrays = _read_arrays(stream, length, entries, budget)
        return {name: array.to_tensor() for name, array in arrays.items()}
    if not entries:
        _check_end(stream, length, entries)
    return {
        entry.name: TensorStream(
            entry.dtype, entry.shape, _arriving(stream, entry, length, entries if entry is tiled[-1] else ())
        )
        for entry in entries
    }


def _arriving(stream: ByteStream, entry: _Entry, length: int, ends: Sequence[_Entry]) -> Iterator[Buffer]:
    """The data of one array; behind the last one, of which `ends` are all, the body ends."""
    offset = _LENGTH.size + length + entry.begin
    what = f"the array {entry.name[:64]!r}"
    try:
        pieces = arriving_pieces(stream, entry.end - entry.begin, what, offset=offset)
        yield from checked_pieces(pieces, entry.dtype, offset=offset)
    except InputError as error:
        raise error.shifted(feature=entry.name) from None
    if ends:
        _check_end(stream, length, ends)


def _read_length(stream: ByteStream) -> int:
    length: int = _LENGTH.unpack(read_exactly(stream, _LENGTH.size, "the length of the safetensors header"))[
        0
    ]
    if length > _MAX_HEADER_BYTES:
        raise LimitExceeded(
            f"The safetensors header claims {length} bytes; the format allows {_MAX_HEADER_BYTES}.",
            code="safetensors_header_too_large",
            offset=0,
        )
    return length


def _check_end(stream: ByteStream, length: int, entries: Sequence[_Entry]) -> None:
    if stream.read(1):
        raise MalformedInput(
            "There are more bytes behind the last array than the safetensors header says.",
            code="trailing_bytes",
            offset=_LENGTH.size + length + max((entry.end for entry in entries), default=0),
        )


def _read_header(stream: ByteStream, length: int, budget: Budget) -> list[_Entry]:
    budget.charge(2 * length, "The safetensors header")
    text = read_exactly(stream, length, "the safetensors header", offset=_LENGTH.size)
    if not text.startswith(b"{"):
        raise _invalid("does not begin with '{'", offset=_LENGTH.size)
    try:
        document = parse_json(text, budget)
    except InputError as error:
        raise error.shifted(offset=_LENGTH.size) from None
    entries = _entries(document.value, budget.limits)
    budget.release(document.num_bytes + 2 * length)
    return entries


def _entries(header: dict[str, Any], limits: Limits) -> list[_Entry]:
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise _invalid(f"has a {_METADATA} that is not a map of text to text")
    if len(header) > limits.max_members:
        raise LimitExceeded(
            f"The safetensors header names {len(header)} arrays; at most {limits.max_members} are allowed.",
            code="too_many_members",
        )
    return [_entry(name, value, limits) for name, value in header.items()]


def _entry(name: str, value: Any, limits: Limits) -> _Entry:
    check_name(name, limits)
    if not isinstance(value, dict) or value.keys() != _MEMBERS:
        raise _invalid('has an array that is not {"dtype", "shape", "data_offsets"}', name)
    label, dims, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(label, str) or not isinstance(dims, list):
        raise _invalid('has a "dtype" that is no text, or a "shape" that is no array', name)
    if label not in _DTYPES:
        raise UnprocessableInput(
            f"Array {name[:64]!r} is {label[:40]!r}, which is not read here. Known are {', '.join(_DTYPES)}.",
            code="unsupported_dtype",
            feature=name,
        )
    try:
        shape = check_shape(dims)
    except InputError as error:
        raise error.shifted(feature=name) from None
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(item) is not int for item in offsets):
        raise _invalid('has "data_offsets" that are not two integers', name)
    dtype, (begin, end) = _DTYPES[label], offsets
    expected = num_elements(shape) * dtype.itemsize
    if begin < 0 or end - begin != expected:
        raise _invalid(
            f"has an array at the offsets {str(offsets)[:60]}, where {label} of shape {str(dims)[:60]} takes "
            f"{expected} bytes",
            name,
        )
    return _Entry(name, dtype, shape, begin, end)


def _tiled(entries: Sequence[_Entry]) -> list[_Entry]:
    """The entries in the order of their data, which begins at 0 and has neither gap nor overlap."""
    ordered = sorted(entries, key=lambda entry: (entry.begin, entry.end))
    position = 0
    for entry in ordered:
        if entry.begin != position:
            what = "leaves a gap" if entry.begin > position else "overlaps another array"
            raise _invalid(
                f"has an array that begins at {entry.begin} and {what}: {position} is due", entry.name
            )
        position = entry.end
    return ordered


def _read_array(stream: ByteStream, entry: _Entry, data_offset: int, budget: Budget) -> Array:
    num_bytes, offset = entry.end - entry.begin, data_offset + entry.begin
    try:
        budget.charge(num_bytes, f"Array {entry.name[:64]!r}")
        content = read_content(stream, num_bytes, f"the array {entry.name[:64]!r}", offset=offset)
        check_content(content, entry.dtype, offset=offset)
    except InputError as error:
        raise error.shifted(feature=entry.name) from None
    return Array(entry.dtype, entry.shape, np.frombuffer(content, entry.dtype.numpy))


def _invalid(what: str, name: str | None = None, offset: int | None = None) -> MalformedInput:
    where = "" if name is None else f" ({name[:64]!r})"
    return MalformedInput(
        f"The safetensors header {what}{where}.", code="invalid_safetensors", feature=name, offset=offset
    )


def check_dtype(name: str, dtype: DType) -> None:
    """Refuse an array whose elements the format has no name for.

    Raises:
        UnprocessableInput: `not_expressible`.
    """
    if dtype.name not in _NAMES:
        raise UnprocessableInput(
            f"{name[:64]!r} is {dtype}, which safetensors does not hold. Choose another output form.",
            code="not_expressible",
            feature=name,
        )


def serialize_safetensors(arrays: Sequence[ChunkedArray]) -> Iterator[Buffer]:
    """The bytes that `safetensors.numpy.save` gives: sorted by dtype, then by name.

    Raises:
        UnprocessableInput: strings, or another dtype without a name there (`not_expressible`); a name that
            stands twice (`duplicate_name`), or the one that the metadata has (`not_expressible`).
    """
    ordered = [arrays[index] for index in safetensors_order([(item.name, item.dtype) for item in arrays])]
    return _serialized(ordered)


def safetensors_order(arrays: Sequence[tuple[str, DType]]) -> list[int]:
    """Which of these arrays is written first, second, ...

    Raises:
        UnprocessableInput: as `serialize_safetensors`.
    """
    check_distinct(name for name, _ in arrays)
    for name, dtype in arrays:
        check_dtype(name, dtype)
        if name == _METADATA:
            raise UnprocessableInput(
                f"{_METADATA} is no name of a tensor in safetensors. Choose another output form.",
                code="not_expressible",
                feature=_METADATA,
            )
    return sorted(range(len(arrays)), key=lambda index: (_POSITION[arrays[index][1].name], arrays[index][0]))


def _serialized(arrays: Sequence[ChunkedArray]) -> Iterator[Buffer]:
    yield safetensors_header([(array.name, array.dtype, array.shape) for array in arrays])
    for array in arrays:
        for chunk in array.chunks:
            yield content_view(chunk)


def safetensors_header(arrays: Sequence[tuple[str, DType, Shape]]) -> bytes:
    """What stands before the data of these arrays, which are in the order of `safetensors_order`."""
    position = 0
    members: list[str] = []
    for name, dtype, shape in arrays:
        end = position + num_elements(shape) * dtype.itemsize
        info = {"dtype": _NAMES[dtype.name], "shape": shape, "data_offsets": (position, end)}
        members.append(f"{quote(name)}:{json.dumps(info, separators=(',', ':'))}")
        position = end
    header = ("{" + ",".join(members) + "}").encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    return _LENGTH.pack(len(header)) + header
