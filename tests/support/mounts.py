"""File systems of a test's own, which also root finds small or read-only."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import wait_for


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A tmpfs over `folder`."""
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Change the options of what is mounted there, as `ro` does."""
    mount = ["mount", "-o", f"remount,{options}", str(folder)]
    # Busy while somebody writes a file there.
    wait_for(lambda: not subprocess.run(mount, capture_output=True, check=False).returncode)
