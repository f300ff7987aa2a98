"""A store with faults, for tests of what stands on one."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeVar

from app.runtime.streams import Buffer
from app.storage.object_store import ObjectInfo, ObjectStore

Operation = Literal[
    "put", "create", "put_stream", "get", "get_range", "head", "list", "delete", "copy", "sign", "sweep"
]
When = Literal["before", "after"]
#: Told of each request; raises what is to go wrong.
Fault = Callable[[When, Operation, str], None]

WRITES: tuple[Operation, ...] = ("put", "create", "put_stream", "delete", "copy", "sweep")

ResultT = TypeVar("ResultT")


class Killed(BaseException):
    """The process is gone: nothing catches this, and its store does nothing more."""


class FaultStore:
    """An `ObjectStore` over `inner` whose requests fail as `fault` says.

    An error raised before a request is one that was never applied; after it, one that was applied
    and whose answer was lost.
    """

    def __init__(self, inner: ObjectStore, fault: Fault | None = None) -> None:
        self._inner = inner
        self.fault = fault
        self.requests: list[tuple[Operation, str]] = []
        #: Added to the store's own clock.
        self.clock_offset = timedelta(0)

    def _do(self, operation: Operation, key: str, request: Callable[[], ResultT]) -> ResultT:
        self.requests.append((operation, key))
        if self.fault is not None:
            self.fault("before", operation, key)
        result = request()
        if self.fault is not None:
            self.fault("after", operation, key)
        return result

    def put(self, key: str, data: Buffer) -> None:
        self._do("put", key, lambda: self._inner.put(key, data))

    def create(self, key: str, data: Buffer) -> None:
        self._do("create", key, lambda: self._inner.create(key, data))

    def put_stream(self, key: str, chunks: Iterable[Buffer]) -> int:
        return self._do("put_stream", key, lambda: self._inner.put_stream(key, chunks))

    def get(self, key: str) -> bytes:
        return self._do("get", key, lambda: self._inner.get(key))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self._do("get_range", key, lambda: bytes(self._inner.get_range(key, offset, length)))

    def read_into(self, key: str, offset: int, target: memoryview) -> int:
        data = self.get_range(key, offset, len(target))
        target[: len(data)] = data
        return len(data)

    def head(self, key: str) -> ObjectInfo:
        info = self._do("head", key, lambda: self._inner.head(key))
        return ObjectInfo(info.key, info.size, info.last_modified + self.clock_offset, info.etag)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._do("list", prefix, lambda: self._inner.list(prefix))

    def list_children(self, prefix: str) -> Sequence[str]:
        return self._do("list", prefix, lambda: self._inner.list_children(prefix))

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self._inner.delete(key))

    def copy(self, source: str, target: str) -> None:
        self._do("copy", target, lambda: self._inner.copy(source, target))

    def sign(self, key: str, expires_s: int) -> str | None:
        return self._do("sign", key, lambda: self._inner.sign(key, expires_s))

    def sweep(self, prefix: str, before: datetime) -> int:
        return self._do("sweep", prefix, lambda: self._inner.sweep(prefix, before))


class WrongBitStore(FaultStore):
    """A `FaultStore` that answers some reads of one object with a wrong bit.

    Args:
        bit: of the bytes that are read, the number of the one that comes wrong.
        reads: which reads of the object do, counted from 0.
    """

    def __init__(
        self, inner: ObjectStore, key: str, bit: Callable[[bytes], int], reads: Container[int] = (0,)
    ) -> None:
        super().__init__(inner)
        self._key = key
        self._bit = bit
        self._wrong = reads
        self.reads = 0

    def get(self, key: str) -> bytes:
        return self._as_read(key, super().get(key))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self._as_read(key, super().get_range(key, offset, length))

    def _as_read(self, key: str, data: bytes) -> bytes:
        if key != self._key:
            return data
        self.reads += 1
        return with_wrong_bit(data, self._bit(data)) if self.reads - 1 in self._wrong else data


def with_wrong_bit(data: bytes, bit: int) -> bytes:
    """All of `data` but one bit, counted from the lowest of the first byte."""
    wrong = bytearray(data)
    wrong[bit // 8] ^= 1 << bit % 8
    return bytes(wrong)


class TimedStore:
    """A store over `inner` whose clock a test sets."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self._written: dict[str, timedelta] = {}
        self._clock = timedelta(0)

    def advance(self, by: timedelta) -> None:
        """Let time pass for everything that is there."""
        self._clock += by

    def _timed(self, info: ObjectInfo) -> ObjectInfo:
        moment = info.last_modified + self._written.get(info.key, timedelta(0))
        return ObjectInfo(info.key, info.size, moment, info.etag)

    def put(self, key: str, data: Buffer) -> None:
        self._inner.put(key, data)
        self._written[key] = self._clock

    def create(self, key: str, data: Buffer) -> None:
        self._inner.create(key, data)
        self._written[key] = self._clock

    def put_stream(self, key: str, chunks: Iterable[Buffer]) -> int:
        size = self._inner.put_stream(key, chunks)
        self._written[key] = self._clock
        return size

    def get(self, key: str) -> bytes:
        return self._inner.get(key)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return bytes(self._inner.get_range(key, offset, length))

    def read_into(self, key: str, offset: int, target: memoryview) -> int:
        data = self.get_range(key, offset, len(target))
        target[: len(data)] = data
        return len(data)

    def head(self, key: str) -> ObjectInfo:
        return self._timed(self._inner.head(key))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return map(self._timed, self._inner.list(prefix))

    def list_children(self, prefix: str) -> Sequence[str]:
        return self._inner.list_children(prefix)

    def delete(self, key: str) -> None:
        self._inner.delete(key)

    def copy(self, source: str, target: str) -> None:
        self._inner.copy(source, target)
        self._written[target] = self._clock

    def sign(self, key: str, expires_s: int) -> str | None:
        return self._inner.sign(key, expires_s)

    def sweep(self, prefix: str, before: datetime) -> int:
        return self._inner.sweep(prefix, before)


def keys(store: ObjectStore, part: str = "") -> list[str]:
    """The keys of all objects, or of those whose keys have that part."""
    return sorted(info.key for info in store.list("") if part in info.key)


def kill_at(store: FaultStore, operation: Operation, part: str, when: When = "before") -> None:
    """The process dies at that request to an object whose key has that part, and does nothing any more."""
    dead: list[bool] = []

    def fault(moment: When, requested: Operation, key: str) -> None:
        if dead or (moment == when and requested == operation and part in key):
            dead.append(True)
            raise Killed

    store.fault = fault


class KillAt:
    """Kills the process around its `index`-th write, and keeps it dead."""

    def __init__(self, index: int, when: When) -> None:
        self._left = index
        self._when = when
        self.killed: tuple[Operation, str] | None = None

    def __call__(self, when: When, operation: Operation, key: str) -> None:
        if self.killed is not None:
            raise Killed
        if operation in WRITES and when == self._when:
            if self._left == 0:
                self.killed = (operation, key)
                raise Killed
            self._left -= 1
