"""A `multipart/form-data` body up to its rows: a part `schema`, and then a part `data`, or files.

The schema stands first so that the rows behind it can be converted while they are still coming.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers

from ...codecs.archives.form_data import (
    FILE,
    LABEL,
    MULTIPART,
    SCHEMA,
    Part,
    Parts,
    malformed,
)
from ...domain.limits import MIB
from ...errors import LimitExceeded
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream, RewindableStream

_MAX_SCHEMA_BYTES: Final = 4 * MIB


def boundary_of(content_type: str) -> bytes:
    """What stands between the parts of such a body; empty where the Content-Type says nothing of it."""
    if not is_multipart(content_type):
        return b""
    return parse_options_header(content_type)[1].get(b"boundary", b"")


def is_multipart(content_type: str) -> bool:
    """Whether a body of that Content-Type has parts."""
    return content_type.partition(";")[0].strip().lower() == MULTIPART


@dataclass(frozen=True, slots=True)
class Multipart:
    """What the parts are.

    Attributes:
        schema: its text; None where the part is missing.
        headers: of the rows.
        data: the rows: the part `data`, or, where that is files, the body from its beginning on.
        is_files: the rows are the files of the body, whose form is `multipart`.
    """

    schema: bytes | None
    headers: Headers
    data: ByteStream
    is_files: bool = False


class _PartStream:
    """The content of one part as a `ByteStream`; checks at its end that nothing follows."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._rest = b""
        self._done = False

    def read(self, n: int, /) -> bytes:
        if not self._rest and not self._done:
            self._rest = self._parts.read_piece()
            self._done = not self._rest
            if self._done and self._parts.next_part() is not None:
                raise malformed("another part follows the part 'data'; it must be the last", None)
        piece, self._rest = self._rest[:n], self._rest[n:]
        return piece


def open_multipart(body: ByteStream, content_type: str, budget: Budget) -> Multipart:
    """Read up to the beginning of the data.

    Args:
        budget: charged with what comes before the data, as long as it is held.

    Raises:
        MalformedInput: not multipart, or not those parts in that order.
        UnknownForm: the part `data` is encoded.
        LimitExceeded: a schema of more than 4 MiB.
    """
    source = RewindableStream(body, budget)
    parts = Parts(source, boundary_of(content_type))
    part, schema = parts.next_part(), None
    if part is not None and part.name == SCHEMA:
        schema = _read_schema(parts)
        part = parts.next_part()
    if part is not None and part.name in (FILE, LABEL):
        source.rewind()
        return Multipart(schema, Headers({"content-type": content_type}), source, is_files=True)
    if part is None or part.name != "data":
        found = "the end" if part is None else f"a part {part.name[:40]!r}"
        raise malformed(
            f"the part 'data', or parts 'file', are expected (after 'schema', if any), found {found}", None
        )
    source.forget()
    part.refuse_encoding()
    return Multipart(schema, _headers_of(part), _PartStream(parts))


def _headers_of(part: Part) -> Headers:
    headers = Headers(raw=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in part.headers])
    if is_multipart(headers.get("content-type", "")):
        raise malformed("the part 'data' has parts itself; send its files as parts of the body", None)
    return headers


def _read_schema(parts: Parts) -> bytes:
    gathered = bytearray()
    while piece := parts.read_piece():
        gathered += piece
        if len(gathered) > _MAX_SCHEMA_BYTES:
            raise LimitExceeded("The part 'schema' is larger than 4 MiB.", code="payload_too_large")
    return bytes(gathered)
