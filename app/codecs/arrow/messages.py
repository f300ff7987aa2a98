"""Arrow IPC messages, each checked before Arrow's own reader sees it.

That reader is handed a file whose `read` gives out verified messages: lengths that fit the body, buffers
that lie inside it, and nothing that would take more memory than the budget has. What the values mean,
`RecordBatch.validate` checks afterwards.

Source: arrow.apache.org, "Columnar Format", section "Serialization and Interprocess Communication";
`Message.fbs`, `Schema.fbs` and `File.fbs` of Arrow 26.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final

from ...domain.limits import MIB
from ...errors import InputError, MalformedInput, UnprocessableInput
from ...runtime.amplification import Amplification
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, PrefixedStream, read_exactly, read_up_to
from ..content import read_content
from .flatbuffers import FlatTable, root_table
from .ipc_schema import check_schema_table, measure_key_values, unsupported

__all__ = ["CONTINUATION", "END", "FILE_MAGIC", "RECORDS", "SCHEMA", "MessageFile"]

FILE_MAGIC: Final = b"ARROW1"
_FILE_HEADER: Final = FILE_MAGIC + b"\0\0"
CONTINUATION: Final = b"\xff\xff\xff\xff"
END: Final = CONTINUATION + bytes(4)

SCHEMA: Final = 1
_DICTIONARY: Final = 2
RECORDS: Final = 3
#: Metadata holds 16 bytes for each column and each buffer; a schema holds names.
_MAX_METADATA: Final = 32 * MIB
#: What even an empty record takes in a TFRecord: rows that no bytes stand behind are counted so.
_EMPTY_ROW_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class _Block:
    """A message as the footer of a file names it."""

    offset: int
    metadata_bytes: int
    body_bytes: int


class MessageFile:
    """A readable file for Arrow's stream reader, which holds the checked messages of `source`.

    The stream format and the file format are told apart by the magic number. A file is the stream
    behind eight bytes, with a footer behind its end; the footer has to name the messages that were read.

    Raises (from `read`):
        MalformedInput: cut short (`truncated`), corrupt (`invalid_arrow`), or followed by something else
            (`trailing_bytes`).
        UnprocessableInput: a legal message that is not served (`unsupported_arrow`).
        LimitExceeded: more than the budget, or more rows than bytes can stand for.
    """

    closed = False

    def __init__(self, source: ByteStream, budget: Budget) -> None:
        self._source = source
        self._budget = budget
        self._offset = 0
        self._pending: list[Buffer] = []
        self._is_file = False
        self._began = False
        self._ended = False
        self._held = 0
        self._blocks: dict[int, list[_Block]] = {_DICTIONARY: [], RECORDS: []}

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Give back what the last batch of records was charged."""
        self._budget.release(self._held)
        self._held = 0

    def read(self, n: int) -> Buffer:
        """Up to `n` bytes of verified messages; exactly `n` where one is that long."""
        if not self._pending and not self._ended:
            self._next_message()
        if not self._pending:
            return b""
        part = memoryview(self._pending[0])
        if len(part) <= n:
            return self._pending.pop(0)
        self._pending[0] = part[n:]
        return part[:n]

    def _next_message(self) -> None:
        self.close()
        if not self._began:
            self._read_start()
        start = self._offset
        prefix = self._up_to(4)
        if not prefix:
            self._finish(has_end=False)
            return
        if prefix != CONTINUATION:
            raise self._no_message(prefix)
        size = int.from_bytes(self._exactly(4, "the length of a message"), "little", signed=True)
        if size == 0:
            self._pending = [END]
            self._finish(has_end=True)
            return
        if not 0 < size <= _MAX_METADATA:
            raise self._broken(f"A message declares {size} bytes of metadata; at most {_MAX_METADATA}", start)
        self._charge(size, "The metadata of an Arrow message")
        metadata = self._exactly(size, "the metadata of a message")
        try:
            body = self._read_body(metadata, start)
        except InputError as error:
            if error.location.offset is None:
                error.location = replace(error.location, offset=start)
            raise
        # Arrow asks for these one by one.
        self._pending = [CONTINUATION, struct.pack("<i", size), metadata]
        if body:
            self._pending.append(body)

    def _read_start(self) -> None:
        self._began = True
        head = self._up_to(8)
        if len(head) < 8:
            raise self._truncated("its first message; an Arrow stream begins with its schema")
        if head[: len(FILE_MAGIC)] != FILE_MAGIC:
            self._source = PrefixedStream(head, self._source)
            self._offset = 0
            return
        if head != _FILE_HEADER:
            raise self._broken("The magic number of an Arrow file is not padded with zeros", 0)
        self._is_file = True

    def _read_body(self, metadata: bytes, start: int) -> bytearray | None:
        message = root_table(metadata)
        kind = message.integer(1, "B")
        header = message.table(2)
        size = message.integer(3, "q")
        if header is None or not 0 <= size <= self._budget.limits.max_body_bytes:
            raise self._broken(f"A message declares a body of {size} bytes, or has no header", start)
        self._charge(measure_key_values(message, 4), "The metadata of an Arrow message")
        if kind == SCHEMA:
            self._charge(check_schema_table(header), "The schema of an Arrow stream")
        elif kind == _DICTIONARY:
            header = self._check_dictionary(header)
        elif kind != RECORDS:
            raise unsupported("Only schemas, dictionaries and record batches are read from Arrow, no tensors")
        if kind in self._blocks:
            self._blocks[kind].append(_Block(start, len(metadata) + 8, size))
            self._check_buffers(header, size, start)
        self._charge(size, "The body of an Arrow message")
        body = read_content(self._source, size, "the body of a message", offset=self._offset)
        self._offset += size
        if kind in self._blocks:
            self._charge_uncompressed(header, body)
        if kind != RECORDS:
            self._held = 0  # a schema and dictionaries are held to the end
        return body

    def _check_dictionary(self, header: FlatTable) -> FlatTable:
        if header.integer(2, "?"):
            # Each is appended by copying all that went before.
            raise unsupported("A dictionary that is sent in pieces (isDelta) is not read; send it whole")
        records = header.table(1)
        if records is None:
            raise MalformedInput("An Arrow dictionary has no values.", code="invalid_arrow")
        return records

    def _check_buffers(self, records: FlatTable, size: int, start: int) -> None:
        num_rows = records.integer(0, "q")
        lengths = [length for length, _ in records.structs(1, "qq")]
        if num_rows < 0 or min(lengths, default=0) < 0:
            raise self._broken("A batch declares a negative number of rows", start)
        for offset, length in records.structs(2, "qq"):
            if offset < 0 or length < 0 or offset + length > size:
                raise self._broken("A buffer lies outside the body of its message", start)
        num_declared = max(num_rows, *lengths, 0)
        bytes_so_far = self._offset + size
        declared = Amplification(self._budget.limits.max_amplification, lambda: bytes_so_far)
        declared.add("decoded", num_declared * _EMPTY_ROW_BYTES)

    def _charge_uncompressed(self, records: FlatTable, body: Buffer) -> None:
        if records.table(3) is None:
            return
        for offset, length in records.structs(2, "qq"):
            if not length:
                continue
            if length < 8:
                raise MalformedInput("A compressed Arrow buffer has no length.", code="invalid_arrow")
            size = int.from_bytes(body[offset : offset + 8], "little", signed=True)
            if size < -1:
                raise MalformedInput("A compressed Arrow buffer has a negative length.", code="invalid_arrow")
            self._charge(max(size, 0), "A compressed Arrow buffer")

    def _finish(self, *, has_end: bool) -> None:
        self._ended = True
        if self._is_file:
            self._check_footer()
        elif has_end and self._source.read(1):
            raise MalformedInput(
                "Bytes follow the end of the Arrow stream. Send one stream.",
                code="trailing_bytes",
                offset=self._offset,
            )

    def _no_message(self, prefix: bytes) -> InputError:
        if len(prefix) < 4:
            return self._truncated("a message")
        return UnprocessableInput(
            "This is no Arrow IPC stream or file, or one of a version before 0.15 (2019), which is not read. "
            "Write it with a newer Arrow.",
            code="unsupported_arrow",
            offset=self._offset - 4,
        )

    def _check_footer(self) -> None:
        rest = bytearray()
        while piece := self._source.read(MIB):
            self._charge(len(piece), "The footer of an Arrow file")
            rest += piece
        if len(rest) < 10 or bytes(rest[-6:]) != FILE_MAGIC:
            raise self._truncated("the footer of the file")
        size = int.from_bytes(rest[-10:-6], "little", signed=True)
        if size != len(rest) - 10:
            raise self._broken(
                f"The footer declares {size} bytes, but {len(rest) - 10} are there", self._offset
            )
        footer = root_table(bytes(rest[:size]))
        for kind, number in ((_DICTIONARY, 2), (RECORDS, 3)):
            named = {_Block(*block) for block in footer.structs(number, "qi4xq")}
            if named != set(self._blocks[kind]):
                raise self._broken(
                    f"The footer names {len(named)} messages other than the {len(self._blocks[kind])} found",
                    self._offset,
                )

    def _charge(self, num_bytes: int, what: str) -> None:
        self._budget.charge(num_bytes, what)
        self._held += num_bytes

    def _up_to(self, n: int) -> bytes:
        gathered = read_up_to(self._source, n)
        self._offset += len(gathered)
        return gathered

    def _exactly(self, n: int, what: str) -> bytes:
        found = read_exactly(self._source, n, what, offset=self._offset)
        self._offset += n
        return found

    def _truncated(self, what: str) -> MalformedInput:
        return MalformedInput(f"The body ends inside {what}.", code="truncated", offset=self._offset)

    def _broken(self, what: str, offset: int) -> MalformedInput:
        return MalformedInput(f"{what}.", code="invalid_arrow", offset=offset)
