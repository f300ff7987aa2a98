"""One golden file, and what the index says of it; docs/reference/golden.md describes the members."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

FILES: Final = Path(__file__).with_name("files")
INDEX: Final = FILES / "index.json"

#: What a writer of the same values has to give: the same bytes; or bytes that are read as the same values.
Written = Literal["bytes", "values"]
Holds = Literal["tensors", "rows", "schema"]


@dataclass(frozen=True)
class Golden:
    """A file that has to be read as the values in `of`.

    Attributes:
        form: a short name of docs/http.md, or of a schema `schema`, `pbtxt` or `features`.
        of: the JSON file with the values; None for that file itself.
        names: the tensors or features of `of` that it has, in this order; None has all.
        options: parameters of docs/http.md, and what headers say: `json_bytes`, `boundary`.
        schema: of rows, the path of theirs.
        written: None where no writer has to make such a file.
    """

    path: str
    content: bytes
    form: str
    holds: Holds
    made_with: str
    of: str | None = None
    written: Written | None = "values"
    names: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    schema: str | None = None

    def to_json(self) -> dict[str, Any]:
        entry = {
            "path": self.path,
            "form": self.form,
            "holds": self.holds,
            "of": self.of or self.path,
            "names": self.names,
            "schema": self.schema,
            "options": self.options,
            "written": self.written,
            "made_with": self.made_with,
            "sha256": sha256(self.content).hexdigest(),
        }
        return {name: value for name, value in entry.items() if value not in (None, {})}


@dataclass(frozen=True)
class Bad:
    """A file that has to be refused, with a code of docs/reference/errors.md."""

    path: str
    content: bytes
    form: str
    holds: Holds
    what: str
    status: int
    code: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        entry = {name: value for name, value in vars(self).items() if name != "content" and value != {}}
        return {**entry, "sha256": sha256(self.content).hexdigest()}


def index_bytes(good: Sequence[Golden], bad: Sequence[Bad], lacks: Mapping[str, list[str]]) -> bytes:
    """The index; an entry a line."""
    lists = [json_lines([entry.to_json() for entry in entries]).strip() for entries in (good, bad)]
    return b'{"good": %s,\n"bad": %s,\n"lacks": %s}\n' % (*lists, json_bytes(lacks))


def json_lines(items: list[Any]) -> bytes:
    """An array of JSON, an item a line."""
    return b"[\n" + b",\n".join(map(json_bytes, items)) + b"\n]\n"


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def npy_bytes(array: Any) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    return sink.getvalue()
