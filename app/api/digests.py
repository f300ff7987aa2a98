"""What an answer says of its bytes."""

from __future__ import annotations

import base64


def digest_field(sha256: bytes) -> str:
    """The value of `Repr-Digest` or `Content-Digest` (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(sha256).decode()}:"
