"""Rows as Arrow record batches: what tests compare, and what they make rows of."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from app.codecs.arrow.batches import batches_from_arrow, batches_to_arrow
from app.codecs.columns import Records
from app.domain.schema import Schema
from app.runtime.budget import Budget


def as_arrow(records: Records) -> Iterator[pa.RecordBatch]:
    """The batches of `records`, as they are drawn."""
    return batches_to_arrow(records.schema, records.batches, Budget())


def from_arrow(schema: Schema, batches: Iterable[pa.RecordBatch], num_rows: int | None = None) -> Records:
    """Rows of record batches of `arrow_schema(schema)`."""
    return Records(schema, batches_from_arrow(schema, batches, Budget()), num_rows)
