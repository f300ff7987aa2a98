"""How far an import is, read off the store: any process can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NotRequired

from typing_extensions import TypedDict

from .notes import FailureJson, NoteBook, Notes, RefusalJson
from .plan import ImportPlan
from .ranges import Range

#: `stopped`: a range failed, and no other attempt of it is known to have come to an end, or the publication
#: was refused; `publishing`: all ranges are decided.
State = Literal["running", "stopped", "publishing", "done", "cancelled"]

#: Failures that are told; further ones are counted.
_TOLD: Final = 100
#: Ranges that the rate goes by: an import may have stood still before them.
_RECENT: Final = 20


class ImportJson(TypedDict):
    """An import as it is now. Bytes are those of the source, but for `stored_bytes`."""

    dataset: str
    import_id: str
    state: State
    source: str
    objects: int
    passed_over: int
    ranges: int
    ranges_done: int
    ranges_left_out: int
    rows: int
    bytes: int
    bytes_done: int
    stored_bytes: int
    bytes_per_second: NotRequired[float]
    seconds_left: NotRequired[float]
    failures: list[FailureJson]
    rounded: NotRequired[list[str]]
    as_text: NotRequired[list[str]]
    refusal: NotRequired[RefusalJson]
    version: NotRequired[str]


@dataclass(frozen=True, slots=True)
class ImportStatus:
    """An import as it is now.

    Attributes:
        done, left_out: how many ranges.
        num_records, num_bytes: of the ranges that are done, as they are stored.
        source_bytes: of the same in the source.
        bytes_left: of the source, what is neither done nor left out.
        bytes_per_second: of the source, by the ranges that were done last; None if it cannot be told.
        failures: of ranges that were left out, or failed and are not done; the first of them.
        changes: the features of which values were `rounded`, or times or decimals became text (`as_text`).
        refusal: why the rows, which are all stored, could not be published.
        version: that was published.
    """

    dataset: str
    plan: ImportPlan
    state: State
    done: int
    left_out: int
    num_records: int
    num_bytes: int
    source_bytes: int
    bytes_left: int
    bytes_per_second: float | None
    failures: tuple[FailureJson, ...]
    changes: Mapping[str, list[str]]
    refusal: RefusalJson | None
    version: str | None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be done."""
        return self.state in ("done", "cancelled")

    @property
    def is_decided(self) -> bool:
        """Whether every range is done or left out."""
        return self.done + self.left_out == self.plan.num_ranges

    def to_json(self) -> ImportJson:
        plan = self.plan
        told: ImportJson = {
            "dataset": self.dataset,
            "import_id": plan.import_id,
            "state": self.state,
            "source": plan.request.shown_source,
            "objects": plan.num_objects,
            "passed_over": plan.passed_over,
            "ranges": plan.num_ranges,
            "ranges_done": self.done,
            "ranges_left_out": self.left_out,
            "rows": self.num_records,
            "bytes": plan.num_bytes,
            "bytes_done": self.source_bytes,
            "stored_bytes": self.num_bytes,
            "failures": list(self.failures),
        }
        if self.bytes_per_second is not None and not self.has_ended:
            told["bytes_per_second"] = round(self.bytes_per_second, 1)
            told["seconds_left"] = round(self.bytes_left / self.bytes_per_second, 1)
        if "rounded" in self.changes:
            told["rounded"] = self.changes["rounded"]
        if "as_text" in self.changes:
            told["as_text"] = self.changes["as_text"]
        if self.refusal is not None:
            told["refusal"] = self.refusal
        if self.version is not None:
            told["version"] = self.version
        return told


def status_of(
    dataset: str, plan: ImportPlan, ranges: Sequence[Range], notes: Notes, book: NoteBook
) -> ImportStatus:
    """What the notes say.

    Args:
        ranges: of the plan.
    """
    decision = book.decision()
    ended = book.ended() if decision == "publish" else None
    done, left = notes.done, notes.left
    failed = [index for index in notes.failed if not notes.is_decided(index)]
    told = sorted([*left, *failed])[:_TOLD]
    failures = tuple(found for index in told if (found := book.failure(index, notes)) is not None)
    source_bytes, left_bytes = (sum(ranges[index].num_bytes for index in some) for some in (done, left))
    refusal = None
    state: State = "running"
    if decision == "cancel":
        state = "cancelled"
    elif ended is not None:
        state = "done"
    elif len(done) + len(left) == plan.num_ranges:
        refusal = book.refusal()
        state = "publishing" if refusal is None else "stopped"
    elif failed:
        state = "stopped"
    return ImportStatus(
        dataset,
        plan,
        state,
        len(done),
        len(left),
        sum(rows for rows, _ in done.values()),
        sum(num_bytes for _, num_bytes in done.values()),
        source_bytes,
        plan.num_bytes - source_bytes - left_bytes,
        _rate(notes, ranges),
        failures,
        book.changes(notes),
        refusal,
        None if ended is None else ended["version"],
    )


def _rate(notes: Notes, ranges: Sequence[Range]) -> float | None:
    if not notes.moments:
        return None
    since, *moments = sorted((moment, index) for index, moment in notes.moments.items())[-_RECENT:]
    # When the first of them began is not known: it only says when the others did.
    num_bytes = sum(ranges[index].num_bytes for _, index in moments)
    seconds = (moments[-1][0] - since[0]).total_seconds() if moments else 0.0
    return num_bytes / seconds if seconds > 0 and num_bytes else None
