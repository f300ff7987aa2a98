"""Pages of other origins: a browser lets them send a form to any address that it reaches."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

_OWN: Final = frozenset({b"same-origin", b"none"})


def is_of_foreign_page(headers: Iterable[tuple[bytes, bytes]], allowed: Collection[str]) -> bool:
    """Whether a browser sent a request on behalf of a page of another origin, which is not `allowed`.

    As Go's `net/http.CrossOriginProtection`: browsers say so in Sec-Fetch-Site (Fetch Metadata), older ones
    by an Origin that is not the Host. What has neither comes from no page.
    """
    site = origin = host = None
    for name, value in headers:
        if name == b"sec-fetch-site":
            site = value
        elif name == b"origin":
            origin = value
        elif name == b"host":
            host = value
    if site is None and origin is None:
        return False
    if "*" in allowed or (origin is not None and origin.decode("latin-1") in allowed):
        return False
    if site is not None:
        return site not in _OWN
    return origin is None or origin.partition(b"://")[2] != host
