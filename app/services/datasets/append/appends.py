"""Appends: rows are stored durably, each append by a slot of its own, or small ones together by one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final

from ....domain.limits import KIB, Limits
from ....domain.schema import Schema
from ....errors import InputError
from ....runtime.images import ImageCodecs
from ....runtime.streams import MemoryStream, PrefixedStream, read_up_to
from ....storage.object_store import ObjectNotFound
from ....transforms.apply import SkippedRows, apply_transforms
from ...deferred import completed, settle
from ..objects.catalog import Outdated
from ..objects.dataset import Backend
from ..objects.incarnation import Destination
from ..objects.layout import Layout
from ..objects.slot import Commit, Slot, read_slot
from .attempt import Attempt, id_of_key
from .batches import Batches
from .explain import explain_refusal
from .groups import SMALL_BYTES, Groups, Member, store_group
from .key_locks import KeyLocks
from .request import AppendBody, AppendRequest
from .result import AppendResult, group_result, replayed_result, result_of
from .slots import SlotWriter

#: A body of up to this size may turn out to be a small append, and is held to be read again.
_SMALL_BODY: Final = 256 * KIB


class Appends:
    """Appends rows to datasets. Safe to use from several threads.

    A request is an `AppendRequest` with an `AppendBody`. `Attempt` stores its rows. Small appends share a
    slot (`Groups`); those of JSON that are there in whole are also decoded together (`Batches`).

    Args:
        backend: keeps the rows.
        limits: of records, and of what is decoded together.
        groups: stores groups.
        images: for transforms of images.
    """

    def __init__(
        self, backend: Backend, limits: Limits, groups: ThreadPoolExecutor, images: ImageCodecs
    ) -> None:
        self._backend = backend
        self._catalog = backend.catalog
        self._limits = limits
        self._images = images
        self._slots = SlotWriter(backend)
        self._groups = Groups(groups, partial(store_group, self._catalog, self._slots))
        self._keys = KeyLocks()
        self._batches = Batches(self._catalog, limits, self._store_member)

    def append(self, request: AppendRequest, body: AppendBody) -> Future[AppendResult]:
        """Store rows; small ones together with others, if the request allows it.

        All of the body is read before this returns. The result may come a moment later, in another thread.

        Raises:
            ShardsmithError: at once or as the result: as `store`.
        """
        if not request.may_be_grouped:
            return completed(self.store(request, body, self._catalog.destination(request.dataset)))
        head = read_up_to(body.source, _SMALL_BODY + 1)
        if len(head) > _SMALL_BODY:
            body = body.over(PrefixedStream(head, body.source))
            return completed(self.store(request, body, self._catalog.destination(request.dataset)))
        return self._append_small(request, body, head)

    def append_decoded_together(
        self, request: AppendRequest, data: bytes
    ) -> Future[AppendResult | None] | None:
        """Store the rows of a small JSON body; they are decoded together with those of others, in a moment.

        None, now or as the result, if `append` has to be asked; then nothing is stored.

        Args:
            request: one that `may_be_grouped`.
            data: all of the body.
        """
        return self._batches.add(request, data)

    def close(self) -> None:
        """Store what waits to be decoded, and then accept nothing more of that kind."""
        self._batches.close()

    def store(self, request: AppendRequest, body: AppendBody, destination: Destination) -> AppendResult:
        """Store rows by a slot of their own.

        Args:
            request: what to do.
            body: the rows.
            destination: where they go, found when the request began.

        Raises:
            InputError: the rows cannot be read or encoded, or do not fit; nothing is stored.
            SchemaConflict: the dataset has another schema.
            LimitExceeded: a row is larger than `limits.max_record_bytes` (`record_too_large`).
            UnprocessableInput: no rows, or none with a feature, for a dataset without a schema
                (`no_records`, `no_features`); the key was used for something else
                (`idempotency_key_reused`).
            Conflict: the key was closed, or the attempt took over an hour (`append_expired`); the
                dataset was deleted meanwhile (`dataset_deleted`).
            InProgress: this replica is at an append with that key (`append_in_progress`).
            OutcomeUnknown: the rows may or may not be stored; the same key finds out.
        """
        try:
            with explain_refusal(destination.schema, evolve=request.evolve):
                return self._store_rows(request, body, destination)
        except InputError:
            # Others may have widened the schema since the same request was stored.
            earlier = self._find_earlier(request, body, destination.layout)
            if earlier is None:
                raise
            return earlier

    def find_schema(self, request: AppendRequest, body: AppendBody) -> Schema | None:
        """The schema of the dataset, else the one that it would get by storing these rows.

        Rows without a feature give none.

        Raises:
            InputError: the beginning of the rows cannot be read.
        """
        known = self._catalog.destination(request.dataset).schema
        if known is not None:
            return known
        records = apply_transforms(body.read_rows(request, None), self._images, body.workspace.budget, None)
        schema = records.schema.as_stored()
        return schema if len(schema) else None

    def settle_schema(self, dataset: str, schema: Schema, *, evolve: bool) -> None:
        """Give a dataset a schema before any row is stored.

        Raises:
            SchemaConflict: it got another one meanwhile.
        """
        self._catalog.settle(self._catalog.destination(dataset).layout, schema, evolve=evolve)

    def _store_rows(self, request: AppendRequest, body: AppendBody, destination: Destination) -> AppendResult:
        attempt = self._attempt(request, body, destination)
        layout = destination.layout
        with self._keys.hold(layout.slot(attempt.append_id)):
            if request.key is not None and (earlier := self._read_slot(layout, attempt.append_id)):
                attempt.drain()  # `digest` wants the whole body to have been read
                return replayed_result(layout.dataset, earlier, body.digest())
            attempt.receive(body)
            return attempt.commit(self._slots)

    def _find_earlier(self, request: AppendRequest, body: AppendBody, layout: Layout) -> AppendResult | None:
        """The answer that the same request got before, if it had a key and was stored."""
        if request.key is None:
            return None
        slot = self._read_slot(layout, id_of_key(request.key))
        if not isinstance(slot, Commit) or slot.digest != body.digest():
            return None
        return result_of(layout.dataset, slot, replayed=True)

    def _append_small(self, request: AppendRequest, body: AppendBody, data: bytes) -> Future[AppendResult]:
        """Store the rows of a small body by what this replica remembers of the dataset, in a group if it may.

        What is remembered is checked before rows are refused, and before they are acknowledged. If it is no
        longer true, all is done once more, by what is true now.
        """
        remembered = self._catalog.remembered(request.dataset)
        destination = remembered or self._catalog.destination(request.dataset)
        try:
            with explain_refusal(destination.schema, evolve=request.evolve):
                return self._group_or_store(request, body.over(MemoryStream(data)), destination, data)
        except (InputError, Outdated):
            if self._catalog.is_current(destination):
                raise
            return completed(self._append_anew(request, body, data))

    def _group_or_store(
        self, request: AppendRequest, body: AppendBody, destination: Destination, data: bytes
    ) -> Future[AppendResult]:
        attempt = self._attempt(request, body, destination)
        attempt.receive(body)
        member = attempt.as_member()
        if member is not None:
            result: Future[AppendResult] = Future()
            again = partial(self._append_anew, request, body, data)
            if self._join(request, destination, member, partial(settle, result), again):
                return result
        is_known = destination.schema is not None
        check = partial(self._catalog.require_current, destination) if is_known else _nothing
        return completed(attempt.commit(self._slots, check=check))

    def _store_member(
        self,
        request: AppendRequest,
        data: bytes,
        destination: Destination,
        member: Member,
        tell: Callable[[Callable[[], AppendResult]], None],
    ) -> bool:
        """Store a body that was decoded and encoded with others; false if it has to go its own way."""

        def again() -> AppendResult:
            body = AppendBody.in_memory(data, self._limits, self._backend.spool)
            return self._append_anew(request, body, data)

        return self._join(request, destination, member, tell, again)

    def _append_anew(self, request: AppendRequest, body: AppendBody, data: bytes) -> AppendResult:
        """Store rows that were read for a dataset that is outdated, in whatever thread found that out."""
        destination = self._catalog.destination(request.dataset)
        body = body.again(data)
        with body.workspace:
            return self.store(request, body, destination)

    def _attempt(self, request: AppendRequest, body: AppendBody, destination: Destination) -> Attempt:
        skipped = SkippedRows()
        records = body.read_rows(request, destination.schema)
        records = apply_transforms(
            records, self._images, body.workspace.budget, skipped if request.on_error == "skip" else None
        )
        if destination.schema is not None:
            records = replace(records, schema=records.schema.nullable_as(destination.schema))
        return Attempt(request, records, skipped, destination, self._backend, self._limits)

    def _join(
        self,
        request: AppendRequest,
        destination: Destination,
        member: Member,
        tell: Callable[[Callable[[], AppendResult]], None],
        again: Callable[[], AppendResult],
    ) -> bool:
        """Store encoded rows in a group; false if they are too large for that, or too much is waiting.

        Args:
            request: which asked for that.
            destination: that the rows were read for.
            member: the rows.
            tell: told what gives the result, once the group is stored, in the thread that stores it.
            again: called instead if the destination turns out to be outdated, in that thread.
        """
        if len(member.data) > min(SMALL_BYTES, self._limits.max_record_bytes):
            return False
        if not self._groups.add(destination, request.split, member):
            return False

        def finish(done: Future[str]) -> None:
            if isinstance(done.exception(), Outdated):
                tell(again)
            else:
                tell(lambda: group_result(destination, request.split, member, done.result()))

        member.outcome.add_done_callback(finish)
        return True

    def _read_slot(self, layout: Layout, append_id: str) -> Slot | None:
        try:
            return read_slot(self._backend.store, layout, append_id)
        except ObjectNotFound:
            return None


def _nothing() -> None:
    pass
