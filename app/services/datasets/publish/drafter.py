"""Making a plan: what a version will hold is counted, laid out in shards, and fixed to the byte."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from hashlib import sha256

from ....domain.manifest import Manifest
from ....domain.schema import Schema
from ....domain.sharding.shard_plan import BaseShard, ShardPlan
from ....errors import CorruptData, StorageError, UnprocessableInput
from ....storage.create_once import new_nonce
from ..objects.dataset import Dataset
from ..objects.fingerprint import fingerprint
from ..objects.plan import NamedFile, Plan, Work
from ..objects.publish_options import PublishOptions
from ..objects.seen import Seen
from ..objects.slot import Commit, serialize_commits
from ..pieces.pieces import longest_record
from .dealing import Dealer, Dealt, count_dealt, serialize_dealt
from .inputs import Inputs, base_pieces, gather_inputs
from .planning import SplitContent, base_shards, can_keep_shards, plan_shards
from .room import Room


class Drafter:
    """Makes plans for one incarnation of a dataset, and stores the files that they name."""

    def __init__(self, dataset: Dataset, room: Room) -> None:
        self._dataset = dataset
        self._store = dataset.store
        self._layout = dataset.layout
        self._log = dataset.log
        self._room = room

    def draft(
        self, n: int, base: int | None, seen: Seen, commits: Sequence[Commit], options: PublishOptions
    ) -> Plan:
        """Plan `n`, and all that it names in its place; only the plan itself is not stored.

        Args:
            n: its number.
            base: the version whose rows come first.
            seen: what is consumed once this plan is published.
            commits: the appends whose rows follow, in order.
            options: what was asked for.

        Raises:
            InputError: as `plan_shards`; rows cannot be dealt out as asked (`invalid_division`,
                `split_not_found`). Nothing is stored.
            CorruptData: rows whose values decide where they go cannot be read.
            Overloaded: no room for the longest records. Nothing is stored.
        """
        schema = self._schema()
        dealer = None if options.division is None else Dealer(options.division, schema)
        pieces = base_pieces(self._dataset, base)
        longest = [longest_record(stored.piece for stored in of_split) for of_split in pieces.values()]
        longest += [longest_record(commit.pieces) for commit in commits]
        self._room.require_for(
            longest, shuffled=options.shuffle_seed is not None, reencoded=schema.needs_reencoding
        )
        dealt = None if dealer is None else self._deal(base, commits, dealer)
        inputs = gather_inputs(self._layout, pieces, commits, dealer, dealt)
        shards = self._shards(base, inputs, schema, options)
        nonce = new_nonce()
        work = Work(
            base=base,
            inputs=self._put(self._layout.inputs(n, nonce), serialize_commits(commits)),
            schema=schema,
            shards=shards,
            compression=options.compression,
            index=options.indexed,
            shuffle_seed=options.shuffle_seed,
            division=options.division,
            dealt=None if dealt is None else self._put(self._layout.dealt(n, nonce), serialize_dealt(dealt)),
        )
        return Plan(
            n=n,
            nonce=nonce,
            publish_key=options.publish_key,
            options=options.to_json(),
            seen=self._put(self._layout.seen(n, nonce), seen.serialize()),
            fingerprint=fingerprint(options.compression, schema),
            work=work,
        )

    def discard(self, plan: Plan) -> None:
        """Remove the files of a plan that came too late; no plan names them."""
        for key in (
            self._layout.seen(plan.n, plan.nonce),
            self._layout.inputs(plan.n, plan.nonce),
            *([self._layout.dealt(plan.n, plan.nonce)] if plan.work and plan.work.dealt else []),
        ):
            with contextlib.suppress(StorageError):
                self._store.delete(key)

    def _schema(self) -> Schema:
        schema = self._dataset.schema()
        if schema is None:
            raise CorruptData(f"Dataset {self._layout.dataset!r} has rows, but no schema.")
        return schema

    def _deal(self, base: int | None, commits: Sequence[Commit], dealer: Dealer) -> Dealt:
        source = dealer.division.source
        ours = [commit for commit in commits if commit.split == source]
        published = None if base is None else self._log.verdict(base)
        if not ours and not (isinstance(published, Manifest) and source in published.splits):
            raise UnprocessableInput(
                f"The rows of split {source!a:.66} are to be dealt out, which has none.",
                code="split_not_found",
            )
        return count_dealt(self._dataset, ours, dealer)

    def _shards(
        self, base: int | None, inputs: Inputs, schema: Schema, options: PublishOptions
    ) -> tuple[ShardPlan, ...]:
        manifest = None if base is None else self._log.verdict(base)
        shards: Mapping[str, tuple[BaseShard, ...]] = {}
        keep = False
        if base is not None and isinstance(manifest, Manifest):
            shards = base_shards(manifest, self._log.index(base, manifest))
            keep = can_keep_shards(options, manifest, schema)
        contents = {
            split: SplitContent(pieces.num_records, pieces.num_bytes, shards.get(split, ()))
            for split, pieces in inputs.items()
        }
        return plan_shards(self._layout.dataset, contents, options, keep=keep)

    def _put(self, key: str, data: bytes) -> NamedFile:
        self._store.put(key, data)
        return NamedFile(key, sha256(data).hexdigest())
