"""The command line. What it needs is an extra of the package: without it, one sentence says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


def main() -> None:
    """Do what the arguments of this process say."""
    with explain_missing_packages():
        from .commands import main as run

        run()


@contextmanager
def explain_missing_packages() -> Iterator[None]:
    """End the program with a sentence where a package that it needs is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == (__package__ or "").partition(".")[0]:
            raise  # a module of our own
        sys.exit(
            f"shardsmith: the package {missing} is not installed. Install what the command line and the "
            "service need with: pip install 'shardsmith[service]'"
        )
