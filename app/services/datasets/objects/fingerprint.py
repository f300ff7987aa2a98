"""What decides the bytes of a version, named: a plan is executed by releases that would write the same."""

from __future__ import annotations

from typing import Final

from ....codecs.compression.deflated_pieces import deflater_name
from ....domain.compression import Compression
from ....domain.limits import MIB
from ....domain.schema import Schema

#: How much a read of a few records has to fetch at most, and how fine a shard's checksums are.
PIECE_BYTES: Final = 4 * MIB
#: Names everything that decides the bytes of a shard and of the files beside it. An executor with
#: another one leaves a plan alone: two that disagree would overwrite each other's shards.
FINGERPRINT: Final = f"copy-2 pieces-{PIECE_BYTES} schemas-2 shuffle-1"


#: How records are written anew where their schema has changed since they were stored.
_ENCODING: Final = "encode-1"


def fingerprint(compression: Compression, schema: Schema | None = None) -> str:
    """`FINGERPRINT`, with what decides how records are encoded anew and shards compressed, where they are."""
    parts = [FINGERPRINT]
    if schema is not None and schema.needs_reencoding:
        parts.append(_ENCODING)
    if compression != "none":
        parts.append(deflater_name())
    return " ".join(parts)
