"""Tensors as TensorProtos, byte for byte as `tf.io.serialize_tensor` writes them.

Source: tensorflow/core/framework/tensor.proto and tensor.cc (`Tensor::AsProtoField`), TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np

from ....domain.dtypes import DType
from ....domain.limits import KIB
from ....domain.tensor import Shape, num_elements
from ....errors import UnprocessableInput
from ....runtime.streams import Buffer
from ... import kernels
from ...array import Array, check_single
from ...columns import Strings
from ...content import low_bit_pieces
from ...options import TensorEncodeOptions
from ..protobuf import LENGTH_DELIMITED, serialize_varint
from .fields import CONTENT_FIELD, STRING_TAG

#: protobuf parses no message of 2 GiB or more.
MAX_MESSAGE_BYTES: Final = 2**31 - 1
#: Strings at least this long are handed on where they lie instead of being copied together.
_COPIED_BELOW: Final = 4 * KIB
#: How many bytes of shorter ones are copied together.
_PIECE_BYTES: Final = 256 * KIB

_DTYPE_TAG: Final = b"\x08"
_SHAPE_TAG: Final = b"\x12"
_DIM_TAG: Final = b"\x12"
_SIZE_TAG: Final = b"\x08"
_CONTENT_TAG: Final = bytes([CONTENT_FIELD << 3 | LENGTH_DELIMITED])
_STRING_TAG: Final = bytes([STRING_TAG])


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
        _check_size(array.num_bytes)
        strings = array.strings
        _, num_bytes = kernels.load().measure_strings(strings.offsets, 0, 2**63 - 1, 2**63 - 1)
        return sized_message(len(header) + num_bytes, chain([header], _string_pieces(strings)))
    return Message(
        len(header) + array.num_bytes, chain([header], low_bit_pieces(array.pieces(), array.dtype))
    )


def string_prefix(num_bytes: int) -> bytes:
    """What stands before a string of that length among the strings of a TensorProto."""
    return _STRING_TAG + serialize_varint(num_bytes)


def _string_pieces(strings: Strings) -> Iterator[Buffer]:
    """The strings as `string_val`; only short ones are copied."""
    data, offsets = strings.data, strings.offsets
    kernel = kernels.load()
    first = 0
    while first < len(strings):
        stop, num_bytes = kernel.measure_strings(offsets, first, _PIECE_BYTES, _COPIED_BELOW)
        if num_bytes > _COPIED_BELOW and stop == first + 1:
            string = data[offsets[first] : offsets[stop]]
            yield string_prefix(len(string))
            yield string.data
        else:
            fields = np.empty(num_bytes, np.uint8)
            kernel.write_strings(data, offsets, first, stop, STRING_TAG, fields)
            yield fields.data
        first = stop


def serialize_tensor_content(array: Array) -> Message:
    """The bytes of a TensorProto that has strings, too, in `tensor_content` (`AsProtoTensorContent`).

    That is how they stand inside a serialized sparse tensor: all lengths, then all bytes.

    Raises:
        UnprocessableInput: they take 2 GiB (`tensor_too_large`).
    """
    if not array.dtype.is_string or 0 in array.shape:
        return make_message(array)
    strings = array.strings
    lengths = map(serialize_varint, np.diff(strings.offsets).tolist())
    content = b"".join([*lengths, strings.data.data])
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
