"""Acknowledged appends that no version holds yet, as they are listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from ..objects.slot import Commit


class WaitingJson(TypedDict):
    """How much waits for a publication; `truncated` where there may be more appends than were counted."""

    num_appends: int
    num_records: int
    num_bytes: int
    truncated: bool


class WaitingAppendJson(TypedDict):
    """An acknowledged append that no version holds yet; of an `unreadable` one only the id is known."""

    append_id: str
    state: Literal["acknowledged", "unreadable"]
    split: NotRequired[str]
    num_records: NotRequired[int]
    num_bytes: NotRequired[int]
    time: NotRequired[str]
    sequence: NotRequired[int]


class WaitingAppendsJson(TypedDict):
    """Waiting appends of a dataset; where there are more, `next` is the `after` of the next request."""

    dataset: str
    appends: list[WaitingAppendJson]
    next: NotRequired[str]


@dataclass(frozen=True, slots=True)
class WaitingAppends:
    """Some of them, in the order of their ids.

    Attributes:
        next: the id to go on after; None where there are no more.
        is_whole: whether all slots were listed, so that there are no more where `next` is None.
    """

    appends: Sequence[Commit] = ()
    next: str | None = None
    is_whole: bool = True

    def counts(self) -> WaitingJson:
        """How much it is; `truncated` where there may be more appends than these."""
        return {
            "num_appends": len(self.appends),
            "num_records": sum(append.num_records for append in self.appends),
            "num_bytes": sum(append.num_bytes for append in self.appends),
            "truncated": self.next is not None or not self.is_whole,
        }

    def to_json(self, dataset: str) -> WaitingAppendsJson:
        listed: WaitingAppendsJson = {
            "dataset": dataset,
            "appends": [_item(append) for append in self.appends],
        }
        if self.next is not None:
            listed["next"] = self.next
        return listed


def _item(append: Commit) -> WaitingAppendJson:
    if append.is_illegible:
        return {"append_id": append.append_id, "state": "unreadable"}
    return {
        "append_id": append.append_id,
        "state": "acknowledged",
        "split": append.split,
        "num_records": append.num_records,
        "num_bytes": append.num_bytes,
        "time": datetime.fromtimestamp(append.time / 1e9, UTC).isoformat(timespec="milliseconds"),
        "sequence": append.sequence or 0,
    }
