"""Manifest: what one published version holds. Its JSON form is that of the HTTP contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NotRequired

from typing_extensions import TypedDict

from ..errors import CorruptData, InputError
from .compression import SUFFIXES, Compression
from .names import check_file_name, check_split_name
from .schema import Schema, SchemaJson
from .stored_values import count, digest, text


class FileJson(TypedDict):
    """A file beside the shards; the SHA-256 of its bytes is in hexadecimal."""

    file: str
    num_bytes: int
    sha256: str


class ShardJson(TypedDict):
    """A TFRecord file; `index` is that of its records, which compressed shards do not have."""

    file: str
    num_records: int
    num_bytes: int
    sha256: str
    index: NotRequired[FileJson]


class SplitJson(TypedDict):
    """The shards of one split, in the order of its records."""

    num_records: int
    num_bytes: int
    shards: list[ShardJson]


class ManifestJson(TypedDict):
    """What one published version of a dataset holds; it never changes."""

    dataset: str
    version: str
    splits: dict[str, SplitJson]
    schema: SchemaJson
    compression: Compression
    files: list[FileJson]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file beside the shards: its size in bytes and the SHA-256 of its bytes, in hex."""

    file: str
    num_bytes: int
    sha256: str

    def to_json(self) -> FileJson:
        return {"file": self.file, "num_bytes": self.num_bytes, "sha256": self.sha256}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FileEntry:
        return cls(check_file_name(text(value["file"])), count(value["num_bytes"]), digest(value["sha256"]))


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard: a TFRecord file, compressed as the manifest says.

    Attributes:
        num_bytes: of the file as it lies there, framing included.
        index: a line `<offset> <size>` a record, as DALI reads it; of uncompressed shards alone.
    """

    file: str
    num_records: int
    num_bytes: int
    sha256: str
    index: FileEntry | None = None

    def to_json(self) -> ShardJson:
        shard: ShardJson = {
            "file": self.file,
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
            "sha256": self.sha256,
        }
        if self.index is not None:
            shard["index"] = self.index.to_json()
        return shard

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ShardEntry:
        index = value.get("index")
        return cls(
            check_file_name(text(value["file"])),
            count(value["num_records"]),
            count(value["num_bytes"]),
            digest(value["sha256"]),
            None if index is None else FileEntry.from_json(index),
        )


@dataclass(frozen=True, slots=True)
class SplitEntry:
    """The shards of one split, in the order of its records."""

    shards: tuple[ShardEntry, ...]

    @property
    def num_records(self) -> int:
        return sum(shard.num_records for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        return sum(shard.num_bytes for shard in self.shards)

    def to_json(self) -> SplitJson:
        return {
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
            "shards": [shard.to_json() for shard in self.shards],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SplitEntry:
        """Raises ValueError where the shards do not add up to what the split is said to hold."""
        split = cls(tuple(map(ShardEntry.from_json, value["shards"])))
        if (split.num_records, split.num_bytes) != (value["num_records"], value["num_bytes"]):
            raise ValueError("the shards do not add up")
        return split


@dataclass(frozen=True)
class Manifest:
    """One published version of a dataset; it never changes.

    Attributes:
        splits: by name, in the order in which they first got records.
        schema: of every record.
        files: what lies beside the shards, such as features.json.
        compression: of every shard.
    """

    dataset: str
    version: str
    splits: Mapping[str, SplitEntry]
    schema: Schema
    files: tuple[FileEntry, ...] = ()
    compression: Compression = "none"

    @cached_property
    def by_file(self) -> Mapping[str, FileEntry | ShardEntry]:
        """Every file of the version, by name."""
        entries: list[FileEntry | ShardEntry] = list(self.files)
        for split in self.splits.values():
            entries += split.shards
            entries += [shard.index for shard in split.shards if shard.index is not None]
        return MappingProxyType({entry.file: entry for entry in entries})

    def sha256sums(self) -> str:
        """A line for each file, for `sha256sum -c` in the folder that holds them."""
        return "".join(f"{entry.sha256}  {name}\n" for name, entry in sorted(self.by_file.items()))

    def to_json(self) -> ManifestJson:
        return {
            "dataset": self.dataset,
            "version": self.version,
            "splits": {name: split.to_json() for name, split in self.splits.items()},
            "schema": self.schema.to_json(),
            "compression": self.compression,
            "files": [file.to_json() for file in self.files],
        }

    @classmethod
    def from_json(cls, value: Any) -> Manifest:
        """A manifest from its stored JSON form; members that it does not know are left out.

        Raises:
            CorruptData: not of that form.
        """
        try:
            return cls(
                dataset=text(value["dataset"]),
                version=text(value["version"]),
                splits={
                    check_split_name(name): SplitEntry.from_json(split)
                    for name, split in value["splits"].items()
                },
                schema=Schema.from_json(value["schema"]),
                files=tuple(map(FileEntry.from_json, value["files"])),
                compression=_compression(value.get("compression", "none")),
            )
        except (AttributeError, KeyError, TypeError, ValueError, InputError) as error:
            raise CorruptData("A stored manifest is not of the known form.") from error


def _compression(value: Any) -> Compression:
    if value not in SUFFIXES:
        raise ValueError("not a compression")
    known: Compression = value
    return known
