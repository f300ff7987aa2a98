"""What became of an import: of its ranges, read off one listing; of its publication; and its end.

Each note on a range is an object below `imports/<id>/ranges/`; its name and size say it all, so that a
listing tells the progress:

| name                          | written | means                                                           |
|-------------------------------|---------|-----------------------------------------------------------------|
| `<range>.done.<rows>.<bytes>` | put     | the slot of its append is a commit, which has these counts      |
| `<range>.closed.<attempt>`    | once    | that slot is dead. Up to `DEAD_BYTES`: another attempt has to   |
|                               |         | append the range. Longer: it is left out, and this says why     |
| `<range>.failed.<nonce>`      | put     | an attempt failed, and may be repeated; says what was wrong     |
| `changed.<digest>`            | put     | in some range these features were rounded, or became text; put  |
|                               |         | before the note that the range is done                          |

A note follows from the slot, which decides. So one written late, or twice, changes nothing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal, NotRequired

from typing_extensions import TypedDict

from ....errors import CorruptData, ShardsmithError
from ....storage.create_once import create_once, new_nonce
from ....storage.object_store import ObjectNotFound
from ..append.result import AppendResult
from ..objects.dataset import Dataset
from ..objects.slot import DEAD_BYTES, Commit
from ..objects.stored_json import dump_json, open_json, read_again, seal_json
from .ranges import Range

_NOTE: Final = re.compile(
    r"(?P<index>[0-9]{6})\.(done\.(?P<rows>[0-9]+)\.(?P<bytes>[0-9]+)|closed\.(?P<attempt>[0-9]+)"
    r"|(?P<failed>failed)\.[0-9a-f]{32})"
)
_CHANGED: Final = re.compile(r"changed\.[0-9a-f]{64}")
#: Notes on changes that are read: nearly all ranges change the same features.
_MOST_CHANGES: Final = 100


Decision = Literal["publish", "cancel"]


class FailureJson(TypedDict):
    """What was wrong with a range. `row` and `offset` count from the beginning of the range."""

    range: int
    object: str
    start: int
    stop: int
    code: str
    detail: str
    row: NotRequired[int]
    offset: NotRequired[int]
    feature: NotRequired[str]


def describe_failure(index: int, part: Range, error: ShardsmithError) -> FailureJson:
    """What is said of an error."""
    told: FailureJson = {
        "range": index,
        "object": part.source.shown_name,
        "start": part.start,
        "stop": part.stop,
        "code": error.code,
        "detail": error.detail,
    }
    location = error.location
    if location.row is not None:
        told["row"] = location.row
    if location.offset is not None:
        told["offset"] = location.offset
    if location.feature is not None:
        told["feature"] = location.feature
    return told


class RefusalJson(TypedDict):
    """Why the rows could not be published as was asked for."""

    code: str
    detail: str


@dataclass(slots=True)
class Notes:
    """What became of the ranges, by their numbers.

    Attributes:
        done: rows and bytes, as they are stored.
        left: the ranges that were left out, and by the note of which attempt.
        attempts: how many attempts of a range can never be any more.
        failed: the names of notes on failures.
        moments: when the note on each range that is done was written.
        changed: the names of notes on features that were changed.
    """

    done: dict[int, tuple[int, int]] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    moments: dict[int, datetime] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)

    def is_decided(self, index: int) -> bool:
        """Whether nothing is left to do for a range."""
        return index in self.done or index in self.left


class NoteBook:
    """Reads and writes the notes of one import."""

    def __init__(self, dataset: Dataset, import_id: str) -> None:
        self._store = dataset.store
        self._folder = dataset.layout.import_(import_id)
        self._ranges = f"{self._folder}/ranges"
        self._skip = f"{self._folder}/skip"
        self._refusal = f"{self._folder}/refusal"
        self._decision = f"{self._folder}/decision"
        self._end = f"{self._folder}/end"

    def read(self) -> Notes:
        """All notes there are."""
        notes = Notes()
        for info in self._store.list(self._ranges):
            name = info.key.removeprefix(f"{self._ranges}/")
            found = _NOTE.fullmatch(name)
            if found is None:
                if _CHANGED.fullmatch(name):
                    notes.changed.append(name)
                continue
            index = int(found["index"])
            if found["rows"] is not None:
                notes.done[index] = (int(found["rows"]), int(found["bytes"]))
                notes.moments[index] = info.last_modified
            elif found["attempt"] is not None:
                attempt = int(found["attempt"])
                if info.size > DEAD_BYTES:
                    notes.left[index] = attempt
                else:
                    notes.attempts[index] = max(notes.attempts.get(index, 0), attempt + 1)
            else:
                # Any of several: which one does not depend on the order of the listing.
                notes.failed[index] = max(notes.failed.get(index, ""), name)
        return notes

    def done(self, index: int, stored: AppendResult | Commit) -> None:
        """Note that a range is appended, and before that, which features were changed."""
        if stored.rounded or stored.as_text:
            changes = {"rounded": sorted(stored.rounded), "as_text": sorted(stored.as_text)}
            name = f"changed.{sha256(dump_json(changes)).hexdigest()}"
            self._store.put(f"{self._ranges}/{name}", seal_json(changes))
        self._store.put(f"{self._ranges}/{index:06}.done.{stored.num_records}.{stored.num_bytes}", b"")

    def changes(self, notes: Notes) -> dict[str, list[str]]:
        """The features that were changed in some range: `rounded`, `as_text`."""
        found: dict[str, set[str]] = {"rounded": set(), "as_text": set()}
        for name in notes.changed[:_MOST_CHANGES]:
            noted = self._read(f"{self._ranges}/{name}") or {}
            for change in found:
                found[change].update(noted.get(change, ()))
        return {change: sorted(features) for change, features in found.items() if features}

    def close(self, index: int, attempt: int, failure: FailureJson | None) -> bool:
        """Decide what the death of an attempt's slot means; whether the range is left out.

        Whoever comes first decides: nobody begins another attempt of a range that was left out.

        Args:
            failure: why it is left out; None asks for another attempt.
        """
        value = {"nonce": new_nonce()} if failure is None else {"nonce": new_nonce(), "failure": failure}
        data = seal_json(value)
        winner = create_once(self._store, f"{self._ranges}/{index:06}.closed.{attempt}", data)
        return len(winner or data) > DEAD_BYTES

    def failed(self, index: int, failure: FailureJson) -> None:
        nonce = new_nonce()
        self._store.put(f"{self._ranges}/{index:06}.failed.{nonce}", seal_json({"failure": failure}))

    def failure(self, index: int, notes: Notes) -> FailureJson | None:
        """What was wrong with a range that was left out or failed; None if that note is gone."""
        left = notes.left.get(index)
        name = notes.failed[index] if left is None else f"{index:06}.closed.{left}"
        key = f"{self._ranges}/{name}"
        with contextlib.suppress(ObjectNotFound):
            value: FailureJson = read_again(lambda: open_json(self._store.get(key), key))["failure"]
            return value
        return None

    def skip(self) -> None:
        """Note that ranges which cannot be read are left out from now on, whatever the plan says."""
        create_once(self._store, self._skip, seal_json({"nonce": new_nonce()}))

    def skips(self) -> bool:
        """Whether `skip` was noted."""
        return self._read(self._skip) is not None

    def refused(self, error: ShardsmithError) -> None:
        """Note why the rows cannot be published; the last one who has tried is right."""
        self._store.put(self._refusal, seal_json({"code": error.code, "detail": error.detail}))

    def refusal(self) -> RefusalJson | None:
        """Why the rows could not be published when it was last tried; None as long as nobody failed."""
        value = self._read(self._refusal)
        return None if value is None else {"code": value["code"], "detail": value["detail"]}

    def decide(self, decision: Decision) -> bool:
        """Decide that the rows are published, or that the import is cancelled; whether it is so.

        Whoever comes first decides, before any version is planned.
        """
        create_once(self._store, self._decision, seal_json({"nonce": new_nonce(), "decision": decision}))
        return self.decision() == decision

    def decision(self) -> Decision | None:
        """What was decided; None as long as nothing is."""
        value = self._read(self._decision)
        if value is None:
            return None
        if value.get("decision") not in ("publish", "cancel"):
            raise CorruptData(f"{self._decision} is not of the known form.")
        decision: Decision = value["decision"]
        return decision

    def end(self, version: str | None) -> None:
        """Note that the import is done, with the version that its rows are in."""
        create_once(self._store, self._end, seal_json({"nonce": new_nonce(), "version": version}))

    def ended(self) -> Mapping[str, Any] | None:
        """What `end` noted; None as long as the import is not done."""
        return self._read(self._end)

    def _read(self, key: str) -> Mapping[str, Any] | None:
        try:
            return read_again(lambda: open_json(self._store.get(key), key))
        except ObjectNotFound:
            return None
