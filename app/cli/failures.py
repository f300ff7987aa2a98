"""What is said where a command fails, and its exit status. docs/reference/command-line.md lists both."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import click

from .. import errors
from .screen.terminal import printable

#: What is raised on purpose.
Failure = errors.ShardsmithError | errors.CannotStart | OSError
FAILURES: Final = (errors.ShardsmithError, errors.CannotStart, OSError)

#: The nearest class in an exception's ancestry decides. Wrong usage is click's 2.
STATUS: Final[dict[type[Exception], int]] = {
    errors.ShardsmithError: 1,
    errors.CannotStart: 1,
    OSError: 1,
    errors.InputError: 3,
    errors.NotFound: 4,
    FileNotFoundError: 4,
    errors.Conflict: 5,
    FileExistsError: 5,
    errors.Unauthenticated: 6,
    errors.InsufficientScope: 6,
    errors.IssuerUnavailable: 7,
    errors.StorageError: 7,
    errors.Overloaded: 7,
    errors.StreamInterrupted: 7,
    errors.CorruptData: 8,
}
#: Codes whose class says less than they do.
_STATUS_OF_CODE: Final = {"source_not_found": STATUS[errors.NotFound]}
#: What a check ends with that found damage in a file, or in a version.
DAMAGED_FILE: Final = STATUS[errors.InputError]
#: What an import ends with that stopped at rows that cannot be read.
UNREADABLE: Final = STATUS[errors.InputError]
DAMAGED_VERSION: Final = STATUS[errors.CorruptData]
#: As shells say of a process that SIGINT has ended.
_INTERRUPTED: Final = 130


class Commands(click.Group):
    """The commands; what one raises on purpose becomes a line on standard error and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        as_json = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            sys.exit(_INTERRUPTED)
        except click.UsageError as error:
            if as_json:
                document = {"code": "usage", "detail": error.format_message()}
                click.echo(json.dumps({"error": document}), err=True)
                sys.exit(error.exit_code)
            # It may repeat what a stranger named a file.
            lines = map(printable, error.format_message().expandtabs(4).splitlines())
            raise click.UsageError("\n".join(lines), error.ctx) from error
        except BrokenPipeError:
            raise  # the reader has enough: click ends quietly
        except FAILURES as error:
            sys.exit(tell(error, as_json=as_json))


def tell(error: Failure, *, as_json: bool) -> int:
    """Say on standard error what is wrong; the exit status that it has."""
    found = _document(error)
    of_class = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    if as_json:
        click.echo(json.dumps({"error": found}), err=True)
    else:
        click.echo(f"shardsmith: {_line(found)}", err=True)
    return _STATUS_OF_CODE.get(found["code"], of_class)


def detail_of(error: errors.ShardsmithError) -> str:
    """What is wrong; options are written as they are on a command line."""
    text = errors.OPTION.sub(lambda found: found[0] or "--", error.detail)
    return text.replace("--on_error", "--on-error")


def _document(error: Failure) -> dict[str, Any]:
    if isinstance(error, errors.ShardsmithError):
        place = error.location
        where = {"row": place.row, "feature": place.feature, "offset": place.offset, "pointer": place.pointer}
        return {"code": error.code, "detail": detail_of(error)} | {
            k: v for k, v in where.items() if v is not None
        }
    if isinstance(error, OSError):
        name = "" if error.filename is None else f"{error.filename}: "
        return {"code": "system_error", "detail": f"{name}{error.strerror or error}."}
    return {"code": "cannot_start", "detail": str(error)}


def _line(found: dict[str, Any]) -> str:
    places = [
        f"feature {place!r}" if name == "feature" else f"{name} {place}"
        for name, place in found.items()
        if name not in ("code", "detail")
    ]
    return printable(f"{found['detail']} [{', '.join([found['code'], *places])}]")
