"""Records as safetensors: one array of numbers a feature, whose first axis counts the rows."""

from __future__ import annotations

from collections.abc import Iterator

from ...runtime.budget import Budget
from ...runtime.streams import Buffer, WholeBody
from ..columns import Records
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .array_columns import STREAMED_FROM
from .named_arrays import gather_arrays, records_from_arrays
from .safetensors_file import check_dtype, open_safetensors_file, serialize_safetensors

__all__ = ["decode", "encode"]


def decode(body: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The arrays as columns, in the order of the header.

    Raises:
        InputError: as `open_safetensors_file` and `records_from_arrays`.
    """
    arrays = open_safetensors_file(body, budget, streamed_from=STREAMED_FROM)
    return records_from_arrays(arrays, options, budget)


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """All rows gathered as one array a feature, as `safetensors.numpy.save` writes them.

    Raises:
        UnprocessableInput: text, bytes, a feature of variable length, or one that a row lacks
            (`not_expressible`); as `serialize_safetensors`.
        LimitExceeded: more than the budget allows to be held.
    """
    for feature in records.schema:
        check_dtype(feature.name, feature.dtype)
    yield from serialize_safetensors(gather_arrays(records, "safetensors", budget))
