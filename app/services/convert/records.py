"""Records in any form -> records in any form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from ...codecs.archives.batch_files import in_files
from ...codecs.columns import Batch, Records
from ...codecs.compression.encoded import json_bytes_of
from ...codecs.forms import RECORDS_CODECS, FormName
from ...codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from ...domain.immutable import immutable
from ...domain.rounded import RoundedFeatures
from ...errors import LimitExceeded
from ...runtime.amplification import CELL_BYTES, ROW_BYTES
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, WholeBody
from ...runtime.workspace import Workspace
from ...tracing import stage
from ...transforms.apply import SkippedRows
from .whole_bodies import as_needed


@dataclass(slots=True)
class RowCount:
    """How many rows have passed so far; final when the answer's bytes are exhausted."""

    value: int = 0
    _measured: int = 0

    def measure(self, chunk: Buffer) -> tuple[int, int]:
        """How many rows have passed since it was last called, and the bytes of a chunk of the answer."""
        num_rows, self._measured = self.value - self._measured, self.value
        return num_rows, memoryview(chunk).nbytes


@immutable()
class ConvertedRecords:
    """The answer's bytes, not yet drawn, and the count of rows in them: now, and in the end.

    Attributes:
        num_rows: the final count, where it is known beforehand.
        json_bytes: the length of the JSON in front, without which the format cannot be read.
        rounded: the features of which values were rounded; final as the count is.
        dropped, as_text: as of `Records`.
    """

    chunks: Iterator[Buffer]
    count: RowCount
    num_rows: int | None
    json_bytes: int | None
    rounded: RoundedFeatures
    dropped: Sequence[str]
    as_text: tuple[str, ...]


def open_records(
    source: ByteStream,
    form: FormName,
    options: RecordsDecodeOptions,
    workspace: Workspace,
    body_bytes: int | None = None,
) -> Records:
    """The rows of `source`, decoded as they are drawn.

    Args:
        source: the body.
        form: what it is.
        options: how to read it.
        workspace: closed by the caller once the rows are drawn or given up.
        body_bytes: the length of the body, where it is known beforehand.

    Raises:
        InputError: the beginning cannot be read; later rows raise as they are drawn.
        StorageFull: a form that needs a file, and no room to spool it.
    """
    body = as_needed(source, RECORDS_CODECS[form], workspace, body_bytes)
    return decode_body(body, form, options, workspace.budget)


def needs_file(form: FormName) -> bool:
    """Whether a body of that form has to be there as a whole before it can be read."""
    return RECORDS_CODECS[form].needs == "file"


def open_body(source: ByteStream, form: FormName, workspace: Workspace) -> ByteStream | WholeBody:
    """What the decoder of the form reads: `source` itself, or all of it.

    Raises:
        LimitExceeded: a small body is larger than the budget allows.
        StorageFull: there is no room on the spool (`spool_full`).
        StreamInterrupted: the sender went away.
    """
    return as_needed(source, RECORDS_CODECS[form], workspace)


def decode_body(
    body: ByteStream | WholeBody, form: FormName, options: RecordsDecodeOptions, budget: Budget
) -> Records:
    """The rows of what `open_body` gave.

    Raises:
        InputError: the beginning cannot be read; later rows raise as they are drawn.
    """
    decode = RECORDS_CODECS[form].decode
    with stage("decode", form, budget.received) as decoding:
        records = decode(body, options, budget)  # type: ignore[arg-type]  # `needs` says which
    schema = records.schema.with_message(options.message)
    if options.schema is None and not records.is_declared:
        schema = schema.with_floats_inferred()
    return replace(
        records,
        schema=schema,
        batches=decoding.drawn(bound_batches(records.batches, budget), _size_of),
    )


def _size_of(batch: Batch) -> tuple[int, int]:
    """Its rows; of what bytes they were read, it does not know."""
    return batch.num_rows, 0


def bound_batches(batches: Iterator[Batch], budget: Budget) -> Iterator[Batch]:
    """The batches of a body; they count as what it becomes.

    Raises:
        LimitExceeded: more rows than a body may have (`too_many_rows`), or too much for the size of this one.
    """
    max_rows = budget.limits.max_rows
    num_rows = 0
    for batch in batches:
        num_cells = batch.num_rows * len(batch.columns)
        budget.amplify("decoded", ROW_BYTES * batch.num_rows + max(CELL_BYTES * num_cells, batch.nbytes))
        num_rows += batch.num_rows
        if num_rows > max_rows:
            raise LimitExceeded(
                f"The body has more than {max_rows} rows. Send them in several.", code="too_many_rows"
            )
        yield batch


def encode_records(
    records: Records,
    form: FormName,
    options: RecordsEncodeOptions,
    budget: Budget,
    skipped: SkippedRows | None = None,
    *,
    batch_files: bool = False,
) -> ConvertedRecords:
    """Start encoding `records`.

    Args:
        skipped: rows of the input that `records` lack, so that errors name the others as the input has them.
        batch_files: as a tar archive with a file of that form for each batch.

    Raises:
        InputError: the schema or a row does not go into the output format; rows raise as they are drawn.
    """
    encode = RECORDS_CODECS[form].encode
    if batch_files:
        encode = in_files(encode, form)
    count, rounded = RowCount(), RoundedFeatures()
    counted = replace(records, batches=_count_rows(records.batches, count))
    numbering = nullcontext() if skipped is None else skipped.numbering()
    with stage("encode", form) as encoding, numbering:
        chunks = encode(counted, replace(options, rounded=rounded), budget)
    json_bytes = json_bytes_of(chunks)
    chunks = encoding.drawn(chunks, count.measure)
    if skipped is not None:
        chunks = _renumber_errors(chunks, skipped)
    return ConvertedRecords(
        chunks, count, records.num_rows, json_bytes, rounded, records.dropped, records.as_text
    )


def _renumber_errors(chunks: Iterator[Buffer], skipped: SkippedRows) -> Iterator[Buffer]:
    with skipped.numbering():
        yield from chunks


def _count_rows(batches: Iterator[Batch], count: RowCount) -> Iterator[Batch]:
    for batch in batches:
        count.value += batch.num_rows
        yield batch
