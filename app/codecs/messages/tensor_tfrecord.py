"""Tensors as TFRecord: one TensorProto a record, in the order of the tensors. Names are not kept.

The length of a long record is that of its TensorProto, which is read as it arrives. The checksum follows the
payload, so that elements are handed on before the record is known to be whole: a bad checksum is an error
once the last element has been drawn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final, cast

from ...domain.limits import KIB
from ...domain.tensor import NamedTensor
from ...errors import InputError, LimitExceeded, MalformedInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, peek, read_up_to
from ..compression.inflate import InflatedStream
from ..kernels.framing import FOOTER_BYTES
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensor_stream import NamedStream, TensorStream
from ..tensors.arriving import Arrival, Arriving, ArrivingOneByOne, named_arrival
from ..tensors.declared import check_declared
from .framing import (
    HEADER_BYTES,
    OVERHEAD_BYTES,
    FrameBlock,
    RunningCrc,
    compress,
    corrupt_record,
    cut_record,
    frame_header,
    iter_frames,
    large_record,
    uncompressed,
)
from .tensor_proto import open_tensor_proto, parse_tensor_proto
from .tensor_proto_write import MAX_MESSAGE_BYTES, Message, make_message

#: Shorter records are read faster many at a time.
_STREAMED_FROM: Final = 256 * KIB


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The tensors of all records, in memory.

    Raises:
        InputError: as `iter_frames` and `parse_tensor_proto`, with the record's number as `row`;
            another dtype or shape than declared.
        LimitExceeded: more tensors than `limits.max_members` (`too_many_tensors`).
    """
    records = _Blocks(uncompressed(source, options.compression, budget), options, budget)
    records.kept = True
    return cast("list[NamedTensor]", list(records))


def decode_stream(
    source: ByteStream,
    options: TensorDecodeOptions,
    budget: Budget,
    num_bytes: int | None,
    *,
    streamed_from: int = _STREAMED_FROM,
) -> Arriving:
    """The tensors of all records, while they arrive; a sequence where the first record fills the body.

    Args:
        streamed_from: where the first record is shorter, blocks of records are read into memory.

    Raises:
        InputError: as `decode`, here, as the next tensor is drawn, or its content.
    """
    stream = uncompressed(source, options.compression, budget)
    head, rest = peek(stream, HEADER_BYTES)
    length = int.from_bytes(head[:8], "little")
    if length < streamed_from:
        return _Blocks(rest, options, budget)
    records = _Records(rest, options, budget)
    alone = num_bytes == length + OVERHEAD_BYTES and not isinstance(stream, InflatedStream)
    return [records.last()] if alone else records


class _Blocks(ArrivingOneByOne):
    """Short records, read many at a time."""

    def __init__(self, stream: ByteStream, options: TensorDecodeOptions, budget: Budget) -> None:
        self._options = options
        self._budget = budget
        self._tensors = self._read(stream)

    def __next__(self) -> NamedTensor:
        return next(self._tensors)

    def _read(self, stream: ByteStream) -> Iterator[NamedTensor]:
        budget = self._budget
        for block in iter_frames(stream, budget, compression="none"):
            _check_count(block.first_record + block.num_records, budget)
            before = budget.remaining
            for named in _parse_block(block, self._options, budget):
                charged = before - budget.remaining
                yield named
                if not self.kept:
                    budget.release(charged)
                before = budget.remaining


def _parse_block(block: FrameBlock, options: TensorDecodeOptions, budget: Budget) -> Iterator[NamedTensor]:
    """The tensors of the records of one block, none of which shares memory with it.

    Raises:
        InputError: as `decode`.
    """
    frames = zip(block.starts.tolist(), block.sizes.tolist(), strict=True)
    for record, (start, size) in enumerate(frames, block.first_record):
        payload = block.data[start : start + size]
        with _in_record(record):
            # A view would keep the whole block, which the budget no longer counts.
            named = NamedTensor(parse_tensor_proto(payload, budget, offset=block.offset + start, copy=True))
            check_declared(named, options)
        yield named


@contextmanager
def _in_record(record: int) -> Iterator[None]:
    """Errors of the input inside the block are in the record of that number."""
    try:
        yield
    except InputError as error:
        error.location = dataclasses.replace(error.location, row=record)
        raise


def _check_count(count: int, budget: Budget) -> None:
    """Refuse too many records.

    Raises:
        LimitExceeded: more than `limits.max_members` (`too_many_tensors`).
    """
    if count > budget.limits.max_members:
        raise LimitExceeded(
            f"There are more than {budget.limits.max_members} tensors.", code="too_many_tensors"
        )


class _Records(ArrivingOneByOne):
    """Long records, each passed on as it arrives."""

    def __init__(self, stream: ByteStream, options: TensorDecodeOptions, budget: Budget) -> None:
        self._stream = stream
        self._options = options
        self._budget = budget
        self._offset = 0
        self._record = 0
        self._charged = 0

    def last(self) -> Arrival:
        """The next record, behind which the body has to end."""
        named = next(self)
        if isinstance(named, NamedTensor):
            self._check_end()
            return named
        tensor = named.tensor
        content = chain(tensor.content, self._nothing())
        return NamedStream(TensorStream(tensor.dtype, tensor.shape, content))

    def _nothing(self) -> Iterator[Buffer]:
        self._check_end()
        yield from ()

    def _check_end(self) -> None:
        if self._stream.read(1):
            raise MalformedInput(
                "The body goes on behind the record that was to fill it.",
                code="trailing_bytes",
                offset=self._offset,
            )

    def __next__(self) -> Arrival:
        if not self.kept:
            self._budget.release(self._charged)
        header = read_up_to(self._stream, HEADER_BYTES)
        if not header:
            raise StopIteration
        _check_count(self._record + 1, self._budget)
        length = int.from_bytes(header[:8], "little")
        if len(header) < HEADER_BYTES:
            raise cut_record(self._record, self._offset, HEADER_BYTES - len(header), in_header=True)
        if header != frame_header(length):
            raise corrupt_record(self._record, self._offset, "length")
        if length > MAX_MESSAGE_BYTES:
            raise large_record(self._record, self._offset, MAX_MESSAGE_BYTES)
        before = self._budget.remaining
        named = self._open(_Payload(self._stream, length, (self._record, self._offset)), length)
        self._charged = before - self._budget.remaining
        return named

    def _open(self, payload: _Payload, length: int) -> Arrival:
        begin = self._offset + HEADER_BYTES
        with _in_record(self._record):
            tensor = open_tensor_proto(payload, length, self._budget, offset=begin)
            named = named_arrival(tensor, self._options)
        if isinstance(named, NamedTensor):
            self._finish(payload)
            return named
        content = self._content(named.tensor, payload)
        return NamedStream(TensorStream(named.tensor.dtype, named.tensor.shape, content))

    def _content(self, tensor: TensorStream, payload: _Payload) -> Iterator[Buffer]:
        with _in_record(self._record):
            yield from tensor.content
        self._finish(payload)

    def _finish(self, payload: _Payload) -> None:
        """Read the checksum behind the payload, and compare it."""
        footer = read_up_to(self._stream, FOOTER_BYTES)
        if len(footer) < FOOTER_BYTES:
            raise cut_record(self._record, self._offset, FOOTER_BYTES - len(footer))
        if int.from_bytes(footer, "little") != payload.crc.masked():
            raise corrupt_record(self._record, self._offset, "payload")
        self._offset += payload.num_bytes + OVERHEAD_BYTES
        self._record += 1


class _Payload:
    """A `ByteStream` of the next `num_bytes` of another one, whose checksum is carried along.

    Args:
        place: the number of the record, and where its frame begins.
    """

    def __init__(self, stream: ByteStream, num_bytes: int, place: tuple[int, int]) -> None:
        self._stream = stream
        self._place = place
        self._left = num_bytes
        self.num_bytes = num_bytes
        self.crc = RunningCrc()

    def read(self, n: int, /) -> bytes:
        piece = self._stream.read(min(n, self._left)) if self._left else b""
        if not piece and self._left:
            raise cut_record(*self._place, self._left + FOOTER_BYTES)
        self._left -= len(piece)
        self.crc.extend(piece)
        return piece


def encode(messages: Iterable[Message], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """What `tf.io.TFRecordWriter` writes when given these messages."""
    return compress(chain.from_iterable(map(_frame_message, messages)), options.compression)


def encode_stream(tensors: Iterable[Arrival], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """As `encode`, of tensors that are drawn one by one, and of which some are arriving."""
    return encode((make_message(named.tensor) for named in tensors), options)


def _frame_message(message: Message) -> Iterator[Buffer]:
    """The record of one message."""
    yield frame_header(message.num_bytes)
    crc = RunningCrc()
    for piece in message:
        crc.extend(piece)
        yield piece
    yield crc.footer()
