"""What of the machine this process may use: its control groups know, where it runs in a container."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .domain.limits import MIB
from .errors import CannotStart

_ROOT: Final = Path("/sys/fs/cgroup")
#: What the process takes beside requests: 250 MiB for the interpreter, libraries and kernels, of which 60 are
#: files that the system may read again, and 70 that the allocator keeps and no charge counts.
_OWN: Final = 320 * MIB
#: Of the process that starts several others.
_PARENT: Final = 48 * MIB
#: No more, where there is plenty: the files of datasets and of the spool are cached beside it.
_LARGEST_SHARE: Final = 0.5
#: With less, one body of a few megabytes could be refused on an idle service.
_LEAST_FOR_REQUESTS: Final = 64 * MIB
LEAST_MEMORY: Final = _OWN + _LEAST_FOR_REQUESTS
#: Files that are open beside the connections of clients: spools, connections to the store, logs.
_OTHER_FILES: Final = 1024


class NotEnoughMemory(CannotStart):
    """The process may not use as much memory as it takes itself."""


def memory_for_requests(root: Path = _ROOT, *, workers: int = 1) -> int:
    """Bytes that all requests together may hold: what the processes may use less what they take themselves.

    No more than half of what they may use.

    Args:
        root: of the control groups.
        workers: processes that serve; with several there is one more, which starts them.

    Raises:
        NotEnoughMemory: they may use less than `LEAST_MEMORY`, or the same for several.
    """
    available = available_memory(root)
    own = _OWN if workers == 1 else workers * _OWN + _PARENT
    least = own + _LEAST_FOR_REQUESTS
    if available < least:
        raise NotEnoughMemory(
            f"It may use {available // MIB} MiB of memory and needs {least // MIB} MiB. "
            "Raise the limit, or set SHARDSMITH_MEMORY_BYTES to what requests may hold all the same."
        )
    return min(available - own, int(_LARGEST_SHARE * available))


def allow_open_files(num_connections: int) -> None:
    """Have the system let this process open that many connections and the files beside them, if it may.

    Many systems let a process open 1,024 until it asks for more; Go's runtime asks for all it may have.
    """
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    asked = num_connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < asked:
        most = asked if hard == resource.RLIM_INFINITY else min(asked, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def available_memory(root: Path = _ROOT) -> int:
    """Bytes that this process may use: of the machine, or of the tightest control group that it is in."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (
        _number(folder / name)
        for folder in _groups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    )
    return min([installed, *(limit for limit in limits if limit is not None)])


def available_processors(root: Path = _ROOT) -> int:
    """Processors that this process may keep busy; a quota of one and a half counts as two."""
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for folder in _groups(root, "cpu") if (quota := _quota(folder)) is not None]
    return max(1, min([affine, *map(math.ceil, quotas)]))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the control groups that this process is in, version 2 and version 1, up to the root."""
    for base in (root, root / controller):
        yield base
        for own in _own_groups():
            folder = base / own.lstrip("/")
            while folder != base and base in folder.parents:
                yield folder
                folder = folder.parent


def _own_groups() -> list[str]:
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    return [line.split(":", 2)[2] for line in lines]


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text("utf-8"))
    except (OSError, ValueError):  # not there, or "max"
        return None


def _quota(folder: Path) -> float | None:
    """Processors' worth of time that a group is given."""
    try:
        quota, period = (folder / "cpu.max").read_text("utf-8").split()
    except (OSError, ValueError):
        quota, period = str(_number(folder / "cpu.cfs_quota_us")), str(_number(folder / "cpu.cfs_period_us"))
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return None
    return int(quota) / int(period)
