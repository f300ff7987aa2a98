"""An answer with the headers that it is given, and no others."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response


class BareResponse(Response):
    """Headers as they are given, and content that is complete; or none, where a subclass sends it."""

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes = b"") -> None:
        self.status_code = status
        self.background = None
        self.body = content
        self.raw_headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]
