"""Appending rows: encode, keep the bytes under a name of one's own, then win the slot.

Until the slot is created no row is visible, and a failure removes what was uploaded; from then on
the append is acknowledged, and exactly one published version will hold it.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, Final

import numpy as np

from ...codecs.options import RecordsEncodeOptions
from ...codecs.records.columns import Records
from ...codecs.records.framing import OVERHEAD_BYTES
from ...codecs.records.messages import RecordBlock, encode_messages
from ...domain.limits import MIB, Budget, Limits
from ...domain.names import check_idempotency_key, check_split_name
from ...errors import (
    Conflict,
    LimitExceeded,
    OutcomeUnknown,
    ShardsmithError,
    StorageError,
    UnprocessableInput,
)
from ...storage.create_once import create_once, new_nonce
from ...storage.object_store import ObjectNotFound, ObjectStore
from .catalog import Catalog, Destination, require_same_schema
from .layout import Layout
from .pieces import Piece, PieceCutter, record_ends
from .slot import INLINE_BYTES, Commit, Slot, parse_slot, read_slot

__all__ = ["AppendResult", "Appender"]

#: A part is one put; this much is held in memory while the body arrives.
_PART_BYTES: Final = 16 * MIB
#: An attempt that took longer gives up: by then its parts may be taken for leftovers.
_LONGEST_ATTEMPT_S: Final = 3600.0

Digest = Callable[[], str]


@dataclass(frozen=True, slots=True)
class AppendResult:
    """An acknowledged append. `replayed`: an earlier request with the same key had stored it."""

    dataset: str
    split: str
    append_id: str
    num_records: int
    num_bytes: int
    replayed: bool = False

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        del value["replayed"]
        return value


class Appender:
    """Appends rows to datasets. Safe to use from several threads."""

    def __init__(
        self,
        store: ObjectStore,
        catalog: Catalog,
        limits: Limits,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._max_record_bytes = limits.max_record_bytes
        self._monotonic = monotonic
        self._clock = _Clock()

    def append(
        self,
        destination: Destination,
        split: str,
        records: Records,
        *,
        key: str | None,
        digest: Digest,
        options: RecordsEncodeOptions,
        budget: Budget,
    ) -> AppendResult:
        """See `Datasets.append`."""
        check_split_name(split)
        append_id = secrets.token_hex(16) if key is None else _id_of(check_idempotency_key(key))
        started = self._monotonic()
        layout = destination.layout
        if destination.schema is not None:
            require_same_schema(records.schema, destination.schema)
        if key is not None and (earlier := self._earlier(layout, append_id)) is not None:
            deque(records.batches, maxlen=0)  # `digest` wants the whole body to have been read
            return _replay(layout.dataset, earlier, digest())
        attempt = _Attempt(self._store, layout, append_id, self._max_record_bytes)
        try:
            attempt.write(encode_messages(records, replace(options, compression="none"), budget), budget)
            body_digest = digest()
            if self._monotonic() - started > _LONGEST_ATTEMPT_S:
                raise Conflict("The append took more than an hour; nothing is stored.", code="append_expired")
            if destination.schema is None:
                self._settle(layout, records, attempt.num_records)
            self._catalog.reopen(layout)
        except BaseException:
            attempt.discard()
            raise
        return self._commit(attempt, split, body_digest)

    def _earlier(self, layout: Layout, append_id: str) -> Slot | None:
        try:
            return read_slot(self._store, layout, append_id)
        except ObjectNotFound:
            return None

    def _settle(self, layout: Layout, records: Records, num_records: int) -> None:
        if num_records == 0:
            raise UnprocessableInput(
                f"Dataset {layout.dataset!r} has no schema yet, and no records were sent to infer one "
                f"from. Send at least one, or create the dataset with a schema.",
                code="no_records",
            )
        if not records.schema.features:
            raise UnprocessableInput(
                f"Dataset {layout.dataset!r} has no schema yet, and the rows sent have no feature with a "
                f"value to infer one from. Declare a schema, with the rows or when creating the dataset.",
                code="no_features",
            )
        self._catalog.settle(layout, records.schema)

    def _commit(self, attempt: _Attempt, split: str, digest: str) -> AppendResult:
        """Create the slot: the acknowledgement, unless someone else had the key."""
        slot = attempt.slot(split, digest, self._clock.now())
        layout = attempt.layout
        key = layout.slot(slot.append_id)
        try:
            winner = create_once(self._store, key, slot.serialize(attempt.inline))
        except OutcomeUnknown:
            raise  # the slot may be there and name the parts
        except ShardsmithError:
            attempt.discard()
            raise
        if winner is None:
            return _result(layout.dataset, slot, replayed=False)
        attempt.discard()
        return _replay(layout.dataset, parse_slot(slot.append_id, winner, key), digest)


class _Attempt:
    """The record bytes of one attempt: in memory while they are few, otherwise in parts."""

    def __init__(self, store: ObjectStore, layout: Layout, append_id: str, max_record_bytes: int) -> None:
        self.layout = layout
        self.inline = b""
        self.num_records = 0
        self._store = store
        self._append_id = append_id
        self._max_record_bytes = max_record_bytes
        self._name = new_nonce()
        self._pieces: list[Piece] = []
        self._begun: list[str] = []

    def write(self, blocks: Iterator[RecordBlock], budget: Budget) -> None:
        """Take all blocks of framed records, uploading each part as soon as it is full.

        Raises:
            LimitExceeded: a record is larger than allowed (`record_too_large`).
        """
        cutter = PieceCutter(_PART_BYTES, budget)
        for block in blocks:
            self._check_sizes(block)
            self.num_records += block.num_records
            for data, piece in cutter.add_run(block.data, block.num_records):
                self._upload(data, piece)
        for data, piece in cutter.flush():
            if self._begun or len(data) > INLINE_BYTES:
                self._upload(data, piece)
            else:
                self.inline = data
                self._pieces.append(piece)

    def slot(self, split: str, digest: str, now: int) -> Commit:
        return Commit(
            append_id=self._append_id,
            nonce=new_nonce(),
            attempt=self._name,
            split=split,
            digest=digest,
            num_records=self.num_records,
            num_bytes=sum(piece.size for piece in self._pieces),
            time=now,
            pieces=tuple(self._pieces),
        )

    def discard(self) -> None:
        """Remove the parts as far as the store lets us; what stays is nobody's."""
        for key in self._begun:
            with contextlib.suppress(StorageError):
                self._store.delete(key)

    def _check_sizes(self, block: RecordBlock) -> None:
        if len(block.data) <= self._max_record_bytes:
            return
        sizes = np.diff(record_ends(block.data), prepend=0) - OVERHEAD_BYTES
        large = np.flatnonzero(sizes > self._max_record_bytes)
        if large.size:
            row = self.num_records + int(large[0])
            raise LimitExceeded(
                f"Row {row} takes {sizes[large[0]]} bytes as a record; at most "
                f"{self._max_record_bytes} are allowed. Split it up.",
                code="record_too_large",
                row=row,
            )

    def _upload(self, data: bytes, piece: Piece) -> None:
        key = self.layout.part(self._append_id, self._name, len(self._begun))
        self._begun.append(key)
        self._store.put(key, data)
        self._pieces.append(piece)


class _Clock:
    """This process's time in nanoseconds, which never stands still or goes back."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        with self._lock:
            self._last = max(self._last + 1, time.time_ns())
            return self._last


def _id_of(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:32]


def _result(name: str, slot: Commit, *, replayed: bool) -> AppendResult:
    return AppendResult(name, slot.split, slot.append_id, slot.num_records, slot.num_bytes, replayed)


def _replay(name: str, slot: Slot, digest: str) -> AppendResult:
    """The answer that the winner of the slot got.

    Raises:
        UnprocessableInput: it had sent something else.
        Conflict: the slot was closed.
    """
    if not isinstance(slot, Commit):
        raise Conflict(
            "This append came too late and is not stored. Send it again with another key.",
            code="append_expired",
        )
    if slot.digest != digest:
        raise UnprocessableInput(
            "This Idempotency-Key was used for another body or other parameters. Use a new key.",
            code="idempotency_key_reused",
        )
    return _result(name, slot, replayed=True)
