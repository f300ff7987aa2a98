"""Appending rows: encode, keep the bytes under a name of one's own, then win the slot.

Until the slot is created no row is visible, and a failure removes what was uploaded; from then on
the append is acknowledged, and exactly one published version will hold it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Final

from ....codecs.columns import Records
from ....codecs.messages.messages import encode_messages
from ....codecs.options import RecordsEncodeOptions
from ....codecs.records.large_integers import LargeIntegers
from ....domain.limits import Limits
from ....domain.names import check_idempotency_key, check_split_name
from ....domain.rounded import RoundedFeatures
from ....domain.schema import Schema
from ....errors import Conflict, CorruptData, OutcomeUnknown, ShardsmithError
from ....runtime.budget import Budget
from ....storage.create_once import create_once, new_nonce
from ....storage.object_store import ObjectNotFound, ObjectStore
from ...deferred import completed, then
from ..objects.catalog import Catalog, dataset_deleted
from ..objects.incarnation import Destination
from ..objects.layout import Layout
from ..objects.same_schema import require_features, require_same_schema
from ..objects.slot import Commit, Slot, parse_slot, read_slot
from ..pieces.pieces import Piece, digest_of
from .groups import SMALL_BYTES, Grouping, Member
from .key_locks import KeysInUse
from .parts import Attempt
from .result import AppendResult, group_result, replayed_result, result_of

__all__ = ["Appender"]

#: An attempt that took longer gives up: by then its parts may be taken for leftovers.
_LONGEST_ATTEMPT_S: Final = 3600.0

Digest = Callable[[], str]


class Appender:
    """Appends rows to datasets. Safe to use from several threads."""

    def __init__(
        self,
        store: ObjectStore,
        catalog: Catalog,
        limits: Limits,
        pool: ThreadPoolExecutor,
        groups: ThreadPoolExecutor,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._max_record_bytes = limits.max_record_bytes
        self._pool = pool
        self._clock = _Clock()
        self._writer = new_nonce()
        self._grouping = Grouping(groups, self._store_group)
        self._keys = KeysInUse()

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
        sequence: int | None = None,
        evolve: bool = False,
    ) -> AppendResult:
        """See `Datasets.append`."""
        arrival = self._arrival(destination, split, records, key, sequence, evolve=evolve)
        attempt = arrival.attempt
        with self._keys.held(attempt.layout.slot(attempt.append_id)):
            if key is not None and (earlier := self._earlier(attempt.layout, attempt.append_id)):
                deque(records.batches, maxlen=0)  # `digest` wants the whole body to have been read
                return replayed_result(attempt.layout.dataset, earlier, digest())
            self._receive(arrival, None if key is None else digest, options, budget)
            return self._finish(arrival)

    def submit(
        self,
        destination: Destination,
        split: str,
        records: Records,
        *,
        options: RecordsEncodeOptions,
        budget: Budget,
        evolve: bool = False,
    ) -> Future[AppendResult]:
        """See `Datasets.submit`."""
        arrival = self._arrival(destination, split, records, None, None, evolve=evolve)
        self._receive(arrival, None, options, budget)
        attempt = arrival.attempt
        if destination.schema is not None and arrival.schema.same_features(destination.schema):
            rounded = tuple(arrival.rounded.names)
            member = Member(attempt.inline, attempt.num_records, rounded, records.dropped)
            may_join = attempt.is_small and not arrival.large.found
            if may_join and (joined := self.join(destination, split, member)) is not None:
                return joined
        if destination.schema is not None:
            with attempt.discarded_on_error():
                self._catalog.require_current(destination)
        return completed(self._finish(arrival))

    def join(self, destination: Destination, split: str, member: Member) -> Future[AppendResult] | None:
        """See `Datasets.join`."""
        check_split_name(split)
        if len(member.data) > min(SMALL_BYTES, self._max_record_bytes):
            return None
        if not self._grouping.add(destination, split, member):
            return None
        return then(member.outcome, partial(group_result, destination, split, member))

    def replay(self, destination: Destination, key: str, digest: Digest) -> AppendResult | None:
        """See `Datasets.replay`."""
        layout = destination.layout
        slot = self._earlier(layout, _id_of(check_idempotency_key(key)))
        if not isinstance(slot, Commit) or slot.digest != digest():
            return None
        return result_of(layout.dataset, slot, replayed=True)

    def _arrival(
        self,
        destination: Destination,
        split: str,
        records: Records,
        key: str | None,
        sequence: int | None,
        *,
        evolve: bool,
    ) -> _Arrival:
        check_split_name(split)
        append_id = secrets.token_hex(16) if key is None else _id_of(check_idempotency_key(key))
        schema = records.schema.as_stored()
        if destination.schema is not None and not evolve:
            require_same_schema(schema, destination.schema)
        return _Arrival(
            destination,
            split,
            records,
            schema,
            sequence=sequence,
            evolve=evolve,
            large=LargeIntegers(records.schema, destination.schema),
            started=time.monotonic(),
            attempt=Attempt(self._store, destination.layout, append_id, self._max_record_bytes, self._pool),
        )

    def _receive(
        self, arrival: _Arrival, digest: Digest | None, options: RecordsEncodeOptions, budget: Budget
    ) -> None:
        """Take in all rows; `digest` is that of an append with a key."""
        attempt = arrival.attempt
        with attempt.discarded_on_error():
            options = replace(options, compression="none", rounded=arrival.rounded)
            looked_at = replace(arrival.records, batches=arrival.large.watch(arrival.records.batches))
            attempt.write(encode_messages(looked_at, options, budget), budget)
            arrival.digest = digest_of(attempt.pieces) if digest is None else digest()

    def _earlier(self, layout: Layout, append_id: str) -> Slot | None:
        try:
            return read_slot(self._store, layout, append_id)
        except ObjectNotFound:
            return None

    def _finish(self, arrival: _Arrival) -> AppendResult:
        """Create the slot of an append that is stored but for that."""
        attempt = arrival.attempt
        with attempt.discarded_on_error():
            if time.monotonic() - arrival.started > _LONGEST_ATTEMPT_S:
                raise Conflict("The append took more than an hour; nothing is stored.", code="append_expired")
            self._settle(arrival)
            self._catalog.reopen(attempt.layout)
        return self._commit(attempt, arrival)

    def _settle(self, arrival: _Arrival) -> None:
        """Have the dataset's schema hold these rows, before a slot says that they are in it."""
        attempt, schema = arrival.attempt, arrival.schema
        known = arrival.destination.schema
        large = arrival.large.found
        if known is not None and not large and (not arrival.evolve or schema.same_features(known)):
            return
        if known is None:
            require_features(attempt.layout.dataset, schema, attempt.num_records)
        # What the rows were read by holds as well where others have widened it since.
        evolve = arrival.evolve or known is not None
        self._catalog.settle(attempt.layout, schema, evolve=evolve, large=large)

    def _commit(self, attempt: Attempt, arrival: _Arrival) -> AppendResult:
        """Create the slot: the acknowledgement, unless someone else had the key."""
        slot = replace(
            attempt.slot(arrival.split, arrival.digest, arrival.sequence, self._clock.now(), self._writer),
            rounded=tuple(arrival.rounded.names),
            dropped=arrival.records.dropped,
        )
        try:
            winner = self._create(attempt.layout, slot, attempt.inline)
        except OutcomeUnknown:
            raise  # the slot may be there and name the parts
        except ShardsmithError:
            attempt.discard()
            raise
        if winner is None:
            return result_of(attempt.layout.dataset, slot, replayed=False)
        attempt.discard()
        return replayed_result(attempt.layout.dataset, winner, arrival.digest)

    def _store_group(self, destination: Destination, split: str, members: Sequence[Member]) -> str:
        """Store small appends in one slot, and say which.

        Raises:
            Outdated: the dataset is another one by now, or has another schema; nothing is stored.
            OutcomeUnknown: they may or may not be stored.
        """
        self._catalog.require_current(destination)
        inline = b"".join(member.data for member in members)
        num_records = sum(member.num_records for member in members)
        pieces = (Piece.of(inline, num_records),) if inline else ()
        slot = Commit(
            append_id=secrets.token_hex(16),
            nonce=new_nonce(),
            attempt=new_nonce(),
            split=split,
            digest=digest_of(pieces),
            num_records=num_records,
            num_bytes=len(inline),
            time=self._clock.now(),
            pieces=pieces,
            writer=self._writer,
        )
        try:
            winner = self._create(destination.layout, slot, inline)
        except OutcomeUnknown as error:
            raise OutcomeUnknown(
                "The store did not confirm the write in time; it may or may not have been stored. With an "
                "Idempotency-Key, the same request again would find out."
            ) from error
        if winner is not None:
            raise Conflict("This append is not stored. Send it again.", code="append_expired")
        return slot.append_id

    def _create(self, layout: Layout, slot: Commit, inline: bytes) -> Slot | None:
        """Create a slot; None if it is ours, else the one that is there.

        Raises:
            OutcomeUnknown: the store gave no definite answer, or one that cannot be read.
            Conflict: this replica has deleted the dataset meanwhile (`dataset_deleted`).
        """
        key = layout.slot(slot.append_id)
        winner = create_once(self._store, key, slot.serialize(inline))
        if self._catalog.has_ended_here(layout):
            raise dataset_deleted(layout.dataset)
        try:
            return None if winner is None else parse_slot(slot.append_id, winner, key)
        except CorruptData as error:  # whose it is cannot be told: it may be ours, and name our parts
            raise OutcomeUnknown(
                "What the store holds of this append cannot be read; it may or may not be stored. "
                "Repeat the request with the same key."
            ) from error


@dataclass(slots=True)
class _Arrival:
    """What one append wants, and how far it has come."""

    destination: Destination
    split: str
    records: Records
    schema: Schema  # that the rows are stored by
    sequence: int | None
    evolve: bool
    large: LargeIntegers
    started: float
    attempt: Attempt
    digest: str = ""
    rounded: RoundedFeatures = field(default_factory=RoundedFeatures)


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
