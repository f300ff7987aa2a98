"""Records as Parquet: the columns are those of `records.py`, read and written through Arrow.

Row groups are read from untrusted bytes, and written as they are made.
Source: parquet.apache.org, "File Format"; the reading and the writing are Arrow's.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ...domain.limits import KIB, MIB
from ...errors import MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteFile
from ..columns import MAX_BATCH_ROWS, Records
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from ..records.lease import Lease
from ..records.named_columns import without_features
from .guard import FileObject, measure_schema, root_table
from .ipc import Collector, arrow_faults, validate_batch
from .parquet_footer import ParquetFooter, parse_footer
from .parquet_pages import measure_pages
from .records import records_from_arrow
from .thrift import invalid_parquet
from .write import export_schema, write_batches

if TYPE_CHECKING:  # imported where it is used: it takes 9 MB, also of a service that never sees Parquet
    import pyarrow.parquet as pq  # noqa: TID251  # the one place

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_TAIL_BYTES: Final = 8
#: What a footer takes in memory for each of its bytes, while it is read and afterwards: an empty struct of
#: one byte becomes an object of a hundred.
_PARSED_RATIO: Final = 100
_HELD_RATIO: Final = 8
#: A column is read in pieces of this size.
_READ_BYTES: Final = 256 * KIB
_BATCH_BYTES: Final = 16 * MIB
#: A row group ends with the batch that takes it past one of these.
_GROUP_BYTES: Final = 64 * MIB
_GROUP_ROWS: Final = 128 * 1024


def decode(file: ByteFile, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the row groups, in their order.

    Raises:
        InputError: the file cannot be read, or its schema does not fit the declared one. While row groups are
            read: a page cannot be read, or a value does not fit.
    """
    reader = ParquetReader(file, budget, MAX_BATCH_ROWS, options.row_groups)
    return records_from_arrow(reader.schema, reader.names, reader, options, budget, reader.num_rows)


def find_row_groups(file: ByteFile, budget: Budget) -> list[tuple[int, int]]:
    """Where the bytes of each row group begin and end.

    Raises:
        InputError: the footer cannot be read.
    """
    footer = _read_footer(file)
    budget.charge(_PARSED_RATIO * len(footer), "The footer of the Parquet file")
    groups = parse_footer(footer).row_groups
    budget.release(_PARSED_RATIO * len(footer))
    return [
        (
            min((chunk.start for chunk in group.columns), default=0),
            max((chunk.stop for chunk in group.columns), default=0),
        )
        for group in groups
    ]


class ParquetReader:
    """The row groups of a file, a batch at a time.

    Attributes:
        schema: as Arrow reads it.
        names: of its columns.
        num_rows: of the row groups that are read, as the footer says; reading fails at the end if there
            were more or fewer.

    Raises:
        MalformedInput: no Parquet file, or a corrupt one (`invalid_parquet`, `truncated`).
        UnprocessableInput: an encrypted file (`unsupported_parquet`).
        LimitExceeded: more than the budget.
    """

    def __init__(
        self, file: ByteFile, budget: Budget, max_rows: int, row_groups: range | None = None
    ) -> None:
        self._file = file
        self._budget = budget
        self._max_rows = max_rows
        footer = _read_footer(file)
        budget.charge(_PARSED_RATIO * len(footer), "The footer of the Parquet file")
        self._footer = parse_footer(footer)
        budget.charge(_measure_arrow_schemas(self._footer), "The Arrow schema of the Parquet file")
        with arrow_faults("The footer of the Parquet file", "invalid_parquet"):
            self._parquet = self._open(())
            self.schema = self._parquet.schema_arrow
            self.names: list[str] = self.schema.names
        budget.release((_PARSED_RATIO - _HELD_RATIO) * len(footer))
        self._row_groups = range(len(self._footer.row_groups)) if row_groups is None else row_groups
        self.num_rows = sum(self._footer.row_groups[index].num_rows for index in self._row_groups)

    def _open(self, by_dictionary: tuple[str, ...]) -> pq.ParquetFile:
        """The file, of which these columns are read as dictionaries."""
        import pyarrow.parquet as pq  # noqa: TID251  # the one place

        source: Any = _SeekableFile(self._file)
        return pq.ParquetFile(
            source,
            pre_buffer=False,
            buffer_size=_READ_BYTES,
            page_checksum_verification=True,
            read_dictionary=list(by_dictionary),
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Every batch, valid in all its values; what it may take is charged until the next row group."""
        row = 0
        for index in self._row_groups:
            for batch in self._row_group(index, row):
                yield batch
                row += batch.num_rows
        if row != self.num_rows:
            raise MalformedInput(
                f"The footer of the Parquet file declares {self.num_rows} rows, but there are {row}. "
                "Write the file again.",
                code="invalid_parquet",
            )

    def _row_group(self, index: int, row: int) -> Iterator[pa.RecordBatch]:
        group = self._footer.row_groups[index]
        if not group.num_rows:
            return
        columns = [
            measure_pages(self._file, chunk, self._max_rows, _BATCH_BYTES, self._budget)
            for chunk in group.columns
        ]
        average = sum(column.num_bytes for column in columns) // max(1, group.num_rows)
        step = max(1, min(self._max_rows, _BATCH_BYTES // max(1, average)))
        held = sum(column.held_bytes(step) for column in columns)
        self._budget.charge(held, f"Row group {index} of the Parquet file")
        with arrow_faults(f"Row {row} or one behind it", "invalid_parquet", row=row):
            by_dictionary = tuple(column.path for column in columns if column.by_dictionary)
            parquet = self._open(by_dictionary) if by_dictionary else self._parquet
            batches = parquet.iter_batches(step, row_groups=[index], use_threads=False)
        while True:
            with arrow_faults(f"Row {row} or one behind it", "invalid_parquet", row=row):
                batch = next(batches, None)
                if batch is None:
                    break
                validate_batch(batch)
            yield batch
            row += batch.num_rows
        self._budget.release(held)


def _read_footer(file: ByteFile) -> bytes:
    tail = file.read_at(max(0, file.size - _TAIL_BYTES), _TAIL_BYTES)
    if file.read_at(0, len(_MAGIC)) == _ENCRYPTED or tail.endswith(_ENCRYPTED):
        raise UnprocessableInput(
            "Encrypted Parquet files are not read. Write it without encryption.", code="unsupported_parquet"
        )
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
            f"The footer of the Parquet file declares {size} bytes, which the file does not have. "
            "Write the file again.",
            code="invalid_parquet",
        )
    return file.read_at(file.size - _TAIL_BYTES - size, size)


def _measure_arrow_schemas(footer: ParquetFooter) -> int:
    """The bytes that Arrow holds for the Arrow schema that writers put into the footer.

    It is checked here, since Arrow believes it as it stands.
    """
    num_bytes = 0
    for text in footer.arrow_schemas:
        try:
            message = binascii.a2b_base64(text)
        except (binascii.Error, TypeError, ValueError):
            raise invalid_parquet("The Arrow schema in the footer is no base64") from None
        # Behind a continuation marker and a length; before 0.15 behind a length alone.
        begin = 8 if message[:4] == b"\xff\xff\xff\xff" else 4
        try:
            schema = root_table(message[begin:]).table(2)
            if schema is None:
                raise invalid_parquet("The Arrow schema in the footer is none")
            num_bytes += measure_schema(schema)
        except struct.error:
            raise invalid_parquet("The Arrow schema in the footer is corrupt") from None
    return num_bytes


class _SeekableFile(FileObject):
    """A `ByteFile` that pyarrow reads anywhere."""

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

    def seekable(self) -> bool:
        return True


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """A row group for each 64 MiB or 128 k rows, handed out when it is whole.

    Raises:
        UnprocessableInput: no feature, one with a dimension of 0, or one that Arrow does not hold
            (`not_expressible`).
        LimitExceeded: a row group beyond the budget.
    """
    if not len(records.schema):
        raise without_features("Parquet")
    for feature in records.schema:
        if 0 in feature.shape:
            raise UnprocessableInput(
                f"Feature {feature.name!r} has the shape {list(feature.shape)}, which Parquet does not hold. "
                "Choose another output format.",
                code="not_expressible",
                feature=feature.name,
            )
    schema = _parquet_schema(export_schema(records.schema))
    batches = write_batches(records.schema, records.batches, budget)
    return _serialize(schema, _row_groups(schema, batches, budget))


def _parquet_schema(schema: pa.Schema) -> pa.Schema:
    """The same with plain lists in features that can be null: Arrow reads no fixed one below a null."""
    fields = [_field_with_varying_lists(field) if field.nullable else field for field in schema]
    metadata: Any = schema.metadata  # declared as what it can be made of
    return pa.schema(fields, metadata)


def _field_with_varying_lists(field: pa.Field[Any]) -> pa.Field[Any]:
    # The extension for tensors asks for a list of a fixed size.
    kept = [key for key in field.metadata or {} if not key.startswith(b"ARROW:")]
    marks: dict[bytes | str, bytes | str] = {key: (field.metadata or {})[key] for key in kept}
    return field.with_type(_type_with_varying_lists(field.type)).with_metadata(marks)


def _type_with_varying_lists(layout: Any) -> pa.DataType:
    if isinstance(layout, pa.StructType):
        members = [layout.field(index) for index in range(layout.num_fields)]
        return pa.struct([member.with_type(_type_with_varying_lists(member.type)) for member in members])
    if isinstance(layout, pa.ListType | pa.FixedSizeListType):
        return pa.list_(layout.value_field.with_type(_type_with_varying_lists(layout.value_type)))
    return layout  # type: ignore[no-any-return]  # some DataType


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if column.type == field.type else _storage(column).cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _storage(column: Any) -> Any:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _row_groups(schema: pa.Schema, batches: Iterator[pa.RecordBatch], budget: Budget) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    num_rows = num_bytes = 0
    with Lease(budget) as lease:
        for batch in batches:
            lease.charge(2 * batch.nbytes, "A row group of Parquet")
            # A copy: the memory of a batch may be that of the next one.
            copied = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
            gathered.append(_cast(copied, schema))
            num_rows += batch.num_rows
            num_bytes += batch.nbytes
            if num_rows >= _GROUP_ROWS or num_bytes >= _GROUP_BYTES:
                yield pa.Table.from_batches(gathered, schema)
                gathered, num_rows, num_bytes = [], 0, 0
                lease.release()
        if gathered:
            yield pa.Table.from_batches(gathered, schema)


def _serialize(schema: pa.Schema, row_groups: Iterable[pa.Table]) -> Iterator[Buffer]:
    """A file of these row groups, handed out as each is written. Compressed by Snappy, which all read."""
    import pyarrow.parquet as pq  # noqa: TID251  # the one place

    sink: Any = Collector(writer_reuses=True)
    writer = pq.ParquetWriter(sink, schema, compression="snappy")
    for table in row_groups:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        yield from sink.drain()
    writer.close()
    yield from sink.drain()
