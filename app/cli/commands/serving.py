"""`shardsmith serve`, and `shardsmith doctor`, which says what keeps it from serving."""

from __future__ import annotations

import sys
from typing import Any

import click

from . import options


@click.command()
@click.option("--host", help="Address to listen on, in place of SHARDSMITH_HOST.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on, in place of SHARDSMITH_PORT; 0 picks a free one.",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), help="Processes that serve, in place of SHARDSMITH_WORKERS."
)
def serve(host: str | None, port: int | None, workers: int | None) -> None:
    """Serve HTTP until SIGTERM or SIGINT."""
    from ...launch import run

    given = {"host": host, "port": port, "workers": workers}
    run(**{name: value for name, value in given.items() if value is not None})


@click.command()
@options.place
@options.as_json
def doctor(as_json: bool, **given: Any) -> None:
    """Check settings, memory, spool, store and kernels, or a service.

    The exit status is 1 if something is wrong.
    """
    from ..doctor import doctor as look

    if not look(as_json=as_json, given=given):
        sys.exit(1)
