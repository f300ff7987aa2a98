"""One attempt to store the rows of an append: encode them, keep the bytes, then win the slot."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Final

from ....codecs.columns import Records
from ....codecs.messages.examples.write import RecordBlock
from ....codecs.messages.messages import encode_messages
from ....codecs.records.large_integers import LargeIntegers
from ....domain.limits import Limits
from ....domain.rounded import RoundedFeatures
from ....errors import Conflict, OutcomeUnknown, ShardsmithError
from ....tracing import stage
from ....transforms.apply import SkippedRows
from ..objects.dataset import Backend
from ..objects.incarnation import Destination
from ..objects.same_schema import require_features, require_same_schema
from ..pieces.pieces import digest_of
from .groups import Member
from .parts import Parts
from .request import AppendBody, AppendRequest
from .result import AppendResult, replayed_result, result_of
from .slots import SlotWriter

#: An attempt that took longer gives up: by then its parts may be taken for leftovers.
_LONGEST_S: Final = 3600.0


def id_of_key(key: str) -> str:
    """The id of the append with this idempotency key."""
    return sha256(key.encode()).hexdigest()[:32]


def _size_of(block: RecordBlock) -> tuple[int, int]:
    """Its rows and bytes."""
    return block.num_records, len(block.data)


class Attempt:
    """Stores the rows of one append. For one thread.

    Until the slot is created no row is visible, and a failure deletes what was uploaded. From then on the
    append is acknowledged, and exactly one published version will hold it.

    Args:
        request: what was asked for.
        records: the rows; they are drawn by `receive`.
        skipped: counts the rows that their transforms leave out.
        destination: where they go; their schema was read by its schema.
        backend: keeps them.
        limits: of a record.

    Raises:
        SchemaConflict: the dataset has another schema, which the rows may not widen.
    """

    def __init__(
        self,
        request: AppendRequest,
        records: Records,
        skipped: SkippedRows,
        destination: Destination,
        backend: Backend,
        limits: Limits,
    ) -> None:
        schema = records.schema.as_stored()
        if destination.schema is not None and not request.evolve:
            require_same_schema(schema, destination.schema)
        self.append_id = secrets.token_hex(16) if request.key is None else id_of_key(request.key)
        self._request = request
        self._records = records
        self._skipped = skipped
        self._destination = destination
        self._layout = destination.layout
        self._catalog = backend.catalog
        self._schema = schema  # by which the rows are stored
        self._parts = Parts(
            backend.store, destination.layout, self.append_id, limits.max_record_bytes, backend.pool
        )
        self._large = LargeIntegers(records.schema, destination.schema)
        self._rounded = RoundedFeatures()
        self._started = time.monotonic()
        self._digest = ""

    def receive(self, body: AppendBody) -> None:
        """Take in all rows.

        Raises:
            InputError: a row cannot be read or encoded; nothing is stored.
            StorageError: a part could not be stored.
        """
        request = self._request
        options = replace(request.encode, compression="none", rounded=self._rounded)
        with self._parts.discarded_on_error():
            watched = replace(self._records, batches=self._large.watch(self._records.batches))
            with self._skipped.numbering():
                with stage("encode", "tfrecord") as encoding:
                    blocks = encode_messages(watched, options, body.workspace.budget)
                self._parts.write(encoding.drawn(blocks, _size_of), body.workspace.budget)
            self._digest = digest_of(self._parts.pieces) if request.key is None else body.digest()

    def drain(self) -> None:
        """Read all rows and store none of them."""
        deque(self._records.batches, maxlen=0)

    def as_member(self) -> Member | None:
        """The rows, for a group; None if they are many or change the schema of the dataset."""
        known = self._destination.schema
        if known is None or not self._schema.same_features(known) or self._large.found:
            return None
        if not self._parts.is_small:
            return None
        rounded = tuple(self._rounded.names)
        parts, rows, skipped = self._parts, self._records, self._skipped.count
        dropped = tuple(rows.dropped)
        return Member(parts.inline, parts.num_records, rounded, dropped, skipped, rows.as_text)

    def commit(self, slots: SlotWriter, *, check: Callable[[], None] = lambda: None) -> AppendResult:
        """Create the slot of rows that were received.

        Args:
            slots: creates it.
            check: called before anything is made of the rows; what it raises discards them.

        Raises:
            Conflict: this took more than an hour (`append_expired`), or the dataset was deleted meanwhile
                (`dataset_deleted`).
            OutcomeUnknown: the rows may or may not be stored.
        """
        parts, request, name = self._parts, self._request, self._layout.dataset
        with parts.discarded_on_error():
            check()
            if time.monotonic() - self._started > _LONGEST_S:
                raise Conflict("The append took more than an hour; nothing is stored.", code="append_expired")
            self._settle_schema()
            self._catalog.reopen(self._layout)
        slot = slots.new_commit(
            self.append_id,
            parts.attempt,
            request.split,
            parts.pieces,
            digest=self._digest,
            sequence=request.sequence,
            rounded=self._rounded.names,
            dropped=self._records.dropped,
            skipped=self._skipped.count,
            as_text=self._records.as_text,
        )
        try:
            winner = slots.create(self._layout, slot, parts.inline)
        except OutcomeUnknown:
            raise  # the slot may be there and name the parts
        except ShardsmithError:
            parts.discard()
            raise
        if winner is None:
            return result_of(name, slot, replayed=False)
        parts.discard()
        return replayed_result(name, winner, self._digest)

    def _settle_schema(self) -> None:
        """Make the dataset's schema hold these rows, before a slot says that they are in it."""
        request, schema, known = self._request, self._schema, self._destination.schema
        large = self._large.found
        if known is not None and not large and (not request.evolve or schema.same_features(known)):
            return
        if known is None:
            require_features(self._layout.dataset, schema, self._parts.num_records)
        # The schema that the rows were read by is still valid where others have widened it since.
        evolve = request.evolve or known is not None
        self._catalog.settle(self._layout, schema, evolve=evolve, large=large)
