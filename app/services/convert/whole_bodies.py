"""Bodies that have to be whole before they can be read: in memory while small, else on the spool."""

from __future__ import annotations

from typing import Any

from ...codecs.forms import Codec
from ...runtime.arriving_body import IN_MEMORY, ArrivingBody
from ...runtime.streams import ByteStream, FarFile, MemoryFile, MemoryStream, OwnFile, WholeBody
from ...runtime.workspace import Workspace


def as_needed(
    source: ByteStream, codec: Codec[Any, Any], workspace: Workspace, num_bytes: int | None = None
) -> ByteStream | WholeBody:
    """What the decoder of `codec` reads: `source` itself, or all of it. A file is both, and is not copied.

    Args:
        num_bytes: of the body, where it is known. A large one may still be arriving then.

    Raises:
        LimitExceeded: a small body is larger than the budget allows.
        StorageFull: there is no room on the spool (`spool_full`).
        StreamInterrupted: the sender went away.
    """
    if codec.needs != "file" or isinstance(source, OwnFile):
        return source
    if isinstance(source, FarFile):  # given to decoders that read at offsets
        return source
    if num_bytes is not None and num_bytes > IN_MEMORY:
        return ArrivingBody(source, workspace, num_bytes)
    return whole_body(source, workspace)


def whole_body(source: ByteStream, workspace: Workspace) -> WholeBody:
    """All of `source`, once it has arrived.

    Args:
        workspace: its budget is charged for a body in memory, as long as the request lasts; room for what is
            not goes back when it is closed.

    Raises:
        LimitExceeded: a small body is more than the budget allows.
        StorageFull: there is no room on the spool (`spool_full`).
        StreamInterrupted: the sender went away.
    """
    if isinstance(source, MemoryStream) and source.left <= IN_MEMORY:
        workspace.budget.charge(source.left, "The body")
        return MemoryFile(source.read_view())
    return ArrivingBody(source, workspace).whole()
