"""TFRecord of TensorProtos while it arrives: the length of a record is that of its TensorProto.

A checksum stands behind the payload that it covers, so a record is handed on before it is known to be
whole; a bad checksum is an error once the last element has been drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from ...domain.limits import KIB
from ...domain.tensor import NamedTensor
from ...errors import MalformedInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, PrefixedStream, read_up_to
from ..compression.inflate import InflatedStream
from ..kernels.framing import FOOTER_BYTES
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensor_stream import NamedStream, TensorStream
from ..tensors.arriving import Arrival, Arriving, ArrivingOneByOne, named_arrival
from .framing import (
    HEADER_BYTES,
    OVERHEAD_BYTES,
    RunningCrc,
    compress,
    corrupt_record,
    cut_record,
    frame_header,
    iter_frames,
    large_record,
    uncompressed,
)
from .tensor_proto import MAX_MESSAGE_BYTES, serialize_tensor_proto
from .tensor_proto_stream import open_tensor_proto, serialize_stream
from .tensor_tfrecord import check_count, in_record, parse_block, record_frame

__all__ = ["decode_stream", "encode_stream"]

#: Shorter records are read faster many at a time.
_STREAMED_FROM: Final = 256 * KIB


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
        InputError: as `tfrecord.decode`, here, as the next tensor is drawn, or its content.
    """
    stream = uncompressed(source, options.compression, budget)
    head = read_up_to(stream, HEADER_BYTES)
    length = int.from_bytes(head[:8], "little")
    rest = PrefixedStream(head, stream)
    if length < streamed_from:
        return _Blocks(rest, options, budget)
    records = _Records(rest, options, budget)
    alone = num_bytes == length + OVERHEAD_BYTES and not isinstance(stream, InflatedStream)
    return [records.last()] if alone else records


class _Blocks(ArrivingOneByOne):
    """Short records, read many at a time."""

    def __init__(self, stream: ByteStream, options: TensorDecodeOptions, budget: Budget) -> None:
        self._budget = budget
        self._tensors = self._parsed(stream, options)

    def __next__(self) -> Arrival:
        return next(self._tensors)

    def _parsed(self, stream: ByteStream, options: TensorDecodeOptions) -> Iterator[Arrival]:
        budget = self._budget
        for block in iter_frames(stream, budget, compression="none"):
            check_count(block.first_record + block.num_records, budget)
            tensors = parse_block(block, options, budget)
            before = budget.remaining
            for named in tensors:
                charged = before - budget.remaining
                yield named
                if not self.kept:
                    budget.release(charged)
                before = budget.remaining


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
        check_count(self._record + 1, self._budget)
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
        with in_record(self._record):
            tensor = open_tensor_proto(payload, length, self._budget, offset=begin)
            named = named_arrival(tensor, self._options)
        if isinstance(named, NamedTensor):
            self._finish(payload)
            return named
        content = self._content(named.tensor, payload)
        return NamedStream(TensorStream(named.tensor.dtype, named.tensor.shape, content))

    def _content(self, tensor: TensorStream, payload: _Payload) -> Iterator[Buffer]:
        with in_record(self._record):
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


def encode_stream(tensors: Iterable[Arrival], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """What `tf.io.TFRecordWriter` writes when given `tf.io.serialize_tensor` of each tensor, as it arrives.

    Raises:
        UnprocessableInput: a tensor that takes 2 GiB.
    """
    return compress(chain.from_iterable(map(_frame, tensors)), options.compression)


def _frame(named: Arrival) -> Iterator[Buffer]:
    if isinstance(named, NamedTensor):
        return record_frame(serialize_tensor_proto(named.tensor))
    return record_frame(serialize_stream(named.tensor))
