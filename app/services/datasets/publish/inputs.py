"""What a version is made of: the records of each split, those of the base and then of the appends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....domain.manifest import Manifest
from ....errors import CorruptData
from ..objects.dataset import Dataset
from ..objects.layout import Layout
from ..objects.plan import Work
from ..objects.slot import Commit, parse_commits
from ..pieces.pieces import SplitPieces, StoredPiece
from .dealing import Dealer, Dealt, parse_dealt, taken_pieces

#: By split, in the order in which they first got records; one that is dealt none is there, too.
Inputs = Mapping[str, SplitPieces]


def read_inputs(dataset: Dataset, work: Work) -> Inputs:
    """What a plan says.

    Raises:
        LostData: a file that the plan names is missing or another one.
        CorruptData: such a file, or the base, is not of the known form.
    """
    log, layout, base = dataset.log, dataset.layout, base_pieces(dataset, work.base)
    commits = parse_commits(log.named(work.inputs), work.inputs.key)
    if work.division is None or work.dealt is None:
        return gather_inputs(layout, base, commits)
    dealt = parse_dealt(log.named(work.dealt), work.dealt.key)
    dealer = Dealer(work.division, work.schema)
    return gather_inputs(layout, base, commits, dealer, dealt)


def base_manifest(dataset: Dataset, base: int) -> Manifest:
    """The manifest of version `base`.

    Raises:
        CorruptData: it is not published.
    """
    manifest = dataset.log.verdict(base)
    if not isinstance(manifest, Manifest):
        raise CorruptData(f"Version {dataset.layout.version(base)}, the base, is not published.")
    return manifest


def base_pieces(dataset: Dataset, base: int | None) -> dict[str, list[StoredPiece]]:
    """The pieces of each split of version `base`; nothing where it is None."""
    if base is None:
        return {}
    manifest = base_manifest(dataset, base)
    return {split: dataset.log.pieces(base, manifest, split) for split in manifest.splits}


def gather_inputs(
    layout: Layout,
    base: Mapping[str, Sequence[StoredPiece]],
    commits: Sequence[Commit],
    dealer: Dealer | None = None,
    dealt: Dealt | None = None,
) -> Inputs:
    """The records of `base`, then those of `commits`, the rows of one split dealt out where that is asked."""
    pieces = {split: list(stored) for split, stored in base.items()}
    for commit in commits:
        if dealer is None or dealt is None or commit.split != dealer.division.source:
            pieces.setdefault(commit.split, []).extend(commit.stored_pieces(layout))
            continue
        counts = dealt.get(commit.append_id, ())
        for split, stored in taken_pieces(commit, layout, dealer, counts).items():
            pieces.setdefault(split, []).extend(stored)
    return {split: SplitPieces(stored) for split, stored in pieces.items()}
