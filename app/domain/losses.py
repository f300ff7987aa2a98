"""The parts of a damaged file that could not be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from typing_extensions import TypedDict

#: Damaged places that are skipped in one file. Each takes some 20 microseconds, half a minute in all.
MAX_RANGES: Final = 1_000_000
_NAMED_RANGES: Final = 1000


class LostRangeJson(TypedDict):
    """Bytes that are no good record: `reason` names what is wrong with them."""

    offset: int
    num_bytes: int
    reason: str


class LossesJson(TypedDict):
    """What was lost of a damaged body: all of it counted, the first 1,000 ranges by name."""

    num_bytes: int
    num_ranges: int
    ranges: list[LostRangeJson]


@dataclass(frozen=True, slots=True)
class LostRange:
    """Bytes that are no good record.

    Attributes:
        offset: of the first byte, in the uncompressed input.
        num_bytes: 0 if compressed bytes cannot be inflated, so that their number is unknown.
        reason: `bad_length`, `bad_payload`, `record_too_large`, `truncated`, or the code of a broken
            compression.
        is_record: whether the bytes are one record whose length is valid.
    """

    offset: int
    num_bytes: int
    reason: str
    is_record: bool = False

    def __str__(self) -> str:
        """`first-last`, as in a Range of HTTP; `first-` where it is not known how many there were."""
        return f"{self.offset}-{self.offset + self.num_bytes - 1 if self.num_bytes else ''}"

    def to_json(self) -> LostRangeJson:
        return {"offset": self.offset, "num_bytes": self.num_bytes, "reason": self.reason}


@dataclass(slots=True)
class Losses:
    """What was lost of a file: all of it counted, the first ranges by name. Final once it is read."""

    num_bytes: int = 0
    num_ranges: int = 0
    ranges: list[LostRange] = field(default_factory=list)

    def add(self, lost: LostRange) -> None:
        """Add a lost range."""
        self.num_bytes += lost.num_bytes
        self.num_ranges += 1
        if len(self.ranges) < _NAMED_RANGES:
            self.ranges.append(lost)

    def clear(self) -> None:
        """Forget all losses, because the file is read again."""
        self.num_bytes = self.num_ranges = 0
        self.ranges.clear()

    def to_json(self) -> LossesJson:
        return {
            "num_bytes": self.num_bytes,
            "num_ranges": self.num_ranges,
            "ranges": [lost.to_json() for lost in self.ranges],
        }
