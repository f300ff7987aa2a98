"""One case through the form table: what the tables of tests of all families share.

Only `_values_of` and the imports know how the columns of a batch are laid out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.codecs.forms import RECORDS_CODECS, TENSOR_CODECS, FormName
from app.codecs.options import (
    RecordsDecodeOptions,
    RecordsEncodeOptions,
    TensorDecodeOptions,
    TensorEncodeOptions,
)
from app.codecs.records.arrays import values_from_elements
from app.codecs.records.columns import Records
from app.codecs.tensor_stream import NamedStream
from app.domain.dtypes import DType
from app.domain.limits import Limits
from app.domain.schema import Feature, Schema
from app.domain.tensor import NamedAny, NamedTensor, RaggedTensor, SparseTensor, Tensor
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile, MemoryStream

#: Sizes of the pieces in which a body arrives; None is all at once.
Pieces = Sequence[int | None]
WHOLE: Pieces = (None,)
PIECES: Pieces = (None, 1, 3, 64)


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


def decode(form: FormName, body: bytes, budget: Budget, chunk: int | None = None, **options: Any) -> Records:
    """The records of a body, not drawn yet."""
    codec = RECORDS_CODECS[form]
    assert codec.decode is not None
    source: Any = MemoryFile(body) if codec.needs == "file" else MemoryStream(body, chunk=chunk)
    return codec.decode(source, RecordsDecodeOptions(**options), budget)


def read(
    form: FormName, body: bytes, *, pieces: Pieces = WHOLE, limits: Limits | None = None, **options: Any
) -> Rows | Refusal:
    """What the form makes of a body, which has to be the same however the body arrives.

    Args:
        pieces: tried one after the other, where the form reads a stream.
        options: of `RecordsDecodeOptions`.
    """
    if RECORDS_CODECS[form].needs == "file":
        pieces = WHOLE
    first, *others = (_read(form, body, chunk, Budget(limits), options) for chunk in pieces)
    for chunk, other in zip(pieces[1:], others, strict=True):
        assert repr(other) == repr(first) if isinstance(first, Refusal) else _same(other, first), chunk
    return first


def _same(left: Rows | Refusal, right: Rows) -> bool:
    return isinstance(left, Rows) and (left.schema, repr(left.rows)) == (right.schema, repr(right.rows))


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
    return Rows(records.schema, rows, records.dropped, records.is_declared, batches, left, budget.peak)


def assert_rows(found: Rows | Refusal, rows: list[dict[str, Any]]) -> None:
    """Compares by `repr`, which tells 1 from 1.0 and from True, -0.0 from 0.0, and knows NaN again."""
    assert isinstance(found, Rows), found
    assert repr(found.rows) == repr(rows)


def write(
    form: FormName, records: Records, *, limits: Limits | None = None, **options: Any
) -> bytes | Refusal:
    """The bytes of the records in this form. `options` are those of `RecordsEncodeOptions`."""
    codec = RECORDS_CODECS[form]
    assert codec.encode is not None
    try:
        return b"".join(map(bytes, codec.encode(records, RecordsEncodeOptions(**options), Budget(limits))))
    except InputError as error:
        return Refusal.of(error)


def records(rows: Any, **options: Any) -> Records:
    """Records made of JSON: rows, or one of the other bodies that the contract names."""
    return decode("json", json.dumps(rows).encode(), Budget(), **options)


def _rows_of(batch: Any, schema: Schema) -> list[dict[str, Any]]:
    columns = [_values_of(column, feature) for column, feature in zip(batch.columns, schema, strict=True)]
    return [
        {feature.name: column[row] for feature, column in zip(schema, columns, strict=True)}
        for row in range(batch.num_rows)
    ]


def _values_of(column: Any, feature: Feature) -> list[Any]:
    """The value of each row, as nested lists. This is where the layout of a column is known."""
    present = column.is_valid().to_pylist()
    found = column.drop_null()
    cells: list[Any]
    if feature.kind == "sparse":
        rank = len(feature.shape)
        indices = found.field("indices").to_pylist()
        values = [_items(cell.values, feature.dtype) for cell in found.field("values")]
        shapes = [np.array(index).reshape(-1, rank).tolist() for index in indices]
        cells = [{"values": v, "indices": i} for v, i in zip(values, shapes, strict=True)]
    elif feature.kind == "sequence":
        cells = [_values_of(cell.values, feature.step) for cell in found]
    elif feature.kind == "ragged":
        cells = [_ragged(cell.values, feature.num_partitions, feature) for cell in found]
    elif feature.is_scalar:
        cells = _items(found, feature.dtype)
    elif feature.num_unknown < 2:
        cells = [_nested(_items(cell.values, feature.dtype), feature.shape) for cell in found]
    else:
        dims = found.field("shape").to_pylist()
        lists = [_items(cell.values, feature.dtype) for cell in found.field("values")]
        cells = [_nested(items, shape) for items, shape in zip(lists, dims, strict=True)]
    rest = iter(cells)
    return [next(rest) if there else None for there in present]


def _ragged(lists: Any, cuts: int, feature: Feature) -> list[Any]:
    if cuts:
        return [_ragged(item.values, cuts - 1, feature) for item in lists]
    if not feature.inner_shape:
        return _items(lists, feature.dtype)
    return [_nested(_items(item.values, feature.dtype), feature.inner_shape) for item in lists]


def _items(elements: Any, dtype: DType) -> list[Any]:
    values: list[Any] = _plain(values_from_elements(elements, dtype), dtype)
    return values


def _plain(values: Any, dtype: DType) -> list[Any]:
    """Plain Python values; small floats and integers of numpy's extensions, too."""
    if dtype.is_string or dtype.kind in ("bool", "complex"):
        return list(values.tolist())
    if not dtype.is_float:
        return [int(value) for value in values]
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
    ways = [
        (codec.decode, ()),
        *(
            []
            if codec.decode_stream is None or options.get("kind") in ("sparse", "ragged")
            else [(codec.decode_stream, (len(body),))]
        ),
    ]
    outcomes: list[list[Values] | Refusal] = []
    for chunk in WHOLE if codec.needs == "file" else pieces:
        for decoder, length in ways:
            source: Any = MemoryFile(body) if codec.needs == "file" else MemoryStream(body, chunk=chunk)
            try:
                call: Any = decoder
                found = call(source, TensorDecodeOptions(**options), Budget(limits), *length)
                outcomes.append([_values(named) for named in found])
            except InputError as error:
                outcomes.append(Refusal.of(error))
    for other in outcomes[1:]:
        assert repr(other) == repr(outcomes[0])
    return outcomes[0]


def _values(named: NamedAny | NamedTensor | NamedStream) -> Values:
    tensor = named.tensor
    if isinstance(tensor, SparseTensor):
        values, shape, parts = tensor.values, tensor.dense_shape, tensor.indices.tolist()
    elif isinstance(tensor, RaggedTensor):
        inner = tensor.values
        values, shape, parts = inner.values, inner.shape, [split.tolist() for split in tensor.row_splits]
    elif isinstance(tensor, Tensor):
        values, shape, parts = tensor.values, tensor.shape, None
    else:
        content = b"".join(map(bytes, tensor.content))
        values, shape, parts = np.frombuffer(content, tensor.dtype.numpy), tensor.shape, None
    return Values(tensor.dtype.name, tuple(shape), _plain(values, tensor.dtype), named.name, parts)


def write_tensors(form: FormName, tensors: Sequence[NamedAny], **options: Any) -> bytes | Refusal:
    """The bytes of the tensors in this form. `options` are those of `TensorEncodeOptions`."""
    codec = TENSOR_CODECS[form]
    assert codec.encode is not None
    try:
        return b"".join(map(bytes, codec.encode(tensors, TensorEncodeOptions(**options))))
    except InputError as error:
        return Refusal.of(error)
