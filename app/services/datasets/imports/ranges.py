"""The ranges that the objects of a source are cut into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ....domain.immutable import immutable
from ....domain.stored_values import count, text
from ....storage.source_objects import SourceObject

#: Of one import: 25 TB by ranges of 256 MiB. Each leaves an object or two behind.
MAX_RANGES: Final = 100_000


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
