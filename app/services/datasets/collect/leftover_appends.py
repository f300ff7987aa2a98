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

from ....domain.names import is_append_id
from ....errors import ShardsmithError
from ....storage.create_once import create_once, new_nonce
from ....storage.object_store import ObjectInfo, ObjectNotFound
from ..objects.kept import Kept
from ..objects.layout import Layout
from ..objects.seen import KEEP_SEEN, Seen
from ..objects.slot import DEAD_BYTES, Commit, Dead, Slot, parse_slot, read_slot
from ..objects.unpublished import Acknowledged, Unpublished
from ..pieces.run_ahead import map_in
from .sweep import Kind, Sweep

#: A part younger than that may belong to an attempt under way, which gives up after an hour.
_PART_AGE: Final = timedelta(hours=24)

_PART: Final = re.compile(r"(?P<id>[0-9a-f]{32})/(?P<attempt>[^/]+)/[^/]+")
#: Fates remembered while the parts of an append go by, in whatever order they are listed.
_FATES: Final = 10_000

#: `undecided`: the slot could not be read or taken, or an attempt may be under way.
_Fate = Slot | Literal["undecided"]


class _Closed(Dead):
    """A slot that this run has taken."""


def sweep_parts(sweep: Sweep, layout: Layout, seen: Seen) -> None:
    """Delete the parts that no version will take (C1, C2).

    Args:
        seen: what published plans have consumed.
    """
    parts = _Parts(sweep, layout, seen)
    for batch in sweep.batches(sweep.store.list(layout.all_parts)):
        parts.resolve(batch)
        sweep.delete(batch, parts.decide)


class _Parts:
    def __init__(self, sweep: Sweep, layout: Layout, seen: Seen) -> None:
        self._sweep = sweep
        self._store = sweep.store
        self._layout = layout
        self._seen = seen
        self._old = sweep.now - _PART_AGE
        self._fates: Kept[str, _Fate] = Kept(_FATES)

    def resolve(self, batch: Sequence[ObjectInfo]) -> None:
        """Find out the fates of the appends to which parts of the batch belong that may go."""
        found = [(info, self._match(info)) for info in batch]
        wanted = dict.fromkeys(
            match["id"]
            for info, match in found
            if match is not None
            and (info.last_modified < self._old or match["id"] in self._seen.appends)
            and self._fates.get(match["id"]) is None
        )
        for append_id, fate in zip(wanted, map_in(self._sweep.pool, self._try_fate, wanted), strict=True):
            if isinstance(fate, ShardsmithError):
                self._sweep.fail(self._layout.slot(append_id), fate)
            elif isinstance(fate, _Closed):
                self._sweep.report.closed_slots += 1
            self._fates.put(append_id, "undecided" if isinstance(fate, ShardsmithError) else fate)

    def decide(self, info: ObjectInfo) -> Kind | None:
        match = self._match(info)
        fate = None if match is None else self._fates.get(match["id"])
        if match is None or fate is None or fate == "undecided":
            return None
        if isinstance(fate, Commit) and fate.attempt == match["attempt"]:
            return "parts" if self._is_consumed(fate) else None
        return "parts" if info.last_modified < self._old else None

    def _is_consumed(self, commit: Commit) -> bool:
        """Whether a version has the records: if they were left out of one, the slot's life is theirs."""
        return self._seen.has(commit) and not self._seen.appends[commit.append_id].excluded

    def _match(self, info: ObjectInfo) -> re.Match[str] | None:
        return _PART.fullmatch(info.key.removeprefix(f"{self._layout.all_parts}/"))

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
    sweep: Sweep, layout: Layout, seen: Seen, published_at: Mapping[int, datetime], unpublished: Unpublished
) -> None:
    """Delete slots a week after their version was published or they died (C4); never a commit before.

    Args:
        seen: what published plans have consumed.
        published_at: when each of these plans was published, by the store's clock.
        unpublished: told of each append that they have not consumed.
    """
    horizon = sweep.now - KEEP_SEEN

    def is_over(info: ObjectInfo, append_id: str) -> bool:
        fate = seen.appends.get(append_id)
        if fate is None and info.size > DEAD_BYTES:
            return False  # a commit that no version has consumed
        if fate is not None and published_at[fate.n] >= horizon:
            return False
        # Read now: since it was listed, another collector may have deleted it, and a client have used
        # its key again. So the name alone says nothing.
        slot = read_slot(sweep.store, layout, append_id)
        return isinstance(slot, Dead) or seen.has(slot)

    def decide(info: ObjectInfo) -> Kind | None:
        folder, _, append_id = info.key.removeprefix(f"{layout.all_slots}/").partition("/")
        if not is_append_id(append_id) or folder != append_id[0]:
            return None
        if append_id not in seen.appends and info.size > DEAD_BYTES:
            unpublished.add(layout, Acknowledged(info.last_modified.timestamp(), append_id))
        if info.last_modified >= horizon:
            return None
        try:
            return "slots" if is_over(info, append_id) else None
        except ObjectNotFound:
            return None  # another collector was first

    sweep.each(sweep.store.list(layout.all_slots), decide)
