"""Records as Arrow IPC: the stream format as it arrives, and the file format, which embeds it.

Arrow is typed, so nothing is guessed: without a schema a feature is what its column is
(`features.py`). With one, values are converted exactly or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..columns import Records
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .batches import batches_to_arrow
from .export import export_batches, exported_schema
from .ipc import ArrowReader, serialize_arrow
from .normalise import records_from_arrow

__all__ = ["decode", "encode"]


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the batches as they arrive. Both formats are told apart by their first bytes.

    Raises:
        InputError: as `ArrowReader` and `records_from_arrow`.
    """
    reader = ArrowReader(source, budget)
    return records_from_arrow(reader.schema, reader.names, reader, options, budget)


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """One message a batch, as they come, uncompressed.

    Raises:
        InputError: as `export_batches`.
    """
    batches = export_batches(records.schema, batches_to_arrow(records.schema, records.batches, budget))
    return serialize_arrow(exported_schema(records.schema), batches, options.arrow)
