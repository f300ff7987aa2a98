"""NPZ: a ZIP archive of NPY arrays, as `numpy.savez` and `numpy.savez_compressed` write it.

What an archive says about its sizes is not believed: members are inflated piece by piece as the
array inside is read, which in turn is bounded by the budget. Nothing is written to disk.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Final

from ...domain.dtypes import DType
from ...domain.limits import MIB, Budget, Limits
from ...domain.streams import Buffer, ByteFile
from ...domain.tensor_stream import TensorStream
from ...errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from ..content import CHUNK_BYTES
from .array import Array, FoundArray
from .npy import open_npy, read_npy
from .stored_zip import Content, serialize_stored_zip

__all__ = ["open_npz", "read_npz", "serialize_npz"]

_SUFFIX: Final = ".npy"
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
_RATIO_FREE_BYTES: Final = 1 * MIB
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


def read_npz(
    file: ByteFile, budget: Budget, *, declared: Callable[[str], DType | None] = lambda _: None
) -> dict[str, Array]:
    """The arrays by name (without ".npy"), in the order of the archive.

    Args:
        declared: what the client says the elements of the named array are; only bfloat16 needs it.

    Raises:
        MalformedInput: not a readable ZIP archive (`invalid_npz`), bytes after its end
            (`trailing_bytes`), or a member is not a readable array (as `read_npy`).
        UnprocessableInput: a name that is no name of an array (`invalid_member_name`) or stands
            twice (`duplicate_member`), an encrypted member (`encrypted_member`), a compression
            other than deflate (`unsupported_compression`), and as `read_npy`.
        UnknownForm: as `read_npy`.
        LimitExceeded: too many members (`too_many_members`), inflated too much
            (`compression_ratio`), or larger than the budget.
    """
    archive = _Archive(file, budget)
    arrays = {member.name: member.read(budget, declared(member.name)) for member in archive.members}
    budget.release(archive.num_charged)
    return arrays


def open_npz(
    file: ByteFile,
    budget: Budget,
    *,
    declared: Callable[[str], DType | None] = lambda _: None,
    streamed_from: int = 0,
) -> dict[str, FoundArray]:
    """The arrays by name, in the order of the archive, inflated as they are drawn, in whatever order that is.

    In memory are those that `open_npy` has there, and those of less than `streamed_from` bytes. The
    directory of the archive stays charged.

    Raises: as `read_npz`, here or as the contents are drawn.
    """
    archive = _Archive(file, budget)
    return {
        member.name: member.read(budget, declared(member.name))
        if member.info.file_size < streamed_from
        else member.open(budget, declared(member.name))
        for member in archive.members
    }


def serialize_npz(arrays: Sequence[tuple[str, Content]], limits: Limits | None = None) -> Iterator[Buffer]:
    """An archive as `numpy.savez` writes it, of (name, NPY bytes); deterministic, not compressed.

    Raises:
        UnprocessableInput: a name that `read_npz` would not read; an array that has no NPY form.
    """
    members = [(name + _SUFFIX, partial(_named, name, content)) for name, content in arrays]
    _check_names([member for member, _ in members], limits or Limits())
    return serialize_stored_zip(members)


def _named(name: str, content: Content) -> Iterator[Buffer]:
    """The content of one array, whose name goes into its errors."""
    try:
        yield from content()
    except InputError as error:
        raise error.shifted(feature=name) from error.__cause__


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


class _Inflated:
    """Counts what all members together were inflated to, against the size of the archive."""

    def __init__(self, limits: Limits, archive_size: int) -> None:
        self._most = max(_RATIO_FREE_BYTES, limits.max_compression_ratio * archive_size)
        self._count = 0

    def add(self, num_bytes: int, name: str) -> None:
        self._count += num_bytes
        if self._count > self._most:
            raise LimitExceeded(
                "The NPZ archive inflates to more than its size allows.",
                code="compression_ratio",
                feature=name,
            )


class _MemberStream:
    """A member of the archive as a `ByteStream`."""

    def __init__(self, member: IO[bytes], name: str, inflated: _Inflated) -> None:
        self._member = member
        self._name = name
        self._inflated = inflated
        self.num_read = 0

    def read(self, n: int, /) -> bytes:
        with _zip_errors(self._name):
            piece = self._member.read(n)
        self.num_read += len(piece)
        self._inflated.add(len(piece), self._name)
        return piece


class _Archive:
    """An archive of which everything that its directory says is found acceptable.

    Attributes:
        num_charged: bytes for the directory.
    """

    def __init__(self, file: ByteFile, budget: Budget) -> None:
        if file.read_at(0, 4) not in (b"PK\3\4", _END_SIGNATURE):
            raise MalformedInput(
                "This is not NPZ: it does not begin as a ZIP archive.", code="invalid_npz", offset=0
            )
        reader = _Seekable(file, budget.limits.max_members * _DIRECTORY_BYTES_PER_MEMBER)
        with _zip_errors(None):
            archive = zipfile.ZipFile(reader)
        _check_extent(archive, file)
        infos = archive.infolist()
        self.num_charged = reader.num_read * _DIRECTORY_EXPANSION
        budget.charge(self.num_charged, "The directory of the NPZ archive")
        names = _member_names(infos, budget.limits)
        _check_sizes(infos, file.size)
        inflated = _Inflated(budget.limits, file.size)
        self.members = [
            _Member(archive, info, name, inflated) for info, name in zip(infos, names, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Member:
    """One array of an archive."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    name: str
    inflated: _Inflated

    def read(self, budget: Budget, declared: DType | None) -> Array:
        """All of it."""
        with self._named_errors():
            stream = self._stream()
            array = read_npy(stream, budget, declared=declared)
        self._check_size(stream)
        return array

    def open(self, budget: Budget, declared: DType | None) -> FoundArray:
        """As `open_npy`. Until it is drawn nothing of it is held open: there may be very many of them."""
        with self._named_errors():
            stream = self._stream()
            found = open_npy(stream, budget, declared=declared)
        if isinstance(found, Array):
            self._check_size(stream)
            return found
        if stream.num_read + found.num_bytes != self.info.file_size:
            return self.read(budget, declared)  # which says what is wrong
        return TensorStream(found.dtype, found.shape, self._content(budget, declared))

    def _content(self, budget: Budget, declared: DType | None) -> Iterator[Buffer]:
        with self._named_errors():
            stream = self._stream()
            found = open_npy(stream, budget, declared=declared)
            if not isinstance(found, TensorStream):
                raise AssertionError("the same bytes are another array")  # pragma: no cover
            yield from found.content
        self._check_size(stream)

    def _stream(self) -> _MemberStream:
        with _zip_errors(self.name):
            member = self.archive.open(self.info)
        return _MemberStream(member, self.name, self.inflated)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise error.shifted(feature=self.name) from error.__cause__

    def _check_size(self, stream: _MemberStream) -> None:
        if stream.num_read != self.info.file_size:
            raise MalformedInput(
                f"The NPZ archive says that the array takes {self.info.file_size} bytes; it takes "
                f"{stream.num_read}.",
                code="invalid_npz",
                feature=self.name,
            )


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
    _check_names(members, limits)
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
    return [member.removesuffix(_SUFFIX) for member in members]


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


def _check_names(members: Sequence[str], limits: Limits) -> None:
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
    if not member.endswith(_SUFFIX) or any(text in member for text in _FORBIDDEN):
        return False
    if not _FORBIDDEN_PARTS.isdisjoint(member.removesuffix(_SUFFIX).split("/")):
        return False
    size = len(member.encode("utf-8", "surrogatepass")) - len(_SUFFIX)
    return 0 < size <= limits.max_name_bytes and not any("\ud800" <= char < "\ue000" for char in member)


@contextmanager
def _zip_errors(name: str | None) -> Iterator[None]:
    """Turn what `zipfile` raises on damaged archives into one error."""
    try:
        yield
    except _ZIP_ERRORS as error:
        where = "The NPZ archive" if name is None else "A member of the NPZ archive"
        raise MalformedInput(f"{where} is damaged: {error}.", code="invalid_npz", feature=name) from error
