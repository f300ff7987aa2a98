"""Bodies that have to be whole before they can be read: in memory while small, else on the spool."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

from ...codecs.forms import Codec
from ...domain.limits import MIB
from ...runtime.budget import Budget
from ...runtime.spool import Spool
from ...runtime.streams import Buffer, ByteStream, MemoryFile, MemoryStream, WholeBody
from ...runtime.turns import waiting

__all__ = ["as_needed", "whole_body"]

#: A body up to this size is held in memory, and so much of a larger one at a time.
_IN_MEMORY: Final = 1 * MIB


def as_needed(
    source: ByteStream, codec: Codec[Any, Any], budget: Budget, spool: Spool, resources: ExitStack
) -> ByteStream | WholeBody:
    """What the decoder of `codec` reads: `source` itself, or all of it.

    Raises:
        InputError: as `whole_body`.
    """
    return whole_body(source, budget, spool, resources) if codec.needs == "file" else source


def whole_body(source: ByteStream, budget: Budget, spool: Spool, resources: ExitStack) -> WholeBody:
    """All of `source`, once it has arrived.

    Args:
        budget: charged for a body in memory, as long as the request lasts; told what lies on the spool.
        spool: room for what is not.
        resources: gives that room back when it is closed.

    Raises:
        LimitExceeded: a small body is more than the budget allows.
        StorageFull: there is no room on the spool (`spool_full`).
        StreamInterrupted: the sender went away.
    """
    if isinstance(source, MemoryStream) and source.left <= _IN_MEMORY:
        budget.charge(source.left, "The body")
        return MemoryFile(source.read_view())
    head = bytearray()
    while len(head) <= _IN_MEMORY and (piece := source.read(_IN_MEMORY)):
        budget.charge(len(piece), "The body")
        head += piece
    if len(head) <= _IN_MEMORY:
        return MemoryFile(head)
    spooled = resources.enter_context(spool.open_share())
    held: Buffer = head
    while held:
        with waiting():  # disks are slow
            spooled.append(held)
        held = source.read(_IN_MEMORY)
    budget.release(len(head))
    budget.spooled = spooled.size
    return spooled
