"""The JSON bodies of tensors: which tensors a parsed body holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from ...domain.dtypes import STRING, DType
from ...domain.limits import Limits
from ...domain.tensor import NamedTensor, Shape, Tensor, check_shape
from ...errors import AmbiguousInput, InputError, LimitExceeded, UnprocessableInput
from ..json_convert import convert_items
from ..json_forms import (
    IGNORED_MEMBERS,
    DataForm,
    check_name,
    fit_shape,
    is_oip,
    member_pointer,
    read_data_form,
)
from ..json_numbers import NumberArray
from ..json_values import ItemError, Reading, flatten, infer_dtype, unravel
from ..options import TensorDecodeOptions

__all__ = ["read_tensor", "read_tensors"]

_SPARSE: Final = frozenset({"values", "indices", "dense_shape"})
_RAGGED: Final = frozenset({"values", "row_splits"})


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tensor of the body, not yet read."""

    value: Any
    pointer: str = ""
    name: str | None = None


def read_tensors(body: Any, options: TensorDecodeOptions, limits: Limits) -> list[NamedTensor]:
    """The tensors of a body, in its order.

    Args:
        body: parsed JSON, in which a `NumberArray` may stand for an array of numbers.
        options: `dtype` and `shape` hold for a body of one tensor that does not declare its own.

    Raises:
        AmbiguousInput: none of the forms.
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
    return tensors


def read_tensor(value: Any, pointer: str, options: TensorDecodeOptions) -> NamedTensor:
    """The one tensor that stands at `pointer` in a body.

    Raises:
        InputError: as `read_tensors`.
    """
    return _read_entry(_Entry(value, pointer), options)


def _check_names(tensors: list[NamedTensor], limits: Limits) -> None:
    seen: set[str] = set()
    for named in tensors:
        if named.name in seen:
            raise UnprocessableInput(
                f"Two tensors are called {named.name[:64]!r}.", code="duplicate_name", feature=named.name
            )
        if named.name is not None:
            check_name(named.name, limits)
            seen.add(named.name)


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
    return body.keys() == {"b64"} or "data" in body or body.keys() >= _SPARSE or body.keys() >= _RAGGED


def _ambiguous(body: dict[str, Any], pointer: str) -> AmbiguousInput:
    members = ", ".join(map(repr, sorted(body)[:8]))[:200] or "no members"
    return AmbiguousInput(
        f'An object with {members} is no form of a tensor. Send one tensor as {{"dtype", "shape", '
        '"data"} or a bare array, several as {"tensors": [...]} or {"inputs": {"name": ...}}, or as Open '
        'Inference {"inputs": [{"name", "datatype", "shape", "data"}]}.',
        pointer=pointer,
    )


def _read_entry(entry: _Entry, options: TensorDecodeOptions) -> NamedTensor:
    value, pointer = entry.value, entry.pointer
    if not isinstance(value, dict) or value.keys() == {"b64"}:
        form = DataForm(value)
    elif "data" in value or "datatype" in value:
        form = read_data_form(value, pointer)
        pointer = member_pointer(pointer, "data")
    elif _is_single(value):
        raise UnprocessableInput(
            "Sparse and ragged tensors are not served; send a dense one.",
            code="unsupported_kind",
            pointer=pointer,
        )
    else:
        raise _ambiguous(value, pointer)
    dtype = _agreed(form.dtype, options.dtype, "dtype", pointer)
    shape = _agreed(form.shape, options.shape, "shape", pointer)
    name = _agreed(form.name, entry.name, "name", pointer)
    reading = Reading.of(options.nonfinite, declared=dtype is not None)
    return NamedTensor(_read_data(form.data, dtype, shape, pointer, reading), name)


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


def _read_data(data: Any, dtype: DType | None, shape: Shape | None, pointer: str, reading: Reading) -> Tensor:
    if isinstance(data, NumberArray):
        dtype = dtype or data.infer_dtype()
        shape = fit_shape(_checked(data.shape, pointer), shape, pointer)
        return Tensor(dtype, shape, data.values_as(dtype))
    nested: Shape = ()
    try:
        items, nested = flatten(data) if isinstance(data, list) else ([data], ())
        if dtype is None:
            dtype = infer_dtype(items, reading)
            dtype = STRING if dtype.is_string else dtype
        found = _without_parts(nested, items) if dtype.kind == "complex" else nested
        shape = fit_shape(_checked(found, pointer), shape, pointer)
        values = convert_items(items, dtype, reading)
    except ItemError as error:
        path = unravel(error.index, nested) if error.path is None else error.path
        raise error.error(
            error.detail, code=error.code, pointer="/".join([pointer, *map(str, path)])
        ) from None
    return Tensor(dtype, shape, values)


def _checked(shape: Shape, pointer: str) -> Shape:
    try:
        return check_shape(shape)
    except InputError as error:
        error.location = replace(error.location, pointer=pointer)
        raise


def _without_parts(nested: Shape, items: list[Any]) -> Shape:
    """The shape of complex numbers, each of which came as `[real, imaginary]`."""
    if not items:
        return nested
    if not nested or nested[-1] != 2:
        raise ItemError(0, "A complex number is an array of two numbers, [real, imaginary].", "type_mismatch")
    return nested[:-1]
