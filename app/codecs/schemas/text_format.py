"""A reader of protobuf's text format, as far as a `schema.pbtxt` needs it.

Source: the specification, https://protobuf.dev/reference/protobuf/textformat-spec/. Without the `.proto`
file a reader cannot tell a repeated field from a single one, nor a float from an integer. So every field is
a list of what the text has, and the caller, who knows the field, decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ...errors import LimitExceeded, MalformedInput


class Literal(str):
    """A name, a number or a truth value as it stands there: `FLOAT`, `-1`, `true`. Strings are `bytes`."""

    __slots__ = ()


#: Field -> its values, in order.
Message = dict[str, "list[bytes | Literal | Message]"]

#: Deeper than any schema, and far from the end of Python's stack.
_MAX_DEPTH: Final = 64
#: Ten thousand features of twenty fields each, of a name, a colon and a value.
_MAX_TOKENS: Final = 600_000

#: Nothing is given back that was matched: of each repetition that can be, `re` keeps up to 160 bytes.
_TOKEN: Final = re.compile(
    rb"""(?P<space>(?:[\s]++|\#[^\n]*+)++)
    |(?P<string>"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"|'[^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*+')
    |(?P<literal>-?\s*[A-Za-z_0-9.][A-Za-z_0-9.+]*(?:(?<=[eE])-[0-9]+[fF]?)?)
    |(?P<mark>[{}<>\[\]:,;/])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SIMPLE_ESCAPES: Final = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"?": b"?", b"\\": b"\\", b"'": b"'", b'"': b'"',
}  # fmt: skip
_CLOSING: Final = {b"{": b"}", b"<": b">"}


def quote(content: str) -> str:
    """A string literal of the text format: printable ASCII as it is, all other bytes in octal."""
    plain = "".join(
        f"\\{chr(byte)}" if byte in b'"\\' else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
        for byte in content.encode()
    )
    return f'"{plain}"'


def parse_text_format(data: bytes) -> Message:
    """The fields of a message in text format.

    Raises:
        MalformedInput: not text format (`invalid_pbtxt`), with the offset.
        LimitExceeded: nested too deep, or longer than any schema.
    """
    return _Reader(data).message(None, 0)


def messages(message: Message, field: str) -> list[Message]:
    """The messages in a repeated field."""
    return [value for value in message.get(field, ()) if isinstance(value, dict)]


def message_of(message: Message, field: str) -> Message:
    """A field that occurs once: as in protobuf, the last one counts."""
    found = messages(message, field)
    return found[-1] if found else {}


def text(value: bytes | Literal | Message) -> str:
    """The text of a string literal, or empty text."""
    if not isinstance(value, bytes):
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MalformedInput(
            "A string of the schema is not valid UTF-8. Write it as UTF-8.", code="invalid_pbtxt"
        ) from None


def string(message: Message, field: str) -> str:
    """A field that is text; empty where it is not there."""
    return text(message[field][-1]) if message.get(field) else ""


def literal(message: Message, field: str) -> str:
    """A field that is a name or a number, as it stands there; empty where it is not there."""
    value = message[field][-1] if message.get(field) else ""
    return value if isinstance(value, Literal) else ""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._tokens = _tokens(data)
        self._num_tokens = 0
        self._advance()

    def _advance(self) -> None:
        self._kind, self._text, self._offset = next(self._tokens)
        self._num_tokens += 1
        if self._num_tokens > _MAX_TOKENS:
            raise LimitExceeded(
                f"The schema has more than {_MAX_TOKENS} names, marks and values. Declare fewer features.",
                code="schema_too_large",
                offset=self._offset,
            )

    def _take_mark(self, *marks: bytes) -> bool:
        if self._kind == "mark" and self._text in marks:
            self._advance()
            return True
        return False

    def message(self, closing: bytes | None, depth: int) -> Message:
        """The fields up to `closing`, or to the end."""
        if depth > _MAX_DEPTH:
            raise LimitExceeded(
                f"The schema is nested more than {_MAX_DEPTH} deep. Flatten it.",
                code="too_deep",
                offset=self._offset,
            )
        fields: Message = {}
        while not (self._kind == "end" if closing is None else self._take_mark(closing)):
            name = self._name()
            values = fields.setdefault(name, [])
            with_colon = self._take_mark(b":")
            if self._take_mark(b"["):
                while not self._take_mark(b"]"):
                    values.append(self._value(depth))
                    if not self._take_mark(b",") and self._text != b"]":
                        raise self._unexpected_error("a comma or ]")
            elif with_colon or self._text in _CLOSING:
                values.append(self._value(depth))
            else:
                raise self._unexpected_error("a value")
            self._take_mark(b",", b";")
        return fields

    def _name(self) -> str:
        if self._take_mark(b"["):
            # An extension, or the type of an Any: a name that no field of ours has.
            parts = [b"["]
            while not self._take_mark(b"]"):
                if self._kind == "end":
                    raise self._unexpected_error("]")
                parts.append(self._text)
                self._advance()
            return b"".join(parts).decode("utf-8", "replace")
        if self._kind != "literal" or not (self._text[:1].isalpha() or self._text[:1] == b"_"):
            raise self._unexpected_error("the name of a field")
        name = self._text.decode()
        self._advance()
        return name

    def _value(self, depth: int) -> bytes | Literal | Message:
        if self._kind == "mark" and (closing := _CLOSING.get(self._text)):
            self._advance()
            return self.message(closing, depth + 1)
        if self._kind == "literal":
            literal = Literal(b"".join(self._text.split()).decode())
            self._advance()
            return literal
        if self._kind != "string":
            raise self._unexpected_error("a value")
        pieces = []
        while self._kind == "string":
            pieces.append(self._read_string())
            self._advance()
        return b"".join(pieces)

    def _read_string(self) -> bytes:
        raw, end = self._text[1:-1], 0
        # Not re.sub, which keeps every piece as an object until the end.
        content = bytearray()
        for match in _ESCAPE.finditer(raw):
            content += raw[end : match.start()]
            content += _unescape(match, self._offset)
            end = match.end()
        return bytes(content + raw[end:])

    def _unexpected_error(self, wanted: str) -> MalformedInput:
        found = "the end" if self._kind == "end" else repr(self._text[:40].decode("utf-8", "replace"))
        return _malformed_error(f"{wanted} is expected, {found} found", self._offset)


def _unescape(match: re.Match[bytes], offset: int) -> bytes:
    """What an escape in the string at `offset` stands for."""
    octal, hexadecimal, short, long, other = match.groups()
    if octal is not None or hexadecimal is not None:
        return bytes([int(octal, 8) & 255 if octal is not None else int(hexadecimal, 16)])
    if short is not None or long is not None:
        code = int(short or long, 16)
        if code <= 0x10FFFF and not 0xD800 <= code < 0xE000:
            return chr(code).encode()
    elif other in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[other]
    raise _malformed_error(f"the escape {match[0].decode('utf-8', 'replace')!r}", offset)


def _tokens(data: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Kind, text and offset of each token; at last, and from then on, the end."""
    position = 0
    while position < len(data):
        match = _TOKEN.match(data, position)
        if match is None:
            raise _malformed_error(f"the byte {data[position]:#04x} stands where none may", position)
        kind = str(match.lastgroup)
        if kind != "space":
            yield kind, match[0], position
        position = match.end()
    while True:
        yield "end", b"", len(data)


def _malformed_error(what: str, offset: int) -> MalformedInput:
    return MalformedInput(
        f"The schema is neither JSON nor a schema.pbtxt that can be read: {what}.",
        code="invalid_pbtxt",
        offset=offset,
    )
