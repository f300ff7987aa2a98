"""OIP: the binary tensor data extension of the Open Inference Protocol.

Source: docs/protocol/extension_binary_data.md of github.com/triton-inference-server/server. A JSON object
as in the plain protocol, then the elements of all tensors whose `parameters` have a `binary_data_size`,
in their order, little-endian, row-major; an element of BYTES is its length (u32) and its bytes. The header
`Inference-Header-Content-Length` gives the length of the JSON. Tensors with `data` stand in the JSON.

The list is `inputs` (a request; what it asks for in `outputs` is ignored) or `outputs` (a response).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import BYTES, DType
from ...domain.tensor import check_distinct, num_elements
from ...errors import InputError, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteFile, ByteStream, FileStream, read_exactly
from ..compression.encoded import Encoded
from ..content import CHUNK_BYTES, STRING_OVERHEAD, check_content, content_view, read_content
from ..content_stream import arriving_pieces, checked_pieces
from ..json.text import JsonDocument, parse_json
from ..json.texts import quote
from ..tensor_stream import TensorStream
from .array import Array, ChunkedArray, FoundArray
from .oip_json import BINARY_SIZE, STRING_LENGTH, ArrayT_co, Blob, JsonReader, OipTensor, describe_tensors

__all__ = ["JSON_LENGTH_HEADER", "OipBody", "check_dtype", "open_oip", "read_oip", "serialize_oip"]

JSON_LENGTH_HEADER: Final = "Inference-Header-Content-Length"

#: A response has to name its model.
_MODEL_NAME: Final = "shardsmith"
_MAX_STRING_BYTES: Final = 2**32 - 1


@dataclass(frozen=True, slots=True, eq=False)
class OipBody(Generic[ArrayT_co]):
    """What a body holds.

    Attributes:
        members: those members of the JSON that the caller asked for, where they are there.
    """

    tensors: Sequence[OipTensor[ArrayT_co]]
    members: dict[str, Any]


def read_oip(
    stream: ByteStream,
    json_bytes: int | None,
    budget: Budget,
    read_json: JsonReader,
    *,
    bare_nonfinite: bool = False,
    members: frozenset[str] = frozenset(),
) -> OipBody[Array]:
    """The tensors of a request or a response, in their order.

    Args:
        json_bytes: the length of the JSON, as the header says it.
        read_json: for tensors that stand in the JSON.
        bare_nonfinite: as `parse_json`.
        members: what may stand in the JSON beside what the protocol knows.

    Raises:
        MalformedInput: the header is missing (`missing_json_length`), the JSON is not strict (as
            `parse_json`) or not of the form (`ambiguous_json`, `invalid_tensor`, `unknown_dtype`), the
            body is cut short (`truncated`) or goes on (`trailing_bytes`), a size or a length contradicts
            the shape or the bytes (`binary_data_size_mismatch`).
        UnprocessableInput: two tensors of one name (`duplicate_name`), a bool that is neither 0 nor 1
            (`invalid_bool`); as `read_json`.
        LimitExceeded: too many tensors (`too_many_tensors`), a name that is too long (`name_too_long`), or
            larger than the budget.
    """
    described, beside = _read_head(
        stream, json_bytes, budget, read_json, members, bare_nonfinite=bare_nonfinite
    )
    return OipBody(_read_blobs(stream, described, json_bytes or 0, budget), beside)


def open_oip(
    file: ByteFile,
    json_bytes: int | None,
    budget: Budget,
    read_json: JsonReader,
    *,
    streamed_from: int,
    bare_nonfinite: bool = False,
    members: frozenset[str] = frozenset(),
) -> OipBody[FoundArray]:
    """As `read_oip`; numbers are read as they are drawn, in whatever order that is.

    In memory are those that stand in the JSON, and those of less than `streamed_from` bytes.

    Raises: as `read_oip`, here or as the contents are drawn.
    """
    stream = FileStream(file, 0, file.size)
    described, beside = _read_head(
        stream, json_bytes, budget, read_json, members, bare_nonfinite=bare_nonfinite
    )
    return OipBody(_open_blobs(file, described, json_bytes or 0, budget, streamed_from), beside)


def _read_head(
    stream: ByteStream,
    json_bytes: int | None,
    budget: Budget,
    read_json: JsonReader,
    members: frozenset[str],
    *,
    bare_nonfinite: bool,
) -> tuple[list[OipTensor[Array] | Blob], dict[str, Any]]:
    """What the JSON says of each tensor, and those of its members that were asked for."""
    if json_bytes is None:
        raise MalformedInput(
            "The form oip is JSON and then bytes: send the length of the JSON in the header "
            f"{JSON_LENGTH_HEADER}. JSON alone goes as application/json.",
            code="missing_json_length",
        )
    document = _read_document(stream, json_bytes, budget, bare_nonfinite=bare_nonfinite)
    # Whatever is wrong in the JSON is found before any of the bytes behind it are waited for.
    described = describe_tensors(document.value, read_json, budget.limits, members)
    beside = {name: document.value[name] for name in members & document.value.keys()}
    # The estimate covered the arrays; from here on they alone are held.
    budget.release(document.num_bytes)
    del document
    budget.charge(sum(map(_held_bytes, described)), "The tensors of the JSON")
    return described, beside


def _read_document(
    stream: ByteStream, json_bytes: int, budget: Budget, *, bare_nonfinite: bool
) -> JsonDocument:
    budget.charge(2 * json_bytes, "The JSON of the body")
    text = read_exactly(stream, json_bytes, "the JSON")
    document = parse_json(text, budget, bare_nonfinite=bare_nonfinite)
    budget.release(2 * json_bytes)
    return document


def _held_bytes(found: OipTensor[Array] | Blob) -> int:
    if isinstance(found, Blob):
        return 0
    values = found.array.values
    if found.array.dtype.is_string:
        return sum(map(len, values)) + STRING_OVERHEAD * len(values)
    return int(values.nbytes)


def _read_blobs(
    stream: ByteStream, described: Sequence[OipTensor[Array] | Blob], offset: int, budget: Budget
) -> list[OipTensor[Array]]:
    tensors: list[OipTensor[Array]] = []
    for found in described:
        if isinstance(found, Blob):
            array = _read_blob(stream, found, offset, budget)
            offset += found.num_bytes
            found = OipTensor(found.name, array, found.pointer)
        tensors.append(found)
    if stream.read(1):
        raise MalformedInput(
            f"There are more bytes behind the JSON than the sizes ({BINARY_SIZE}) of the tensors add up to.",
            code="trailing_bytes",
            offset=offset,
        )
    return tensors


def _open_blobs(
    file: ByteFile,
    described: Sequence[OipTensor[Array] | Blob],
    offset: int,
    budget: Budget,
    streamed_from: int,
) -> Sequence[OipTensor[FoundArray]]:
    if file.size != offset + sum(found.num_bytes for found in described if isinstance(found, Blob)):
        # Which says what is wrong.
        return _read_blobs(FileStream(file, offset, file.size), described, offset, budget)
    tensors: list[OipTensor[FoundArray]] = []
    for found in described:
        if isinstance(found, Blob):
            stream = FileStream(file, offset, offset + found.num_bytes)
            array: FoundArray
            if found.dtype.is_string or found.num_bytes < streamed_from:
                array = _read_blob(stream, found, offset, budget)
            else:
                array = TensorStream(found.dtype, found.shape, _arriving(stream, found, offset))
            offset += found.num_bytes
            tensors.append(OipTensor(found.name, array, found.pointer))
        else:
            tensors.append(found)
    return tensors


def _arriving(stream: ByteStream, blob: Blob, offset: int) -> Iterator[Buffer]:
    """The elements of one tensor, of which the stream has nothing more."""
    what = "A tensor" if blob.name is None else f"Tensor {blob.name[:64]!r}"
    try:
        pieces = arriving_pieces(stream, blob.num_bytes, what, offset=offset)
        yield from checked_pieces(pieces, blob.dtype, offset=offset)
    except InputError as error:
        error.location = replace(error.location, pointer=blob.pointer)
        raise error.shifted(feature=blob.name) from None


def _read_blob(stream: ByteStream, blob: Blob, offset: int, budget: Budget) -> Array:
    what = "A tensor" if blob.name is None else f"Tensor {blob.name[:64]!r}"
    try:
        budget.charge(blob.num_bytes, what)
        content = read_content(stream, blob.num_bytes, what, offset=offset)
        if not blob.dtype.is_string:
            check_content(content, blob.dtype, offset=offset)
            return Array(blob.dtype, blob.shape, np.frombuffer(content, blob.dtype.numpy))
        count = num_elements(blob.shape)
        budget.charge(count * STRING_OVERHEAD + len(content), f"{what}, as strings,")
        values = _parse_strings(content, count, offset)
        budget.release(len(content))
        return Array(BYTES, blob.shape, values)
    except InputError as error:
        error.location = replace(error.location, pointer=blob.pointer)
        raise error.shifted(feature=blob.name) from None


def _parse_strings(content: bytearray, count: int, offset: int) -> NDArray[Any]:
    """The elements of BYTES: an object array of `count` `bytes`.

    Raises:
        MalformedInput: the lengths do not add up to the content (`binary_data_size_mismatch`).
    """
    view = memoryview(content)
    values = np.empty(count, object)
    position = 0
    for index in range(count):
        begin = position + STRING_LENGTH.size
        if begin <= len(view):
            end = begin + STRING_LENGTH.unpack_from(view, position)[0]
        if begin > len(view) or end > len(view):
            raise MalformedInput(
                f"Element {index} of BYTES does not end within the {len(view)} bytes of its tensor.",
                code="binary_data_size_mismatch",
                offset=offset + position,
            )
        values[index] = bytes(view[begin:end])
        position = end
    if position != len(view):
        raise MalformedInput(
            f"The {count} elements of BYTES take {position} bytes, but {len(view)} are declared.",
            code="binary_data_size_mismatch",
            offset=offset + position,
        )
    return values


def check_dtype(name: str, dtype: DType) -> None:
    """Refuse a tensor whose elements the protocol has no datatype for.

    Raises:
        UnprocessableInput: `not_expressible`.
    """
    if dtype.oip is None:
        raise UnprocessableInput(
            f"{name[:64]!r} is {dtype}, for which the Open Inference Protocol has no datatype. Choose "
            "another output form.",
            code="not_expressible",
            feature=name,
        )


def serialize_oip(arrays: Sequence[ChunkedArray]) -> Encoded:
    """A response that holds all arrays as binary data, and the header that it cannot be read without.

    Raises:
        UnprocessableInput: a dtype without a datatype, or a string of 4 GiB or more (`not_expressible`);
            two arrays of one name (`duplicate_name`).
    """
    check_distinct(array.name for array in arrays)
    outputs: list[str] = []
    for array in arrays:
        check_dtype(array.name, array.dtype)
        shape = ",".join(map(str, array.shape))
        outputs.append(
            f'{{"name":{quote(array.name)},"datatype":"{array.dtype.oip}","shape":[{shape}],'
            f'"parameters":{{"{BINARY_SIZE}":{_num_bytes(array)}}}}}'
        )
    head = f'{{"model_name":"{_MODEL_NAME}","outputs":[{",".join(outputs)}]}}'.encode()
    return Encoded(_serialized(head, arrays), {JSON_LENGTH_HEADER: str(len(head))})


def _num_bytes(array: ChunkedArray) -> int:
    if not array.dtype.is_string:
        return array.num_elements * array.dtype.itemsize
    lengths = [len(value) for chunk in array.chunks for value in chunk]
    if max(lengths, default=0) > _MAX_STRING_BYTES:
        raise UnprocessableInput(
            f"A string of {array.name[:64]!r} is 4 GiB or longer, which BYTES does not hold.",
            code="not_expressible",
            feature=array.name,
        )
    return sum(lengths) + STRING_LENGTH.size * len(lengths)


def _serialized(head: bytes, arrays: Sequence[ChunkedArray]) -> Iterator[Buffer]:
    yield head
    for array in arrays:
        for chunk in array.chunks:
            if array.dtype.is_string:
                yield from _serialize_strings(chunk)
            else:
                yield content_view(chunk)


def _serialize_strings(values: NDArray[Any]) -> Iterator[Buffer]:
    piece = bytearray()
    for value in values:
        piece += STRING_LENGTH.pack(len(value))
        piece += value
        if len(piece) >= CHUNK_BYTES:
            yield piece
            piece = bytearray()
    yield piece
