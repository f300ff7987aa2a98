"""NPZ: a ZIP archive of NPY arrays, as `numpy.savez` and `numpy.savez_compressed` write it.

The sizes in an archive are not trusted: members are inflated piece by piece while the array inside is read,
and the budget limits that. Nothing is written to disk.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from ...domain.dtypes import DType
from ...domain.limits import KIB, Limits
from ...errors import InputError, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteFile
from ..archives.zip import MemberStream, ZipArchive
from ..array import Array, position_name
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .npy import npy_pieces, read_npy

_SUFFIX: Final = ".npy"
#: Smaller arrays are read at once: to read one later, its member is opened a second time.
_HELD_BELOW: Final = 64 * KIB
#: With such names other tools would write outside their folder. A slash is common inside TensorFlow's names
#: (`image/encoded`), and stays within the folder as long as no part is empty or made of dots.
_FORBIDDEN: Final = ("\\", "\0")
_FORBIDDEN_PARTS: Final = frozenset({"", ".", ".."})
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
    archive = ZipArchive(file, "NPZ", budget, code="invalid_npz", max_members=budget.limits.max_members)
    # `filename` ends at the first NUL; `orig_filename` is what the archive says.
    members = [info.orig_filename for info in archive.infos]
    _check_names(members, budget.limits)
    archive.check_sizes()
    names = [member.removesuffix(_SUFFIX) for member in members]
    arrays = [
        _Member(archive, info, name, options.dtypes.get(name, options.dtype)).read(budget)
        for name, info in zip(names, archive.infos, strict=True)
    ]
    if not any(array.is_arriving for array in arrays):
        budget.release(archive.num_charged)
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


@dataclass(frozen=True, slots=True)
class _Member:
    """One array of an archive.

    Attributes:
        declared: what the client says its elements are.
    """

    archive: ZipArchive
    info: zipfile.ZipInfo
    name: str
    declared: DType | None

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

    def _open(self, budget: Budget) -> tuple[MemberStream, Array]:
        stream = self.archive.open(self.info, self.name)
        return stream, read_npy(stream, budget, declared=self.declared, name=self.name)

    def _check_size(self, stream: MemberStream) -> None:
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
