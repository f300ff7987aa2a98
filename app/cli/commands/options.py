"""Options that several commands share. Those of conversions mean what HTTP's parameters mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
Decorator = Callable[[CommandT], CommandT]


def _all(*decorators: Callable[[Any], Any]) -> Callable[[CommandT], CommandT]:
    def decorate(command: CommandT) -> CommandT:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def _choice(*values: str) -> click.Choice[str]:
    return click.Choice(values)


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs.")

#: Of every command that reads rows or tensors.
reading = _all(
    click.option(
        "--from", "from_", metavar="FORMAT", help="Format of the input, in place of what it seems to be."
    ),
    click.option(
        "--as", "as_", type=_choice("rows", "tensors"), help="What the input holds, where it could be either."
    ),
    click.option(
        "--schema", metavar="FILE|JSON", help="The schema: ours, a features.json, or a schema.pbtxt."
    ),
    click.option(
        "--message",
        type=_choice("example", "sequence_example", "bytes"),
        help="What a TFRecord's records are.",
    ),
    click.option(
        "--infer",
        type=_choice("head", "all"),
        default="head",
        help="Infer the schema from 1,000 rows, or all.",
    ),
    click.option(
        "--undeclared",
        type=_choice("error", "drop"),
        default="error",
        help="Features the schema does not name.",
    ),
    click.option(
        "--delimiter", type=_choice(",", ";", "|", "tab"), help="Of CSV input; detected by default."
    ),
    click.option(
        "--null", "null_", metavar="TEXTS", help="Texts that mean null in CSV, separated by commas."
    ),
    click.option(
        "--archive", type=_choice("samples", "folders"), help="How the files of an archive are rows."
    ),
    click.option("--labels", metavar="NAMES", help="Folders of an archive, in the order of their labels."),
    click.option("--dtype", help="Of raw or untyped input."),
    click.option("--shape", help="Of raw input: 2,3."),
    click.option(
        "--byte-order", type=_choice("little", "big"), default="little", help="Of raw input and output."
    ),
    click.option(
        "--order", type=_choice("C", "F"), default="C", help="Of the elements of raw input and output."
    ),
    click.option("--kind", type=_choice("dense", "sparse", "ragged"), help="What components of tensors are."),
    click.option(
        "--channels", type=_choice("0", "1", "3", "4"), default="0", help="Images: 1 grey, 3 RGB, 4 RGBA."
    ),
    click.option("--json-bytes", type=click.IntRange(0), help="Length of the JSON in front of `oip` input."),
)

nonfinite = click.option(
    "--nonfinite",
    type=_choice("string", "null", "error", "bare"),
    default="string",
    help="NaN and infinities in JSON. In: `null` reads null as NaN, `bare` takes the tokens. Out: as text, "
    "as null, or an error.",
)

transforms = click.option(
    "--transforms", metavar="JSON", help='Steps for features: {"x": [{"step": "flatten"}]}.'
)

on_error = click.option(
    "--on-error", type=_choice("fail", "skip"), default="fail", help="Rows that a transform does not take."
)

damaged = click.option(
    "--damaged", type=_choice("refuse", "skip"), default="refuse", help="Damaged records of a TFRecord."
)

lossy = click.option(
    "--lossy", type=_choice("allow", "error"), help="Rounding of float64: all of it, or none."
)

#: Of commands that write rows or tensors.
writing = _all(
    click.option(
        "--to", "to", metavar="FORMAT", help="Format of the output, in place of what its name says."
    ),
    click.option(
        "--layout", type=_choice("rows", "columns", "flat", "nested", "oip"), help="Of JSON output."
    ),
    click.option(
        "--int64", type=_choice("number", "string"), default="number", help="64-bit integers in JSON output."
    ),
    click.option(
        "--bytes", "bytes_", type=_choice("b64", "utf8"), default="b64", help="Bytes in JSON output."
    ),
    click.option(
        "--b64", type=_choice("standard", "websafe"), default="standard", help="Alphabet of base64 output."
    ),
    click.option("--compression", type=_choice("none", "gzip", "zlib"), help="Of TFRecord output."),
    click.option(
        "--sparse", type=_choice("single", "many"), default="single", help="A sparse tensor as TensorProto."
    ),
    click.option("--quality", type=click.IntRange(1, 100), default=95, help="Of JPEG output."),
)

#: Where datasets are: in a store that this process reads and writes itself, or behind a service.
DATA: Final = "data"
place = _all(
    click.option(
        "--data", metavar="FOLDER|URL", help="The store of datasets, in place of SHARDSMITH_STORAGE_URL."
    ),
    click.option(
        "--url",
        envvar="SHARDSMITH_CLIENT_URL",
        help="A service, in place of a store [SHARDSMITH_CLIENT_URL].",
    ),
    click.option(
        "--token-file",
        type=click.Path(dir_okay=False),
        help="File of the bearer token for the service; else SHARDSMITH_CLIENT_TOKEN.",
    ),
)
