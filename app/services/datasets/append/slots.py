"""Creating slots: each acknowledges one append, or a group of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from ....errors import CorruptData, OutcomeUnknown
from ....storage.create_once import create_once, new_nonce
from ....telemetry.metrics import APPEND_GROUPS, APPENDED_BYTES, APPENDED_ROWS, APPENDS
from ..objects.catalog import dataset_deleted
from ..objects.dataset import Backend
from ..objects.layout import Layout
from ..objects.slot import Commit, Slot, parse_slot
from ..objects.unpublished import Acknowledged
from ..pieces.pieces import Piece
from ..recent_appends import Amount


class SlotWriter:
    """Creates the slots of this process. Safe to use from several threads."""

    def __init__(self, backend: Backend) -> None:
        self._store = backend.store
        self._catalog = backend.catalog
        self._unpublished = backend.unpublished
        self._recent = backend.recent
        self._clock = _Clock()
        self._writer = new_nonce()

    def new_commit(
        self,
        append_id: str,
        attempt: str,
        split: str,
        pieces: Sequence[Piece],
        *,
        digest: str,
        sequence: int | None = None,
        rounded: Sequence[str] = (),
        dropped: Sequence[str] = (),
        skipped: int = 0,
        as_text: Sequence[str] = (),
    ) -> Commit:
        """The content of a slot that was not created yet; the arguments are as in `Commit`."""
        return Commit(
            append_id=append_id,
            nonce=new_nonce(),
            attempt=attempt,
            split=split,
            digest=digest,
            num_records=sum(piece.num_records for piece in pieces),
            num_bytes=sum(piece.size for piece in pieces),
            time=self._clock.now(),
            pieces=tuple(pieces),
            sequence=sequence,
            writer=self._writer,
            rounded=tuple(rounded),
            dropped=tuple(dropped),
            skipped=skipped,
            as_text=tuple(as_text),
        )

    def create(self, layout: Layout, commit: Commit, inline: bytes, *, num_grouped: int = 0) -> Slot | None:
        """Create a slot. Returns None if it is ours, else the one that is there.

        Args:
            layout: the dataset.
            commit: what the slot says.
            inline: the records, if they go into the slot.
            num_grouped: how many appends share the slot; 0 if it is that of one alone.

        Raises:
            OutcomeUnknown: the store gave no definite answer, or one that cannot be read.
            Conflict: this replica has deleted the dataset meanwhile (`dataset_deleted`).
        """
        key = layout.slot(commit.append_id)
        winner = create_once(self._store, key, commit.serialize(inline))
        if self._catalog.has_ended_here(layout):
            raise dataset_deleted(layout.dataset)
        if winner is None:
            self._count(layout, commit, num_grouped)
            return None
        try:
            return parse_slot(commit.append_id, winner, key)
        except CorruptData as error:  # it may be ours, and name our parts
            raise OutcomeUnknown(
                "What the store holds of this append cannot be read; it may or may not be stored. "
                "Repeat the request with the same key."
            ) from error

    def _count(self, layout: Layout, commit: Commit, num_grouped: int) -> None:
        APPENDS.labels("grouped" if num_grouped else "single").inc(num_grouped or 1)
        APPENDED_ROWS.inc(commit.num_records)
        APPENDED_BYTES.inc(commit.num_bytes)
        amount = Amount(num_grouped or 1, commit.num_records)
        self._recent.add(layout.dataset, amount)
        if num_grouped:
            APPEND_GROUPS.inc()
        self._unpublished.add(layout, Acknowledged(commit.time / 1e9, commit.append_id))


class _Clock:
    """This process's time in nanoseconds, which never stands still or goes back."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        with self._lock:
            self._last = max(self._last + 1, time.time_ns())
            return self._last
