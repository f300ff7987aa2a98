"""Tensors as TFRecord: one TensorProto a record, in the order of the tensors. Names are not kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

from ...domain.tensor import NamedTensor
from ...errors import InputError, LimitExceeded
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensors.declared import check_declared
from .framing import FrameBlock, RunningCrc, compress, frame_header, iter_frames
from .tensor_proto import Message, parse_tensor_proto

__all__ = ["check_count", "decode", "encode", "in_record", "parse_block", "record_frame"]


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The tensors of all records.

    Raises:
        InputError: as `iter_frames` and `parse_tensor_proto`, with the record's number as `row`;
            another dtype or shape than declared.
        LimitExceeded: more tensors than `limits.max_members` (`too_many_tensors`).
    """
    tensors: list[NamedTensor] = []
    for block in iter_frames(source, budget, compression=options.compression):
        check_count(block.first_record + block.num_records, budget)
        tensors += parse_block(block, options, budget)
    return tensors


def check_count(count: int, budget: Budget) -> None:
    """Refuse too many records.

    Raises:
        LimitExceeded: more than `limits.max_members` (`too_many_tensors`).
    """
    if count > budget.limits.max_members:
        raise LimitExceeded(
            f"There are more than {budget.limits.max_members} tensors.", code="too_many_tensors"
        )


def parse_block(block: FrameBlock, options: TensorDecodeOptions, budget: Budget) -> Iterator[NamedTensor]:
    """The tensors of the records of one block, none of which shares memory with it.

    Raises:
        InputError: as `decode`.
    """
    frames = zip(block.starts.tolist(), block.sizes.tolist(), strict=True)
    for record, (start, size) in enumerate(frames, block.first_record):
        payload = block.data[start : start + size]
        with in_record(record):
            # A view would keep the whole block, which the budget no longer counts.
            named = NamedTensor(parse_tensor_proto(payload, budget, offset=block.offset + start, copy=True))
            check_declared(named, options)
        yield named


@contextmanager
def in_record(record: int) -> Iterator[None]:
    """Errors of the input inside the block are in the record of that number."""
    try:
        yield
    except InputError as error:
        error.location = dataclasses.replace(error.location, row=record)
        raise


def encode(messages: Iterable[Message], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """What `tf.io.TFRecordWriter` writes when given these messages."""
    return compress(chain.from_iterable(map(record_frame, messages)), options.compression)


def record_frame(message: Message) -> Iterator[Buffer]:
    """The record of one message."""
    yield frame_header(message.num_bytes)
    crc = RunningCrc()
    for piece in message:
        crc.extend(piece)
        yield piece
    yield crc.footer()
