"""What makes two appends under one idempotency key the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from ....domain.schema import Schema
from ....runtime.streams import ByteStream

_CHUNK = 1024 * 1024
#: What stands before the boundary between two parts.
_BEFORE_BOUNDARY = b"\r\n--"


class HashingStream:
    """A `ByteStream` that remembers the SHA-256 of what passed through it.

    Args:
        boundary: of parts; left out of the digest, since clients draw another one for every try. Where it
            stands counts.
    """

    def __init__(self, source: ByteStream, boundary: bytes = b"") -> None:
        self._source = source
        self._hash = hashlib.sha256()
        self._delimiter = _BEFORE_BOUNDARY + boundary if boundary else b""
        #: What may be the beginning of a delimiter. The first one need not end a line.
        self._rest = b"\r\n"
        #: Where delimiters stand: a file may hold what is one without its boundary.
        self._places = hashlib.sha256()
        self._num_hashed = 0

    def read(self, n: int, /) -> bytes:
        piece = self._source.read(n)
        if not self._delimiter:
            self._hash.update(piece)
            return piece
        *texts, last = (self._rest + piece).split(self._delimiter)
        for text in texts:
            self._add(text)
            self._places.update(b"%d " % self._num_hashed)
        end = max(0, len(last) - len(self._delimiter) + 1) if piece else len(last)
        self._add(last[:end])
        self._rest = last[end:]
        return piece

    def _add(self, text: bytes) -> None:
        self._hash.update(text)
        self._num_hashed += len(text)

    def hexdigest(self) -> str:
        """Of the whole source: what the reader left is drawn first."""
        while self.read(_CHUNK):
            pass
        whole = self._hash.copy()
        if self._delimiter:
            whole.update(self._places.digest())
        return whole.hexdigest()


def request_digest(
    rows: HashingStream,
    media_type: str,
    schema: Schema | None,
    parameters: Sequence[tuple[str, str]],
    json_bytes: int | None = None,
) -> str:
    """SHA-256 of what makes two appends the same, in hexadecimal.

    A multipart body is taken apart first (its schema counts, its boundary does not): clients draw another
    boundary for every try.

    Args:
        media_type: what the client said that the rows are; empty where it said nothing.
        schema: declared for the rows.
        parameters: names and values of all that is not at its default, sorted.
        json_bytes: of the JSON in front of the rows, where that was said.
    """
    described = [
        rows.hexdigest(),
        media_type,
        None if schema is None else schema.to_json(),
        parameters,
        *(() if json_bytes is None else (json_bytes,)),
    ]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
