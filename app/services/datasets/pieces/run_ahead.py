"""Calls made in threads, some ahead of who takes their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from ....runtime.turns import waiting

T = TypeVar("T")
U = TypeVar("U")


def run_ahead(
    calls: Iterable[tuple[int, Callable[[], T]]],
    pool: ThreadPoolExecutor | None,
    *,
    most: int,
    most_bytes: int | None = None,
) -> Generator[T, None, None]:
    """The results of all calls, in order. Closed early, it makes none that has not begun.

    Args:
        calls: each with the bytes that its result holds.
        pool: where they run; None makes each as its result is asked for.
        most: how many are under way or wait to be taken.
        most_bytes: of these together; one alone may have more.
    """
    if pool is None:
        for _, call in calls:
            yield call()
        return
    pending: deque[tuple[int, Future[T]]] = deque()
    held = 0
    try:
        for num_bytes, call in calls:
            while pending and (
                len(pending) >= most or (most_bytes is not None and held + num_bytes > most_bytes)
            ):
                taken, future = pending.popleft()
                held -= taken
                with waiting():
                    result = future.result()
                yield result
            pending.append((num_bytes, pool.submit(call)))
            held += num_bytes
        while pending:
            with waiting():
                result = pending.popleft()[1].result()
            yield result
    finally:
        for _, future in pending:
            future.cancel()


def map_in(pool: ThreadPoolExecutor, function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    """As `pool.map`, but whoever waits for a result lends its turn meanwhile."""
    results = pool.map(function, items)
    while True:
        with waiting():
            result = list(islice(results, 1))
        if not result:
            return
        yield from result
