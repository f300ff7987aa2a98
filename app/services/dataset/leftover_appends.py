"""Leftovers of appends: parts that no version will take, and slots whose time is over.

A part goes because of what its slot says, never because of its age alone. Where nothing is decided
yet, the slot is taken first: then a writer that wakes up finds it taken, and tells its client that
nothing is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from ...domain.names import is_append_id
from ...errors import ShardsmithError
from ...storage.create_once import create_once, new_nonce
from ...storage.object_store import ObjectInfo, ObjectNotFound
from .kept import Kept
from .layout import Layout
from .slot import DEAD_BYTES, Commit, Dead, Slot, parse_slot, read_slot
from .sweep import Kind, Sweep

__all__ = ["SLOT_LIFE", "sweep_parts", "sweep_slots"]

#: A part younger than that may belong to an attempt under way, which gives up after an hour.
_PART_AGE: Final = timedelta(hours=24)
#: How long an append, and so an idempotency key, is remembered once it is published or closed.
SLOT_LIFE: Final = timedelta(days=7)

_PART: Final = re.compile(r"(?P<id>[0-9a-f]{32})/(?P<attempt>[^/]+)/[^/]+")
#: Fates remembered while the parts of an append go by, in whatever order they are listed.
_FATES: Final = 10_000

#: `undecided`: the slot could not be read or taken, or an attempt may be under way.
_Fate = Slot | Literal["undecided"]


class _Closed(Dead):
    """A slot that this run has taken."""


def sweep_parts(sweep: Sweep, layout: Layout, consumed: Mapping[str, int]) -> None:
    """Delete the parts that no version will take (C1, C2).

    Args:
        consumed: the appends that published plans have consumed.
    """
    parts = _Parts(sweep, layout, consumed)
    for batch in sweep.batches(sweep.store.list(layout.all_parts)):
        parts.resolve(batch)
        sweep.delete(batch, parts.decide)


class _Parts:
    def __init__(self, sweep: Sweep, layout: Layout, consumed: Mapping[str, int]) -> None:
        self._sweep = sweep
        self._store = sweep.store
        self._layout = layout
        self._consumed = consumed
        self._old = sweep.now - _PART_AGE
        self._fates: Kept[str, _Fate] = Kept(_FATES)

    def resolve(self, batch: Sequence[ObjectInfo]) -> None:
        """Find out the fates of the appends that old parts of the batch belong to."""
        found = {self._append_id(info): None for info in batch if info.last_modified < self._old}
        wanted = [
            append_id
            for append_id in found
            if append_id and append_id not in self._consumed and self._fates.get(append_id) is None
        ]
        for append_id, fate in zip(wanted, self._sweep.pool.map(self._try_fate, wanted), strict=True):
            if isinstance(fate, ShardsmithError):
                self._sweep.fail(self._layout.slot(append_id), fate)
            elif isinstance(fate, _Closed):
                self._sweep.report.closed_slots += 1
            self._fates.put(append_id, "undecided" if isinstance(fate, ShardsmithError) else fate)

    def decide(self, info: ObjectInfo) -> Kind | None:
        found = self._match(info)
        if found is None:
            return None
        if found["id"] in self._consumed:
            return "parts"  # the version has the records, and no other attempt can win the slot
        if info.last_modified >= self._old:
            return None
        fate = self._fates.get(found["id"])
        lost = isinstance(fate, Dead) or (isinstance(fate, Commit) and fate.attempt != found["attempt"])
        return "parts" if lost else None

    def _match(self, info: ObjectInfo) -> re.Match[str] | None:
        return _PART.fullmatch(info.key.removeprefix(f"{self._layout.all_parts}/"))

    def _append_id(self, info: ObjectInfo) -> str | None:
        found = self._match(info)
        return None if found is None else found["id"]

    def _try_fate(self, append_id: str) -> _Fate | ShardsmithError:
        try:
            return self._fate(append_id)
        except ShardsmithError as error:
            return error

    def _fate(self, append_id: str) -> _Fate:
        try:
            return read_slot(self._store, self._layout, append_id)
        except ObjectNotFound:
            return self._close(append_id)

    def _close(self, append_id: str) -> _Fate:
        """Take the slot that nobody has, unless a younger attempt may still want it.

        Raises:
            OutcomeUnknown: it may or may not be ours.
        """
        of_append = self._store.list(self._layout.parts(append_id))
        if any(info.last_modified >= self._old for info in of_append):
            return "undecided"
        dead = _Closed(new_nonce())
        key = self._layout.slot(append_id)
        winner = None if self._sweep.dry_run else create_once(self._store, key, dead.serialize())
        return dead if winner is None else parse_slot(append_id, winner, key)


def sweep_slots(
    sweep: Sweep, layout: Layout, consumed: Mapping[str, int], published_at: Mapping[int, datetime]
) -> None:
    """Delete slots some days after their version was published or they died (C4); never a commit before.

    Args:
        published_at: when each plan that `consumed` names was published, by the store's clock; those
            younger than `SLOT_LIFE` may be left out.
    """
    horizon = sweep.now - SLOT_LIFE

    def decide(info: ObjectInfo) -> Kind | None:
        folder, _, append_id = info.key.removeprefix(f"{layout.all_slots}/").partition("/")
        if not is_append_id(append_id) or folder != append_id[0] or info.last_modified >= horizon:
            return None
        moment = published_at.get(consumed.get(append_id, 0))
        # A younger slot is another append's, which took the name after the first one's was deleted.
        is_over = moment is not None and info.last_modified <= moment < horizon
        if not is_over and not _is_dead(info, append_id):
            return None
        # Another collector may have deleted it since it was listed, and a client have used its key again.
        return "slots" if sweep.store.head(info.key).last_modified == info.last_modified else None

    def _is_dead(info: ObjectInfo, append_id: str) -> bool:
        if info.size > DEAD_BYTES:
            return False
        return isinstance(read_slot(sweep.store, layout, append_id), Dead)

    def gone(info: ObjectInfo) -> Kind | None:
        try:
            return decide(info)
        except ObjectNotFound:
            return None

    sweep.each(sweep.store.list(layout.all_slots), gone)
