"""Where a large object is cut into ranges that are read by themselves.

Only between two rows: TFRecord behind a frame, NDJSON and LibSVM behind a line, CSV behind a line that does
not end inside quotes, Parquet between row groups. Any other object is one range. The ranges of an object
follow from its bytes alone, and cover all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....codecs.arrow.parquet import find_row_groups
from ....codecs.columns import Ints
from ....codecs.csv.lines import end_of_line
from ....codecs.forms import FormName
from ....codecs.messages.framing import HEADER_BYTES, OVERHEAD_BYTES, frame_header, iter_frames
from ....domain.limits import KIB, MIB
from ....errors import InputError
from ....runtime.workspace import Workspace
from ....storage.source_objects import SourceObject
from ....storage.sources import Source
from .ranges import Range
from .reading import READ_AHEAD_BYTES, PieceStream, SpooledParquet, container_of

_LF, _CR, _QUOTE = b'\n\r"'
_BOM: Final = b"\xef\xbb\xbf"
#: Read at a time to find the end of a line.
_LINE_BYTES: Final = 64 * KIB
_LONGEST_HEADER: Final = 1 * MIB
#: Records of an object that are passed over to find the ends of others.
_MAX_DAMAGED: Final = 100
#: Without a byte there is no row, and nothing is wrong.
_MAY_BE_EMPTY: Final = frozenset({"tfrecord", "ndjson", "libsvm"})


def cut(
    source: Source,
    item: SourceObject,
    form: FormName,
    range_bytes: int,
    delimiter: str,
    workspace: Workspace,
    pool: ThreadPoolExecutor | None,
) -> Iterator[Range]:
    """The ranges of an object, in order, each of about `range_bytes`.

    Args:
        delimiter: of a CSV.

    An object that cannot be read where it is cut is one range from there on; reading it tells what is wrong.

    Raises:
        UnprocessableInput: the object changed since it was listed (`source_changed`).
        StorageError: it cannot be read.
    """
    if not item.size and form in _MAY_BE_EMPTY:
        return
    if item.size <= range_bytes or container_of(item.name) is not None:
        yield Range(item, 0, item.size)
    elif form == "parquet":
        yield from _cut_parquet(source, item, range_bytes, workspace)
    else:
        head = _header_bytes(source, item) if form == "csv" else 0
        start = 0
        for end in _ends(source, item, form, range_bytes, delimiter, workspace, pool):
            yield Range(item, start, end, head)
            start = end
        if start < item.size:
            yield Range(item, start, item.size, head)


def _ends(
    source: Source,
    item: SourceObject,
    form: FormName,
    range_bytes: int,
    delimiter: str,
    workspace: Workspace,
    pool: ThreadPoolExecutor | None,
) -> Iterator[int]:
    """Where ranges end before the last one does."""
    if form in ("ndjson", "libsvm"):
        yield from _line_ends(source, item, range_bytes)
    elif form == "csv":
        workspace.budget.reserve(READ_AHEAD_BYTES)
        with closing(PieceStream(source, item, 0, item.size, pool)) as body:
            yield from _csv_line_ends(body, item.size, range_bytes, delimiter)
    elif form == "tfrecord":
        workspace.budget.reserve(READ_AHEAD_BYTES)
        target = range_bytes
        for ends in _frame_ends(source, item, workspace, pool):
            while target <= ends[-1]:
                end = int(ends[np.searchsorted(ends, target)])
                if end < item.size:
                    yield end
                target = end + range_bytes


def _line_ends(source: Source, item: SourceObject, range_bytes: int) -> Iterator[int]:
    """The end of a line in every `range_bytes`; little else is read."""
    position = range_bytes - 1
    while position < item.size - 1:
        data = bytes(source.read(item, position, min(_LINE_BYTES, item.size - position)))
        found = data.find(_LF)
        if found < 0:
            position += len(data)
        elif position + found + 1 < item.size:
            yield position + found + 1
            position += found + range_bytes
        else:
            return


def _header_bytes(source: Source, item: SourceObject) -> int:
    return end_of_line(bytes(source.read(item, 0, min(_LONGEST_HEADER, item.size))))


def _csv_line_ends(body: PieceStream, size: int, range_bytes: int, delimiter: str) -> Iterator[int]:
    """As `_line_ends`; but all is read: only the quotes before a line feed tell whether it ends a row.

    A quote that stands where none may leaves open what is inside quotes behind it. So nothing is cut there:
    the last range has all of it, and is refused by its reader.
    """
    offset = quotes = 0
    before, target = _LF, range_bytes
    while piece := body.read_view():
        if not offset and bytes(piece[: len(_BOM)]) == _BOM:
            piece, offset = piece[len(_BOM) :], len(_BOM)
        data = np.frombuffer(piece, np.uint8)
        at_quotes = np.flatnonzero(data == _QUOTE)
        sound = _first_stray_quote(data, at_quotes, quotes % 2, before, ord(delimiter))
        while target <= offset + sound:
            first = max(0, target - 1 - offset)
            feeds = np.flatnonzero(data[first:sound] == _LF) + first
            outside = feeds[(quotes + np.searchsorted(at_quotes, feeds)) % 2 == 0]
            if not len(outside):
                break
            end = offset + int(outside[0]) + 1
            if end < size:
                yield end
            target = end + range_bytes
        if sound < len(data):
            return
        quotes += len(at_quotes)
        offset += len(data)
        before = piece[-1] if piece else before


def _first_stray_quote(
    data: NDArray[np.uint8], at_quotes: Ints, inside: int, before: int, delimiter: int
) -> int:
    """Where the first quote stands that neither begins nor ends a field; the number of bytes if none does.

    Args:
        at_quotes: where there are quotes.
        inside: 1 if the data begin inside quotes, else 0.
        before: the byte before them.
    """
    ends = np.array([delimiter, _LF, _CR, _QUOTE], np.uint8)
    if before == _QUOTE and not inside and len(data) and data[0] not in ends:
        return 0
    # What follows the last byte is seen with the next data.
    around = np.concatenate([np.array([before], np.uint8), data, np.array([_LF], np.uint8)])
    opening, closing = at_quotes[inside::2], at_quotes[1 - inside :: 2]
    stray = [
        opening[~np.isin(around[opening], ends[ends != _CR])],
        closing[~np.isin(around[closing + 2], ends)],
    ]
    return int(np.concatenate([*stray, [len(data)]]).min())


def _frame_ends(
    source: Source, item: SourceObject, workspace: Workspace, pool: ThreadPoolExecutor | None
) -> Iterator[Ints]:
    """Where frames end. One with a damaged payload is left out: its length still tells where the next begins.

    There are no more behind a damaged length, and none in an object that is compressed.
    """
    begin, stop, damaged = 0, item.size, 0
    while begin < item.size and damaged <= _MAX_DAMAGED:
        size = _frame_size(source, item, begin)
        if size is None:
            return
        first, fault = begin, stop
        with closing(PieceStream(source, item, begin, stop, pool)) as body:
            try:
                for block in iter_frames(body, workspace.budget, compression="none"):
                    ends = first + block.offset + block.ends
                    yield ends
                    begin = int(ends[-1])
            except InputError as error:
                if error.code == "source_changed":
                    raise
                if error.location.offset is None:
                    return
                fault = first + error.location.offset
        if begin < fault:  # whole frames, which were read together with the faulty one
            stop = fault
        elif fault == first:  # nothing else came of it
            begin, stop, damaged = first + size, item.size, damaged + 1
        else:
            stop = item.size


def _frame_size(source: Source, item: SourceObject, offset: int) -> int | None:
    """The bytes of the frame that begins there; None if none does."""
    head = bytes(source.read(item, offset, min(HEADER_BYTES, item.size - offset)))
    length = int.from_bytes(head[:8], "little")
    whole = len(head) == HEADER_BYTES and head == frame_header(length)
    return OVERHEAD_BYTES + length if whole else None


def _cut_parquet(
    source: Source, item: SourceObject, range_bytes: int, workspace: Workspace
) -> Iterator[Range]:
    with workspace.spool.open() as nothing:
        try:
            groups = find_row_groups(SpooledParquet(source, item, 0, nothing), workspace.budget)
        except InputError as error:
            if error.code == "source_changed":
                raise
            groups = []
    if not groups:
        yield Range(item, 0, item.size)
    first = 0
    while first < len(groups):
        last, size = first, 0
        while last < len(groups) and (last == first or size + _size(groups[last]) <= range_bytes):
            size += _size(groups[last])
            last += 1
        begins, ends = zip(*groups[first:last], strict=True)
        # What the footer says is checked where it is read.
        start = min(min(begins), item.size)
        yield Range(item, start, max(start, min(max(ends), item.size)), row_groups=(first, last))
        first = last


def _size(group: tuple[int, int]) -> int:
    return max(0, group[1] - group[0])
