"""Counting publications and collections as they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import Conflict, InputError, NotFound, Overloaded
from ...telemetry.metrics import (
    COLLECTED_BYTES,
    COLLECTED_OBJECTS,
    COLLECTIONS,
    PUBLICATION_SECONDS,
    PUBLICATIONS,
)
from .collect.sweep import SweepReport


@contextmanager
def count_publication(is_cut: Callable[[], bool]) -> Iterator[None]:
    """Count the publication in the block; not one that fails as the process ends: any replica finishes it.

    Args:
        is_cut: whether the process ends.
    """
    began = time.monotonic()
    try:
        yield
    except (Conflict, InputError, NotFound, Overloaded):
        PUBLICATIONS.labels("refused").inc()
        raise
    except BaseException:
        if not is_cut():
            PUBLICATIONS.labels("failed").inc()
        raise
    PUBLICATIONS.labels("published").inc()
    PUBLICATION_SECONDS.observe(time.monotonic() - began)


@contextmanager
def count_collection() -> Iterator[list[SweepReport]]:
    """Count the collection in the block, which appends its report."""
    reports: list[SweepReport] = []
    try:
        yield reports
    except NotFound:  # there is nothing to collect
        raise
    except BaseException:
        COLLECTIONS.labels("failed").inc()
        raise
    for report in reports:
        COLLECTIONS.labels("failed" if report.num_failures else "ok").inc()
        for kind, (num_objects, num_bytes) in report.deleted.items():
            COLLECTED_OBJECTS.labels(kind).inc(num_objects)
            COLLECTED_BYTES.labels(kind).inc(num_bytes)
