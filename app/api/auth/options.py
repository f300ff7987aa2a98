"""How requests are authenticated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ...errors import CannotStart
from .loopback import is_loopback


class AuthConfigurationError(CannotStart):
    """Authentication is configured in a way that cannot work; the service does not start."""


@dataclass(frozen=True, slots=True)
class Oidc:
    """What is asked of a token that an issuer has signed.

    Attributes:
        issuer: the claim `iss`, and where its keys are found.
        audience: has to stand in the claim `aud`.
        scope_claim: holds the scopes: a string of several, or a list.
        tenant_claim: holds the tenant; None where tokens are for all datasets.

    Raises:
        AuthConfigurationError: the issuer can be asked neither over https nor on this machine.
    """

    issuer: str
    audience: str
    scope_claim: str = "scope"
    tenant_claim: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.issuer)
        host = parts.hostname or ""
        secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
        if not secure or not host or parts.query or parts.fragment or "@" in parts.netloc:
            raise AuthConfigurationError(
                "SHARDSMITH_OIDC_ISSUER is not an https:// URL without credentials, query and fragment."
            )


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """Nobody is asked where there is neither a file of tokens nor an issuer.

    Attributes:
        anyone: without authentication, let in who comes from beyond this machine too.
        origins: without authentication, the pages that may send more than GET and HEAD.
        hosts: names that requests may have as Host, beside those of loopback. Where there are none, any is
            taken with authentication, or from `anyone`.

    Raises:
        AuthConfigurationError: both authentication and everybody are asked for.
    """

    tokens_file: Path | None = None
    oidc: Oidc | None = None
    anyone: bool = False
    origins: Sequence[str] = ()
    hosts: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.on and self.anyone:
            raise AuthConfigurationError(
                "SHARDSMITH_ALLOW_UNAUTHENTICATED contradicts SHARDSMITH_TOKENS_FILE and "
                "SHARDSMITH_OIDC_ISSUER. Unset one."
            )

    @property
    def on(self) -> bool:
        """Whether requests are authenticated."""
        return self.tokens_file is not None or self.oidc is not None
