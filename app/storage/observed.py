"""An object store whose operations are observed: each is a span of the request that waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from ..runtime.streams import Buffer
from ..tracing import store_span, store_stage
from .object_store import ObjectInfo, ObjectStore


class ObservedStore:
    """Does what `store` does. URLs are signed without a request, so that is no operation.

    Args:
        store: the store itself.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def put(self, key: str, data: Buffer) -> None:
        with store_span("put", key):
            self._store.put(key, data)

    def create(self, key: str, data: Buffer) -> None:
        with store_span("create", key):
            self._store.create(key, data)

    def put_stream(self, key: str, chunks: Iterable[Buffer]) -> int:
        with store_span("put_stream", key):
            return self._store.put_stream(key, chunks)

    def get(self, key: str) -> bytes:
        with store_span("get", key):
            return self._store.get(key)

    def get_range(self, key: str, offset: int, length: int) -> Buffer:
        with store_span("get_range", key):
            return self._store.get_range(key, offset, length)

    def read_into(self, key: str, offset: int, target: memoryview) -> int:
        with store_span("read_into", key):
            return self._store.read_into(key, offset, target)

    def head(self, key: str) -> ObjectInfo:
        with store_span("head", key):
            return self._store.head(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with store_stage("list", prefix) as listing:
            found = self._store.list(prefix)
        return listing.drawn(found)

    def list_children(self, prefix: str) -> Sequence[str]:
        with store_span("list_children", prefix):
            return self._store.list_children(prefix)

    def delete(self, key: str) -> None:
        with store_span("delete", key):
            self._store.delete(key)

    def copy(self, source: str, target: str) -> None:
        with store_span("copy", target):
            self._store.copy(source, target)

    def sign(self, key: str, expires_s: int) -> str | None:
        return self._store.sign(key, expires_s)

    def sweep(self, prefix: str, before: datetime) -> int:
        with store_span("sweep", prefix):
            return self._store.sweep(prefix, before)
