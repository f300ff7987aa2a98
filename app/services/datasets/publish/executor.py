"""Executing a plan: write its shards, then the files beside them, then publish by the manifest.

Any number of executors may work on one plan at a time, and any may die at any step: all they write
follows from the plan, except the manifest, which only one of them creates.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256

from ....codecs.schemas.features_json import class_files, serialize_features
from ....codecs.schemas.pbtxt import serialize_pbtxt
from ....domain.manifest import FileEntry, Manifest, ShardEntry, SplitEntry
from ....domain.sharding.shard_plan import ShardPlan
from ....errors import Conflict, CorruptData, ShardsmithError
from ....runtime.buffer_pool import BufferPool
from ....storage.object_store import exists
from ..objects.dataset import Dataset
from ..objects.dataset_info import dataset_info
from ..objects.fingerprint import fingerprint
from ..objects.layout import DATASET_INFO, FEATURES, INDEX, PBTXT
from ..objects.log import Aborted
from ..objects.plan import Plan, Work
from ..objects.slot import parse_commits
from ..objects.stored_json import dump_json
from ..pieces.pieces import SplitPieces
from ..pieces.run_ahead import map_in
from ..pieces.stream import LostData, piece_buffers
from .inputs import Inputs, base_manifest, read_inputs
from .room import Room
from .shards.copy import copy_shard
from .shards.reencoding import Reencoded
from .shards.shuffle import ShuffledShard, ShuffledSplit
from .shards.source import ShardSource
from .shards.writer import RecordSource, WrittenShard, is_stored, read_done, write_done, write_shard
from .unwritten import Spread, UnwrittenShards

logger = logging.getLogger(__name__)


def is_foreign(plan: Plan) -> bool:
    """Whether the bytes of a plan are those of another release, or of another zlib."""
    work = plan.work
    return plan.fingerprint != (
        fingerprint("none") if work is None else fingerprint(work.compression, work.schema)
    )


class Executor:
    """Brings plans of one dataset to their end.

    Args:
        dataset: whose plans.
        room: for executing them; what is executed can be finished without.
        spread: has several processes write shards, where there are several.
    """

    def __init__(self, dataset: Dataset, room: Room | None = None, spread: Spread | None = None) -> None:
        self._dataset = dataset
        self._store = dataset.store
        self._log = dataset.log
        self._layout = dataset.layout
        self._description = dataset.options.description
        self._pool = dataset.pool
        self._spool = dataset.spool
        self._room = room
        self._spread = spread

    def execute(self, plan: Plan) -> Manifest | Aborted:
        """Do what is still to be done for `plan`, and say what became of it.

        Raises:
            Conflict: another release made the plan (`encoder_mismatch`).
            CorruptData: the plan, or what it names, is not of the known form.
            StorageError: the store failed; to be taken up again.
            Overloaded: no room for the longest records of a plan that was begun elsewhere; nothing was done.
        """
        work = self._work_of(plan)
        try:
            inputs = self._read_inputs(work)
            if self._spread is not None:
                self._write_by_several(plan.n, work, inputs, self._spread)
            shards = self._shards(plan.n, work, work.shards, inputs)
            verdict = self._publish(plan.n, work, shards, inputs)
        except LostData as error:
            # Inputs also vanish when somebody else has published the plan and tidied up: then it is
            # published, since of the two manifests only the first can be created.
            verdict = self._log.settle(plan.n, {"aborted": error.detail})
        if isinstance(verdict, Manifest):
            self.finish(plan, verdict)
        return verdict

    def write(self, plan: Plan, numbers: Sequence[int]) -> None:
        """Write some shards of `plan` that are not written yet; to publish them is left to others.

        Nothing is said of shards that cannot be written because what they are made of is gone: either the
        plan is published, or whoever publishes it finds out.

        Raises:
            As `execute`.
        """
        work = self._work_of(plan)
        with contextlib.suppress(LostData):
            self._write_some(plan.n, work, numbers, self._read_inputs(work))

    def _work_of(self, plan: Plan) -> Work:
        if is_foreign(plan):
            raise Conflict(
                f"Version {self._layout.version(plan.n)} was begun by another release of the service, "
                f"which has to finish it.",
                code="encoder_mismatch",
            )
        if plan.work is None:
            raise CorruptData(f"{self._layout.plan(plan.n)} is not of the known form.")
        return plan.work

    def _read_inputs(self, work: Work) -> Inputs:
        """What a plan says, once there is room for it."""
        inputs = read_inputs(self._dataset, work)
        if self._room is not None:
            longest = [pieces.longest_record for pieces in inputs.values()]
            self._room.require_for(
                longest, shuffled=work.shuffle_seed is not None, reencoded=work.schema.needs_reencoding
            )
        return inputs

    def finish(self, plan: Plan, manifest: Manifest) -> None:
        """What follows a publication, which stands whether or not this succeeds.

        Where TFDS's dataset_info.json is missing, the next publish takes this up again; once it is
        there, a crash costs nothing but the room of consumed parts.
        """
        try:
            self._put_dataset_info(plan.n, manifest)
            self._log.put_hint(plan.n)
            if plan.work is not None:
                self._delete_parts(plan.work)
        except ShardsmithError as error:
            version, name = manifest.version, manifest.dataset
            logger.warning("version %s of %s is published; what follows failed: %s", version, name, error)

    def finish_if_needed(self, n: int, manifest: Manifest) -> None:
        """Finish version `n` where its publisher could not."""
        if DATASET_INFO in manifest.by_file and not exists(self._store, self._layout.file(n, DATASET_INFO)):
            self.finish(self._log.plan(n), manifest)

    def _put_dataset_info(self, n: int, manifest: Manifest) -> None:
        """Write dataset_info.json, if it is to this release what it was to the publisher's."""
        entry = manifest.by_file.get(DATASET_INFO)
        if entry is None:
            return
        data = dataset_info(manifest, self._description)
        if entry.sha256 == sha256(data).hexdigest():
            self._store.put(self._layout.file(n, DATASET_INFO), data)

    def _delete_parts(self, work: Work) -> None:
        commits = parse_commits(self._log.named(work.inputs), work.inputs.key)
        parts = [part for commit in commits for part in commit.parts(self._layout)]
        deque(map_in(self._pool, self._store.delete, parts), maxlen=0)

    def _write_by_several(self, n: int, work: Work, inputs: Inputs, spread: Spread) -> None:
        missing = tuple(number for number, done in enumerate(self._all_done(n, work.shards)) if done is None)
        if len(missing) < 2:
            return
        name, version = self._layout.dataset, str(self._layout.version(n))
        spread(
            UnwrittenShards(name, version, missing, shuffled=work.shuffle_seed is not None),
            lambda shards: self._write_some(n, work, shards.numbers, inputs),
        )

    def _write_some(self, n: int, work: Work, numbers: Sequence[int], inputs: Inputs) -> None:
        self._shards(n, work, [work.shards[number] for number in numbers], inputs)

    def _shards(self, n: int, work: Work, shards: Sequence[ShardPlan], inputs: Inputs) -> list[WrittenShard]:
        """Write those shards that no executor has written yet."""
        found = self._all_done(n, shards)
        with ExitStack() as stack:
            shuffled = self._shuffle_splits(work, shards, found, inputs, stack)
            buffers = stack.enter_context(piece_buffers())
            written: list[WrittenShard] = []
            for shard, known in zip(shards, found, strict=True):
                # While the ones before were written, another executor may have come to this one.
                done = known or (self._done(n, shard) if written else None)
                written.append(done or self._write(n, work, shard, inputs, shuffled, buffers))
            return written

    def _shuffle_splits(
        self,
        work: Work,
        shards: Sequence[ShardPlan],
        found: Sequence[WrittenShard | None],
        inputs: Inputs,
        stack: ExitStack,
    ) -> Mapping[str, ShuffledSplit]:
        """The splits in their new order, of which the shards are read that are not written yet."""
        if work.shuffle_seed is None:
            return {}
        ranges: dict[str, list[tuple[int, int]]] = {}
        for shard, known in zip(shards, found, strict=True):
            if known is None:
                ranges.setdefault(shard.split, []).append((shard.start, shard.stop))
        splits = {}
        for split, missing in ranges.items():
            pieces = inputs[split]
            splits[split] = ShuffledSplit(
                _source(work, ShardPlan(split, "", 0, pieces.num_records), pieces),
                pieces.num_records,
                pieces.num_bytes,
                f"{work.shuffle_seed}/{split}",
                self._spool,
                missing,
            )
            stack.callback(splits[split].close)
        return splits

    def _all_done(self, n: int, shards: Sequence[ShardPlan]) -> list[WrittenShard | None]:
        return list(map_in(self._pool, lambda shard: self._done(n, shard), shards))

    def _done(self, n: int, shard: ShardPlan) -> WrittenShard | None:
        """What an executor noted of a shard, where that still lies there."""
        done = read_done(self._store, self._layout.done(n, shard.file), shard.file)
        return done if done and is_stored(self._store, self._layout.file(n, shard.file), done) else None

    def _write(
        self,
        n: int,
        work: Work,
        shard: ShardPlan,
        inputs: Inputs,
        shuffled: Mapping[str, ShuffledSplit],
        buffers: BufferPool,
    ) -> WrittenShard:
        """Write one shard and note that it is written."""
        written = self._copy_shard(n, work, shard)
        if written is None:
            if shard.split in shuffled:
                source: RecordSource = ShuffledShard(shuffled[shard.split], shard.start, shard.stop)
            else:
                source = _source(work, shard, inputs[shard.split])
            written = write_shard(
                shard,
                source,
                self._store,
                self._layout.file(n, shard.file),
                compression=work.compression,
                index_in=self._spool if work.index else None,
                pool=self._pool,
                buffers=buffers,
            )
        noted = read_done(self._store, self._layout.done(n, shard.file), shard.file)
        if noted is not None and noted != written:
            raise LostData(f"Two executors of {self._layout.file(n, shard.file)} got different bytes.")
        write_done(self._store, self._layout.done(n, shard.file), written)
        return written

    def _copy_shard(self, n: int, work: Work, shard: ShardPlan) -> WrittenShard | None:
        """Copy a shard of the base; None where the plan does not say so.

        None also where an index is wanted that the base does not have. Copied or written, the bytes are
        the same, where the base is not compressed: and no other has indexes.
        """
        if work.base is None or shard.copy_of is None:
            return None
        manifest = base_manifest(self._dataset, work.base)
        entry = manifest.by_file.get(shard.copy_of)
        if not isinstance(entry, ShardEntry) or entry.num_records != shard.num_records:
            raise CorruptData(f"{self._layout.plan(n)} copies {shard.copy_of}, which the base does not have.")
        if work.index and entry.index is None:
            return None
        pieces = self._log.index(work.base, manifest)[shard.copy_of]
        return copy_shard(
            WrittenShard(entry, pieces),
            self._layout.file(work.base, shard.copy_of),
            shard.file,
            self._store,
            self._layout.file(n, shard.file),
            index=work.index,
            pool=self._pool,
        )

    def _publish(
        self, n: int, work: Work, shards: Sequence[WrittenShard], inputs: Inputs
    ) -> Manifest | Aborted:
        entries: dict[str, list[ShardEntry]] = {split: [] for split in inputs}
        for shard, written in zip(work.shards, shards, strict=True):
            entries[shard.split].append(written.entry)
        splits = {split: SplitEntry(tuple(of_split)) for split, of_split in entries.items()}
        index = {written.entry.file: [piece.to_json() for piece in written.pieces] for written in shards}
        side_files = {PBTXT: serialize_pbtxt(work.schema), INDEX: dump_json({"shards": index})}
        if work.schema.message == "example":  # TFDS knows no other
            side_files = {FEATURES: serialize_features(work.schema), **class_files(work.schema), **side_files}
        for name, data in side_files.items():
            self._store.put(self._layout.file(n, name), data)
        manifest = Manifest(
            self._layout.dataset,
            str(self._layout.version(n)),
            splits,
            work.schema,
            compression=work.compression,
        )
        if FEATURES in side_files and work.compression == "none":  # or TFDS would read it wrongly
            side_files[DATASET_INFO] = dataset_info(manifest, self._description)
        files = [FileEntry(name, len(data), sha256(data).hexdigest()) for name, data in side_files.items()]
        return self._log.settle(n, replace(manifest, files=tuple(files)).to_json())


def _source(work: Work, shard: ShardPlan, pieces: SplitPieces) -> RecordSource:
    """The records that `shard` takes of its split, as the schema of the version has them."""
    source = ShardSource.of(shard, pieces)
    return Reencoded(source, work.schema) if work.schema.needs_reencoding else source
