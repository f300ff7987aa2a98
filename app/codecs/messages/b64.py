"""Rows as base64 in JSON: the message of each, in the form that TensorFlow Serving takes bytes in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ...errors import AmbiguousInput, InputError
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, WholeBody
from ..columns import Records
from ..json.b64 import decode_b64
from ..json.forms import IGNORED_MEMBERS
from ..json.text import parse_json
from ..json.texts import gather
from ..json.write import Alphabet, b64_text
from ..kernels.messages.framing import FOOTER_BYTES, HEADER_BYTES
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from . import tfrecord
from .framing import frame_footer, frame_header
from .messages import encode_messages


def decode(body: WholeBody, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of the messages, by the declared schema or an inferred one.

    Raises:
        AmbiguousInput: neither of the two forms.
        MalformedInput: not JSON, a message that is not base64 (`pointer` names it), or no such message.
        InputError: values that do not fit the schema; see `parse_frames`.
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
        LossyConversion: a value that a FloatList would change too much.
        UnprocessableInput: a row of 2 GiB or more (`example_too_large`).
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


def read_messages(body: Any) -> list[tuple[str, object]]:
    """The pointer to each message, and what stands there, not yet decoded.

    Raises:
        AmbiguousInput: neither of the two forms.
    """
    if isinstance(body, dict):
        if body.keys() == {"b64"}:
            return [("/b64", body["b64"])]
        instances = body.get("instances")
        if body.keys() - IGNORED_MEMBERS == {"instances"} and isinstance(instances, list):
            cells = [item for item in instances if isinstance(item, dict) and item.keys() == {"b64"}]
            if len(cells) == len(instances):
                return [(f"/instances/{index}/b64", cell["b64"]) for index, cell in enumerate(cells)]
    raise AmbiguousInput(
        'Serialized messages are sent as {"b64": "..."} or {"instances": [{"b64": "..."}, ...]}.'
    )


def message_texts(messages: Iterable[Iterable[Buffer]], alphabet: Alphabet = "standard") -> Iterator[str]:
    """The JSON text of `messages`, each a sequence of buffers; one alone needs no envelope."""
    iterator = iter(messages)
    first, second = next(iterator, None), next(iterator, None)
    several = first is None or second is not None
    yield '{"instances":[' if several else ""
    for index, message in enumerate(_chain_messages(first, second, iterator)):
        yield ',{"b64":"' if index else '{"b64":"'
        yield from b64_text(message, alphabet)
        yield '"}'
    yield "]}" if several else ""


def _chain_messages(
    first: Iterable[Buffer] | None, second: Iterable[Buffer] | None, rest: Iterator[Iterable[Buffer]]
) -> Iterator[Iterable[Buffer]]:
    yield from (message for message in (first, second) if message is not None)
    yield from rest
