"""A whole version as one tar file, made while it is read: any part of it, without what comes before.

Nothing is stored and nothing is chosen: names, order, times and sizes follow from the manifest, so the
bytes are the same for every request and every replica. The files by which a reader tells that a version
is there, dataset_info.json and _manifest.json, come last: what was cut short is not taken for whole.

Source: `tarfile` of Python writes the headers: POSIX.1-2001 (pax), plain ustar where that says all.
"""

from __future__ import annotations

import tarfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ....domain.manifest import FileEntry, Manifest, ShardEntry
from ....runtime.segments import Segment
from ....storage.object_store import ObjectStore
from ..objects.layout import DATASET_INFO, MANIFEST
from .stored_file import read_stored

#: Of every member: 1 January 1980, the earliest time that zip files, too, can hold.
_MTIME: Final = 315_532_800
_BLOCK: Final = tarfile.BLOCKSIZE
#: Two blocks of zeros end a tar file, and fill it up to a whole record.
_END: Final = 2 * _BLOCK


@dataclass(frozen=True, slots=True)
class TarMember:
    """One file of the tar.

    Attributes:
        name: with the folders it goes to.
        size, sha256: of its bytes.
        content: the bytes, or the key of the object that has them.
    """

    name: str
    size: int
    sha256: str
    content: bytes | str


def tar_members(manifest: Manifest, known: dict[str, bytes]) -> Iterator[TarMember]:
    """The files of a version, in order: shards, each with its index, side files, _manifest.json.

    Args:
        known: the bytes of some of them; of _manifest.json always.
    """
    # As on the store.
    folder = f"{manifest.dataset}/{manifest.version}/"
    entries: list[FileEntry | ShardEntry] = []
    for split in manifest.splits.values():
        for shard in split.shards:
            entries += [shard] if shard.index is None else [shard, shard.index]
    entries += sorted(manifest.files, key=lambda file: file.file == DATASET_INFO)
    for entry in entries:
        name = folder + entry.file
        yield TarMember(name, entry.num_bytes, entry.sha256, known.get(entry.file, name))
    data = known[MANIFEST]
    yield TarMember(folder + MANIFEST, len(data), sha256(data).hexdigest(), data)


class VersionTar:
    """A `SegmentedFile`: the contents of the members, and between them what makes them a tar.

    Attributes:
        size: in bytes.
        segments: one for each content, and one before and behind each.
        tag: names the bytes: others have another one.
    """

    def __init__(self, store: ObjectStore, members: Iterable[TarMember]) -> None:
        self._store = store
        self._parts: list[bytes | str] = []
        self.segments: list[Segment] = []
        self.size = 0
        identity = sha256()
        padding = 0
        for member in members:
            header = bytes(padding) + _header(member)
            identity.update(header + member.sha256.encode())
            self._add(header, len(header), None)
            self._add(member.content, member.size, member.sha256)
            padding = -member.size % _BLOCK
        end = padding + _END
        self._add(bytes(end + -(self.size + end) % tarfile.RECORDSIZE), None, None)
        self._offsets = [segment.offset for segment in self.segments]
        self.tag = identity.hexdigest()

    def _add(self, part: bytes | str, size: int | None, digest: str | None) -> None:
        segment = Segment(self.size, len(part) if size is None else size, digest)
        self._parts.append(part)
        self.segments.append(segment)
        self.size = segment.end

    def read_at(self, offset: int, n: int, /) -> bytes:
        """Exactly `n` bytes from `offset`; fewer only where the tar ends.

        Raises:
            CorruptData: the store has fewer bytes than the manifest says.
        """
        n = max(0, min(n, self.size - offset))
        gathered: list[bytes] = []
        number = bisect_right(self._offsets, offset) - 1
        while n:
            segment, part = self.segments[number], self._parts[number]
            begin = offset - segment.offset
            length = min(n, segment.size - begin)
            if isinstance(part, bytes):
                gathered.append(part[begin : begin + length])
            elif length:
                gathered.append(read_stored(self._store, part, begin, length))
            offset, n, number = offset + length, n - length, number + 1
        return gathered[0] if len(gathered) == 1 else b"".join(gathered)


def _header(member: TarMember) -> bytes:
    info = tarfile.TarInfo(member.name)
    info.size = member.size
    info.mtime = _MTIME
    return info.tobuf(tarfile.PAX_FORMAT)
