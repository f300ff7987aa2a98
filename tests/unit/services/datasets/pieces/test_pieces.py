"""Pieces: what is known of them, and found by counting."""

from hashlib import sha256

import pytest

from app.services.datasets.pieces.pieces import (
    Piece,
    SplitPieces,
    StoredPiece,
    longest_record,
    stored_in,
)


def test_a_piece_knows_its_size_its_digest_and_its_records() -> None:
    piece = Piece.of(b"abc", 2)
    assert piece == Piece(3, sha256(b"abc").hexdigest(), 2)
    assert piece.to_json() == [3, sha256(b"abc").hexdigest(), 2]
    assert Piece.from_json(piece.to_json()) == piece


def test_pieces_in_one_object_follow_one_another() -> None:
    pieces = [Piece.of(b"abc", 1), Piece.of(b"de", 0)]
    assert list(stored_in("key", pieces, 7)) == [
        StoredPiece("key", 7, pieces[0]),
        StoredPiece("key", 10, pieces[1]),
    ]


def test_a_split_finds_its_pieces_by_counting() -> None:
    pieces = list(stored_in("object", [Piece.of(bytes([i]) * i, 1) for i in range(1, 51)]))
    found, skip = SplitPieces(pieces).covering(10, 12)
    assert (list(found), skip) == (pieces[10:12], 0)


@pytest.mark.parametrize(
    ("pieces", "longest"),
    [
        ([], 0),
        ([Piece(4, "", 1), Piece(4, "", 2)], 0),
        ([Piece(4, "", 1), Piece(3, "", 0), Piece(9, "", 5)], 7),
        ([Piece(4, "", 1), Piece(3, "", 0), Piece(4, "", 1), Piece(2, "", 0, 40), Piece(1, "", 0)], 45),
    ],
    ids=["none", "short", "long", "inflated"],
)
def test_the_longest_record_is_known_by_the_pieces_that_carry_it_on(
    pieces: list[Piece], longest: int
) -> None:
    assert longest_record(pieces) == longest
    assert SplitPieces(list(stored_in("key", pieces))).longest_record == longest
