"""An object store in memory whose every request may fail, land late or be seen half way by a listing."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from app.errors import StorageError, StorageUnavailable
from app.runtime.streams import Buffer
from app.storage.object_store import AlreadyExists, ObjectInfo, ObjectNotFound
from tests.simulation.scheduler import Process, Scheduler
from tests.support.faulty_store import Killed

__all__ = ["Connection", "Faults", "Objects", "kind_of"]

_KINDS: Final = (
    ("/slots/", "slot"),
    ("/parts/", "part"),
    (".plan", "plan"),
    ("_manifest.json", "manifest"),
    ("_deleted.json", "deleted"),
    (".end", "end"),
    ("/_gen/", "gen"),
    ("/schema/", "schema"),
    (".inputs", "inputs"),
    (".seen", "seen"),
    (".done", "done"),
    ("/log/hint", "hint"),
    (".tfrecord", "shard"),
    ("_probe/", "probe"),
    ("/_g", "log"),
)
#: As long, and so often, is what was damaged on its way read unharmed afterwards: whoever reads it again may
#: have been paused meanwhile, and others read it too.
_UNHARMED_S: Final = 60.0
_UNHARMED_READS: Final = 8
#: Objects that are only ever created, by what `kind_of` calls them.
CREATED_ONCE: Final = frozenset({"slot", "plan", "manifest", "deleted", "end", "gen", "schema"})


@lru_cache(100_000)
def kind_of(key: str) -> str:
    """What an object is, from its key."""
    for part, kind in _KINDS:
        if part in key:
            return kind
    return "file"


@dataclass(frozen=True, slots=True)
class _Stored:
    data: bytes
    modified: int


class Objects:
    """What the store holds, and who is told of each change.

    `overwriting` makes of every create a plain put: for proving that the simulation notices.
    """

    def __init__(self, changed: Callable[[str, bytes | None, bytes | None], None]) -> None:
        self._stored: dict[str, _Stored] = {}
        self._keys: list[str] = []
        self._changed = changed
        self.overwriting: re.Pattern[str] | None = None
        #: Uploads that were begun and neither completed nor aborted: their keys and times.
        self.uploads: dict[int, tuple[str, float]] = {}
        self._num_uploads = 0

    def __contains__(self, key: str) -> bool:
        return key in self._stored

    def get(self, key: str) -> _Stored:
        found = self._stored.get(key)
        if found is None:
            raise ObjectNotFound(f"There is no object {key}.")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, key: str, data: bytes, now: float) -> None:
        old = self._stored.get(key)
        if old is None:
            insort(self._keys, key)
        self._stored[key] = _Stored(data, int(now))
        self._changed(key, None if old is None else old.data, data)

    def create(self, key: str, data: bytes, now: float) -> None:
        plain = self.overwriting is not None and self.overwriting.search(key)
        if key in self._stored and not plain:
            raise AlreadyExists(f"There is an object {key} already.")
        self.put(key, data, now)

    def delete(self, key: str) -> None:
        old = self._stored.pop(key, None)
        if old is not None:
            del self._keys[bisect_left(self._keys, key)]
            self._changed(key, old.data, None)

    def copy(self, source: str, target: str, now: float) -> None:
        self.put(target, self.get(source).data, now)

    def page(self, prefix: str, after: str, size: int) -> list[str]:
        """The first `size` keys below a prefix, behind `after`."""
        begin = bisect_right(self._keys, after) if after else bisect_left(self._keys, prefix)
        page = []
        for key in self._keys[begin : begin + size]:
            if not key.startswith(prefix):
                break
            page.append(key)
        return page

    def begin_upload(self, key: str, now: float) -> int:
        self._num_uploads += 1
        self.uploads[self._num_uploads] = (key, now)
        return self._num_uploads

    def complete_upload(self, upload: int, data: bytes) -> None:
        """An object is as old as its upload, as S3 has it."""
        begun = self.uploads.pop(upload, None)
        if begun is None:
            raise StorageUnavailable("There is no such upload.")
        self.put(begun[0], data, begun[1])


@dataclass(slots=True)
class Faults:
    """How likely one request goes wrong: a write, a read; and how many keys a page of a list has.

    Attributes:
        flips: how likely one bit of what is read is wrong.
    """

    writes: float = 0.0
    reads: float = 0.0
    flips: float = 0.0
    page: int = 1000


class Connection:
    """The `ObjectStore` of one process."""

    def __init__(self, objects: Objects, scheduler: Scheduler, process: Process, faults: Faults) -> None:
        self._objects = objects
        self._scheduler = scheduler
        self._process = process
        self.faults = faults
        self._flipped: dict[str, float] = {}
        self._unharmed_reads: Counter[str] = Counter()

    def put(self, key: str, data: Buffer) -> None:
        body, issued = bytes(data), self._scheduler.now
        late = self._scheduler.rng.random() < 0.5
        self._write("put", key, lambda: self._objects.put(key, body, self._scheduler.now if late else issued))

    def create(self, key: str, data: Buffer) -> None:
        body = bytes(data)
        self._write("create", key, lambda: self._objects.create(key, body, self._scheduler.now))

    def put_stream(self, key: str, chunks: Iterable[Buffer]) -> int:
        self._request("begin", key)
        upload = self._objects.begin_upload(key, self._scheduler.now)
        data = bytearray()
        try:
            for chunk in chunks:
                data += chunk
                self._request("part", key)
        except Killed:
            raise
        except BaseException:
            self._objects.uploads.pop(upload, None)
            raise
        self._write("complete", key, lambda: self._objects.complete_upload(upload, bytes(data)))
        return len(data)

    def get(self, key: str) -> bytes:
        self._request("get", key)
        return self._as_read(key, self._objects.get(key).data)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        self._request("get_range", key)
        return self._as_read(key, self._objects.get(key).data[offset : offset + length])

    def read_into(self, key: str, offset: int, target: memoryview) -> int:
        data = self.get_range(key, offset, len(target))
        target[: len(data)] = data
        return len(data)

    def head(self, key: str) -> ObjectInfo:
        self._request("head", key)
        return self._info(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = f"{prefix}/" if prefix else ""
        after = ""
        while True:
            self._request("list", prefix)
            page = self._objects.page(folder, after, self.faults.page)
            yield from [self._info(key) for key in page]
            if len(page) < self.faults.page:
                return
            after = page[-1]

    def list_children(self, prefix: str) -> Sequence[str]:
        self._request("list", prefix)
        folder = f"{prefix}/" if prefix else ""
        keys = self._objects.page(folder, "", len(self._objects))
        return sorted({key[len(folder) :].split("/", 1)[0] for key in keys if "/" in key[len(folder) :]})

    def delete(self, key: str) -> None:
        self._write("delete", key, lambda: self._objects.delete(key))

    def copy(self, source: str, target: str) -> None:
        self._write("copy", target, lambda: self._objects.copy(source, target, self._scheduler.now))

    def sign(self, key: str, expires_s: int) -> str | None:
        return None

    def sweep(self, prefix: str, before: datetime) -> int:
        self._request("sweep", prefix)
        old = [
            upload
            for upload, (key, begun) in self._objects.uploads.items()
            if key.startswith(f"{prefix}/") and begun < before.timestamp()
        ]
        for upload in old:
            del self._objects.uploads[upload]
        return len(old)

    def _info(self, key: str) -> ObjectInfo:
        stored = self._objects.get(key)
        return ObjectInfo(key, len(stored.data), datetime.fromtimestamp(stored.modified, UTC), None)

    def _request(self, operation: str, key: str) -> None:
        """A request that changes nothing, before it is answered."""
        if self._process.dead:
            raise Killed
        self._scheduler.step(f"{operation} {kind_of(key)}", key)
        if self.faults.reads and self._scheduler.rng.random() < self.faults.reads:
            raise StorageUnavailable(f"The store failed at {key}.")

    def _as_read(self, key: str, data: bytes) -> bytes:
        """`data`, or all but one bit of it; not again where that happened to the object a moment ago."""
        rng, now = self._scheduler.rng, self._scheduler.now
        if not self.faults.flips or not data:
            return data
        lasts = now - self._flipped.get(key, -_UNHARMED_S) < _UNHARMED_S or self._unharmed_reads[key] > 0
        self._unharmed_reads[key] -= 1
        if rng.random() >= self.faults.flips or lasts:
            return data
        self._flipped[key], self._unharmed_reads[key] = now, _UNHARMED_READS
        wrong = bytearray(data)
        wrong[rng.randrange(len(wrong))] ^= 1 << rng.randrange(8)
        return bytes(wrong)

    def _write(self, operation: str, key: str, apply: Callable[[], None]) -> None:
        if self._process.dead:
            raise Killed
        rng = self._scheduler.rng
        try:
            self._scheduler.step(f"{operation} {kind_of(key)}", key)
        except Killed:
            fate = rng.random()
            if fate < 0.3:
                _land(apply)
            elif fate < 0.5:
                self._scheduler.fly(lambda: _land(apply))
            raise
        if self.faults.writes == 0.0 or rng.random() >= self.faults.writes:
            apply()
            return
        self._fail(operation, key, apply)

    def _fail(self, operation: str, key: str, apply: Callable[[], None]) -> None:
        rng, scheduler = self._scheduler.rng, self._scheduler
        fate = rng.choice(("before", "after", "late", "again", "refused", "conflict"))
        if scheduler.trace is not None:
            scheduler.trace(f"{'':>30} {fate.upper()}")
        if fate == "refused" and rng.random() < 0.3:
            raise StorageError(f"The store refuses access to {key}.", code="storage_denied")
        if fate == "again" and operation != "create":
            apply()
            scheduler.fly(lambda: _land(apply))  # a first try, of which the client knew nothing
            return
        if fate == "conflict" and operation == "create":
            if rng.random() < 0.5:
                apply()
            raise AlreadyExists(f"There seems to be an object {key}.")
        if fate == "after":
            apply()
        elif fate == "late":
            scheduler.fly(lambda: _land(apply))
        raise StorageUnavailable(f"The store failed at {key}.")


def _land(apply: Callable[[], None]) -> None:
    """What nobody waits for fails in silence."""
    try:
        apply()
    except (StorageError, ObjectNotFound):
        return
