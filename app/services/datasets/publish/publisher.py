"""Publishing: freeze what was appended in a plan that only one publisher can create, then execute it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from ....domain.manifest import Manifest
from ....domain.names import parse_version
from ....errors import Conflict, CorruptData, NotFound, ShardsmithError, UnprocessableInput
from ....storage.create_once import create_once, store_time
from ....storage.object_store import ObjectNotFound
from ..objects.dataset import Dataset
from ..objects.plan import Plan
from ..objects.publish_options import PublishOptions
from ..objects.seen import Consumed, Seen
from ..objects.slot import Commit, read_slot
from ..pieces.stream import LostData
from .drafter import Drafter
from .executor import Executor, is_foreign
from .new_appends import NewAppends
from .progress import notes_of
from .room import Room
from .unwritten import Spread, UnwrittenShards

#: An executor that has written nothing for so long, by the store's clock, is taken for dead.
_STALLED: Final = timedelta(seconds=60)
#: Plans that may get in the way of one publish before it gives up.
_ROUNDS: Final = 20


class Publisher:
    """Publishes one incarnation of a dataset. Lives for one request."""

    def __init__(self, dataset: Dataset, room: Room, spread: Spread | None = None) -> None:
        self._dataset = dataset
        self._store = dataset.store
        self._layout = dataset.layout
        self._log = dataset.log
        self._drafter = Drafter(dataset, room)
        self._executor = Executor(dataset, room, spread)
        self._new = NewAppends(dataset)

    def publish(
        self,
        options: PublishOptions,
        wants: str | None,
        before_plan: Callable[[], None],
        announce: Callable[[str], None],
    ) -> Manifest:
        """See `Datasets.publish`."""
        for _ in range(_ROUNDS):
            newest = self._log.newest()
            if newest and self._log.verdict(newest) is None:
                self._help(newest, options, wants, announce)
                continue
            published = self._log.newest_published(newest)
            seen = self._log.seen(published)
            answer = self._answer(published, seen, options, wants)
            if answer is not None:
                return answer
            listed, commits = self._new.find(seen, options.exclude)
            left_out = self._left_out(seen, commits, options, wants)
            commits = [commit for commit in commits if commit.append_id not in options.exclude]
            self._require_new([*commits, *left_out], wants)
            after = self._new.after(newest + 1, seen, listed, commits, left_out, options.publish_key)
            base = published if published and options.base == "latest" else None
            verdict = self._begin(newest + 1, base, after, commits, options, before_plan, announce)
            if isinstance(verdict, Manifest):
                return verdict
        raise Conflict(
            f"Other publications of dataset {self._layout.dataset!r} keep coming first. Try again.",
            code="publish_in_progress",
        )

    def _help(
        self, n: int, options: PublishOptions, wants: str | None, announce: Callable[[str], None]
    ) -> None:
        """Bring the undecided plan `n` to its end, if that is ours to do.

        A plan that nobody executes any more, and that only another release could, is given up.

        Raises:
            Conflict: somebody else is at it (`publish_in_progress`, `encoder_mismatch`).
        """
        plan = self._log.plan(n)
        version = str(self._layout.version(n))
        same_key = options.publish_key is not None and options.publish_key == plan.publish_key
        foreign = is_foreign(plan)
        ours = wants is not None or same_key
        stalled = (foreign or not ours) and self._is_stalled(n)
        if not ours and not stalled:
            raise Conflict(
                f"Version {version} is being published. Wait for it, then publish again.",
                code="publish_in_progress",
                extra={"version": version},
            )
        if stalled and foreign:
            self._log.give_up(n, "No service of the release that began it came to finish it.")
            return
        announce(version)
        self._executor.execute(plan)

    def _is_stalled(self, n: int) -> bool:
        _, updated_at = notes_of(self._dataset, n)
        return store_time(self._store) - updated_at >= _STALLED

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
                "This idempotency key was used to publish with other parameters. Use a new key.",
                code="idempotency_key_reused",
            )
        if n is None and wants is not None:
            n = self._find_consumer(seen, wants)
        if n is None:
            return None
        verdict = self._log.verdict(n)
        if not isinstance(verdict, Manifest):
            raise CorruptData(f"Version {self._layout.version(n)} is on record as published, but is not.")
        return verdict

    def _find_consumer(self, seen: Seen, append_id: str) -> int | None:
        """The plan that consumed an append; None where the id stands for another append since."""
        fate = seen.appends.get(append_id)
        if fate is None:
            return None
        try:
            slot = read_slot(self._store, self._layout, append_id)
        except ObjectNotFound:
            return fate.n
        return None if isinstance(slot, Commit) and not fate.is_of(slot.nonce) else fate.n

    def _left_out(
        self, seen: Seen, commits: Sequence[Commit], options: PublishOptions, wants: str | None
    ) -> list[Commit]:
        """The appends that are to be consumed without their rows.

        Raises:
            UnprocessableInput: the wanted append is one of them (`contradictory_options`).
            NotFound: there is no such append (`append_not_found`).
            Conflict: a version has consumed it (`append_published`).
        """
        if wants in options.exclude:
            raise UnprocessableInput(
                f"Append {wants} is both to be published and to be left out.", code="contradictory_options"
            )
        new = {commit.append_id: commit for commit in commits}
        for append_id in options.exclude:
            if append_id not in new:
                raise self._no_such_append(append_id, seen.appends.get(append_id))
        return [new[append_id] for append_id in options.exclude]

    def _no_such_append(self, append_id: str, fate: Consumed | None) -> ShardsmithError:
        if fate is None:
            return NotFound(
                f"Dataset {self._layout.dataset!r} has no append {append_id} to leave out.",
                code="append_not_found",
            )
        version = str(self._layout.version(fate.n))
        done = "left it out" if fate.excluded else "holds its rows"
        return Conflict(
            f"Append {append_id} cannot be left out any more: version {version} {done}.",
            code="append_published",
            extra={"version": version},
        )

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
        self,
        n: int,
        base: int | None,
        seen: Seen,
        commits: Sequence[Commit],
        options: PublishOptions,
        before_plan: Callable[[], None],
        announce: Callable[[str], None],
    ) -> Manifest | None:
        """Plan version `n` and execute it; None where another publisher's plan came first.

        Raises:
            CorruptData: an acknowledged append cannot be read; the version is aborted.
            Conflict: somebody has given the version up (`publish_aborted`).
        """
        try:
            plan = self._drafter.draft(n, base, seen, commits, options)
        except LostData:
            if self._log.newest() < n:
                raise
            return None  # whoever came first has published these appends, and tidied up
        try:
            before_plan()
        except ShardsmithError:
            self._drafter.discard(plan)
            raise
        key = self._layout.plan(n)
        winner = create_once(self._store, key, plan.serialize())
        if winner is not None:
            Plan.parse(winner, key)  # another's, which can be told of none that is damaged
            self._drafter.discard(plan)
            return None
        version = str(self._layout.version(n))
        announce(version)
        verdict = self._executor.execute(plan)
        if isinstance(verdict, Manifest):
            return verdict
        if verdict.lost_data:
            raise CorruptData(
                f"Version {version} was aborted: {verdict.reason} If an append is lost for good, publish "
                f"without it: exclude= its append_id."
            )
        raise Conflict(
            f"Version {version} was aborted: {verdict.reason} Its rows are free again; publish once more.",
            code="publish_aborted",
            extra={"version": version},
        )


def write_shards(dataset: Dataset, room: Room, shards: UnwrittenShards) -> None:
    """See `Datasets.write_shards`."""
    log, layout = dataset.log, dataset.layout
    n = layout.number(parse_version(shards.version))
    if n == 0 or n > log.newest():
        raise NotFound(
            f"Dataset {dataset.name!r} has no version {shards.version!r} that was begun.",
            code="version_not_found",
        )
    if log.verdict(n) is None:
        Executor(dataset, room).write(log.plan(n), shards.numbers)


def abort_version(dataset: Dataset, version: str) -> str:
    """See `Datasets.abort`."""
    log, layout = dataset.log, dataset.layout
    n = layout.number(parse_version(version))
    if n == 0 or n > log.newest():
        raise NotFound(
            f"Dataset {dataset.name!r} has no version {version!r} that was begun.", code="version_not_found"
        )
    verdict = log.give_up(n, "An operator gave it up.")
    if isinstance(verdict, Manifest):
        raise Conflict(
            f"Version {version} is published, and cannot be aborted any more.", code="version_published"
        )
    return verdict.reason
