"""`multipart/form-data` with a part `schema` and then a part `data`, read as it arrives.

The schema stands first so that the rows behind it can be converted while they are still coming.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.datastructures import Headers

from ...domain.limits import MIB
from ...errors import LimitExceeded, MalformedInput
from ...runtime.streams import ByteStream

MULTIPART: Final = "multipart/form-data"
_MAX_SCHEMA_BYTES: Final = 4 * MIB
_MAX_HEADERS: Final = 8
#: What may stand before the first boundary; clients that write anything there write one line.
_MAX_PREAMBLE_BYTES: Final = 4096
_CHUNK: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Multipart:
    """The two parts: the schema's text (None where the part is missing), and the data as a stream."""

    schema: bytes | None
    headers: Headers
    data: ByteStream


@dataclass(slots=True)
class _Part:
    """What the parser has found of one part, in order."""

    name: str
    headers: Headers


_Event = _Part | bytes | None


class _Events:
    """Turns the parser's callbacks into a sequence: a part, its pieces, None at its end."""

    def __init__(self, body: ByteStream, boundary: bytes) -> None:
        self._body = body
        self._boundary = b"--" + boundary
        self._begun = False
        self._events: deque[_Event] = deque()
        self._headers: list[tuple[str, str]] = []
        self._field = bytearray()
        self._value = bytearray()
        self._offset = 0
        self._complete = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._headers.clear,
                "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                "on_header_end": self._header,
                "on_headers_finished": self._part,
                "on_part_data": lambda data, start, end: self._events.append(bytes(data[start:end])),
                "on_part_end": lambda: self._events.append(None),
                "on_end": self._end,
            },
            max_header_count=_MAX_HEADERS,
        )

    def _header(self) -> None:
        self._headers.append((self._field.decode("latin-1").lower(), self._value.decode("latin-1")))
        self._field.clear()
        self._value.clear()

    def _part(self) -> None:
        headers = Headers(raw=[(k.encode("latin-1"), v.encode("latin-1")) for k, v in self._headers])
        _, options = parse_options_header(headers.get("content-disposition"))
        self._events.append(_Part(options.get(b"name", b"").decode("latin-1"), headers))

    def _end(self) -> None:
        self._complete = True

    def next(self) -> _Event | bool:
        """The next event, or False when the body is over."""
        while not self._events:
            piece = self._body.read(_CHUNK) if self._begun else self._skip_preamble()
            if not piece:
                if not self._complete:
                    raise _malformed("it ends before its closing boundary", self._offset)
                return False
            try:
                self._parser.write(piece)
            except FormParserError as error:
                raise _malformed(str(error)[:200], self._offset) from None
            self._offset += len(piece)
        return self._events.popleft()

    def _skip_preamble(self) -> bytes:
        """The body from its first boundary on, as far as it was read (RFC 2046, section 5.1.1).

        Done here because the parser skips a preamble only where it comes in one piece.
        """
        self._begun = True
        gathered = b""
        while (start := self._first_boundary(gathered)) is None:
            if len(gathered) >= _MAX_PREAMBLE_BYTES + len(self._boundary) + 2:
                raise _malformed(f"no boundary stands in its first {_MAX_PREAMBLE_BYTES} bytes", 0)
            piece = self._body.read(_CHUNK)
            if not piece:
                raise _malformed("the boundary of its Content-Type does not stand in it", 0)
            gathered += piece
        self._offset = start
        return gathered[start:]

    def _first_boundary(self, gathered: bytes) -> int | None:
        """Where the first boundary begins a line, None where that is not to be seen yet."""
        if gathered.startswith(self._boundary):
            return 0
        found = gathered.find(b"\r\n" + self._boundary, 0, _MAX_PREAMBLE_BYTES + len(self._boundary) + 2)
        return None if found < 0 else found + 2

    def next_part(self) -> _Part | None:
        """The next part, or None when the body is over."""
        while (event := self.next()) is not False:
            if isinstance(event, _Part):
                return event
        return None


class _PartStream:
    """The content of one part as a `ByteStream`; checks at its end that nothing follows."""

    def __init__(self, events: _Events) -> None:
        self._events = events
        self._rest = b""
        self._done = False

    def read(self, n: int, /) -> bytes:
        while not self._rest and not self._done:
            event = self._events.next()
            if isinstance(event, bytes):
                self._rest = event
            else:
                self._done = True
                if self._events.next_part() is not None:
                    raise _malformed("another part follows the part 'data'; it must be the last", None)
        piece, self._rest = self._rest[:n], self._rest[n:]
        return piece


def open_multipart(body: ByteStream, content_type: str) -> Multipart:
    """Read up to the beginning of the data.

    Raises:
        MalformedInput: not multipart, or not those parts in that order.
        LimitExceeded: a schema of more than 4 MiB.
    """
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 70:
        raise _malformed("the Content-Type has no boundary of 1 to 70 characters", 0)
    events = _Events(body, boundary)
    part, schema = events.next_part(), None
    if part is not None and part.name == "schema":
        schema = _read_schema(events)
        part = events.next_part()
    if part is None or part.name != "data":
        found = "the end" if part is None else f"a part {part.name[:40]!r}"
        raise _malformed(f"the part 'data' is expected (after 'schema', if any), found {found}", None)
    return Multipart(schema, part.headers, _PartStream(events))


def _read_schema(events: _Events) -> bytes:
    gathered = bytearray()
    while isinstance(event := events.next(), bytes):
        gathered += event
        if len(gathered) > _MAX_SCHEMA_BYTES:
            raise LimitExceeded("The part 'schema' is larger than 4 MiB.", code="payload_too_large")
    return bytes(gathered)


def _malformed(what: str, offset: int | None) -> MalformedInput:
    return MalformedInput(
        f"Cannot read the multipart body: {what}.", code="malformed_multipart", offset=offset
    )
