"""OIP: the binary tensor data extension of the Open Inference Protocol.

Source: docs/protocol/extension_binary_data.md of github.com/triton-inference-server/server. A JSON object
as in the plain protocol, then the elements of all tensors whose `parameters` have a `binary_data_size`,
in their order, little-endian, row-major; an element of BYTES is its length (u32) and its bytes. The
length of the JSON comes beside the body. Tensors with `data` stand in the JSON.

The list is `inputs` (a request; what it asks for in `outputs` is ignored) or `outputs` (a response).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np

from ...domain.dtypes import BYTES, TEXT, DType
from ...domain.limits import Limits
from ...domain.tensor import Shape, check_distinct, num_elements
from ...errors import AmbiguousInput, InputError, LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import (
    CHUNK_BYTES,
    Buffer,
    ByteFile,
    ByteStream,
    FileStream,
    iter_exactly,
    read_exactly,
)
from ...runtime.turns import offer_turn
from ..array import Array, position_name
from ..columns import Strings
from ..compression.encoded import Encoded
from ..content import check_pieces, read_content
from ..json.document import read_text
from ..json.forms import IGNORED_MEMBERS, check_name, is_oip, member_pointer, read_data_form
from ..json.items import flatten
from ..json.tape import Items, members_of
from ..json.tensors.read import read_tensor
from ..json.tensors.write import write as write_json
from ..json.texts import quote
from ..kernels.json.tape import ARRAY, OBJECT
from ..options import TensorDecodeOptions, TensorEncodeOptions
from . import raw

#: The parameter that says how many bytes a tensor takes behind the JSON.
_BINARY_SIZE: Final = "binary_data_size"
#: The length in front of every element of BYTES.
_STRING_LENGTH: Final = struct.Struct("<I")
_MAX_STRING_BYTES: Final = 2**32 - 1
#: Strings whose offsets are Python's integers at one time.
_STRINGS_AT_ONCE: Final = 65_536
_AS_JSON: Final = TensorEncodeOptions(layout="oip")
#: A response has to name its model.
_MODEL_NAME: Final = "shardsmith"


@dataclass(frozen=True, slots=True, eq=False)
class OipBody:
    """The content of a body.

    Attributes:
        arrays: in their order.
        pointers: where in the JSON each of them is.
        members: those members of the JSON that the caller asked for, where they are there.
    """

    arrays: list[Array]
    pointers: list[str]
    members: dict[str, Any]


def read(body: ByteStream | ByteFile, options: TensorDecodeOptions, budget: Budget) -> list[Array]:
    """The tensors of a request or a response; where the JSON has no length, one raw tensor.

    Raises:
        InputError: the JSON or the bytes behind it contradict the protocol or one another; see `read_body`.
    """
    if options.json_bytes == 0:
        stream = FileStream(body, 0, body.size) if isinstance(body, ByteFile) else body
        return raw.read(stream, options, budget)
    return read_body(body, options, budget).arrays


def write(arrays: Sequence[Array], _options: TensorEncodeOptions, budget: Budget) -> Encoded:
    """A response that holds all arrays as binary data, and the length of its JSON.

    Arrays without a name are output_0, output_1, ... by their position.

    Raises:
        UnprocessableInput: a dtype without a datatype, or a string of 4 GiB or more (`not_expressible`);
            two arrays of one name (`duplicate_name`).
    """
    names = [position_name(array, "output_", index) for index, array in enumerate(arrays)]
    check_distinct(names)
    named = [(replace(array, name=name), True) for array, name in zip(arrays, names, strict=True)]
    return write_response({"model_name": _MODEL_NAME}, named, budget)


def write_response(
    members: Mapping[str, str], outputs: Iterable[tuple[Array, bool]], budget: Budget
) -> Encoded:
    """A response, and the length of its JSON.

    Args:
        members: what stands in front of the outputs.
        outputs: named, each with whether it goes behind the JSON as bytes.

    Raises:
        UnprocessableInput: as `write`.
        LimitExceeded: the JSON is larger than the budget.
    """
    described: list[str] = []
    behind: list[Iterator[Buffer]] = []
    for array, is_binary in outputs:
        name = str(array.name)
        check_dtype(name, array.dtype)
        if not is_binary:
            text = bytearray()
            for piece in write_json([array], _AS_JSON, budget):
                budget.charge(memoryview(piece).nbytes, "The JSON of the response")
                text += piece
            described.append(text.decode())
            continue
        shape = ",".join(map(str, array.shape))
        size = _string_bytes(name, array.strings) if array.dtype.is_string else array.num_bytes
        described.append(
            f'{{"name":{quote(name)},"datatype":"{array.dtype.oip}","shape":[{shape}],'
            f'"parameters":{{"{_BINARY_SIZE}":{size}}}}}'
        )
        behind.append(_serialize_strings(array.strings) if array.dtype.is_string else array.pieces())
    front = "".join(f"{quote(name)}:{quote(text)}," for name, text in members.items())
    head = f'{{{front}"outputs":[{",".join(described)}]}}'.encode()
    return Encoded(chain([head], chain.from_iterable(behind)), len(head))


def read_body(
    body: ByteStream | ByteFile,
    options: TensorDecodeOptions,
    budget: Budget,
    *,
    members: frozenset[str] = frozenset(),
) -> OipBody:
    """The tensors of a request or a response, in their order.

    In memory are strings, what stands in the JSON, and all tensors of a stream.

    Args:
        members: what may stand in the JSON beside what the protocol knows.

    Raises:
        MalformedInput: the header is missing (`missing_json_length`), the JSON is not strict
            (`invalid_json`) or not of the form (`ambiguous_json`, `invalid_tensor`, `unknown_dtype`), the
            body is cut short (`truncated`) or goes on (`trailing_bytes`), a size or a length contradicts
            the shape or the bytes (`binary_data_size_mismatch`).
        UnprocessableInput: two tensors of one name (`duplicate_name`), a bool that is neither 0 nor 1
            (`invalid_bool`), data that do not fit their datatype.
        LimitExceeded: too many tensors (`too_many_tensors`), a name that is too long (`name_too_long`), or
            larger than the budget.
    """
    file = body if isinstance(body, ByteFile) else None
    stream: ByteStream = FileStream(body, 0, body.size) if isinstance(body, ByteFile) else body
    described, beside = _read_head(stream, options, budget, members)
    offset = options.json_bytes or 0
    # Where the sizes do not add up to the body, what is wrong is found as it is read in its order.
    in_place = file is not None and file.size == offset + sum(item.num_bytes for item in described)
    arrays: list[Array] = []
    for item in described:
        array = item.array
        if array is None:
            if file is not None and in_place:
                stream = FileStream(file, offset, offset + item.num_bytes)
            if item.dtype.is_string:
                array = Array(BYTES, item.shape, _read_strings(stream, item, offset, budget), item.name)
            else:
                array = Array(item.dtype, item.shape, _pieces(stream, item, offset), item.name)
                if not in_place:
                    with _place_errors(item):
                        array = array.read(budget)
            offset += item.num_bytes
        arrays.append(array)
    if not in_place and stream.read(1):
        raise MalformedInput(
            f"There are more bytes behind the JSON than the sizes ({_BINARY_SIZE}) of the tensors add up to.",
            code="trailing_bytes",
            offset=offset,
        )
    return OipBody(arrays, [item.pointer for item in described], beside)


@dataclass(frozen=True, slots=True, eq=False)
class _Described:
    """The description of a tensor in the JSON.

    Attributes:
        num_bytes: bytes that it takes after the JSON.
        array: its values, if they are in the JSON.
    """

    name: str | None
    dtype: DType
    shape: Shape
    pointer: str
    num_bytes: int = 0
    array: Array | None = None


def _read_head(
    stream: ByteStream, options: TensorDecodeOptions, budget: Budget, members: frozenset[str]
) -> tuple[list[_Described], dict[str, Any]]:
    """What the JSON says of each tensor, and those of its members that were asked for."""
    json_bytes = options.json_bytes
    if json_bytes is None:
        raise MalformedInput(
            "The format oip is JSON and then bytes, and the length of the JSON is not given. JSON alone "
            "goes as application/json.",
            code="missing_json_length",
        )
    budget.charge(2 * json_bytes, "The JSON of the body")
    text = read_exactly(stream, json_bytes, "the JSON")
    tape = read_text(text, budget, bare=options.nonfinite == "bare")
    budget.release(2 * json_bytes)
    body = tape.roots
    # Whatever is wrong in the JSON is found before any of the bytes behind it are waited for.
    described = _describe_tensors(body, options, budget.limits, members)
    beside = {name: body.member(name).python(0) for name in members.intersection(body.member_names(0))}
    # What was charged for the tape covered the arrays; from here on they alone are held.
    held = sum(_held_bytes(item.array) for item in described if item.array)
    budget.exchange(tape.num_bytes, held, "The tensors of the JSON")
    return described, beside


def _held_bytes(array: Array) -> int:
    return array.strings.nbytes if array.dtype.is_string else array.num_bytes


def _pieces(stream: ByteStream, item: _Described, offset: int) -> Iterator[Buffer]:
    """The elements of one tensor, which come next in `stream`."""
    with _place_errors(item):
        pieces = iter_exactly(stream, item.num_bytes, _label(item), offset=offset)
        yield from check_pieces(pieces, item.dtype, offset=offset)


def _read_strings(stream: ByteStream, item: _Described, offset: int, budget: Budget) -> Strings:
    """The elements of BYTES."""
    count, what = num_elements(item.shape), _label(item)
    with _place_errors(item):
        num_held = 8 * (count + 1) + item.num_bytes
        budget.charge(item.num_bytes, what)
        content = read_content(stream, item.num_bytes, what, offset=offset)
        budget.charge(num_held, f"{what}, as strings,")
        strings = _parse_strings(content, count, offset)
        budget.release(item.num_bytes + num_held - strings.nbytes)
    return strings


@contextmanager
def _place_errors(item: _Described) -> Iterator[None]:
    """Say in errors of the input inside the block that they are in this tensor."""
    try:
        yield
    except InputError as error:
        error.location = replace(error.location, pointer=item.pointer)
        raise error.shift(feature=item.name) from None


def _label(item: _Described) -> str:
    return "A tensor" if item.name is None else f"Tensor {item.name[:64]!r}"


def _parse_strings(content: bytearray, count: int, offset: int) -> Strings:
    """The `count` elements of BYTES.

    Raises:
        MalformedInput: the lengths do not add up to the content (`binary_data_size_mismatch`).
    """
    view = memoryview(content)
    offsets = np.zeros(count + 1, np.int64)
    data = bytearray()
    position = 0
    for index in range(count):
        begin = position + _STRING_LENGTH.size
        if begin <= len(view):
            end = begin + _STRING_LENGTH.unpack_from(view, position)[0]
        if begin > len(view) or end > len(view):
            raise MalformedInput(
                f"Element {index} of BYTES does not end within the {len(view)} bytes of its tensor.",
                code="binary_data_size_mismatch",
                offset=offset + position,
            )
        data += view[begin:end]
        offsets[index + 1] = end - begin
        position = end
    if position != len(view):
        raise MalformedInput(
            f"The {count} elements of BYTES take {position} bytes, but {len(view)} are declared.",
            code="binary_data_size_mismatch",
            offset=offset + position,
        )
    np.cumsum(offsets, out=offsets)
    return Strings(np.frombuffer(data, np.uint8), offsets)


def _describe_tensors(
    body: Items, options: TensorDecodeOptions, limits: Limits, members: frozenset[str]
) -> list[_Described]:
    """What the JSON says of each tensor."""
    options = replace(options, dtype=None, shape=None)
    key, items = _items(body, members)
    if len(items) > limits.max_members:
        raise LimitExceeded(
            f"The body has {len(items)} tensors; at most {limits.max_members} are allowed. Send fewer.",
            code="too_many_tensors",
        )
    described: list[_Described] = []
    seen: set[str] = set()
    for index, item in enumerate(items.each()):
        offer_turn()
        pointer = f"/{key}/{index}"
        found = _describe(item, pointer, options)
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


def _items(body: Items, members: frozenset[str]) -> tuple[str, Items]:
    """The name and the items of the list of tensors."""
    if body.only(OBJECT):
        known = set(body.member_names(0)) - IGNORED_MEMBERS - members
        # The outputs that a request asks for have neither datatype nor values.
        if known == {"inputs", "outputs"} and not _holds_tensors(body.member("outputs")):
            known = {"inputs"}
        if len(known) == 1 and (key := min(known)) in ("inputs", "outputs"):
            tensors = body.member(key)
            if tensors.only(ARRAY) and (not tensors.counts()[0] or is_oip(tensors)):
                return key, tensors.open()[0]
    raise AmbiguousInput(
        'The JSON of an oip body is {"inputs": [{"name", "datatype", "shape", "parameters": '
        f'{{"{_BINARY_SIZE}": ...}}}}, ...]}}, or the same with "outputs"; "data" may take the place of the '
        "size.",
    )


def _holds_tensors(outputs: Items) -> bool:
    if not outputs.only(ARRAY):
        return True
    items, _ = outputs.open()
    return not items.found() <= {OBJECT} or any(
        not {"datatype", "data"}.isdisjoint(items.member_names(index)) for index in range(len(items))
    )


def _describe(item: Items, pointer: str, options: TensorDecodeOptions) -> _Described:
    names = item.member_names(0)
    size = _binary_size(item.member("parameters")) if "parameters" in names else None
    if size is None:
        array = _read_json(item, pointer, options)
        return _Described(array.name, array.dtype, array.shape, pointer, array=array)
    if "data" in names:
        raise MalformedInput(
            f'A tensor has both "data" and a {_BINARY_SIZE}.', code="invalid_tensor", pointer=pointer
        )
    form = read_data_form(members_of(item, 0), pointer, data=None)
    if form.dtype is None or form.shape is None:
        raise MalformedInput(
            f'A tensor with a {_BINARY_SIZE} needs a "datatype" and a "shape".',
            code="invalid_tensor",
            pointer=pointer,
        )
    if form.dtype.oip is None:
        raise MalformedInput(
            f"{form.dtype} is no datatype of the Open Inference Protocol.",
            code="unknown_dtype",
            pointer=member_pointer(pointer, "datatype"),
        )
    _check_size(size, form.dtype, form.shape, f"{pointer}/parameters/{_BINARY_SIZE}")
    return _Described(form.name, form.dtype, form.shape, pointer, size)


def _binary_size(parameters: Items) -> Any:
    """The size that the parameters of a tensor give, whatever it is; None where they give none."""
    if not parameters.only(OBJECT) or _BINARY_SIZE not in parameters.member_names(0):
        return None
    return parameters.member(_BINARY_SIZE).python(0)


def _read_json(item: Items, pointer: str, options: TensorDecodeOptions) -> Array:
    """A tensor whose elements are JSON; its strings are text where none is {"b64": ...}."""
    array = read_tensor(item, pointer, options)
    if array.dtype.is_string:
        elements, _ = flatten(item.member("data"))
        array = replace(array, dtype=BYTES if elements.has(OBJECT) else TEXT)
    return array


def _check_size(size: object, dtype: DType, shape: Shape, pointer: str) -> None:
    if type(size) is not int or size < 0:
        raise MalformedInput(
            f"{_BINARY_SIZE} is not a number of bytes.", code="invalid_tensor", pointer=pointer
        )
    count = num_elements(shape)
    expected = count * (_STRING_LENGTH.size if dtype.is_string else dtype.itemsize)
    # The lengths alone are the least that strings take.
    if size < expected if dtype.is_string and count else size != expected:
        raise MalformedInput(
            f"{_BINARY_SIZE} is {str(size)[:40]}, but {dtype.oip} of shape {str(list(shape))[:60]} takes "
            f"{expected} bytes{' at least' if dtype.is_string else ''}.",
            code="binary_data_size_mismatch",
            pointer=pointer,
        )


def check_dtype(name: str, dtype: DType) -> None:
    """Refuse a tensor whose elements the protocol has no datatype for.

    Raises:
        UnprocessableInput: `not_expressible`.
    """
    if dtype.oip is None:
        raise UnprocessableInput(
            f"{name[:64]!r} is {dtype}, for which the Open Inference Protocol has no datatype. Choose "
            "another output format.",
            code="not_expressible",
            feature=name,
        )


def _string_bytes(name: str, strings: Strings) -> int:
    """The number of bytes that the strings take as elements of BYTES."""
    if int(np.diff(strings.offsets).max(initial=0)) > _MAX_STRING_BYTES:
        raise UnprocessableInput(
            f"A string of {name[:64]!r} is 4 GiB or longer, which BYTES does not hold.",
            code="not_expressible",
            feature=name,
        )
    return len(strings.data) + _STRING_LENGTH.size * len(strings)


def _serialize_strings(strings: Strings) -> Iterator[Buffer]:
    data, piece = strings.data.data, bytearray()
    for first in range(0, len(strings), _STRINGS_AT_ONCE):
        for begin, end in pairwise(strings.offsets[first : first + _STRINGS_AT_ONCE + 1].tolist()):
            piece += _STRING_LENGTH.pack(end - begin)
            piece += data[begin:end]
            if len(piece) >= CHUNK_BYTES:
                yield piece
                piece = bytearray()
    yield piece
