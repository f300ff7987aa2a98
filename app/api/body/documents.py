"""Bodies that are one JSON document of moderate size."""

from __future__ import annotations

from typing import Final

from ...domain.limits import MIB
from ...errors import LimitExceeded
from ...runtime.budget import Budget
from ...runtime.streams import CHUNK_BYTES, ByteStream

_MOST: Final = 4 * MIB


def read_document(body: ByteStream, budget: Budget, what: str) -> bytes:
    """A body, of which hardly more is read than a document may have.

    Args:
        what: it describes, for the error.

    Raises:
        LimitExceeded: it is larger than 4 MiB (`payload_too_large`).
    """
    gathered = bytearray()
    while piece := body.read(CHUNK_BYTES):
        if len(gathered) + len(piece) > _MOST:
            raise LimitExceeded(f"The description of {what} is larger than 4 MiB.", code="payload_too_large")
        budget.charge(len(piece), "The body")
        gathered += piece
    return bytes(gathered)
