"""TFRecord frames, written and read without the service."""

import struct

from tests.support.shard_readers import masked_crc32c, parse_frames


def frame(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return b"".join(part + struct.pack("<I", masked_crc32c(part)) for part in (length, payload))


def payloads(data: bytes) -> list[bytes]:
    """The payloads of a whole file without compression."""
    return list(parse_frames(data))
