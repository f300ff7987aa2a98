"""Tokens that an OpenID Connect issuer has signed (RFC 9068, RFC 7519), verified by PyJWT."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import jwt

from ...errors import InvalidToken
from .issuer import ALGORITHMS
from .key_set import KeySet
from .options import Oidc
from .principal import Principal, is_prefix, is_right

#: Between the issuer's clock and this one; what most libraries allow.
_LEEWAY_S: Final = 60
#: Tokens whose verification is remembered: checking a signature takes 50 to 200 us.
_REMEMBERED: Final = 4096
_MAX_SUBJECT: Final = 256


class OidcVerifier:
    """Verifies tokens by the keys of the one issuer that is configured, wherever a token says it is from."""

    def __init__(self, options: Oidc, keys: KeySet) -> None:
        self._options = options
        self._keys = keys
        self._remembered: dict[bytes, Principal] = {}
        self._generation = 0

    async def verify(self, token: str, digest: bytes) -> Principal:
        """Who has the token; its expiry is the caller's to watch.

        Raises:
            InvalidToken: it is not what the options ask for, or not signed by the issuer.
            IssuerUnavailable: the keys of the issuer cannot be had (`issuer_unreachable`).
        """
        await self._keys.current()
        if self._generation != self._keys.generation or len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
            self._generation = self._keys.generation
        principal = self._remembered.get(digest)
        if principal is None:
            key = await self._key_of(token)
            principal = self._principal(self._claims(token, key))
            if self._generation == self._keys.generation:
                self._remembered[digest] = principal
        return principal

    async def _key_of(self, token: str) -> jwt.PyJWK:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, RecursionError):
            raise InvalidToken("The bearer token is not known here, nor is it a signed one.") from None
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise InvalidToken(f"The token is not signed by one of {', '.join(sorted(ALGORITHMS))}.")
        if "crit" in header:  # RFC 7515, section 4.1.11: no extension is understood here
            raise InvalidToken("The token has critical extensions.")
        key = await self._keys.find(header.get("kid"))
        if key is None:
            raise InvalidToken("The token is not signed by a key of the issuer.")
        return key

    def _claims(self, token: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._options.audience,
                issuer=self._options.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise InvalidToken("The bearer token has expired. Use a new one.") from None
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError):
            raise InvalidToken("The token is of another issuer, or for another audience.") from None
        except jwt.ImmatureSignatureError:
            raise InvalidToken("The token is not valid yet.") from None
        except jwt.MissingRequiredClaimError:
            raise InvalidToken("The token lacks one of the claims exp, iss, aud, sub.") from None
        except (jwt.PyJWTError, ValueError, OverflowError, RecursionError):
            raise InvalidToken("The token is not signed by a key of the issuer.") from None
        return claims

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_SUBJECT:
            raise InvalidToken("The claim sub is not a name.")
        stated = claims.get(self._options.scope_claim, ())
        names = stated.split() if isinstance(stated, str) else stated if isinstance(stated, list) else ()
        scopes = frozenset(name for name in names if isinstance(name, str) and is_right(name))
        return Principal(subject, scopes, self._prefix(claims), _expiry(claims["exp"]), "oidc")

    def _prefix(self, claims: Mapping[str, Any]) -> str:
        claim = self._options.tenant_claim
        if claim is None:
            return ""
        tenant = claims.get(claim)
        prefix = tenant if isinstance(tenant, str) else ""
        if prefix and not prefix.endswith(("-", "_")):
            prefix = f"{prefix}-"
        if not is_prefix(prefix):
            raise InvalidToken(f"The claim {claim!a} is not the name of a tenant: A-Z a-z 0-9 _ -.")
        return prefix


def _expiry(stated: object) -> float:
    """Until when a token is taken. PyJWT also lets digits in a string and any large integer pass."""
    if isinstance(stated, int | float) and not isinstance(stated, bool):
        with suppress(OverflowError):
            return float(stated) + _LEEWAY_S
    raise InvalidToken("The claim exp is not a time in seconds.")
