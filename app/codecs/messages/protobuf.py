"""The wire format of protocol buffers, read within bounds: varints, tags and the fields of one message.

Source: https://protobuf.dev/programming-guides/encoding. Read more strictly than protobuf does:
varints of more than 64 bits and tags of more than 32, which protobuf cuts off, and groups, which
nothing has written for a decade, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import MalformedInput
from ...runtime.streams import Buffer

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
FIXED32: Final = 5

#: (number, wire type, value of a varint, begin and end of the payload). A plain tuple: there may be
#: a million of them, one for each string.
Field = tuple[int, int, int, int, int]

_ONE_BYTE: Final = tuple(bytes([value]) for value in range(0x80))
_MAX_VARINT_BYTES: Final = 10
_MAX_TAG: Final = 2**32 - 1
#: Of a tag or a length; protobuf reads no longer ones.
_MAX_TAG_BYTES: Final = 5
#: Varints decoded at a time: the arrays in between take some 50 bytes for each.
_VARINT_CHUNK: Final = 64 * 1024


def serialize_varint(value: int) -> bytes:
    """A non-negative integer below 2^64."""
    if value < 0x80:
        return _ONE_BYTE[value]  # nearly every tag and length
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def parse_varint(data: Buffer, position: int, end: int, *, offset: int = 0) -> tuple[int, int]:
    """A varint at `position`, and the position behind it.

    Raises:
        MalformedInput: it goes on past `end` (`truncated`) or past 64 bits (`invalid_protobuf`).
    """
    if position < end and data[position] < 0x80:
        return data[position], position + 1  # nearly every tag and length
    value = shift = 0
    for index in range(position, min(end, position + _MAX_VARINT_BYTES)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, index + 1
        shift += 7
    else:
        if end - position < _MAX_VARINT_BYTES:
            raise MalformedInput(
                "The protobuf message ends inside a varint.", code="truncated", offset=offset + end
            )
    raise MalformedInput("A varint has more than 64 bits.", code="invalid_protobuf", offset=offset + position)


def to_signed(value: int) -> int:
    """A varint's value read as int64, which is how protobuf writes negative numbers of any size."""
    return value - 2**64 if value >= 2**63 else value


def fields_of(data: Buffer, begin: int, end: int, *, offset: int = 0) -> Iterator[Field]:
    """The fields of the message in `data[begin:end]`, in their order, without looking into them.

    Args:
        offset: where in the whole input `data` begins, for errors.

    Raises:
        MalformedInput: a field that goes on past `end` (`truncated`), a tag that is none, or a group
            (`invalid_protobuf`).
    """
    position = begin
    while position < end:
        start = position
        tag, position = parse_varint(data, position, end, offset=offset)
        number, wire, value = tag >> 3, tag & 7, 0
        if number == 0 or tag > _MAX_TAG or position - start > _MAX_TAG_BYTES:
            raise _invalid_field(f"has the number {number}", offset + start)
        payload = position
        if wire == VARINT:
            value, position = parse_varint(data, position, end, offset=offset)
        elif wire == LENGTH_DELIMITED:
            length, payload = parse_varint(data, position, end, offset=offset)
            if payload - position > _MAX_TAG_BYTES:
                raise _invalid_field(f"{number} has an overlong length", offset + start)
            position = payload + length
        elif wire == FIXED32:
            position += 4
        elif wire == FIXED64:
            position += 8
        else:
            raise _invalid_field(f"{number} has the wire type {wire}", offset + start)
        if position > end:
            raise MalformedInput(
                f"Field {number} takes {position - payload} bytes, but only {end - payload} follow.",
                code="truncated",
                offset=offset + start,
            )
        yield number, wire, value, payload, position


def _invalid_field(what: str, offset: int) -> MalformedInput:
    return MalformedInput(
        f"A protobuf field {what}, which is not read.", code="invalid_protobuf", offset=offset
    )


def count_varints(packed: Buffer, *, offset: int = 0) -> int:
    """How many varints `packed` holds; `iter_varints` gives as many.

    Raises:
        MalformedInput: it ends inside one (`truncated`).
    """
    raw = np.frombuffer(packed, np.uint8)
    if len(raw) and raw[-1] >= 0x80:
        raise MalformedInput("A packed field ends inside a varint.", code="truncated", offset=offset)
    return sum(
        int(np.count_nonzero(raw[start : start + _VARINT_CHUNK] < 0x80))
        for start in range(0, len(raw), _VARINT_CHUNK)
    )


def iter_varints(packed: Buffer, *, offset: int = 0) -> Iterator[NDArray[np.uint64]]:
    """The varints of a packed field that `count_varints` found whole, some thousands at a time.

    Raises:
        MalformedInput: one has more than 64 bits (`invalid_protobuf`).
    """
    raw = np.frombuffer(packed, np.uint8)
    position = 0
    while position < len(raw):
        chunk = raw[position : position + _VARINT_CHUNK]
        ends = np.flatnonzero(chunk < 0x80)
        sizes = np.diff(ends, prepend=-1)
        if not len(ends) or sizes.max() > _MAX_VARINT_BYTES:
            raise _too_long(offset)
        yield _decode_varints(chunk, ends - sizes + 1, sizes, offset)
        position += int(ends[-1]) + 1


def _decode_varints(
    raw: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64], offset: int
) -> NDArray[np.uint64]:
    values = (raw[starts] & 0x7F).astype(np.uint64)
    for index in range(1, int(sizes.max())):
        reach = np.flatnonzero(sizes > index)
        septets = (raw[starts[reach] + index] & 0x7F).astype(np.uint64)
        if index == _MAX_VARINT_BYTES - 1 and septets.max() > 1:
            raise _too_long(offset)
        values[reach] |= septets << np.uint64(7 * index)
    return values


def _too_long(offset: int) -> MalformedInput:
    return MalformedInput("A packed varint has more than 64 bits.", code="invalid_protobuf", offset=offset)
