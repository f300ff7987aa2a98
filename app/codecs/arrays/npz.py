"""NPZ: a ZIP archive of NPY arrays, as `numpy.savez` and `numpy.savez_compressed` write it.

The sizes in an archive are not trusted: members are inflated piece by piece while the array inside is read,
and the budget limits that. Nothing is written to disk.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any, Final

from ...domain.dtypes import DType
from ...domain.limits import KIB, MIB, Limits
from ...errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.amplification import Amplification
from ...runtime.budget import Budget
from ...runtime.streams import CHUNK_BYTES, Buffer, ByteFile
from ..array import Array, position_name
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .npy import npy_pieces, read_npy

_SUFFIX: Final = ".npy"
#: Smaller arrays are read at once: to read one later, its member is opened a second time.
_HELD_BELOW: Final = 64 * KIB
#: Any archive may inflate to this size.
_RATIO_FREE_BYTES: Final = 1 * MIB
#: With such names other tools would write outside their folder. A slash is common inside TensorFlow's names
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


#: The date of every member: the first that the format knows.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o600 << 16


def read(file: ByteFile, options: TensorDecodeOptions, budget: Budget) -> list[Array]:
    """The arrays under their names (without ".npy"), in the order of the archive.

    Small arrays are in memory, and those that `npy.read` reads into memory. As long as another array is still
    to be read, the directory stays charged.

    Raises:
        MalformedInput: not a readable ZIP archive (`invalid_npz`), bytes after its end (`trailing_bytes`), or
            a member is not a readable array (see `npy.read`).
        UnprocessableInput: a name that is no name of an array (`invalid_member_name`) or stands twice
            (`duplicate_member`), an encrypted member (`encrypted_member`), a compression other than deflate
            (`unsupported_compression`), an array of a dtype that is not read (`unsupported_dtype`).
        UnknownForm: dates and extended floats (`unsupported_dtype`).
        LimitExceeded: too many members (`too_many_members`), inflated too much
            (`compression_ratio_exceeded`), or larger than the budget.
    """
    if file.read_at(0, 4) not in (b"PK\3\4", _END_SIGNATURE):
        raise MalformedInput(
            "This is not NPZ: it does not begin as a ZIP archive.", code="invalid_npz", offset=0
        )
    reader = _Seekable(file, budget.limits.max_members * _DIRECTORY_BYTES_PER_MEMBER)
    with _zip_errors(None):
        archive = zipfile.ZipFile(reader)
    _check_extent(archive, file)
    infos = archive.infolist()
    num_charged = reader.num_read * _DIRECTORY_EXPANSION
    budget.charge(num_charged, "The directory of the NPZ archive")
    names = _member_names(infos, budget.limits)
    _check_sizes(infos, file.size)
    ratio = Amplification(budget.limits.max_amplification, lambda: file.size, allowance=_RATIO_FREE_BYTES)

    def count_inflated(num_bytes: int) -> None:
        """Count bytes that members were inflated to, for all members together."""
        ratio.add("inflated", num_bytes)
        budget.amplify("inflated", num_bytes)

    arrays = [
        _Member(archive, info, name, options.dtypes.get(name, options.dtype), count_inflated).read(budget)
        for name, info in zip(names, infos, strict=True)
    ]
    if not any(array.is_arriving for array in arrays):
        budget.release(num_charged)
    return arrays


def write(arrays: Sequence[Array], _options: TensorEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """An archive as `numpy.savez` writes it, not compressed; equal arrays give equal bytes.

    Arrays without a name are arr_0, arr_1, ... by their position.

    Raises:
        UnprocessableInput: a name that `read` would not read, or that stands twice (`invalid_member_name`,
            `duplicate_member`); an array that NPY does not hold (`not_expressible`).
    """
    names = [position_name(array, "arr_", index) for index, array in enumerate(arrays)]
    _check_names([name + _SUFFIX for name in names], budget.limits)
    members: list[tuple[zipfile.ZipInfo, bytes, Iterator[Buffer]]] = []
    for name, array in zip(names, arrays, strict=True):
        info = zipfile.ZipInfo(name + _SUFFIX, _EPOCH)
        info.external_attr, info.create_system = _MODE, 3
        with _name_errors(name):
            header, size, content = npy_pieces(array, budget)
        info.file_size = len(header) + size  # decides whether it needs ZIP64
        members.append((info, header, content))
    return _archive(members)


def _archive(members: Sequence[tuple[zipfile.ZipInfo, bytes, Iterator[Buffer]]]) -> Iterator[Buffer]:
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:
        for info, header, content in members:
            with archive.open(info, "w") as member:
                member.write(header)
                for piece in content:
                    member.write(piece)
                    yield from sink.drain()
    yield from sink.drain()


class _Sink(io.RawIOBase):
    """A write-only file for `zipfile`, from which the written bytes are taken piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[Buffer] = []

    def write(self, data: Any, /) -> int:
        self._pieces.append(data)
        return len(data)

    def drain(self) -> list[Buffer]:
        pieces, self._pieces = self._pieces, []
        return pieces


class _MemberStream:
    """A member of the archive as a `ByteStream`."""

    def __init__(self, member: IO[bytes], name: str, inflated: Callable[[int], None]) -> None:
        self._member = member
        self._name = name
        self._inflated = inflated
        self.num_read = 0

    def read(self, n: int, /) -> bytes:
        with _zip_errors(self._name):
            piece = self._member.read(n)
        self.num_read += len(piece)
        self._inflated(len(piece))
        return piece


@dataclass(frozen=True, slots=True)
class _Member:
    """One array of an archive.

    Attributes:
        declared: what the client says its elements are.
        inflated: called with the number of bytes inflated.
    """

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    name: str
    declared: DType | None
    inflated: Callable[[int], None]

    def read(self, budget: Budget) -> Array:
        """The array. While it arrives, the member is only open as its content is drawn."""
        with _name_errors(self.name):
            stream, array = self._open(budget)
            size = stream.num_read + (array.num_bytes if array.is_arriving else 0)
            if array.is_arriving and size == self.info.file_size and array.num_bytes >= _HELD_BELOW:
                return replace(array, content=self._content(budget))
            array = array.read(budget)
            self._check_size(stream)
        return array

    def _content(self, budget: Budget) -> Iterator[Buffer]:
        with _name_errors(self.name):
            stream, array = self._open(budget)
            yield from array.pieces()
            self._check_size(stream)

    def _open(self, budget: Budget) -> tuple[_MemberStream, Array]:
        with _zip_errors(self.name):
            member = self.archive.open(self.info)
        stream = _MemberStream(member, self.name, self.inflated)
        return stream, read_npy(stream, budget, declared=self.declared, name=self.name)

    def _check_size(self, stream: _MemberStream) -> None:
        if stream.num_read != self.info.file_size:
            raise MalformedInput(
                f"The NPZ archive says that the array takes {self.info.file_size} bytes; it takes "
                f"{stream.num_read}.",
                code="invalid_npz",
            )


@contextmanager
def _name_errors(name: str) -> Iterator[None]:
    """Say in errors of the input inside the block that they are in the array of that name."""
    try:
        yield
    except InputError as error:
        raise error.shift(feature=name) from error.__cause__


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
            raise LimitExceeded(
                "The directory of the NPZ archive is too long. Send fewer arrays, or shorter names.",
                code="too_many_members",
            )
        piece = self._file.read_at(self._position, n)
        self._position += len(piece)
        self.num_read += len(piece)
        return piece


def _check_extent(archive: zipfile.ZipFile, file: ByteFile) -> None:
    """Refuse bytes before and after the archive, which `zipfile` skips silently.

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
    """The names of the arrays, after checking everything that the directory says."""
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
                "A member of the NPZ archive is encrypted. Send it without encryption.",
                code="encrypted_member",
                feature=info.filename,
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
    """Refuse what is no name of an array (`invalid_member_name`), or stands twice (`duplicate_member`)."""
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
    """Turn the errors of `zipfile` on damaged archives into one of ours."""
    try:
        yield
    except _ZIP_ERRORS as error:
        where = "The NPZ archive" if name is None else "A member of the NPZ archive"
        raise MalformedInput(f"{where} is damaged: {error}.", code="invalid_npz", feature=name) from error
