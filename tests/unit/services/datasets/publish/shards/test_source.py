"""The records of a shard: those that count, in order, and refused where they are not as counted."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.domain.sharding.shard_plan import ShardPlan
from app.errors import CorruptData
from app.runtime.budget import Budget
from app.services.datasets.pieces.pieces import Piece, SplitPieces, StoredPiece
from app.services.datasets.publish.shards.source import ShardSource, iter_piece_blocks
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.tfrecord_frames import frame


@dataclass(frozen=True)
class Marked:
    """A `TakenRows` that says so outright."""

    marks: tuple[bool, ...]
    count: int

    @classmethod
    def of(cls, *marks: bool) -> "Marked":
        return cls(marks, sum(marks))

    def mask(self, block: Any, first: int) -> NDArray[np.bool_]:
        return np.array(self.marks[first : first + block.num_records], np.bool_)


def stored(store: ObstoreStore, index: int, payloads: list[bytes], taken: Marked | None) -> StoredPiece:
    data = b"".join(map(frame, payloads))
    store.put(f"part/{index}", data)
    return StoredPiece(f"part/{index}", 0, Piece.of(data, len(payloads)), taken)


def payloads_of(source: ShardSource, store: ObstoreStore) -> list[bytes]:
    found = []
    for run in source.runs(store, Budget()):
        bounds = [0, *run.ends.tolist()]
        assert len(run.data) == bounds[-1]
        found += [bytes(run.data[begin + 12 : end - 4]) for begin, end in pairwise(bounds)]
    return found


marks = st.none() | st.lists(st.booleans(), min_size=1, max_size=8)


@given(
    pieces=st.lists(marks, min_size=1, max_size=6), bounds=st.tuples(st.integers(0, 30), st.integers(0, 30))
)
@settings(max_examples=50, deadline=None)
def test_a_shard_takes_the_records_that_count(
    pieces: list[list[bool] | None], bounds: tuple[int, int]
) -> None:
    store = open_store("memory://")
    expected: list[bytes] = []
    split = []
    for index, of_piece in enumerate(pieces):
        payloads = [bytes([index, row]) * (row * 7) for row in range(len(of_piece or [1, 2, 3]))]
        expected += [p for p, mark in zip(payloads, of_piece or [True] * 3, strict=True) if mark]
        if of_piece is None or any(of_piece):
            split.append(stored(store, index, payloads, None if of_piece is None else Marked.of(*of_piece)))
    inputs = SplitPieces(split)
    assert inputs.num_records == len(expected)
    start, stop = sorted(min(bound, len(expected)) for bound in bounds)
    source = ShardSource.of(ShardPlan("train", "file", start, stop), inputs)
    assert payloads_of(source, store) == expected[start:stop]


def test_the_bytes_of_a_piece_are_shared_out_by_count() -> None:
    store = open_store("memory://")
    piece = stored(store, 0, [b"x" * 4] * 5, Marked.of(True, False, False, True, False))
    assert piece.piece.size == 100
    assert SplitPieces([piece]).num_bytes == 40
    assert SplitPieces([stored(store, 0, [b"x" * 4] * 5, None)]).num_bytes == 100


@pytest.mark.parametrize("count", [1, 3])
def test_rows_that_count_otherwise_than_noted_are_corrupt(count: int) -> None:
    store = open_store("memory://")
    first = stored(store, 0, [b"a", b"b", b"c"], Marked((True, True, False), count))
    second = stored(store, 1, [b"d", b"e", b"f"], None)
    with pytest.raises(CorruptData):
        payloads_of(ShardSource((first, second), 0, count + 3), store)


def test_records_beyond_what_was_counted_are_corrupt() -> None:
    store = open_store("memory://")
    data = frame(b"a") + frame(b"b")
    store.put("part", data)
    pieces = [StoredPiece("part", 0, Piece.of(data, 1))]
    with pytest.raises(CorruptData, match="more records"):
        list(iter_piece_blocks(store, pieces, Budget()))


def test_a_piece_block_begins_where_its_piece_does() -> None:
    store = open_store("memory://")
    pieces = [stored(store, 0, [b"a", b"b"], None), stored(store, 1, [b"c"], None)]
    big = frame(b"x" * 100)
    store.put("big", big)
    cut = [Piece.of(big[:60], 1), Piece.of(big[60:], 0)]
    pieces += [StoredPiece("big", 0, cut[0]), StoredPiece("big", 60, cut[1]), stored(store, 2, [b"d"], None)]
    found = [(b.index, b.first, b.block.num_records) for b in iter_piece_blocks(store, pieces, Budget())]
    assert found == [(0, 0, 2), (1, 0, 1), (2, 0, 1), (4, 0, 1)]


def test_a_shard_without_records_reads_nothing() -> None:
    source = ShardSource.of(ShardPlan("train", "file", 0, 0), SplitPieces([]))
    assert payloads_of(source, open_store("memory://")) == []
