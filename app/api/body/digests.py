"""What a request says of the bytes of its body, and whether they are what came (RFC 9530).

`Content-Digest` and `Repr-Digest` are of the same bytes here: the representation in a whole body is its
content, encoded or not. Both may stand in the head, or behind a chunked body if `Trailer` announces them.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256, sha512
from typing import Final, Protocol

from starlette.types import Scope

from ...codecs.messages.framing import RunningCrc
from ...errors import MalformedInput, StreamAltered
from ..digests import digest_field
from ..http1.limits import TRAILERS

#: Names in lower case, and how they are written.
_FIELDS: Final = {b"content-digest": "Content-Digest", b"repr-digest": "Repr-Digest"}
_TRAILER: Final = b"trailer"
#: No real field is longer.
_MAX_FIELD: Final = 4096

_KEY: Final = r"[a-z*][a-z0-9_.*-]*+"
_TOKEN: Final = r"[A-Za-z*][\w!#$%&'*+.^`|~:/-]*+"  # noqa: S105 (no secret: RFC 8941's name)
_VALUE: Final = rf"""(?:-?\d++(?:\.\d++)?|"(?:[ !#-\[\]-~]|\\["\\])*+"|{_TOKEN}|:[\w+/=]*+:|\?[01])"""
#: A member of a dictionary whose values are byte sequences (RFC 8941, section 3.2), and its parameters.
_MEMBER: Final = re.compile(rf"({_KEY})=:([A-Za-z0-9+/=]*+):(?:; *+{_KEY}(?:={_VALUE})?)*+", re.ASCII)
_BETWEEN: Final = re.compile(r"[ \t]*+,[ \t]*+")

#: Name in lower case, and value.
_Field = tuple[bytes, bytes]
#: Field, algorithm and digest.
_Digest = tuple[str, str, bytes]


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


class _Crc32c:
    def __init__(self) -> None:
        self._crc = RunningCrc()

    def update(self, data: bytes, /) -> None:
        self._crc.extend(data)

    def digest(self) -> bytes:
        return self._crc.value.to_bytes(4, "big")


#: Of the registry "Hash Algorithms for HTTP Digest Fields", with the bytes of their digests. The others there
#: are broken or tell too little.
_ALGORITHMS: Final[Mapping[str, tuple[Callable[[], _Hash], int]]] = {
    "sha-256": (sha256, 32),
    "sha-512": (sha512, 64),
    "crc32c": (_Crc32c, 4),
}


class Digests:
    """The digests that a body has to have, and those of what passed so far.

    Args:
        expected: field, algorithm and digest, as the head has them.
        announced: fields that may come behind the body.
        trailers: what came behind it, once it has ended.
    """

    def __init__(
        self, expected: list[_Digest], announced: frozenset[bytes], trailers: Callable[[], Iterable[_Field]]
    ) -> None:
        self._expected = expected
        self._announced = announced
        self._trailers = trailers
        # Which one a trailer will have is not known before it comes.
        names = _ALGORITHMS if announced else {algorithm for _, algorithm, _ in expected}
        self._hashes = {name: _ALGORITHMS[name][0]() for name in names}

    def take(self, piece: bytes) -> None:
        """Take the next bytes of the body into account; none say that it has ended.

        Raises:
            StreamAltered: the body has ended and is another one; or a digest behind it cannot be read
                (`invalid_digest`).
        """
        if not piece:
            self._check()
        for hashed in self._hashes.values():
            hashed.update(piece)

    def _check(self) -> None:
        for field, algorithm, expected in [*self._expected, *self._from_trailers()]:
            found = self._hashes[algorithm].digest()
            if found != expected:
                raise StreamAltered(
                    f"The body that came is not the one that {field} describes: it has "
                    f"{digest_field(found, algorithm)}. Send it again."
                )

    def _from_trailers(self) -> list[_Digest]:
        # What was announced may not come: any proxy on the way may drop trailers, and nginx does.
        try:
            return _parse([field for field in self._trailers() if field[0] in self._announced])
        except MalformedInput as error:
            raise StreamAltered(error.detail, code=error.code) from None


def declared_digests(scope: Scope) -> Digests | None:
    """What the head of a request says of its body; None if it says nothing that can be checked.

    Raises:
        MalformedInput: a field cannot be read (`invalid_digest`).
    """
    # Nearly all requests have none of them, and this stands in the way of the smallest.
    fields = [field for field in scope["headers"] if field[0] in _FIELDS or field[0] == _TRAILER]
    if not fields:
        return None
    named = {
        name.strip().lower() for field, value in fields if field == _TRAILER for name in value.split(b",")
    }
    announced = frozenset(named & _FIELDS.keys())
    expected = _parse([field for field in fields if field[0] in _FIELDS])
    if not expected and not announced:
        return None
    return Digests(expected, announced, lambda: scope.get("extensions", {}).get(TRAILERS, ()))


def _parse(fields: list[_Field]) -> list[_Digest]:
    """The digests by algorithms that are known.

    Raises:
        MalformedInput: a field cannot be read (`invalid_digest`).
    """
    return [
        (_FIELDS[name], algorithm, _decode(_FIELDS[name], algorithm, encoded))
        for name, value in fields
        for algorithm, encoded in _members(_FIELDS[name], value.decode("latin-1").strip(" \t"))
        if algorithm in _ALGORITHMS
    ]


def _members(field: str, text: str) -> Iterator[tuple[str, str]]:
    """Keys and what stands between the colons; one that is repeated has to be right each time."""
    if not text:
        return
    if len(text) > _MAX_FIELD:
        raise _unreadable(field)
    position = 0
    while member := _MEMBER.match(text, position):
        yield member[1], member[2]
        if member.end() == len(text):
            return
        between = _BETWEEN.match(text, member.end())
        if between is None:
            break
        position = between.end()
    raise _unreadable(field)


def _decode(field: str, algorithm: str, encoded: str) -> bytes:
    digits = encoded.rstrip("=")  # which may be missing (RFC 8941, section 4.2.7)
    try:
        digest = b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except NoBase64:
        raise _unreadable(field) from None
    size = _ALGORITHMS[algorithm][1]
    if len(digest) != size:
        raise MalformedInput(
            f"{field} has a {algorithm} of {len(digest)} bytes, but it has {size}. Send the digest itself in "
            "base64, not its hexadecimal digits.",
            code="invalid_digest",
        )
    return digest


def _unreadable(field: str) -> MalformedInput:
    return MalformedInput(
        f"{field} cannot be read. Send a digest in base64 between colons, as in `sha-256=:...=:` (RFC 9530).",
        code="invalid_digest",
    )
