"""A stored file as an HTTP answer: ranges, validators and digests (RFC 9110, RFC 9530, RFC 6266).

| request                    | answer                                                              |
|----------------------------|---------------------------------------------------------------------|
| GET                        | 200, with `Repr-Digest` and `Content-Digest`                        |
| ... `Range`, one           | 206 with `Content-Range`                                            |
| ... `Range`, several       | 206 `multipart/byteranges`; one part, if they touch                 |
| ... `Range`, outside       | 416                                                                 |
| ... `If-Range`, other ETag | 200, all of it                                                      |
| `If-None-Match`, same ETag | 304                                                                 |
| `If-Match`, other ETag     | 412                                                                 |
| HEAD                       | as GET without `Range`, without the content                         |

Bytes are compared with their SHA-256 wherever a whole segment of the file is sent. Up to 8 MiB are read
before the answer begins, so that they too have a digest, and a failure is a problem document. In a longer
answer the end of a segment that does not match is held back, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...domain.limits import MIB
from ...errors import ShardsmithError
from ...runtime.memory import MemoryPool, MemoryShare
from ...runtime.segments import SegmentedFile
from ..bare_response import BareResponse
from ..body.content_encoding import require_identity
from ..digests import digest_field
from ..problems import problem_response
from .conditions import failed_condition, ranges_apply
from .pieces import PIECE_BYTES, Content, content_pieces, content_size
from .ranges import ByteRange, RangeUnsatisfiable, parse_ranges

logger = logging.getLogger(__name__)

#: Answers up to this size are read before they begin.
_READ_FIRST: Final = 8 * MIB
#: What all of them together may hold; past that they are sent as they are read, without a digest.
_HELD_BYTES: Final = 128 * MIB
#: What is held of an answer that is sent as it is read: a piece that comes, one that waits, one that leaves.
_STREAMED_BYTES: Final = 3 * PIECE_BYTES
#: A name that needs neither quotes nor an encoding.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)

#: Runs a blocking function in a thread.
Call = Callable[[Callable[[], bytes]], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Download:
    """A file to hand out.

    Attributes:
        file: the bytes.
        name: what a browser saves it as; made by the server.
        media_type: of the whole file.
        tag: the strong ETag, without its quotes: other bytes have another one.
        sha256: hex digest of the whole file, where it is known.
        immutable: the URL will never name other bytes; otherwise caches have to ask each time.
    """

    file: SegmentedFile
    name: str
    media_type: str
    tag: str
    sha256: str | None
    immutable: bool


class Downloads:
    """Answers GET and HEAD for files.

    Args:
        call: runs the reading of a piece in a thread.
        memory: what all requests may hold.
    """

    def __init__(self, call: Call, memory: MemoryPool) -> None:
        self._call = call
        self._memory = memory
        self._held = 0

    async def answer(self, request: Request, download: Download) -> Response:
        """The answer that the method and the headers of `request` ask for.

        Raises:
            NotAcceptable: the client takes what is encoded alone.
            Overloaded: there is no memory for the answer.
            ShardsmithError: the bytes cannot be read, or are not those that were stored; before the
                answer begins.
        """
        require_identity(request.headers)
        etag = f'"{download.tag}"'
        headers = _headers(download, etag)
        failed = failed_condition(request.headers, etag)
        if failed == 304:
            return Response(None, 304, headers)
        if failed == 412:
            detail = f"The file's ETag is {etag}, not what If-Match asks for."
            return problem_response(412, "precondition_failed", detail, headers={"ETag": etag})
        size = download.file.size
        try:
            asked = request.method == "GET" and ranges_apply(request.headers, etag)
            ranges = parse_ranges(request.headers.get("range"), size) if asked else None
        except RangeUnsatisfiable:
            detail = f"The file has {size} bytes; the range lies outside."
            beyond = {"ETag": etag, "Content-Range": f"bytes */{size}"}
            return problem_response(416, "range_not_satisfiable", detail, headers=beyond)
        content = _content(ranges, download, headers)
        headers["Content-Length"] = str(content_size(content))
        if request.method == "HEAD":
            return BareResponse(200, headers)
        if ranges is None and download.sha256 is not None:
            headers["Content-Digest"] = headers["Repr-Digest"]
        status = 200 if ranges is None else 206
        return await self._read_first(download.file, content, status, headers)

    async def _read_first(
        self, file: SegmentedFile, content: Content, status: int, headers: dict[str, str]
    ) -> Response:
        """The answer, read already where it is short."""
        size = content_size(content)
        share = self._memory.share()
        if size > min(_READ_FIRST, _HELD_BYTES - self._held):
            share.reserve(min(size, _STREAMED_BYTES))
            return _FileResponse(self._call, file, content, status, headers, on_end=share.end)
        share.reserve(size)
        self._held += size
        try:
            async with aclosing(content_pieces(self._call, file, content)) as pieces:
                data = b"".join([piece async for piece in pieces])
            headers["Content-Digest"] = digest_field(sha256(data).digest())
        except BaseException:
            self._release(share, size)
            raise
        on_end = partial(self._release, share, size)
        return _FileResponse(self._call, file, (data,), status, headers, on_end=on_end)

    def _release(self, share: MemoryShare, size: int) -> None:
        self._held -= size
        share.end()


def _headers(download: Download, etag: str) -> dict[str, str]:
    if not _PLAIN_NAME.fullmatch(download.name):
        raise ValueError(f"{download.name!r} is no name to save a file under")
    headers = {
        "Content-Type": download.media_type,
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Content-Disposition": f'attachment; filename="{download.name}"',
        "Cache-Control": (
            "private, max-age=31536000, immutable" if download.immutable else "private, no-cache"
        ),
    }
    if download.sha256 is not None:
        headers["Repr-Digest"] = digest_field(bytes.fromhex(download.sha256))
    return headers


def _content(ranges: Sequence[ByteRange] | None, download: Download, headers: dict[str, str]) -> Content:
    """What is sent for `ranges`; its headers are added to `headers`."""
    size = download.file.size
    if ranges is None:
        return (ByteRange(0, size),)
    if len(ranges) == 1:
        headers["Content-Range"] = _content_range(ranges[0], size)
        return tuple(ranges)
    boundary = secrets.token_hex(16)
    headers["Content-Type"] = f"multipart/byteranges; boundary={boundary}"
    content: list[bytes | ByteRange] = []
    for part in ranges:
        fields = f"Content-Type: {download.media_type}\r\nContent-Range: {_content_range(part, size)}"
        lead = "\r\n" if content else ""
        content += [f"{lead}--{boundary}\r\n{fields}\r\n\r\n".encode(), part]
    return (*content, f"\r\n--{boundary}--\r\n".encode())


def _content_range(part: ByteRange, size: int) -> str:
    return f"bytes {part.offset}-{part.end - 1}/{size}"


class _FileResponse(BareResponse):
    """Sends parts of a file as they are read."""

    def __init__(
        self,
        call: Call,
        file: SegmentedFile,
        content: Content,
        status: int,
        headers: Mapping[str, str],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(status, headers)
        self._call = call
        self._file = file
        self._content = content
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        gone = asyncio.create_task(_await_disconnect(receive))
        try:
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            await self._send_content(send, gone)
        except asyncio.CancelledError:
            logger.warning("download broken off: the service is shutting down")
        except ShardsmithError as error:
            # Returning before Content-Length is reached makes the server close the connection.
            logger.error("download broken off: %s: %s", error.code, error.detail)
        finally:
            gone.cancel()
            self._on_end()

    async def _send_content(self, send: Send, gone: asyncio.Task[None]) -> None:
        async with aclosing(content_pieces(self._call, self._file, self._content)) as pieces:
            async for piece in pieces:
                if gone.done():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
