"""ZIP archives whose sizes are not believed: members are inflated piece by piece, and counted meanwhile."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Final

from ...domain.limits import MIB
from ...errors import LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.amplification import Amplification
from ...runtime.budget import Budget
from ...runtime.streams import CHUNK_BYTES, ByteFile
from .tar import Member

#: Any archive may inflate to this size.
_RATIO_FREE_BYTES: Final = 1 * MIB
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


class ZipArchive:
    """An archive that is open, whose directory has been checked.

    Args:
        file: the archive.
        form: names the format in errors.
        budget: charged for the directory.
        code: of what cannot be read.
        max_members: None where the budget alone bounds them.

    Attributes:
        infos: of the members, in the order of the directory.
        num_charged: for the directory; released by the caller once no member is to be opened any more.

    Raises:
        MalformedInput: not a readable ZIP archive (`code`), or bytes after its end (`trailing_bytes`).
        UnprocessableInput: an encrypted member (`encrypted_member`), a compression other than deflate
            (`unsupported_compression`).
        LimitExceeded: too many members (`too_many_members`), or a directory larger than the budget.
    """

    def __init__(
        self, file: ByteFile, form: str, budget: Budget, *, code: str, max_members: int | None
    ) -> None:
        self._file = file
        self._form = form
        self._code = code
        self._budget = budget
        if file.read_at(0, 4) not in (b"PK\3\4", _END_SIGNATURE):
            raise MalformedInput(
                f"This is not {form}: it does not begin as a ZIP archive.", code=code, offset=0
            )
        max_read = None if max_members is None else max_members * _DIRECTORY_BYTES_PER_MEMBER
        reader = _Seekable(file, form, budget, max_read)
        with self.errors(None):
            self._archive = zipfile.ZipFile(reader)
        self._check_extent()
        self.infos: Sequence[zipfile.ZipInfo] = self._archive.infolist()
        self.num_charged = reader.num_charged
        reader.charges = False
        self._check_members(max_members)
        ratio = budget.limits.max_amplification
        self._inflated = Amplification(ratio, lambda: file.size, allowance=_RATIO_FREE_BYTES)

    def has_later(self, info: zipfile.ZipInfo) -> bool:
        """Whether a member behind it has the same name."""
        return self._archive.getinfo(info.filename) is not info

    def open(self, info: zipfile.ZipInfo, name: str) -> MemberStream:
        """The content of a member, which `name` names in errors."""
        with self.errors(name):
            member = self._archive.open(info)
        return MemberStream(member, lambda: self.errors(name), self._count)

    def _count(self, num_bytes: int) -> None:
        """Count bytes that members were inflated to, for all members together."""
        self._inflated.add("inflated", num_bytes)
        self._budget.amplify("inflated", num_bytes)

    @contextmanager
    def errors(self, name: str | None) -> Iterator[None]:
        """Turn the errors of `zipfile` on damaged archives into one of ours."""
        try:
            yield
        except _ZIP_ERRORS as error:
            where = f"The {self._form} archive" if name is None else f"A member of the {self._form} archive"
            raise MalformedInput(f"{where} is damaged: {error}.", code=self._code, feature=name) from error

    def _check_extent(self) -> None:
        """Refuse bytes before and after the archive, which `zipfile` skips silently.

        It takes the last end record among the last 64 KiB; an archive may lie before it as well as behind.
        """
        archive, file = self._archive, self._file
        if min((info.header_offset for info in archive.infolist()), default=archive.start_dir) != 0:
            raise MalformedInput(
                f"The {self._form} archive that ends here does not begin with the first byte. Send one "
                "archive.",
                code=self._code,
                offset=0,
            )
        tail_bytes = _END_BYTES + len(archive.comment)
        if file.read_at(file.size - tail_bytes, len(_END_SIGNATURE)) == _END_SIGNATURE:
            return
        searched = max(0, file.size - _END_BYTES - _MAX_COMMENT_BYTES)
        end = searched + file.read_at(searched, file.size - searched).rfind(_END_SIGNATURE) + tail_bytes
        raise MalformedInput(
            f"There are {file.size - end} bytes after the end of the {self._form} archive. Send it alone.",
            code="trailing_bytes",
            offset=end,
        )

    def _check_members(self, max_members: int | None) -> None:
        if max_members is not None and len(self.infos) > max_members:
            raise LimitExceeded(
                f"The {self._form} archive has {len(self.infos)} members; at most {max_members} are allowed.",
                code="too_many_members",
            )
        for info in self.infos:
            if info.flag_bits & _ENCRYPTED:
                raise UnprocessableInput(
                    f"A member of the {self._form} archive is encrypted. Send it without encryption.",
                    code="encrypted_member",
                    feature=info.filename,
                )
            if info.compress_type not in _METHODS:
                raise UnprocessableInput(
                    f"A member of the {self._form} archive is compressed by method {info.compress_type}; "
                    f"only stored and deflated members are read.",
                    code="unsupported_compression",
                    feature=info.filename,
                )

    def check_sizes(self) -> None:
        """Refuse sizes that cannot be; what a member really inflates to shows only when it is read."""
        for info in self.infos:
            stored_alike = info.compress_type != zipfile.ZIP_STORED or info.compress_size == info.file_size
            if not stored_alike or info.header_offset + info.compress_size > self._file.size:
                raise MalformedInput(
                    f"The {self._form} archive says that a member takes bytes which are not there.",
                    code=self._code,
                    feature=info.filename,
                )


class MemberStream:
    """A member of an archive as a `ByteStream`."""

    def __init__(
        self,
        member: IO[bytes],
        errors: Callable[[], AbstractContextManager[None]],
        inflated: Callable[[int], None],
    ) -> None:
        self._member = member
        self._errors = errors
        self._inflated = inflated
        self.num_read = 0

    def read(self, n: int, /) -> bytes:
        with self._errors():
            piece = self._member.read(n)
        self.num_read += len(piece)
        self._inflated(len(piece))
        return piece


class ZipReader:
    """Reads the files of an archive in the order of its directory; folders are passed over.

    Args:
        file: the archive.
        budget: charged for the directory, until the last file has been read.
    """

    def __init__(self, file: ByteFile, budget: Budget) -> None:
        self._limits = budget.limits
        self._budget = budget
        self._archive = ZipArchive(file, "ZIP", budget, code="invalid_zip", max_members=None)
        self._archive.check_sizes()
        self._infos = iter(self._archive.infos)
        self._info = zipfile.ZipInfo()

    def next(self) -> Member | None:
        """The next file, or None at the end of the directory.

        Raises:
            UnprocessableInput: a symbolic link (`unsupported_member`), a name with a NUL
                (`invalid_member_name`), or one that stands twice (`duplicate_member`).
            LimitExceeded: a name that is too long (`member_name_too_long`).
        """
        for info in self._infos:
            # `filename` ends at the first NUL; `orig_filename` is what the archive says.
            name, offset = info.orig_filename, info.header_offset
            if name.endswith("/"):
                continue
            if stat.S_ISLNK(info.external_attr >> 16):
                raise UnprocessableInput(
                    "The ZIP archive holds a symbolic link. Leave it out, or store the file itself.",
                    code="unsupported_member",
                    offset=offset,
                )
            if "\0" in name:
                raise UnprocessableInput(
                    "The name of a file of the ZIP archive has a NUL. Rename the file.",
                    code="invalid_member_name",
                    offset=offset,
                )
            if self._archive.has_later(info):
                raise UnprocessableInput(
                    f"The ZIP archive has two files {name[:64]!r}; programs unpack the last one alone. Leave "
                    "one of them out.",
                    code="duplicate_member",
                    offset=offset,
                )
            if len(name.encode()) > self._limits.max_name_bytes:
                raise LimitExceeded(
                    f"The name of a file of the ZIP archive is longer than {self._limits.max_name_bytes} "
                    "bytes.",
                    code="member_name_too_long",
                    offset=offset,
                )
            self._info = info
            return Member(name, offset)
        self._budget.release(self._archive.num_charged)
        return None

    def read(self, budget: Budget) -> bytes:
        """The content of the file, charged to the budget as it is inflated.

        Raises:
            LimitExceeded: larger than `Limits.max_record_bytes` (`record_too_large`) or than the budget, or
                inflated too much (`compression_ratio_exceeded`).
            MalformedInput: a damaged file (`invalid_zip`).
        """
        info = self._info
        if info.file_size > self._limits.max_record_bytes:
            raise LimitExceeded(
                f"A file of the ZIP archive has {info.file_size} bytes; at most "
                f"{self._limits.max_record_bytes} are read.",
                code="record_too_large",
                offset=info.header_offset,
            )
        stream = self._archive.open(info, info.filename)
        gathered = bytearray()
        while piece := stream.read(CHUNK_BYTES):
            budget.charge(len(piece), "A file of the ZIP archive")
            gathered += piece
        if len(gathered) != info.file_size:
            raise MalformedInput(
                f"The ZIP archive says that a file takes {info.file_size} bytes; it takes {len(gathered)}.",
                code="invalid_zip",
                offset=info.header_offset,
            )
        return bytes(gathered)


class _Seekable:
    """A `ByteFile` as the file object that `zipfile` reads.

    Args:
        max_read: the most bytes of a single read.

    Attributes:
        charges: what is read is the directory, and charged before.
    """

    def __init__(self, file: ByteFile, form: str, budget: Budget, max_read: int | None) -> None:
        self._file = file
        self._form = form
        self._budget = budget
        self._max_read = None if max_read is None else max(max_read, CHUNK_BYTES)
        self._position = 0
        self.charges = True
        self.num_charged = 0

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
        if self._max_read is not None and n > self._max_read:
            raise LimitExceeded(
                f"The directory of the {self._form} archive is too long. Send fewer arrays, or shorter "
                "names.",
                code="too_many_members",
            )
        if self.charges:
            num_bytes = n * _DIRECTORY_EXPANSION
            self._budget.charge(num_bytes, f"The directory of the {self._form} archive")
            self.num_charged += num_bytes
        piece = self._file.read_at(self._position, n)
        self._position += len(piece)
        return piece
