"""What became of an append."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired

from typing_extensions import TypedDict

from ....domain.losses import LossesJson
from ....errors import Conflict, UnprocessableInput
from ..objects.incarnation import Destination
from ..objects.slot import Commit, Slot
from .groups import Member


class AppendJson(TypedDict):
    """An acknowledged append.

    Which features were `rounded` or `dropped`, or have times or decimals `as_text`, how many rows were
    `skipped`, and what of the body is `lost`.
    """

    dataset: str
    split: str
    append_id: str
    num_records: int
    num_bytes: int
    rounded: NotRequired[list[str]]
    dropped: NotRequired[list[str]]
    as_text: NotRequired[list[str]]
    skipped: NotRequired[int]
    lost: NotRequired[LossesJson]


@dataclass(frozen=True, slots=True)
class AppendResult:
    """An acknowledged append.

    Attributes:
        replayed: an earlier request with the same key had stored it.
        rounded: the features of which values were rounded.
        dropped: those that were left out, since no row has a value of them.
        skipped: how many rows were left out, since their transforms do not take them.
        as_text: the features whose times or decimals became text, which nobody had declared.
    """

    dataset: str
    split: str
    append_id: str
    num_records: int
    num_bytes: int
    replayed: bool = False
    rounded: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    skipped: int = 0
    as_text: tuple[str, ...] = ()

    def to_json(self) -> AppendJson:
        told: AppendJson = {
            "dataset": self.dataset,
            "split": self.split,
            "append_id": self.append_id,
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
        }
        if self.rounded:
            told["rounded"] = list(self.rounded)
        if self.dropped:
            told["dropped"] = list(self.dropped)
        if self.as_text:
            told["as_text"] = list(self.as_text)
        return told


def group_result(destination: Destination, split: str, member: Member, append_id: str) -> AppendResult:
    """That of one append of the group that the slot `append_id` holds."""
    return AppendResult(
        destination.layout.dataset,
        split,
        append_id,
        member.num_records,
        len(member.data),
        rounded=member.rounded,
        dropped=member.dropped,
        skipped=member.skipped,
        as_text=member.as_text,
    )


def result_of(name: str, slot: Commit, *, replayed: bool) -> AppendResult:
    """That of an append to the dataset `name` with a slot of its own."""
    return AppendResult(
        name,
        slot.split,
        slot.append_id,
        slot.num_records,
        slot.num_bytes,
        replayed,
        slot.rounded,
        slot.dropped,
        slot.skipped,
        slot.as_text,
    )


def replayed_result(name: str, slot: Slot, digest: str) -> AppendResult:
    """The answer that the winner of the slot got.

    Raises:
        UnprocessableInput: it had sent something else.
        Conflict: the slot was closed.
    """
    if not isinstance(slot, Commit):
        raise Conflict(
            "This append came too late and is not stored. Send it again with another key.",
            code="append_expired",
        )
    if slot.digest != digest:
        raise UnprocessableInput(
            "This idempotency key was used for another body or other parameters. Use a new key.",
            code="idempotency_key_reused",
        )
    return result_of(name, slot, replayed=True)
