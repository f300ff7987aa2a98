"""Checking one shard: its frames, its records, its pieces, the index of its records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....codecs.compression.tfrecord import RescuedStream
from ....codecs.messages.framing import HEADER_BYTES, OVERHEAD_BYTES, FrameBlock
from ....codecs.messages.messages import parse_messages
from ....codecs.messages.salvage import salvage_frames
from ....codecs.options import RecordsDecodeOptions
from ....domain.compression import Compression
from ....domain.losses import LostRange
from ....domain.manifest import ShardEntry
from ....domain.schema import Schema
from ....domain.sharding.shard_plan import record_offsets
from ....errors import InputError, UnprocessableInput
from ....runtime.budget import Budget
from ....runtime.streams import ByteStream, read_up_to
from ....storage.object_store import ObjectStore
from ..objects.layout import INDEX
from ..pieces.pieces import Piece
from ..pieces.stream import STORED_LIMITS
from .problems import MAX_PROBLEMS, Problems
from .range_stream import RangeStream, open_checked, require_checksum

_DETAILS: Final = {
    "bad_length": "The length of the record does not match its checksum.",
    "bad_payload": "The payload of the record does not match its checksum.",
    "record_too_large": "The record is longer than any that is stored.",
    "truncated": "The file ends inside the record.",
}


class ShardCheck:
    """Compares a shard with what is on record about it.

    Args:
        pieces: that it should consist of; none where that is not known.

    Attributes:
        num_records, num_bytes: good records, and bytes of the file, as they were found.
    """

    def __init__(
        self,
        entry: ShardEntry,
        pieces: Sequence[Piece],
        schema: Schema,
        compression: Compression,
        problems: Problems,
    ) -> None:
        self.num_records = 0
        self.num_bytes = 0
        self._entry = entry
        self._file = entry.file
        self._pieces = pieces
        self._schema = schema
        self._compression = compression
        self._problems = problems
        #: Where pieces begin in the uncompressed shard, and how many records lie before each.
        self._piece_starts = np.array(record_offsets(piece.num_bytes for piece in pieces), np.int64)
        self._records_before = record_offsets(piece.num_records for piece in pieces)
        self._counts = np.zeros(len(pieces), np.int64)
        self._record = 0
        self._is_damaged = False

    def run(self, store: ObjectStore, folder: str, pool: ThreadPoolExecutor) -> None:
        """Read the shard and the index of its records.

        Raises:
            StorageError: the store failed.
        """
        stream = open_checked(
            store, f"{folder}/{self._file}", self._entry, pool, self._problems, self._pieces
        )
        lines = _IndexLines.open(store, folder, self._entry, pool, self._problems)
        try:
            if stream is not None:
                self.num_bytes = stream.size
                self._check_frames(stream, lines)
                self._check_bytes(stream)
                self._check_counts()
            if lines is not None:
                lines.end(checked=stream is not None and not self._is_damaged)
        finally:
            for opened in (stream, None if lines is None else lines.stream):
                if opened is not None:
                    opened.close()

    def _check_frames(self, stream: RangeStream, lines: _IndexLines | None) -> None:
        inflated = None
        if self._compression != "none":
            inflated = RescuedStream(stream, self._compression, Budget(STORED_LIMITS))
        try:
            for item in self._items(inflated or stream):
                if isinstance(item, LostRange):
                    self._lose(item)
                else:
                    self._take(item, None if self._is_damaged else lines)
        except UnprocessableInput as error:
            self._add(error.code, "The file is damaged in too many places.", offset=error.location.offset)
        if inflated is not None:
            self._check_stream(inflated)

    def _items(self, stream: ByteStream) -> Iterator[FrameBlock | LostRange]:
        return salvage_frames(stream, Budget(STORED_LIMITS), compression="none")

    def _lose(self, lost: LostRange) -> None:
        self._is_damaged = True
        self._anchor(lost.offset)
        self._problems.add(
            lost.reason, self._file, _DETAILS[lost.reason], record=self._record, offset=lost.offset
        )
        self._record += lost.is_record

    def _anchor(self, offset: int) -> None:
        """Count on from the piece in which `offset` lies, of which the index says what comes before it."""
        if self._pieces:
            self._record = max(self._record, self._records_before[self._piece_of(offset)])

    def _take(self, block: FrameBlock, lines: _IndexLines | None) -> None:
        if self._is_damaged:
            self._anchor(block.offset)
        begins = block.offset + block.starts - HEADER_BYTES
        self._count_by_piece(begins)
        if lines is not None:
            lines.compare(begins, block.sizes + OVERHEAD_BYTES)
        if not self._problems.truncated:
            self._decode(block)
        self.num_records += block.num_records
        self._record += block.num_records
        if self._is_damaged and self._pieces:
            last = min(self._piece_of(int(begins[-1])), len(self._pieces) - 1)
            if self._piece_starts[last] >= begins[0]:
                behind = int(np.count_nonzero(begins >= self._piece_starts[last]))
                self._record = max(self._record, self._records_before[last] + behind)

    def _piece_of(self, offset: int) -> int:
        return int(np.searchsorted(self._piece_starts, offset, side="right")) - 1

    def _count_by_piece(self, begins: NDArray[np.int64]) -> None:
        if len(self._pieces):
            numbers = np.searchsorted(self._piece_starts, begins, side="right") - 1
            inside = numbers[numbers < len(self._pieces)]
            self._counts += np.bincount(inside, minlength=len(self._pieces))

    def _decode(self, block: FrameBlock) -> None:
        """Read every record by the schema, those before and behind one that does not fit by themselves."""
        found: list[tuple[int, InputError]] = []
        ranges = [(0, block.num_records)]
        while ranges and len(found) <= MAX_PROBLEMS:
            first, stop = ranges.pop()
            error = self._decode_range(block, first, stop) if first < stop else None
            if error is not None:
                at = first + (error.location.row or 0)
                found.append((at, error))
                ranges += [(at + 1, stop), (first, at)]
        for at, error in sorted(found, key=lambda item: item[0]):
            offset = int(block.offset + block.starts[at]) - HEADER_BYTES
            self._add(error.code, error.detail, record=self._record + at, offset=offset)

    def _decode_range(self, block: FrameBlock, first: int, stop: int) -> InputError | None:
        """What is wrong with one of the records, if anything; it need not be the first."""
        some = replace(block, starts=block.starts[first:stop], sizes=block.sizes[first:stop], first_record=0)
        options = RecordsDecodeOptions(schema=self._schema)
        try:
            deque(parse_messages(iter([some]), options, Budget(STORED_LIMITS)).batches, maxlen=0)
        except InputError as error:
            return error
        return None

    def _check_stream(self, inflated: RescuedStream) -> None:
        """A compressed shard is one member or stream, and nothing else: TensorFlow may lose what follows."""
        broken = inflated.broken
        if broken is not None:
            self._is_damaged = True
            self._add(broken.code, broken.detail, offset=broken.location.offset)
        elif inflated.num_members > 1:
            self._add("several_members", f"The file has {inflated.num_members} members instead of one.")

    def _check_bytes(self, stream: RangeStream) -> None:
        stream.drain()
        is_whole = stream.sha256 == self._entry.sha256
        for number in stream.wrong_pieces:
            offset, record = int(self._piece_starts[number]), self._records_before[number]
            if is_whole:
                detail = f"Piece {number} of {self._file} does not have the SHA-256 that the index says."
                self._problems.add("wrong_index", INDEX, detail)
            else:
                detail = f"Piece {number} does not have the SHA-256 on record."
                self._add("wrong_checksum", detail, record=record, offset=offset)
        if not is_whole and not stream.wrong_pieces:
            self._add("wrong_checksum", "The file does not have the SHA-256 on record.")

    def _check_counts(self) -> None:
        found, recorded = self.num_records, self._entry.num_records
        if found != recorded:
            self._add("wrong_count", f"The file has {found} good records instead of {recorded}.")
        if self._is_damaged or not self._pieces:
            return
        for number, (piece, count) in enumerate(zip(self._pieces, self._counts.tolist(), strict=True)):
            if piece.num_records != count:
                detail = f"In piece {number} of {self._file} begin {count} records, not {piece.num_records}."
                self._problems.add("wrong_index", INDEX, detail)
        if sum(piece.size for piece in self._pieces) != self._entry.num_bytes:
            self._problems.add("wrong_index", INDEX, f"The pieces of {self._file} are not all of it.")

    def _add(self, code: str, detail: str, *, record: int | None = None, offset: int | None = None) -> None:
        self._problems.add(code, self._file, detail, record=record, offset=offset)


class _IndexLines:
    """The index of a shard's records, compared line by line with where they are."""

    def __init__(self, stream: RangeStream, entry: ShardEntry, problems: Problems) -> None:
        assert entry.index is not None  # noqa: S101  # as `open` says; for the type
        self.stream = stream
        self._entry = entry.index
        self._problems = problems
        self._line = 0
        self._offset = 0
        self._is_right = True

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        folder: str,
        entry: ShardEntry,
        pool: ThreadPoolExecutor,
        problems: Problems,
    ) -> _IndexLines | None:
        """None where the shard has no index, or it is missing."""
        if entry.index is None:
            return None
        stream = open_checked(store, f"{folder}/{entry.index.file}", entry.index, pool, problems)
        return None if stream is None else cls(stream, entry, problems)

    def compare(self, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """The next lines; the first that is wrong is told, and none behind it."""
        if not self._is_right:
            return
        lines = [b"%d %d\n" % pair for pair in zip(begins.tolist(), sizes.tolist(), strict=True)]
        expected = b"".join(lines)
        found = read_up_to(self.stream, len(expected))
        if found == expected:
            self._line += len(lines)
            self._offset += len(expected)
            return
        for line in lines:
            if not found.startswith(line):
                break
            found = found[len(line) :]
            self._line += 1
            self._offset += len(line)
        self._wrong(f"The line does not say {line.decode().rstrip()!r}.")

    def end(self, *, checked: bool) -> None:
        """What is left of the file, and its SHA-256.

        Args:
            checked: every line of it has been compared that should be there.
        """
        if checked and self._is_right and self.stream.read(1):
            self._wrong("There are more lines than records.")
        require_checksum(self.stream, self._entry, self._problems)

    def _wrong(self, detail: str) -> None:
        self._is_right = False
        self._problems.add(
            "wrong_record_index", self._entry.file, detail, record=self._line, offset=self._offset
        )
