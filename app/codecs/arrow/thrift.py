"""Structs in Thrift's compact protocol, as Parquet writes them: only what it takes to look into one.

Source: github.com/apache/thrift, `doc/specs/thrift-compact-protocol.md`.
"""

from __future__ import annotations

from typing import Any, Final

from ...errors import MalformedInput

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS: Final = frozenset({4, 5, 6})
_LISTS: Final = frozenset({9, 10})
_MAX_DEPTH: Final = 16
_MAX_ITEMS: Final = 10_000


class Incomplete(Exception):
    """The struct goes on behind the bytes that were given."""


def parse_struct(data: bytes, *, max_items: int = _MAX_ITEMS) -> tuple[dict[int, Any], int]:
    """The fields of the struct that `data` begins with, by number, and where it ends.

    Args:
        max_items: of one list.

    Raises:
        Incomplete: it does not end.
        MalformedInput: not of that form (`invalid_parquet`).
    """
    parser = _Parser(data, max_items)
    return parser.struct(0), parser.position


class _Parser:
    def __init__(self, data: bytes, max_items: int) -> None:
        self._data = data
        self._max_items = max_items
        self.position = 0

    def _byte(self) -> int:
        if self.position >= len(self._data):
            raise Incomplete
        value = self._data[self.position]
        self.position += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise invalid_parquet()

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.position:
            raise Incomplete
        self.position += count
        return self._data[self.position - count : self.position]

    def struct(self, depth: int) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise invalid_parquet()
        if kind in _INTEGERS:
            return self._zigzag()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in _LISTS:
            return self._list(depth)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        raise invalid_parquet()

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = self._varint() if head >> 4 == 15 else head >> 4
        if count > self._max_items:
            raise invalid_parquet()
        return [self._value(head & 15, depth + 1) for _ in range(count)]


def invalid_parquet(what: str = "The metadata of the Parquet file is corrupt") -> MalformedInput:
    """The error of a file that is no Parquet."""
    return MalformedInput(f"{what}.", code="invalid_parquet")
