"""A stored file as an HTTP answer: ranges, validators and digests (RFC 9110, RFC 9530)."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..domain.limits import MIB
from ..domain.streams import ByteFile
from ..errors import ShardsmithError
from .problems import problem_response

__all__ = ["ByteRange", "RangeUnsatisfiable", "file_response", "parse_range"]

logger = logging.getLogger(__name__)

_PIECE: Final = 2 * MIB

#: Runs a blocking function in a thread.
Call = Callable[[Callable[[], bytes]], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ByteRange:
    """`length` bytes from `offset`."""

    offset: int
    length: int


class RangeUnsatisfiable(Exception):
    """The range lies wholly outside the file."""


def parse_range(value: str | None, size: int) -> ByteRange | None:
    """The one range of a `Range` header; None where the whole file is to be sent.

    A header that is not understood, or that names several ranges, is ignored, as RFC 9110
    (section 14.2) allows.

    Raises:
        RangeUnsatisfiable: no byte of the file lies in the range.
    """
    unit, _, text = (value or "").partition("=")
    first, dash, last = (part.strip() for part in text.partition("-"))
    known = all(
        part == "" or (part.isascii() and part.isdigit() and len(part) < 20) for part in (first, last)
    )
    if unit.strip().lower() != "bytes" or not dash or not known or not (first or last):
        return None
    if not first:
        length = min(int(last), size)
        if not length:
            raise RangeUnsatisfiable
        return ByteRange(size - length, length)
    start, end = int(first), min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        return None
    if start >= size:
        raise RangeUnsatisfiable
    return ByteRange(start, end - start + 1)


def file_response(
    request: Request,
    call: Call,
    file: ByteFile,
    *,
    name: str,
    media_type: str,
    sha256: str,
    immutable: bool,
) -> Response:
    """The answer to GET or HEAD for a stored file.

    Args:
        request: for its method and its conditional headers.
        call: runs the reading of a piece in a thread.
        file: the bytes.
        name: what a browser saves it as; ASCII, made by the server.
        media_type: of the whole file.
        sha256: hex digest of the whole file: the strong ETag, and `Repr-Digest`.
        immutable: the URL will never name other bytes; otherwise caches have to ask each time.
    """
    etag = f'"{sha256}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:",
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "private, max-age=31536000, immutable" if immutable else "private, no-cache",
    }
    if _matches(request.headers.get("if-none-match"), etag):
        return Response(None, 304, headers)
    try:
        part = _wanted(request, etag, file.size)
    except RangeUnsatisfiable:
        return problem_response(
            416,
            "range_not_satisfiable",
            f"The file has {file.size} bytes; the range lies outside.",
            headers={**headers, "Content-Range": f"bytes */{file.size}"},
        )
    whole = part or ByteRange(0, file.size)
    headers["Content-Length"] = str(whole.length)
    if part is not None:
        headers["Content-Range"] = f"bytes {part.offset}-{part.offset + part.length - 1}/{file.size}"
    return _FileResponse(call, file, whole, 200 if part is None else 206, headers, media_type)


def _wanted(request: Request, etag: str, size: int) -> ByteRange | None:
    if request.method != "GET":
        return None
    condition = request.headers.get("if-range")
    if condition is not None and condition.strip() != etag:
        return None
    return parse_range(request.headers.get("range"), size)


def _matches(header: str | None, etag: str) -> bool:
    """Weak comparison, as `If-None-Match` asks for."""
    if header is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in header.split(",")}
    return "*" in tags or etag in tags


class _FileResponse(Response):
    """Sends a part of a file, read piece by piece in a thread."""

    def __init__(
        self,
        call: Call,
        file: ByteFile,
        part: ByteRange,
        status: int,
        headers: Mapping[str, str],
        media_type: str,
    ) -> None:
        self._call = call
        self._file = file
        self._part = part
        self.status_code = status
        self.background = None
        self.body = b""
        self.raw_headers = [
            (key.lower().encode("latin-1"), value.encode("latin-1"))
            for key, value in {"Content-Type": media_type, **headers}.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await self._send_part(send, gone)
        except asyncio.CancelledError:
            logger.warning("download broken off: the service is shutting down")
        except ShardsmithError as error:
            # Returning before Content-Length is reached makes the server close the connection.
            logger.warning("download broken off: %s: %s", error.code, error.detail)
        finally:
            gone.cancel()

    async def _send_part(self, send: Send, gone: asyncio.Task[None]) -> None:
        position, end = self._part.offset, self._part.offset + self._part.length
        while position < end and not gone.done():
            length = min(_PIECE, end - position)
            piece = await self._call(partial(self._file.read_at, position, length))
            if not piece:
                logger.error("download broken off: the stored file is shorter than its manifest says")
                return
            position += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if position >= end:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
