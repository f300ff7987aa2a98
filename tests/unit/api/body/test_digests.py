"""What a request may say of its body (RFC 9530), by what it says and what comes."""

import base64
import hashlib
from typing import Any

import pytest

from app.api.body.digests import Digests, declared_digests
from app.api.http1.limits import TRAILERS
from app.errors import MalformedInput, StreamAltered

BODY = b"what is sent"
RIGHT = base64.b64encode(hashlib.sha256(BODY).digest()).decode()
WRONG = base64.b64encode(hashlib.sha256(b"").digest()).decode()


def declared(
    *fields: tuple[str, str], behind: dict[tuple[bytes, bytes], bool] | None = None
) -> Digests | None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields]
    extensions: dict[str, Any] = {} if behind is None else {TRAILERS: behind}
    return declared_digests({"type": "http", "headers": headers, "extensions": extensions})


def take(digests: Digests | None, body: bytes = BODY) -> None:
    assert digests is not None
    for byte in body:
        digests.take(bytes([byte]))
    digests.take(b"")


@pytest.mark.parametrize(
    "value",
    [
        f"sha-256=:{RIGHT}:",
        f"sha-256=:{RIGHT.rstrip('=')}:",
        f" \tsha-256=:{RIGHT}:\t",
        f"md5=::,\t sha-256=:{RIGHT}: , *a.b_c-*=:YQ:",
        f'sha-256=:{RIGHT}:;a; b=1;c=-1.5;d="x;\\" y, z";e=t/o:k;f=:YQ==:;*g=?0',
    ],
)
def test_fields_as_clients_write_them(value: str) -> None:
    take(declared(("Content-Digest", value)))
    with pytest.raises(StreamAltered, match="Content-Digest"):
        take(declared(("Content-Digest", value)), BODY[:-1])


def test_fields_on_several_lines_are_one() -> None:
    lines = ("Repr-Digest", f"sha-256=:{RIGHT}:"), ("Repr-Digest", f"sha-256=:{WRONG}:")
    for order in (lines, lines[::-1]):
        with pytest.raises(StreamAltered):
            take(declared(*order))


@pytest.mark.parametrize(
    "value",
    [
        *(",", "sha-256", "sha-256=", "sha-256=1", f"sha-256={RIGHT}", f'sha-256="{RIGHT}"'),
        *(f"sha-256=:{RIGHT}:,", f",sha-256=:{RIGHT}:", f"sha-256=:{RIGHT}::", f"sha-256 =:{RIGHT}:"),
        *(f"sha-256=:{RIGHT}: sha-256=:{RIGHT}:", f"SHA-256=:{RIGHT}:", f"sha-256=:{RIGHT}:;", "sha-256=:A:"),
        *(f"sha-256=:{RIGHT[:-2]}:", "sha-512=:" + RIGHT + ":", "crc32c=:AA==:", "sha-256=(:YQ==:)"),
        *(f"sha-256=:{RIGHT}", "x\xe9=:YQ==:"),
        *("a=:YQ==:;" + " " * 4096, "a=:YQ==:" + ",a=:YQ==:" * 500, "a=:YQ:;b=" + '"' * 99),
    ],
)  # fmt: skip
def test_fields_that_cannot_be_read(value: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        declared(("Content-Digest", value))
    assert caught.value.code == "invalid_digest"


def test_requests_that_say_nothing_of_their_body_cost_nothing() -> None:
    assert declared(("Content-Type", "x")) is None
    assert declared(("Content-Digest", "md5=:YQ==:")) is None
    assert declared(("Trailer", "Expires")) is None


def test_announced_trailer_is_compared() -> None:
    right, wrong = ({(b"repr-digest", f"sha-256=:{it}:".encode()): True} for it in (RIGHT, WRONG))
    head = ("Content-Digest", f"sha-256=:{RIGHT}:")
    take(declared(("Trailer", "x, REPR-digest"), behind=right))
    take(declared(head, behind=wrong))
    with pytest.raises(StreamAltered, match="Repr-Digest describes"):
        take(declared(head, ("Trailer", "Repr-Digest"), behind=wrong))
    # A proxy may have dropped it.
    take(declared(head, ("Trailer", "Repr-Digest"), behind={}))


def test_a_body_that_was_refused_is_refused_again() -> None:
    digests = declared(("Content-Digest", f"sha-256=:{WRONG}:"))
    assert digests is not None
    digests.take(BODY)
    for _ in range(2):
        with pytest.raises(StreamAltered):
            digests.take(b"")
