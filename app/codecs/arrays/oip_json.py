"""What the JSON in front of an OIP body says of the tensors behind it (`oip.py`)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ...domain.dtypes import DType
from ...domain.limits import Limits
from ...domain.tensor import Shape, num_elements
from ...errors import AmbiguousInput, LimitExceeded, MalformedInput, UnprocessableInput
from ..json.forms import IGNORED_MEMBERS, check_name, is_oip, member_pointer, read_data_form
from .array import Array, FoundArray

__all__ = ["BINARY_SIZE", "STRING_LENGTH", "Blob", "JsonReader", "OipTensor", "describe_tensors"]

#: The parameter that says how many bytes a tensor takes behind the JSON.
BINARY_SIZE: Final = "binary_data_size"
#: What stands before every element of BYTES.
STRING_LENGTH: Final = struct.Struct("<I")

#: Reads a tensor whose elements are JSON: the item, and the pointer to it.
JsonReader = Callable[[dict[str, Any], str], Array]

ArrayT_co = TypeVar("ArrayT_co", bound=FoundArray, covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class OipTensor(Generic[ArrayT_co]):
    """One tensor as it was found; `pointer` leads to it in the JSON."""

    name: str | None
    array: ArrayT_co
    pointer: str


@dataclass(frozen=True, slots=True)
class Blob:
    """A tensor whose elements stand behind the JSON, where they say they take `num_bytes`."""

    name: str | None
    dtype: DType
    shape: Shape
    num_bytes: int
    pointer: str


def describe_tensors(
    body: Any, read_json: JsonReader, limits: Limits, members: frozenset[str]
) -> list[OipTensor[Array] | Blob]:
    """What the JSON says of each tensor, and those of them that it holds; for the rest see `read_oip`."""
    key, items = _items(body, members)
    if len(items) > limits.max_members:
        raise LimitExceeded(
            f"{len(items)} tensors; at most {limits.max_members} are allowed.", code="too_many_tensors"
        )
    described: list[OipTensor[Array] | Blob] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        pointer = f"/{key}/{index}"
        found = _describe(item, pointer, read_json)
        if found.name is not None:
            check_name(found.name, limits)
            if found.name in seen:
                raise UnprocessableInput(
                    f"Two tensors are called {found.name[:64]!r}.",
                    code="duplicate_name",
                    pointer=pointer,
                    feature=found.name,
                )
            seen.add(found.name)
        described.append(found)
    return described


def _items(body: Any, members: frozenset[str]) -> tuple[str, list[dict[str, Any]]]:
    """The name and the items of the list of tensors."""
    if isinstance(body, dict):
        known = body.keys() - IGNORED_MEMBERS - members
        # The outputs that a request asks for have neither datatype nor values.
        if known == {"inputs", "outputs"} and not _holds_tensors(body["outputs"]):
            known = {"inputs"}
        if len(known) == 1 and (key := min(known)) in ("inputs", "outputs"):
            items = body[key]
            if items == [] or is_oip(items):
                return key, items
    raise AmbiguousInput(
        'The JSON of an oip body is {"inputs": [{"name", "datatype", "shape", "parameters": '
        f'{{"{BINARY_SIZE}": ...}}}}, ...]}}, or the same with "outputs"; "data" may take the place of the '
        "size.",
    )


def _holds_tensors(outputs: Any) -> bool:
    return not isinstance(outputs, list) or any(
        not isinstance(item, dict) or item.keys() & {"datatype", "data"} for item in outputs
    )


def _describe(item: dict[str, Any], pointer: str, read_json: JsonReader) -> OipTensor[Array] | Blob:
    parameters = item.get("parameters")
    size = parameters.get(BINARY_SIZE) if isinstance(parameters, dict) else None
    if size is None:
        form = read_data_form(item, pointer)
        return OipTensor(form.name, read_json(item, pointer), pointer)
    if "data" in item:
        raise MalformedInput(
            f'A tensor has both "data" and a {BINARY_SIZE}.', code="invalid_tensor", pointer=pointer
        )
    form = read_data_form({**item, "data": None}, pointer)
    if form.dtype is None or form.shape is None:
        raise MalformedInput(
            f'A tensor with a {BINARY_SIZE} needs a "datatype" and a "shape".',
            code="invalid_tensor",
            pointer=pointer,
        )
    if form.dtype.oip is None:
        raise MalformedInput(
            f"{form.dtype} is no datatype of the Open Inference Protocol.",
            code="unknown_dtype",
            pointer=member_pointer(pointer, "datatype"),
        )
    _check_size(size, form.dtype, form.shape, f"{pointer}/parameters/{BINARY_SIZE}")
    return Blob(form.name, form.dtype, form.shape, size, pointer)


def _check_size(size: object, dtype: DType, shape: Shape, pointer: str) -> None:
    if type(size) is not int or size < 0:
        raise MalformedInput(
            f"{BINARY_SIZE} is not a number of bytes.", code="invalid_tensor", pointer=pointer
        )
    count = num_elements(shape)
    expected = count * (STRING_LENGTH.size if dtype.is_string else dtype.itemsize)
    # The lengths alone are the least that strings take.
    if size < expected if dtype.is_string and count else size != expected:
        raise MalformedInput(
            f"{BINARY_SIZE} is {str(size)[:40]}, but {dtype.oip} of shape {str(list(shape))[:60]} takes "
            f"{expected} bytes{' at least' if dtype.is_string else ''}.",
            code="binary_data_size_mismatch",
            pointer=pointer,
        )
