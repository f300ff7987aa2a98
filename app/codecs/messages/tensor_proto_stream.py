"""TensorProto while it arrives: the fields up to the length of `tensor_content`, then the elements.

That is how `tf.io.serialize_tensor` and protobuf's own serializers write numbers: fields by their numbers.
Any other message is read whole, by `tensor_proto.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from ...domain.limits import KIB
from ...domain.tensor import Tensor
from ...errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, PrefixedStream, read_up_to
from ..content_stream import arriving_pieces, checked_pieces, low_bit_pieces
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensor_stream import NamedStream, TensorStream
from ..tensors.arriving import Arriving, named_arrival
from ..tensors.single import only_stream
from .protobuf import LENGTH_DELIMITED, fields_of
from .tensor_proto import (
    MAX_MESSAGE_BYTES,
    Message,
    check_content_size,
    parse_tensor_proto,
    read_aligned,
    supported_dtype,
    tensor_proto_header,
)
from .tensor_proto_fields import CONTENT_FIELD, TensorFields, read_tensor_fields

__all__ = ["decode_stream", "encode_stream", "open_tensor_proto", "serialize_stream"]

#: What is before the elements is mostly shorter than 100 bytes; 254 dimensions without names take 3.5 KiB.
_HEAD_BYTES: Final = 4 * KIB
#: Behind the elements nobody writes anything; unknown fields of up to this size are passed over.
_TAIL_BYTES: Final = 4 * KIB
#: The fields that say nothing about the tensor's values: version_number and those that are not known.
_MEANINGFUL_FIELDS: Final = frozenset({1, 2, *range(4, 19)})


def decode_stream(
    source: ByteStream, options: TensorDecodeOptions, budget: Budget, num_bytes: int | None
) -> Arriving:
    """The one TensorProto of the body, while it arrives.

    Raises:
        InputError: as `open_tensor_proto`; another dtype or shape than declared.
    """
    return [named_arrival(open_tensor_proto(source, num_bytes, budget), options)]


def open_tensor_proto(
    source: ByteStream, num_bytes: int | None, budget: Budget, *, offset: int = 0
) -> TensorStream | Tensor:
    """The tensor of a TensorProto, while it arrives; in memory where the message is in another order.

    Args:
        source: the message and nothing else.
        num_bytes: its length. Where that is not known, a field that would change the tensor is refused
            behind the elements, since they have been handed on by then (`late_field`).
        offset: where in the whole input the message begins, for errors.

    Raises: as `parse_tensor_proto`, here or as the content is drawn.
    """
    if num_bytes is not None and num_bytes > MAX_MESSAGE_BYTES:
        raise LimitExceeded("A TensorProto of 2 GiB or more is not read.", code="payload_too_large")
    head = read_up_to(source, _HEAD_BYTES)
    found = _fields_before_content(head, num_bytes, budget, offset)
    if found is None:
        return parse_tensor_proto(read_aligned(PrefixedStream(head, source), budget), budget, offset=offset)
    fields, begin, end = found
    dtype = supported_dtype(fields, offset)
    check_content_size(end - begin, fields.shape, dtype, offset + begin)
    pieces = _pieces(PrefixedStream(head[begin:], source), end - begin, offset + begin)
    return TensorStream(dtype, fields.shape, checked_pieces(pieces, dtype, offset=offset + begin))


def _fields_before_content(
    head: bytes, num_bytes: int | None, budget: Budget, offset: int
) -> tuple[TensorFields, int, int] | None:
    """The fields in front of the elements, and where those begin and end; None where they are not last."""
    position = 0
    try:
        # A field may well go on past what is looked at.
        for number, wire, _, begin, end in fields_of(head, 0, num_bytes or MAX_MESSAGE_BYTES):
            if number == CONTENT_FIELD and wire == LENGTH_DELIMITED:
                return _fields_and_content(head[:position], begin, end, num_bytes, budget, offset)
            position = end
    except (MalformedInput, IndexError):
        pass
    return None


def _fields_and_content(
    head: bytes, begin: int, end: int, num_bytes: int | None, budget: Budget, offset: int
) -> tuple[TensorFields, int, int] | None:
    if begin == end or end > MAX_MESSAGE_BYTES or (num_bytes is not None and end != num_bytes):
        return None
    try:
        fields = read_tensor_fields(memoryview(head), budget, offset=offset)
        dtype = supported_dtype(fields, offset)
    except InputError:
        return None
    return None if dtype.is_string or fields.has_values else (fields, begin, end)


def _pieces(source: ByteStream, num_bytes: int, offset: int) -> Iterator[bytes]:
    yield from arriving_pieces(source, num_bytes, "the TensorProto", offset=offset)
    tail = read_up_to(source, _TAIL_BYTES + 1)
    if tail:
        _check_tail(tail, offset + num_bytes)


def _check_tail(tail: bytes, offset: int) -> None:
    if len(tail) > _TAIL_BYTES or any(
        number in _MEANINGFUL_FIELDS for number, *_ in fields_of(tail, 0, len(tail), offset=offset)
    ):
        raise UnprocessableInput(
            "This TensorProto goes on behind its tensor_content with what would change the tensor. Send it "
            "with a Content-Length, so that this can be seen beforehand.",
            code="late_field",
            offset=offset,
        )


def encode_stream(
    tensors: Sequence[NamedStream],
    options: TensorEncodeOptions,  # noqa: ARG001 (one signature for all)
) -> Iterator[Buffer]:
    """A tensor that is arriving, as `tf.io.serialize_tensor` writes it.

    Raises:
        UnprocessableInput: not exactly one tensor, or one that takes 2 GiB.
    """
    return iter(serialize_stream(only_stream(tensors, "tensorproto")))


def serialize_stream(stream: TensorStream) -> Message:
    """The bytes of `tf.io.serialize_tensor`; the elements as they come."""
    header = tensor_proto_header(stream.dtype, stream.shape)
    return Message(len(header) + stream.num_bytes, chain([header], low_bit_pieces(stream)))
