"""TensorProto: what `tf.io.serialize_tensor` writes, byte for byte, and all that `tf.io.parse_tensor` reads.

Source: tensorflow/core/framework/tensor.proto and tensor.cc (`Tensor::FromProto`, `Tensor::AsProtoField`),
TensorFlow 2.21. Read alike except where TensorFlow guesses: a message whose fields contradict one
another is refused rather than read as one of its possible meanings (see `parse_tensor_proto`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import DType, dtype_from_tf_enum, tf_enum_name
from ...domain.limits import KIB
from ...domain.tensor import NamedTensor, Shape, Tensor, num_elements
from ...errors import LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, read_up_to
from ..content import CHUNK_BYTES, STRING_OVERHEAD, check_content, content_view, in_low_bits
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensors.declared import check_declared
from ..tensors.single import check_single
from .protobuf import LENGTH_DELIMITED, fields_of, parse_varint, serialize_varint
from .tensor_proto_fields import CONTENT_FIELD, STRING_FIELD, TensorFields, read_tensor_fields
from .tensor_proto_values import typed_values

__all__ = [
    "MAX_MESSAGE_BYTES",
    "Message",
    "check_content_size",
    "decode",
    "encode",
    "parse_tensor_proto",
    "read_aligned",
    "serialize_tensor_content",
    "serialize_tensor_proto",
    "string_prefix",
    "supported_dtype",
    "tensor_proto_header",
]

#: protobuf parses no message of 2 GiB or more.
MAX_MESSAGE_BYTES: Final = 2**31 - 1
#: No dtype asks for a stricter alignment (complex128 is two doubles).
_ALIGNMENT: Final = 16
#: Strings at least this long are handed on where they lie instead of being copied together.
_COPIED_BELOW: Final = 4096
_STRINGS_A_PIECE: Final = 256
#: Measured in one call that holds the interpreter's lock.
_STRINGS_AT_ONCE: Final = 64 * KIB
#: The header before the content is shorter than this: dtype, 254 dimensions of up to 13 bytes, lengths.
_MAX_HEADER_BYTES: Final = 4096

_DTYPE_TAG: Final = b"\x08"
_SHAPE_TAG: Final = b"\x12"
_DIM_TAG: Final = b"\x12"
_SIZE_TAG: Final = b"\x08"
_CONTENT_TAG: Final = bytes([CONTENT_FIELD << 3 | LENGTH_DELIMITED])
_STRING_TAG: Final = bytes([STRING_FIELD << 3 | LENGTH_DELIMITED])


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The one TensorProto of the body.

    Raises:
        InputError: as `parse_tensor_proto`; another dtype or shape than declared.
    """
    named = NamedTensor(parse_tensor_proto(read_aligned(source, budget), budget))
    check_declared(named, options)
    return [named]


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A serialized protobuf message, made as it is drawn.

    Attributes:
        num_bytes: of all pieces together.
        pieces: drawn once. Numbers stay in the tensor's own memory; strings come in bounded pieces, so that
            whoever draws them can stop, and let others compute, in between.

    Raises:
        UnprocessableInput: it takes 2 GiB (`tensor_too_large`).
    """

    num_bytes: int
    pieces: Iterable[Buffer]

    def __post_init__(self) -> None:
        _check_size(self.num_bytes)

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.pieces)


def encode(messages: Sequence[Message], options: TensorEncodeOptions) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """The one message there is.

    Raises:
        UnprocessableInput: there is none, or more than one.
    """
    check_single(len(messages), "tensorproto")
    return iter(messages[0])


def serialize_tensor_proto(tensor: Tensor) -> Message:
    """The bytes of `tf.io.serialize_tensor`.

    Raises:
        UnprocessableInput: they take 2 GiB (`tensor_too_large`).
    """
    header = tensor_proto_header(tensor.dtype, tensor.shape)
    if tensor.dtype.is_string:
        num_bytes = len(header) + _count_string_bytes(tensor.values)
        return Message(num_bytes, chain([header], _string_pieces(tensor.values)))
    if not len(tensor.values):
        return Message(len(header), [header])
    narrow = tensor.dtype.is_narrow
    content = (
        in_low_bits(tensor.values.view(np.uint8), tensor.dtype).data
        if narrow
        else content_view(tensor.values)
    )
    return Message(len(header) + len(content), [header, content])


def string_prefix(num_bytes: int) -> bytes:
    """What stands before a string of that length among the strings of a TensorProto."""
    return _STRING_TAG + serialize_varint(num_bytes)


_SHORT_PREFIXES: Final = tuple(map(string_prefix, range(_COPIED_BELOW)))


def _count_string_bytes(values: NDArray[Any]) -> int:
    """How long these strings are as `string_val`."""
    total = 0
    for begin in range(0, len(values), _STRINGS_AT_ONCE):
        some = values[begin : begin + _STRINGS_AT_ONCE]
        lengths = np.fromiter(map(len, some), np.int64, len(some))
        total += len(some) * (len(_STRING_TAG) + 1) + int(lengths.sum())
        total += sum(int((lengths >> bits > 0).sum()) for bits in range(7, 35, 7))
    return total


def _string_pieces(values: NDArray[Any]) -> Iterator[Buffer]:
    """The strings as `string_val`, in pieces of 1 MiB at most where none is long."""
    for begin in range(0, len(values), _STRINGS_A_PIECE):
        some = values[begin : begin + _STRINGS_A_PIECE].tolist()
        lengths = list(map(len, some))
        if max(lengths) < _COPIED_BELOW:
            prefixes = map(_SHORT_PREFIXES.__getitem__, lengths)
            yield b"".join(chain.from_iterable(zip(prefixes, some, strict=True)))
        else:
            yield from chain.from_iterable(zip(map(string_prefix, lengths), some, strict=True))


def serialize_tensor_content(tensor: Tensor) -> Message:
    """The bytes of a TensorProto that has strings, too, in `tensor_content` (`AsProtoTensorContent`).

    That is how they stand inside a serialized sparse tensor: all lengths, then all bytes.

    Raises:
        UnprocessableInput: they take 2 GiB (`tensor_too_large`).
    """
    if not tensor.dtype.is_string or not len(tensor.values):
        return serialize_tensor_proto(tensor)
    content = b"".join([*(serialize_varint(len(value)) for value in tensor.values), *tensor.values])
    header = tensor_proto_header(tensor.dtype, tensor.shape) + _CONTENT_TAG + serialize_varint(len(content))
    return Message(len(header) + len(content), [header, content])


def tensor_proto_header(dtype: DType, shape: Shape) -> bytes:
    """All that stands before the elements, the tag and the length of `tensor_content` included.

    For strings, and where there are no elements, that is dtype and shape alone.

    Raises:
        UnprocessableInput: header and elements take 2 GiB (`tensor_too_large`).
    """
    return _header(dtype.tf_enum, dtype.itemsize, shape)


@lru_cache(maxsize=1024)  # of at most 3 KiB each: most requests repeat a shape, most headers are shorter
def _header(tf_enum: int, itemsize: int, shape: Shape) -> bytes:
    dims = b"".join(
        _length_delimited(_DIM_TAG, _SIZE_TAG + serialize_varint(dim) if dim else b"") for dim in shape
    )
    header = _DTYPE_TAG + serialize_varint(tf_enum) + _length_delimited(_SHAPE_TAG, dims)
    num_bytes = num_elements(shape) * itemsize
    if num_bytes:
        header += _CONTENT_TAG + serialize_varint(num_bytes)
    _check_size(len(header) + num_bytes)
    return header


def _length_delimited(tag: bytes, payload: bytes) -> bytes:
    return tag + serialize_varint(len(payload)) + payload


def _check_size(num_bytes: int) -> None:
    if num_bytes > MAX_MESSAGE_BYTES:
        raise UnprocessableInput(
            f"The tensor takes {num_bytes} bytes as TensorProto; protobuf holds less than 2 GiB.",
            code="tensor_too_large",
        )


def parse_tensor_proto(data: Buffer, budget: Budget, *, offset: int = 0, copy: bool = False) -> Tensor:
    """The tensor of a TensorProto.

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
        values = typed_values(fields, dtype, budget, offset=offset)
        return Tensor(dtype, fields.shape, values)
    begin, end = fields.content
    if dtype.is_string:
        values = _content_strings(view[begin:end], num_elements(fields.shape), budget, offset + begin)
        return Tensor(dtype, fields.shape, values)
    values = _content_numbers(view[begin:end], fields.shape, dtype, offset + begin)
    if copy or not values.flags.aligned:
        budget.charge(values.nbytes, "The tensor")
        values = values.copy()
    return Tensor(dtype, fields.shape, values)


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


def _content_strings(content: memoryview, count: int, budget: Budget, offset: int) -> NDArray[Any]:
    """Strings in `tensor_content`: all their lengths, then all their bytes (`port::DecodeStringList`)."""
    if count > len(content):
        raise _bad_string_list(count, offset)
    budget.charge(count * STRING_OVERHEAD + len(content), "The strings of the tensor")
    position, sizes = 0, []
    for _ in range(count):
        size, position = parse_varint(content, position, len(content), offset=offset)
        sizes.append(size)
    if position + sum(sizes) != len(content):
        raise _bad_string_list(count, offset)
    values = np.empty(count, object)
    for index, size in enumerate(sizes):
        values[index] = bytes(content[position : position + size])
        position += size
    return values


def _bad_string_list(count: int, offset: int) -> UnprocessableInput:
    return UnprocessableInput(
        f"tensor_content does not hold exactly the lengths and the bytes of {count} strings.",
        code="content_size_mismatch",
        offset=offset,
    )


def read_aligned(source: ByteStream, budget: Budget) -> memoryview:
    """All of the body, placed in memory so that the elements need not be copied to be aligned."""
    first = read_up_to(source, _MAX_HEADER_BYTES)
    padding = _padding_before(first)
    gathered = bytearray(padding) + first
    budget.charge(len(gathered), "The body")
    while piece := source.read(CHUNK_BYTES):
        budget.charge(len(piece), "The body")
        gathered += piece
    return memoryview(gathered).toreadonly()[padding:]


def _padding_before(data: Buffer) -> int:
    """Bytes to put before a TensorProto that begins with `data`; 0 where its content is not found."""
    try:
        # The last field may well go on past what is looked at.
        for number, wire, _, begin, _ in fields_of(data[:_MAX_HEADER_BYTES], 0, MAX_MESSAGE_BYTES):
            if number == CONTENT_FIELD and wire == LENGTH_DELIMITED:
                return -begin % _ALIGNMENT
    except (MalformedInput, IndexError):
        pass
    return 0
