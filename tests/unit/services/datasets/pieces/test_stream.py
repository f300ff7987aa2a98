"""Pieces as they are read: verified, inflated, fetched ahead."""

import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256

import pytest

from app.domain.limits import MIB
from app.errors import StorageUnavailable
from app.services.datasets.pieces import stream as stream_module
from app.services.datasets.pieces.pieces import Piece, StoredPiece, stored_in
from app.services.datasets.pieces.stream import LostData, PieceStream, load_piece, load_run
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.faulty_store import FaultStore, Operation, When


@pytest.fixture
def store() -> ObstoreStore:
    return open_store("memory://")


@pytest.fixture
def pieces(store: ObstoreStore) -> list[StoredPiece]:
    """Fifty pieces of 1 to 50 bytes in one object, behind two bytes that are none of theirs."""
    data = [bytes([i]) * i for i in range(1, 51)]
    store.put("object", b"__" + b"".join(data))
    return list(stored_in("object", [Piece.of(item, 1) for item in data], 2))


def read_out(stream: PieceStream, n: int) -> Iterator[bytes]:
    while piece := stream.read(n):
        assert len(piece) <= n
        yield piece


@pytest.mark.parametrize("n", [1, 7, 1000])
@pytest.mark.parametrize("ahead", [True, False])
def test_a_stream_gives_all_pieces_in_order(
    store: ObstoreStore, pieces: list[StoredPiece], n: int, ahead: bool
) -> None:
    with ThreadPoolExecutor(4) as pool:
        stream = PieceStream(store, pieces, pool if ahead else None)
        assert b"".join(read_out(stream, n)) == store.get("object")[2:]
        assert stream.read(1) == b""


def test_a_view_is_what_is_left_of_a_piece_and_then_the_next(
    store: ObstoreStore, pieces: list[StoredPiece]
) -> None:
    stream = PieceStream(store, pieces[3:6])
    assert stream.read(1) == b"\4"
    views = [stream.read_view() for _ in range(4)]
    assert [bytes(view) for view in views] == [b"\4" * 3, b"\5" * 5, b"\6" * 6, b""]
    assert all(view.readonly for view in views)


def test_a_stream_reads_ahead_but_not_everything(
    store: ObstoreStore, pieces: list[StoredPiece], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_AHEAD_BYTES", 32)
    monkeypatch.setattr(stream_module, "_RUN_BYTES", 2)
    counting = FaultStore(store)
    with ThreadPoolExecutor(4) as pool:
        PieceStream(counting, pieces, pool).read(1)
    assert 1 < len(counting.requests) <= 17


def test_adjacent_blocks_are_one_request(store: ObstoreStore, pieces: list[StoredPiece]) -> None:
    store.put("other", store.get("object"))
    others = [replace(piece, key="other") for piece in pieces]
    counting = FaultStore(store)
    wanted = [*pieces[3:6], *others[:4], *pieces[7:9], pieces[2]]
    assert b"".join(read_out(PieceStream(counting, wanted), 1000)) == b"".join(
        bytes([stored.piece.size]) * stored.piece.size for stored in wanted
    )
    assert [key for _, key in counting.requests] == ["object", "other", "object", "object"]


def test_a_long_read_is_several_requests(
    store: ObstoreStore, pieces: list[StoredPiece], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_AHEAD_BYTES", 200)
    monkeypatch.setattr(stream_module, "_RUN_BYTES", 100)
    counting = FaultStore(store)
    assert b"".join(read_out(PieceStream(counting, pieces), 1000)) == store.get("object")[2:]
    assert 13 <= len(counting.requests) <= 26


@pytest.mark.parametrize("ahead", [True, False])
def test_large_pieces_that_are_held_do_not_change(
    store: ObstoreStore, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_AHEAD_BYTES", 4 * MIB)
    data = [bytes([i]) * (MIB + 5000 + i) for i in range(12)]
    store.put("object", b"".join(data))
    large = list(stored_in("object", [Piece.of(item, 1) for item in data]))
    with ThreadPoolExecutor(4) as pool:
        stream = PieceStream(store, large, pool if ahead else None)
        views = [stream.read_view() for _ in range(6)]
        held = views[::2]
        del views
        rest = [bytes(view) for view in iter(stream.read_view, b"")]
    assert [bytes(view) for view in held] == data[:6:2]
    assert rest == data[6:]


@pytest.mark.parametrize("damage", [lambda data: b"?" + data[1:], lambda data: data[:-1]])
def test_a_large_piece_is_verified_too(store: ObstoreStore, damage: Callable[[bytes], bytes]) -> None:
    data = bytes(2 * MIB)
    store.put("key", damage(data))
    with pytest.raises(LostData, match="SHA-256"):
        PieceStream(store, [StoredPiece("key", 0, Piece.of(data, 1))]).read(1)


def test_of_a_damaged_run_only_the_piece_at_fault_is_read_again(
    store: ObstoreStore, pieces: list[StoredPiece]
) -> None:
    class Damaging(FaultStore):
        def get_range(self, key: str, offset: int, length: int) -> bytes:
            data = super().get_range(key, offset, length)
            return data if len(self.requests) > 1 else data[:4] + b"?" + data[5:]

    damaging = Damaging(store)
    assert [bytes(data) for data in load_run(damaging, pieces[:5])] == [bytes([i]) * i for i in range(1, 6)]
    assert len(damaging.requests) == 2


def test_a_run_of_a_missing_object_is_lost(store: ObstoreStore, pieces: list[StoredPiece]) -> None:
    with pytest.raises(LostData, match="missing"):
        load_run(store, [replace(piece, key="none") for piece in pieces[:2]])


@pytest.mark.parametrize("content", [b"", b"ab", b"abd"])
def test_other_bytes_are_corrupt(store: ObstoreStore, content: bytes) -> None:
    store.put("key", content)
    with pytest.raises(LostData, match="key"):
        load_piece(store, StoredPiece("key", 0, Piece.of(b"abc", 1)))


def test_missing_bytes_are_corrupt(store: ObstoreStore) -> None:
    with pytest.raises(LostData, match="missing"):
        load_piece(store, StoredPiece("key", 0, Piece.of(b"abc", 1)))


def test_bytes_that_were_damaged_on_the_way_are_read_again(
    store: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Damaging(FaultStore):
        left = 1

        def get_range(self, key: str, offset: int, length: int) -> bytes:
            data = super().get_range(key, offset, length)
            self.left -= 1
            return data if self.left < 0 else data[:-1] + b"?"

    store.put("key", b"abc")
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    assert load_piece(Damaging(store), StoredPiece("key", 0, Piece.of(b"abc", 1))) == b"abc"
    assert [wait for wait in waits if wait] == [0.2]


@pytest.mark.parametrize("handed_out", [b"", b"xxab"])
def test_bytes_that_the_store_has_but_does_not_hand_out_are_not_lost(
    store: ObstoreStore, handed_out: bytes
) -> None:
    class Short(FaultStore):
        def get_range(self, key: str, offset: int, length: int) -> bytes:
            return handed_out[offset:]

    store.put("key", b"xxabc")
    with pytest.raises(StorageUnavailable):
        load_piece(Short(store), StoredPiece("key", 2, Piece.of(b"abc", 1)))


def test_a_store_that_is_down_is_not_corrupt(store: ObstoreStore) -> None:
    def fault(when: When, operation: Operation, key: str) -> None:
        raise StorageUnavailable("down")

    with pytest.raises(StorageUnavailable):
        load_piece(FaultStore(store, fault), StoredPiece("key", 0, Piece.of(b"abc", 1)))


def compressed(*chunks: bytes, wbits: int) -> tuple[bytes, list[Piece]]:
    """One stream over all chunks, a piece for each."""
    deflater = zlib.compressobj(6, zlib.DEFLATED, wbits)
    flushes = [zlib.Z_FULL_FLUSH] * (len(chunks) - 1) + [zlib.Z_FINISH]
    blocks = [
        deflater.compress(chunk) + deflater.flush(mode) for chunk, mode in zip(chunks, flushes, strict=True)
    ]
    pieces = [
        Piece(len(block), sha256(block).hexdigest(), 1, len(chunk))
        for block, chunk in zip(blocks, chunks, strict=True)
    ]
    return b"".join(blocks), pieces


@pytest.mark.parametrize("wbits", [31, 15], ids=["gzip", "zlib"])
@pytest.mark.parametrize(
    "chunks",
    [(b"one",), (b"one", b"two" * 5000, b"three"), (b"one", bytes(1 << 20), b""), (b"",), (b"", b"x")],
    ids=["single", "three", "empty end", "nothing", "empty beginning"],
)
def test_each_piece_of_a_compressed_shard_inflates_alone(wbits: int, chunks: tuple[bytes, ...]) -> None:
    store = open_store("memory://")
    data, pieces = compressed(*chunks, wbits=wbits)
    assert zlib.decompress(data, wbits) == b"".join(chunks)
    store.put("d/shard", data)
    stored = list(stored_in("d/shard", pieces))
    assert [load_piece(store, piece) for piece in reversed(stored)] == list(reversed(chunks))
    assert [piece.num_bytes for piece in pieces] == [len(chunk) for chunk in chunks]


def test_a_stored_piece_is_this_to_the_byte() -> None:
    first = bytes.fromhex("789c4a4c4a06000000ffff")
    last = bytes.fromhex("4b494d0300") + zlib.adler32(b"abcdef").to_bytes(4, "big")
    assert zlib.decompress(first + last) == b"abcdef"
    store = open_store("memory://")
    store.put("d/shard", first + last)
    pieces = [
        Piece(len(first), sha256(first).hexdigest(), 1, 3),
        Piece(len(last), sha256(last).hexdigest(), 1, 3),
    ]
    assert [load_piece(store, piece) for piece in stored_in("d/shard", pieces)] == [b"abc", b"def"]


@pytest.mark.parametrize("raw_size", [0, 1, 14_999, 15_001, 1 << 40])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_piece_that_inflates_to_another_size_is_lost(raw_size: int, at: int) -> None:
    store = open_store("memory://")
    data, pieces = compressed(b"two" * 5000, b"two" * 5000, b"two" * 5000, wbits=31)
    store.put("d/shard", data)
    stored = list(stored_in("d/shard", pieces))[at]
    wrong = replace(stored, piece=replace(stored.piece, raw_size=raw_size))
    with pytest.raises(LostData, match="does not inflate"):
        load_piece(store, wrong)


def test_a_piece_that_is_not_deflated_is_lost() -> None:
    store = open_store("memory://")
    store.put("d/shard", b"not deflated")
    with pytest.raises(LostData, match="does not inflate"):
        load_piece(store, StoredPiece("d/shard", 0, replace(Piece.of(b"not deflated", 1), raw_size=3)))


def test_bytes_after_the_last_block_must_be_a_trailer() -> None:
    store = open_store("memory://")
    deflated = bytes.fromhex("4b494d0300")
    for tail, fine in (
        (b"", True),
        (b"1234", True),
        (b"12345678", True),
        (b"12345", False),
        (b"123456789", False),
    ):
        data = b"?" + deflated + tail
        store.put("d/shard", data)
        piece = StoredPiece("d/shard", 1, replace(Piece.of(data[1:], 1), raw_size=3))
        if fine:
            assert load_piece(store, piece) == b"def"
        else:
            with pytest.raises(LostData):
                load_piece(store, piece)
