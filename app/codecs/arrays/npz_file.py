"""NPZ: a ZIP archive of NPY arrays, as `numpy.savez` and `numpy.savez_compressed` write it.

What an archive says about its sizes is not believed: members are inflated piece by piece as the
array inside is read, which in turn is bounded by the budget. Nothing is written to disk.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Final

from ...domain.dtypes import DType
from ...domain.limits import MIB, Limits
from ...errors import InputError, MalformedInput
from ...runtime.amplification import Amplification
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteFile
from ..tensor_stream import TensorStream
from .array import Array, FoundArray
from .npy_file import open_npy, read_npy
from .npz_directory import SUFFIX, NpzDirectory, check_names, zip_errors
from .stored_zip import Content, serialize_stored_zip

__all__ = ["open_npz", "read_npz", "serialize_npz"]

#: What an archive may inflate to whatever its size.
_RATIO_FREE_BYTES: Final = 1 * MIB


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
            (`compression_ratio_exceeded`), or larger than the budget.
    """
    directory = NpzDirectory(file, budget)
    arrays = {
        member.name: member.read(budget, declared(member.name))
        for member in _members(directory, file, budget)
    }
    budget.release(directory.num_charged)
    return arrays


def open_npz(
    file: ByteFile,
    budget: Budget,
    *,
    declared: Callable[[str], DType | None] = lambda _: None,
    streamed_from: int = 0,
) -> dict[str, FoundArray]:
    """The arrays by name, in the order of the archive, inflated as they are drawn, in whatever order that is.

    In memory are those that `open_npy` has there, and those of less than `streamed_from` bytes. While any
    is not, the directory of the archive stays charged.

    Raises: as `read_npz`, here or as the contents are drawn.
    """
    directory = NpzDirectory(file, budget)
    arrays = {
        member.name: member.read(budget, declared(member.name))
        if member.info.file_size < streamed_from
        else member.open(budget, declared(member.name))
        for member in _members(directory, file, budget)
    }
    if all(isinstance(array, Array) for array in arrays.values()):
        budget.release(directory.num_charged)
    return arrays


def serialize_npz(arrays: Sequence[tuple[str, Content]], limits: Limits | None = None) -> Iterator[Buffer]:
    """An archive as `numpy.savez` writes it, of (name, NPY bytes); deterministic, not compressed.

    Raises:
        UnprocessableInput: a name that `read_npz` would not read; an array that has no NPY form.
    """
    members = [(name + SUFFIX, partial(_named, name, content)) for name, content in arrays]
    check_names([member for member, _ in members], limits or Limits())
    return serialize_stored_zip(members)


def _named(name: str, content: Content) -> Iterator[Buffer]:
    """The content of one array, whose name goes into its errors."""
    try:
        yield from content()
    except InputError as error:
        raise error.shifted(feature=name) from error.__cause__


class _MemberStream:
    """A member of the archive as a `ByteStream`."""

    def __init__(self, member: IO[bytes], name: str, inflated: Callable[[int], None]) -> None:
        self._member = member
        self._name = name
        self._inflated = inflated
        self.num_read = 0

    def read(self, n: int, /) -> bytes:
        with zip_errors(self._name):
            piece = self._member.read(n)
        self.num_read += len(piece)
        self._inflated(len(piece))
        return piece


def _members(directory: NpzDirectory, file: ByteFile, budget: Budget) -> list[_Member]:
    amplification = Amplification(
        budget.limits.max_amplification, lambda: file.size, allowance=_RATIO_FREE_BYTES
    )

    def inflated(num_bytes: int) -> None:
        """Count what all members together were inflated to."""
        amplification.add("inflated", num_bytes)
        budget.amplify("inflated", num_bytes)

    return [_Member(directory.archive, info, name, inflated) for name, info in directory.members]


@dataclass(frozen=True, slots=True)
class _Member:
    """One array of an archive."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    name: str
    inflated: Callable[[int], None]

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
        with zip_errors(self.name):
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
