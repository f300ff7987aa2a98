"""The driver of an import: it gives the ranges that are left to an engine, and publishes at the end.

It keeps nothing: one that was killed is started again and goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from ....runtime.turns import pause
from ..publish.unwritten import UnwrittenShards
from .engines import AnyTask, Engine, EngineDied
from .imports import Imports, Outcome
from .status import ImportStatus

#: So often in a row a process may be killed without that any task was done.
_DEATHS: Final = 3
#: How long until it is looked again whether the others are done.
_AGAIN_S: Final = 2.0


def drive(
    imports: Imports,
    dataset: str,
    import_id: str,
    engine: Engine,
    *,
    index: int = 0,
    of: int = 1,
    wait: bool = False,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> ImportStatus:
    """Do what is left of an import, until it has ended, stopped at a range, or others have the rest to do.

    Args:
        index, of: do only every `of`-th range, from the one with that index.
        wait: for the others to do their ranges; then write every `of`-th shard, and wait for the others to
            write theirs. Else whoever does the last range writes all shards.
        on_outcome: told of each range.

    Raises:
        EngineDied: processes are killed again and again.
        ShardsmithError: the store fails, or the publication; the same again goes on.
    """
    while True:
        went_well = _do(engine, lambda: imports.tasks(dataset, import_id, index=index, of=of), on_outcome)
        status = imports.follow(dataset, import_id)
        if not went_well:
            if status.state == "stopped":
                return status
            continue  # another process could do that range, or left it out
        while wait and status.state == "running":
            pause(_AGAIN_S)
            status = imports.follow(dataset, import_id)
        # A range of others has failed, now or in an earlier run: trying it tells whether it still does.
        if not wait or status.state != "stopped" or status.is_decided:
            break

    def spread(shards: UnwrittenShards, write_here: Callable[[UnwrittenShards], None]) -> None:
        mine = shards.share(index, of) if wait else shards
        if engine.width > 1:
            _do(engine, lambda: mine.deal(engine.width), on_outcome)
        elif wait:
            write_here(mine)
        while wait and not imports.are_written(shards):
            pause(_AGAIN_S)

    return imports.finish(dataset, import_id, spread)


def _do(engine: Engine, left: Callable[[], Sequence[AnyTask]], on_outcome: Callable[[Outcome], None]) -> bool:
    """Have an engine do what is left, and what is left then if it dies; whether no range failed."""
    deaths = 0
    while True:
        try:
            with closing(engine(left())) as outcomes:
                for outcome in outcomes:
                    deaths = 0
                    if outcome is not None:
                        on_outcome(outcome)
                        if outcome.state == "failed":
                            return False
                return True
        except EngineDied:
            deaths += 1
            if deaths == _DEATHS:
                raise
