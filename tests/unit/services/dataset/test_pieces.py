"""Pieces: what is known of them, and found by counting."""

from hashlib import sha256

from app.services.dataset.pieces import Piece, SplitPieces, StoredPiece, stored_in


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
