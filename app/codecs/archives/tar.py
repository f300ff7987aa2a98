"""The members of a tar archive, read and written one by one.

Python's `tarfile` reads and writes the header blocks. It does not walk the archive: it takes a damaged
header for the end, stops at the first of several archives, keeps every header, and reads extended headers of
any size. Sources: POSIX.1-2001 (ustar and pax), "Basic Tar Format" in the manual of GNU tar (long names).
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...domain.limits import KIB, Limits
from ...errors import LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import CHUNK_BYTES, ByteStream, iter_exactly, read_exactly, read_up_to

_BLOCK: Final = tarfile.BLOCKSIZE
#: Extended headers hold a name of up to 4 KiB here, and attributes of the file system.
_MAX_EXTENDED_BYTES: Final = 256 * KIB
_FILES: Final = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
#: Of every member that is written: 1 January 1980, as in the tar of a version.
_MTIME: Final = 315_532_800
_KINDS: Final = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


#: What is sent in place of a tar archive, by its first bytes, and what to do.
_OTHERS: Final = {
    b"\x1f\x8b": "compressed by gzip. Declare the content encoding gzip, or unpack it with gunzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd. Declare the content encoding zstd, or unpack it with unzstd",
    b"BZh": "compressed by bzip2. Unpack it with bunzip2, or compress it with gzip",
    b"\xfd7zXZ\0": "compressed by xz. Unpack it with unxz, or compress it with gzip",
    b"PK\3\4": "a ZIP archive. Send it as application/zip",
}


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the archive.

    Attributes:
        offset: where its content begins.
        label: what the sender says that it shows; None where that is the name of its folder.
    """

    name: str
    offset: int
    label: str | None = None


@dataclass(slots=True)
class _Extended:
    """What extended headers say of the member behind them."""

    name: str | None = None
    size: int | None = None


class TarReader:
    """Reads the files of an archive in order; folders are passed over.

    Args:
        stream: the archive, not compressed.
        limits: bound names and the content of a file that is read.
    """

    def __init__(self, stream: ByteStream, limits: Limits) -> None:
        self._stream = stream
        self._limits = limits
        self._offset = 0
        #: Bytes of the member's content that are not read, and of the padding behind it.
        self._left = self._padding = 0

    def next(self) -> Member | None:
        """The next file, or None at the end of the archive.

        Raises:
            MalformedInput: no tar archive, or a damaged one (`invalid_tar`), cut short (`truncated`), or
                bytes behind its end (`trailing_bytes`).
            UnprocessableInput: a link, a device or a sparse file (`unsupported_member`), or a name that is
                not UTF-8 (`invalid_member_name`).
            LimitExceeded: an extended header or a name that is too long (`member_name_too_long`).
        """
        self._skip()
        extended = _Extended()
        while (info := self._read_header()) is not None:
            if info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE):
                self._read_pax(info, extended)
            elif info.type == tarfile.GNUTYPE_LONGNAME:
                extended.name = _decode(self._read_extended(info).split(b"\0")[0])
            elif info.type == tarfile.GNUTYPE_LONGLINK:
                self._read_extended(info)
            elif info.type == tarfile.DIRTYPE:
                extended = _Extended()
            else:
                return self._member(info, extended)
        return None

    def read(self, budget: Budget) -> bytes:
        """The content of the member, charged to the budget as it arrives.

        Raises:
            LimitExceeded: larger than `Limits.max_record_bytes` (`record_too_large`) or than the budget.
            MalformedInput: the archive ends within it (`truncated`).
        """
        if self._left > self._limits.max_record_bytes:
            raise LimitExceeded(
                f"A file of the tar archive has {self._left} bytes; at most "
                f"{self._limits.max_record_bytes} are read.",
                code="record_too_large",
                offset=self._offset,
            )
        gathered = bytearray()
        first = b""
        for piece in self._pieces(self._left):
            budget.charge(len(piece), "A file of the tar archive")
            if not self._left and not gathered:
                first = piece
            else:
                gathered += piece
        return first if not gathered else bytes(gathered)

    def _pieces(self, size: int) -> Iterator[bytes]:
        for piece in iter_exactly(self._stream, size, "a file of the tar archive", offset=self._offset):
            self._offset += len(piece)
            self._left -= len(piece)
            yield piece

    def _skip(self) -> None:
        for _ in self._pieces(self._left):
            pass
        read_exactly(self._stream, self._padding, "a file of the tar archive", offset=self._offset)
        self._offset += self._padding
        self._padding = 0

    def _read_header(self) -> tarfile.TarInfo | None:
        """The next block, which has to be a header; None at the end of the archive."""
        begin = self._offset
        block = read_up_to(self._stream, _BLOCK)
        self._offset += len(block)
        if len(block) < _BLOCK:
            if not begin:
                _refuse_others(block)
            raise MalformedInput(
                "The tar archive ends without the block of zeros that ends one. Send all of it.",
                code="truncated" if begin else "invalid_tar",
                offset=begin,
            )
        if block.count(0) == _BLOCK:
            self._check_end()
            return None
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            if not begin:
                _refuse_others(block)
            what = f"The header at byte {begin} is damaged" if begin else "This is not a tar archive"
            raise MalformedInput(f"{what}: {error}.", code="invalid_tar", offset=begin) from None
        if info.size < 0:
            raise MalformedInput(
                f"The header at byte {begin} has a negative size.", code="invalid_tar", offset=begin
            )
        return info

    def _check_end(self) -> None:
        """Read what fills the archive up behind its end, which is zeros."""
        while piece := self._stream.read(CHUNK_BYTES):
            self._offset += len(piece)
            if rest := piece.lstrip(b"\0"):
                raise MalformedInput(
                    "There are more bytes behind the end of the tar archive. Send one archive.",
                    code="trailing_bytes",
                    offset=self._offset - len(rest),
                )

    def _read_extended(self, info: tarfile.TarInfo) -> bytes:
        if info.size > _MAX_EXTENDED_BYTES:
            raise LimitExceeded(
                f"An extended header of the tar archive has {info.size} bytes; at most "
                f"{_MAX_EXTENDED_BYTES} are read.",
                code="member_name_too_long",
                offset=self._offset,
            )
        content = read_exactly(self._stream, info.size, "an extended header", offset=self._offset)
        self._offset += info.size
        self._padding = -info.size % _BLOCK
        self._skip()
        return content

    def _read_pax(self, info: tarfile.TarInfo, extended: _Extended) -> None:
        begin = self._offset
        for keyword, value in _pax_records(self._read_extended(info), begin):
            if keyword.startswith(b"GNU.sparse."):
                raise _unsupported("a sparse file", begin)
            if keyword not in (b"path", b"size"):
                continue
            if info.type == tarfile.XGLTYPE:
                raise _unsupported("a global header that renames all files", begin)
            if keyword == b"path":
                extended.name = _decode(value)
            elif not value.isdigit() or len(value) > 19:
                raise _damaged_pax(begin)
            else:
                extended.size = int(value)

    def _member(self, info: tarfile.TarInfo, extended: _Extended) -> Member:
        begin = self._offset
        if info.type not in _FILES:
            raise _unsupported(_KINDS.get(info.type, f"of the type {info.type!r}"), begin)
        name = info.name if extended.name is None else extended.name
        size = info.size if extended.size is None else extended.size
        if not _is_utf8(name) or not name:
            raise UnprocessableInput(
                f"The name of a file of the tar archive, {_shown(name)}, is empty or not UTF-8. Rename the "
                "file.",
                code="invalid_member_name",
                offset=begin,
            )
        if len(name.encode()) > self._limits.max_name_bytes:
            raise LimitExceeded(
                f"The name of a file of the tar archive is longer than {self._limits.max_name_bytes} bytes.",
                code="member_name_too_long",
                offset=begin,
            )
        self._left, self._padding = size, -size % _BLOCK
        return Member(name, begin)


def _pax_records(content: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Keyword and value of each record, `LENGTH KEYWORD=VALUE` and a line feed."""
    at = 0
    while at < len(content) and content[at]:
        digits, space, _ = content[at : at + 20].partition(b" ")
        end = at + int(digits) if digits.isdigit() else 0
        keyword, equals, value = content[at + len(digits) + 1 : end - 1].partition(b"=")
        if not space or not equals or end > len(content) or content[end - 1 : end] != b"\n":
            raise _damaged_pax(offset)
        yield keyword, value
        at = end


def _refuse_others(block: bytes) -> None:
    for signature, what in _OTHERS.items():
        if block.startswith(signature):
            raise MalformedInput(f"This is not a tar archive, but {what}.", code="invalid_tar", offset=0)


def _damaged_pax(offset: int) -> MalformedInput:
    return MalformedInput(
        f"The extended header at byte {offset} of the tar archive is damaged.",
        code="invalid_tar",
        offset=offset,
    )


def _unsupported(what: str, offset: int) -> UnprocessableInput:
    return UnprocessableInput(
        f"The tar archive holds {what}. Only files and folders are read: leave it out, or store the file "
        "itself (tar --dereference --hard-dereference).",
        code="unsupported_member",
        offset=offset,
    )


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= character < "\ue000" for character in name)


def _shown(name: str) -> str:
    return repr(name[:64].encode("utf-8", "backslashreplace").decode())


class TarWriter:
    """The bytes of an archive, of which the same members give the same.

    Attributes:
        size: of what was given so far.
    """

    def __init__(self) -> None:
        self.size = 0

    def header(self, name: str, size: int) -> bytes:
        """What stands before the content of a file: the padding of the one before, and the header."""
        info = tarfile.TarInfo(name)
        info.size, info.mtime = size, _MTIME
        header = bytes(-self.size % _BLOCK) + info.tobuf(tarfile.PAX_FORMAT)
        self.size += len(header) + size
        return header

    def end(self) -> bytes:
        """What ends the archive: two blocks of zeros, and as many as fill the last record."""
        end = -self.size % _BLOCK + 2 * _BLOCK
        return bytes(end + -(self.size + end) % tarfile.RECORDSIZE)
