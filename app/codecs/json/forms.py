"""What JSON bodies of tensors and of records have in common: envelopes, and one array with its type.

Sources: the REST API of TensorFlow Serving (`instances`, `inputs`, `{"b64": ...}`), the Open Inference
Protocol v2 (`inputs` and `outputs` with `name`, `datatype`, `shape`, `data`).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

from ...domain.dtypes import DType, parse_dtype
from ...domain.limits import Limits
from ...domain.tensor import Shape, check_shape, num_elements
from ...errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from ..kernels.json.tape import OBJECT
from .tape import Items

#: Members of a request that say nothing about its values.
IGNORED_MEMBERS: Final = frozenset({"signature_name", "id", "model_name", "model_version", "parameters"})

_MEMBERS: Final = frozenset({"dtype", "datatype", "shape", "name", "parameters"})


@dataclass(slots=True)
class DataForm:
    """`{"name", "dtype" or "datatype", "shape", "data"}`; all but `data` may be missing."""

    data: Items
    dtype: DType | None = None
    shape: Shape | None = None
    name: str | None = None


def member_pointer(pointer: str, key: str | int) -> str:
    """The JSON Pointer of a member (RFC 6901)."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def is_oip(tensors: Items) -> bool:
    """Whether an array is the list of tensors of an Open Inference request or response."""
    items, _ = tensors.open()
    return items.found() == {OBJECT} and all(
        "datatype" in items.member_names(index) for index in range(len(items))
    )


def read_data_form(
    members: Mapping[str, Items],
    pointer: str,
    *,
    data: str | None = "data",
    beside: Set[str] = frozenset(),
) -> DataForm:
    """The members of an object that describes a tensor; the data itself is not looked at.

    Args:
        members: of the object.
        data: the member with the elements; None: they do not stand in the JSON.
        beside: members that are the caller's to read.

    Raises:
        MalformedInput: a member that is unknown or of the wrong type.
        LimitExceeded: more dimensions or elements than TensorFlow holds.
    """
    names = members.keys() - beside - {data}
    if unknown := names - _MEMBERS:
        raise _invalid(f"has an unknown member {min(unknown)[:64]!r}", pointer)
    if data is not None and data not in members:
        raise _invalid('lacks "data"', pointer)
    if names >= {"dtype", "datatype"}:
        raise _invalid('has both "dtype" and "datatype"', pointer)
    return DataForm(
        Items.none() if data is None else members[data],
        _dtype(members.get("datatype" if "datatype" in names else "dtype"), pointer),
        _shape(members.get("shape"), pointer),
        _name(members.get("name"), pointer),
    )


def _invalid(what: str, pointer: str) -> MalformedInput:
    return MalformedInput(
        f'A tensor {what}. Its form is {{"name", "dtype" (or "datatype"), "shape", "data"}}.',
        code="invalid_tensor",
        pointer=pointer,
    )


def _dtype(member: Items | None, pointer: str) -> DType | None:
    value = None if member is None else member.python(0)
    if value is None:
        return None
    if not isinstance(value, str):
        raise _invalid('has a "dtype" that is not a string', pointer)
    try:
        return parse_dtype(value)
    except InputError as error:
        error.location = replace(error.location, pointer=pointer)
        raise


def _shape(member: Items | None, pointer: str) -> Shape | None:
    value = None if member is None else member.python(0)
    if value is None:
        return None
    if not isinstance(value, list):
        raise _invalid('has a "shape" that is not an array of integers', pointer + "/shape")
    try:
        return check_shape(value)
    except InputError as error:
        error.location = replace(error.location, pointer=pointer + "/shape")
        raise


def _name(member: Items | None, pointer: str) -> str | None:
    value = None if member is None else member.python(0)
    if value is None or isinstance(value, str):
        return value
    raise _invalid('has a "name" that is not a string', pointer + "/name")


def check_name(name: str, limits: Limits) -> None:
    """Refuse the name of a tensor that is too long.

    Raises:
        LimitExceeded: `name_too_long`.
    """
    if len(name.encode()) > limits.max_name_bytes:
        raise LimitExceeded(
            f"The name {name[:64]!r}... is longer than {limits.max_name_bytes} bytes of UTF-8.",
            code="name_too_long",
        )


def fit_shape(found: Shape, declared: Shape | None, pointer: str) -> Shape:
    """The shape of data that came nested as `found`: nested and flat data both fit `declared`.

    Raises:
        UnprocessableInput: `shape_mismatch`.
    """
    if declared is None or found == declared:
        return found
    count = num_elements(found)
    is_flat = len(found) == 1 and count == num_elements(declared)
    # Nested arrays end at the first empty one: [[], []] is all that JSON shows of shape [2, 0, 3].
    is_empty = count == 0 and found == declared[: len(found)]
    if is_flat or is_empty:
        return declared
    raise UnprocessableInput(
        f"The data has shape {list(found)}, which does not fit the declared shape {list(declared)} "
        f"of {num_elements(declared)} elements.",
        code="shape_mismatch",
        pointer=pointer,
    )
