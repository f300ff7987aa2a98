"""Every operation of a store, for tests that hold for all of them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from app.storage.object_store import ObjectStore

OPERATIONS: Mapping[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("a", b"x"),
    "create": lambda store: store.create("a", b"x"),
    "put_stream": lambda store: store.put_stream("a", [bytes(8 << 20)] * 5),
    "get": lambda store: store.get("a"),
    "get_range": lambda store: store.get_range("a", 1, 10),
    "read_into": lambda store: store.read_into("a", 1, memoryview(bytearray(10))),
    "head": lambda store: store.head("a"),
    "list": lambda store: list(store.list("a")),
    "list_children": lambda store: store.list_children("a"),
    "delete": lambda store: store.delete("a"),
    "copy": lambda store: store.copy("a", "b"),
    "sweep": lambda store: store.sweep("", datetime.now(UTC)),
}
