"""The command line. `serve` is what `shardsmith` does when it is given no command."""

from __future__ import annotations

import click

from . import __version__
from .cli_import import import_command


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Settings are environment variables, SHARDSMITH_*; docs/settings.md lists them.",
)
@click.version_option(__version__, prog_name="shardsmith")
@click.pass_context
def main(context: click.Context) -> None:
    """Tensors in, TFRecord shards out, and back again, over plain HTTP.

    Without a command it serves.
    """
    if context.invoked_subcommand is None:
        context.invoke(serve)


@main.command()
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
    from .launch import run  # which `--help` need not wait for

    given = {"host": host, "port": port, "workers": workers}
    run(**{name: value for name, value in given.items() if value is not None})


main.add_command(import_command)
