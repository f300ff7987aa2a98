"""Validation: whatever is changed in a version is found, and named to the record and the byte."""

import gzip
import json
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pytest

from app.domain.compression import Compression
from app.domain.limits import MIB, Limits
from app.domain.manifest import FileEntry, ShardEntry
from app.errors import NotFound, Overloaded, StorageUnavailable
from app.runtime.budget import Budget
from app.runtime.memory import MemoryPool
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.pieces.pieces import Piece
from app.services.datasets.validate import range_stream
from app.services.datasets.validate.problems import Problem, Problems
from app.services.datasets.validate.shard_check import ShardCheck
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.checksummed_json import changed
from tests.support.dataset_rows import SCHEMA, Client
from tests.support.faulty_store import FaultStore, Operation, When
from tests.support.tfrecord_frames import frame

LAYOUT = Layout("d", 1)
FIRST, SECOND = (f"d-train.tfrecord-0000{index}-of-00002" for index in range(2))


@pytest.fixture
def store() -> ObstoreStore:
    return open_store("memory://")


@pytest.fixture
def client(store: ObstoreStore) -> Client:
    """Version 1.0.0 has two shards of three rows."""
    client = Client(store)
    client.append(range(6))
    client.publish(PublishOptions(num_shards=2))
    return client


def validate(client: Client) -> dict[str, Any]:
    # By a replica that remembers nothing.
    return {**Client(client.store).datasets.validate("d", "latest", Budget()).to_json()}


def problems(client: Client) -> list[tuple[str, str, int | None, int | None]]:
    report = validate(client)
    assert report["valid"] is (not report["problems"])
    return [(item["code"], item["file"], item["record"], item["offset"]) for item in report["problems"]]


def change(store: ObstoreStore, file: str, make: Callable[[bytes], bytes]) -> None:
    key = LAYOUT.file(1, file)
    store.put(key, make(store.get(key)))


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]


def size_of(store: ObstoreStore, file: str) -> int:
    return store.head(LAYOUT.file(1, file)).size


def test_a_version_as_it_was_published_is_valid(client: Client, store: ObstoreStore) -> None:
    assert validate(client) == {
        "version": "1.0.0",
        "valid": True,
        "num_records": 6,
        "num_bytes": size_of(store, FIRST) + size_of(store, SECOND),
        "num_shards": 2,
        "problems": [],
        "truncated": False,
    }


@pytest.mark.parametrize("record", [0, 1, 2])
@pytest.mark.parametrize(
    ("field", "code"), [(0, "bad_length"), (8, "bad_length"), (12, "bad_payload"), (-1, "bad_payload")]
)
def test_a_flipped_bit_is_named_by_record_and_offset(
    client: Client, store: ObstoreStore, record: int, field: int, code: str
) -> None:
    # x = 0 is shorter than the others: a varint, whose 0 is there all the same.
    size = size_of(store, SECOND) // 3
    assert size * 3 == size_of(store, SECOND)
    at = record * size + (field if field >= 0 else size + field)
    change(store, SECOND, flipped(at))
    assert problems(client) == [
        (code, SECOND, record, record * size),
        ("wrong_checksum", SECOND, 0, 0),
        ("wrong_count", SECOND, None, None),
    ]


@pytest.mark.parametrize("cut", [1, 4, 12, 20])
def test_a_shard_cut_short(client: Client, store: ObstoreStore, cut: int) -> None:
    size = size_of(store, FIRST)
    change(store, FIRST, lambda data: data[:-cut])
    found = problems(client)
    assert found[0] == ("wrong_size", FIRST, None, size - cut)
    assert found[1] == ("truncated", FIRST, 2, size // 3 * 2)
    assert [code for code, *_ in found[2:]] == ["wrong_checksum", "wrong_count"]


def test_a_shard_cut_at_a_record_looks_whole_but_is_not(client: Client, store: ObstoreStore) -> None:
    size = size_of(store, FIRST) // 3
    change(store, FIRST, lambda data: data[: 2 * size])
    codes = [code for code, *_ in problems(client)]
    assert codes == ["wrong_size", "wrong_checksum", "wrong_count", "wrong_index", "wrong_record_index"]


def test_garbage_after_a_shard_is_found(client: Client, store: ObstoreStore) -> None:
    size = size_of(store, FIRST)
    change(store, FIRST, lambda data: data + b"garbage")
    assert problems(client) == [
        ("wrong_size", FIRST, None, size),
        ("truncated", FIRST, 3, size),
        ("wrong_checksum", FIRST, None, None),
    ]


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_compressed_version(store: ObstoreStore, compression: Compression) -> None:
    client = Client(store)
    client.append(range(6))
    client.publish(PublishOptions(compression=compression))
    (file,) = [shard.file for shard in client.datasets.manifest("d", "latest").splits["train"].shards]
    assert problems(client) == []
    change(store, file, flipped(size_of(store, file) - 1))
    assert {code for code, *_ in problems(client)} == {"invalid_compression", "wrong_checksum"}


def test_two_shards_that_changed_places(client: Client, store: ObstoreStore) -> None:
    first, second = (store.get(LAYOUT.file(1, file)) for file in (FIRST, SECOND))
    change(store, FIRST, lambda _: second)
    change(store, SECOND, lambda _: first)
    assert problems(client) == [("wrong_checksum", FIRST, 0, 0), ("wrong_checksum", SECOND, 0, 0)]


@pytest.mark.parametrize("file", [FIRST, "features.json", "schema.pbtxt", "_index.json", "dataset_info.json"])
def test_a_file_that_is_missing(client: Client, store: ObstoreStore, file: str) -> None:
    store.delete(LAYOUT.file(1, file))
    found = problems(client)
    assert ("missing_file", file, None, None) in found
    assert {name for _, name, *_ in found} == {file}


@pytest.mark.parametrize("file", ["features.json", "schema.pbtxt", "_index.json", "dataset_info.json"])
def test_a_side_file_that_changed(client: Client, store: ObstoreStore, file: str) -> None:
    change(store, file, flipped(3))
    assert ("wrong_checksum", file, None, None) in problems(client)


def test_a_side_file_that_says_something_else_than_the_manifest(store: ObstoreStore) -> None:
    client = Client(store)
    client.append([1])
    client.publish()
    key = LAYOUT.manifest(1)
    manifest = json.loads(store.get(key))
    other = b"{}"
    store.put(LAYOUT.file(1, "features.json"), other)
    for entry in manifest["files"]:
        if entry["file"] == "features.json":
            entry |= {"num_bytes": len(other), "sha256": sha256(other).hexdigest()}
    store.put(key, changed(store.get(key), files=manifest["files"]))
    assert problems(client) == [("unexpected_content", "features.json", None, None)]


def test_a_version_that_is_not_there(client: Client) -> None:
    with pytest.raises(NotFound) as caught:
        client.datasets.validate("d", "1.1.0", Budget())
    assert caught.value.code == "version_not_found"


def test_truncated_read_is_not_a_verdict(store: ObstoreStore) -> None:
    class Short(FaultStore):
        def get_range(self, key: str, offset: int, length: int) -> bytes:
            data = super().get_range(key, offset, length)
            return data[:-1] if ".tfrecord" in key else data

    client = Client(Short(store))
    client.append([1])
    client.publish()
    with pytest.raises(StorageUnavailable):
        client.datasets.validate("d", "latest", Budget())


def test_failing_store_is_not_a_verdict(store: ObstoreStore) -> None:
    faulty = FaultStore(store)
    client = Client(faulty)
    client.append([1])
    client.publish()

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "head" and ".tfrecord" in key:
            raise StorageUnavailable("no answer")

    faulty.fault = fault
    with pytest.raises(StorageUnavailable):
        client.datasets.validate("d", "latest", Budget())


def example(value: int) -> bytes:
    """{"x": value} for values below 128."""
    return frame(bytes.fromhex("0a0c0a0a0a017812051a030a01") + bytes([value]))


GOOD = [example(value) for value in range(10)]
SIZE = len(GOOD[0])
#: An Example whose x is a float list.
FLOAT = frame(bytes.fromhex("0a0f0a0d0a0178120812060a040000803f"))


def entry_of(data: bytes, num_records: int, lines: bytes | None = None) -> ShardEntry:
    index = None if lines is None else FileEntry("_s.idx", len(lines), sha256(lines).hexdigest())
    return ShardEntry("s", num_records, len(data), sha256(data).hexdigest(), index)


def check(
    data: bytes,
    num_records: int,
    *,
    pieces: list[Piece] | None = None,
    compression: Compression = "none",
    lines: bytes | None = None,
    entry: ShardEntry | None = None,
) -> tuple[list[Problem], bool]:
    """What is found wrong with a shard that is on record as it is, unless `entry` says otherwise."""
    store = open_store("memory://")
    store.put("v/s", data)
    if lines is not None:
        store.put("v/_s.idx", lines)
    entry = entry or entry_of(data, num_records, lines)
    found = Problems()
    with ThreadPoolExecutor(2) as pool:
        ShardCheck(entry, pieces or (), SCHEMA, compression, found).run(store, "v", pool)
    return found.found, found.truncated


def codes(found: tuple[list[Problem], bool]) -> list[tuple[str, int | None, int | None]]:
    return [(problem.code, problem.record, problem.offset) for problem in found[0]]


BODY = b"".join(GOOD)


def test_records_that_do_not_fit_the_schema_are_named_one_by_one() -> None:
    body = GOOD[0] + FLOAT + GOOD[1] + frame(b"\xff") + GOOD[2]
    found = check(body, 5)
    assert [(item.record, item.offset) for item in found[0]] == [
        (1, SIZE),
        (3, 2 * SIZE + len(FLOAT)),
    ]
    assert [item.code for item in found[0]] == ["schema_conflict", "malformed_example"]


def test_only_the_first_thousand_problems_are_named() -> None:
    found, truncated = check(FLOAT * 1001, 1001)
    assert (len(found), truncated) == (1000, True)
    assert check(FLOAT * 1000, 1000)[1] is False


@pytest.mark.parametrize("range_bytes", [7, 1 << 20])
def test_pieces_are_held_to_their_checksums_and_counts(
    monkeypatch: pytest.MonkeyPatch, range_bytes: int
) -> None:
    monkeypatch.setattr(range_stream, "_RANGE_BYTES", range_bytes)
    pieces = [Piece.of(BODY[: 4 * SIZE], 4), Piece.of(BODY[4 * SIZE :], 6)]
    assert codes(check(BODY, 10, pieces=pieces)) == []
    bad = [pieces[0], Piece(6 * SIZE, "0" * 64, 6)]
    assert codes(check(BODY, 10, pieces=bad)) == [("wrong_index", None, None)]
    miscounted = [Piece.of(BODY[: 4 * SIZE], 5), Piece.of(BODY[4 * SIZE :], 5)]
    assert codes(check(BODY, 10, pieces=miscounted)) == [("wrong_index", None, None)] * 2
    short = [pieces[0]]
    assert codes(check(BODY, 10, pieces=short)) == [("wrong_index", None, None)]
    damaged = flipped(7 * SIZE + 12)(BODY)
    assert codes(check(damaged, 10, pieces=pieces, entry=entry_of(BODY, 10))) == [
        ("bad_payload", 7, 7 * SIZE),
        ("wrong_checksum", 4, 4 * SIZE),
        ("wrong_count", None, None),
    ]


def test_after_damage_of_unknown_extent_records_are_counted_on_from_the_next_piece() -> None:
    pieces = [Piece.of(BODY[: 4 * SIZE], 4), Piece.of(BODY[4 * SIZE :], 6)]
    damaged = bytearray(BODY)
    damaged[SIZE : 3 * SIZE] = b"\1" * (2 * SIZE)
    damaged[8 * SIZE] ^= 16
    found = codes(check(bytes(damaged), 10, pieces=pieces, entry=entry_of(BODY, 10)))
    assert found[:2] == [("bad_length", 1, SIZE), ("bad_length", 8, 8 * SIZE)]


def lines_of(count: int) -> bytes:
    return b"".join(b"%d %d\n" % (index * SIZE, SIZE) for index in range(count))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (lines_of(10), []),
        (lines_of(9), [("wrong_record_index", 9, len(lines_of(9)))]),
        (lines_of(11), [("wrong_record_index", 10, len(lines_of(10)))]),
        (
            lines_of(10).replace(b"\n%d " % (2 * SIZE), b"\n%d " % (2 * SIZE + 1)),
            [("wrong_record_index", 2, len(lines_of(2)))],
        ),
        (b"", [("wrong_record_index", 0, 0)]),
    ],
)
def test_the_index_of_records_is_compared_line_by_line(
    lines: bytes, expected: list[tuple[str, int | None, int | None]]
) -> None:
    assert codes(check(BODY, 10, lines=lines)) == expected


def test_an_index_of_records_that_is_missing_or_changed() -> None:
    right = entry_of(BODY, 10, lines_of(10))
    assert codes(check(BODY, 10, entry=right)) == [("missing_file", None, None)]
    changed = lines_of(10)[:-2] + b"9\n"
    assert codes(check(BODY, 10, lines=changed, entry=right)) == [
        ("wrong_record_index", 9, len(lines_of(9))),
        ("wrong_checksum", None, None),
    ]


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_shards(compression: Compression) -> None:
    compress = gzip.compress if compression == "gzip" else zlib.compress
    data = compress(BODY)
    pieces = [Piece(len(data), sha256(data).hexdigest(), 10, len(BODY))]
    assert codes(check(data, 10, pieces=pieces, compression=compression)) == []
    behind = data + b"behind"
    assert codes(check(behind, 10, compression=compression)) == [("trailing_bytes", None, len(BODY))]
    assert codes(check(data[:-2], 10, compression=compression)) == [("truncated", None, len(BODY))]
    wrong = flipped(len(data) - 5 if compression == "gzip" else len(data) - 1)(data)
    assert [code for code, *_ in codes(check(wrong, 10, compression=compression))] == ["invalid_compression"]
    inside = compress(flipped(5 * SIZE + 12)(BODY))
    assert codes(check(inside, 10, compression=compression)) == [
        ("bad_payload", 5, 5 * SIZE),
        ("wrong_count", None, None),
    ]


def test_gzip_of_two_members_is_reported() -> None:
    data = gzip.compress(BODY) + gzip.compress(b"")
    assert codes(check(data, 10, compression="gzip")) == [("several_members", None, None)]


def test_damage_in_too_many_places_ends_the_look_for_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.domain.losses.MAX_RANGES", 2)
    bad = flipped(12)(GOOD[0])
    found = check(bad * 4, 4)
    assert [code for code, *_ in codes(found)] == ["bad_payload"] * 2 + ["too_damaged", "wrong_count"]


def test_without_memory_nothing_is_read() -> None:
    client = Client(open_store("memory://"))
    client.append([1], pad=20 * MIB)
    client.publish()
    pool = MemoryPool(160 * MIB)
    other, share = pool.share(), pool.share()
    other.charge(100 * MIB)
    with pytest.raises(Overloaded):  # 40 MiB, and three times the record
        client.datasets.validate("d", "latest", Budget(Limits(), share))
    other.end()
    assert client.datasets.validate("d", "latest", Budget(Limits(), share)).to_json()["valid"] is True
    share.end()
    assert pool.used == 0
