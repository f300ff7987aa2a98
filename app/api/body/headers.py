"""What the headers of a body say before any of it is read."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers

from ...domain.limits import Limits
from ...errors import LimitExceeded, MalformedInput, UnknownForm
from .content_encoding import content_codings

_PLAIN_TRANSFER: Final = ("", "7bit", "8bit", "binary")


def check_body_headers(headers: Headers, limits: Limits) -> None:
    """Refuse what the headers of a body already say cannot be read.

    Raises:
        UnknownForm: a Content-Transfer-Encoding, which is never undone here.
        MalformedInput: a Content-Length that is no number.
        LimitExceeded: a Content-Length beyond what is accepted.
    """
    encoding = headers.get("content-transfer-encoding", "").strip().lower()
    if encoding not in _PLAIN_TRANSFER:
        raise UnknownForm(
            f"Content-Transfer-Encoding {encoding[:40]!r} is not supported; send the body as it is.",
            code="unsupported_content_encoding",
        )
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise MalformedInput("Content-Length is not a number.", code="invalid_content_length")
    if int(length.lstrip("0")[:20] or "0") > limits.max_body_bytes:
        raise LimitExceeded(
            f"The body has {length[:20]} bytes; at most {limits.max_body_bytes} are accepted.",
            code="payload_too_large",
        )


def declared_length(headers: Headers) -> int | None:
    """The bytes of a body that comes as it is, where its headers say how many there are."""
    length = headers.get("content-length", "")
    transfer = headers.get("content-transfer-encoding", "").strip().lower()
    plain = not content_codings(headers) and transfer in _PLAIN_TRANSFER
    known = plain and length.isascii() and length.isdigit() and "transfer-encoding" not in headers
    return int(length[:20]) if known else None
