"""An answer of which the status and the headers are all that is said beforehand."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

__all__ = ["BareResponse"]


class BareResponse(Response):
    """Headers as they are given, and no content: it is left out, or sent by who extends this."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self.status_code = status
        self.background = None
        self.body = b""
        self.raw_headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]
