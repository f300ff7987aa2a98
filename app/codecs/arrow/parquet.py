"""Records as Parquet. The columns are those of `records.py`, read and written through Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from ...domain.limits import MIB
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteFile
from ..columns import MAX_BATCH_ROWS, Records, without_features
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from ..records.lease import Lease
from .batches import batches_to_arrow
from .export import export_batches, exported_schema
from .normalise import records_from_arrow
from .parquet_file import ParquetReader, serialize_parquet

__all__ = ["decode", "encode"]

#: A row group ends behind the batch that takes it past one of these.
_GROUP_BYTES: Final = 64 * MIB
_GROUP_ROWS: Final = 128 * 1024


def decode(file: ByteFile, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the row groups, in their order.

    Raises:
        InputError: as `ParquetReader` and `records_from_arrow`.
    """
    reader = ParquetReader(file, budget, MAX_BATCH_ROWS)
    return records_from_arrow(reader.schema, reader.names, reader, options, budget, reader.num_rows)


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """A row group for each 64 MiB or 128 k rows, handed out when it is whole.

    Raises:
        UnprocessableInput: a feature with a dimension of 0, or no feature at all (`not_expressible`);
            as `export_batches`.
        LimitExceeded: a row group beyond the budget.
    """
    if not len(records.schema):
        raise without_features("Parquet")
    for feature in records.schema:
        if 0 in feature.shape:
            raise UnprocessableInput(
                f"Feature {feature.name!r} has the shape {list(feature.shape)}, which Parquet does not hold. "
                "Choose another output form.",
                code="not_expressible",
                feature=feature.name,
            )
    schema = _parquet_schema(exported_schema(records.schema))
    batches = export_batches(records.schema, batches_to_arrow(records.schema, records.batches, budget))
    return serialize_parquet(schema, _row_groups(schema, batches, budget))


def _parquet_schema(schema: pa.Schema) -> pa.Schema:
    """The same with plain lists in features that can be null: Arrow reads no fixed one below a null."""
    fields = [_varying_field(field) if field.nullable else field for field in schema]
    metadata: Any = schema.metadata  # declared as what it can be made of
    return pa.schema(fields, metadata)


def _varying_field(field: pa.Field[Any]) -> pa.Field[Any]:
    # The extension for tensors asks for a list of a fixed size.
    kept = [key for key in field.metadata or {} if not key.startswith(b"ARROW:")]
    marks: dict[bytes | str, bytes | str] = {key: (field.metadata or {})[key] for key in kept}
    return field.with_type(_varying(field.type)).with_metadata(marks)


def _varying(layout: Any) -> pa.DataType:
    if isinstance(layout, pa.StructType):
        members = [layout.field(index) for index in range(layout.num_fields)]
        return pa.struct([member.with_type(_varying(member.type)) for member in members])
    if isinstance(layout, pa.ListType | pa.FixedSizeListType):
        return pa.list_(layout.value_field.with_type(_varying(layout.value_type)))
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
