"""Reading FlatBuffers of which every offset is checked before it is followed.

Source: flatbuffers.dev, "FlatBuffer Internals". A table begins with the distance back to its vtable, which
says where each field stands; vectors and strings are a length and what follows it. Tables may be shared, so
whoever walks them counts what is visited: a few bytes can spell a tree of any size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from ...errors import MalformedInput
from ...runtime.streams import Buffer

__all__ = ["FlatTable", "root_table"]

_UINT16: Final = struct.Struct("<H")
_INT32: Final = struct.Struct("<i")
_UINT32: Final = struct.Struct("<I")
#: The header of a vtable: its own size and that of the table.
_VTABLE_HEADER: Final = 4


class FlatTable:
    """One table. Fields go by their number in the schema; an absent one is its default.

    Every method raises:
        MalformedInput: an offset or a length that leads out of the buffer (`invalid_arrow`).
    """

    __slots__ = ("_data", "_position", "_vtable", "_vtable_size")

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self._position = position
        self._vtable = position - self._unpack(_INT32, position)
        self._vtable_size = self._unpack(_UINT16, self._vtable)

    def _unpack(self, layout: struct.Struct, position: int) -> int:
        if not 0 <= position <= len(self._data) - layout.size:
            raise _broken()
        value: int = layout.unpack_from(self._data, position)[0]
        return value

    def _field(self, number: int) -> int | None:
        """Where the field stands, or None where it is absent."""
        entry = _VTABLE_HEADER + 2 * number
        if entry + 2 > self._vtable_size:
            return None
        offset = self._unpack(_UINT16, self._vtable + entry)
        return self._position + offset if offset else None

    def integer(self, number: int, layout: str, default: int = 0) -> int:
        """A scalar field; `layout` is its code in `struct`."""
        position = self._field(number)
        return default if position is None else self._unpack(struct.Struct("<" + layout), position)

    def position(self, number: int) -> int:
        """Where a scalar field that is there stands in the buffer."""
        position = self._field(number)
        if position is None:
            raise _broken()
        return position

    def vector_position(self, number: int) -> int:
        """Where the items of a vector begin in the buffer."""
        return self._vector(number, 1)[0]

    def _target(self, position: int) -> int:
        return position + self._unpack(_UINT32, position)

    def table(self, number: int) -> FlatTable | None:
        """A field that is a table, or the table of a union."""
        position = self._field(number)
        return None if position is None else FlatTable(self._data, self._target(position))

    def _vector(self, number: int, itemsize: int) -> tuple[int, int]:
        """The start and the length of a vector; an absent one is empty."""
        position = self._field(number)
        if position is None:
            return 0, 0
        start = self._target(position)
        length = self._unpack(_UINT32, start)
        if start + 4 + length * itemsize > len(self._data):
            raise _broken()
        return start + 4, length

    def structs(self, number: int, layout: str) -> list[tuple[int, ...]]:
        """A vector of structs, whose layout in `struct` includes their padding."""
        unpacker = struct.Struct("<" + layout)
        start, length = self._vector(number, unpacker.size)
        return list(unpacker.iter_unpack(self._data[start : start + length * unpacker.size]))

    def tables(self, number: int) -> Iterator[FlatTable]:
        """A vector of tables, each read as it is drawn."""
        start, length = self._vector(number, 4)
        for position in range(start, start + 4 * length, 4):
            yield FlatTable(self._data, self._target(position))

    def text(self, number: int) -> bytes:
        """A string, as bytes."""
        start, length = self._vector(number, 1)
        return bytes(self._data[start : start + length])

    def num_bytes(self, number: int) -> int:
        """The length of a string."""
        return self._vector(number, 1)[1]


def root_table(data: Buffer) -> FlatTable:
    """The table that a buffer begins with a pointer to.

    Raises:
        MalformedInput: the pointer leads out of the buffer (`invalid_arrow`).
    """
    view = memoryview(data)
    if len(view) < 4:
        raise _broken()
    return FlatTable(view, _UINT32.unpack_from(view)[0])


def _broken() -> MalformedInput:
    return MalformedInput("The metadata of an Arrow message is corrupt.", code="invalid_arrow")
