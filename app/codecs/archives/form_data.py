"""The parts of a `multipart/form-data` body as they arrive, and the files among them.

Sources: RFC 2046, section 5.1.1; RFC 7578.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from ...domain.limits import Limits
from ...errors import LimitExceeded, MalformedInput, UnknownForm, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream
from .tar import Member

MULTIPART: Final = "multipart/form-data"
#: The names of the parts: a schema in front, and then files and their labels.
SCHEMA: Final = "schema"
FILE: Final = "file"
LABEL: Final = "label"
_MAX_HEADERS: Final = 8
#: What may stand before the first boundary; clients that write anything there write one line.
_MAX_PREAMBLE_BYTES: Final = 4096
_CHUNK: Final = 256 * 1024
_ENCODINGS: Final = frozenset({"content-encoding", "content-transfer-encoding"})
_PLAIN: Final = frozenset({"", "identity", "7bit", "8bit", "binary"})

# What it warns of is an error that the client is told.
logging.getLogger("python_multipart").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the body.

    Attributes:
        headers: names in lower case, and values as Latin-1.
        offset: where its content begins.
    """

    headers: tuple[tuple[str, str], ...]
    offset: int

    @property
    def name(self) -> str:
        return (self.parameter(b"name") or b"").decode("latin-1")

    def parameter(self, name: bytes) -> bytes | None:
        """A parameter of its header `content-disposition`."""
        found = [value for header, value in self.headers if header == "content-disposition"]
        return parse_options_header(found[0])[1].get(name) if found else None

    def refuse_encoding(self) -> None:
        """Refuse content that is not as it was.

        Raises:
            UnknownForm: there is a content encoding, or a transfer encoding.
        """
        for name, value in self.headers:
            if name in _ENCODINGS and value.strip().lower() not in _PLAIN:
                raise UnknownForm(
                    f"A part with a {name.title()} is not supported. Send the part as it is; encode the body "
                    "as a whole.",
                    code="unsupported_content_encoding",
                )


class Parts:
    """Reads the parts of a body in order.

    Args:
        body: the whole of it.
        boundary: what stands between the parts.

    Raises:
        MalformedInput: no boundary of 1 to 70 characters (`malformed_multipart`).
    """

    def __init__(self, body: ByteStream, boundary: bytes) -> None:
        if not 0 < len(boundary) <= 70:
            raise malformed("it is given without a boundary of 1 to 70 characters", 0)
        self._body = body
        self._boundary = b"--" + boundary
        self._begun = False
        #: A part, the pieces of its content, None at its end.
        self._events: deque[Part | bytes | None] = deque()
        self._headers: list[tuple[str, str]] = []
        self._field = bytearray()
        self._value = bytearray()
        self._offset = self._headers_end = 0
        self._complete = False
        self._fault: MalformedInput | None = None
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._headers.clear,
                "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
                "on_header_value": self._header_value,
                "on_header_end": self._header,
                "on_headers_finished": self._part,
                "on_part_data": lambda data, start, end: self._events.append(bytes(data[start:end])),
                "on_part_end": lambda: self._events.append(None),
                "on_end": self._end,
            },
            max_header_count=_MAX_HEADERS,
        )

    def next_part(self) -> Part | None:
        """The next part, or None behind the last one; what is left of the current one is passed over.

        Raises:
            MalformedInput: not such a body, or one that ends early (`malformed_multipart`).
        """
        while self._fill():
            event = self._events.popleft()
            if isinstance(event, Part):
                return event
        return None

    def read_piece(self) -> bytes:
        """More of the content of the part; empty once, at its end.

        Raises:
            MalformedInput: as `next_part`.
        """
        while self._fill():
            event = self._events.popleft()
            if not isinstance(event, bytes):
                break
            if event:
                return event
        return b""

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value.extend(data[start:end])
        self._headers_end = self._offset + end

    def _header(self) -> None:
        self._headers.append((self._field.decode("latin-1").lower(), self._value.decode("latin-1")))
        self._field.clear()
        self._value.clear()

    def _part(self) -> None:
        # Two line ends stand between the last header and the content.
        self._events.append(Part(tuple(self._headers), self._headers_end + 4))

    def _end(self) -> None:
        self._complete = True

    def _fill(self) -> bool:
        """Parse until there is an event; False at the end of the body."""
        while not self._events:
            if self._fault is not None:
                raise self._fault
            piece = self._body.read(_CHUNK) if self._begun else self._skip_preamble()
            if not piece:
                if not self._complete:
                    raise malformed("it ends before its closing boundary", self._offset)
                return False
            try:
                self._parser.write(piece)
            except FormParserError as error:
                # What stands before it counts first, however many bytes are read at once.
                self._fault = malformed(str(error)[:200], self._offset)
            self._offset += len(piece)
        return True

    def _skip_preamble(self) -> bytes:
        """The body from its first boundary on, as far as it was read (RFC 2046, section 5.1.1).

        Done here because the parser skips a preamble only where it comes in one piece.
        """
        self._begun = True
        gathered = b""
        while (start := self._first_boundary(gathered)) is None:
            if len(gathered) >= _MAX_PREAMBLE_BYTES + len(self._boundary) + 2:
                raise malformed(f"no boundary stands in its first {_MAX_PREAMBLE_BYTES} bytes", 0)
            piece = self._body.read(_CHUNK)
            if not piece:
                raise malformed("the boundary that is given with it does not stand in it", 0)
            gathered += piece
        self._offset = start
        return gathered[start:]

    def _first_boundary(self, gathered: bytes) -> int | None:
        """Where the first boundary begins a line, None where that is not to be seen yet."""
        if gathered.startswith(self._boundary):
            return 0
        found = gathered.find(b"\r\n" + self._boundary, 0, _MAX_PREAMBLE_BYTES + len(self._boundary) + 2)
        return None if found < 0 else found + 2


class FormReader:
    """Reads the files of a form in order; a field `label` is the label of the files behind it.

    Args:
        body: the whole of it; a part `schema` in front is passed over, since it was read before.
        boundary: what stands between the parts.
        limits: bound names, labels and the content of a file.
    """

    def __init__(self, body: ByteStream, boundary: bytes, limits: Limits) -> None:
        self._parts = Parts(body, boundary)
        self._limits = limits
        self._label: str | None = None
        self._label_is_used = True
        self._begun = False

    def next(self) -> Member | None:
        """The next file, or None at the end of the body.

        Raises:
            MalformedInput: a body that cannot be read, another part, or a label without a file
                (`malformed_multipart`).
            UnknownForm: a part that is encoded (`unsupported_content_encoding`).
            UnprocessableInput: a file without a name, or one whose name has a NUL or is not UTF-8
                (`invalid_member_name`).
            LimitExceeded: a name or a label that is too long (`member_name_too_long`).
        """
        while (part := self._parts.next_part()) is not None:
            part.refuse_encoding()
            is_first, self._begun = not self._begun, True
            if part.name == FILE:
                self._label_is_used = True
                return Member(self._name_of(part), part.offset, self._label)
            if part.name == LABEL:
                self._read_label(part)
            elif part.name != SCHEMA or not is_first:
                raise malformed(
                    f"it has a part {part.name[:40]!r} among its files; beside 'file' and 'label' only "
                    "'schema' is read, in front",
                    part.offset,
                )
        self._require_used_label(None)
        return None

    def read(self, budget: Budget) -> bytes:
        """The content of the file, charged to the budget as it arrives.

        Raises:
            LimitExceeded: larger than `Limits.max_record_bytes` (`record_too_large`) or than the budget.
            MalformedInput: the body ends within it (`malformed_multipart`).
        """
        gathered = bytearray()
        while piece := self._parts.read_piece():
            if len(gathered) + len(piece) > self._limits.max_record_bytes:
                raise LimitExceeded(
                    f"A file of the form has more than {self._limits.max_record_bytes} bytes, the most that "
                    "is read.",
                    code="record_too_large",
                )
            budget.charge(len(piece), "A file of the form")
            gathered += piece
        return bytes(gathered)

    def _name_of(self, part: Part) -> str:
        name = part.parameter(b"filename")
        if name is None:
            raise malformed("a part 'file' has no filename; curl sends one with -F file=@NAME", part.offset)
        self._check_length(name, part)
        text = _decode(name)
        if not text or "\0" in text:
            raise UnprocessableInput(
                f"The name of a file of the form, {name[:64]!r}, is empty, has a NUL or is not UTF-8. Rename "
                "the file.",
                code="invalid_member_name",
                offset=part.offset,
            )
        return text

    def _read_label(self, part: Part) -> None:
        self._require_used_label(part.offset)
        gathered = b""
        while piece := self._parts.read_piece():
            gathered += piece
            self._check_length(gathered, part)
        self._label = _decode(gathered)
        self._label_is_used = False
        if not self._label:
            raise malformed("a field 'label' is empty or not UTF-8", part.offset)

    def _check_length(self, text: bytes, part: Part) -> None:
        if len(text) > self._limits.max_name_bytes:
            raise LimitExceeded(
                f"A label, or the name of a file, of the form is longer than {self._limits.max_name_bytes} "
                "bytes.",
                code="member_name_too_long",
                offset=part.offset,
            )

    def _require_used_label(self, offset: int | None) -> None:
        if not self._label_is_used:
            raise malformed("no file follows a field 'label', which counts for the files behind it", offset)


def _decode(text: bytes) -> str:
    """The text; empty where it is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return ""


def malformed(what: str, offset: int | None) -> MalformedInput:
    """The error of a body whose parts cannot be read."""
    return MalformedInput(
        f"Cannot read the multipart body: {what}.", code="malformed_multipart", offset=offset
    )
