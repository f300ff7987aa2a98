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
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from ...domain.dtypes import DTYPES, DType
from ...domain.limits import Limits
from ...domain.tensor import Shape, check_distinct, check_shape, num_elements
from ...errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteFile, ByteStream, FileStream, iter_exactly, read_exactly
from ..array import Array, position_name
from ..content import check_pieces
from ..json.forms import check_name
from ..json.text import parse_json
from ..json.texts import quote
from ..options import TensorDecodeOptions, TensorEncodeOptions

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


def read(body: ByteStream | ByteFile, _options: TensorDecodeOptions, budget: Budget) -> list[Array]:
    """The arrays by name, in the order of the header.

    Of a stream whose data lie in another order, the arrays are in memory.

    Raises:
        MalformedInput: cut short (`truncated`), bytes behind the last array (`trailing_bytes`), a header
            that is not strict JSON or not of the form (`invalid_safetensors`).
        UnprocessableInput: a dtype that is not known here (`unsupported_dtype`), a bool that is neither
            0 nor 1 (`invalid_bool`).
        LimitExceeded: a header over 100 MB (`safetensors_header_too_large`), too many arrays
            (`too_many_members`), a name that is too long, or larger than the budget.
    """
    stream = FileStream(body, 0, body.size) if isinstance(body, ByteFile) else body
    length = _read_length(stream)
    entries = _read_header(stream, length, budget)
    begin = _LENGTH.size + length
    laid_out = _in_order_of_data(entries)
    end = begin + (laid_out[-1].end if laid_out else 0)
    if isinstance(body, ByteFile):
        _check_size(body.size, begin, laid_out, end)
        parts = [FileStream(body, begin + entry.begin, begin + entry.end) for entry in entries]
        return [_array(part, entry, begin) for part, entry in zip(parts, entries, strict=True)]
    arrays = {entry.name: _array(stream, entry, begin) for entry in laid_out}
    if not laid_out:
        _check_end(stream, end)
    else:
        last = laid_out[-1].name
        content = _check_end_after(arrays[last].pieces(), stream, end)
        arrays[last] = replace(arrays[last], content=content)
    if laid_out != entries:
        arrays = {name: array.read(budget) for name, array in arrays.items()}
    return [arrays[entry.name] for entry in entries]


def write(arrays: Sequence[Array], _options: TensorEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """The bytes that `safetensors.numpy.save` gives: sorted by dtype, then by name.

    Arrays without a name are tensor_0, tensor_1, ... by their position. Arrays that arrive in another order
    than that are read into memory.

    Raises:
        UnprocessableInput: strings, or another dtype without a name there (`not_expressible`); a name that
            stands twice (`duplicate_name`), or the one that the metadata has (`not_expressible`).
    """
    arrays = [replace(array, name=position_name(array, "tensor_", at)) for at, array in enumerate(arrays)]
    names = [array.name or "" for array in arrays]
    check_distinct(names)
    for name, array in zip(names, arrays, strict=True):
        check_dtype(name, array.dtype)
        if name == _METADATA:
            raise UnprocessableInput(
                f"{_METADATA} is no name of a tensor in safetensors. Choose another output format.",
                code="not_expressible",
                feature=_METADATA,
            )
    order = sorted(range(len(arrays)), key=lambda at: (_POSITION[arrays[at].dtype.name], names[at]))
    if order != list(range(len(arrays))):
        arrays = [array.read(budget) for array in arrays]
    ordered = [arrays[at] for at in order]
    return chain([_header(ordered)], chain.from_iterable(array.pieces() for array in ordered))


def check_dtype(name: str, dtype: DType) -> None:
    """Refuse an array whose elements the format has no name for.

    Raises:
        UnprocessableInput: `not_expressible`.
    """
    if dtype.name not in _NAMES:
        raise UnprocessableInput(
            f"{name[:64]!r} is {dtype}, which safetensors does not hold. Choose another output format.",
            code="not_expressible",
            feature=name,
        )


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


def _read_header(stream: ByteStream, length: int, budget: Budget) -> list[_Entry]:
    budget.charge(2 * length, "The safetensors header")
    text = read_exactly(stream, length, "the safetensors header", offset=_LENGTH.size)
    if not text.startswith(b"{"):
        raise _invalid("does not begin with '{'", offset=_LENGTH.size)
    try:
        document = parse_json(text, budget)
    except InputError as error:
        raise error.shift(offset=_LENGTH.size) from None
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
        raise error.shift(feature=name) from None
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


def _in_order_of_data(entries: Sequence[_Entry]) -> list[_Entry]:
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


def _array(stream: ByteStream, entry: _Entry, data_offset: int) -> Array:
    """The array whose data come next in `stream`."""
    return Array(entry.dtype, entry.shape, _pieces(stream, entry, data_offset + entry.begin), entry.name)


def _pieces(stream: ByteStream, entry: _Entry, offset: int) -> Iterator[Buffer]:
    try:
        pieces = iter_exactly(stream, entry.end - entry.begin, _label(entry), offset=offset)
        yield from check_pieces(pieces, entry.dtype, offset=offset)
    except InputError as error:
        raise error.shift(feature=entry.name) from None


def _label(entry: _Entry) -> str:
    return f"the array {entry.name[:64]!r}"


def _check_end_after(pieces: Iterator[Buffer], stream: ByteStream, end: int) -> Iterator[Buffer]:
    """The pieces, after which the body has to end."""
    yield from pieces
    _check_end(stream, end)


def _check_end(stream: ByteStream, end: int) -> None:
    if stream.read(1):
        raise _trailing_error(end)


def _check_size(size: int, begin: int, laid_out: Sequence[_Entry], end: int) -> None:
    """Refuse a file that is shorter or longer than its header says."""
    if size > end:
        raise _trailing_error(end)
    for entry in laid_out:
        expected = entry.end - entry.begin
        if begin + entry.end > size:
            raise MalformedInput(
                f"The body ends inside {_label(entry)}: {expected} bytes expected, "
                f"{size - begin - entry.begin} found.",
                code="truncated",
                feature=entry.name,
                offset=size,
            )


def _trailing_error(end: int) -> MalformedInput:
    return MalformedInput(
        "There are more bytes after the last array than the safetensors header says. Send one file.",
        code="trailing_bytes",
        offset=end,
    )


def _invalid(what: str, name: str | None = None, offset: int | None = None) -> MalformedInput:
    where = "" if name is None else f" ({name[:64]!r})"
    return MalformedInput(
        f"The safetensors header {what}{where}.", code="invalid_safetensors", feature=name, offset=offset
    )


def _header(arrays: Sequence[Array]) -> bytes:
    """What stands before the data of these arrays."""
    position = 0
    members: list[str] = []
    for array in arrays:
        end = position + array.num_bytes
        info = {"dtype": _NAMES[array.dtype.name], "shape": array.shape, "data_offsets": (position, end)}
        members.append(f"{quote(array.name or '')}:{json.dumps(info, separators=(',', ':'))}")
        position = end
    header = ("{" + ",".join(members) + "}").encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    return _LENGTH.pack(len(header)) + header
