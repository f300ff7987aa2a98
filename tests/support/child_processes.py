"""The processes that a process has started."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> Iterator[int]:
    """Its children, theirs, and so on, as Linux knows them now."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        children: list[str] = []
        with suppress(OSError):  # its thread has ended
            children = path.read_text().split()
        for child in children:
            yield int(child)
            yield from descendants(int(child))
