"""From the header Authorization to who asks (RFC 6750)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import Final, Protocol

from ...domain.limits import KIB
from ...errors import InvalidToken, MalformedInput, Unauthenticated
from .principal import Principal
from .token_file import TokenTable

#: An access token with many claims has 2 to 4 KiB; servers take 8 KiB of a header, as Apache does.
_MAX_TOKEN_BYTES: Final = 8 * KIB
_SCHEME: Final = b"bearer"


class Digests(Protocol):
    """Where the table of tokens stands that is in force."""

    table: TokenTable


class Verifier(Protocol):
    """Knows tokens that carry their own proof."""

    async def verify(self, token: str, digest: bytes) -> Principal:
        """Who has that token, whose SHA-256 digest is `digest`. Raises `InvalidToken`."""
        ...


class Bearers:
    """Tells who sent a request, by tokens from a file, from an issuer, or both."""

    def __init__(self, digests: Digests | None, verifier: Verifier | None) -> None:
        self._digests = digests
        self._verifier = verifier

    async def identify(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        """Who sent these headers.

        Raises:
            Unauthenticated: there is no bearer token.
            InvalidToken: it is not known, or has expired.
            MalformedInput: there are several (`repeated_header`).
        """
        token = _bearer_token(headers)
        digest = hashlib.sha256(token).digest()
        principal = None if self._digests is None else self._digests.table.find(digest)
        if principal is None and self._verifier is not None and token.count(b".") == 2:
            principal = await self._verifier.verify(token.decode("latin-1"), digest)
        if principal is None:
            raise InvalidToken("The bearer token is not known here.")
        if principal.expires <= time.time():
            raise InvalidToken("The bearer token has expired. Use a new one.")
        return principal


def _bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) > 1:
        raise MalformedInput("The header Authorization is given more than once.", code="repeated_header")
    scheme, _, token = found[0].strip().partition(b" ") if found else (b"", b"", b"")
    if scheme.lower() != _SCHEME:
        raise Unauthenticated("This request needs a token, in the header 'Authorization: Bearer TOKEN'.")
    token = token.strip()
    if not 0 < len(token) <= _MAX_TOKEN_BYTES:
        raise InvalidToken(f"The bearer token is empty, or longer than {_MAX_TOKEN_BYTES} bytes.")
    return token
