"""One case through the form table: what the tables of tests of all families share.

Only `_values_of` and the imports know how the columns of a batch are laid out.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from app.codecs.array import AnyTensor, RaggedTensor, SparseTensor, in_memory
from app.codecs.columns import Batch, Column, Records, Strings, even_bounds
from app.codecs.forms import RECORDS_CODECS, TENSOR_CODECS, FormName
from app.codecs.options import (
    RecordsDecodeOptions,
    RecordsEncodeOptions,
    TensorDecodeOptions,
    TensorEncodeOptions,
)
from app.domain.dtypes import DType
from app.domain.feature import Feature
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.errors import InputError
from app.runtime.arriving_body import ArrivingBody
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import MemoryFile, MemoryStream
from app.runtime.workspace import Workspace
from tests.support.bodies import stream_of
from tests.support.column_checks import check_batch

#: Sizes of the pieces in which a body arrives; None is all at once.
Pieces = Sequence[int | None]
WHOLE: Pieces = (None,)
PIECES: Pieces = (None, 1, 3, 64)
#: Of bodies that have to be whole, but may be read while they arrive.
_LARGE_PIECES: Pieces = (None, 70_001)


@dataclass(frozen=True)
class Rows:
    """What a form of records reads.

    Attributes:
        rows: a dict of plain Python values for each row, None where it lacks the feature. A sparse value is
            `{"values", "indices"}`, a complex number a `complex`, text and bytes are `bytes`.
        batches: how many rows each batch has.
        left: bytes that stay charged once all rows were drawn.
        peak: bytes that were charged at once, at most.
    """

    schema: Schema
    rows: list[dict[str, Any]]
    dropped: tuple[str, ...] = ()
    is_declared: bool = False
    batches: list[int] = field(default_factory=list, compare=False)
    left: int = field(default=0, compare=False)
    peak: int = field(default=0, compare=False)

    @property
    def features(self) -> dict[str, str]:
        """Each feature in short: `"int64"`, `"text[null]?"` (nullable), `"ragged float64[2,null]"`."""
        return {feature.name: describe(feature) for feature in self.schema}


@dataclass(frozen=True)
class Refusal:
    """The error of a body; compares by code and place."""

    code: str
    row: int | None = None
    feature: str | None = None
    offset: int | None = None
    pointer: str | None = field(default=None, compare=False)
    detail: str = field(default="", compare=False)
    error: type[InputError] = field(default=InputError, compare=False)

    @classmethod
    def of(cls, error: InputError) -> Refusal:
        place = error.location
        return cls(
            error.code, place.row, place.feature, place.offset, place.pointer, error.detail, type(error)
        )


@dataclass(frozen=True)
class Values:
    """One tensor: `values` flat, `parts` the indices of a sparse one or the row splits of a ragged one."""

    dtype: str
    shape: tuple[int, ...]
    values: list[Any]
    name: str | None = None
    parts: list[Any] | None = None


def schema_of(**features: Any) -> Schema:
    """A schema; each feature is its JSON, or the name of a dtype."""
    spelled = {
        name: {"dtype": value} if isinstance(value, str) else value for name, value in features.items()
    }
    return Schema.from_json({"features": spelled})


def describe(feature: Feature) -> str:
    kind = "" if feature.kind == "dense" else f"{feature.kind} "
    shape = json.dumps(list(feature.shape), separators=(",", ":")) if feature.shape else ""
    return f"{kind}{feature.dtype}{shape}{'?' if feature.nullable else ''}"


def decode(
    form: FormName, body: bytes, budget: Budget | None = None, chunk: int | None = None, **options: Any
) -> Records:
    """The records of a body, not drawn yet."""
    codec = RECORDS_CODECS[form]
    budget = budget or Budget()
    source: Any = stream_of(body, chunk)
    if codec.needs == "file":
        source = MemoryFile(body)
        if chunk is not None:
            source = ArrivingBody(stream_of(body, chunk), Workspace(budget, Spool(None, 64 * MIB)), len(body))
    return codec.decode(source, RecordsDecodeOptions(**options), budget)


def read(
    form: FormName, body: bytes, *, pieces: Pieces = WHOLE, limits: Limits | None = None, **options: Any
) -> Rows | Refusal:
    """What the form makes of a body, which has to be the same however the body arrives.

    Args:
        pieces: tried one after the other, where the form reads a stream. Large JSON is tried in others.
        options: of `RecordsDecodeOptions`.
    """
    if RECORDS_CODECS[form].needs == "file":
        pieces = _LARGE_PIECES if form == "json" and len(body) > MIB else WHOLE
    first, *others = (_read(form, body, chunk, Budget(limits), options) for chunk in pieces)
    for chunk, other in zip(pieces[1:], others, strict=True):
        assert repr(other) == repr(first) if isinstance(first, Refusal) else _same(other, first), chunk
    return first


def _same(left: Rows | Refusal, right: Rows) -> bool:
    return isinstance(left, Rows) and left.schema == right.schema and alike(left.rows, right.rows)


def alike(left: Any, right: Any) -> bool:
    """Whether plain values are equal, 1 other than 1.0 and True, -0.0 than 0.0, and NaN equal to itself.

    Their `repr` says so, which takes a microsecond for each float: bytes are looked at first.
    """
    with suppress(ValueError):  # not of plain values
        if marshal.dumps(left, 2) == marshal.dumps(right, 2):
            return True
    return repr(left) == repr(right)


def _read(
    form: FormName, body: bytes, chunk: int | None, budget: Budget, options: dict[str, Any]
) -> Rows | Refusal:
    free = budget.remaining
    try:
        records = decode(form, body, budget, chunk, **options)
        rows: list[dict[str, Any]] = []
        batches: list[int] = []
        for batch in records.batches:
            batches.append(batch.num_rows)
            rows += _rows_of(batch, records.schema)
    except InputError as error:
        return Refusal.of(error)
    left = free - budget.remaining
    return Rows(records.schema, rows, tuple(records.dropped), records.is_declared, batches, left, budget.peak)


def assert_rows(found: Rows | Refusal, rows: list[dict[str, Any]]) -> None:
    """Compares as `alike`."""
    assert isinstance(found, Rows), found
    assert alike(found.rows, rows), (found.rows, rows)


def encode(form: FormName, records: Records, budget: Budget | None = None, **options: Any) -> bytes:
    """The bytes of the records in this form. `options` are those of `RecordsEncodeOptions`."""
    chunks = RECORDS_CODECS[form].encode(records, RecordsEncodeOptions(**options), budget or Budget())
    return b"".join(map(bytes, chunks))


def write(
    form: FormName, records: Records, *, limits: Limits | None = None, **options: Any
) -> bytes | Refusal:
    """The same, or why it is refused."""
    try:
        return encode(form, records, Budget(limits), **options)
    except InputError as error:
        return Refusal.of(error)


def records(rows: Any, **options: Any) -> Records:
    """Records made of JSON: rows, or one of the other bodies that the contract names."""
    return decode("json", json.dumps(rows).encode(), Budget(), **options)


def rows_of(batches: Iterable[Batch], schema: Schema) -> list[dict[str, Any]]:
    """All rows, as `Rows.rows`."""
    return [row for batch in batches for row in _rows_of(batch, schema)]


def _rows_of(batch: Batch, schema: Schema) -> list[dict[str, Any]]:
    check_batch(batch, schema)
    columns = [
        _values_of(column, feature, batch.num_rows)
        for column, feature in zip(batch.columns, schema, strict=True)
    ]
    return [
        {feature.name: column[row] for feature, column in zip(schema, columns, strict=True)}
        for row in range(batch.num_rows)
    ]


def _values_of(column: Column, feature: Feature, num_rows: int) -> list[Any]:
    """The value of each row, as nested lists. This is where the layout of a column is known."""
    cells: list[Any]
    items = _plain(column.values, feature.dtype)
    if feature.kind == "sequence":
        steps = _values_of(column.steps(), feature.step, int(column.splits[0][-1]))
        cells = _cut(steps, column.splits[0])
    elif feature.kind == "sparse":
        assert column.coordinates is not None
        values, indices = (_cut(part, column.splits[0]) for part in (items, column.coordinates.tolist()))
        cells = [{"values": v, "indices": i} for v, i in zip(values, indices, strict=True)]
    elif feature.kind == "ragged":
        count = int(column.splits[-1][-1])
        cells = _cut(items, even_bounds(count, column.width))
        cells = [_nested(cell, feature.inner_shape) for cell in cells]
        for split in reversed(column.splits):
            cells = _cut(cells, split)
    else:
        lists = _cut(items, column.value_bounds(num_rows))
        shapes = [feature.shape] * len(lists) if column.shapes is None else column.shapes.tolist()
        cells = [_nested(cell, shape) for cell, shape in zip(lists, shapes, strict=True)]
    if column.present is None:
        return cells
    rest = iter(cells)
    return [next(rest) if there else None for there in column.present]


def _cut(items: list[Any], bounds: Any) -> list[Any]:
    return [items[begin:end] for begin, end in pairwise(bounds.tolist())]


def _plain(values: Any, dtype: DType) -> list[Any]:
    """Plain Python values; small floats and integers of numpy's extensions, too."""
    if isinstance(values, Strings):
        return values.unpack()
    if dtype.is_string or dtype.kind in ("bool", "complex"):
        return list(values.tolist())
    if not dtype.is_float:
        return list(values.astype(np.int64 if dtype.kind == "int" else np.uint64).tolist())
    with np.errstate(invalid="ignore"):  # NaN of any bits
        return list(values.astype(np.float64).tolist())


def _nested(items: list[Any], shape: Sequence[int | None]) -> Any:
    if not shape:
        return items[0]
    known = int(np.prod([dim for dim in shape if dim is not None], dtype=np.int64))
    dims = [len(items) // max(known, 1) if dim is None else dim for dim in shape]
    for dim in reversed(dims[1:]):
        items = [items[at : at + dim] for at in range(0, len(items), dim)] if dim else [[] for _ in items]
    if not dims[-1] or not items:
        return np.empty(dims, object).tolist()
    return items


def read_tensors(
    form: FormName, body: bytes, *, pieces: Pieces = WHOLE, limits: Limits | None = None, **options: Any
) -> list[Values] | Refusal:
    """The tensors of a body, read whole and, where the form can, as they arrive: all have to agree.

    `options` are those of `TensorDecodeOptions`.
    """
    codec = TENSOR_CODECS[form]
    outcomes: list[list[Values] | Refusal] = []
    for chunk in WHOLE if codec.needs == "file" else pieces:
        for held in (True, False):
            source: Any = MemoryFile(body) if codec.needs == "file" else stream_of(body, chunk)
            given = TensorDecodeOptions(**options, body_bytes=len(body), held=held)
            budget = Budget(limits)
            try:
                outcomes.append([values_of(item, budget) for item in codec.decode(source, given, budget)])
            except InputError as error:
                outcomes.append(Refusal.of(error))
    first = outcomes[0]
    for other in outcomes[1:]:
        assert same_tensors(other, first)
    return first


def same_tensors(left: list[Values] | Refusal, right: list[Values] | Refusal) -> bool:
    if isinstance(left, Refusal) or isinstance(right, Refusal):
        return repr(left) == repr(right)
    return alike(*([(v.dtype, v.shape, v.values, v.name, v.parts) for v in side] for side in (left, right)))


def tensors_of(form: FormName, body: bytes, budget: Budget | None = None, **options: Any) -> Any:
    """The tensors of a body, in memory."""
    codec = TENSOR_CODECS[form]
    budget = budget or Budget()
    source: Any = MemoryFile(body) if codec.needs == "file" else MemoryStream(body)
    given = TensorDecodeOptions(**options, held=True)
    return [in_memory(item, budget) for item in codec.decode(source, given, budget)]


def values_of(item: AnyTensor, budget: Budget | None = None) -> Values:
    """One tensor, once all of it has arrived."""
    tensor = in_memory(item, budget or Budget())
    parts = None
    if isinstance(tensor, SparseTensor):
        values, shape, parts = tensor.values.elements, tensor.dense_shape, tensor.indices.tolist()
    elif isinstance(tensor, RaggedTensor):
        inner = tensor.values
        values, shape, parts = inner.elements, inner.shape, [split.tolist() for split in tensor.row_splits]
    else:
        values, shape = tensor.elements, tensor.shape
    return Values(tensor.dtype.name, tuple(shape), _plain(values, tensor.dtype), item.name, parts)


def serialize(form: FormName, *tensors: AnyTensor, **options: Any) -> bytes:
    """The bytes of the tensors in this form. `options` are those of `TensorEncodeOptions`."""
    chunks = TENSOR_CODECS[form].encode(tensors, TensorEncodeOptions(**options), Budget())
    return b"".join(map(bytes, chunks))


def write_tensors(form: FormName, tensors: Sequence[AnyTensor], **options: Any) -> bytes | Refusal:
    """The same, or why it is refused."""
    try:
        return serialize(form, *tensors, **options)
    except InputError as error:
        return Refusal.of(error)
