"""What a request names as its Host, and whether that is a name of this service."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection


def is_known(host: str, names: Collection[str]) -> bool:
    """Whether a Host, with or without a port, is one of `names` (in lower case) or of loopback."""
    name = name_of(host)
    if name in ("127.0.0.1", "localhost") or name.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    if name in names or "*" in names:
        return True
    if any(pattern.startswith("*.") and name.endswith(pattern[1:]) for pattern in names):
        return True
    return is_address(host) and ipaddress.ip_address(name).is_loopback


def is_address(host: str) -> bool:
    """Whether a Host is an address, to which no name of a page can have been rebound."""
    try:
        ipaddress.ip_address(name_of(host))
    except ValueError:
        return False
    return True


def name_of(host: str) -> str:
    """The name or address without its port, in lower case. An IPv6 address may lack its brackets."""
    if host.startswith("["):
        name = host[1:].partition("]")[0]
    else:
        name = host if host.count(":") > 1 else host.partition(":")[0]
    return name.lower().removesuffix(".")
