"""An object store whose operations are counted, timed, and spans of the request that waits for them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from ..errors import StorageError, StorageFull, StorageUnavailable
from ..runtime.streams import Buffer
from ..telemetry.metrics import STORE_READ_BYTES, STORE_SECONDS, STORE_WRITTEN_BYTES
from ..tracing import store_span, store_stage
from .object_store import AlreadyExists, ObjectInfo, ObjectNotFound, ObjectStore


class ObservedStore:
    """Does what `store` does. URLs are signed without a request, so that is no operation.

    Args:
        store: the store itself.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def put(self, key: str, data: Buffer) -> None:
        with _observed("put", key):
            self._store.put(key, data)
        STORE_WRITTEN_BYTES.inc(memoryview(data).nbytes)

    def create(self, key: str, data: Buffer) -> None:
        with _observed("create", key):
            self._store.create(key, data)
        STORE_WRITTEN_BYTES.inc(memoryview(data).nbytes)

    def put_stream(self, key: str, chunks: Iterable[Buffer]) -> int:
        drawn = _Drawn(chunks)
        with _observed("put_stream", key, drawn):
            size = self._store.put_stream(key, drawn)
        STORE_WRITTEN_BYTES.inc(size)
        return size

    def get(self, key: str) -> bytes:
        with _observed("get", key):
            data = self._store.get(key)
        STORE_READ_BYTES.inc(len(data))
        return data

    def get_range(self, key: str, offset: int, length: int) -> Buffer:
        with _observed("get_range", key):
            data = self._store.get_range(key, offset, length)
        STORE_READ_BYTES.inc(memoryview(data).nbytes)
        return data

    def read_into(self, key: str, offset: int, target: memoryview) -> int:
        with _observed("read_into", key):
            size = self._store.read_into(key, offset, target)
        STORE_READ_BYTES.inc(size)
        return size

    def head(self, key: str) -> ObjectInfo:
        with _observed("head", key):
            return self._store.head(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with store_stage("list", prefix) as listing:
            found = self._store.list(prefix)
        return listing.drawn(_observe_listing(found))

    def list_children(self, prefix: str) -> Sequence[str]:
        with _observed("list_children", prefix):
            return self._store.list_children(prefix)

    def delete(self, key: str) -> None:
        with _observed("delete", key):
            self._store.delete(key)

    def copy(self, source: str, target: str) -> None:
        with _observed("copy", target):
            self._store.copy(source, target)

    def sign(self, key: str, expires_s: int) -> str | None:
        return self._store.sign(key, expires_s)

    def sweep(self, prefix: str, before: datetime) -> int:
        with _observed("sweep", prefix):
            return self._store.sweep(prefix, before)


class _Drawn(Iterator[Buffer]):
    """Chunks that an upload draws; how long drawing them takes is no time of the store.

    Attributes:
        seconds: so far.
        error: what drawing one raised.
    """

    def __init__(self, chunks: Iterable[Buffer]) -> None:
        self._chunks = iter(chunks)
        self.seconds = 0.0
        self.error: BaseException | None = None

    def __next__(self) -> Buffer:
        began = time.monotonic()
        try:
            return next(self._chunks)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.seconds += time.monotonic() - began


@contextmanager
def _observed(operation: str, key: str, drawn: _Drawn | None = None) -> Iterator[None]:
    """Observe one operation.

    Args:
        operation: its name.
        key: of the object.
        drawn: what an upload draws.
    """
    began = time.monotonic()
    outcome = "ok"
    try:
        with store_span(operation, key):
            yield
    except BaseException as error:
        outcome = "abandoned" if drawn is not None and drawn.error is error else _outcome(error)
        raise
    finally:
        seconds = time.monotonic() - began - (0.0 if drawn is None else drawn.seconds)
        STORE_SECONDS.labels(operation, outcome).observe(max(0.0, seconds))


def _observe_listing(found: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
    """The objects; the operation lasts as long as they are waited for, and ends when no more are drawn."""
    seconds, outcome = 0.0, "ok"
    try:
        while True:
            began = time.monotonic()
            try:
                info = next(found)
            except StopIteration:
                return
            except BaseException as error:
                outcome = _outcome(error)
                raise
            finally:
                seconds += time.monotonic() - began
            yield info
    finally:
        STORE_SECONDS.labels("list", outcome).observe(seconds)


def _outcome(error: BaseException) -> str:
    """What became of an operation that raised; the first two are answers, not failures."""
    if isinstance(error, ObjectNotFound):
        return "not_found"
    if isinstance(error, AlreadyExists):
        return "exists"
    if isinstance(error, StorageFull):
        return "full"
    if isinstance(error, StorageUnavailable):
        return "unavailable"
    if isinstance(error, StorageError) and error.code == "storage_denied":
        return "denied"
    return "error"
