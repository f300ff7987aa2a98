"""Files as answers: whole or not at all, within the memory that they may hold."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from app.api.digests import digest_field
from app.api.downloads import files
from app.api.downloads.files import Download, Downloads
from app.domain.limits import MIB
from app.errors import CorruptData, Overloaded
from app.runtime.memory import MemoryPool
from app.runtime.segments import Segment


class File:
    """Bytes in memory, in segments of their own; counts how much is read."""

    def __init__(self, *contents: bytes, damaged: int | None = None) -> None:
        self.data = b"".join(contents)
        self.size = len(self.data)
        self.segments = []
        offset = 0
        for number, content in enumerate(contents):
            digest = hashlib.sha256(b"other" if number == damaged else content).hexdigest()
            self.segments.append(Segment(offset, len(content), digest))
            offset += len(content)
        self.read = 0

    def read_at(self, offset: int, n: int, /) -> bytes:
        self.read += n
        return self.data[offset : offset + n]


async def call(function: Callable[[], bytes]) -> bytes:
    return function()


class Sent:
    """What a client gets; `whole` once the answer was ended as it should."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.whole = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {key.decode(): value.decode() for key, value in message["headers"]}
        else:
            self.body += message["body"]
            self.whole = not message.get("more_body", False)


async def connected() -> Any:
    await asyncio.Event().wait()


def request_of(method: str, **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": method, "path": "/", "headers": raw})


def answer(downloads: Downloads, file: File, method: str = "GET", **headers: str) -> Sent:
    sent = Sent()

    async def run() -> None:
        download = Download(
            file=file,
            name="d-train.tfrecord-00000-of-00001",
            media_type="application/x-tfrecord",
            tag="tag",
            sha256=hashlib.sha256(file.data).hexdigest(),
            immutable=True,
        )
        response: Response = await downloads.answer(request_of(method, **headers), download)
        await response({"type": "http", "method": method}, connected, sent)

    asyncio.run(run())
    return sent


LONG = bytes(range(256)) * 4096 * 10  # 10 MiB


def test_a_long_file_is_verified_as_it_is_sent() -> None:
    sent = answer(Downloads(call, MemoryPool(1 << 30)), File(LONG))
    assert (sent.status, sent.body, sent.whole) == (200, LONG, True)
    assert sent.headers["content-digest"] == sent.headers["repr-digest"]


def test_the_end_of_a_file_that_is_not_as_published_never_leaves() -> None:
    sent = answer(Downloads(call, MemoryPool(1 << 30)), File(LONG, damaged=0))
    assert not sent.whole
    assert len(sent.body) < int(sent.headers["content-length"]) == len(LONG)


def test_short_damaged_file_is_corrupt_data() -> None:
    with pytest.raises(CorruptData):
        answer(Downloads(call, MemoryPool(1 << 30)), File(b"abc", damaged=0))


def test_the_damaged_member_of_many_is_found() -> None:
    sent = answer(Downloads(call, MemoryPool(1 << 30)), File(LONG, b"abc", LONG, damaged=1))
    assert not sent.whole
    assert sent.body == LONG


def test_a_range_over_whole_segments_is_verified_as_well() -> None:
    with pytest.raises(CorruptData):
        answer(
            Downloads(call, MemoryPool(1 << 30)), File(b"abc", b"def", b"ghi", damaged=1), range="bytes=1-"
        )


def test_a_range_within_a_segment_is_read_alone() -> None:
    file = File(LONG)
    sent = answer(Downloads(call, MemoryPool(1 << 30)), file, range="bytes=5000000-5000009")
    assert (sent.status, sent.body) == (206, LONG[5_000_000:5_000_010])
    assert file.read == 10


def test_several_ranges_come_with_the_digest_of_all_that_is_sent() -> None:
    sent = answer(Downloads(call, MemoryPool(1 << 30)), File(LONG), range="bytes=0-9,5000000-5000009,-3")
    digest = hashlib.sha256(sent.body).digest()
    assert sent.status == 206
    assert len(sent.body) == int(sent.headers["content-length"])
    assert digest_field(digest) == sent.headers["content-digest"]


def test_no_more_is_held_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_HELD_BYTES", 1 * MIB)
    downloads = Downloads(call, MemoryPool(1 << 30))
    short = answer(downloads, File(LONG), range="bytes=0-1000000")
    long = answer(downloads, File(LONG), range="bytes=0-1999999")
    assert "content-digest" in short.headers
    assert "content-digest" not in long.headers
    assert long.body == LONG[:2_000_000]
    assert "content-digest" in answer(downloads, File(LONG), range="bytes=0-1000000").headers


def test_download_charges_and_releases_memory() -> None:
    memory = MemoryPool(16 * MIB)
    other = memory.share()
    other.charge(9 * MIB)
    downloads = Downloads(call, memory)
    answer(downloads, File(LONG))  # as it is read: less than a part of it
    with pytest.raises(Overloaded):
        answer(downloads, File(LONG[: 8 * MIB]))  # read first
    assert memory.used == 9 * MIB
    other.end()
    assert "content-digest" in answer(downloads, File(LONG[: 8 * MIB])).headers
    assert memory.used == 0


def test_head_and_304_take_no_memory() -> None:
    memory = MemoryPool(16 * MIB)
    memory.share().charge(16 * MIB)
    assert answer(Downloads(call, memory), File(LONG), "HEAD").status == 200
    assert answer(Downloads(call, memory), File(LONG), if_none_match='"tag"').status == 304


def test_refused_file_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_HELD_BYTES", 4)
    downloads = Downloads(call, MemoryPool(1 << 30))
    for _ in range(3):
        with pytest.raises(CorruptData):
            answer(downloads, File(b"abc", damaged=0))


def test_head_reads_nothing_and_knows_no_range() -> None:
    file = File(LONG)
    sent = answer(Downloads(call, MemoryPool(1 << 30)), file, "HEAD", range="bytes=0-1")
    assert (sent.status, sent.body, file.read) == (200, b"", 0)
    assert sent.headers["content-length"] == str(len(LONG))


def test_an_empty_file_is_sent() -> None:
    assert answer(Downloads(call, MemoryPool(1 << 30)), File(b"")).whole


@pytest.mark.parametrize("name", ['a"b', "a\r\nSet-Cookie: x", "naïve", "a/b", "", "a\\b", "a;b"])
def test_a_name_that_would_break_the_header_never_gets_there(name: str) -> None:
    download = Download(File(b"x"), name, "text/plain", "tag", None, immutable=True)
    with pytest.raises(ValueError, match="no name"):
        asyncio.run(Downloads(call, MemoryPool(1 << 30)).answer(request_of("GET"), download))
