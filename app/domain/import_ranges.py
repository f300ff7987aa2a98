"""What an import reads: objects of a source, and the ranges that they are cut into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .immutable import immutable
from .stored_values import count, text
from .urls import hide_secrets

#: Of one import, and so objects of a source: 25 TB by ranges of 256 MiB. Each leaves an object or two behind.
MAX_RANGES: Final = 100_000


@immutable()
class SourceObject:
    """An object of a source as it was listed.

    Attributes:
        name: below the place that the source names, or the URL of an object of a list.
        size: in bytes.
        etag: changes when the object does.
    """

    name: str
    size: int
    etag: str

    @property
    def shown_name(self) -> str:
        """The name; of a URL without what may be a secret."""
        return hide_secrets(self.name) if "://" in self.name else self.name


@immutable()
class Range:
    """A part of an object that is appended by itself.

    Attributes:
        source: the object.
        start, stop: its bytes.
        head: bytes at the beginning of the object that every range is read behind: the header of a CSV.
        row_groups: of Parquet, the first and the one behind the last; then `start` and `stop` say where
            their bytes lie.
    """

    source: SourceObject
    start: int
    stop: int
    head: int = 0
    row_groups: tuple[int, int] | None = None

    @property
    def num_bytes(self) -> int:
        return self.stop - self.start

    def to_json(self) -> dict[str, Any]:
        source = self.source
        return {
            "object": source.name,
            "size": source.size,
            "etag": source.etag,
            "start": self.start,
            "stop": self.stop,
            **({"head": self.head} if self.head else {}),
            **({} if self.row_groups is None else {"row_groups": list(self.row_groups)}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Range:
        """What `to_json` gave.

        Raises:
            KeyError, TypeError, ValueError: not of that form.
        """
        source = SourceObject(text(value["object"]), count(value["size"]), text(value["etag"]))
        groups = value.get("row_groups")
        pair = None if groups is None else (count(groups[0]), count(groups[1]))
        return cls(source, count(value["start"]), count(value["stop"]), count(value.get("head", 0)), pair)
