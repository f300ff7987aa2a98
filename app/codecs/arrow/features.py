"""Convert between Arrow fields and features: infer a feature from a column, and mark fields for readers.

Arrow is typed, so nothing is guessed: the dtype and the shape follow from the type, and a feature is
nullable where its field is. Two entries of metadata say what Arrow has no type for: `shardsmith:dtype`
on a field (bfloat16 in uint16, complex numbers in fixed-size binary, float8 in uint8, ...) and
`shardsmith:schema`, the schema as JSON, on the whole.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from ...domain.dtypes import BOOL, BYTES, DTYPES, TEXT, WITHIN_FLOAT32, DType
from ...domain.feature import Feature, FeatureShape
from ...domain.schema import Message, Schema
from ...errors import InputError, UnprocessableInput
from ...runtime.budget import Budget
from ..json.text import parse_json, parse_metadata
from ..options import RecordsDecodeOptions
from ..records.body_schema import with_body_schema
from .elements import storage_type
from .flatten import is_list
from .guard import read_field_metadata
from .times import has_text

SCHEMA_KEY: Final = b"shardsmith:schema"
DTYPE_KEY: Final = b"shardsmith:dtype"
#: The canonical extension for tensors whose shapes differ; pyarrow has no type of its own for it.
VARIABLE_SHAPE: Final = b"arrow.variable_shape_tensor"
_EXTENSION_NAME: Final = b"ARROW:extension:name"
_EXTENSION_METADATA: Final = b"ARROW:extension:metadata"


def has_arrow_type(dtype: DType) -> bool:
    """Whether Arrow has the type, so that nothing has to say what its bits mean."""
    return dtype.has_kernel and dtype.kind != "complex" and dtype.name != "bfloat16"


#: The storage that each dtype marked by `DTYPE_KEY` has to have.
_MARKED: Final[dict[bytes, pa.DataType]] = {
    dtype.name.encode(): storage_type(dtype) for dtype in DTYPES.values() if not has_arrow_type(dtype)
}
#: The id of every other Arrow type whose values a feature holds.
_UNMARKED: Final[dict[int, DType]] = {
    storage_type(dtype).id: dtype
    for dtype in DTYPES.values()
    if (dtype.is_integer or dtype.is_float) and has_arrow_type(dtype)
} | {
    pa.bool_().id: BOOL,
    **dict.fromkeys((pa.string().id, pa.large_string().id, pa.string_view().id), TEXT),
    **dict.fromkeys((pa.binary().id, pa.large_binary().id, pa.binary_view().id, pa.binary(1).id), BYTES),
}


def with_schema_in_metadata(
    metadata: dict[bytes, bytes] | None, options: RecordsDecodeOptions, budget: Budget
) -> RecordsDecodeOptions:
    """The options with the schema from the metadata of the body, if it has one.

    Raises:
        MalformedInput: not a schema (`invalid_schema`), or a second one (`schema_twice`).
        SchemaConflict: not that of the dataset appended to.
    """
    text = (metadata or {}).get(SCHEMA_KEY)
    if text is None:
        return options
    before = budget.remaining
    value = parse_json(text, budget).value
    budget.release(before - budget.remaining)
    return with_body_schema(
        value, options, budget.limits, place="the metadata of the body", pointer=None, repeats_types=True
    )


def infer_arrow_schema(schema: pa.Schema, message: Message | None) -> Schema:
    """The features of the columns; one whose type is null, or lists of null, has no values and is left out.

    Args:
        message: of SequenceExamples, a column of lists whose length varies is a feature list.

    Raises:
        UnprocessableInput: a type that no feature has (`unsupported_type`).
    """
    sequences = message == "sequence_example"
    fields = [field for field in schema if not has_no_values(field.type)]
    return Schema(tuple(_infer_feature(field, sequences=sequences) for field in fields)).with_message(message)


def has_no_values(layout: pa.DataType) -> bool:
    """Whether it is the type of nulls, or of lists of them."""
    return pa.types.is_null(_shape_of(layout)[1])


def expand_structs(schema: pa.Schema, declared: Schema | None) -> list[tuple[pa.Field[Any], list[int]]]:
    """The columns, structs as their members under dotted names, and the place of each in a batch.

    A struct is one column where a feature of its name is declared, and where it is a tensor.
    """
    columns = []
    waiting = [(field, [index]) for index, field in enumerate(schema)][::-1]
    while waiting:
        field, place = waiting.pop()
        layout: Any = field.type
        kept = declared is not None and field.name in declared.by_name
        if kept or not isinstance(layout, pa.StructType) or not len(layout) or _variable_shape(field):
            columns.append((field, place))
            continue
        for index in reversed(range(len(layout))):
            member = layout.field(index)
            nullable = field.nullable or member.nullable
            named = member.with_name(f"{field.name}.{member.name}").with_nullable(nullable)
            waiting.append((named, [*place, index]))
    return columns


def narrow_columns(schema: pa.Schema) -> set[str]:
    """The names of the columns whose values float32 holds, by their type."""
    return {field.name for field in schema if _fits_float32(field)}


def text_columns(schema: pa.Schema) -> list[str]:
    """The names of the columns whose values become text unless numbers are declared."""
    return [field.name for field in schema if has_text(_shape_of(field.type)[1])]


def _fits_float32(field: pa.Field[Any]) -> bool:
    _, leaf = _shape_of(field.type)
    if pa.types.is_struct(leaf):
        members: Any = leaf
        names = {members.field(index).name for index in range(members.num_fields)} & {"values", "data"}
        leaf = _shape_of(members.field(names.pop()).type)[1] if len(names) == 1 else leaf
    dtype = value_dtype(leaf, field.metadata or {})
    return dtype is not None and dtype.name in WITHIN_FLOAT32


def _infer_feature(field: pa.Field[Any], *, sequences: bool) -> Feature:
    marks = field.metadata or {}
    uniform = _variable_shape(field)
    shape, leaf = _shape_of(field.type) if uniform is None else uniform
    dtype = TEXT if has_text(leaf) else value_dtype(leaf, marks)
    if dtype is None:
        raise _unsupported_error(field.name, leaf)
    kind = "dense"
    if sequences and shape and shape[0] is None:
        kind = "sequence"
    elif None in shape[1:] and uniform is None:
        kind = "ragged"
    members = {"dtype": dtype.name, "shape": list(shape), "kind": kind, "nullable": field.nullable}
    return Feature.from_json(field.name, members)


def _shape_of(layout: pa.DataType) -> tuple[FeatureShape, pa.DataType]:
    """The dimensions of the lists, and the type of what they hold."""
    dims: list[int | None] = []
    while True:
        found: Any = layout
        if isinstance(layout, pa.FixedShapeTensorType):
            order = found.permutation or range(len(found.shape))
            dims.extend(found.shape[axis] for axis in order)
            layout = found.value_type
        elif isinstance(layout, pa.BaseExtensionType):
            layout = found.storage_type
        elif isinstance(layout, pa.DictionaryType | pa.RunEndEncodedType):
            layout = found.value_type
        elif pa.types.is_fixed_size_list(layout):
            dims.append(found.list_size)
            layout = found.value_type
        elif is_list(layout):
            dims.append(None)
            layout = found.value_type
        else:
            return tuple(dims), layout


def _variable_shape(field: pa.Field[Any]) -> tuple[FeatureShape, pa.DataType] | None:
    """The shape and the type of the values, where the column is a tensor whose shape varies.

    That is `struct<data: list<T>, shape: fixed_size_list<int32>[rank]>` under the name of an extension.
    Source: arrow.apache.org, "Canonical Extension Types", "Variable shape tensor".

    Raises:
        UnprocessableInput: permuted axes, or not of that form (`unsupported_type`).
    """
    layout: Any = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if not pa.types.is_struct(layout):
        return None
    marks = read_field_metadata(memoryview(pa.schema([field]).serialize()))
    if marks.get(_EXTENSION_NAME) != VARIABLE_SHAPE:
        return None
    names = {layout.field(index).name for index in range(layout.num_fields)}
    shape_type = layout.field("shape").type if names == {"data", "shape"} else None
    if shape_type is None or not (
        pa.types.is_fixed_size_list(shape_type) and is_list(layout.field("data").type)
    ):
        raise _unsupported_error(field.name, layout)
    rank: int = shape_type.list_size
    try:
        members = parse_metadata(marks.get(_EXTENSION_METADATA) or b"{}")
        uniform = tuple(members.get("uniform_shape") or [None] * rank)
        order = list(members.get("permutation") or range(rank))
    except (AttributeError, TypeError, InputError):
        raise _unsupported_error(field.name, layout) from None
    if len(uniform) != rank or order != list(range(rank)):
        raise UnprocessableInput(
            f"Feature {field.name!r} is a tensor with permuted axes. Write it row-major.",
            code="unsupported_type",
            feature=field.name,
        )
    return uniform, layout.field("data").type.value_type


def value_dtype(leaf: pa.DataType, marks: dict[bytes, bytes]) -> DType | None:
    """The dtype of values of an Arrow type, or None if no dtype fits.

    Args:
        marks: the metadata of the column's field.
    """
    mark = marks.get(DTYPE_KEY, b"")
    return DTYPES[mark.decode()] if _MARKED.get(mark) == leaf else _UNMARKED.get(leaf.id)


def _unsupported_error(name: str, layout: pa.DataType) -> UnprocessableInput:
    types = pa.types
    hint = "Leave it out, or write plain lists or values."
    if types.is_duration(layout):
        hint = "Declare it as int64, which is a number of the column's units."
    elif types.is_struct(layout):
        hint = "Make its members columns of their own; sparse and ragged values are declared in a schema."
    return UnprocessableInput(
        f"Feature {name!r} has the Arrow type {str(layout)[:100]}, which no feature has. {hint}",
        code="unsupported_type",
        feature=name,
    )
