"""Bytes that can be read anywhere, and what their checksums are, segment by segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .streams import ByteFile


@dataclass(frozen=True, slots=True)
class Segment:
    """`size` bytes from `offset`; their SHA-256 in hex, where there is something to compare them with."""

    offset: int
    size: int
    sha256: str | None

    @property
    def end(self) -> int:
        return self.offset + self.size


class SegmentedFile(ByteFile, Protocol):
    """A `ByteFile` whose segments follow one another without a gap."""

    @property
    def segments(self) -> Sequence[Segment]: ...
