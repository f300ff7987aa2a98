"""Slots: their bytes, and that one range request reads a header."""

from dataclasses import replace

import pytest

from app.errors import CorruptData
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.slot import (
    DEAD_BYTES,
    Commit,
    Dead,
    parse_commits,
    parse_slot,
    read_slot,
    serialize_commits,
)
from app.services.datasets.pieces.pieces import Piece, StoredPiece
from app.storage.object_store import ObjectNotFound
from app.storage.obstore_store import open_store
from tests.support.checksummed_json import resealed, sealed
from tests.support.faulty_store import FaultStore

LAYOUT = Layout("d", 1)
ID = "0123456789abcdef" * 2
COMMIT = Commit(
    append_id=ID,
    nonce="n",
    attempt="a",
    split="train",
    digest="dd",
    num_records=2,
    num_bytes=5,
    time=17,
    pieces=(Piece(3, "s1", 1), Piece(2, "s2", 1)),
    writer="w",
)
HEADER = (
    b'{"fate":"commit","nonce":"n","attempt":"a","split":"train","digest":"dd","num_records":2,'
    b'"num_bytes":5,"time":17,"writer":"w","inline":%s,"pieces":[[3,"s1",1],[2,"s2",1]]'
)
IN_PARTS = HEADER % b"false" + b',"crc32":"434076d7"}\n'
INLINE = HEADER % b"true" + b',"crc32":"e088c458"}\n'


def test_a_slot_that_names_parts() -> None:
    assert COMMIT.serialize() == IN_PARTS
    assert parse_slot(ID, IN_PARTS, "key") == COMMIT


def test_a_slot_that_holds_its_records() -> None:
    data = INLINE + b"bytes\nwith\nlines"
    assert COMMIT.serialize(b"bytes\nwith\nlines") == data
    assert parse_slot(ID, data, "key") == replace(COMMIT, inline_at=len(INLINE))


def test_parts_lie_under_the_attempt() -> None:
    assert COMMIT.parts(LAYOUT) == [f"d/_g1/parts/{ID}/a/0", f"d/_g1/parts/{ID}/a/1"]
    assert COMMIT.stored_pieces(LAYOUT) == (
        StoredPiece(f"d/_g1/parts/{ID}/a/0", 0, COMMIT.pieces[0]),
        StoredPiece(f"d/_g1/parts/{ID}/a/1", 0, COMMIT.pieces[1]),
    )


def test_inline_records_follow_the_header() -> None:
    inline = replace(COMMIT, pieces=COMMIT.pieces[:1], inline_at=200)
    assert inline.parts(LAYOUT) == []
    assert inline.stored_pieces(LAYOUT) == (StoredPiece(f"d/_g1/slots/0/{ID}", 200, COMMIT.pieces[0]),)


def test_a_dead_slot() -> None:
    data = b'{"fate":"dead","nonce":"n","crc32":"831fe7b1"}\n'
    assert Dead("n").serialize() == data
    assert parse_slot(ID, data, "key") == Dead("n")


def test_a_header_is_read_by_range() -> None:
    store = FaultStore(open_store("memory://"))
    store.put(LAYOUT.slot(ID), COMMIT.serialize(b"x" * 200_000))
    store.requests.clear()
    slot = read_slot(store, LAYOUT, ID)
    assert isinstance(slot, Commit)
    assert store.requests == [("get_range", LAYOUT.slot(ID))]


def test_a_header_of_very_many_parts_is_read_whole() -> None:
    store = open_store("memory://")
    large = replace(COMMIT, pieces=tuple(Piece(16 << 20, "0" * 64, i) for i in range(2000)))
    store.put(LAYOUT.slot(ID), large.serialize())
    assert read_slot(store, LAYOUT, ID) == large


def test_no_slot_is_not_found() -> None:
    with pytest.raises(ObjectNotFound):
        read_slot(open_store("memory://"), LAYOUT, ID)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"{}\n",
        b'{"fate":',
        b'{"fate":"dead","nonce":"n"}\n',
        sealed(b'{"nonce":"n"}'),
        sealed(b'{"fate":"commit"}'),
        sealed(b'{"fate":"dead"}'),
    ],
)
def test_anything_else_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData, match="key"):
        parse_slot(ID, data, "key")


def test_the_inputs_of_a_plan_both_ways() -> None:
    commits = [COMMIT, replace(COMMIT, append_id="f" * 32, inline_at=300)]
    data = serialize_commits(commits)
    inline = b"f" * 32 + b" 300 " + HEADER % b"true" + b"}\n"
    assert data == f"{ID} - ".encode() + HEADER % b"false" + b"}\n" + inline
    assert parse_commits(data, "key") == commits


@pytest.mark.parametrize("sequence", [-(2**63), 0, 2**63 - 1])
def test_a_sequence_is_kept_in_the_slot_and_in_the_inputs(sequence: int) -> None:
    commit = replace(COMMIT, sequence=sequence)
    assert parse_slot(ID, commit.serialize(), "key") == commit
    assert parse_commits(serialize_commits([commit]), "key") == [commit]


def test_members_of_a_later_release_move_nothing() -> None:
    header = resealed(INLINE, b'"time":17', b'"time":17,"later":5')
    slot = parse_slot(ID, header + b"records", "key")
    assert slot == replace(COMMIT, inline_at=len(header))
    assert isinstance(slot, Commit)
    assert parse_commits(serialize_commits([slot]), "key") == [slot]


def test_pieces_may_say_more_one_day() -> None:
    header = resealed(IN_PARTS, b"[2,", b'[2,"s2",1,3,"crc"],[2,')
    slot = parse_slot(ID, header, "key")
    assert isinstance(slot, Commit)
    assert slot.pieces == (COMMIT.pieces[0], replace(COMMIT.pieces[1], raw_size=3), COMMIT.pieces[1])


def test_unknown_fate_is_corrupt_data() -> None:
    with pytest.raises(CorruptData, match="'merged'"):
        parse_slot(ID, resealed(IN_PARTS, b'"commit"', b'"merged"'), "key")


@pytest.mark.parametrize(
    "data", [b"x\n", b'0 - {"fate":"dead"}\n', f"{ID} x ".encode() + HEADER % b"true" + b"}\n"]
)
def test_other_inputs_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData, match="key"):
        parse_commits(data, "key")


def test_dead_slot_is_recognised_by_its_size() -> None:
    dead = Dead("0" * 32)
    data = dead.serialize()
    assert parse_slot(ID, data, "key") == dead
    assert len(data) <= DEAD_BYTES < len(COMMIT.serialize(b"records"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"num_records":', b'"num_records":-'),
        (b'"time":17', b'"time":1.5'),
        (b'"time":17', b'"time":true'),
        (b'"split":"', b'"split":null,"was":"'),
    ],
)
def test_a_header_with_values_of_other_types_is_corrupt(old: bytes, new: bytes) -> None:
    with pytest.raises(CorruptData, match="known form"):
        parse_slot(ID, resealed(IN_PARTS, old, new), "key")
