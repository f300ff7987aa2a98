"""The keys of one OpenID Connect issuer, fetched from where it says (OIDC Discovery 1.0, RFC 7517)."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import IO, Any, Final
from urllib.parse import urlsplit

import jwt

from ...domain.limits import KIB
from .loopback import is_loopback

#: Signatures by key pairs alone. With HS* or `none` whoever knows the public key could sign.
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
#: Both documents have a few kilobytes; a fetch that trickles ends here.
_MAX_BYTES: Final = 256 * KIB
_MAX_KEYS: Final = 100
_FETCH_WITHIN_S: Final = 5.0
_MIN_RSA_BITS: Final = 2048  # RFC 7518, section 3.3

#: Key id -> key; the id is empty for a key without one.
Keys = Mapping[str, jwt.PyJWK]


class IssuerUnreachable(Exception):
    """The keys could not be had; says why."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another place than the one that was named is not asked."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


def fetch_keys(issuer: str) -> Keys:
    """The keys that the issuer signs with now; its URL has been checked. Blocks for some ten seconds at most.

    Raises:
        IssuerUnreachable: it did not answer in time, or with something else.
    """
    described = _fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    if described.get("issuer") != issuer:
        raise IssuerUnreachable("its configuration is that of another issuer")
    jwks_uri = described.get("jwks_uri")
    try:
        keys = _fetch(_key_place(jwks_uri, issuer)).get("keys")
    except ValueError as error:
        raise IssuerUnreachable("its jwks_uri is not an https:// URL") from error
    if not isinstance(keys, list):
        raise IssuerUnreachable("its key set has no list of keys")
    return dict(found for key in keys[:_MAX_KEYS] if (found := _usable(key)) is not None)


def _key_place(jwks_uri: object, issuer: str) -> str:
    """Where the keys are; over http only if the issuer itself is."""
    parts = urlsplit(jwks_uri if isinstance(jwks_uri, str) else "")
    allowed = {"https"} | ({"http"} if urlsplit(issuer).scheme == "http" else set())
    if parts.scheme not in allowed or (parts.scheme == "http" and not is_loopback(parts.hostname or "")):
        raise ValueError("jwks_uri")
    return parts.geturl()


def _fetch(url: str) -> dict[str, Any]:
    deadline = time.monotonic() + _FETCH_WITHIN_S
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 (checked)
    try:
        with _OPENER.open(request, timeout=_FETCH_WITHIN_S) as answer:
            value = json.loads(_read(answer, deadline))
    except urllib.error.HTTPError as error:
        error.close()
        raise IssuerUnreachable(f"{url} answered {error.code}") from None
    except (OSError, HTTPException) as error:
        raise IssuerUnreachable(f"{url}: {type(error).__name__}: {error}") from None
    except (ValueError, RecursionError):
        raise IssuerUnreachable(f"{url} did not answer with JSON") from None
    if not isinstance(value, dict):
        raise IssuerUnreachable(f"{url} did not answer with a JSON object")
    return value


def _read(answer: IO[bytes], deadline: float) -> bytes:
    data = bytearray()
    while piece := answer.read1(16 * KIB):  # type: ignore[attr-defined]  # http.client's, without a stub
        data += piece
        if len(data) > _MAX_BYTES or time.monotonic() > deadline:
            raise OSError("the answer is too large, or too slow")
    return bytes(data)


def _usable(key: object) -> tuple[str, jwt.PyJWK] | None:
    """A public key for signatures by the allowed algorithms; RFC 7517, section 5, passes over others."""
    if not isinstance(key, dict) or key.get("use", "sig") != "sig" or "d" in key:
        return None
    if key.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    identifier = key.get("kid", "")
    try:
        parsed = jwt.PyJWK(key)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    weak = key["kty"] == "RSA" and parsed.key.key_size < _MIN_RSA_BITS
    if weak or parsed.algorithm_name not in ALGORITHMS or not isinstance(identifier, str):
        return None
    return identifier, parsed
