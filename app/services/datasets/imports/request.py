"""What an import is asked to do: where the rows are, how they are read, and how they are published."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal, cast

from ....codecs.forms import RECORDS_CODECS, FormName
from ....codecs.options import CsvDialect, RecordsDecodeOptions, RecordsEncodeOptions
from ....domain.limits import MIB
from ....domain.names import check_split_name
from ....domain.schema import Message, Schema
from ....domain.urls import hide_secrets
from ....errors import MalformedInput
from ....storage.source_objects import path_of
from ..append.request import AppendRequest
from ..objects.publish_options import PublishOptions
from .ranges import Range

OnFailure = Literal["stop", "skip"]

#: What is appended at a time: a few seconds of work, which is what a death costs.
RANGE_BYTES: Final = 256 * MIB

#: Endings of names by format; others are read only where the format is given.
_ENDINGS: Final[tuple[tuple[FormName, re.Pattern[str]], ...]] = tuple(
    (form, re.compile(rf"\.({endings})(\.gz|\.zst|\.gzip|\.zstd)?", re.IGNORECASE))
    for form, endings in cast(
        tuple[tuple[FormName, str], ...],
        (
            ("ndjson", "ndjson|jsonl|jsonlines"),
            ("json", "json"),
            ("csv", "csv|tsv"),
            ("parquet", "parquet|parq|pq"),
            ("arrow", "arrow|arrows|feather|ipc"),
            ("npz", "npz"),
            ("safetensors", "safetensors"),
            ("libsvm", "libsvm|svm"),
            ("tar", "tar"),
            ("zip", "zip"),
            ("tfrecord", r"tfrecords?(-\d+-of-\d+)?"),
        ),
    )
)
#: Its fields are of a kind of their own.
_BY_ITSELF: Final = frozenset({"schema", "publish"})


def form_of(name: str) -> FormName | None:
    """The format that the ending of a name stands for; of a URL, that of its path."""
    base = path_of(name).rsplit("/", 1)[-1]
    return next((form for form, ending in _ENDINGS if _ends(base, ending)), None)


def _ends(name: str, ending: re.Pattern[str]) -> bool:
    return any(found.end() == len(name) for found in ending.finditer(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What is asked for.

    Attributes:
        source: a URL as `storage.sources.open_source` takes it.
        form: the format of the objects; None goes by the endings of their names.
        split: the split that the rows go to.
        schema: of the rows, transforms included; None is that of the dataset, else it is inferred.
        range_bytes: how much of a large object is appended at a time.
        on_error: what becomes of the import if a range cannot be read. It makes no other import: one that was
            to stop may be told to skip.
        evolve, message, undeclared, nonfinite, lossy, delimiter: as of an append.
        publish: how the rows are published at the end; None does not.

    Raises:
        MalformedInput: a value out of its bounds.
    """

    source: str
    form: FormName | None = None
    split: str = "train"
    schema: Schema | None = None
    range_bytes: int = RANGE_BYTES
    on_error: OnFailure = "stop"
    evolve: bool = False
    message: Message | None = None
    undeclared: Literal["error", "drop"] = "error"
    nonfinite: Literal["error", "null", "bare"] = "error"
    lossy: Literal["allow", "error"] | None = None
    delimiter: str | None = None
    publish: PublishOptions | None = field(default_factory=PublishOptions)

    def __post_init__(self) -> None:
        check_split_name(self.split)
        if self.form is not None and self.form not in RECORDS_CODECS:
            raise MalformedInput(
                f"{self.form!a:.40} is no format of rows. Use one of {', '.join(RECORDS_CODECS)}.",
                code="invalid_import",
            )
        if type(self.range_bytes) is not int or self.range_bytes < 1:
            raise MalformedInput('"range_bytes" must be an integer, 1 or more.', code="invalid_import")
        if self.delimiter is not None and not (len(self.delimiter) == 1 and self.delimiter.isascii()):
            raise MalformedInput('"delimiter" must be one ASCII character.', code="invalid_import")
        if self.evolve and self.undeclared == "drop":
            raise MalformedInput(
                '"undeclared": "drop" leaves out the features that "evolve" is to add. Set one of them.',
                code="invalid_import",
            )

    @property
    def shown_source(self) -> str:
        """The source without what may be a secret."""
        return hide_secrets(self.source)

    def delimiter_of(self, name: str) -> str:
        """Between the fields of the object `name`, if it is a CSV."""
        return self.delimiter or ("\t" if ".tsv" in path_of(name).rsplit("/", 1)[-1].lower() else ",")

    def append(self, dataset: str, form: FormName, part: Range, *, key: str, sequence: int) -> AppendRequest:
        """The append of one range."""
        return AppendRequest(
            dataset=dataset,
            split=self.split,
            form=form,
            decode=RecordsDecodeOptions(
                schema=self.schema,
                message=self.message,
                nonfinite=self.nonfinite,
                undeclared=self.undeclared,
                csv=CsvDialect(self.delimiter_of(part.source.name)),
                row_groups=None if part.row_groups is None else range(*part.row_groups),
            ),
            encode=RecordsEncodeOptions(lossy=self.lossy == "allow", exact=self.lossy == "error"),
            key=key,
            sequence=sequence,
            evolve=self.evolve,
        )

    def to_json(self) -> dict[str, Any]:
        plain = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in _BY_ITSELF}
        return {
            **plain,
            "schema": None if self.schema is None else self.schema.to_json(),
            "publish": None if self.publish is None else _publish_json(self.publish),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ImportRequest:
        """What `to_json` gave; members of a later release are left out.

        Raises:
            InputError, KeyError, TypeError, ValueError: not of that form.
        """
        plain = {item.name: value[item.name] for item in fields(cls) if item.name in value}
        schema, publish = value.get("schema"), value.get("publish")
        plain["schema"] = None if schema is None else Schema.from_json(schema)
        plain["publish"] = None if publish is None else _parse_publish(publish)
        return cls(**plain)


def _publish_json(options: PublishOptions) -> dict[str, Any]:
    value = asdict(options)
    # In order: it says which hashes a split takes.
    value["fractions"] = (
        None if options.fractions is None else [list(item) for item in options.fractions.items()]
    )
    return value


def _parse_publish(value: Mapping[str, Any]) -> PublishOptions:
    given = {item.name: value[item.name] for item in fields(PublishOptions) if item.name in value}
    if given.get("fractions") is not None:
        given["fractions"] = dict(given["fractions"])
    return PublishOptions(**{**given, "exclude": tuple(given.get("exclude", ()))})
