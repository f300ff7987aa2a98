"""Rows in batches of one size, as training takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...runtime.budget import Budget
from ..columns import Batch, Records, join_batches
from .lease import Lease


def in_batches(records: Records, batch: int, budget: Budget, *, drop_remainder: bool = False) -> Records:
    """The same rows, `batch` of them in each batch; the last has what is left, or is left out.

    Raises, as batches are drawn:
        LimitExceeded: a batch that does not fit into the budget.
    """
    num_rows = records.num_rows
    if num_rows is not None and drop_remainder:
        num_rows -= num_rows % batch
    batches = _rebatched(records.batches, batch, budget, drop_remainder=drop_remainder)
    return replace(records, batches=batches, num_rows=num_rows)


def _rebatched(
    batches: Iterator[Batch], size: int, budget: Budget, *, drop_remainder: bool
) -> Iterator[Batch]:
    gathered: list[Batch] = []
    missing = size
    with Lease(budget) as lease:
        for rows in batches:
            first = 0
            while rows.num_rows - first >= missing:
                gathered.append(rows.rows(first, first + missing))
                first += missing
                yield _joined(gathered, lease)
                lease.release()
                gathered, missing = [], size
            if first < rows.num_rows:
                rest = rows.rows(first, rows.num_rows)
                lease.charge(rest.nbytes, "A batch")
                gathered.append(rest)
                missing -= rest.num_rows
        if gathered and not drop_remainder:
            yield _joined(gathered, lease)


def _joined(parts: list[Batch], lease: Lease) -> Batch:
    if len(parts) == 1:
        return parts[0]
    lease.charge(sum(part.nbytes for part in parts), "A batch")
    return join_batches(parts)
