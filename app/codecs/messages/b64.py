"""Rows as base64 in JSON: the message of each, in the form that TensorFlow Serving takes bytes in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...errors import InputError
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, WholeBody
from ..columns import Records
from ..json.b64 import decode_b64
from ..json.text import parse_json
from ..json.texts import gather
from ..kernels.framing import FOOTER_BYTES, HEADER_BYTES
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from . import tfrecord
from .b64_messages import message_texts, read_messages
from .framing import frame_footer, frame_header
from .messages import encode_messages

__all__ = ["decode", "encode"]


def decode(body: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the messages, by the declared schema or an inferred one.

    Raises:
        AmbiguousInput: neither of the two forms.
        InputError: as `parse_json` and `tfrecord.decode`; `pointer` names a message that is not base64.
    """
    document = parse_json(body.view(), budget)
    messages = read_messages(document.value)
    frames = _Frames(messages)
    return tfrecord.decode(frames, replace(options, compression="none"), budget)


class _Frames:
    """The messages as a `ByteStream` of TFRecord frames, decoded one at a time as they are read."""

    def __init__(self, messages: list[tuple[str, object]]) -> None:
        self._messages = iter(messages)
        self._rest = memoryview(b"")

    def read(self, n: int, /) -> bytes:
        if not self._rest:
            self._rest = memoryview(self._next_frame())
        piece, self._rest = self._rest[:n], self._rest[n:]
        return bytes(piece)

    def _next_frame(self) -> bytes:
        for pointer, text in self._messages:
            try:
                message = decode_b64(text)
            except InputError as error:
                error.location = replace(error.location, pointer=pointer)
                raise
            return b"".join((frame_header(len(message)), message, frame_footer(message)))
        return b""


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """The messages, in pieces.

    Raises:
        InputError: as `tfrecord.encode`.
    """
    return gather(message_texts(_messages(records, options, budget), options.b64))


def _messages(
    records: Records, options: RecordsEncodeOptions, budget: Budget
) -> Iterator[tuple[Buffer, ...]]:
    for block in encode_messages(records, options, budget):
        position = 0
        while position < len(block.data):
            length = int.from_bytes(block.data[position : position + 8], "little")
            start = position + HEADER_BYTES
            yield (bytes(block.data[start : start + length]),)
            position = start + length + FOOTER_BYTES
