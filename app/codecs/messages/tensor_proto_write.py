"""Tensors as TensorProtos, byte for byte as `tf.io.serialize_tensor` writes them.

Source: tensorflow/core/framework/tensor.proto and tensor.cc (`Tensor::AsProtoField`), TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import DType
from ...domain.limits import KIB
from ...domain.tensor import Shape, num_elements
from ...errors import UnprocessableInput
from ...runtime.streams import Buffer
from ..array import Array, check_single
from ..content import low_bit_pieces
from ..options import TensorEncodeOptions
from .protobuf import LENGTH_DELIMITED, serialize_varint
from .tensor_proto_fields import CONTENT_FIELD, STRING_FIELD

#: protobuf parses no message of 2 GiB or more.
MAX_MESSAGE_BYTES: Final = 2**31 - 1
#: Strings at least this long are handed on where they lie instead of being copied together.
_COPIED_BELOW: Final = 4096
_STRINGS_A_PIECE: Final = 256
#: Measured in one call that holds the interpreter's lock.
_STRINGS_AT_ONCE: Final = 64 * KIB

_DTYPE_TAG: Final = b"\x08"
_SHAPE_TAG: Final = b"\x12"
_DIM_TAG: Final = b"\x12"
_SIZE_TAG: Final = b"\x08"
_CONTENT_TAG: Final = bytes([CONTENT_FIELD << 3 | LENGTH_DELIMITED])
_STRING_TAG: Final = bytes([STRING_FIELD << 3 | LENGTH_DELIMITED])


@dataclass(slots=True, eq=False)
class Message:
    """A serialized protobuf message, made as it is drawn.

    Attributes:
        num_bytes: of all pieces together.
        pieces: drawn once. Numbers are not copied; strings come in bounded pieces, so that the caller can
            stop, and let others compute, between two of them.
    """

    num_bytes: int
    pieces: Iterable[Buffer]

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.pieces)


def sized_message(num_bytes: int, pieces: Iterable[Buffer]) -> Message:
    """A message of that length.

    Raises:
        UnprocessableInput: it takes 2 GiB (`tensor_too_large`).
    """
    _check_size(num_bytes)
    return Message(num_bytes, pieces)


def write(messages: Iterable[Message], _options: TensorEncodeOptions) -> Iterator[Buffer]:
    """The one message there is.

    Raises:
        UnprocessableInput: there is none, or more than one.
    """
    known = list(messages)
    check_single(len(known), "tensorproto")
    return iter(known[0])


def make_message(array: Array) -> Message:
    """The message that `tf.io.serialize_tensor` gives; elements that are arriving are passed on as they come.

    Raises:
        UnprocessableInput: it takes 2 GiB (`tensor_too_large`).
    """
    header = tensor_proto_header(array.dtype, array.shape)
    if array.dtype.is_string:
        strings = array.values
        num_bytes = len(header) + _count_string_bytes(strings)
        return sized_message(num_bytes, chain([header], _string_pieces(strings)))
    return Message(
        len(header) + array.num_bytes, chain([header], low_bit_pieces(array.pieces(), array.dtype))
    )


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


def serialize_tensor_content(array: Array) -> Message:
    """The bytes of a TensorProto that has strings, too, in `tensor_content` (`AsProtoTensorContent`).

    That is how they stand inside a serialized sparse tensor: all lengths, then all bytes.

    Raises:
        UnprocessableInput: they take 2 GiB (`tensor_too_large`).
    """
    if not array.dtype.is_string or 0 in array.shape:
        return make_message(array)
    values = array.values
    content = b"".join([*(serialize_varint(len(value)) for value in values), *values])
    header = tensor_proto_header(array.dtype, array.shape) + _CONTENT_TAG + serialize_varint(len(content))
    return sized_message(len(header) + len(content), [header, content])


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
