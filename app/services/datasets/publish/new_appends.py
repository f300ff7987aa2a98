"""Which appends a version is to hold: those that are acknowledged and that no version has consumed."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from ....domain.names import is_append_id
from ....errors import CorruptData
from ....storage.create_once import store_time
from ....storage.object_store import ObjectInfo, ObjectNotFound
from ..objects.dataset import Dataset
from ..objects.seen import KEEP_SEEN, Consumed, Seen
from ..objects.slot import Commit, Slot, read_slot
from ..pieces.run_ahead import map_in
from .waiting import WaitingAppends

_DIGITS: Final = "0123456789abcdef"
#: What a store answers to one request that lists.
_PAGE: Final = 1000


class NewAppends:
    """Finds the new appends of one incarnation of a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._store = dataset.store
        self._layout = dataset.layout
        self._pool = dataset.pool

    def find(self, seen: Seen, exclude: Collection[str] = ()) -> tuple[Mapping[str, int], list[Commit]]:
        """All slots listed, and every acknowledged append that no published plan has consumed, in order.

        A listing takes its time: it can find an append and miss one that the same writer had
        acknowledged before, where it had been already. That one was there when the first listing ended,
        so a second listing finds it; and nothing else is taken from the second, which has gaps of its own.

        Args:
            exclude: appends whose rows nobody wants, so that their slots need not be legible.

        Raises:
            CorruptData: a slot cannot be read.
        """
        listed = self._list_slots()
        commits = self._commits(seen, listed, exclude)
        if commits:
            latest: dict[str, int] = {}
            for commit in commits:
                latest[commit.writer] = max(commit.time, latest.get(commit.writer, 0))
            missed = {name: at for name, at in self._list_slots().items() if name not in listed}
            commits += [
                commit
                for commit in self._commits(seen, missed, exclude)
                if commit.time < latest.get(commit.writer, 0)
            ]
            listed |= missed
        return listed, sorted(commits, key=lambda commit: commit.rank)

    def page(self, seen: Seen, after: str, limit: int, *, whole: bool = True) -> WaitingAppends:
        """The first of those appends behind the id `after`, by id; of one that is illegible, the id alone.

        Reads `limit` slots at most: where some are dead, fewer appends come than that.

        Args:
            whole: list all slots. Otherwise one page of each of the 16 folders at most: there is a slot for
                each append of a week.
        """
        listed = self._list_slots(after, whole=whole)
        is_whole = whole or _PAGE not in Counter(append_id[0] for append_id in listed).values()
        fresh = sorted(append_id for append_id, at in listed.items() if seen.may_be_new(append_id, at))
        read = {append_id: listed[append_id] for append_id in fresh[:limit]}
        commits = tuple(self._commits(seen, read, exclude=read))
        return WaitingAppends(commits, fresh[limit - 1] if len(fresh) > limit else None, is_whole)

    def _commits(self, seen: Seen, listed: Mapping[str, int], exclude: Collection[str]) -> list[Commit]:
        fresh = [append_id for append_id, modified in listed.items() if seen.may_be_new(append_id, modified)]
        slots = map_in(self._pool, lambda append_id: self._slot(append_id, exclude), fresh)
        return [slot for slot in slots if isinstance(slot, Commit) and not seen.has(slot)]

    def _slot(self, append_id: str, exclude: Collection[str]) -> Slot | None:
        """A slot that was listed; None where it was collected since, so it was dead, or consumed."""
        try:
            return read_slot(self._store, self._layout, append_id)
        except ObjectNotFound:
            return None
        except CorruptData as error:
            if append_id in exclude:
                return Commit.illegible(append_id)
            raise CorruptData(
                f"Append {append_id} cannot be read: {error.detail} If it is lost for good, publish without "
                f"it: exclude= its append_id."
            ) from error

    def _list_slots(self, after: str = "", *, whole: bool = True) -> dict[str, int]:
        """All slots behind `after`, and when they were written, by the store's clock in seconds.

        One request lists the slots of most datasets. Only where it did not come to the end are the folders
        listed side by side, from the beginning.
        """
        first_page = list(islice(self._store.list(self._layout.all_slots), _PAGE))
        if len(first_page) < _PAGE:
            slots = dict(self._slots_in(first_page))
        else:
            folders = [self._layout.slots(digit) for digit in _DIGITS if digit >= after[:1]]
            found = map_in(
                self._pool, lambda folder: self._slots_below(folder, None if whole else _PAGE), folders
            )
            slots = {append_id: at for of_folder in found for append_id, at in of_folder}
        return {append_id: at for append_id, at in slots.items() if append_id > after}

    def _slots_below(self, folder: str, most: int | None) -> list[tuple[str, int]]:
        return list(islice(self._slots_in(self._store.list(folder)), most))

    def _slots_in(self, listed: Iterable[ObjectInfo]) -> Iterator[tuple[str, int]]:
        """Those of the listed objects that are slots, by the id of their append."""
        for info in listed:
            append_id = info.key.rpartition("/")[2]
            if is_append_id(append_id) and info.key == self._layout.slot(append_id):
                yield append_id, int(info.last_modified.timestamp())

    def after(
        self,
        n: int,
        seen: Seen,
        listed: Mapping[str, int],
        commits: Sequence[Commit],
        left_out: Sequence[Commit],
        publish_key: str | None,
    ) -> Seen:
        """What will have been consumed once plan `n` is published."""
        gone = [append_id for append_id in seen.appends if append_id not in listed]
        kept = seen.without(gone, self._last_old({seen.appends[append_id].n for append_id in gone}))
        fates = {
            commit.append_id: Consumed.of(n, commit, listed[commit.append_id], excluded=excluded)
            for of_fate, excluded in ((commits, False), (left_out, True))
            for commit in of_fate
        }
        keys = {} if publish_key is None else {publish_key: n}
        return Seen({**kept.appends, **fates}, {**kept.publish_keys, **keys})

    def _last_old(self, numbers: set[int]) -> int:
        """The last of these published versions that is older than `KEEP_SEEN`, 0 where none is."""
        if not numbers:
            return 0
        before = store_time(self._store) - KEEP_SEEN
        ordered = sorted(numbers)
        count = bisect_left(  # versions are published in the order of their numbers
            ordered, before, key=lambda n: self._store.head(self._layout.manifest(n)).last_modified
        )
        return ordered[count - 1] if count else 0
