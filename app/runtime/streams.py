"""Sources of bytes: `ByteStream` (read once, in order), `ByteFile` (known size, any offset), `WholeBody`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol, runtime_checkable

from ..domain.limits import MIB
from ..errors import MalformedInput
from .budget import Budget

Buffer = bytes | bytearray | memoryview

#: Bytes that are read, converted or written at a time.
CHUNK_BYTES: Final = 1 * MIB


class ByteStream(Protocol):
    """Bytes that can be read once, in order."""

    def read(self, n: int, /) -> bytes:
        """Between 1 and `n` bytes, or `b""` at the end. Blocks until there is at least one.

        Raises:
            StreamInterrupted: the sender went away before the end.
        """
        ...


@runtime_checkable
class TimedStream(ByteStream, Protocol):
    """A stream whose reader can choose how long to wait."""

    def wait_readable(self, seconds: float) -> bool:
        """Wait so long at most; whether `read` would return, or raise, without waiting."""
        ...


@runtime_checkable
class ViewStream(ByteStream, Protocol):
    """A stream whose bytes are in memory in large stretches, which need not be copied.

    The stretches are charged by the owner of the stream, not by its reader.
    """

    def read_view(self) -> memoryview:
        """The rest of a stretch, or the next one, which nobody writes to any more; empty at the end.

        Raises:
            StreamInterrupted: the sender went away before the end.
        """
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing is left; False if only another read could tell."""
        ...


@runtime_checkable
class ByteFile(Protocol):
    """Bytes that can be read at any offset."""

    @property
    def size(self) -> int: ...

    def read_at(self, offset: int, n: int, /) -> bytes:
        """Exactly `n` bytes from `offset`; fewer only where the file ends."""
        ...


class WholeBody(ByteFile, Protocol):
    """A complete body, in memory or on disk."""

    def view(self) -> memoryview:
        """All bytes, read-only; valid as long as a view is held.

        A file is mapped, so reading it takes only memory that the system can take back.

        Raises:
            StorageUnavailable: the disk failed.
        """
        ...


class Arriving(ABC):
    """A `WholeBody` whose reader may begin before all of it is there.

    A class: to look for a protocol takes as long as the conversion of a small tensor.

    Attributes:
        declared_size: how many bytes are to come in all, where that is known.
    """

    declared_size: int | None

    @abstractmethod
    def read_ahead(self) -> Iterator[memoryview]:
        """All that has arrived, from the beginning on, each time that there is more; may end early.

        Raises:
            StreamInterrupted: the sender went away before the end.
        """

    @abstractmethod
    def view(self) -> memoryview:
        """As `WholeBody`."""


class FarFile(ABC):
    """A `ByteFile` that lies elsewhere, for decoders that read at offsets alone; as a stream it has ended.

    A class: to look for a protocol takes as long as the conversion of a small tensor.
    """

    size: int

    @abstractmethod
    def read_at(self, offset: int, n: int, /) -> bytes:
        """As `ByteFile`."""

    def read(self, n: int, /) -> bytes:  # noqa: ARG002 (nothing follows the file)
        """Nothing: what the file holds is read at offsets."""
        return b""


class OwnFile(ABC):
    """A file of whoever runs this process: a `ByteStream`, and a `WholeBody` that needs no copy.

    A mapping of a file that becomes shorter is fatal: not for files that clients can change.
    """

    @property
    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def read(self, n: int, /) -> bytes:
        """As `ByteStream`."""

    @abstractmethod
    def read_at(self, offset: int, n: int, /) -> bytes:
        """As `ByteFile`."""

    @abstractmethod
    def view(self) -> memoryview:
        """As `WholeBody`."""


class MemoryStream:
    """A `ViewStream` over bytes in memory."""

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data).cast("B")
        self._position = 0

    def read(self, n: int, /) -> bytes:
        piece = self.peek(n)
        self._position += len(piece)
        return piece

    def read_view(self) -> memoryview:
        rest = self._view[self._position :]
        self._position = len(self._view)
        return rest

    def peek(self, n: int) -> bytes:
        """The next `n` bytes, or fewer at the end; they stay unread."""
        return bytes(self._view[self._position : self._position + n])

    @property
    def left(self) -> int:
        """The number of bytes not read yet."""
        return len(self._view) - self._position

    @property
    def ended(self) -> bool:
        return not self.left


class PrefixedStream:
    """A stream from which `head` has already been read."""

    def __init__(self, head: bytes, source: ByteStream) -> None:
        self._head = head
        self._source = source

    def read(self, n: int, /) -> bytes:
        if not self._head:
            return self._source.read(n)
        piece, self._head = self._head[:n], self._head[n:]
        return piece


class RewindableStream:
    """A stream that can be read once more from its beginning.

    What has been read is held, and charged to `budget`, until it is read again or `forget` is called.
    """

    def __init__(self, source: ByteStream, budget: Budget) -> None:
        self._source = source
        self._budget = budget
        self._kept: deque[bytes] = deque()
        self._keeps = True

    def read(self, n: int, /) -> bytes:
        if self._keeps:
            piece = self._source.read(n)
            self._budget.charge(len(piece), "The beginning of the body")
            self._kept.append(piece)
            return piece
        if not self._kept:
            return self._source.read(n)
        piece = self._kept.popleft()
        if len(piece) > n:
            self._kept.appendleft(piece[n:])
            piece = piece[:n]
        self._budget.release(len(piece))
        return piece

    def rewind(self) -> None:
        """Begin again. What is read from now on is not held."""
        self._keeps = False

    def forget(self) -> None:
        """Go on without holding what is read; `rewind` is no longer possible."""
        self._keeps = False
        self._budget.release(sum(map(len, self._kept)))
        self._kept.clear()


class MemoryFile:
    """A `WholeBody` over bytes in memory."""

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data).cast("B")

    @property
    def size(self) -> int:
        return len(self._view)

    def read_at(self, offset: int, n: int, /) -> bytes:
        return bytes(self._view[offset : offset + n])

    def view(self) -> memoryview:
        return self._view.toreadonly()


class FileStream:
    """The bytes of a `ByteFile` from `begin` to `end` as a stream."""

    def __init__(self, file: ByteFile, begin: int, end: int) -> None:
        self._file = file
        self._position = begin
        self._end = end

    def read(self, n: int, /) -> bytes:
        piece = self._file.read_at(self._position, min(n, self._end - self._position))
        self._position += len(piece)
        return piece


def iter_exactly(stream: ByteStream, n: int, what: str, *, offset: int = 0) -> Iterator[bytes]:
    """Exactly `n` bytes of `stream`, in pieces as they arrive.

    Args:
        what: the name of what is read, for the error.
        offset: where in the input this begins, for the error.

    Raises:
        MalformedInput: the stream ends early (`truncated`).
    """
    left = n
    while left:
        piece = stream.read(min(left, CHUNK_BYTES))
        if not piece:
            raise MalformedInput(
                f"The body ends inside {what}: {n} bytes expected, {n - left} found.",
                code="truncated",
                offset=offset + n - left,
            )
        left -= len(piece)
        yield piece


def read_exactly(stream: ByteStream, n: int, what: str, *, offset: int = 0) -> bytes:
    """Exactly `n` bytes of `stream`, joined. Nothing is allocated before it arrives."""
    pieces = iter_exactly(stream, n, what, offset=offset)
    first = next(pieces, b"")
    if len(first) == n:
        return first
    # Not kept until the end: an object of a few bytes takes many times what it holds.
    gathered = bytearray(first)
    for piece in pieces:
        gathered += piece
    return bytes(gathered)


def read_up_to(stream: ByteStream, n: int) -> bytes:
    """`n` bytes of `stream`, joined, or all if it has fewer."""
    gathered = bytearray()
    while len(gathered) < n and (piece := stream.read(n - len(gathered))):
        gathered += piece
    return bytes(gathered)


def peek(stream: ByteStream, n: int) -> tuple[bytes, ByteStream]:
    """The next `n` bytes, or all if there are fewer, and a stream that still begins with them."""
    if isinstance(stream, MemoryStream):
        return stream.peek(n), stream
    head = read_up_to(stream, n)
    return head, PrefixedStream(head, stream)


def read_all(stream: ByteStream, budget: Budget, what: str = "The body") -> memoryview:
    """All of `stream` in memory, charged to `budget` as it arrives.

    Raises:
        LimitExceeded: larger than the budget allows.
    """
    gathered = bytearray()
    while piece := stream.read(CHUNK_BYTES):
        budget.charge(len(piece), what)
        gathered += piece
    return memoryview(gathered).toreadonly()
