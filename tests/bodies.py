"""What decoders read, made of bytes that are at hand."""

from typing import Any

from app.codecs.forms import Codec
from app.runtime.streams import MemoryFile, MemoryStream

__all__ = ["body_of"]


def body_of(codec: Codec[Any, Any], data: bytes) -> Any:
    """A stream, or the body as a whole, whichever the decoder of `codec` needs."""
    return MemoryFile(data) if codec.needs == "file" else MemoryStream(data)
