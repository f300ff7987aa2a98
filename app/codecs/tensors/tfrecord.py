"""Tensors as TFRecord: one TensorProto a record, in the order of the tensors. Names are not kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from ...domain.limits import Budget
from ...domain.streams import Buffer, ByteStream
from ...domain.tensor import NamedTensor, Tensor
from ...errors import InputError, LimitExceeded
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..records.framing import FrameBlock, compress, frame_footer, frame_header, iter_frames
from .declared import check_declared
from .tensor_proto import parse_tensor_proto, serialize_tensor_proto

__all__ = ["decode", "encode"]


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The tensors of all records.

    Raises:
        InputError: as `iter_frames` and `parse_tensor_proto`, with the record's number as `row`;
            another dtype or shape than declared.
        LimitExceeded: more tensors than `limits.max_members` (`too_many_tensors`).
    """
    tensors: list[NamedTensor] = []
    for block in iter_frames(source, budget, compression=options.compression):
        if block.first_record + block.num_records > budget.limits.max_members:
            raise LimitExceeded(
                f"There are more than {budget.limits.max_members} tensors.", code="too_many_tensors"
            )
        tensors += _parse_block(block, options, budget)
    return tensors


def _parse_block(block: FrameBlock, options: TensorDecodeOptions, budget: Budget) -> Iterator[NamedTensor]:
    frames = zip(block.starts.tolist(), block.sizes.tolist(), strict=True)
    for record, (start, size) in enumerate(frames, block.first_record):
        payload = block.data[start : start + size]
        try:
            # A view would keep the whole block, which the budget no longer counts.
            named = NamedTensor(parse_tensor_proto(payload, budget, offset=block.offset + start, copy=True))
            check_declared(named, options)
        except InputError as error:
            error.location = dataclasses.replace(error.location, row=record)
            raise
        yield named


def encode(tensors: Sequence[NamedTensor], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """What `tf.io.TFRecordWriter` writes when given `tf.io.serialize_tensor` of each tensor.

    Raises:
        UnprocessableInput: a tensor that takes 2 GiB.
    """
    return compress(_frames(named.tensor for named in tensors), options.compression)


def _frames(tensors: Iterator[Tensor]) -> Iterator[Buffer]:
    for tensor in tensors:
        pieces = serialize_tensor_proto(tensor)
        yield frame_header(sum(map(len, pieces)))
        yield from pieces
        yield frame_footer(*pieces)
