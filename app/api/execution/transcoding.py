"""Bodies decoded before, and answers encoded after whatever is done with them, in the thread that does it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import chain
from typing import Final

from ...codecs.compression.deflate import compress_as_it_comes
from ...codecs.compression.inflate import Container, InflatedStream
from ...codecs.compression.zstd import WINDOW_BYTES
from ...domain.limits import KIB
from ...errors import LimitExceeded, ShardsmithError
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ...services.deferred import then
from ..body.content_encoding import AnswerCoding, is_compressible
from .job import Answer, Job, Work

#: What fits a packet or two gains nothing by being smaller; nginx's documentation has 1000 in its example.
_MIN_BYTES: Final = 1 * KIB


def transcoded(work: Work, container: Container | None, coding: AnswerCoding | None) -> Work:
    """`work` on the content of a body in `container`, to an answer in `coding`.

    None leaves either as it is.
    """
    if container is None and coding is None:
        return work

    def around(job: Job, body: ByteStream) -> Answer | Future[Answer]:
        content = body if container is None else _decoded(body, container, job.budget)
        answer = work(job, content)
        if coding is None:
            return answer
        if isinstance(answer, Future):
            return then(answer, lambda later: encoded_answer(later, coding))
        return encoded_answer(answer, coding)

    return around


def _decoded(body: ByteStream, container: Container, budget: Budget) -> ByteStream:
    if container == "zstd":
        budget.charge(WINDOW_BYTES, "The window of zstd")
    return DecodedBody(body, container, budget)


class DecodedBody:
    """The content of an encoded body, which may be as long as a body that is not encoded.

    Apache's mod_deflate has the same rule (`DeflateInflateLimitRequestBody`). What fails once fails again:
    nobody shall take broken transport for a broken file, and read on.
    """

    def __init__(self, body: ByteStream, container: Container, budget: Budget) -> None:
        self._stream = InflatedStream(body, container, budget)
        self._max_bytes = budget.limits.max_body_bytes
        self._size = 0
        self._error: ShardsmithError | None = None

    def read(self, n: int, /) -> bytes:
        """Between 1 and `n` bytes, or `b""` at the end.

        Raises:
            MalformedInput, LimitExceeded: as `InflatedStream`; it is longer than a body may be
                (`payload_too_large`).
            StreamInterrupted: as the body.
        """
        if self._error is not None:
            raise self._error
        try:
            piece = self._stream.read(n)
            self._count(piece)
        except ShardsmithError as error:
            self._error = error
            raise
        return piece

    def _count(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise LimitExceeded(
                f"The body inflates to more than {self._max_bytes} bytes. Send it in pieces.",
                code="payload_too_large",
            )


def encoded_answer(answer: Answer, coding: AnswerCoding) -> Answer:
    """The answer as the client asks for it, unless that would gain nothing."""
    if answer.status == 204:
        return answer
    if not coding.required:
        if not is_compressible(answer.media_type):
            return answer
        head, size = _drawn(answer.chunks)
        answer.chunks = chain(head, answer.chunks)
        if size < _MIN_BYTES:
            return answer
    answer.chunks = compress_as_it_comes(answer.chunks, coding.coding)
    answer.headers = {**answer.headers, "Content-Encoding": coding.coding}
    return answer


def _drawn(chunks: Iterator[Buffer]) -> tuple[list[Buffer], int]:
    """The first chunks, and how many bytes they have: all of them, or so many as are worth encoding."""
    head: list[Buffer] = []
    size = 0
    while size < _MIN_BYTES and (chunk := next(chunks, None)) is not None:
        head.append(chunk)
        size += memoryview(chunk).nbytes
    return head, size
