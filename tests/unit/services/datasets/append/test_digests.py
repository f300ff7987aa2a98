"""What makes two bodies the same."""

import pytest

from app.services.datasets.append.digests import HashingStream
from tests.support.archives import form_of
from tests.support.bodies import stream_of

BODY = form_of("cat", ("a.jpg", b"b--b\r\n--\r\n\r\n-"), ("b.jpg", b""))


def digest(body: bytes, boundary: bytes, chunk: int | None = None) -> str:
    stream = HashingStream(stream_of(body, chunk), boundary)
    read = bytearray()
    while piece := stream.read(1000):
        read += piece
    assert read == body
    assert stream.hexdigest() == stream.hexdigest()
    return stream.hexdigest()


def under(boundary: bytes, body: bytes = BODY) -> bytes:
    return b"\r\n".join(
        line.replace(b"--b", b"--" + boundary, 1) if line.startswith(b"--b") else line
        for line in body.split(b"\r\n")
    )


@pytest.mark.parametrize("boundary", [b"b", b"bb", b"------------------------x", b"--", b"y" * 70])
def test_the_boundary_does_not_count(boundary: bytes) -> None:
    expected = digest(BODY, b"b")
    body = under(boundary)
    assert {digest(body, boundary, chunk) for chunk in (None, *range(1, 40))} == {expected}


@pytest.mark.parametrize(
    "other",
    [
        BODY.replace(b"cat", b"dog"),
        BODY.replace(b"b--b", b"b--"),
        BODY.replace(b"\r\n--b\r\n", b"\r\n\r\n", 1),
        BODY.replace(b"\r\n--b\r\n", b"\r\n", 1),
        BODY.removesuffix(b"--b--\r\n"),
        BODY + b"x",
        BODY[1:],
    ],
)
def test_everything_else_counts(other: bytes) -> None:
    assert other != BODY
    assert digest(other, b"b") != digest(BODY, b"b")


def test_a_file_that_looks_like_two_is_another_body() -> None:
    two = form_of(("a.jpg", b"1"), ("b.jpg", b"2"))
    between = two[two.index(b"1") + 1 : two.rindex(b"2")]
    one = form_of(("a.jpg", b"1" + between.replace(b"--b", b"--") + b"2"))
    assert digest(under(b"x", one), b"x") != digest(two, b"b")


def test_without_a_boundary_every_byte_counts() -> None:
    assert digest(b"\r\n--b", b"") != digest(b"\r\n--", b"")
