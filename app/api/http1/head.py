"""What the head of a request may look like, past what llhttp refuses by itself.

Sources: RFC 9110 (7.2 Host, 10.1.1 Expect) and RFC 9112 (3.2 request target and Host, 6.1 Transfer-Encoding).
llhttp itself refuses bare CR and LF, obs-fold, white space before a colon, NUL, Content-Length that is
repeated, beside Transfer-Encoding or no number, and chunk sizes that are none; tests hold that.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from .limits import ConnectionLimits
from .refusals import NOT_CHUNKED, OTHER_VERSION, Refused

#: The body ends where its last chunk does.
CHUNKED: Final = -1

#: `uri-host [ ":" port ]` (RFC 3986, section 3.2.2), by its characters; empty where a target has no host.
_HOST: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%-]*(?::[0-9]*)?|\[[0-9A-Fa-f:.]+\](?::[0-9]*)?")
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?]+)")
#: Colon, blank and line end of a field.
_FIELD_FRAME: Final = 4

Fields = list[tuple[bytes, bytes]]


def check_head(target: bytes, version: str, fields: Fields) -> tuple[int, bool]:
    """The length of the body, or `CHUNKED`; and whether the client waits to be asked for it.

    The Host of an absolute target replaces the one in `fields`.

    Args:
        fields: names in lower case, and values.

    Raises:
        Refused: it cannot be understood, or not in one way alone.
    """
    known = dict(fields)
    if version == "1.1":
        if b"host" not in known:
            raise Refused(400, "invalid_host", "The header field Host is missing. Send `Host: name:port`.")
    elif version != "1.0":
        raise Refused(400, "invalid_version", OTHER_VERSION)
    if len(known) != len(fields) and sum(name == b"host" for name, _ in fields) > 1:
        raise Refused(400, "invalid_host", "There is more than one header field Host. Send one.")
    _check_host(known.get(b"host", b""))
    if not target.startswith(b"/"):
        _check_absolute(target, fields)
    elif b"#" in target:
        raise Refused(400, "invalid_target", "The request target has a fragment. Leave it out.")
    length = int(known.get(b"content-length", b"0"))
    if b"transfer-encoding" in known:
        length = _check_transfer_encoding(known[b"transfer-encoding"], version)
    if b"expect" in known:
        return length, _check_expect(known[b"expect"]) and version == "1.1" and length != 0
    return length, False


def check_size(target: bytes, fields: Fields, limits: ConnectionLimits) -> None:
    """Refuse what is larger than allowed.

    Raises:
        Refused: the target, the fields or their number is.
    """
    size = sum(len(name) + len(value) + _FIELD_FRAME for name, value in fields)
    if size + len(target) > limits.max_header_bytes or len(target) > limits.max_target_bytes:
        raise too_large(target, limits)
    if len(fields) > limits.max_headers:
        raise Refused(
            431,
            "too_many_headers",
            f"There are more than {limits.max_headers} header fields. Send fewer, or raise "
            "SHARDSMITH_MAX_HEADERS.",
        )


def too_large(target: bytes, limits: ConnectionLimits) -> Refused:
    """The refusal of a head that is larger than allowed, whole or not."""
    if len(target) > limits.max_target_bytes:
        return Refused(
            414,
            "target_too_long",
            f"The request target has more than {limits.max_target_bytes} bytes. Send a schema as a part "
            "of a multipart body, or raise SHARDSMITH_MAX_TARGET_BYTES.",
        )
    return Refused(
        431,
        "header_too_large",
        f"The head has more than {limits.max_header_bytes} bytes. Send fewer header fields, or raise "
        "SHARDSMITH_MAX_HEADER_BYTES.",
    )


# A few names make up nearly all requests.
@lru_cache(maxsize=64)
def _check_host(value: bytes) -> None:
    if _HOST.fullmatch(value.strip(b" \t")) is None:
        raise Refused(400, "invalid_host", "The header field Host is not `name` or `name:port`. Correct it.")


def _check_transfer_encoding(value: bytes, version: str) -> int:
    if version == "1.0":  # RFC 9112, section 6.1: faulty framing
        raise Refused(
            400,
            "invalid_transfer_encoding",
            "HTTP/1.0 has no Transfer-Encoding. Use HTTP/1.1, or send a Content-Length.",
        )
    if value.strip(b" \t").lower() != b"chunked":
        raise Refused(400, "invalid_transfer_encoding", NOT_CHUNKED)
    return CHUNKED


def _check_expect(value: bytes) -> bool:
    if value.strip(b" \t").lower() != b"100-continue":
        raise Refused(
            417,
            "expectation_failed",
            "The header field Expect is not `100-continue`. Send that, or leave it out.",
        )
    return True


def _check_absolute(target: bytes, fields: Fields) -> None:
    absolute = _ABSOLUTE.match(target)
    if absolute is None or b"#" in target:
        raise Refused(400, "invalid_target", "The request target does not begin with `/`. Send a path.")
    _check_host(absolute[1])
    for index, (name, _) in enumerate(fields):
        if name == b"host":
            fields[index] = (name, absolute[1])
