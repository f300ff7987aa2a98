"""Tensors from JSON: objects, bare arrays, and the bodies of TensorFlow Serving and Open Inference.

Sparse and ragged tensors have the members that `tensor_kinds.py` reads.
A complex number is `[real, imaginary]`, below the axes of its tensor:
`{"dtype": "complex64", "shape": [2], "data": [[1.0, 0.0], [0.0, -1.0]]}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ....domain.dtypes import DType
from ....domain.limits import Limits
from ....domain.tensor import (
    Shape,
    check_distinct,
    num_elements,
)
from ....errors import (
    AmbiguousInput,
    LimitExceeded,
    UnprocessableInput,
)
from ....runtime.budget import Budget
from ....runtime.streams import WholeBody
from ....runtime.turns import offer_turn
from ...array import (
    AnyTensor,
    Array,
    RaggedTensor,
    SparseTensor,
)
from ...content import STRING_OVERHEAD
from ...kernels.json.tape import ARRAY, OBJECT
from ...options import TensorDecodeOptions
from ..document import read_body
from ..forms import (
    IGNORED_MEMBERS,
    DataForm,
    check_name,
    is_oip,
    member_pointer,
    read_data_form,
)
from ..tape import Items, members_of
from ..values import Reading
from .array import (
    is_nested,
    read_array,
    read_ragged,
)
from .kinds import are_parts, read_parts

#: Members that are likely; those that every tape knows are missing.
_NAMES: Final = ("shape", "data", "name", "datatype", "inputs")
_KINDS: Final[dict[str, type]] = {"dense": Array, "sparse": SparseTensor, "ragged": RaggedTensor}


def read(body: WholeBody, options: TensorDecodeOptions, budget: Budget) -> list[AnyTensor]:
    """The tensors of a body, in its order.

    Args:
        options: `dtype` and `shape` hold for a body of one tensor that does not declare its own. Nested
            arrays are a ragged tensor where `kind` says so, whatever their lengths; a list of scalars is
            dense nevertheless.

    Raises:
        AmbiguousInput: none of the forms.
        UnprocessableInput: no tensor of the declared kind, or one of another than dense (`kind_mismatch`).
        InputError: the text is not JSON, or something is wrong with a tensor; `pointer` says where.
    """
    tape = read_body(body, budget, bare=options.nonfinite == "bare", names=_NAMES)
    tensors = _read_tensors(tape.roots, options, budget.limits)
    # What was charged for the tape covers the arrays; from here on they alone are held.
    budget.exchange(tape.num_bytes, sum(map(_held_bytes, tensors)), "The tensors")
    return tensors


def _held_bytes(tensor: AnyTensor) -> int:
    if not tensor.dtype.is_string:
        return tensor.num_bytes
    shape = tensor.shape if isinstance(tensor, Array) else tensor.values.shape
    return tensor.num_bytes + STRING_OVERHEAD * num_elements(shape)


@dataclass(slots=True)
class _Entry:
    """One tensor of the body, not yet read.

    Attributes:
        members: of an object, where they are known already.
    """

    value: Items
    pointer: str = ""
    name: str | None = None
    members: Mapping[str, Items] | None = None


def _read_tensors(body: Items, options: TensorDecodeOptions, limits: Limits) -> list[AnyTensor]:
    entries = _entries(body, limits)
    if len(entries) != 1 and (options.dtype is not None or options.shape is not None):
        raise UnprocessableInput(
            f"dtype= and shape= describe one tensor, and the body holds {len(entries)}. "
            "Declare them in the body.",
            code="several_tensors",
        )
    tensors = [_read_entry(entry, options) for entry in entries]
    names = [tensor.name for tensor in tensors if tensor.name is not None]
    for name in names:
        check_name(name, limits)
    check_distinct(names)
    _check_kind(tensors, options)
    return tensors


def read_tensor(value: Items, pointer: str, options: TensorDecodeOptions) -> Array:
    """The one dense tensor that stands at `pointer` in a body, whatever `kind` it is a component of.

    Raises:
        InputError: as `read`.
    """
    tensor = _read_entry(_Entry(value, pointer), replace(options, kind=None))
    if not isinstance(tensor, Array):
        raise _ambiguous(value, pointer)
    return tensor


def _check_kind(tensors: Sequence[AnyTensor], options: TensorDecodeOptions) -> None:
    if options.kind is None:
        return
    kinds = set(map(type, tensors))
    if kinds - {Array, _KINDS[options.kind]} or (tensors and _KINDS[options.kind] not in kinds):
        raise UnprocessableInput(
            f"kind={options.kind} was declared, and the body holds tensors of another kind. Sparse is "
            '{"values", "indices", "dense_shape"}; ragged is {"values", "row_splits"} or nested arrays.',
            code="kind_mismatch",
        )


def _entries(body: Items, limits: Limits) -> list[_Entry]:
    """The tensors of a body by its form; an array or object that holds tensors has one member."""
    if not body.only(OBJECT):
        return [_Entry(body)]
    members = members_of(body, 0)
    names = members.keys()
    if names == {"b64"} or "data" in names or are_parts(names):
        return [_Entry(body, members=members)]
    kept = names - IGNORED_MEMBERS
    if len(kept) != 1:
        raise _ambiguous(body, "")
    (key,) = kept
    value, pointer, is_alone = members[key], f"/{key}", len(names) == 1
    if value.only(ARRAY):
        if (key == "tensors" and is_alone) or (key in ("inputs", "outputs") and is_oip(value)):
            _check_count(value, limits)
            return [_Entry(item, f"{pointer}/{index}") for index, item in enumerate(value.children(0).each())]
        if key in ("inputs", "instances"):
            return [_Entry(value, pointer)]
    elif value.only(OBJECT) and (key == "inputs" or (key == "columns" and is_alone)):
        _check_count(value, limits)
        named = members_of(value, 0).items()
        return [_Entry(item, member_pointer(pointer, name), name) for name, item in named]
    raise _ambiguous(body, "")


def _check_count(tensors: Items, limits: Limits) -> None:
    count = int(tensors.counts()[0])
    if count > limits.max_members:
        raise LimitExceeded(
            f"{count} tensors; at most {limits.max_members} are allowed.", code="too_many_tensors"
        )


def _ambiguous(body: Items, pointer: str) -> AmbiguousInput:
    members = ", ".join(map(repr, sorted(body.member_names(0))[:8]))[:200] or "no members"
    return AmbiguousInput(
        f'An object with {members} is no form of a tensor. Send one tensor as {{"dtype", "shape", '
        '"data"} or a bare array, several as {"tensors": [...]} or {"inputs": {"name": ...}}, or as Open '
        'Inference {"inputs": [{"name", "datatype", "shape", "data"}]}.',
        pointer=pointer,
    )


def _read_entry(entry: _Entry, options: TensorDecodeOptions) -> AnyTensor:
    offer_turn()  # a body has up to thousands of them
    value, pointer, members = entry.value, entry.pointer, entry.members
    is_object = members is not None or value.only(OBJECT)
    if members is None:
        members = members_of(value, 0) if is_object else {}
    names = members.keys()
    if "data" not in names and are_parts(names):
        parts = read_parts(members, pointer, options)
        name = _agreed(parts.name, entry.name, "name", pointer)
        return parts if name == parts.name else replace(parts, name=name)
    if not is_object or names == {"b64"}:
        form = DataForm(value)
    elif names & {"data", "datatype"}:
        form = read_data_form(members, pointer)
        pointer += "/data"
    else:
        raise _ambiguous(value, pointer)
    dtype = _agreed(form.dtype, options.dtype, "dtype", pointer)
    shape = _agreed(form.shape, options.shape, "shape", pointer)
    name = _agreed(form.name, entry.name, "name", pointer)
    reading = Reading.of(options.nonfinite, declared=dtype is not None)
    if options.kind == "ragged" and is_nested(form.data):
        if shape is not None:
            raise UnprocessableInput(
                "A ragged tensor has no shape that could be declared.", code="shape_mismatch", pointer=pointer
            )
        return replace(read_ragged(form.data, dtype, pointer, reading), name=name)
    return read_array(form.data, dtype, shape, pointer, reading, name)


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
