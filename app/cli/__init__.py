"""The command line. What it needs is an extra of the package: without it, one sentence says so."""

from __future__ import annotations

import sys


def main() -> None:
    """Do what the arguments of this process say."""
    try:
        from .commands import main as run

        run()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == (__package__ or "").partition(".")[0]:
            raise  # a module of our own
        sys.exit(
            f"shardsmith: the package {missing} is not installed. Install what the command line and the "
            "service need with: pip install 'shardsmith[service]'"
        )
