"""Parquet files: row groups in from bytes that nobody vouches for, row groups out as they are made.

Source: parquet.apache.org, "File Format"; the reading and the writing are Arrow's.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...domain.limits import KIB, MIB, Budget
from ...domain.streams import Buffer, ByteFile
from ...errors import LimitExceeded, MalformedInput, UnprocessableInput
from .arrow_ipc import Collector, arrow_faults
from .arrow_messages import check_schema_table
from .flatbuffers import root_table
from .parquet_pages import row_group_pages

__all__ = ["ParquetReader", "serialize_parquet"]

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_TAIL_BYTES: Final = 8
#: What a footer takes in memory for each of its bytes while it is read, and then: an empty struct of one
#: byte becomes one of a hundred.
_PARSED_RATIO: Final = 100
_HELD_RATIO: Final = 8
#: A column is read so much at a time, and not all of it at once.
_READ_BYTES: Final = 256 * KIB
_BATCH_BYTES: Final = 16 * MIB
_MAX_SCHEMA_DEPTH: Final = 64

#: How the footer holds Arrow's schema: key (field 1, 12 bytes), then value (field 2).
_ARROW_SCHEMA: Final = b"\x0cARROW:schema"
_VALUE_FIELD: Final = 0x18


class ParquetReader:
    """The row groups of a file, a batch at a time.

    Attributes:
        schema: as Arrow reads it.
        names: of its columns.
        num_rows: as the footer says, and as will have been read at the end.

    Raises:
        MalformedInput: no Parquet file, or a corrupt one (`invalid_parquet`, `truncated`).
        UnprocessableInput: an encrypted file (`unsupported_parquet`).
        LimitExceeded: more than the budget.
    """

    def __init__(self, file: ByteFile, budget: Budget, max_rows: int) -> None:
        self._file = file
        self._budget = budget
        self._max_rows = max_rows
        footer = _read_footer(file)
        budget.charge(_PARSED_RATIO * len(footer), "The footer of the Parquet file")
        _check_arrow_schemas(footer)
        with arrow_faults("The footer of the Parquet file", "invalid_parquet"):
            self._metadata = self._opened().metadata
            strings = _dictionary_columns(self._metadata)
            self._parquet = self._opened(metadata=self._metadata, read_dictionary=strings)
            self.schema = self._parquet.schema_arrow
            self.names: list[str] = self.schema.names
        budget.release((_PARSED_RATIO - _HELD_RATIO) * len(footer))
        self.num_rows: int = self._metadata.num_rows

    def _opened(self, **options: Any) -> pq.ParquetFile:
        source: Any = _SeekableFile(self._file)
        return pq.ParquetFile(
            source, pre_buffer=False, buffer_size=_READ_BYTES, page_checksum_verification=True, **options
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Every batch, valid in all its values; what it may take is charged until the next row group."""
        row = 0
        for index in range(self._metadata.num_row_groups):
            for batch in self._row_group(index, row):
                yield batch
                row += batch.num_rows
        if row != self.num_rows:
            raise MalformedInput(
                f"The footer declares {self.num_rows} rows, but there are {row}.", code="invalid_parquet"
            )

    def _row_group(self, index: int, row: int) -> Iterator[pa.RecordBatch]:
        with arrow_faults(f"Row group {index} of the Parquet file", "invalid_parquet"):
            columns = row_group_pages(self._file, self._metadata, index)
            num_rows = max(1, self._metadata.row_group(index).num_rows)
        average = sum(column.num_bytes for column in columns) // num_rows
        step = max(1, min(self._max_rows, _BATCH_BYTES // max(1, average)))
        held = sum(column.held_bytes(step) for column in columns)
        self._budget.charge(held, f"Row group {index} of the Parquet file")
        with arrow_faults(f"Row {row} or one behind it", "invalid_parquet"):
            batches = self._parquet.iter_batches(step, row_groups=[index], use_threads=False)
        while True:
            with arrow_faults(f"Row {row} or one behind it", "invalid_parquet"):
                batch = next(batches, None)
                if batch is None:
                    break
                batch.validate(full=True)
            yield batch
            row += batch.num_rows
        self._budget.release(held)


def _read_footer(file: ByteFile) -> bytes:
    tail = file.read_at(max(0, file.size - _TAIL_BYTES), _TAIL_BYTES)
    if file.read_at(0, len(_MAGIC)) == _ENCRYPTED or tail.endswith(_ENCRYPTED):
        raise UnprocessableInput("Encrypted Parquet files are not read.", code="unsupported_parquet")
    if file.size < len(_MAGIC) + _TAIL_BYTES or file.read_at(0, len(_MAGIC)) != _MAGIC:
        raise MalformedInput("This is no Parquet file: it does not begin with PAR1.", code="invalid_parquet")
    if not tail.endswith(_MAGIC):
        raise MalformedInput(
            "The Parquet file does not end with PAR1. Send the whole file.",
            code="truncated",
            offset=file.size,
        )
    size = int.from_bytes(tail[:4], "little")
    if size > file.size - len(_MAGIC) - _TAIL_BYTES:
        raise MalformedInput(
            f"The footer declares {size} bytes, which the file does not have.", code="invalid_parquet"
        )
    return file.read_at(file.size - _TAIL_BYTES - size, size)


def _check_arrow_schemas(footer: bytes) -> None:
    """Check the Arrow schema that writers put into the footer, which Arrow believes as it stands."""
    position = 0
    while (position := footer.find(_ARROW_SCHEMA, position)) >= 0:
        position += len(_ARROW_SCHEMA)
        text = _thrift_string(footer, position)
        try:
            message = binascii.a2b_base64(text)
        except binascii.Error:
            raise _broken("The Arrow schema in the footer is no base64") from None
        # Behind a continuation marker and a length; before 0.15 behind a length alone.
        begin = 8 if message[:4] == b"\xff\xff\xff\xff" else 4
        schema = root_table(message[begin:]).table(2)
        if schema is None:
            raise _broken("The Arrow schema in the footer is none")
        check_schema_table(schema)


def _thrift_string(data: bytes, position: int) -> bytes:
    """The string that is the next field of a struct in Thrift's compact protocol."""
    size = shift = 0
    if data[position : position + 1] != bytes([_VALUE_FIELD]):
        raise _broken("The Arrow schema in the footer has no value")
    for byte in data[position + 1 : position + 6]:
        position += 1
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return data[position + 1 : position + 1 + size]


def _dictionary_columns(metadata: Any) -> list[str]:
    """The columns of strings that are stored as a dictionary.

    They are read as one: a few bytes can name a long string any number of times, and looking it up
    is charged where it is done.
    """
    found: dict[str, None] = {}
    if metadata.num_columns > 100_000:
        raise LimitExceeded("The Parquet file has more than 100000 columns.", code="schema_too_large")
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for place in range(group.num_columns):
            chunk = group.column(place)
            if chunk.physical_type == "BYTE_ARRAY":
                found[chunk.path_in_schema] = None
    return list(found)


def _broken(what: str) -> MalformedInput:
    return MalformedInput(f"{what}.", code="invalid_parquet")


class _SeekableFile:
    """A `ByteFile` as Arrow wants files."""

    closed = False

    def __init__(self, file: ByteFile) -> None:
        self._file = file
        self._position = 0

    def read(self, n: int = -1) -> bytes:
        data = self._file.read_at(self._position, self._file.size - self._position if n < 0 else n)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self._file.size)[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._file.size

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """The file is its owner's to close."""


def serialize_parquet(schema: pa.Schema, row_groups: Iterable[pa.Table]) -> Iterator[Buffer]:
    """A file of these row groups, handed out as each is written. Compressed by Snappy, which all read."""
    sink: Any = Collector()
    writer = pq.ParquetWriter(sink, schema, compression="snappy")
    for table in row_groups:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        yield sink.taken()
    writer.close()
    yield sink.taken()
