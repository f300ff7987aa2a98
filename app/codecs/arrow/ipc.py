"""Arrow IPC, stream and file: untrusted bytes to record batches, and batches to bytes.

Arrow's reader believes what a batch says, and crashes later, when its values are read. So every batch is
validated in full, and what a message may take is charged before Arrow reads it (`guard.py`). The footer of a
file is not read: a file whose dictionaries come after the batches that use them is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from ...domain.limits import KIB
from ...errors import MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..content import cut_pieces
from ..options import ArrowFormat
from .guard import FileObject, GuardedFile

_OPTIONS: Final = pa.ipc.IpcReadOptions(use_threads=False)
#: Smaller pieces are joined.
_SMALL_BYTES: Final = 64 * KIB
#: What pyarrow raises on bytes that it does not understand.
_FAULTS: Final = (pa.ArrowException, ArithmeticError, LookupError, OSError, TypeError, ValueError)
#: The storage of the dates and times whose range Arrow validates.
_NUMBERS_BEHIND: Final[dict[pa.DataType, pa.DataType]] = {
    pa.date64(): pa.int64(),
    pa.time32("s"): pa.int32(),
    pa.time32("ms"): pa.int32(),
    pa.time64("us"): pa.int64(),
    pa.time64("ns"): pa.int64(),
}


@contextmanager
def arrow_faults(what: str, code: str = "invalid_arrow", *, row: int | None = None) -> Iterator[None]:
    """Report errors of pyarrow inside the block as errors of the input, at `row` or after it.

    Raises:
        MalformedInput: pyarrow cannot read it; the detail has the first line of its message.
        UnprocessableInput: pyarrow does not support such input (`code` with "unsupported" for "invalid").
    """
    try:
        yield
    except _FAULTS as error:
        # Only the first line: the others tell where in Arrow's sources.
        reason = (str(error).splitlines() or [""])[0][:200]
        # Parquet's reader raises OSError for this as well.
        if isinstance(error, pa.ArrowNotImplementedError) or reason.startswith("Not yet implemented"):
            raise UnprocessableInput(
                f"{what} is in an encoding that is not read: {reason}. Write it plain or dictionary-encoded.",
                code=code.replace("invalid", "unsupported"),
                row=row,
            ) from None
        raise MalformedInput(f"{what} cannot be read: {reason}", code=code, row=row) from None


class ArrowReader:
    """The schema, and the batches in their order.

    Attributes:
        schema: as it was sent.

    Raises:
        MalformedInput: cut short (`truncated`), followed by more (`trailing_bytes`), or refused by Arrow
            (`invalid_arrow`).
        UnprocessableInput: Arrow that is not supported here (`unsupported_arrow`).
        LimitExceeded: larger than the budget, or too many fields or levels.
    """

    def __init__(self, source: ByteStream, budget: Budget) -> None:
        self._file = GuardedFile(source, budget)
        with arrow_faults("The schema of the Arrow stream"):
            self._reader = pa.ipc.open_stream(self._file, options=_OPTIONS)  # type: ignore[arg-type]  # a file by its methods
            self.schema = self._reader.schema
            self.names: list[str] = self.schema.names  # decoded here: they may not be UTF-8

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Every batch, valid in all its values; its memory is charged until the next one is drawn."""
        row = 0
        while True:
            with arrow_faults(f"The Arrow batch that begins with row {row}", row=row):
                try:
                    batch = self._reader.read_next_batch()
                except StopIteration:
                    break
                validate_batch(batch)
            yield batch
            row += batch.num_rows
        self._file.close()


def validate_batch(batch: pa.RecordBatch) -> None:
    """Check every value; raises what pyarrow raises.

    Dates and times that Arrow refuses, a date64 that is no whole day or a time of 24:00, are left to
    `times.py`: a declared number holds them.
    """
    batch.validate()
    if not _NUMBERS_BEHIND.keys().isdisjoint(batch.schema.types):
        columns = [
            column.view(_NUMBERS_BEHIND[column.type]) if column.type in _NUMBERS_BEHIND else column
            for column in batch.columns
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    batch.validate(full=True)


class Collector(FileObject):
    """A writable file that hands out what was written.

    Args:
        writer_reuses: the writer may change the memory of a buffer once it is written.
    """

    def __init__(self, *, writer_reuses: bool) -> None:
        self._writer_reuses = writer_reuses
        self._pieces: list[bytes | pa.Buffer] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data) if self._writer_reuses else data)
        return len(data)

    def writable(self) -> bool:
        return True

    def drain(self) -> Iterator[bytes]:
        """A copy of what was written since the last call, with small pieces joined and large ones cut."""
        small: list[bytes] = []
        for piece in self._pieces:
            if len(piece) < _SMALL_BYTES:
                small.append(bytes(piece))
                continue
            yield b"".join(small)
            small = []
            yield from map(bytes, cut_pieces([memoryview(piece)]))
        yield b"".join(small)
        self._pieces = []


def serialize_arrow(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], arrow_format: ArrowFormat
) -> Iterator[Buffer]:
    """The batches as uncompressed messages, one for each batch."""
    sink = Collector(writer_reuses=False)
    options = pa.ipc.IpcWriteOptions(use_threads=False)
    open_ = pa.ipc.new_stream if arrow_format == "stream" else pa.ipc.new_file
    writer = open_(sink, schema, options=options)  # type: ignore[arg-type]  # a file by its methods
    for batch in batches:
        writer.write_batch(batch)
        yield from sink.drain()
    writer.close()
    yield from sink.drain()
