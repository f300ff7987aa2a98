"""Executing a plan: write its shards, then the files beside them, then publish by the manifest.

Any number of executors may work on one plan at a time, and any may die at any step: all they write
follows from the plan, except the manifest, which only one of them creates.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256

from ..codecs.schemas.features_json import serialize_dataset_info, serialize_features
from ..codecs.schemas.pbtxt import serialize_pbtxt
from ..domain.limits import Limits
from ..domain.manifest import FileEntry, Manifest, SplitEntry
from ..domain.shard_plan import ShardPlan
from ..errors import Conflict, CorruptData, StorageError
from ..storage.create_once import create_once, new_nonce
from ..storage.object_store import ObjectStore
from .dataset_catalog import Incarnation, exists
from .dataset_layout import DATASET_INFO, FEATURES, INDEX, PBTXT
from .dataset_log import Aborted, Plan, PublishLog
from .dataset_slot import parse_commits
from .record_pieces import SplitPieces, StoredPiece, stored_in
from .shard_writer import FINGERPRINT, ShardSource, WrittenShard, is_whole, read_done, write_done, write_shard
from .stored_json import dump_json

__all__ = ["Executor"]


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What a plan copies: the records of each split, those of the base and of the appends it consumes."""

    splits: Mapping[str, SplitPieces]


class Executor:
    """Brings plans of one dataset to their end."""

    def __init__(
        self,
        store: ObjectStore,
        log: PublishLog,
        incarnation: Incarnation,
        limits: Limits,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._store = store
        self._log = log
        self._layout = incarnation.layout
        self._description = incarnation.options.description
        self._limits = limits
        self._pool = pool

    def execute(self, plan: Plan) -> Manifest | Aborted:
        """Do what is still to be done for `plan`, and say what became of it.

        Raises:
            Conflict: another release made the plan (`encoder_mismatch`).
            StorageError: the store failed; to be taken up again.
        """
        if plan.fingerprint != FINGERPRINT:
            raise Conflict(
                f"Version {self._layout.version(plan.n)} was begun by another release of the service, "
                f"which has to finish it.",
                code="encoder_mismatch",
            )
        try:
            inputs = self._inputs(plan)
            shards = [self._shard(plan, shard, inputs) for shard in plan.shards]
            verdict = self._publish(plan, shards, inputs)
        except CorruptData as error:
            # Inputs also vanish when somebody else has published the plan and tidied up: then it is
            # published, since of the two manifests only the first can be created.
            verdict = self._decide(plan.n, {"aborted": error.detail})
        if isinstance(verdict, Manifest):
            self.finish(plan, verdict)
        return verdict

    def finish(self, plan: Plan, manifest: Manifest) -> None:
        """What follows a publication; a crash before its end costs nothing but room.

        TFDS's dataset_info.json comes first: it tells the next publish whether this was done.
        """
        self._store.put(self._layout.file(plan.n, DATASET_INFO), self._dataset_info(manifest))
        self._log.put_hint(plan.n)
        with contextlib.suppress(StorageError, CorruptData):
            commits = parse_commits(self._log.named(plan.inputs), plan.inputs.key)
            parts = [part for commit in commits for part in commit.parts(self._layout)]
            deque(self._pool.map(self._store.delete, parts), maxlen=0)

    def finish_if_needed(self, n: int, manifest: Manifest) -> None:
        """Finish version `n` where its publisher died before it could."""
        if not exists(self._store, self._layout.file(n, DATASET_INFO)):
            self.finish(self._log.plan(n), manifest)

    def _inputs(self, plan: Plan) -> _Inputs:
        commits = parse_commits(self._log.named(plan.inputs), plan.inputs.key)
        pieces: dict[str, list[StoredPiece]] = {}
        if plan.base is not None:
            base = self._log.verdict(plan.base)
            if not isinstance(base, Manifest):
                raise CorruptData(f"Version {self._layout.version(plan.base)}, the base, is not published.")
            index = self._log.index(plan.base, base)
            for split, entry in base.splits.items():
                for shard in entry.shards:
                    key = self._layout.file(plan.base, shard.file)
                    pieces.setdefault(split, []).extend(stored_in(key, index[shard.file]))
        for commit in commits:
            pieces.setdefault(commit.split, []).extend(commit.stored_pieces(self._layout))
        return _Inputs({split: SplitPieces(stored) for split, stored in pieces.items()})

    def _shard(self, plan: Plan, shard: ShardPlan, inputs: _Inputs) -> WrittenShard:
        """Write one shard, unless another executor has done so already."""
        key = self._layout.file(plan.n, shard.file)
        done_key = self._layout.done(plan.n, shard.file)
        done = read_done(self._store, done_key, shard.file)
        if done is not None and is_whole(self._store, key, done):
            return done
        source = ShardSource.of(shard, inputs.splits[shard.split])
        written = write_shard(shard, source, self._store, key, self._limits, self._pool)
        if done is not None and done != written:
            raise CorruptData(f"Two executors of {key} got different bytes.")
        write_done(self._store, done_key, written)
        return written

    def _publish(self, plan: Plan, shards: Sequence[WrittenShard], inputs: _Inputs) -> Manifest | Aborted:
        splits = {split: SplitEntry() for split in inputs.splits}
        for shard, written in zip(plan.shards, shards, strict=True):
            splits[shard.split] = SplitEntry((*splits[shard.split].shards, written.entry))
        index = {written.entry.file: [piece.to_json() for piece in written.pieces] for written in shards}
        side_files = {
            FEATURES: serialize_features(plan.schema),
            PBTXT: serialize_pbtxt(plan.schema),
            INDEX: dump_json({"shards": index}),
        }
        for name, data in side_files.items():
            self._store.put(self._layout.file(plan.n, name), data)
        version = str(self._layout.version(plan.n))
        manifest = Manifest(self._layout.dataset, version, splits, plan.schema)
        side_files[DATASET_INFO] = self._dataset_info(manifest)
        files = [FileEntry(name, len(data), sha256(data).hexdigest()) for name, data in side_files.items()]
        manifest = Manifest(self._layout.dataset, version, splits, plan.schema, tuple(files))
        return self._decide(plan.n, manifest.to_json())

    def _decide(self, n: int, content: Mapping[str, object]) -> Manifest | Aborted:
        """Create the manifest; whoever is first decides."""
        data = dump_json({"nonce": new_nonce(), **content})
        winner = create_once(self._store, self._layout.manifest(n), data)
        return self._log.decide(n, data if winner is None else winner)

    def _dataset_info(self, manifest: Manifest) -> bytes:
        return serialize_dataset_info(
            manifest.dataset,
            manifest.version,
            {name: [shard.num_records for shard in split.shards] for name, split in manifest.splits.items()},
            {name: split.num_bytes for name, split in manifest.splits.items()},
            self._description,
        )
