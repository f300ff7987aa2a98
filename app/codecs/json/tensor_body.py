"""The JSON bodies of tensors: which tensors a parsed body holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ...domain.dtypes import DType
from ...domain.limits import Limits
from ...domain.tensor import Shape, check_distinct
from ...errors import AmbiguousInput, LimitExceeded, UnprocessableInput
from ..array import AnyTensor, Array, RaggedTensor, SparseTensor
from ..options import TensorDecodeOptions
from .forms import IGNORED_MEMBERS, DataForm, check_name, is_oip, member_pointer, read_data_form
from .numbers import NumberArray
from .tensor_array import read_array
from .tensor_kinds import is_nested, is_ragged, is_sparse, read_nested_ragged, read_parts
from .values import Reading

__all__ = ["read_tensor", "read_tensors"]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tensor of the body, not yet read."""

    value: Any
    pointer: str = ""
    name: str | None = None


def read_tensors(body: Any, options: TensorDecodeOptions, limits: Limits) -> list[AnyTensor]:
    """The tensors of a body, in its order.

    Args:
        body: parsed JSON, in which a `NumberArray` may stand for an array of numbers.
        options: `dtype` and `shape` hold for a body of one tensor that does not declare its own. Nested
            arrays are a ragged tensor where `kind` says so, whatever their lengths; a list of scalars is
            dense nevertheless.

    Raises:
        AmbiguousInput: none of the forms.
        UnprocessableInput: no tensor of the declared kind, or one of another than dense (`kind_mismatch`).
        MalformedInput, UnprocessableInput, LimitExceeded: what is wrong with a tensor; `pointer` says where.
        NotPlain: a `NumberArray` that may not fit its dtype.
    """
    entries = _entries(body)
    if len(entries) > limits.max_members:
        raise LimitExceeded(
            f"{len(entries)} tensors; at most {limits.max_members} are allowed.", code="too_many_tensors"
        )
    if len(entries) != 1 and (options.dtype is not None or options.shape is not None):
        raise UnprocessableInput(
            f"?dtype= and ?shape= describe one tensor, and the body holds {len(entries)}. "
            "Declare them in the body.",
            code="several_tensors",
        )
    tensors = [_read_entry(entry, options) for entry in entries]
    _check_names(tensors, limits)
    _check_kind(tensors, options)
    return tensors


def read_tensor(value: Any, pointer: str, options: TensorDecodeOptions) -> Array:
    """The one dense tensor that stands at `pointer` in a body, whatever `kind` it is a component of.

    Raises:
        InputError: as `read_tensors`.
    """
    tensor = _read_entry(_Entry(value, pointer), replace(options, kind=None))
    if not isinstance(tensor, Array):
        raise _ambiguous(value, pointer)
    return tensor


_KINDS: dict[str, type] = {"dense": Array, "sparse": SparseTensor, "ragged": RaggedTensor}


def _check_kind(tensors: list[AnyTensor], options: TensorDecodeOptions) -> None:
    if options.kind is None:
        return
    kinds = set(map(type, tensors))
    if kinds - {Array, _KINDS[options.kind]} or (tensors and _KINDS[options.kind] not in kinds):
        raise UnprocessableInput(
            f"kind={options.kind} was declared, and the body holds tensors of another kind. Sparse is "
            '{"values", "indices", "dense_shape"}; ragged is {"values", "row_splits"} or nested arrays.',
            code="kind_mismatch",
        )


def _check_names(tensors: list[AnyTensor], limits: Limits) -> None:
    for tensor in tensors:
        if tensor.name is not None:
            check_name(tensor.name, limits)
    check_distinct(tensor.name for tensor in tensors)


def _entries(body: Any) -> list[_Entry]:
    if not isinstance(body, dict) or _is_single(body):
        return [_Entry(body)]
    if body.keys() == {"tensors"} and isinstance(body["tensors"], list):
        return _items("tensors", body["tensors"])
    if body.keys() == {"columns"} and isinstance(body["columns"], dict):
        return _members("columns", body["columns"])
    members = body.keys() - IGNORED_MEMBERS
    if len(members) == 1:
        (key,) = members
        value = body[key]
        if key in ("inputs", "outputs") and is_oip(value):
            return _items(key, value)
        if key in ("inputs", "instances") and isinstance(value, list | NumberArray):
            return [_Entry(value, f"/{key}")]
        if key == "inputs" and isinstance(value, dict):
            return _members("inputs", value)
    raise _ambiguous(body, "")


def _items(key: str, values: list[Any]) -> list[_Entry]:
    return [_Entry(value, f"/{key}/{index}") for index, value in enumerate(values)]


def _members(key: str, values: dict[str, Any]) -> list[_Entry]:
    return [_Entry(value, member_pointer(f"/{key}", name), name) for name, value in values.items()]


def _is_single(body: dict[str, Any]) -> bool:
    return body.keys() == {"b64"} or "data" in body or is_sparse(body) or is_ragged(body)


def _ambiguous(body: dict[str, Any], pointer: str) -> AmbiguousInput:
    members = ", ".join(map(repr, sorted(body)[:8]))[:200] or "no members"
    return AmbiguousInput(
        f'An object with {members} is no form of a tensor. Send one tensor as {{"dtype", "shape", '
        '"data"} or a bare array, several as {"tensors": [...]} or {"inputs": {"name": ...}}, or as Open '
        'Inference {"inputs": [{"name", "datatype", "shape", "data"}]}.',
        pointer=pointer,
    )


def _read_entry(entry: _Entry, options: TensorDecodeOptions) -> AnyTensor:
    value, pointer = entry.value, entry.pointer
    if isinstance(value, dict) and "data" not in value and (is_sparse(value) or is_ragged(value)):
        parts = read_parts(value, pointer, options)
        return replace(parts, name=_agreed(parts.name, entry.name, "name", pointer))
    if not isinstance(value, dict) or value.keys() == {"b64"}:
        form = DataForm(value)
    elif "data" in value or "datatype" in value:
        form = read_data_form(value, pointer)
        pointer = member_pointer(pointer, "data")
    else:
        raise _ambiguous(value, pointer)
    dtype = _agreed(form.dtype, options.dtype, "dtype", pointer)
    shape = _agreed(form.shape, options.shape, "shape", pointer)
    name = _agreed(form.name, entry.name, "name", pointer)
    if options.kind == "ragged" and is_nested(form.data):
        if shape is not None:
            raise _no_ragged_shape(pointer)
        return replace(read_nested_ragged(form.data, dtype, pointer, options), name=name)
    reading = Reading.of(options.nonfinite, declared=dtype is not None)
    return replace(read_array(form.data, dtype, shape, pointer, reading), name=name)


def _no_ragged_shape(pointer: str) -> UnprocessableInput:
    return UnprocessableInput(
        "A ragged tensor has no shape that could be declared.", code="shape_mismatch", pointer=pointer
    )


_T = TypeVar("_T", DType, Shape, str)


def _agreed(here: _T | None, elsewhere: _T | None, what: str, pointer: str) -> _T | None:
    if here is not None and elsewhere is not None and here != elsewhere:
        raise UnprocessableInput(
            f"The body says {what} {_shown(here)}, but {_shown(elsewhere)} was declared beside it.",
            code=f"{what}_mismatch",
            pointer=pointer,
        )
    return here if here is not None else elsewhere


def _shown(value: object) -> str:
    return str(list(value) if isinstance(value, tuple) else value)[:64]
