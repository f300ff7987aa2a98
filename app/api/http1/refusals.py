"""Answers to what is no acceptable request: problem documents, written by the connection itself."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from ..problems import PROBLEM_MEDIA_TYPE, problem, retry_after
from .access_log import REQUEST_ID_HEADER


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


#: What llhttp says, in parts of its messages, and what a client is told. Anything else is the last of them.
_REASONS: Final = (
    ("Transfer-Encoding can't be present", "ambiguous_length", "Transfer-Encoding beside Content-Length."),
    ("Content-Length can't be present", "ambiguous_length", "Content-Length beside Transfer-Encoding."),
    ("Content-Length", "invalid_content_length", "Content-Length is not one decimal number."),
    ("Transfer-Encoding", "invalid_transfer_encoding", "Transfer-Encoding is not `chunked`."),
    ("chunk", "invalid_chunk", "The chunked body is malformed."),
    ("Chunk", "invalid_chunk", "The chunked body is malformed."),
    ("method", "invalid_method", "This begins with no method that is known here."),
    ("url", "invalid_target", "The request target is malformed."),
    ("HTTP", "invalid_version", "HTTP/1.1 and HTTP/1.0 alone are spoken here."),
    ("PRI", "invalid_version", "HTTP/1.1 and HTTP/1.0 alone are spoken here."),
    ("header", "invalid_header", "A header field is malformed."),
    ("space after start line", "invalid_header", "A header field is malformed."),
    ("", "malformed_request", "This is no HTTP/1.1 request."),
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
    """Headers and content of the answer."""
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
        for field in (*default_headers, (REQUEST_ID_HEADER, request_id.encode("ascii")), *headers)
    ]
    return b"".join([STATUS_LINE[refused.status], *fields, b"\r\n", body])
