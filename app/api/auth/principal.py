"""Who asks, and what they may do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeGuard, get_args

from ...errors import NotFound

#: `read` what is stored and convert, `write` datasets, `admin`: what destroys. None includes another.
Right = Literal["read", "write", "admin"]
SCOPES: Final[tuple[Right, ...]] = get_args(Right)

#: Ends in a separator, so that `acme` cannot also mean what belongs to `acmebank`.
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,61}[_-]", re.ASCII)
#: Where the middleware leaves the principal in an ASGI scope.
_KEY: Final = "shardsmith.principal"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks.

    Attributes:
        name: as it stands in the audit log.
        scopes: what it may do.
        prefix: with what the names of its datasets begin; empty: all datasets are its own.
        expires: seconds since 1970 at which this ends.
        via: what vouched for it.
    """

    name: str
    scopes: frozenset[Right]
    prefix: str = ""
    expires: float = math.inf
    via: Literal["token", "oidc"] = "token"

    def owns(self, dataset: str) -> bool:
        """Whether a dataset of that name is, or would be, this tenant's."""
        return dataset.startswith(self.prefix)

    def enter(self, scope: MutableMapping[str, Any]) -> None:
        """Be who asks, for the rest of a request."""
        scope[_KEY] = self


#: Who asks without a valid token, on a route that needs none.
ANONYMOUS: Final = Principal("anonymous", frozenset())


def is_right(value: object) -> TypeGuard[Right]:
    """Whether `value` is the name of a scope."""
    return value in SCOPES


def is_prefix(text: str) -> bool:
    """Whether the names of a tenant's datasets may begin so."""
    return _PREFIX.fullmatch(text) is not None


def principal_of(scope: Mapping[str, Any]) -> Principal | None:
    """Who asks; None where nobody needs to say."""
    found = scope.get(_KEY)
    assert found is None or isinstance(found, Principal)  # noqa: S101  # for the type
    return found


def caller_of(scope: Mapping[str, Any]) -> str:
    """With whom a request is counted: who holds the token; without authentication, all of an address."""
    principal = principal_of(scope)
    if principal is not None:
        return f"{principal.via} {principal.name}"
    client = scope.get("client")
    return f"address {client[0]}" if client else "address"


def visible_to(scope: Mapping[str, Any], datasets: Iterable[str]) -> list[str]:
    """Those of `datasets` that who asks may know of."""
    principal = principal_of(scope)
    return [name for name in datasets if principal is None or principal.owns(name)]


def require_visible(scope: Mapping[str, Any], datasets: Iterable[str]) -> None:
    """Refuse datasets that who asks may not know of, as if they were not there.

    Raises:
        NotFound: one of them is such (`dataset_not_found`).
    """
    named = list(datasets)
    for name in set(named) - set(visible_to(scope, named)):
        raise NotFound(f"There is no dataset {name!r}.", code="dataset_not_found")
