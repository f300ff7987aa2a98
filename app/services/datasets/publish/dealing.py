"""Dealing out: which of the rows that were appended to one split go to which of several.

The publisher counts once, and stores for each piece how many of its rows each split takes; executors
find a split's rows by adding up these counts, and deal again only what they read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....codecs.columns import Batch, Strings
from ....codecs.messages.framing import FrameBlock
from ....codecs.messages.messages import parse_messages
from ....codecs.options import RecordsDecodeOptions
from ....domain.dtypes import BYTES
from ....domain.feature import Feature
from ....domain.schema import Schema
from ....domain.sharding.division import Division
from ....errors import CorruptData, InputError, UnprocessableInput
from ....runtime.budget import Budget
from ..objects.dataset import Dataset
from ..objects.layout import Layout
from ..objects.slot import Commit
from ..objects.stored_json import dump_json, load_json
from ..pieces.pieces import StoredPiece
from ..pieces.stream import STORED_LIMITS
from .shards.source import iter_piece_blocks

#: How many rows each split takes of each piece of each append, by the append's id.
Dealt = Mapping[str, Sequence[Sequence[int]]]

#: Rows hashed at a time.
_STEP_ROWS: Final = 65_536


class Dealer:
    """Deals rows out as a division says.

    Raises:
        UnprocessableInput: the feature that decides cannot (`invalid_division`).
    """

    def __init__(self, division: Division, schema: Schema) -> None:
        self.division = division
        self._parse = None if division.by is None else _parse_options(division.by, schema)

    @property
    def reads(self) -> bool:
        """Whether the values of rows decide, rather than where they stand."""
        return self._parse is not None

    def deal_places(self, append_id: str, first: int, count: int) -> NDArray[np.intp]:
        """The split of each of `count` rows of an append from its row `first`, by their places."""
        return self.division.deal(self.division.hash_rows(append_id, first, count))

    def deal(self, block: FrameBlock, append_id: str, first: int) -> NDArray[np.intp]:
        """The split of each row in `block`, which begins with row `first` of an append.

        Raises:
            CorruptData: the rows cannot be read.
        """
        if self._parse is None:
            return self.deal_places(append_id, first, block.num_records)
        try:
            rows = parse_messages(iter([block]), self._parse, Budget(STORED_LIMITS))
            hashes = [self._hash(batch) for batch in rows.batches]
        except InputError as error:
            raise CorruptData(f"The rows of append {append_id} cannot be read: {error.detail}") from error
        return self.division.deal(np.concatenate(hashes))

    def _hash(self, batch: Batch) -> NDArray[np.uint64]:
        """The hash of each row's value."""
        column = batch.columns[0]
        values = column.values
        if isinstance(values, Strings):
            distinct: dict[bytes, int] = {}  # each is hashed once
            numbers = [distinct.setdefault(value, len(distinct)) for value in values.unpack()]
            hashes = self.division.hash_bytes(list(distinct))[numbers]
        else:
            hashes = self.division.hash_integers(values.astype(np.uint64))
        if column.present is None:
            return hashes
        spread = np.full(batch.num_rows, self.division.hash_null(), np.uint64)
        spread[column.present] = hashes
        return spread


def _parse_options(name: str, schema: Schema) -> RecordsDecodeOptions:
    feature = schema.by_name.get(name)
    if feature is None or not _can_decide(feature):
        have = "is not there" if feature is None else "is none"
        raise UnprocessableInput(
            f"Rows are dealt out by a single integer, bool, text or bytes, and feature {name!a:.66} {have}.",
            code="invalid_division",
            feature=name[:64],
        )
    # Absent is a value, too, and bytes need not be text to be dealt by.
    feature = replace(feature, nullable=True, dtype=BYTES if feature.dtype.is_string else feature.dtype)
    return RecordsDecodeOptions(schema=Schema((feature,), schema.message), undeclared="drop")


def _can_decide(feature: Feature) -> bool:
    return (
        feature.kind == "dense"
        and not feature.shape
        and feature.dtype.kind in ("bool", "int", "uint", "string")
    )


@dataclass(frozen=True, slots=True)
class DealtRows:
    """A `TakenRows`: those of a piece that are dealt to one split.

    Attributes:
        split: its index in the division's.
        first: the row of the append with which the piece begins.
        count: how many they are.
    """

    dealer: Dealer
    append_id: str
    split: int
    first: int
    count: int

    def mask(self, block: FrameBlock, first: int) -> NDArray[np.bool_]:
        dealt = self.dealer.deal(block, self.append_id, self.first + first)
        return np.asarray(dealt == self.split)


def count_dealt(dataset: Dataset, commits: Sequence[Commit], dealer: Dealer) -> Dealt:
    """How the rows of `commits` are dealt out; where their values decide, all of them are read.

    Raises:
        LostData: records are missing or do not match their checksum.
        CorruptData: they cannot be read.
    """
    return {commit.append_id: _count_one(dataset, commit, dealer).tolist() for commit in commits}


def _count_one(dataset: Dataset, commit: Commit, dealer: Dealer) -> NDArray[np.int64]:
    counts = np.zeros((len(commit.pieces), len(dealer.division.splits)), np.int64)
    for index, dealt in _by_value(dataset, commit, dealer) if dealer.reads else _by_place(commit, dealer):
        counts[index] += np.bincount(dealt, minlength=counts.shape[1])
    return counts


def _by_place(commit: Commit, dealer: Dealer) -> Iterator[tuple[int, NDArray[np.intp]]]:
    row = 0
    for index, piece in enumerate(commit.pieces):
        stop = row + piece.num_records
        while row < stop:
            count = min(_STEP_ROWS, stop - row)
            yield index, dealer.deal_places(commit.append_id, row, count)
            row += count


def _by_value(dataset: Dataset, commit: Commit, dealer: Dealer) -> Iterator[tuple[int, NDArray[np.intp]]]:
    budget, pieces = Budget(STORED_LIMITS), commit.stored_pieces(dataset.layout)
    for found in iter_piece_blocks(dataset.store, pieces, budget, dataset.pool):
        yield found.index, dealer.deal(found.block, commit.append_id, found.first)


def taken_pieces(
    commit: Commit, layout: Layout, dealer: Dealer, counts: Sequence[Sequence[int]]
) -> Mapping[str, list[StoredPiece]]:
    """The pieces of an append that hold rows for each split.

    Raises:
        CorruptData: the counts are not those of the append.
    """
    splits = dealer.division.splits
    if [sum(of_piece) for of_piece in counts] != [piece.num_records for piece in commit.pieces]:
        raise CorruptData(f"The rows of append {commit.append_id} are not counted as they are.")
    pieces: dict[str, list[StoredPiece]] = {split: [] for split in splits}
    row, open_splits = 0, set[int]()
    for stored, of_piece in zip(commit.stored_pieces(layout), counts, strict=True):
        if stored.piece.num_records:
            open_splits = {split for split, count in enumerate(of_piece) if count}
        for split in sorted(open_splits):
            rows = DealtRows(dealer, commit.append_id, split, row, of_piece[split])
            whole = rows.count == stored.piece.num_records
            pieces[splits[split]].append(stored if whole else replace(stored, taken=rows))
        row += stored.piece.num_records
    return pieces


def serialize_dealt(dealt: Dealt) -> bytes:
    """A line for each append: `<id> {"counts": [[of each split] for each piece]}`."""
    lines = (f"{append_id} ".encode() + dump_json({"counts": counts}) for append_id, counts in dealt.items())
    return b"".join(line + b"\n" for line in lines)


def parse_dealt(data: bytes, key: str) -> Dealt:
    """What `serialize_dealt` wrote.

    Raises:
        CorruptData: not of that form.
    """
    lines = (line.partition(b" ") for line in data.splitlines())
    try:
        return {append_id.decode("ascii"): load_json(text, key)["counts"] for append_id, _, text in lines}
    except (KeyError, ValueError) as error:
        raise CorruptData(f"{key} is not of the known form.") from error
