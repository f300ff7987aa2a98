"""How digests are written."""

from __future__ import annotations

import base64


def digest_field(digest: bytes, algorithm: str = "sha-256") -> str:
    """The value of `Repr-Digest` or `Content-Digest` (RFC 9530)."""
    return f"{algorithm}=:{base64.b64encode(digest).decode()}:"
