"""`shardsmith serve`."""

from __future__ import annotations

import click


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
    from ..launch import run

    given = {"host": host, "port": port, "workers": workers}
    run(**{name: value for name, value in given.items() if value is not None})
