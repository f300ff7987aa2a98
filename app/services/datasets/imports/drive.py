"""The driver of an import: it gives the ranges that are left to an engine, and publishes at the end.

It keeps nothing: one that was killed is started again and goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

from .engines import Engine, EngineDied
from .imports import Imports, Outcome
from .status import ImportStatus

#: So often in a row a process may be killed without that any range was done.
_DEATHS: Final = 3


def drive(
    imports: Imports,
    dataset: str,
    import_id: str,
    engine: Engine,
    *,
    index: int = 0,
    of: int = 1,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> ImportStatus:
    """Do what is left of an import, until it has ended, a range failed, or others have the rest to do.

    Args:
        index, of: do only every `of`-th range, from the one with that index.
        on_outcome: told of each range.

    Raises:
        EngineDied: processes are killed again and again.
        ShardsmithError: the store fails, or the publication; the same again goes on.
    """
    deaths = 0
    while tasks := imports.tasks(dataset, import_id, index=index, of=of):
        try:
            with closing(engine(tasks)) as outcomes:
                for outcome in outcomes:
                    deaths = 0
                    on_outcome(outcome)
                    if outcome.state == "failed":
                        return imports.follow(dataset, import_id)
        except EngineDied:
            deaths += 1
            if deaths == _DEATHS:
                raise
    return imports.finish(dataset, import_id)
