"""An append from its body to its acknowledgement, and on to the publication where that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from ....codecs.columns import Batch, Records
from ....codecs.forms import FormName
from ....codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from ....codecs.schema_inference import HEAD_ROWS
from ....domain.dtypes import INT64
from ....domain.evolution import DECLARE_ANEW
from ....domain.limits import KIB, MIB
from ....domain.manifest import Manifest
from ....domain.schema import Schema
from ....errors import InputError, LossyConversion, SchemaConflict, ShardsmithError
from ....runtime.budget import Budget
from ....runtime.spool import Spool
from ....runtime.streams import ByteStream, MemoryStream, PrefixedStream, read_up_to
from ...convert.records import open_records
from ...deferred import completed, settle, then
from ..datasets import Datasets
from ..objects.catalog import Outdated
from ..objects.incarnation import Destination
from ..objects.publish_options import PublishOptions
from ..objects.same_schema import require_same_message, require_same_schema
from ..publications import Underway
from ..publish.room import Room
from .result import AppendJson, AppendResult
from .widening import open_widening

__all__ = ["AppendRequest", "Appended", "append_rows", "stored_answer"]

#: A body up to this size may turn out to be a small append, and is held to be read again.
_SMALL_BODY: Final = 256 * KIB
_CHUNK: Final = 1 * MIB


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """What a client asked for.

    Attributes:
        key: the idempotency key.
        publish: publish everything acknowledged so far once these rows are.
        sequence: orders the append before its time does.
        evolve: the rows may widen the schema of the dataset.
    """

    dataset: str
    split: str
    form: FormName
    key: str | None
    decode: RecordsDecodeOptions
    encode: RecordsEncodeOptions
    publish: PublishOptions | None = None
    sequence: int | None = None
    evolve: bool = False

    @property
    def may_be_grouped(self) -> bool:
        """Whether the rows may share a slot with others', which has no key and no number of its own."""
        return self.key is None and self.publish is None and self.sequence is None


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer: what was stored, and the place of what was made, relative to the datasets.

    Attributes:
        underway: the publication that was asked for along with it goes on.
        manifest: of the version that was asked for along with it.
    """

    append: AppendJson
    location: str
    underway: Underway | None = None
    manifest: Manifest | None = None


def append_rows(
    datasets: Datasets,
    request: AppendRequest,
    source: ByteStream,
    digest: Callable[[], str],
    budget: Budget,
    spool: Spool,
    resources: ExitStack,
) -> Future[Appended]:
    """Decode, store and acknowledge the rows of `source`; then publish, if asked to.

    All of `source` is read before this returns; the answer may come a moment later, where the rows are
    stored together with those of others.

    Args:
        datasets: where to.
        request: what to do.
        source: the body.
        digest: what identifies the request; called once the body is exhausted, where there is a key.
        budget: what the request may hold.
        spool: room for forms that have to be whole.
        resources: closed by the caller at the end of the request.

    Raises:
        InputError: at once: the rows cannot be read or do not fit; nothing is stored.
        ShardsmithError: at once or as the answer: as `Datasets.append` and `Datasets.publish`; where
            the publication failed after the append was acknowledged, it carries `append_id`.
    """
    appending = _Appending(datasets, request, digest, budget, spool, resources)
    if not request.may_be_grouped:
        return completed(appending.alone(source))
    head = read_up_to(source, _SMALL_BODY + 1)
    if len(head) > _SMALL_BODY:
        return completed(appending.alone(PrefixedStream(head, source)))
    return then(appending.grouped(head), stored_answer)


@dataclass(frozen=True, slots=True)
class _Appending:
    """One request under way."""

    datasets: Datasets
    request: AppendRequest
    digest: Callable[[], str]
    budget: Budget
    spool: Spool
    resources: ExitStack

    def alone(self, source: ByteStream) -> Appended:
        """Store the rows by a slot of their own, and publish them if that was asked for."""
        room: Room | None = None
        if self.request.publish is not None and self.request.key is None:
            # Before the rows are stored: sent again without a key, they would come twice.
            room = self.resources.enter_context(self.datasets.reserve_publication())
        destination = self.datasets.destination(self.request.dataset)
        appended = self._stored_or_earlier(source, destination)
        if self.request.publish is None:
            return stored_answer(appended)
        return _publish(self.datasets, destination, appended, self.request.publish, room)

    def _stored_or_earlier(self, source: ByteStream, destination: Destination) -> AppendResult:
        """Store the rows; where they are refused, but were stored under this key before, that is the answer.

        So it is where others have widened the schema since, and the one declared with the rows is no longer
        the same.
        """
        try:
            return self.store(source, destination)
        except InputError:
            key = self.request.key
            earlier = None if key is None else self.datasets.replay(destination, key, self.digest)
            if earlier is None:
                raise
            return earlier

    def grouped(self, body: bytes) -> Future[AppendResult]:
        """Store the rows of a small body with those of others, by what this replica remembers of the dataset.

        What it remembers is looked at again where it matters: before the rows are refused, and before
        they are acknowledged. Where it is not true any more, all is done again by what is true now.
        """
        remembered = self.datasets.remembered(self.request.dataset)
        destination = remembered or self.datasets.destination(self.request.dataset)
        try:
            submitted = self._submit(body, destination)
        except (InputError, Outdated):
            if self.datasets.is_current(destination):
                raise
            return completed(self._again(body))
        answer: Future[AppendResult] = Future()
        submitted.add_done_callback(lambda done: settle(answer, lambda: self._or_again(done, body)))
        return answer

    def _submit(self, body: bytes, destination: Destination) -> Future[AppendResult]:
        request = self.request
        with self._telling_of_evolution(destination):
            return self.datasets.submit(
                destination,
                request.split,
                self._records(MemoryStream(body), destination),
                options=request.encode,
                budget=self.budget,
                evolve=request.evolve,
            )

    def _or_again(self, done: Future[AppendResult], body: bytes) -> AppendResult:
        return self._again(body) if isinstance(done.exception(), Outdated) else done.result()

    def _again(self, body: bytes) -> AppendResult:
        """In whatever thread brought the news."""
        with ExitStack() as resources:
            anew = replace(self, budget=self.budget.anew(), resources=resources)
            return anew.store(MemoryStream(body), self.datasets.destination(self.request.dataset))

    def store(self, source: ByteStream, destination: Destination) -> AppendResult:
        """Store the rows by a slot of their own."""
        request = self.request
        with self._telling_of_evolution(destination):
            return self.datasets.append(
                request.dataset,
                request.split,
                self._records(source, destination),
                key=request.key,
                digest=self.digest,
                options=request.encode,
                budget=self.budget,
                destination=destination,
                sequence=request.sequence,
                evolve=request.evolve,
            )

    @contextmanager
    def _telling_of_evolution(self, destination: Destination) -> Iterator[None]:
        """Say of rows that are refused what would take them."""
        try:
            yield
        except InputError as error:
            hint = _way_out(error, destination.schema, evolve=self.request.evolve)
            if not hint:
                raise
            told = type(error)(f"{error.detail} {hint}", code=error.code, extra=error.extra)
            told.location = error.location
            raise told from None

    def _records(self, source: ByteStream, destination: Destination) -> Records:
        """Rows are read by the schema of the dataset, once it has one."""
        records = self._decoded(source, destination)
        return replace(records, batches=_to_the_end(records.batches, source))

    def _decoded(self, source: ByteStream, destination: Destination) -> Records:
        request, stored = self.request, destination.schema
        form, options = request.form, request.decode
        if stored is None:
            return open_records(source, form, options, self.budget, self.spool, self.resources)
        require_same_message(options.message, stored)
        if request.evolve:
            return open_widening(source, form, options, stored, self.budget, self.spool, self.resources)
        if options.schema is not None:
            require_same_schema(options.schema, stored)
            stored = stored.declared_by(options.schema)
        options = replace(options, schema=stored, schema_of_dataset=True)
        return open_records(source, form, options, self.budget, self.spool, self.resources)


def _way_out(error: InputError, stored: Schema | None, *, evolve: bool) -> str:
    """What takes rows that the schema of the dataset refuses; nothing where that is told, or nothing does."""
    name = error.location.feature
    if stored is None or name is None or "schema" in error.extra:
        return ""
    feature = stored.by_name.get(name)
    if feature is None:
        is_told = evolve or not isinstance(error, SchemaConflict)
        return "" if is_told else "With ?evolve=widen it is added to the schema of the dataset."
    if error.code == "inexact_integer" and feature.dtype == INT64 and not feature.may_become_float32:
        why = "" if feature.inferred else ", since it was declared"
        if feature.beyond_float32:
            why = ", since float32 does not hold all its integers exactly"
        return f"It stays int64 in this dataset{why}. {DECLARE_ANEW}"
    if error.code == "lossy_encoding" and feature.inferred and feature.dtype.is_float:
        return f"Feature {name!r} stays {feature.dtype} in this dataset. To keep every digit: {DECLARE_ANEW}"
    has_length = feature.inferred and not feature.is_scalar and feature.num_values is not None
    ways = ["become float32"] * feature.may_become_float32 + ["have lists of any length"] * has_length
    if not ways or not isinstance(error, SchemaConflict | LossyConversion):
        return ""
    if evolve:
        is_late = (error.location.row or 0) >= HEAD_ROWS
        return f"?evolve=widen looks at the first {HEAD_ROWS} rows: set ?infer=all." if is_late else ""
    return f"It was inferred from earlier rows: with ?evolve=widen it may {' and '.join(ways)}."


def _to_the_end(batches: Iterator[Batch], source: ByteStream) -> Iterator[Batch]:
    """The batches, and what of the body lies behind them, which the client must have sent, too."""
    yield from batches
    while source.read(_CHUNK):
        pass


def stored_answer(appended: AppendResult) -> Appended:
    """What an append without a publication is answered."""
    return Appended(appended.to_json(), f"{appended.dataset}/appends/{appended.append_id}")


def _publish(
    datasets: Datasets,
    destination: Destination,
    appended: AppendResult,
    options: PublishOptions,
    room: Room | None,
) -> Appended:
    name = appended.dataset
    try:
        manifest = datasets.publish_within(
            name, options, wants=appended.append_id, destination=destination, room=room
        )
    except ShardsmithError as error:
        error.extra["append_id"] = appended.append_id
        raise
    if isinstance(manifest, Underway):
        return Appended(appended.to_json(), manifest.location(name), underway=manifest)
    return Appended(appended.to_json(), f"{name}/versions/{manifest.version}", manifest=manifest)
