"""Bytes that can be read at any offset, with a checksum for each segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .streams import ByteFile


@dataclass(frozen=True, slots=True)
class Segment:
    """`size` bytes from `offset`, with their SHA-256 in hex if it is known."""

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
