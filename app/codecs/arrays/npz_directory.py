"""What the directory of an NPZ archive says, found acceptable before anything is read of its members.

It is a ZIP archive whose members are NPY arrays.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ...domain.limits import Limits
from ...errors import LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import ByteFile
from ..content import CHUNK_BYTES

__all__ = ["SUFFIX", "NpzDirectory", "check_names", "zip_errors"]

SUFFIX: Final = ".npy"
#: Other tools would write outside their folder. A slash is common inside TensorFlow's names
#: (`image/encoded`), and stays within the folder as long as no part is empty or made of dots.
_FORBIDDEN: Final = ("\\", "\0")
_FORBIDDEN_PARTS: Final = frozenset({"", ".", ".."})
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 0x1
#: Bytes of the central directory that a member may take: 46, and the name with its extra fields.
_DIRECTORY_BYTES_PER_MEMBER: Final = 256
#: What `zipfile` holds for every byte of the directory: a `ZipInfo` of some 700 bytes for 46.
_DIRECTORY_EXPANSION: Final = 16
#: The record that ends an archive, without the comment, which takes up to 2^16 bytes more.
_END_SIGNATURE: Final = b"PK\5\6"
_END_BYTES: Final = 22
_MAX_COMMENT_BYTES: Final = 1 << 16
#: What `zipfile` raises on bytes that are not as they should be (seen by fuzzing, or in its source).
_ZIP_ERRORS: Final = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    IndexError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)


class NpzDirectory:
    """The directory of an archive.

    Attributes:
        archive: to read members from.
        members: the names of the arrays (without ".npy") and where they are, in the order of the archive.
        num_charged: bytes for the directory, charged to the budget.

    Raises:
        InputError: as `read_npz`, but for what is in the arrays.
    """

    def __init__(self, file: ByteFile, budget: Budget) -> None:
        if file.read_at(0, 4) not in (b"PK\3\4", _END_SIGNATURE):
            raise MalformedInput(
                "This is not NPZ: it does not begin as a ZIP archive.", code="invalid_npz", offset=0
            )
        reader = _Seekable(file, budget.limits.max_members * _DIRECTORY_BYTES_PER_MEMBER)
        with zip_errors(None):
            self.archive = zipfile.ZipFile(reader)
        _check_extent(self.archive, file)
        infos = self.archive.infolist()
        self.num_charged = reader.num_read * _DIRECTORY_EXPANSION
        budget.charge(self.num_charged, "The directory of the NPZ archive")
        names = _member_names(infos, budget.limits)
        _check_sizes(infos, file.size)
        self.members = list(zip(names, infos, strict=True))


class _Seekable:
    """A `ByteFile` as the file object that `zipfile` reads; no single read takes more than `max_read`."""

    def __init__(self, file: ByteFile, max_read: int) -> None:
        self._file = file
        self._max_read = max(max_read, CHUNK_BYTES)
        self._position = 0
        self.num_read = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0, /) -> int:
        origin = (0, self._position, self._file.size)[whence]
        if origin + offset < 0:
            raise OSError("a position before the beginning of the file")  # as files do; zipfile expects it
        self._position = origin + offset
        return self._position

    def read(self, n: int = -1, /) -> bytes:
        rest = max(0, self._file.size - self._position)
        n = rest if n < 0 else min(n, rest)
        if n > self._max_read:
            raise LimitExceeded("The NPZ archive has too long a directory.", code="too_many_members")
        piece = self._file.read_at(self._position, n)
        self._position += len(piece)
        self.num_read += len(piece)
        return piece


def _check_extent(archive: zipfile.ZipFile, file: ByteFile) -> None:
    """Refuse bytes before and after the archive, over which `zipfile` passes without a word.

    It takes the last end record among the last 64 KiB; an archive may lie before it as well as behind.
    """
    if min((info.header_offset for info in archive.infolist()), default=archive.start_dir) != 0:
        raise MalformedInput(
            "The NPZ archive that ends here does not begin with the first byte. Send one archive.",
            code="invalid_npz",
            offset=0,
        )
    tail_bytes = _END_BYTES + len(archive.comment)
    if file.read_at(file.size - tail_bytes, len(_END_SIGNATURE)) == _END_SIGNATURE:
        return
    searched = max(0, file.size - _END_BYTES - _MAX_COMMENT_BYTES)
    end = searched + file.read_at(searched, file.size - searched).rfind(_END_SIGNATURE) + tail_bytes
    raise MalformedInput(
        f"There are {file.size - end} bytes after the end of the NPZ archive. Send it alone.",
        code="trailing_bytes",
        offset=end,
    )


def _member_names(infos: Sequence[zipfile.ZipInfo], limits: Limits) -> list[str]:
    """The names of the arrays, once everything that the directory says is found acceptable."""
    if len(infos) > limits.max_members:
        raise LimitExceeded(
            f"The NPZ archive has {len(infos)} members; at most {limits.max_members} are allowed.",
            code="too_many_members",
        )
    # `filename` ends at the first NUL; `orig_filename` is what the archive says.
    members = [info.orig_filename for info in infos]
    check_names(members, limits)
    for info in infos:
        if info.flag_bits & _ENCRYPTED:
            raise UnprocessableInput(
                "A member of the NPZ archive is encrypted.", code="encrypted_member", feature=info.filename
            )
        if info.compress_type not in _METHODS:
            raise UnprocessableInput(
                f"A member of the NPZ archive is compressed by method {info.compress_type}; "
                f"only stored and deflated members are read.",
                code="unsupported_compression",
                feature=info.filename,
            )
    return [member.removesuffix(SUFFIX) for member in members]


def _check_sizes(infos: Sequence[zipfile.ZipInfo], archive_size: int) -> None:
    """Refuse sizes that cannot be; what a member really inflates to shows only when it is read."""
    for info in infos:
        stored_alike = info.compress_type != zipfile.ZIP_STORED or info.compress_size == info.file_size
        if not stored_alike or info.header_offset + info.compress_size > archive_size:
            raise MalformedInput(
                "The NPZ archive says that a member takes bytes which are not there.",
                code="invalid_npz",
                feature=info.filename,
            )


def check_names(members: Sequence[str], limits: Limits) -> None:
    """Refuse what is no name of an array, or stands twice.

    Raises:
        UnprocessableInput: `invalid_member_name`, `duplicate_member`.
    """
    seen: set[str] = set()
    for member in members:
        shown = member[:64].encode("utf-8", "backslashreplace").decode()
        if not _is_array_name(member, limits):
            raise UnprocessableInput(
                f"{shown!r} cannot be a member of an NPZ archive here: it must be a name without "
                f"'/', '\\', '..' or NUL, of at most {limits.max_name_bytes} bytes, and end in '.npy'.",
                code="invalid_member_name",
                feature=shown,
            )
        if member in seen:
            raise UnprocessableInput(
                f"The NPZ archive has two members {shown!r}.", code="duplicate_member", feature=shown
            )
        seen.add(member)


def _is_array_name(member: str, limits: Limits) -> bool:
    if not member.endswith(SUFFIX) or any(text in member for text in _FORBIDDEN):
        return False
    if not _FORBIDDEN_PARTS.isdisjoint(member.removesuffix(SUFFIX).split("/")):
        return False
    size = len(member.encode("utf-8", "surrogatepass")) - len(SUFFIX)
    return 0 < size <= limits.max_name_bytes and not any("\ud800" <= char < "\ue000" for char in member)


@contextmanager
def zip_errors(name: str | None) -> Iterator[None]:
    """Turn what `zipfile` raises on damaged archives into one error."""
    try:
        yield
    except _ZIP_ERRORS as error:
        where = "The NPZ archive" if name is None else "A member of the NPZ archive"
        raise MalformedInput(f"{where} is damaged: {error}.", code="invalid_npz", feature=name) from error
