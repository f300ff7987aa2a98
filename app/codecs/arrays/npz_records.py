"""Records as NPZ: one array a feature, whose first axis counts the rows (`named_arrays.py`).

numpy's "U" is text, its "S" is bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...domain.dtypes import DType
from ...domain.schema import Schema
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, WholeBody
from ..columns import Records
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .array_columns import STREAMED_FROM
from .named_arrays import gather_arrays, records_from_arrays
from .npy_file import serialize_npy
from .npz_file import open_npz, serialize_npz

__all__ = ["decode", "encode"]


def decode(body: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The arrays of the archive as columns.

    Raises:
        InputError: as `open_npz` and `records_from_arrays`.
    """
    declared = options.schema
    arrays = open_npz(
        body,
        budget,
        declared=lambda name: _declared_dtype(declared, name),
        streamed_from=STREAMED_FROM,
    )
    return records_from_arrays(arrays, options, budget)


def _declared_dtype(schema: Schema | None, name: str) -> DType | None:
    feature = None if schema is None else schema.by_name.get(name)
    return None if feature is None else feature.dtype


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """All rows gathered as one array a feature, as `numpy.savez` writes them.

    Raises:
        UnprocessableInput: a feature of variable length, or one that a row lacks
            (`not_expressible`); a name that no member can have.
        LimitExceeded: more than the budget allows to be held.
    """
    yield from serialize_npz(
        [
            (array.name, partial(serialize_npy, array.dtype, array.shape, array.chunks))
            for array in gather_arrays(records, "NPZ", budget)
        ]
    )
