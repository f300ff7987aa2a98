"""Records as the Open Inference Protocol's binary form: one tensor a feature, whose first axis counts rows.

BYTES are bytes unless the schema says text; those that stand in the JSON as strings are text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from ...domain.dtypes import BYTES, TEXT
from ...errors import MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, WholeBody
from ..columns import Records
from ..json.tensor_body import read_tensor
from ..json.values import flatten
from ..options import RecordsDecodeOptions, RecordsEncodeOptions, TensorDecodeOptions
from ..records.body_schema import with_body_schema
from .array import Array, FoundArray
from .array_columns import STREAMED_FROM
from .named_arrays import gather_arrays, records_from_arrays
from .oip_body import check_dtype, open_oip, serialize_oip

__all__ = ["decode", "encode"]

_SCHEMA: Final = "schema"


def decode(whole: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The inputs as columns.

    Raises:
        InputError: as `open_oip`, `read_tensor`, `with_body_schema` and `records_from_arrays`.
        UnprocessableInput: a raw tensor, which has no columns (`no_rows`).
        MalformedInput: an input without a name (`invalid_tensor`).
    """
    if options.json_bytes == 0:
        raise UnprocessableInput(
            "One raw tensor has no named columns. Send it to /v1/tensors, or name it as an input.",
            code="no_rows",
        )
    of_json = TensorDecodeOptions(nonfinite=options.nonfinite)

    def read_json(item: dict[str, Any], pointer: str) -> Array:
        tensor = read_tensor(item, pointer, of_json).tensor
        dtype = tensor.dtype
        if dtype.is_string:
            dtype = BYTES if _holds_cells(item["data"]) else TEXT
        return Array(dtype, tensor.shape, tensor.values)

    bare = options.nonfinite == "bare"
    body = open_oip(
        whole,
        options.json_bytes,
        budget,
        read_json,
        streamed_from=STREAMED_FROM,
        bare_nonfinite=bare,
        members=frozenset({_SCHEMA}),
    )
    if _SCHEMA in body.members:
        options = with_body_schema(body.members[_SCHEMA], options, budget.limits)
    arrays: dict[str, FoundArray] = {}
    for found in body.tensors:
        if found.name is None:
            raise MalformedInput('An input needs a "name".', code="invalid_tensor", pointer=found.pointer)
        arrays[found.name] = found.array
    records = records_from_arrays(arrays, options, budget)
    return replace(records, is_declared=_SCHEMA in body.members)


def _holds_cells(data: Any) -> bool:
    """Whether an element came as {"b64": ...}."""
    items = flatten(data)[0] if isinstance(data, list) else [data]
    return dict in set(map(type, items))


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """All rows gathered as one output a feature; they are drawn at once, for the length of the JSON.

    Raises:
        UnprocessableInput: a dtype without a datatype, a feature of variable length, or one that a row
            lacks (`not_expressible`).
        LimitExceeded: more than the budget allows to be held.
    """
    for feature in records.schema:
        check_dtype(feature.name, feature.dtype)
    return serialize_oip(gather_arrays(records, "OIP", budget))
