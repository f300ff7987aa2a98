"""Versions that are no more, or never were: retention, deletion, and the files of aborted plans."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, Literal, get_args

from ....domain.names import parse_version
from ....errors import MalformedInput, ShardsmithError
from ....storage.create_once import create_once, new_nonce
from ....storage.object_store import ObjectInfo, ObjectNotFound, ObjectStore
from ..objects.layout import DATASET_INFO, DELETED, MANIFEST, Layout
from ..objects.log import Aborted, PublishLog
from ..objects.stored_json import seal_json
from ..pieces.run_ahead import map_in
from .sweep import Kind, Sweep

#: Readers that found the version before it was deleted get so long to come to an end.
_GRACE: Final = timedelta(hours=1)
#: Created once, and never deleted while the incarnation lives.
_STAYS: Final = frozenset((MANIFEST, DELETED))

#: `deleted`: readers may still be at it; `over`: none is.
_State = Literal["undecided", "published", "aborted", "deleted", "over"]

_NAMED: Final = re.compile(r"(?P<n>[1-9][0-9]*)\.(?P<nonce>[0-9a-f]{32})\.[a-z]+")
_DONE: Final = re.compile(r"(?P<n>[1-9][0-9]*)\.done/.+")


def delete_version(store: ObjectStore, layout: Layout, n: int) -> None:
    """Mark version `n` as deleted. There must be a later one that is published.

    Then no plan that is undecided builds on it: a plan's base is the last version published before
    it, and all plans before the later version are decided. So nobody misses its bytes.
    """
    create_once(store, layout.deleted(n), seal_json({"nonce": new_nonce()}))


def version_numbers(layout: Layout, folders: Iterable[str]) -> list[int]:
    """The numbers of the plans of this incarnation that have a folder, in order."""
    numbers = []
    for name in folders:
        with contextlib.suppress(MalformedInput):
            numbers.append(layout.number(parse_version(name)))
    return sorted(n for n in numbers if n)


def _states(sweep: Sweep, layout: Layout, log: PublishLog, numbers: Sequence[int]) -> dict[_State, list[int]]:
    """What became of the plans of an incarnation; one that cannot be told is in none of the lists."""

    def state(n: int) -> _State | ShardsmithError:
        try:
            return _state(sweep, layout, log, n)
        except ShardsmithError as error:
            return error

    found: dict[_State, list[int]] = {name: [] for name in get_args(_State)}
    for n, answer in zip(numbers, map_in(sweep.pool, state, numbers), strict=True):
        if isinstance(answer, ShardsmithError):
            sweep.fail(layout.folder(n), answer)
        else:
            found[answer].append(n)
    return found


def _state(sweep: Sweep, layout: Layout, log: PublishLog, n: int) -> _State:
    verdict = log.verdict(n)
    if verdict is None:
        return "undecided"
    if isinstance(verdict, Aborted):
        return "aborted"
    try:
        deleted = sweep.store.head(layout.deleted(n)).last_modified
    except ObjectNotFound:
        return "published"
    return "over" if deleted + _GRACE <= sweep.now else "deleted"


def sweep_versions(sweep: Sweep, layout: Layout, log: PublishLog, keep: int | None) -> set[int]:
    """Retire versions beyond the newest `keep`, and remove the files of those deleted or aborted.

    An executor that is still at work on an aborted plan, or woke up over one whose version was deleted
    since, writes again what is deleted here; so it is looked for at each run.

    Returns:
        The numbers of which no file is wanted any more.
    """
    numbers = version_numbers(layout, sweep.store.list_children(layout.dataset))
    states = _states(sweep, layout, log, numbers)
    if keep is not None:
        _retire(sweep, layout, states["published"][:-keep])
    for n in states["aborted"]:
        _sweep_folder(sweep, layout.folder(n), "aborted_version_files")
    for n in states["over"]:
        _sweep_folder(sweep, layout.folder(n), "deleted_version_files")
    return {*states["aborted"], *states["over"]}


def _retire(sweep: Sweep, layout: Layout, numbers: Iterable[int]) -> None:
    for n in numbers:
        try:
            if not sweep.dry_run:
                delete_version(sweep.store, layout, n)
        except ShardsmithError as error:
            sweep.fail(layout.deleted(n), error)
        else:
            sweep.report.retired_versions.append(str(layout.version(n)))


def _sweep_folder(sweep: Sweep, folder: str, kind: Kind, stays: Collection[str] = _STAYS) -> None:
    def decide(info: ObjectInfo) -> Kind | None:
        return None if info.key.removeprefix(f"{folder}/") in stays else kind

    def work() -> None:
        if not sweep.dry_run:  # first, so that TFDS no longer takes the rest for a version
            with contextlib.suppress(ObjectNotFound):
                sweep.delete([sweep.store.head(f"{folder}/{DATASET_INFO}")], decide)
        sweep.each(sweep.store.list(folder), decide)

    sweep.step(folder, work)


def sweep_log(sweep: Sweep, layout: Layout, log: PublishLog, newest: int, gone: Collection[int]) -> None:
    """Delete what publishers left that lost their number to another, and notes on shards that are gone.

    Args:
        newest: the number of a plan that exists, as do all before it; 0 for none.
        gone: the numbers of which no file is wanted any more.
    """
    named: dict[int, dict[str, list[ObjectInfo]]] = {}

    def name_of(info: ObjectInfo) -> str:
        return info.key.removeprefix(f"{layout.log}/")

    def decide(info: ObjectInfo) -> Kind | None:
        done = _DONE.fullmatch(name_of(info))
        return "log_files" if done is not None and int(done["n"]) in gone else None

    for batch in sweep.batches(sweep.store.list(layout.log)):
        sweep.delete(batch, decide)
        for info in batch:
            if (found := _NAMED.fullmatch(name_of(info))) is not None and int(found["n"]) <= newest:
                named.setdefault(int(found["n"]), {}).setdefault(found["nonce"], []).append(info)
    for n, by_nonce in named.items():
        if len(by_nonce) > 1:  # the plan's own, which were there before it, and those of losers
            sweep.step(layout.plan(n), partial(_delete_losers, sweep, log, n, by_nonce))


def _delete_losers(sweep: Sweep, log: PublishLog, n: int, by_nonce: dict[str, list[ObjectInfo]]) -> None:
    winner = log.plan(n).nonce
    for nonce, files in by_nonce.items():
        if nonce != winner:
            sweep.delete(files, lambda _: "log_files")


def sweep_dead_incarnation(sweep: Sweep, layout: Layout, folders: Iterable[str]) -> None:
    """Remove all of a dataset that was deleted, and what late writers added since."""
    for n in version_numbers(layout, folders):
        _sweep_folder(sweep, layout.folder(n), "deleted_dataset_files", stays=())
    _sweep_folder(sweep, layout.own, "deleted_dataset_files", stays=())
