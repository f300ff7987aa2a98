"""What runs the ranges of an import: processes of this machine, or tasks of a Ray cluster.

An engine is given tasks and yields their outcomes as they come. It keeps nothing: whatever becomes of it, the
notes on the store say what is left.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final, Protocol

from ....errors import InProgress, OutcomeUnknown, Overloaded, ShardsmithError, StorageError
from ....runtime.turns import pause
from .imports import Imports, Outcome, Task

#: How often a task is tried whose store failed, and how long until it is tried again, doubled each time.
_TRIES: Final = 5
_FIRST_WAIT_S: Final = 1.0
#: Tasks that wait in a process pool or at a cluster, for each that may run.
_QUEUED: Final = 2


class OpenImports(Protocol):
    """Makes what does a task, once in each process. It can be sent to another one, and has a hash."""

    def __call__(self) -> Imports: ...


class Engine(Protocol):
    """Does tasks. Closed early, it begins no further ones."""

    def __call__(self, tasks: Sequence[Task]) -> Generator[Outcome, None, None]: ...


class EngineDied(Exception):
    """A process of the engine was killed; what it has done is noted."""


def do(imports: Imports, task: Task) -> Outcome:
    """Do a task; where the store fails, do it again after a while.

    Raises:
        ShardsmithError: it went on failing.
    """
    delay = _FIRST_WAIT_S
    for _ in range(_TRIES - 1):
        try:
            return imports.work(task)
        except (InProgress, OutcomeUnknown, Overloaded, StorageError):
            pause(delay)
            delay *= 2
    return imports.work(task)


class HereEngine:
    """Does one task after the other in this process."""

    def __init__(self, imports: Imports) -> None:
        self._imports = imports

    def __call__(self, tasks: Sequence[Task]) -> Generator[Outcome, None, None]:
        return (do(self._imports, task) for task in tasks)


class LocalEngine:
    """Does tasks in some processes of this machine.

    Args:
        open_imports: called in each.
        processes: how many.
    """

    def __init__(self, open_imports: OpenImports, processes: int) -> None:
        self._open = open_imports
        self._processes = processes

    def __call__(self, tasks: Sequence[Task]) -> Generator[Outcome, None, None]:
        # Threads of this process hold locks, which a fork would copy.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(
            min(self._processes, max(1, len(tasks))), context, initializer=_begin, initargs=(self._open,)
        )
        try:
            yield from _drain(pool, iter(tasks), _QUEUED * self._processes)
        except BrokenProcessPool as error:
            raise EngineDied("A process of the import was killed.") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _drain(pool: ProcessPoolExecutor, tasks: Iterator[Task], most: int) -> Iterator[Outcome]:
    under_way: set[Future[Outcome]] = set()
    while True:
        while len(under_way) < most and (task := next(tasks, None)) is not None:
            under_way.add(pool.submit(_do_here, task))
        if not under_way:
            return
        done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


_imports: Imports | None = None


def _begin(open_imports: OpenImports) -> None:
    """In a process of the pool: open the stores, and end with the process that has started it."""
    global _imports
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _imports = open_imports()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _do_here(task: Task) -> Outcome:
    if _imports is None:
        raise RuntimeError("the process has not begun")
    return do(_imports, task)


class RayEngine:
    """Does tasks on a Ray cluster, each with a processor of its own.

    Args:
        open_imports: called once in each process of a worker.
        address: of the cluster; None starts one on this machine.

    Raises:
        ImportError: Ray is not installed.
    """

    def __init__(self, open_imports: OpenImports, address: str | None) -> None:
        import ray

        self._ray: Any = ray
        self._open = open_imports
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, include_dashboard=False)

    def __call__(self, tasks: Sequence[Task]) -> Generator[Outcome, None, None]:
        ray = self._ray
        # A death of a worker is not an error of the task: it is done again, elsewhere.
        remote = ray.remote(num_cpus=1, max_retries=10)(do_anywhere)
        left, under_way = iter(tasks), set[Any]()
        most = max(1, int(_QUEUED * ray.cluster_resources().get("CPU", 1)))
        try:
            while True:
                while len(under_way) < most and (task := next(left, None)) is not None:
                    under_way.add(remote.remote(self._open, task))
                if not under_way:
                    return
                done, _ = ray.wait(list(under_way), num_returns=1)
                for reference in done:
                    under_way.discard(reference)
                    yield self._outcome(reference)
        finally:
            for reference in under_way:
                ray.cancel(reference)

    def _outcome(self, reference: Any) -> Outcome:
        ray = self._ray
        try:
            outcome: Outcome = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ShardsmithError):
                raise error.cause from None
            raise
        except ray.exceptions.WorkerCrashedError as error:
            raise EngineDied("A worker of the cluster was killed again and again.") from error
        return outcome


_opened: dict[OpenImports, Imports] = {}
_lock = threading.Lock()


def do_anywhere(open_imports: OpenImports, task: Task) -> Outcome:
    """Do a task in a process that may have opened the stores for an earlier one."""
    with _lock:
        imports = _opened.get(open_imports)
        if imports is None:
            imports = _opened[open_imports] = open_imports()
    return do(imports, task)
