"""What clients were told, what became readable, and whether the two agree."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal

from app.services.datasets.append.result import AppendResult
from app.storage.object_store import ObjectNotFound
from tests.simulation.store import CREATED_ONCE, Objects, kind_of

__all__ = ["Append", "Deletion", "Ledger", "Version", "Violation", "rows_of"]

Kind = Literal[
    "lost",  # an acknowledged row is not there
    "duplicate",  # a row is there twice
    "unexpected",  # a row is there that was refused, or never sent
    "order",  # rows of one append, or sequential ones of one replica, are out of order
    "torn",  # a published version is not whole
    "changed",  # the bytes of a published version changed
    "stale",  # a reader was told of an older version than was published
    "answer",  # a client got an answer that cannot be
    "aborted",  # a version was given up without a cause
    "stuck",  # what has to succeed once all is calm does not
    "leak",  # something is left behind
    "rule",  # an invariant of the protocol is broken, whether or not anybody sees it
]

_MANIFEST: Final = re.compile(r"^([^/]+)/(\d+)\.(\d+)\.0/_manifest\.json$")
_FILE: Final = re.compile(r"^([^/]+)/(\d+)\.(\d+)\.0/")
_OWN: Final = re.compile(r"^([^/]+)/_g(\d+)/(.+)$")
_LENGTH: Final = struct.Struct("<Q")
_ID: Final = b"\n\x01x\x12"


@dataclass(frozen=True, slots=True)
class Violation:
    kind: Kind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass
class Append:
    """One append that a client wants, over all its tries. Times are virtual seconds.

    Attributes:
        refused: some try was told that these rows will never be stored.
        unknown: some try got no definite answer.
        sequel_of: the append that the same process had acknowledged before this one was sent.
        padded: whether the rows have a second feature; None where the schema is not to be widened.
    """

    rows: tuple[int, ...]
    dataset: str
    split: str
    key: str | None
    begun: float = 0.0
    answers: list[AppendResult] = field(default_factory=list)
    acknowledged: float | None = None
    unknown: bool = False
    refused: bool = False
    sequel_of: Append | None = None
    sequence: int | None = None
    padded: bool | None = None

    def __str__(self) -> str:
        return f"append of {list(self.rows)} to {self.dataset}/{self.split} (key {self.key})"


@dataclass
class Deletion:
    """One deletion of a dataset, or of a version; `ended` is None while it may still take effect."""

    dataset: str
    begun: float
    ended: float | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """A published version as it was when its manifest appeared.

    Attributes:
        rows: by split, in order.
        total: all that was published up to here, also where a version did not hold what came before.
    """

    dataset: str
    generation: int
    n: int
    manifest: Mapping[str, Any]
    rows: Mapping[str, Sequence[int]]
    total: Mapping[str, Sequence[int]]

    @property
    def name(self) -> str:
        return f"{self.generation}.{self.n - 1}.0"


class Ledger:
    """Watches the store and the clients of one run."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.appends: list[Append] = []
        self.deletions: list[Deletion] = []
        self.versions: dict[tuple[str, int], list[Version]] = {}
        self.objects = Objects(self._changed)
        #: Rows that a shuffle or a division has touched, and manifests of versions that were given up.
        self.moved: set[int] = set()
        self.given_up: set[str] = set()
        #: Ids that a publish was asked to consume without their rows: all that share one, be they of one
        #: group, or of one key in a dataset that was made anew.
        self.left_out: set[tuple[str, str]] = set()
        self._immutable: dict[str, bytes] = {}
        self._next_row = 1

    def violate(self, kind: Kind, detail: str) -> None:
        self.violations.append(Violation(kind, detail))

    def new_rows(self, count: int) -> tuple[int, ...]:
        first, self._next_row = self._next_row, self._next_row + count
        return tuple(range(first, self._next_row))

    def latest(self, dataset: str) -> Version | None:
        """The newest published version of the incarnation that lives."""
        generations = [
            generation
            for name, generation in self.versions
            if name == dataset and f"{dataset}/_gen/{generation}.end" not in self.objects
        ]
        return self.versions[dataset, max(generations)][-1] if generations else None

    def all_versions(self, dataset: str) -> list[Version]:
        """Every version that was published, deleted ones too."""
        return [
            version
            for (name, _), versions in self.versions.items()
            if name == dataset
            for version in versions
        ]

    def version(self, dataset: str, name: str) -> Version | None:
        generation = int(name.split(".")[0])
        for version in self.versions.get((dataset, generation), ()):
            if version.name == name:
                return version
        return None

    def is_left_out(self, append: Append) -> bool:
        """Whether a publish was asked to consume it without its rows."""
        return any((append.dataset, answer.append_id) in self.left_out for answer in append.answers)

    def may_be_deleted(self, dataset: str, since: float) -> bool:
        """Whether a deletion of the dataset may have taken effect after that time."""
        return any(
            deletion.dataset == dataset
            and deletion.version is None
            and (deletion.ended is None or deletion.ended >= since)
            for deletion in self.deletions
        )

    def is_retired(self, version: Version) -> bool:
        """Whether a version, or its dataset, may be deleted by now."""
        folder = f"{version.dataset}/{version.name}"
        return (
            f"{folder}/_deleted.json" in self.objects
            or f"{version.dataset}/_gen/{version.generation}.end" in self.objects
        )

    def _changed(self, key: str, old: bytes | None, new: bytes | None) -> None:
        """Told by the store of every change."""
        kept = self._immutable.get(key)
        if kept is not None and new != kept:
            self._mutated(key, new)
        kind = kind_of(key)
        if kind not in CREATED_ONCE:
            return
        if old is not None and new is not None:
            self.violate("rule", f"{key} is overwritten")
        if kind == "manifest" and new is not None:
            try:
                self._published(key, new)
            except (LookupError, TypeError, ValueError, ObjectNotFound, struct.error, zlib.error) as error:
                self.violate("torn", f"{key} makes no sense: {type(error).__name__}: {error}")

    def _mutated(self, key: str, new: bytes | None) -> None:
        match = _FILE.match(key)
        assert match is not None
        dataset, generation = match[1], int(match[2])
        ended = f"{dataset}/_gen/{generation}.end" in self.objects
        if new is None and (ended or f"{match[0]}_deleted.json" in self.objects):
            del self._immutable[key]
            return
        self.violate("changed", f"{key} was {'deleted' if new is None else 'overwritten'} once published")

    def _published(self, key: str, data: bytes) -> None:
        match = _MANIFEST.match(key)
        assert match is not None, key
        dataset, generation, n = match[1], int(match[2]), int(match[3]) + 1
        manifest = json.loads(data)
        if "aborted" in manifest:
            if f"{dataset}/_gen/{generation}.end" not in self.objects and key not in self.given_up:
                self.violate("aborted", f"{key}: {manifest['aborted']}")
            return
        folder = key.rsplit("/", 1)[0]
        if f"{dataset}/_gen/{generation}.end" in self.objects:
            return  # nobody finds it
        rows: dict[str, list[int]] = {}
        for split, entry in manifest["splits"].items():
            rows[split] = []
            for shard in entry["shards"]:
                content = self._named(folder, shard)
                if shard.get("index") is not None:
                    self._named(folder, shard["index"])
                if content is not None:
                    found = rows_of(inflated(shard["file"], content))
                    if len(found) != shard["num_records"]:
                        self.violate("torn", f"{folder}/{shard['file']} has {len(found)} records")
                    rows[split] += found
        for file in manifest["files"]:
            if file["file"] != "dataset_info.json":
                self._named(folder, file)
        self._immutable[key] = data
        before = self.versions.setdefault((dataset, generation), [])
        total = self._total(dataset, generation, n, rows, before)
        before.append(Version(dataset, generation, n, manifest, rows, total))

    def _total(
        self, dataset: str, generation: int, n: int, rows: Mapping[str, Sequence[int]], before: list[Version]
    ) -> Mapping[str, Sequence[int]]:
        """What was published before, and the rows that this version adds to its base."""
        plan = json.loads(self.objects.get(f"{dataset}/_g{generation}/log/{n}.plan").data)
        base = next((version.rows for version in before if version.n == plan["base"]), {})
        total = {split: list(kept) for split, kept in before[-1].total.items()} if before else {}
        shuffled = plan["shuffle_seed"] is not None
        for split in {**base, **rows}:
            carried, now = base.get(split, ()), rows.get(split, ())
            added = now[len(carried) :]
            if shuffled:
                self.moved.update(now)
                added = [row for row in now if row not in set(carried)]
            if tuple(now[: len(carried)]) != tuple(carried) and not (
                shuffled and len(added) + len(carried) == len(now)
            ):
                self.violate("changed", f"{dataset} {generation}.{n - 1}.0 does not hold its base")
            if plan["division"] is not None:
                self.moved.update(added)
            total.setdefault(split, []).extend(added)
        return total

    def _named(self, folder: str, entry: Mapping[str, Any]) -> bytes | None:
        key = f"{folder}/{entry['file']}"
        if key not in self.objects:
            self.violate("torn", f"{key} is not there when its manifest is published")
            return None
        content = self.objects.get(key).data
        if sha256(content).hexdigest() != entry["sha256"]:
            self.violate("torn", f"{key} is not what its manifest says")
        self._immutable[key] = content
        return content

    def check(self, dataset: str) -> None:
        """The last version of a dataset against what its clients were told."""
        version = self.latest(dataset)
        rows = {} if version is None else version.total
        counts = Counter(row for split in rows.values() for row in split)
        for append in self.appends:
            if append.dataset == dataset:
                self._check_append(append, rows, counts)
        sent = {row for append in self.appends if append.dataset == dataset for row in append.rows}
        for row in counts.keys() - sent:
            self.violate("unexpected", f"row {row} of {dataset} was never sent there")

    def check_leftovers(self) -> None:
        """What is there once all is published, old and collected: nothing that nobody needs."""
        for _, (key, _) in sorted(self.objects.uploads.items()):
            self.violate("leak", f"an upload of {key}")
        kept = set(self._immutable)
        for versions in self.versions.values():
            for version in versions:
                kept.add(f"{version.dataset}/{version.name}/dataset_info.json")
                if self.is_retired(version):
                    kept -= {key for key in kept if key.startswith(f"{version.dataset}/{version.name}/")}
        for key in self.objects:
            if key not in kept and not self._stays(key):
                self.violate("leak", key)

    def _stays(self, key: str) -> bool:
        match = _OWN.match(key)
        if match is None:
            return kind_of(key) in ("gen", "end") or self._is_verdict(key)
        if f"{match[1]}/_gen/{match[2]}.end" in self.objects:
            return False
        if kind_of(key) in ("plan", "schema", "hint"):
            return True
        number = re.match(r"log/(\d+)\.([0-9a-z]+)[./]", match[3])
        if number is None:
            return False
        if number[2] == "done":
            versions = self.versions.get((match[1], int(match[2])), ())
            return any(str(version.n) == number[1] for version in versions)
        named_by = f"{match[1]}/_g{match[2]}/log/{number[1]}.plan"
        if named_by not in self.objects:
            return True  # it may name it yet
        plan = json.loads(self.objects.get(named_by).data)
        return bool(plan["nonce"] == number[2])

    def _is_verdict(self, key: str) -> bool:
        match = _FILE.match(key)
        ended = match is not None and f"{match[1]}/_gen/{match[2]}.end" in self.objects
        return not ended and kind_of(key) in ("manifest", "deleted")

    def _check_append(
        self, append: Append, rows: Mapping[str, Sequence[int]], counts: Mapping[int, int]
    ) -> None:
        found = [counts.get(row, 0) for row in append.rows]
        if max(found) > 1:
            self.violate("duplicate", f"{append} is there {max(found)} times")
            return
        if min(found) != max(found):
            self.violate("torn", f"{append} is there in part: {found}")
            return
        if not found[0]:
            if (
                append.acknowledged is not None
                and not self.is_left_out(append)
                and not self.may_be_deleted(append.dataset, append.begun)
            ):
                self.violate("lost", f"{append} was acknowledged")
            return
        if append.acknowledged is None and (append.refused or not append.unknown):
            self.violate("unexpected", f"{append} was refused")
        if not self.moved.isdisjoint(append.rows):
            return
        placed = rows.get(append.split, ())
        if append.rows[0] not in placed:
            self.violate("unexpected", f"{append} is in another split")
            return
        begin = placed.index(append.rows[0])
        if tuple(placed[begin : begin + len(append.rows)]) != append.rows:
            self.violate("order", f"{append} is torn apart")
        before = append.sequel_of
        if before is None or append.sequence is not None or before.sequence is not None:
            return
        if before.rows[0] in placed and placed.index(before.rows[0]) > begin:
            self.violate("order", f"{append} comes before the {before}, which was acknowledged first")


def inflated(file: str, data: bytes) -> bytes:
    """The bytes of a TFRecord file that may be compressed, as its name says."""
    return zlib.decompress(data, wbits=47) if file.endswith((".gz", ".zlib")) else data


def rows_of(shard: bytes) -> list[int]:
    """The ids of the rows in a TFRecord file, read by nothing of the service's."""
    rows, position = [], 0
    while position < len(shard):
        (length,) = _LENGTH.unpack_from(shard, position)
        payload = shard[position + 12 : position + 12 + length]
        position += 16 + length
        rows.append(_varint(payload, payload.index(_ID) + len(_ID) + 5))
    return rows


def _varint(data: bytes, position: int) -> int:
    value, shift = 0, 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        position, shift = position + 1, shift + 7
