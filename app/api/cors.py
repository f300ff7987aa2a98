"""Pages of other origins may call the service where that is configured (the Fetch Standard's CORS)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")
_REQUEST_HEADERS: Final = (
    "Accept",
    "Authorization",
    "Content-Digest",
    "Content-Encoding",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "If-Range",
    "Inference-Header-Content-Length",
    "Range",
    "Repr-Digest",
    "X-Request-Id",
)
_ANSWER_HEADERS: Final = (
    "Accept-Ranges",
    "Content-Digest",
    "Content-Range",
    "Dropped-Features",
    "Text-Features",
    "ETag",
    "Idempotency-Replayed",
    "Inference-Header-Content-Length",
    "Location",
    "Lost-Bytes",
    "Lost-Ranges",
    "Record-Count",
    "Repr-Digest",
    "Retry-After",
    "Rounded-Features",
    "Skipped-Rows",
    "Tensor-Byte-Order",
    "Tensor-Dtype",
    "Tensor-Shape",
    "WWW-Authenticate",
    "X-Request-Id",
)


def allow_origins(app: FastAPI, origins: Sequence[str]) -> None:
    """Let pages of these origins in; none: nothing changes. Cookies play no part.

    To be called last: a browser sends no token with the question whether it may send one.
    """
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=list(_METHODS),
            allow_headers=list(_REQUEST_HEADERS),
            expose_headers=list(_ANSWER_HEADERS),
        )
