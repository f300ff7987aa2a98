"""Answers to what is no acceptable request: problem documents, written by the connection itself."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from ...telemetry.metrics import HTTP_PROBLEMS
from ..problems import PROBLEM_MEDIA_TYPE, problem, retry_after
from .access_log import REQUEST_ID_HEADER

#: In every answer: a browser takes a body for what its Content-Type says.
NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")


class Refused(Exception):
    """What was sent is answered with a problem document, and the connection is closed.

    Args:
        code: stable, machine-readable name.
        detail: what was wrong, and what to do.
    """

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


_TWO_LENGTHS: Final = "The request has both Transfer-Encoding and Content-Length. Send one of them."
_NO_CHUNK: Final = "The chunked body is malformed. Let an HTTP library write the chunks."
_NO_HEADER: Final = "A header field is malformed. Let an HTTP library write the head."
#: What several places find wrong.
NOT_CHUNKED: Final = "Transfer-Encoding is not `chunked`. Send that, or a Content-Length."
MALFORMED_TARGET: Final = "The request target is malformed. Percent-encode the path and the query."
OTHER_VERSION: Final = "This is neither HTTP/1.1 nor HTTP/1.0. Use one of them."

#: What llhttp says, in parts of its messages, and what a client is told. Anything else is the last of them.
_REASONS: Final = (
    ("Transfer-Encoding can't be present", "ambiguous_length", _TWO_LENGTHS),
    ("Content-Length can't be present", "ambiguous_length", _TWO_LENGTHS),
    ("Content-Length", "invalid_content_length", "Content-Length is not one decimal number. Correct it."),
    ("Transfer-Encoding", "invalid_transfer_encoding", NOT_CHUNKED),
    ("chunk", "invalid_chunk", _NO_CHUNK),
    ("Chunk", "invalid_chunk", _NO_CHUNK),
    ("method", "invalid_method", "The method is not known. Use GET, HEAD, POST, PUT or DELETE."),
    ("url", "invalid_target", MALFORMED_TARGET),
    ("HTTP", "invalid_version", OTHER_VERSION),
    ("PRI", "invalid_version", OTHER_VERSION),
    ("header", "invalid_header", _NO_HEADER),
    ("space after start line", "invalid_header", _NO_HEADER),
    ("", "malformed_request", "This is no HTTP/1.1 request. Send plain HTTP; TLS ends at a proxy."),
)


def malformed(reason: str) -> Refused:
    """The refusal of what llhttp could not parse, for its `reason`."""
    code, detail = next((code, detail) for part, code, detail in _REASONS if part in reason)
    return Refused(400, code, f"{detail} ({reason})" if reason else detail)


def timed_out(detail: str) -> Refused:
    """The refusal of a client that was too slow."""
    return Refused(408, "request_timeout", detail)


def defect() -> Refused:
    """What a client is told where the fault is ours."""
    return Refused(500, "internal_error", "A defect in the service; its log has the cause.")


def problem_parts(refused: Refused) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and content of the answer, which is counted."""
    HTTP_PROBLEMS.labels(refused.code, "").inc()
    body = json.dumps(problem(refused.status, refused.code, refused.detail)).encode("ascii")
    headers = [
        (b"content-type", PROBLEM_MEDIA_TYPE.encode("ascii")),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    if refused.status == 503:
        headers.append((b"retry-after", retry_after().encode("ascii")))
    return headers, body


def serialize_refusal(
    refused: Refused, default_headers: Iterable[tuple[bytes, bytes]], request_id: str
) -> bytes:
    """The whole answer."""
    headers, body = problem_parts(refused)
    fields = [
        b"%b: %b\r\n" % field
        for field in (
            *default_headers,
            NO_SNIFFING,
            (REQUEST_ID_HEADER, request_id.encode("ascii")),
            *headers,
        )
    ]
    return b"".join([STATUS_LINE[refused.status], *fields, b"\r\n", body])
