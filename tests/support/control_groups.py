"""Real control groups of Linux, version 1 or 2, which bound the memory of a process."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

_ROOT = Path("/sys/fs/cgroup")
_VERSION_2 = (_ROOT / "cgroup.controllers").exists()
#: Where version 1 has its groups for memory, and version 2 all.
_BASE = _ROOT if _VERSION_2 else _ROOT / "memory"
_LIMITS = ("memory.max", "memory.swap.max") if _VERSION_2 else ("memory.limit_in_bytes",)
_EVENTS = "memory.events" if _VERSION_2 else "memory.oom_control"


def _can_bound_memory() -> bool:
    if not os.access(_BASE, os.W_OK):
        return False
    if not _VERSION_2:
        return (_BASE / "memory.limit_in_bytes").exists()
    return "memory" in (_BASE / "cgroup.subtree_control").read_text("utf-8").split()


needs_control_groups = pytest.mark.skipif(
    not _can_bound_memory(), reason="no control group can be made here: that takes root, outside a container"
)


@dataclass(frozen=True)
class ControlGroup:
    """A group of processes that share a limit."""

    folder: Path

    def within(self, command: Sequence[str]) -> Sequence[str]:
        """That command, run in the group."""
        return ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs"), *command)

    @property
    def num_killed(self) -> int:
        """Processes of the group that the system has killed for its memory."""
        lines = (self.folder / _EVENTS).read_text("utf-8").splitlines()
        [killed] = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
        return int(killed)

    @property
    def anonymous_bytes(self) -> int:
        """Memory of its processes that is not that of files, which the system may take back."""
        name = "anon" if _VERSION_2 else "total_rss"
        lines = (self.folder / "memory.stat").read_text("utf-8").splitlines()
        [found] = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
        return int(found)

    @property
    def peak_bytes(self) -> int:
        """The most memory that it has used, files included."""
        name = "memory.peak" if _VERSION_2 else "memory.max_usage_in_bytes"
        return int((self.folder / name).read_text("utf-8"))


@contextmanager
def limited_to(num_bytes: int) -> Iterator[ControlGroup]:
    """A group that may use so much memory; its processes have to end before it does."""
    folder = _BASE / f"shardsmith-test-{os.getpid()}-{num_bytes}"
    folder.mkdir()
    try:
        for name, value in zip(_LIMITS, (num_bytes, 0), strict=False):
            if (folder / name).exists():
                (folder / name).write_text(str(value), "utf-8")
        yield ControlGroup(folder)
    finally:
        # Processes that decode images end a moment after the service that was killed.
        wait_for(lambda: not (folder / "cgroup.procs").read_text("utf-8"))
        folder.rmdir()
