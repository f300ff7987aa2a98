"""A ZIP archive of stored members, written as a stream: sizes and checksums stand before the content.

Source: APPNOTE.TXT 6.3.10, sections 4.3.7 (local header), 4.3.12 (central directory), 4.3.14 to 4.3.16
(its end, with and without ZIP64). The bytes depend on names and content alone: the date is the
format's epoch. ZIP64 fields appear only where a value does not fit otherwise.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...runtime.streams import Buffer

__all__ = ["Content", "serialize_stored_zip"]

#: Gives the same bytes every time it is called.
Content = Callable[[], Iterator[Buffer]]

_MAX_32: Final = 2**32 - 1
_MAX_16: Final = 2**16 - 1
_VERSION_NEEDED: Final = 45  # 4.5: ZIP64
_MADE_BY_UNIX: Final = 3 << 8 | _VERSION_NEEDED
_UTF8_NAME: Final = 0x800
_EPOCH: Final = 1 << 5 | 1  # 1980-01-01
_MODE: Final = 0o600 << 16


@dataclass(frozen=True, slots=True)
class _Member:
    """A member that has been measured.

    Attributes:
        offset: of its local header in the archive.
    """

    name: bytes
    content: Content
    size: int
    crc: int
    offset: int

    def local_header(self) -> bytes:
        extra = struct.pack("<HHQQ", 1, 16, self.size, self.size) if self.size >= _MAX_32 else b""
        return b"PK\3\4" + self._common(extra) + self.name + extra

    def directory_entry(self) -> bytes:
        wide = [value for value in (self.size, self.size, self.offset) if value >= _MAX_32]
        extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        tail = struct.pack("<HHHII", 0, 0, 0, _MODE, min(self.offset, _MAX_32))
        return b"PK\1\2" + struct.pack("<H", _MADE_BY_UNIX) + self._common(extra) + tail + self.name + extra

    def _common(self, extra: bytes) -> bytes:
        """What the local header and the directory have in common."""
        flags = 0 if self.name.isascii() else _UTF8_NAME
        size = min(self.size, _MAX_32)
        return struct.pack(
            "<HHHHHIIIHH",
            _VERSION_NEEDED, flags, 0, 0, _EPOCH, self.crc, size, size, len(self.name), len(extra),
        )  # fmt: skip


def serialize_stored_zip(members: Sequence[tuple[str, Content]]) -> Iterator[Buffer]:
    """The archive of `members`, each of them (name, content), in their order.

    Every content is drawn twice: first all of them, to be measured, so that an error in any of them
    comes before the first byte.
    """
    measured: list[_Member] = []
    offset = 0
    for name, content in members:
        member = _measure(name.encode(), content, offset)
        measured.append(member)
        offset += len(member.local_header()) + member.size
    for member in measured:
        yield member.local_header()
        yield from member.content()
    directory = b"".join(member.directory_entry() for member in measured)
    yield directory + _end(len(measured), len(directory), offset)


def _measure(name: bytes, content: Content, offset: int) -> _Member:
    size = crc = 0
    for buffer in content():
        size += len(buffer)
        crc = zlib.crc32(buffer, crc)
    return _Member(name, content, size, crc, offset)


def _end(count: int, size: int, offset: int) -> bytes:
    wide = b""
    if count >= _MAX_16 or size >= _MAX_32 or offset >= _MAX_32:
        wide = b"PK\6\6" + struct.pack(
            "<QHHIIQQQQ", 44, _MADE_BY_UNIX, _VERSION_NEEDED, 0, 0, count, count, size, offset
        )
        wide += b"PK\6\7" + struct.pack("<IQI", 0, offset + size, 1)
    count = min(count, _MAX_16)
    return wide + b"PK\5\6" + struct.pack(
        "<HHHHIIH", 0, 0, count, count, min(size, _MAX_32), min(offset, _MAX_32), 0
    )  # fmt: skip
