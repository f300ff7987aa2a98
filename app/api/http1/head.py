"""What the head of a request may look like, past what llhttp refuses by itself.

Sources: RFC 9110 (7.2 Host, 10.1.1 Expect) and RFC 9112 (3.2 request target and Host, 6.1 Transfer-Encoding).
llhttp itself refuses bare CR and LF, obs-fold, white space before a colon, NUL, Content-Length that is
repeated, beside Transfer-Encoding or no number, and chunk sizes that are none; tests hold that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .limits import ConnectionLimits
from .refusals import Refused

__all__ = ["CHUNKED", "Head", "check_head", "too_large"]

#: The body ends where its last chunk does.
CHUNKED: Final = -1

#: `uri-host [ ":" port ]` (RFC 3986, section 3.2.2), by its characters; empty where a target has no host.
_HOST: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%-]*(?::[0-9]*)?|\[[0-9A-Fa-f:.]+\](?::[0-9]*)?")
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?@]+)")
#: Around the fields: the blanks, colons and line ends of each, and those of the request line.
_FIELD_FRAME: Final = 4
_LINE_FRAME: Final = 12

Fields = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Head:
    """What the connection has to know of a request.

    Attributes:
        length: of the body, in bytes; or `CHUNKED`.
        expects_continue: the client waits to be asked for the body.
    """

    length: int
    expects_continue: bool


def check_head(method: bytes, target: bytes, version: str, fields: Fields, limits: ConnectionLimits) -> Head:
    """What the head says; the Host of an absolute target replaces the one in `fields`.

    Args:
        fields: names in lower case, and values.

    Raises:
        Refused: it is too large, or not to be understood in one way alone.
    """
    if version not in ("1.1", "1.0"):
        raise Refused(400, "invalid_version", "HTTP/1.1 and HTTP/1.0 alone are spoken here.")
    size = len(method) + len(target) + _LINE_FRAME
    length, hosts, expects = 0, 0, False
    for name, value in fields:
        size += len(name) + len(value) + _FIELD_FRAME
        if name == b"host":
            hosts += 1
            _check_host(value)
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            length = _check_transfer_encoding(value, version)
        elif name == b"expect":
            expects = _check_expect(value)
    _check_sizes(target, size, len(fields), limits)
    if hosts != 1 and (hosts or version == "1.1"):
        raise Refused(400, "invalid_host", f"{hosts} header fields Host, where HTTP/1.1 has exactly one.")
    if not target.startswith(b"/"):
        _check_absolute(target, fields)
    elif b"#" in target:
        raise Refused(400, "invalid_target", "The request target has a fragment; leave it out.")
    return Head(length, expects and version == "1.1" and length != 0)


def too_large(target: bytes, limits: ConnectionLimits) -> Refused:
    """The refusal of a head that is larger than allowed, whole or not."""
    if len(target) > limits.max_target_bytes:
        return Refused(
            414, "target_too_long", f"The request target has more than {limits.max_target_bytes} bytes."
        )
    return Refused(431, "header_too_large", f"The head has more than {limits.max_header_bytes} bytes.")


def _check_sizes(target: bytes, size: int, num_fields: int, limits: ConnectionLimits) -> None:
    if size > limits.max_header_bytes or len(target) > limits.max_target_bytes:
        raise too_large(target, limits)
    if num_fields > limits.max_headers:
        raise Refused(431, "too_many_headers", f"More than {limits.max_headers} header fields.")


def _check_host(value: bytes) -> None:
    if _HOST.fullmatch(value.strip(b" \t")) is None:
        raise Refused(400, "invalid_host", "Host is not `name` or `name:port`.")


def _check_transfer_encoding(value: bytes, version: str) -> int:
    if version == "1.0":  # RFC 9112, section 6.1: faulty framing
        raise Refused(400, "invalid_transfer_encoding", "HTTP/1.0 has no Transfer-Encoding.")
    if value.strip(b" \t").lower() != b"chunked":
        raise Refused(400, "invalid_transfer_encoding", "Transfer-Encoding is not `chunked`.")
    return CHUNKED


def _check_expect(value: bytes) -> bool:
    if value.strip(b" \t").lower() != b"100-continue":
        raise Refused(417, "expectation_failed", "Expect is not `100-continue`.")
    return True


def _check_absolute(target: bytes, fields: Fields) -> None:
    absolute = _ABSOLUTE.match(target)
    if absolute is None or b"#" in target:
        raise Refused(400, "invalid_target", "The request target begins with no `/`.")
    _check_host(absolute[1])
    for index, (name, _) in enumerate(fields):
        if name == b"host":
            fields[index] = (name, absolute[1])
