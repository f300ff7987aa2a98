"""Tensors as TFRecord: one TensorProto a record, in the order of the tensors. Names are not kept.

The length of a long record is that of its TensorProto, which is read as it arrives. The checksum follows the
payload, so that elements are handed on before the record is known to be whole: a bad checksum is an error
once the last element has been drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Final

from ...domain.limits import KIB
from ...errors import InputError, LimitExceeded, MalformedInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, peek, read_up_to
from ..array import Array
from ..compression.inflate import InflatedStream
from ..compression.tfrecord import compress
from ..kernels.messages.framing import FOOTER_BYTES
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensors.declared import check_declared
from .framing import (
    HEADER_BYTES,
    OVERHEAD_BYTES,
    RunningCrc,
    corrupt_record,
    cut_record,
    decompress,
    frame_footer,
    frame_header,
    iter_frames,
    large_record,
)
from .tensor_proto.read import open_tensor_proto, parse_tensor_proto
from .tensor_proto.write import MAX_MESSAGE_BYTES, Message

#: Shorter records are read faster many at a time.
_STREAMED_FROM: Final = 256 * KIB
#: Copying a shorter message costs less than handing on its pieces.
_COPIED_BELOW: Final = 4 * KIB


def read(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> Iterable[Array]:
    """The tensors of all records, one by one; a list where the first record fills the body.

    Those in memory stay charged if the caller holds them all (`options.held`), otherwise each until the next
    one is asked for. What was declared is checked here, where the number of the record is known.

    Raises:
        InputError: damaged frames, a record that is no TensorProto (`row` is its number), or another dtype or
            shape than declared. Here, as the next array is asked for, or as its content is drawn.
        LimitExceeded: more tensors than `limits.max_members` (`too_many_tensors`).
    """
    stream = decompress(source, options.compression, budget)
    head, rest = peek(stream, HEADER_BYTES)
    length = int.from_bytes(head[:8], "little")
    if length < _STREAMED_FROM:
        return _read_blocks(rest, options, budget)
    records = _LongRecords(rest, options, budget)
    if options.body_bytes == length + OVERHEAD_BYTES and not isinstance(stream, InflatedStream):
        return [records.only()]
    return records


def _read_blocks(stream: ByteStream, options: TensorDecodeOptions, budget: Budget) -> Iterator[Array]:
    """Short records, many of which are read at a time."""
    for block in iter_frames(stream, budget, compression="none"):
        _check_count(block.first_record + block.num_records, budget)
        frames = zip(block.starts.tolist(), block.sizes.tolist(), strict=True)
        for record, (start, size) in enumerate(frames, block.first_record):
            payload = block.data[start : start + size]
            before = budget.remaining
            try:
                # A view would keep the whole block, which the budget no longer counts.
                array = parse_tensor_proto(payload, budget, offset=block.offset + start, copy=True)
                check_declared(array, options)
            except InputError as error:
                error.location = replace(error.location, row=record)
                raise
            charged = before - budget.remaining
            yield array
            if not options.held:
                budget.release(charged)


@contextmanager
def _in_record(record: int) -> Iterator[None]:
    """Errors of the input inside the block are in the record of that number."""
    try:
        yield
    except InputError as error:
        error.location = replace(error.location, row=record)
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


class _LongRecords(Iterator[Array]):
    """Long records, each passed on as it arrives."""

    def __init__(self, stream: ByteStream, options: TensorDecodeOptions, budget: Budget) -> None:
        self._stream = stream
        self._options = options
        self._budget = budget
        self._offset = 0
        self._record = 0
        self._charged = 0

    def only(self) -> Array:
        """The next record, behind which the body has to end."""
        array = next(self)
        if array.is_arriving:
            return replace(array, content=chain(array.pieces(), self._nothing()))
        self._check_end()
        return array

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

    def __next__(self) -> Array:
        if not self._options.held:
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
        array = self._open(_Payload(self._stream, length, (self._record, self._offset)), length)
        self._charged = before - self._budget.remaining
        return array

    def _open(self, payload: _Payload, length: int) -> Array:
        begin = self._offset + HEADER_BYTES
        with _in_record(self._record):
            array = open_tensor_proto(payload, length, self._budget, offset=begin)
            check_declared(array, self._options)
        if array.is_arriving:
            return replace(array, content=self._content(array, payload))
        self._finish(payload)
        return array

    def _content(self, array: Array, payload: _Payload) -> Iterator[Buffer]:
        with _in_record(self._record):
            yield from array.pieces()
        self._finish(payload)

    def _finish(self, payload: _Payload) -> None:
        """Read the checksum behind the payload, and compare it."""
        footer = read_up_to(self._stream, FOOTER_BYTES)
        if len(footer) < FOOTER_BYTES:
            raise cut_record(self._record, self._offset, FOOTER_BYTES - len(footer))
        if int.from_bytes(footer, "little") != payload.crc.mask():
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


def write(messages: Iterable[Message], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """What `tf.io.TFRecordWriter` writes when given these messages, which may be made as they are drawn."""
    return compress(chain.from_iterable(map(_frame_message, messages)), options.compression)


def _frame_message(message: Message) -> Iterator[Buffer]:
    """The record of one message; a short one in one piece."""
    if message.num_bytes < _COPIED_BELOW:
        payload = b"".join(message)
        yield b"".join((frame_header(len(payload)), payload, frame_footer(payload)))
        return
    yield frame_header(message.num_bytes)
    crc = RunningCrc()
    for piece in message:
        crc.extend(piece)
        yield piece
    yield crc.footer()
