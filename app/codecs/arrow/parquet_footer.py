"""The footer of a Parquet file, read without Arrow.

pyarrow's own accessors are not safe for untrusted bytes: where a column contradicts itself (in 26.0, size
statistics whose length does not fit its levels), an uncaught C++ exception ends the process.

Source: github.com/apache/parquet-format, `src/main/thrift/parquet.thrift`, version 2.12.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from .thrift import Incomplete, invalid_parquet, parse_struct

T = TypeVar("T")

_MAX_ITEMS: Final = 1_000_000
_MAX_DEPTH: Final = 64
_OPTIONAL, _REPEATED = 1, 2
_FIXED: Final = 7
#: Bytes of a value in memory by physical type: boolean, int32, int64, int96, float, double.
_WIDTHS: Final = {0: 1, 1: 4, 2: 8, 3: 16, 4: 4, 5: 8}
_MAX_INT64: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of the schema.

    Attributes:
        value_bytes: of one value in memory; 0 for strings, whose sizes differ.
        num_levels: how many kinds of levels its pages have: repetition of lists, definition of nulls.
        repeated: it has lists, so that a row may have any number of values.
    """

    value_bytes: int
    num_levels: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column of a row group: its pages lie from `start` to `stop`, and hold `num_values`.

    Attributes:
        codec: number of the compression in the format.
    """

    path: str
    leaf: Leaf
    codec: int
    num_values: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Some consecutive rows."""

    num_rows: int
    columns: list[ColumnChunk]


@dataclass(frozen=True, slots=True)
class ParquetFooter:
    """What the reader has to know before it calls Arrow.

    Attributes:
        arrow_schemas: the values of the key `ARROW:schema`.
    """

    num_rows: int
    row_groups: list[RowGroup]
    arrow_schemas: list[bytes]


def parse_footer(data: bytes) -> ParquetFooter:
    """The footer from its bytes.

    Raises:
        MalformedInput: corrupt, or it contradicts itself (`invalid_parquet`).
    """
    try:
        fields, end = parse_struct(data, max_items=_MAX_ITEMS)
    except Incomplete:
        raise invalid_parquet("The footer of the Parquet file does not end") from None
    if end != len(data):
        raise invalid_parquet("The footer of the Parquet file is followed by something else")
    leaves = list(_leaves(_require(fields, 2, list)))
    groups = [_row_group(group, leaves) for group in _require(fields, 4, list)]
    num_rows = _number(fields, 3)
    if sum(group.num_rows for group in groups) != num_rows:
        raise invalid_parquet(f"The row groups have other than the {num_rows} rows that the footer declares")
    pairs = [pair for pair in _require(fields, 5, list) if isinstance(pair, dict)] if 5 in fields else []
    schemas = [pair.get(2, b"") for pair in pairs if pair.get(1) == b"ARROW:schema"]
    return ParquetFooter(num_rows, groups, schemas)


def _leaves(elements: list[Any]) -> Iterator[Leaf]:
    """The columns of the schema, which is a tree in depth-first order."""
    #: Of each open node, how many children are to come, and whether it can be repeated or lacking.
    open_: list[list[Any]] = []
    for index, element in enumerate(elements):
        if not isinstance(element, dict) or (index and not open_) or len(open_) > _MAX_DEPTH:
            raise invalid_parquet("The schema of the Parquet file is no tree, or too deep")
        repetition = element.get(3) if index else None
        repeated = bool(open_ and open_[-1][1]) or repetition == _REPEATED
        lacking = bool(open_ and open_[-1][2]) or repetition in (_OPTIONAL, _REPEATED)
        if open_:
            open_[-1][0] -= 1
        if children := _number(element, 5):
            open_.append([children, repeated, lacking])
        elif index:
            kind = _number(element, 1)
            width = _number(element, 2) if kind == _FIXED else _WIDTHS.get(kind, 0)
            yield Leaf(width, repeated + lacking, repeated)
        while open_ and not open_[-1][0]:
            open_.pop()
    if open_:
        raise invalid_parquet("The schema of the Parquet file is no tree")


def _row_group(group: Any, leaves: list[Leaf]) -> RowGroup:
    chunks = _require(group, 1, list)
    if len(chunks) != len(leaves):
        raise invalid_parquet("A row group has other columns than the schema")
    return RowGroup(_number(group, 3), [_chunk(*pair) for pair in zip(chunks, leaves, strict=True)])


def _chunk(chunk: Any, leaf: Leaf) -> ColumnChunk:
    found = _require(chunk, 3, dict)
    path = b".".join(part for part in _require(found, 3, list) if isinstance(part, bytes))
    start = _number(found, 9)
    dictionary = _number(found, 11)
    if 0 < dictionary < start:
        start = dictionary
    stop = start + _number(found, 7)
    name = path.decode("utf-8", "replace")
    return ColumnChunk(name, leaf, _number(found, 4), _number(found, 5), start, stop)


def _require(fields: Any, number: int, kind: type[T]) -> T:
    value = fields.get(number) if isinstance(fields, dict) else None
    if not isinstance(value, kind):
        raise invalid_parquet(f"The footer of the Parquet file lacks a {kind.__name__}")
    return value


def _number(fields: Any, number: int) -> int:
    """A number that is not negative; 0 where it is absent."""
    value = fields.get(number, 0) if isinstance(fields, dict) else -1
    if not isinstance(value, int) or not 0 <= value <= _MAX_INT64:
        raise invalid_parquet("The footer of the Parquet file has a number that cannot be")
    return value
