"""URLs as they may be shown: in a log, an error, a `repr`."""

from __future__ import annotations

from typing import Final

_HIDDEN: Final = "***"


def hide_secrets(url: str) -> str:
    """The URL without what may be a secret: who signs in, a query, a fragment.

    A key may hold any character, a slash among them: all up to the last `@` is taken for one. Of a file
    there is none.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    ends = [rest.find(mark) for mark in "?#" if mark in rest]
    shown = rest[: min(ends, default=len(rest))]
    if scheme != "file" and "@" in shown:
        shown = f"{_HIDDEN}@{shown.rpartition('@')[2]}"
    return f"{scheme}{separator}{shown}{f'?{_HIDDEN}' if ends else ''}"
