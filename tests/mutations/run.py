"""Puts each fault of the list into a copy of the code, and runs the tests that have to find it.

    python -m tests.mutations.run [NAMES] [--jobs N]

What the tests of an entry do not find is left to all that `bin/test` runs. Exit status 1: a fault is not
found by either; 2: tests fail without any fault.
"""

from __future__ import annotations

import argparse
import importlib.util
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, Final

from tests.mutations.entry import ROOT, Mutation
from tests.mutations.listed import MUTATIONS
from tests.mutations.trees import Run, Tree, only_one

#: What the tests of an entry may take together; a run that takes far longer hangs.
_MOST_S: Final = 40
_HANGS_AFTER_S: Final = 300
_ALL_TESTS_HANG_AFTER_S: Final = 1800
_NO_FAILURE, _FAILURE = 0, 1


@dataclass(frozen=True)
class Outcome:
    """What became of a mutation: which test found it first, empty where none did; and why not."""

    mutation: Mutation
    found_by: str
    seconds: float
    why_not: str = ""
    by_all_tests: bool = False

    @property
    def word(self) -> str:
        if not self.found_by:
            return "NOT FOUND"
        if self.by_all_tests:
            return "found late"
        return "found" if self.seconds <= _MOST_S else "found slowly"

    @property
    def line(self) -> str:
        by = f"{self.found_by}{self.why_not}"
        return f"{self.mutation.id:<44} {self.word:<12} {self.seconds:7.1f}  {by}"


class Trees:
    """The copies, of which each is lent to one thread at a time."""

    def __init__(self, count: int) -> None:
        self._all = [Tree(number) for number in range(count)]
        self._free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        first, *others = self._all
        first.compile()
        for tree in others:
            tree.take_kernels(first)
        for tree in self._all:
            tree.check()
            self._free.put(tree)

    @contextmanager
    def one(self) -> Iterator[Tree]:
        """A copy that nobody else uses."""
        tree = self._free.get()
        try:
            yield tree
        finally:
            self._free.put(tree)

    def remove(self) -> None:
        """Remove all copies."""
        for tree in self._all:
            tree.remove()


class AllTests:
    """What `bin/test` runs, without the tests that fail here in the code as it is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failing: list[str] | None = None

    def find(self, mutation: Mutation, tree: Tree) -> Outcome:
        with self._lock:  # the machine has room for one such run
            if self._failing is None:
                self._failing = tree.pytest(
                    _arguments_of_bin_test(), within_s=_ALL_TESTS_HANG_AFTER_S
                ).failures
            left_out = [f"--deselect={test}" for test in self._failing]
            with tree.patched(mutation.patch):
                run = tree.pytest(
                    [*_arguments_of_bin_test(), "-x", *left_out], within_s=_ALL_TESTS_HANG_AFTER_S
                )
        return _outcome(mutation, run, by_all_tests=True)


def _arguments_of_bin_test() -> Sequence[str]:
    spec = importlib.util.spec_from_file_location("launch", ROOT / "bin" / "launch.py")
    assert spec is not None
    assert spec.loader is not None
    launch: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(launch)
    _, line = launch.purpose_and_line("test", [])
    return list(line[len(launch.PYTEST) :])


def _outcome(mutation: Mutation, run: Run, *, by_all_tests: bool = False) -> Outcome:
    if run.status == _FAILURE:
        return Outcome(mutation, run.first_failure or "?", run.seconds, by_all_tests=by_all_tests)
    why_not = {_NO_FAILURE: "no test fails", None: "the tests hang"}.get(run.status, "the tests cannot run")
    return Outcome(mutation, "", run.seconds, why_not)


def _find(mutation: Mutation, trees: Trees, all_tests: AllTests) -> Outcome:
    with trees.one() as tree:
        with tree.patched(mutation.patch):
            arguments = ["-x", "-n", "0", *mutation.tests]
            run = tree.pytest(arguments, uncompiled=mutation.uncompiled, within_s=_HANGS_AFTER_S)
        outcome = _outcome(mutation, run)
        return outcome if outcome.found_by else all_tests.find(mutation, tree)


def _failures_without_a_fault(mutations: Sequence[Mutation], trees: Trees, jobs: int) -> list[str]:
    """Tests of the entries that fail in the code as it is: what they say of a fault means nothing."""

    def failures(uncompiled: bool, tests: Sequence[str]) -> list[str]:
        with trees.one() as tree:
            run = tree.pytest(["-n", "0", *tests], uncompiled=uncompiled, within_s=_ALL_TESTS_HANG_AFTER_S)
        return run.failures or ([] if run.status == _NO_FAILURE else [run.output[-2000:]])

    shares = [
        (uncompiled, share)
        for uncompiled in (False, True)
        for first in range(jobs)
        if (share := _tests_of(mutations, uncompiled)[first::jobs])
    ]
    with ThreadPoolExecutor(jobs) as pool:
        return [test for found in pool.map(lambda share: failures(*share), shares) for test in found]


def _tests_of(mutations: Sequence[Mutation], uncompiled: bool) -> list[str]:
    return sorted({test for entry in mutations if entry.uncompiled == uncompiled for test in entry.tests})


def run(mutations: Sequence[Mutation], jobs: int, say: Callable[[str], None]) -> int:
    """Run the tests of these mutations, and say what they found."""
    began = time.monotonic()
    trees = Trees(jobs)
    try:
        return _run(mutations, trees, jobs, say, began)
    finally:
        trees.remove()


def _run(
    mutations: Sequence[Mutation], trees: Trees, jobs: int, say: Callable[[str], None], began: float
) -> int:
    all_tests = AllTests()
    say(f"{len(mutations)} mutations, {jobs} at a time; the code as it is first.")
    if failing := _failures_without_a_fault(mutations, trees, jobs):
        say("\n".join(["These fail without any fault:", *failing]))
        return 2
    say(f"Its tests pass, after {time.monotonic() - began:.0f} s.")
    outcomes = []
    pool = ThreadPoolExecutor(jobs)
    try:
        for done in as_completed([pool.submit(_find, entry, trees, all_tests) for entry in mutations]):
            outcomes.append(outcome := done.result())
            say(outcome.line)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    found = sum(bool(outcome.found_by) for outcome in outcomes)
    late = sum(outcome.by_all_tests for outcome in outcomes)
    by_all = f", {late} of them by other tests than the entry names" if late else ""
    say(f"{found} of {len(outcomes)} are found{by_all}; {time.monotonic() - began:.0f} s in all.")
    return 0 if found == len(outcomes) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations.run", description=__doc__)
    parser.add_argument("names", nargs="*", help="ids, or patterns such as 'csv-*'; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="mutations at a time (default: 2)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    chosen = [
        entry
        for entry in MUTATIONS
        if not given.names or any(fnmatch(entry.id, name) for name in given.names)
    ]
    if not chosen:
        parser.error(f"no mutation is called {', '.join(given.names)}")
    with only_one():
        return run(chosen, max(1, given.jobs), lambda line: print(line, flush=True))


if __name__ == "__main__":
    sys.exit(main())
