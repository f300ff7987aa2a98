"""A file object for Arrow's reader, which charges the memory of IPC messages before Arrow allocates it.

Arrow checks the structure of every message, and `RecordBatch.validate(full=True)` the values. Neither bounds
what a few bytes can stand for: compressed buffers, rows without any memory of their own, and schemas whose
tables or texts are shared, so that a few kilobytes spell a tree of any size. Those are measured here.

Source: arrow.apache.org, "Columnar Format"; `Message.fbs` and `Schema.fbs` of Arrow 26; flatbuffers.dev,
"FlatBuffer Internals".
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...domain.limits import KIB, MIB
from ...errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.amplification import ROW_BYTES, Amplification
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, PrefixedStream, read_exactly, read_up_to
from ..content import read_content

_MAGIC: Final = b"ARROW1"
_CONTINUATION: Final = b"\xff\xff\xff\xff"
_END: Final = _CONTINUATION + bytes(4)
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
#: Metadata holds 16 bytes for each column and each buffer; a schema holds names.
_MAX_METADATA: Final = 32 * MIB

#: Bounds on a schema: fields of all levels, and bytes of names and metadata; what is shared counts each time.
_MAX_FIELDS: Final = 100_000
_MAX_FIELD_DEPTH: Final = 32
_MAX_SCHEMA_TEXT: Final = 64 * MIB
#: What Arrow holds for a field, and for a pair of metadata beside its text.
_FIELD_BYTES: Final = 1 * KIB
_PAIR_BYTES: Final = 64
_TIMESTAMP: Final = 10
_UNION: Final = 14


class Table:
    """A table of a FlatBuffer. Fields go by their number; an absent one has its default.

    Every method raises struct.error where an offset or a length leads out of the buffer.
    """

    __slots__ = ("_data", "_fields", "_position")

    def __init__(self, data: Buffer, position: int) -> None:
        self._data = data
        self._position = position
        vtable = position - self._unpack("i", position)
        num_fields = max(0, self._unpack("H", vtable) // 2 - 2)
        self._fields = struct.unpack_from(f"<{num_fields}H", data, vtable + 4)

    def _unpack(self, layout: str, position: int) -> int:
        value: int = struct.unpack_from("<" + layout, self._data, position)[0]
        return value

    def _locate(self, number: int) -> int:
        """Where a field stands, or 0."""
        offset = self._fields[number] if number < len(self._fields) else 0
        return self._position + offset if offset else 0

    def scalar(self, number: int, layout: str) -> int:
        """A number; `layout` is its code in `struct`."""
        position = self._locate(number)
        return self._unpack(layout, position) if position else 0

    def table(self, number: int) -> Table | None:
        """A table, also that of a union."""
        position = self._locate(number)
        return Table(self._data, position + self._unpack("I", position)) if position else None

    def _vector(self, number: int, item_bytes: int) -> tuple[int, int]:
        position = self._locate(number)
        if not position:
            return 0, 0
        start = position + self._unpack("I", position)
        length = self._unpack("I", start)
        if start + 4 + length * item_bytes > len(self._data):
            raise struct.error("a vector does not end")
        return start + 4, length

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two int64."""
        start, length = self._vector(number, 16)
        pairs: Iterator[tuple[int, int]] = struct.iter_unpack("<qq", self._data[start : start + 16 * length])
        return pairs

    def tables(self, number: int) -> Iterator[Table]:
        """A vector of tables, each read as it is drawn."""
        start, length = self._vector(number, 4)
        for position in range(start, start + 4 * length, 4):
            yield Table(self._data, position + self._unpack("I", position))

    def text(self, number: int) -> bytes:
        """A string."""
        start, length = self._vector(number, 1)
        return bytes(self._data[start : start + length])

    def num_bytes(self, number: int, item_bytes: int = 1) -> int:
        """The size of a string or of a vector of numbers."""
        return self._vector(number, item_bytes)[1] * item_bytes


def root_table(data: Buffer) -> Table:
    """The table that a FlatBuffer begins with a pointer to. Raises struct.error as `Table` does."""
    return Table(data, struct.unpack_from("<I", data)[0])


def measure_schema(schema: Table) -> int:
    """The bytes that Arrow holds for a schema.

    Raises:
        struct.error: corrupt.
        UnprocessableInput: big-endian (`unsupported_arrow`).
        LimitExceeded: more fields, deeper, or with more text than is read (`schema_too_large`).
    """
    if schema.scalar(0, "h"):
        raise unsupported_error("Big-endian Arrow is not read; write it little-endian")
    text = measure_metadata(schema, 2)
    num_fields = 0
    levels = [schema.tables(1)]
    while levels:
        field = next(levels[-1], None)
        if field is None:
            levels.pop()
            continue
        num_fields += 1
        text += field.num_bytes(0) + _measure_type(field) + measure_metadata(field, 6)
        levels.append(field.tables(5))
        if num_fields > _MAX_FIELDS or text > _MAX_SCHEMA_TEXT or len(levels) > _MAX_FIELD_DEPTH:
            raise LimitExceeded(
                f"The Arrow schema has more than {_MAX_FIELDS} fields, {_MAX_FIELD_DEPTH} levels or "
                f"{_MAX_SCHEMA_TEXT} bytes of names and metadata.",
                code="schema_too_large",
            )
    return text + num_fields * _FIELD_BYTES


def _measure_type(field: Table) -> int:
    """The bytes of a type beside numbers: a time zone, or the numbers of a union's members."""
    layout = field.table(3)
    kind = field.scalar(2, "B")
    if layout is None or kind not in (_TIMESTAMP, _UNION):
        return 0
    return layout.num_bytes(1, 4 if kind == _UNION else 1)


def measure_metadata(table: Table, number: int) -> int:
    """The bytes that Arrow holds for the metadata in a field of `table`.

    Raises:
        struct.error: corrupt.
        LimitExceeded: too many (`schema_too_large`).
    """
    total = 0
    for pair in table.tables(number):
        total += _PAIR_BYTES + pair.num_bytes(0) + pair.num_bytes(1)
        if total > _MAX_SCHEMA_TEXT:
            raise LimitExceeded(
                f"The Arrow schema has more than {_MAX_SCHEMA_TEXT} bytes of metadata in one place. "
                "Send less.",
                code="schema_too_large",
            )
    return total


def read_field_metadata(message: memoryview) -> dict[bytes, bytes]:
    """The metadata of the first field of a schema that Arrow serialized itself.

    pyarrow takes the metadata of an extension away from the field, and does not tell it.
    """
    schema = root_table(message[8:]).table(2)
    field = None if schema is None else next(schema.tables(1), None)
    return {} if field is None else {pair.text(0): pair.text(1) for pair in field.tables(6)}


def unsupported_error(what: str) -> UnprocessableInput:
    """An error for valid Arrow that is not supported."""
    return UnprocessableInput(f"{what}.", code="unsupported_arrow")


class FileObject:
    """A file object with the methods that pyarrow asks for."""

    closed = False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is held open."""


class GuardedFile(FileObject):
    """A readable file for Arrow's stream reader, over a stream or a file in Arrow's format.

    A file is a stream after eight bytes, followed by a footer, which is not read.

    `read` raises:
        MalformedInput: cut short (`truncated`), corrupt (`invalid_arrow`), or followed by something else
            (`trailing_bytes`).
        UnprocessableInput: a legal message that is not read (`unsupported_arrow`).
        LimitExceeded: more than the budget, or more rows than bytes can stand for.
    """

    def __init__(self, source: ByteStream, budget: Budget) -> None:
        self._source = source
        self._budget = budget
        self._offset = 0
        self._parts: deque[Buffer] = deque()
        self._is_file = False
        self._ended = False
        self._held = 0

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Release what the last batch was charged."""
        self._budget.release(self._held)
        self._held = 0

    def read(self, n: int) -> Buffer:
        """Up to `n` bytes of checked messages; exactly `n` where a part of a message is that long."""
        if not self._parts and not self._ended:
            self.close()
            self._parts.extend(self._read_message())
        if not self._parts:
            return b""
        part = memoryview(self._parts.popleft())
        if len(part) > n:
            self._parts.appendleft(part[n:])
        return part[:n]

    def _read_message(self) -> list[Buffer]:
        """The next message in the parts that Arrow asks for; at the end of a stream its marker or nothing."""
        metadata = self._begin() if not self._offset else None
        start = self._offset
        if metadata is None:
            mark = self._read_up_to(4)
            if mark != _CONTINUATION:
                return self._end_without_marker(mark)
            size = int.from_bytes(self._read(4, "the length of a message"), "little", signed=True)
            if not size:
                self._end_at_marker()
                return [_END]
            if not 0 < size <= _MAX_METADATA:
                raise _invalid(f"A message declares {size} bytes of metadata; at most {_MAX_METADATA}", start)
            self._charge(size, "The metadata of an Arrow message")
            metadata = self._read(size, "the metadata of a message")
        try:
            body = self._read_body(metadata)
        except struct.error:
            raise _invalid("The metadata of an Arrow message is corrupt", start) from None
        except InputError as error:
            if error.location.offset is None:
                error.location = replace(error.location, offset=start)
            raise
        parts: list[Buffer] = [_CONTINUATION, struct.pack("<i", len(metadata)), metadata]
        return [*parts, body] if body else parts

    def _begin(self) -> bytes | None:
        """Read what stands before the first message, and the message itself if it has no marker."""
        head = self._read_up_to(8)
        if len(head) < 8:
            raise self._truncation_error("its first message; an Arrow stream begins with its schema")
        if not head.startswith(_MAGIC):
            self._source = PrefixedStream(head, self._source)
            self._offset = 0
            return None
        if head != _MAGIC + bytes(2):
            raise _invalid("The magic number of an Arrow file is not padded with zeros", 0)
        self._is_file = True
        mark = read_up_to(self._source, 4)
        if mark == _CONTINUATION or len(mark) < 4:
            self._source = PrefixedStream(mark, self._source)
            return None
        return self._read_bare_schema(mark)

    def _read_bare_schema(self, begin: bytes) -> bytes:
        """The schema as polars writes it: without marker and length, up to the next message."""
        found = bytearray(begin)
        searched = 0
        while True:
            at = found.find(_CONTINUATION, searched)
            if at < 0 or len(found) < at + 8:
                piece = self._source.read(64 * KIB)
                if not piece or len(found) > _MAX_METADATA:
                    raise self._foreign_error()
                self._charge(len(piece), "The schema of an Arrow file")
                found += piece
            elif at % 8 == 0 and int.from_bytes(found[at + 4 : at + 8], "little", signed=True) >= 0:
                break
            else:
                searched = at + 1
        self._source = PrefixedStream(bytes(found[at:]), self._source)
        self._offset += at
        return bytes(found[:at])

    def _read_body(self, metadata: bytes) -> bytearray:
        message = root_table(metadata)
        kind, header, size = message.scalar(1, "B"), message.table(2), message.scalar(3, "q")
        if header is None or not 0 <= size <= self._budget.limits.max_body_bytes:
            raise _invalid(f"A message declares a body of {size} bytes, or has no header")
        self._charge(measure_metadata(message, 4), "The metadata of an Arrow message")
        records = None
        if kind == _SCHEMA:
            self._charge(measure_schema(header), "The schema of an Arrow stream")
        elif kind == _RECORDS:
            records = header
        elif kind == _DICTIONARY:
            if header.scalar(2, "?"):  # Arrow appends each by copying all that went before
                raise unsupported_error(
                    "A dictionary that is sent in pieces (isDelta) is not read; send it whole"
                )
            records = header.table(1)
        else:
            raise unsupported_error(
                "Only schemas, dictionaries and record batches are read from Arrow, no tensors"
            )
        if records is not None:
            num_rows = max([records.scalar(0, "q"), *(length for length, _ in records.pairs(1))])
            num_bytes = self._offset + size
            rows = Amplification(self._budget.limits.max_amplification, lambda: num_bytes)
            rows.add("decoded", num_rows * ROW_BYTES)
        self._charge(size, "The body of an Arrow message")
        body = read_content(self._source, size, "the body of a message", offset=self._offset)
        self._offset += size
        if records is not None and records.table(3) is not None:
            self._charge_compressed(records, body)
        if kind != _RECORDS:
            self._held = 0  # a schema and dictionaries stay to the end
        return body

    def _charge_compressed(self, records: Table, body: Buffer) -> None:
        """Charge the uncompressed sizes, which the buffers of a compressed batch begin with."""
        for offset, length in records.pairs(2):
            if not length:
                continue
            size = struct.unpack_from("<q", body, offset)[0]
            if size < -1:
                raise _invalid("A compressed Arrow buffer has a negative length")
            self._charge(max(size, 0), "A compressed Arrow buffer")

    def _end_at_marker(self) -> None:
        self._ended = True
        if self._is_file:
            self._read_footer(b"")
        elif self._source.read(1):
            raise MalformedInput(
                "Bytes follow the end of the Arrow stream. Send one stream.",
                code="trailing_bytes",
                offset=self._offset,
            )

    def _end_without_marker(self, found: bytes) -> list[Buffer]:
        """The end of a stream without a marker; anything else is an error."""
        if found and len(found) < 4:
            raise self._truncation_error("a message")
        if found:
            self._offset -= 4
            raise self._foreign_error()
        self._ended = True
        if self._is_file:
            raise self._truncation_error("the footer of the file")
        return []

    def _read_footer(self, tail: bytes) -> None:
        """Read the rest of a file, and check only that it ends as an Arrow file."""
        while piece := self._source.read(MIB):
            tail = (tail + piece)[-10:]
            self._offset += len(piece)
        if len(tail) < 10 or not tail.endswith(_MAGIC):
            raise self._truncation_error("the footer of the file")

    def _charge(self, num_bytes: int, what: str) -> None:
        self._budget.charge(num_bytes, what)
        self._held += num_bytes

    def _read_up_to(self, n: int) -> bytes:
        found = read_up_to(self._source, n)
        self._offset += len(found)
        return found

    def _read(self, n: int, what: str) -> bytes:
        found = read_exactly(self._source, n, what, offset=self._offset)
        self._offset += n
        return found

    def _truncation_error(self, what: str) -> MalformedInput:
        return MalformedInput(f"The body ends inside {what}.", code="truncated", offset=self._offset)

    def _foreign_error(self) -> UnprocessableInput:
        return UnprocessableInput(
            "This is no Arrow IPC stream or file, or one of a version before 0.15 (2019), which is not read. "
            "Write it with a newer Arrow.",
            code="unsupported_arrow",
            offset=self._offset,
        )


def _invalid(what: str, offset: int | None = None) -> MalformedInput:
    return MalformedInput(f"{what}.", code="invalid_arrow", offset=offset)
