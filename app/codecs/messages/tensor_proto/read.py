"""TensorProto: all that `tf.io.parse_tensor` reads, in memory or as it arrives.

Source: tensorflow/core/framework/tensor.proto and tensor.cc (`Tensor::FromProto`), TensorFlow 2.21. Read
alike except where TensorFlow guesses: a message whose fields contradict one another is refused rather than
read as one of its possible meanings (see `parse_tensor_proto`).

`tf.io.serialize_tensor` and protobuf's own serializers write fields by their numbers, so that numbers in
`tensor_content` come last: such a message is read as it arrives, any other one in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....domain.dtypes import DType, dtype_from_tf_enum, tf_enum_name
from ....domain.limits import KIB
from ....domain.tensor import Shape, num_elements
from ....errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from ....runtime.budget import Budget
from ....runtime.streams import CHUNK_BYTES, Buffer, ByteStream, iter_exactly, peek, read_up_to
from ...array import Array
from ...columns import Strings
from ...content import STRING_OVERHEAD, check_content, check_pieces
from ...options import TensorDecodeOptions
from ..protobuf import LENGTH_DELIMITED, fields_of, parse_varint
from .fields import CONTENT_FIELD, STRING_FIELD, TensorFields, read_tensor_fields
from .values import typed_values
from .write import MAX_MESSAGE_BYTES

#: No dtype asks for a stricter alignment (complex128 is two doubles).
_ALIGNMENT: Final = 16
#: What is before the elements is mostly shorter than 100 bytes; 254 dimensions without names take 3.5 KiB.
_HEAD_BYTES: Final = 4 * KIB
#: Nobody writes anything behind the elements; unknown fields of up to this size are passed over.
_TAIL_BYTES: Final = 4 * KIB
#: All but version_number and the fields that are not known: what says something about the values.
_MEANINGFUL_FIELDS: Final = frozenset({1, 2, *range(4, 19)})
#: Where `tensor_content` is in a message: its tag, its first byte, its end.
_Place = tuple[int, int, int]


def read(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[Array]:
    """The one TensorProto of the body.

    Raises:
        InputError: no TensorProto, or not of the declared dtype and shape; see `open_tensor_proto`.
    """
    return [open_tensor_proto(source, options.body_bytes, budget, held=options.held)]


def open_tensor_proto(
    source: ByteStream, num_bytes: int | None, budget: Budget, *, offset: int = 0, held: bool = False
) -> Array:
    """The array of a TensorProto. It arrives as it is drawn if `tensor_content` comes last.

    Args:
        source: the message and nothing else.
        num_bytes: its length. Where that is not known, a field that would change the array is refused
            behind the elements, since they have been handed on by then (`late_field`).
        offset: where in the whole input the message begins, for errors.
        held: the caller reads the array into memory, so that a message of unknown length need not arrive.

    Raises:
        InputError: no TensorProto, here or as the content is drawn; see `parse_tensor_proto`.
    """
    if num_bytes is not None and num_bytes > MAX_MESSAGE_BYTES:
        raise LimitExceeded("A TensorProto of 2 GiB or more is not read.", code="payload_too_large")
    head, source = peek(source, _HEAD_BYTES)
    content = _find_content(head, num_bytes or MAX_MESSAGE_BYTES)
    fields = None
    if content is not None and not (held and num_bytes is None):
        fields = _fields_before(content, head, num_bytes, budget, offset)
    if content is None or fields is None:
        return _read_whole(source, content, budget, offset=offset)
    _, begin, end = content
    source.read(begin)
    dtype = supported_dtype(fields, offset)
    check_content_size(end - begin, fields.shape, dtype, offset + begin)
    pieces = _pieces(source, end - begin, offset + begin)
    return Array(dtype, fields.shape, check_pieces(pieces, dtype, offset=offset + begin))


def _fields_before(
    content: _Place, head: bytes, num_bytes: int | None, budget: Budget, offset: int
) -> TensorFields | None:
    """The fields in front of the elements; None where those are not last, or not all there is."""
    position, begin, end = content
    if begin == end or end > MAX_MESSAGE_BYTES or (num_bytes is not None and end != num_bytes):
        return None
    try:
        fields = read_tensor_fields(memoryview(head)[:position], budget, offset=offset)
        dtype = supported_dtype(fields, offset)
    except InputError:
        return None
    return None if dtype.is_string or fields.has_values else fields


def _find_content(head: bytes, num_bytes: int) -> _Place | None:
    """Where a message of that length has its first `tensor_content`, if no strings are in front of it."""
    position = 0
    try:
        # A field may well go on past what is looked at.
        for number, wire, _, begin, end in fields_of(head, 0, num_bytes):
            if number == CONTENT_FIELD and wire == LENGTH_DELIMITED:
                return position, begin, end
            if number == STRING_FIELD:
                break
            position = end
    except (MalformedInput, IndexError):
        pass
    return None


def _pieces(source: ByteStream, num_bytes: int, offset: int) -> Iterator[bytes]:
    yield from iter_exactly(source, num_bytes, "the TensorProto", offset=offset)
    tail = read_up_to(source, _TAIL_BYTES + 1)
    if tail:
        _check_tail(tail, offset + num_bytes)


def _check_tail(tail: bytes, offset: int) -> None:
    if len(tail) > _TAIL_BYTES or any(
        number in _MEANINGFUL_FIELDS for number, *_ in fields_of(tail, 0, len(tail), offset=offset)
    ):
        raise UnprocessableInput(
            "This TensorProto goes on behind its tensor_content with what would change the tensor. Send it "
            "with its length, so that this can be seen beforehand.",
            code="late_field",
            offset=offset,
        )


def parse_tensor_proto(data: Buffer, budget: Budget, *, offset: int = 0, copy: bool = False) -> Array:
    """The array of a TensorProto, in memory.

    Numbers in `tensor_content` that lie aligned are not copied: the tensor then keeps `data` alive.
    Typed values (`float_val`, ...) may be fewer than the shape asks for: the last one is repeated,
    none at all means zeros. Unknown fields and `version_number` are ignored, as in TensorFlow.

    Deliberately refused, where TensorFlow would read something: values in a field of another dtype
    or in two fields, more values than the shape takes, values that the dtype does not hold (int8
    300, bool 2, an int4 of 16), an unknown rank, groups, and varints that protobuf would cut off.

    Args:
        offset: where in the whole input `data` begins, for errors.
        copy: the tensor shares no memory with `data`.

    Raises:
        MalformedInput: not a protobuf message (`truncated`, `invalid_protobuf`), no dtype
            (`missing_dtype`), a dimension out of range (`invalid_shape`).
        UnprocessableInput: `unsupported_dtype`, `unknown_rank`, `conflicting_values`,
            `surplus_values`, `out_of_range`, `invalid_bool`, `content_size_mismatch`.
        LimitExceeded: larger than the budget; decided before anything is allocated.
    """
    view = memoryview(data).cast("B")
    if len(view) > MAX_MESSAGE_BYTES:
        raise LimitExceeded("A TensorProto of 2 GiB or more is not read.", code="payload_too_large")
    fields = read_tensor_fields(view, budget, offset=offset)
    dtype = supported_dtype(fields, offset)
    _check_one_meaning(fields, dtype, offset)
    if fields.content is None:
        return Array(dtype, fields.shape, typed_values(fields, dtype, budget, offset=offset))
    begin, end = fields.content
    if dtype.is_string:
        strings = _content_strings(view[begin:end], num_elements(fields.shape), budget, offset + begin)
        return Array(dtype, fields.shape, strings)
    values = _content_numbers(view[begin:end], fields.shape, dtype, offset + begin)
    if copy or not values.flags.aligned:
        budget.charge(values.nbytes, "The tensor")
        values = values.copy()
    return Array(dtype, fields.shape, values)


def supported_dtype(fields: TensorFields, offset: int) -> DType:
    """The dtype that a TensorProto names.

    Raises:
        MalformedInput: none (`missing_dtype`).
        UnprocessableInput: one that has no plain values (`unsupported_dtype`).
    """
    if fields.dtype == 0:
        raise MalformedInput("This TensorProto names no dtype.", code="missing_dtype", offset=offset)
    dtype = dtype_from_tf_enum(fields.dtype)
    if dtype is None:
        raise UnprocessableInput(
            f"This TensorProto is of TensorFlow's dtype {tf_enum_name(fields.dtype)}, which has no plain "
            "values, or is not known here.",
            code="unsupported_dtype",
            offset=offset,
        )
    return dtype


def _check_one_meaning(fields: TensorFields, dtype: DType, offset: int) -> None:
    if foreign := fields.values_of(other_than=dtype):
        conflict = f"values in {foreign[0]}_val"
    elif fields.content is not None and fields.has_values:
        conflict = "both tensor_content and typed values"
    else:
        return
    raise UnprocessableInput(
        f"This TensorProto of {dtype} has {conflict}; what it means is not certain.",
        code="conflicting_values",
        offset=offset,
    )


def _content_numbers(content: memoryview, shape: Shape, dtype: DType, offset: int) -> NDArray[Any]:
    check_content_size(len(content), shape, dtype, offset)
    check_content(content, dtype, offset=offset)
    return np.frombuffer(content, dtype.numpy)


def check_content_size(num_bytes: int, shape: Shape, dtype: DType, offset: int) -> None:
    """Refuse a `tensor_content` of numbers that is not as long as the shape takes.

    Raises:
        UnprocessableInput: `content_size_mismatch`.
    """
    expected = num_elements(shape) * dtype.itemsize
    if num_bytes != expected:
        raise UnprocessableInput(
            f"tensor_content has {num_bytes} bytes; shape {list(shape)} of {dtype} takes {expected}.",
            code="content_size_mismatch",
            offset=offset,
        )


def _content_strings(content: memoryview, count: int, budget: Budget, offset: int) -> Strings:
    """Strings in `tensor_content`: all their lengths, then all their bytes (`port::DecodeStringList`)."""
    if count > len(content):
        raise _bad_string_list(count, offset)
    budget.charge(count * STRING_OVERHEAD + len(content), "The strings of the tensor")
    position, offsets = 0, [0]
    for _ in range(count):
        size, position = parse_varint(content, position, len(content), offset=offset)
        offsets.append(offsets[-1] + size)
    if position + offsets[-1] != len(content):
        raise _bad_string_list(count, offset)
    return Strings(np.frombuffer(content[position:], np.uint8).copy(), np.array(offsets, np.int64))


def _bad_string_list(count: int, offset: int) -> UnprocessableInput:
    return UnprocessableInput(
        f"tensor_content does not hold exactly the lengths and the bytes of {count} strings.",
        code="content_size_mismatch",
        offset=offset,
    )


def _read_whole(source: ByteStream, content: _Place | None, budget: Budget, *, offset: int = 0) -> Array:
    """The tensor of all of the body, which is placed so that the elements are aligned where they lie."""
    padding = 0 if content is None else -content[1] % _ALIGNMENT
    gathered = bytearray(padding)
    while piece := source.read(CHUNK_BYTES):
        budget.charge(len(piece), "The body")
        gathered += piece
    return parse_tensor_proto(memoryview(gathered).toreadonly()[padding:], budget, offset=offset)
