"""multipart/form-data: the schema, then the rows, at every split of the body."""

import pytest

from app.api.body.multipart import open_multipart
from app.errors import InputError, LimitExceeded, MalformedInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.support.bodies import stream_of
from tests.support.peak_memory import peak_bytes

CONTENT_TYPE = "multipart/form-data; boundary=xyz"
BODY = (
    b"--xyz\r\n"
    b'Content-Disposition: form-data; name="schema"\r\n\r\n'
    b'{"features": {}}\r\n'
    b"--xyz\r\n"
    b'Content-Disposition: form-data; name="data"; filename="rows.npz"\r\n'
    b"Content-Type: application/x-npz\r\n\r\n"
    b"PK\x03\x04\r\n--xy\r\n-- not a boundary"
    b"\r\n--xyz--\r\n"
)
DATA = b"PK\x03\x04\r\n--xy\r\n-- not a boundary"


def drain(stream: object) -> bytes:
    pieces = []
    while piece := stream.read(7):  # type: ignore[attr-defined]  # a ByteStream
        pieces.append(piece)
    return b"".join(pieces)


def read(body: bytes, chunk: int | None = None) -> tuple[bytes | None, str | None, bytes]:
    parts = open_multipart(stream_of(body, chunk), CONTENT_TYPE, Budget())
    return parts.schema, parts.headers.get("content-type"), drain(parts.data)


@pytest.mark.parametrize("chunk", range(1, len(BODY)))
def test_every_split_of_the_body_reads_alike(chunk: int) -> None:
    assert read(BODY, chunk) == (b'{"features": {}}', "application/x-npz", DATA)


@pytest.mark.parametrize("preamble", [b"\r\n", b"\n{\r\n", b"--xy\r\n--x\r\n", b"p" * 4096 + b"\r\n"])
@pytest.mark.parametrize("chunk", [1, 2, 7, 50, None])
def test_preamble_is_skipped(preamble: bytes, chunk: int | None) -> None:
    assert read(preamble + BODY, chunk) == (b'{"features": {}}', "application/x-npz", DATA)


@pytest.mark.parametrize("chunk", [1, 7, None])
@pytest.mark.parametrize("preamble", [b"p" * 4097 + b"\r\n", b"\n", b"p"])
def test_a_preamble_without_end_or_without_line_end_is_refused(preamble: bytes, chunk: int | None) -> None:
    with pytest.raises(MalformedInput, match="boundary"):
        read(preamble + BODY[: BODY.index(b"--xyz", 1) - 2], chunk)


def test_the_schema_may_be_missing() -> None:
    start = BODY.index(b"--xyz", 1)
    assert read(BODY[start:]) == (None, "application/x-npz", DATA)


@pytest.mark.parametrize("cut", [0, 5, 30, 60, 70, 120, 180, len(BODY) - 12, len(BODY) - 7])
def test_a_body_that_ends_early_is_refused(cut: int) -> None:
    with pytest.raises(MalformedInput):
        read(BODY[:cut])


def test_a_part_after_the_data_is_refused() -> None:
    more = (
        BODY.removesuffix(b"--\r\n")
        + b'\r\nContent-Disposition: form-data; name="schema"\r\n\r\n{}\r\n--xyz--\r\n'
    )
    with pytest.raises(MalformedInput, match="must be the last"):
        read(more)


def test_other_parts_are_refused_by_name() -> None:
    with pytest.raises(MalformedInput, match="'rows'"):
        read(BODY.replace(b'name="data"', b'name="rows"'))


def test_read_data_is_not_kept() -> None:
    body = BODY.replace(DATA, bytes(16 * 2**20))
    budget = Budget()
    parts = open_multipart(stream_of(body, 64 * 1024), CONTENT_TYPE, budget)

    def drain_in_pieces() -> None:
        while parts.data.read(256 * 1024):
            pass

    assert peak_bytes(drain_in_pieces) < 4 * 2**20


def test_a_huge_schema_is_refused() -> None:
    with pytest.raises(LimitExceeded):
        read(BODY.replace(b"{}", b"x" * 5_000_000))


@pytest.mark.parametrize("content_type", ["multipart/form-data", "multipart/form-data; boundary=" + "b" * 71])
def test_a_boundary_is_needed(content_type: str) -> None:
    with pytest.raises(InputError, match="boundary"):
        open_multipart(MemoryStream(BODY), content_type, Budget())


def test_files_are_read_from_the_beginning_of_the_body_on_and_charged_until_then() -> None:
    body = BODY.replace(b'name="data"', b'name="file"')
    budget = Budget()
    before = budget.remaining
    parts = open_multipart(stream_of(body, 40), CONTENT_TYPE, budget)
    assert parts.is_files
    assert 0 < before - budget.remaining <= len(body)
    assert drain(parts.data) == body
    assert budget.remaining == before


def test_parts_before_the_data_are_released() -> None:
    budget = Budget()
    before = budget.remaining
    open_multipart(stream_of(BODY, 40), CONTENT_TYPE, budget)
    assert budget.remaining == before
