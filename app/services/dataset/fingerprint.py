"""What decides the bytes of a version, named: a plan is executed by releases that would write the same."""

from __future__ import annotations

from typing import Final

from ...codecs.records.deflated_pieces import deflater_name
from ...domain.compression import Compression
from ...domain.limits import MIB

__all__ = ["FINGERPRINT", "PIECE_BYTES", "fingerprint"]

#: How much a read of a few records has to fetch at most, and how fine a shard's checksums are.
PIECE_BYTES: Final = 4 * MIB
#: Names everything that decides the bytes of a shard and of the files beside it. An executor with
#: another one leaves a plan alone: two that disagree would overwrite each other's shards.
FINGERPRINT: Final = f"copy-2 pieces-{PIECE_BYTES} schemas-2 shuffle-1"


def fingerprint(compression: Compression) -> str:
    """`FINGERPRINT`, with what decides how shards are compressed where they are."""
    return FINGERPRINT if compression == "none" else f"{FINGERPRINT} {deflater_name()}"
