"""Where a gzip shard may end a piece: everywhere; where it may end a member: nowhere but at its end.

tf.data inflates through a buffer of 256 KiB. A file of several members is read, but where one of them ends
just behind a multiple of that, TensorFlow reports a clean end of file and the rest is lost. The layouts
here are those at which that happens, with a flush where the member would have ended.
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Final

import pytest
import tensorflow as tf

from app.domain.compression import Compression
from app.services.datasets.publish.shards.seal import seal
from tests.support.shard_readers import inflate
from tests.support.tfrecord_frames import frame

#: TensorFlow's buffer: `input_buffer_size` in tsl/lib/io/zlib_compression_options.h.
BUFFER: Final = 262_144
BEHIND: Final = range(-2, 12)
COMPRESSIONS: Final[list[Compression]] = ["gzip", "zlib"]


def payloads(frames: bytes) -> list[bytes]:
    """What the frames hold; their checksums are TensorFlow's to verify here."""
    found, position = [], 0
    while position < len(frames):
        end = position + 12 + int.from_bytes(frames[position : position + 8], "little")
        found.append(frames[position + 12 : end])
        position = end + 4
    return found


#: Bytes that deflate cannot make smaller: it stores them, and so a size is met to the byte.
NOISE: Final = random.Random(0).randbytes(3 * BUFFER)
TAIL: Final = [frame(b"tail-%d" % number) for number in range(3)]


def records_of(path: Path, compression: str) -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path), compression)]


def sealed(runs: list[list[bytes]], compression: Compression) -> list[bytes]:
    cut = ((b"".join(run), len(run)) for run in runs)
    return [bytes(data) for data, _ in seal(cut, compression)]


def first_run(compression: Compression, end: int) -> list[bytes]:
    """Records whose piece, the first of its file, ends at the byte `end` of that file."""
    size = end - BUFFER // 100
    for _ in range(50):
        run = [frame(NOISE[: size // 2]), frame(NOISE[size // 2 : size])]
        missing = end - len(sealed([run, TAIL], compression)[0])
        if not missing:
            return run
        size += missing
    raise AssertionError(f"no piece ends at {end}")


def layouts(compression: Compression) -> Iterator[tuple[str, list[list[bytes]]]]:
    """Pieces that end around multiples of TensorFlow's buffer, with little and with much behind them."""
    much = [[frame(NOISE[:70_000])] * 3, TAIL]
    for multiple in (1, 2):
        for behind in BEHIND:
            run = first_run(compression, multiple * BUFFER + behind)
            yield f"{multiple}-{behind}-tail", [run, TAIL]
            yield f"{multiple}-{behind}-tails", [run, *([record] for record in TAIL)]
            yield f"{multiple}-{behind}-much", [run, *much]
    yield "tiny", [[frame(b"")]] * 200
    yield "tiny-then-much", [[frame(b"")], *much, [frame(b"")]]
    yield "none", []
    yield "one", [[frame(b"x")]]
    yield "inside-a-record", [[frame(NOISE)[:BUFFER]], [frame(NOISE)[BUFFER:], *TAIL]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layouts") / "shard"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_every_record_of_every_layout(path: Path, compression: Compression) -> None:
    num_layouts = 0
    for name, runs in layouts(compression):
        data = b"".join(sealed(runs, compression))
        raw = b"".join(record for run in runs for record in run)
        path.write_bytes(data)
        assert records_of(path, compression.upper()) == payloads(raw), name
        assert inflate(data, compression) == raw, name
        num_layouts += 1
    assert num_layouts == 2 * len(BEHIND) * 3 + 5


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_layouts_end_pieces_where_they_say(compression: Compression) -> None:
    found = set()
    for name, runs in layouts(compression):
        if name.endswith("-tails"):
            ends = list(accumulate(len(data) for data in sealed(runs, compression)))
            found.add(ends[0] - BUFFER if ends[0] < 1.5 * BUFFER else ends[0] - 2 * BUFFER)
    assert found == set(BEHIND)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_any_sizes_of_pieces(path: Path, compression: Compression) -> None:
    rng = random.Random(1)
    for _ in range(20):
        runs = [
            [frame(NOISE[: rng.choice([0, 1, 20, 5000, 60_000])]) for _ in range(rng.randrange(1, 8))]
            for _ in range(rng.randrange(1, 12))
        ]
        path.write_bytes(b"".join(sealed(runs, compression)))
        expected = payloads(b"".join(record for run in runs for record in run))
        assert records_of(path, compression.upper()) == expected


def two_members(behind: int) -> bytes:
    """Two gzip members, the first of which ends `behind` bytes after a multiple of the buffer."""
    size = BUFFER - 1000
    while True:
        first = gzip.compress(frame(NOISE[:size]), mtime=0)
        if len(first) == BUFFER + behind:
            return first + gzip.compress(b"".join(TAIL), mtime=0)
        size += BUFFER + behind - len(first)


@pytest.mark.parametrize("behind", BEHIND)
def test_two_members_lose_records_without_an_error_so_the_sweep_can_fail(path: Path, behind: int) -> None:
    path.write_bytes(two_members(behind))
    lost = 1 + len(TAIL) - len(records_of(path, "GZIP"))
    assert lost == (len(TAIL) if 1 <= behind <= 8 else 0)


def test_an_empty_member_loses_what_follows(path: Path) -> None:
    path.write_bytes(gzip.compress(b"", mtime=0) + gzip.compress(b"".join(TAIL), mtime=0))
    assert records_of(path, "GZIP") == []


def test_a_second_zlib_stream_is_not_read(path: Path) -> None:
    path.write_bytes(zlib.compress(TAIL[0]) + zlib.compress(TAIL[1]))
    assert records_of(path, "ZLIB") == [b"tail-0"]
