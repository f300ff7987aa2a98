"""Stored JSON objects of a test's own making: with the checksum at their end that a reader insists on."""

import json
import zlib

__all__ = ["changed", "resealed", "sealed"]

_SEAL = b'"crc32":"%08x"}'
_SEAL_BYTES = len(_SEAL % 0)


def sealed(data: bytes) -> bytes:
    """A JSON object as it lies on the store; `data` is its text, with one member at least."""
    content = data[:-1] + b","
    return content + _SEAL % zlib.crc32(content)


def _opened(data: bytes) -> tuple[bytes, bytes]:
    """The text that was sealed, and what is behind it: a slot has records there."""
    line, newline, records = data.partition(b"\n")
    text = line[: -_SEAL_BYTES - 1] + b"}"
    assert sealed(text) == line
    return text, newline + records


def changed(data: bytes, **members: object) -> bytes:
    """A stored object with other values for these members, as if it had been written so."""
    text, behind = _opened(data)
    return sealed(json.dumps({**json.loads(text), **members}).encode()) + behind


def resealed(data: bytes, old: bytes, new: bytes) -> bytes:
    """A stored object with `new` wherever its text has `old`, as if it had been written so."""
    text, behind = _opened(data)
    assert old in text
    return sealed(text.replace(old, new)) + behind
