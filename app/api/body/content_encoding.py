"""What the headers say of codings: the one a body has, and the one its answer may have.

Sources: RFC 9110, sections 8.4.1, 12.5.3 and 15.5.16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers

from ...codecs.compression.deflate import Coding
from ...codecs.compression.inflate import Container
from ...errors import NotAcceptable, UnknownEncoding
from ..negotiation import parse_weights

#: By their registered names; `x-gzip` is gzip, and `deflate` the format of zlib.
_CONTAINERS: Final[Mapping[str, Container]] = {
    "gzip": "gzip",
    "deflate": "zlib",
    "zstd": "zstd",
    "x-gzip": "gzip",
}
#: What `Accept-Encoding` says in the answer to a body that is encoded in another way.
ACCEPTED_ENCODINGS: Final = "gzip, deflate, zstd"

#: Text, which shrinks to a half or less. Numbers in binary hardly do, and are sent as they are. nginx
#: (`gzip_types`) and Envoy (`content_type` of its compressor), too, go by a list of types.
_COMPRESSIBLE: Final = frozenset({"application/json", "application/x-ndjson", "application/jsonl"})


@dataclass(frozen=True, slots=True)
class AnswerCoding:
    """What an answer is encoded in.

    Attributes:
        required: the client refuses what is not encoded.
    """

    coding: Coding
    required: bool


def content_codings(headers: Headers) -> list[str]:
    """What Content-Encoding names, on however many lines; `identity` is none."""
    names = ",".join(headers.getlist("content-encoding")).lower().split(",")
    return [name.strip() for name in names if name.strip() not in ("", "identity")]


def parse_content_encoding(headers: Headers) -> Container | None:
    """How the body is encoded; None where it is not.

    Raises:
        UnknownEncoding: by a coding that is not known, or by several.
    """
    codings = content_codings(headers)
    if not codings:
        return None
    if len(codings) == 1 and codings[0] in _CONTAINERS:
        return _CONTAINERS[codings[0]]
    raise UnknownEncoding(
        f"Content-Encoding {', '.join(codings)[:40]!r} is not supported. Send the body as it is, or "
        f"encoded once: {ACCEPTED_ENCODINGS}.",
        extra={"accepted": ACCEPTED_ENCODINGS.split(", ")},
    )


def choose_coding(headers: Headers, *, encodes: bool = True) -> AnswerCoding | None:
    """What the client takes and does not like less than no coding; None where it is no coding.

    Args:
        encodes: whether any answer is encoded.

    Raises:
        NotAcceptable: it refuses what is not encoded, and every coding that there is.
        MalformedInput: Accept-Encoding cannot be read.
    """
    if not encodes:
        require_identity(headers)
        return None
    lines = headers.getlist("accept-encoding")
    if not lines:
        return None
    weights: dict[str, float] = {}
    for name, weight in parse_weights(",".join(lines), "Accept-Encoding"):
        weights.setdefault(name, weight)
    # Whoever takes anything has gzip; zstd is for those who name it.
    anything = weights.get("*", 0.0)
    gzip = weights.get("gzip", weights.get("x-gzip", anything))
    zstd = weights.get("zstd", 0.0)
    best = max(gzip, zstd)
    as_it_is = weights.get("identity", weights.get("*", best))
    if not best:
        if weights.get("identity", weights.get("*", 1.0)):
            return None
        raise NotAcceptable(
            "Accept-Encoding refuses everything that there is: zstd, gzip, identity.",
            extra={"served": ["zstd", "gzip", "identity"]},
        )
    if as_it_is > best:
        return None
    return AnswerCoding("zstd" if zstd == best else "gzip", required=as_it_is == 0.0)


def require_identity(headers: Headers) -> None:
    """Refuse a request for what is never encoded, where the client takes that in no other way.

    Raises:
        NotAcceptable: it is so.
        MalformedInput: Accept-Encoding cannot be read.
    """
    coding = choose_coding(headers)
    if coding is not None and coding.required:
        raise NotAcceptable(
            "Accept-Encoding refuses identity, and this answer is not encoded.",
            extra={"served": ["identity"]},
        )


def is_compressible(media_type: str) -> bool:
    """Whether content of that type shrinks for sure."""
    essence = media_type.partition(";")[0].strip()
    return essence in _COMPRESSIBLE or essence.startswith("text/")
