"""The messages in a TFRecord, for peers that begin with messages."""

from __future__ import annotations

from itertools import islice

from app.codecs.messages.framing import iter_frames
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream

__all__ = ["first_messages"]


def first_messages(data: bytes, count: int) -> list[bytes]:
    """At most `count` of them."""
    messages = (
        bytes(block.data[start : start + size])
        for block in iter_frames(MemoryStream(data), Budget(), compression="none")
        for start, size in zip(block.starts.tolist(), block.sizes.tolist(), strict=True)
    )
    return list(islice(messages, count))
