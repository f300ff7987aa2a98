"""Publishing: freeze what was appended in a plan that only one publisher can create, then execute it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

from ...domain.manifest import Manifest
from ...domain.names import is_append_id
from ...domain.shard_plan import MAX_SHARDS, ShardPlan, default_num_shards, plan_split
from ...errors import Conflict, CorruptData, LimitExceeded, MalformedInput, StorageError, UnprocessableInput
from ...storage.create_once import create_once, new_nonce, store_time
from ...storage.object_store import ObjectStore
from ..shard_writer import FINGERPRINT
from .catalog import Catalog, Incarnation
from .execute import Executor
from .log import Aborted, Base, Decided, NamedFile, Plan, PublishLog, Seen, Work
from .slot import Commit, Slot, read_slot, serialize_commits

__all__ = ["PublishOptions", "Publisher"]

#: An executor that has written nothing for so long, by the store's clock, is taken for dead.
_STALLED: Final = timedelta(seconds=60)
#: Plans that may get in the way of one publish before it gives up.
_ROUNDS: Final = 20
_DIGITS: Final = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What a publish asks for.

    Attributes:
        num_shards: of each split, or of each by name; what it does not say goes by size.
        base: `latest` puts the rows of the last version first, `none` publishes new rows alone.
        publish_key: the same key again gives the same version.
    """

    num_shards: int | Mapping[str, int] | None = None
    base: Base = "latest"
    publish_key: str | None = None

    def __post_init__(self) -> None:
        asked = self.num_shards.values() if isinstance(self.num_shards, Mapping) else [self.num_shards]
        for value in asked:
            if value is not None and (type(value) is not int or not 1 <= value <= MAX_SHARDS):
                raise MalformedInput(
                    f"The number of shards is an integer from 1 to {MAX_SHARDS}.", code="invalid_num_shards"
                )

    def to_json(self) -> dict[str, Any]:
        """What a repetition under the same key must ask for, too."""
        num_shards = dict(self.num_shards) if isinstance(self.num_shards, Mapping) else self.num_shards
        return {"num_shards": num_shards, "base": self.base}

    def repeats(self, stored: Mapping[str, Any]) -> bool:
        """Whether this asks for what `stored` did, the `to_json` of perhaps another release.

        A member that one of the two does not have stands at its default.
        """
        defaults = PublishOptions().to_json()
        return all(stored.get(name, defaults[name]) == value for name, value in self.to_json().items())

    def shards_by_split(self, num_bytes: Mapping[str, int], num_records: Mapping[str, int]) -> dict[str, int]:
        """How many shards each split gets; one without records gets none.

        Raises:
            UnprocessableInput: asked for a split that is not there (`split_not_found`).
            LimitExceeded: more than a manifest may name (`too_many_shards`).
        """
        asked = self.num_shards
        by_split = asked if isinstance(asked, Mapping) else dict.fromkeys(num_records, asked)
        for split in by_split:
            if split not in num_records:
                raise UnprocessableInput(
                    f"Shards are asked for split {split!a:.66}, which has no rows.", code="split_not_found"
                )
        counts = {
            split: (by_split.get(split) or default_num_shards(num_bytes[split], count)) if count else 0
            for split, count in num_records.items()
        }
        if sum(counts.values()) > MAX_SHARDS:
            raise LimitExceeded(
                f"The splits together would have {sum(counts.values())} shards; at most {MAX_SHARDS} are "
                f"allowed. Ask for fewer.",
                code="too_many_shards",
            )
        return counts


class Publisher:
    """Publishes one incarnation of a dataset. Lives for one request."""

    def __init__(
        self,
        store: ObjectStore,
        catalog: Catalog,
        incarnation: Incarnation,
        decided: Decided,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._incarnation = incarnation
        self._layout = incarnation.layout
        self._log = PublishLog(store, incarnation.layout, decided)
        self._executor = Executor(store, self._log, incarnation, pool)
        self._pool = pool

    def publish(self, options: PublishOptions, wants: str | None) -> Manifest:
        """See `Datasets.publish`."""
        for _ in range(_ROUNDS):
            newest = self._log.newest()
            if newest and self._log.verdict(newest) is None:
                self._help(newest, options, wants)
                continue
            published = self._log.newest_published(newest)
            seen = self._log.seen(published)
            answer = self._answer(published, seen, options, wants)
            if answer is not None:
                return answer
            commits = self._new_commits(seen)
            self._require_new(commits, wants)
            verdict = self._begin(newest + 1, published or None, seen, commits, options)
            if isinstance(verdict, Manifest):
                return verdict
        raise Conflict(
            f"Other publications of dataset {self._layout.dataset!r} keep coming first. Try again.",
            code="publish_in_progress",
        )

    def _help(self, n: int, options: PublishOptions, wants: str | None) -> None:
        """Bring the undecided plan `n` to its end, if that is ours to do.

        Raises:
            Conflict: somebody else is at it (`publish_in_progress`).
        """
        plan = self._log.plan(n)
        same_key = options.publish_key is not None and options.publish_key == plan.publish_key
        if wants is None and not same_key and not self._is_stalled(n):
            raise Conflict(
                f"Version {self._layout.version(n)} is being published. Wait for it, then publish again.",
                code="publish_in_progress",
                extra={"version": str(self._layout.version(n))},
            )
        self._executor.execute(plan)

    def _is_stalled(self, n: int) -> bool:
        moments = [self._store.head(self._layout.plan(n)).last_modified]
        moments += [info.last_modified for info in self._store.list(self._layout.all_done(n))]
        return store_time(self._store) - max(moments) >= _STALLED

    def _answer(
        self, published: int, seen: Seen, options: PublishOptions, wants: str | None
    ) -> Manifest | None:
        """The version that already holds what was asked for, by publish key or by append.

        Raises:
            UnprocessableInput: the publish key was used for another request.
        """
        if published:
            last = self._log.verdict(published)
            if isinstance(last, Manifest):
                self._executor.finish_if_needed(published, last)
        key = options.publish_key
        n = seen.publish_keys.get(key) if key is not None else None
        if n is not None and not options.repeats(self._log.plan(n).options):
            raise UnprocessableInput(
                "This Idempotency-Key was used to publish with other parameters. Use a new key.",
                code="idempotency_key_reused",
            )
        if n is None and wants is not None:
            n = seen.appends.get(wants)
        if n is None:
            return None
        verdict = self._log.verdict(n)
        if not isinstance(verdict, Manifest):
            raise CorruptData(f"Version {self._layout.version(n)} is on record as published, but is not.")
        return verdict

    def _require_new(self, commits: Sequence[Commit], wants: str | None) -> None:
        """Refuse to publish what is not there.

        Raises:
            Conflict: the wanted append is neither published nor new (`dataset_deleted`), or nothing
                is (`nothing_to_publish`).
        """
        name = self._layout.dataset
        if wants is not None and all(commit.append_id != wants for commit in commits):
            raise Conflict(
                f"Dataset {name!r} has no append {wants}: it was deleted since, or created anew. Send the "
                f"rows again.",
                code="dataset_deleted",
            )
        if not commits:
            raise Conflict(
                f"Dataset {name!r} has no rows that are not published. Append some first.",
                code="nothing_to_publish",
            )

    def _begin(
        self, n: int, base: int | None, seen: Seen, commits: Sequence[Commit], options: PublishOptions
    ) -> Manifest | None:
        """Plan version `n` and execute it; None where another publisher's plan came first.

        Raises:
            CorruptData: an acknowledged append cannot be read; the version is aborted.
        """
        nonce = new_nonce()
        plan = self._plan(n, nonce, base, seen, commits, options)
        if create_once(self._store, self._layout.plan(n), plan.serialize()) is not None:
            for key in (self._layout.inputs(n, nonce), self._layout.seen(n, nonce)):
                with contextlib.suppress(StorageError):
                    self._store.delete(key)
            return None
        verdict = self._executor.execute(plan)
        if isinstance(verdict, Aborted):
            raise CorruptData(f"Version {self._layout.version(n)} was aborted: {verdict.reason}")
        return verdict

    def _new_commits(self, seen: Seen) -> list[Commit]:
        """Every acknowledged append that no published plan has consumed, in order."""
        listings = self._pool.map(self._listed, _DIGITS)
        fresh = [append_id for ids in listings for append_id in ids if append_id not in seen.appends]
        slots: list[Slot] = list(
            self._pool.map(lambda append_id: read_slot(self._store, self._layout, append_id), fresh)
        )
        commits = [slot for slot in slots if isinstance(slot, Commit)]
        return sorted(commits, key=lambda commit: commit.rank)

    def _listed(self, digit: str) -> list[str]:
        folder = self._layout.slots(digit)
        names = [info.key.removeprefix(f"{folder}/") for info in self._store.list(folder)]
        return [name for name in names if is_append_id(name) and name.startswith(digit)]

    def _plan(
        self,
        n: int,
        nonce: str,
        base: int | None,
        seen: Seen,
        commits: Sequence[Commit],
        options: PublishOptions,
    ) -> Plan:
        """Fix what version `n` will hold, and store the files that the plan names.

        Raises:
            InputError: as `PublishOptions.shards_by_split`; nothing is stored.
        """
        schema = self._catalog.schema(self._incarnation)
        if schema is None:
            raise CorruptData(f"Dataset {self._layout.dataset!r} has rows, but no schema.")
        if options.base == "none":
            base = None
        shards = self._shards(base, commits, options)
        appends = {**seen.appends, **{commit.append_id: n for commit in commits}}
        keys = {**seen.publish_keys, **({options.publish_key: n} if options.publish_key else {})}
        inputs = self._put(self._layout.inputs(n, nonce), serialize_commits(commits))
        return Plan(
            n=n,
            nonce=nonce,
            publish_key=options.publish_key,
            options=options.to_json(),
            seen=self._put(self._layout.seen(n, nonce), Seen(appends, keys).serialize()),
            fingerprint=FINGERPRINT,
            work=Work(base, inputs, schema, shards),
        )

    def _put(self, key: str, data: bytes) -> NamedFile:
        self._store.put(key, data)
        return NamedFile(key, sha256(data).hexdigest())

    def _shards(
        self, base: int | None, commits: Sequence[Commit], options: PublishOptions
    ) -> tuple[ShardPlan, ...]:
        num_records: dict[str, int] = {}
        num_bytes: dict[str, int] = {}
        verdict = None if base is None else self._log.verdict(base)
        if isinstance(verdict, Manifest):
            num_records = {name: split.num_records for name, split in verdict.splits.items()}
            num_bytes = {name: split.num_bytes for name, split in verdict.splits.items()}
        for commit in commits:
            num_records[commit.split] = num_records.get(commit.split, 0) + commit.num_records
            num_bytes[commit.split] = num_bytes.get(commit.split, 0) + commit.num_bytes
        return tuple(
            shard
            for split, count in options.shards_by_split(num_bytes, num_records).items()
            for shard in plan_split(self._layout.dataset, split, num_records[split], count)
        )
