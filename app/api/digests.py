"""What makes two requests the same: a digest of the body, its type and the query."""

from __future__ import annotations

import hashlib
import json

from fastapi import Request

from ..domain.streams import ByteStream

__all__ = ["HashingStream", "request_digest"]

_CHUNK = 1024 * 1024


class HashingStream:
    """A `ByteStream` that remembers the SHA-256 of what passed through it."""

    def __init__(self, source: ByteStream) -> None:
        self._source = source
        self._hash = hashlib.sha256()

    def read(self, n: int, /) -> bytes:
        piece = self._source.read(n)
        self._hash.update(piece)
        return piece

    def hexdigest(self) -> str:
        """Of the whole source: what the reader left is drawn first."""
        while self.read(_CHUNK):
            pass
        return self._hash.hexdigest()


def request_digest(request: Request, body: HashingStream) -> str:
    """SHA-256 over the body's SHA-256, its Content-Type and the sorted query, in hexadecimal."""
    described = [
        body.hexdigest(),
        request.headers.get("content-type", ""),
        sorted(request.query_params.multi_items()),
    ]
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()
