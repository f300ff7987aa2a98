"""The commands. `serve` is what `shardsmith` does when it is given no command.

Each module declares the commands of a group, and imports what does the work once it is asked for: completion
and `--help` answer at once.
"""

from __future__ import annotations

import click

from ... import __version__
from ..failures import Commands
from ..importing import import_command
from .files import convert, describe, inspect, repair, validate
from .serving import doctor, serve
from .stored import get, ls, publish, put, rows


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Settings are environment variables, SHARDSMITH_*; docs/settings.md lists them. The exit status "
    "says what went wrong; docs/reference/command-line.md has them all.",
)
@click.version_option(__version__, prog_name="shardsmith")
@click.pass_context
def main(context: click.Context) -> None:
    """Tensors in, TFRecord shards out, and back again.

    Without a command it serves.
    """
    if context.invoked_subcommand is None:
        context.invoke(serve)


for command in (
    *(serve, doctor, inspect, convert, describe, validate, repair),
    *(put, publish, ls, rows, get, import_command),
):
    main.add_command(command)
