"""The log of a dataset: one plan after the other, each decided by one manifest.

Plans are numbered densely from 1, and plan n+1 is not created before manifest n exists. So only the
newest can be undecided, and all is found by a few reads of known names; nothing is listed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ....domain.limits import MIB
from ....domain.manifest import Manifest
from ....errors import CorruptData, StorageError
from ....runtime.turns import pause
from ....storage.create_once import create_once, new_nonce
from ....storage.object_store import ObjectNotFound, ObjectStore, exists
from ..pieces.pieces import Piece, SplitPieces, StoredPiece, stored_in
from ..pieces.stream import WAITS_S, LostData
from .kept import Kept
from .layout import INDEX, Layout
from .plan import NamedFile, Plan
from .seen import Seen
from .stored_json import load_json, open_json, read_again, seal_json

#: More plans than there can ever be.
_NO_NUMBER: Final = 2**31


@dataclass(frozen=True, slots=True)
class Aborted:
    """A plan that will never be a version; its number is a gap, its inputs are free again.

    Attributes:
        lost_data: what it was to hold cannot be read; else somebody gave it up.
    """

    reason: str
    lost_data: bool = True


#: None: not decided yet.
Verdict = Manifest | Aborted | None


#: What is kept of manifests and of indexes, in bytes as they are stored; in memory they take three to four
#: times that. A manifest has some 300 bytes a shard, an index 90 for each 4 MiB.
_KEPT_BYTES: Final = 16 * MIB
#: A piece takes 120 bytes there.
_KEPT_PIECES: Final = 250_000
#: Of the lists as they are stored; once parsed, they take some four times as much.
_KEPT_SEEN: Final = 8 * MIB


class Decided:
    """Verdicts, indexes and lists of consumed appends that were read; they never change.

    Aborted plans have a memory of their own: they take little room, and a long run of them must not
    be read again for every request that asks for the latest version behind it.
    """

    def __init__(self) -> None:
        self.published: Kept[str, Manifest] = Kept(_KEPT_BYTES)
        self.aborted: Kept[str, Aborted] = Kept(10_000)
        self.indexes: Kept[str, Mapping[str, tuple[Piece, ...]]] = Kept(_KEPT_BYTES)
        #: Of the splits of versions, in the form in which they are searched: of 100 GiB, that takes 90 ms.
        self.splits: Kept[tuple[str, str], SplitPieces] = Kept(_KEPT_PIECES)
        #: A line for each append of a week: of 100,000 that takes 200 ms and 40 MB to read.
        self.seen: Kept[str, Seen] = Kept(_KEPT_SEEN)


class PublishLog:
    """Reads the log of one incarnation of a dataset; `decided` may be shared between many."""

    def __init__(self, store: ObjectStore, layout: Layout, decided: Decided) -> None:
        self._store = store
        self._decided = decided
        self._layout = layout

    def newest(self) -> int:
        """The number of the newest plan, 0 where there is none.

        Usually two requests, once the manifest is kept: the hint, and that there is no plan behind it. From
        an old hint it gallops, then bisects, since the numbers are dense.
        """
        low, step = self._hint(), 1
        while exists(self._store, self._layout.plan(low + step)):
            low, step = low + step, 2 * step
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            if exists(self._store, self._layout.plan(middle)):
                low = middle
            else:
                high = middle
        return low

    def newest_published(self, newest: int) -> int:
        """The number of the last plan up to `newest` that became a version, 0 where none did."""
        while newest and not isinstance(self.verdict(newest), Manifest):
            newest -= 1
        return newest

    def verdict(self, n: int) -> Verdict:
        """What became of plan `n`."""
        key = self._layout.manifest(n)
        if (kept := self._decided.published.get(key) or self._decided.aborted.get(key)) is not None:
            return kept
        try:
            return read_again(lambda: self.decide(n, self._store.get(key)))
        except ObjectNotFound:
            return None

    def decide(self, n: int, data: bytes) -> Manifest | Aborted:
        """The verdict that the manifest object of plan `n` states."""
        key = self._layout.manifest(n)
        value = open_json(data, key)
        if "aborted" in value:
            aborted = Aborted(str(value["aborted"]), value.get("lost_data") is not False)
            return self._decided.aborted.put(key, aborted)
        try:
            manifest = Manifest.from_json(value)
        except CorruptData as error:
            raise CorruptData(f"{key} is not of the known form.") from error
        if (manifest.dataset, manifest.version) != (self._layout.dataset, str(self._layout.version(n))):
            raise CorruptData(f"{key} is the manifest of another version.")
        return self._decided.published.put(key, manifest, len(data))

    def settle(self, n: int, content: Mapping[str, object]) -> Manifest | Aborted:
        """Create the manifest object of plan `n`; whoever is first decides."""
        data = seal_json({"nonce": new_nonce(), **content})
        winner = create_once(self._store, self._layout.manifest(n), data)
        return self.decide(n, data if winner is None else winner)

    def give_up(self, n: int, reason: str) -> Manifest | Aborted:
        """Abort plan `n`, unless it is decided already."""
        return self.settle(n, {"aborted": reason, "lost_data": False})

    def plan(self, n: int) -> Plan:
        """Plan `n`, which exists.

        Raises:
            CorruptData: not in the known form, or not any more.
        """
        key = self._layout.plan(n)
        try:
            return read_again(lambda: Plan.parse(self._store.get(key), key))
        except ObjectNotFound as error:
            raise CorruptData(f"{key} is missing.") from error

    def named(self, file: NamedFile) -> bytes:
        """The bytes of an object that a plan names.

        Raises:
            LostData: it is missing, or another one.
        """
        try:
            for wait in WAITS_S:
                pause(wait)
                data = self._store.get(file.key)
                if sha256(data).hexdigest() == file.sha256:
                    return data
        except ObjectNotFound as error:
            raise LostData(f"{file.key} is missing.") from error
        raise LostData(f"{file.key} does not have the SHA-256 on record.")

    def seen(self, published: int) -> Seen:
        """What the published plans up to `published`, itself one or 0, have consumed."""
        if published == 0:
            return Seen({}, {})
        key = self._layout.plan(published)
        if (kept := self._decided.seen.get(key)) is not None:
            return kept
        file = self.plan(published).seen
        data = self.named(file)
        return self._decided.seen.put(key, Seen.parse(data, file.key), len(data))

    def index(self, n: int, manifest: Manifest) -> Mapping[str, tuple[Piece, ...]]:
        """The pieces of each shard of a published version, by file name."""
        key = self._layout.file(n, INDEX)
        if (kept := self._decided.indexes.get(key)) is not None:
            return kept
        data = self.named(NamedFile(key, manifest.by_file[INDEX].sha256))
        shards = load_json(data, key)["shards"]
        index = {file: tuple(map(Piece.from_json, pieces)) for file, pieces in shards.items()}
        return self._decided.indexes.put(key, index, len(data))

    def pieces(self, n: int, manifest: Manifest, split: str) -> list[StoredPiece]:
        """The pieces of a split of a published version, shard after shard."""
        index = self.index(n, manifest)
        return [
            stored
            for shard in manifest.splits[split].shards
            for stored in stored_in(self._layout.file(n, shard.file), index[shard.file])
        ]

    def put_hint(self, n: int) -> None:
        """Note that `n` is published; only ever a saving, so a failure does not matter."""
        with contextlib.suppress(StorageError):
            self._store.put(self._layout.hint, seal_json({"n": n}))

    def _hint(self) -> int:
        """A number that is published, 0 where none is known: nobody vouches for what the hint says."""
        try:
            n = open_json(self._store.get(self._layout.hint), self._layout.hint).get("n")
            if isinstance(n, int) and 0 < n < _NO_NUMBER and isinstance(self.verdict(n), Manifest):
                return n
        except (ObjectNotFound, CorruptData):
            pass
        return 0
