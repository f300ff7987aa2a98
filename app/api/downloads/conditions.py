"""Conditional requests on what never changes: `If-Match`, `If-None-Match`, `If-Range` (RFC 9110, section 13).

There is no Last-Modified: the same bytes may be written again. So a condition with a date is ignored,
and an `If-Range` with a date never holds (section 13.1.5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')


def failed_condition(headers: Mapping[str, str], etag: str) -> Literal[304, 412] | None:
    """The status of an answer without content, if a condition on the strong `etag` says so.

    In the order of section 13.2.2, for GET and HEAD.
    """
    required = headers.get("if-match")
    if required is not None and required.strip() != "*" and etag not in _TAG.findall(required):
        return 412
    known = headers.get("if-none-match")
    if known is not None and (known.strip() == "*" or etag in _strong(known)):
        return 304
    return None


def _strong(header: str) -> list[str]:
    """The tags as if they were strong ones: `If-None-Match` compares weakly."""
    return [tag.removeprefix("W/") for tag in _TAG.findall(header)]


def ranges_apply(headers: Mapping[str, str], etag: str) -> bool:
    """Whether the `Range` header is to be looked at: without `If-Range`, or if that has the strong `etag`."""
    condition = headers.get("if-range")
    return condition is None or condition.strip() == etag
