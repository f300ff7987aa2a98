"""What runs an import: processes of this machine, or tasks of a Ray cluster.

An engine is given tasks, ranges to append or shards to write, and yields their outcomes as they come. It
keeps nothing: whatever becomes of it, the notes on the store say what is left.
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
from ..publish.unwritten import UnwrittenShards
from .imports import Imports, Outcome, Task

#: How often a task is tried whose store failed, and how long until it is tried again, doubled each time.
_TRIES: Final = 5
_FIRST_WAIT_S: Final = 1.0
#: Tasks that wait in a process pool or at a cluster, for each that may run.
_QUEUED: Final = 2


class OpenImports(Protocol):
    """Makes what does a task, once in each process. It can be sent to another one, and has a hash."""

    def __call__(self) -> Imports: ...


#: A range to append, or shards to write; and what became of it: of shards, only that they are written.
AnyTask = Task | UnwrittenShards
AnyOutcome = Outcome | None


class Engine(Protocol):
    """Does tasks. Closed early, it begins no further ones."""

    @property
    def width(self) -> int:
        """How many tasks it does at a time."""
        ...

    def __call__(self, tasks: Sequence[AnyTask]) -> Generator[AnyOutcome, None, None]: ...

    def close(self) -> None:
        """End its processes, once they have done what they are at. Used again, it starts others."""
        ...


class EngineDied(Exception):
    """A process of the engine was killed; what it has done is noted."""


def do(imports: Imports, task: AnyTask) -> AnyOutcome:
    """Do a task; where the store fails, do it again after a while.

    Raises:
        ShardsmithError: it went on failing.
    """
    delay = _FIRST_WAIT_S
    for _ in range(_TRIES - 1):
        try:
            return _do_once(imports, task)
        except (InProgress, OutcomeUnknown, Overloaded, StorageError):
            pause(delay)
            delay *= 2
    return _do_once(imports, task)


def _do_once(imports: Imports, task: AnyTask) -> AnyOutcome:
    if isinstance(task, Task):
        return imports.work(task)
    imports.write_shards(task)
    return None


class HereEngine:
    """Does one task after the other in this process."""

    width = 1

    def __init__(self, imports: Imports) -> None:
        self._imports = imports

    def __call__(self, tasks: Sequence[AnyTask]) -> Generator[AnyOutcome, None, None]:
        return (do(self._imports, task) for task in tasks)

    def close(self) -> None:
        """It has no processes."""


class LocalEngine:
    """Does tasks in some processes of this machine.

    Args:
        open_imports: called once in each.
        processes: how many.
    """

    def __init__(self, open_imports: OpenImports, processes: int) -> None:
        self._open = open_imports
        self.width = processes
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, tasks: Sequence[AnyTask]) -> Generator[AnyOutcome, None, None]:
        if self._pool is None:
            # Threads of this process hold locks, which a fork would copy.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.width, context, initializer=_end_with_parent)
        ended = False
        try:
            yield from self._drain(self._pool, iter(tasks))
            ended = True
        except BrokenProcessPool as error:
            raise EngineDied("A process of the import was killed.") from error
        finally:
            if not ended:
                self.close()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _drain(self, pool: ProcessPoolExecutor, tasks: Iterator[AnyTask]) -> Iterator[AnyOutcome]:
        under_way: set[Future[AnyOutcome]] = set()
        while True:
            while len(under_way) < _QUEUED * self.width and (task := next(tasks, None)) is not None:
                under_way.add(pool.submit(do_anywhere, self._open, task))
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def _end_with_parent() -> None:
    """End this process with the one that has started it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


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
        self._connected = not ray.is_initialized()
        if self._connected:
            # Without an address Ray joins any cluster that runs on this machine, whoever began it.
            ray.init(address=address or "local", log_to_driver=False, include_dashboard=False)

    @property
    def width(self) -> int:
        """The processors of the cluster as it is now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def __call__(self, tasks: Sequence[AnyTask]) -> Generator[AnyOutcome, None, None]:
        ray = self._ray
        # A death of a worker is not an error of the task: it is done again, elsewhere.
        remote = ray.remote(num_cpus=1, max_retries=10)(do_anywhere)
        left, under_way = iter(tasks), set[Any]()
        try:
            while True:
                while len(under_way) < _QUEUED * self.width and (task := next(left, None)) is not None:
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

    def close(self) -> None:
        """Leave the cluster, whose processes are its own."""
        if self._connected:
            self._ray.shutdown()

    def _outcome(self, reference: Any) -> AnyOutcome:
        ray = self._ray
        try:
            outcome: AnyOutcome = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ShardsmithError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:  # also where the node died, or had too little memory
            raise EngineDied(f"A task of the cluster was broken off again and again: {error}") from error
        return outcome


_opened: dict[OpenImports, Imports] = {}
_lock = threading.Lock()


def do_anywhere(open_imports: OpenImports, task: AnyTask) -> AnyOutcome:
    """Do a task in a process that may have opened the stores for an earlier one."""
    with _lock:
        imports = _opened.get(open_imports)
        if imports is None:
            imports = _opened[open_imports] = open_imports()
    return do(imports, task)
