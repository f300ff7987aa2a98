"""Records that are no Examples: each is the value of one feature, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

import numpy as np

from ...domain.dtypes import BYTES, TEXT
from ...domain.feature import Feature
from ...domain.schema import Schema
from ...errors import SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget
from .. import kernels
from ..arrow.elements import first_not_utf8
from ..columns import Batch, Column, Records, Strings
from ..kernels.messages.framing import OVERHEAD_BYTES
from ..options import RecordsDecodeOptions
from ..records.lease import Lease
from .examples.write import RecordBlock
from .framing import BLOCK_BYTES, FrameBlock

#: What the feature is called where no schema names it.
_VALUE: Final = Feature("value", BYTES)


def parse_byte_records(
    frames: Iterator[FrameBlock], options: RecordsDecodeOptions, budget: Budget
) -> Records:
    """Rows with one feature, which has the bytes of each record: `value`, or the one that is declared.

    Errors:
        UnprocessableInput: a schema of anything else than one string (`invalid_feature`); as batches are
            drawn, a record that is declared to be text and is not UTF-8 (`invalid_utf8`).
        InputError: whatever drawing a block raises.
    """
    schema = Schema((_VALUE,)) if options.schema is None else options.schema
    return Records(schema, _batches(frames, _only_feature(schema), budget))


def _only_feature(schema: Schema) -> Feature:
    for feature in schema:
        plain = feature.is_scalar and feature.dtype.is_string and feature.encoding == "list"
        if plain and len(schema) == 1:
            return feature
    raise UnprocessableInput(
        f"message=bytes is for rows of one feature, a scalar of bytes or text, but the schema has "
        f"{list(schema.names[:4])}. Leave out the parameter, or declare one feature of dtype bytes.",
        code="invalid_feature",
    )


def _batches(frames: Iterator[FrameBlock], feature: Feature, budget: Budget) -> Iterator[Batch]:
    for block in frames:
        with Lease(budget) as lease:
            strings = _payloads(block, lease)
            if feature.dtype is TEXT and (index := first_not_utf8(strings)) is not None:
                row = block.first_record + index
                raise UnprocessableInput(
                    f"Record {row} is not UTF-8. Declare {feature.name!r} as bytes.",
                    code="invalid_utf8",
                    row=row,
                    feature=feature.name,
                )
            yield Batch(block.num_records, (Column(strings),))


def _payloads(block: FrameBlock, lease: Lease) -> Strings:
    """The records of a block without their frames."""
    total, count = int(block.sizes.sum()), block.num_records
    lease.charge(total + 9 * (count + 1), "Values of a batch")
    strings = Strings(np.empty(total, np.uint8), np.empty(count + 1, np.int64))
    kernels.load().gather_spans(
        np.frombuffer(block.data, np.uint8), np.ones(count, np.uint8), block.starts,
        block.starts + block.sizes, strings.data, strings.offsets,
    )  # fmt: skip
    return strings


def encode_byte_records(records: Records, budget: Budget) -> Iterator[RecordBlock]:
    """The one value of each row as a record, framed; in blocks of about 512 KiB.

    Errors:
        UnprocessableInput: rows of anything else than one string (`invalid_feature`).
        SchemaConflict: a row without a value (`schema_conflict`).
        InputError: whatever drawing a batch raises.
    """
    return _blocks(records.batches, _only_feature(records.schema), budget)


def _blocks(batches: Iterator[Batch], feature: Feature, budget: Budget) -> Iterator[RecordBlock]:
    first_row = 0
    for batch in batches:
        column = batch.columns[0]
        if column.present is not None and not column.present.all():
            row = first_row + int(np.argmin(column.present))
            raise SchemaConflict(
                f"Row {row} has no {feature.name!r}, which message=bytes makes a record of. Leave out the "
                f"row, or send empty bytes.",
                row=row,
                feature=feature.name,
            )
        strings, first = cast("Strings", column.values), 0
        while first < len(strings):
            limit = strings.offsets[first] + BLOCK_BYTES
            last = max(first + 1, int(np.searchsorted(strings.offsets, limit, "right")) - 1)
            yield from _block(strings.part(first, last), budget)
            first = last
        first_row += batch.num_rows


def _block(strings: Strings, budget: Budget) -> Iterator[RecordBlock]:
    with Lease(budget) as lease:
        size = len(strings.data) + OVERHEAD_BYTES * len(strings)
        lease.charge(size, "A block of records")
        out = np.empty(size, np.uint8)
        kernels.load().write_frames(strings.data, strings.offsets, out)
        yield RecordBlock(out.data.toreadonly(), len(strings))
