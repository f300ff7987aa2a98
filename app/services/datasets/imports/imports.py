"""Imports: a source is cut into ranges, each is appended by itself, and all are published at the end.

An import is many idempotent appends and one publication, and nothing else. Its plan is created once; the key
of each append follows from plan and range, so that any number of processes may do any range, at the same
time or again, and the slot of the append decides. What is done is noted on the store, where any process
finds it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Final, Literal

from ....codecs.forms import FormName
from ....domain.limits import Limits
from ....domain.manifest import Manifest
from ....domain.names import check_append_id, check_dataset_name, check_idempotency_key
from ....domain.schema import Schema
from ....errors import (
    Conflict,
    InputError,
    LimitExceeded,
    NotFound,
    UnprocessableInput,
)
from ....runtime.amplification import Amplification
from ....runtime.budget import Budget
from ....runtime.memory import MemoryPool
from ....runtime.spool import Spool
from ....runtime.turns import pause
from ....runtime.workspace import Workspace
from ....storage.object_store import ObjectNotFound
from ....storage.source_objects import MAX_OBJECTS, SourceObject, path_of
from ....storage.sources import Source, is_allowed, open_source
from ....transforms.parse import check_transforms
from ..append.attempt import id_of_key
from ..append.request import AppendBody
from ..append.result import AppendResult
from ..datasets import Datasets
from ..objects.dataset import Dataset
from ..objects.kept import Kept
from ..objects.slot import Commit, Dead, close_slot, read_slot
from ..objects.stored_json import dump_json
from ..pieces.run_ahead import run_ahead
from ..publish.dealing import Dealer
from ..publish.unwritten import Spread, UnwrittenShards
from .cutting import cut
from .notes import FailureJson, NoteBook, describe_failure
from .plan import ImportPlan, create_plan, find_plan, open_plan, read_page
from .ranges import MAX_RANGES, Range
from .reading import CountedSource, open_range
from .request import ImportRequest, form_of
from .status import ImportStatus, status_of

#: Plans and ranges that are kept in memory, by the number of their ranges.
_KEPT_RANGES: Final = 100_000
#: Ranges whose beginning is read for a schema: those before it have no row.
_LOOKED_AT: Final = 100
#: Objects that are cut at a time, each with 16 MiB that are read ahead of it.
_CUTTERS: Final = 4
#: How long until a publication that waits for another one asks again.
_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Task:
    """One range to append. It can be sent to another process.

    Attributes:
        index: the number of the range.
        attempt: how many attempts are known never to come to an end.
    """

    dataset: str
    import_id: str
    index: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task. It can be sent from another process.

    Attributes:
        state: `left`: the range cannot be read, and is left out; `failed`: the same, and the import stops;
            `ended`: the import has, and nothing was done.
        source_bytes: of the range.
        failure: what was wrong.
    """

    index: int
    state: Literal["done", "left", "failed", "ended"]
    source_bytes: int
    num_records: int = 0
    num_bytes: int = 0
    failure: FailureJson | None = None


class _Cancelled(Conflict):
    """The import was cancelled before its rows were published."""


class Imports:
    """Imports into the datasets of one store. Safe to use from several threads; every call blocks.

    Args:
        datasets: that rows are appended to.
        limits: of what is read of a range.
        spool: for ranges that are read at any offset.
        memory: that ranges take their memory from.
        allowed: URLs at or below which sources may lie; None allows all that this process can read.
    """

    def __init__(
        self,
        datasets: Datasets,
        *,
        limits: Limits,
        spool: Spool,
        memory: MemoryPool,
        allowed: Sequence[str] | None = None,
    ) -> None:
        self._datasets = datasets
        self._limits = limits
        self._spool = spool
        self._memory = memory
        self._allowed = allowed
        self._plans: Kept[str, tuple[ImportPlan, Sequence[Range]]] = Kept(_KEPT_RANGES)

    def begin(self, dataset: str, request: ImportRequest, key: str | None = None) -> tuple[str, bool]:
        """Plan an import, or find it if it was begun with that key; its id, and whether it is new.

        One that was to stop at a range that cannot be read may be told to skip it: from then on it does.

        Raises:
            MalformedInput: a source that is none, or not allowed (`source_not_allowed`).
            UnprocessableInput: nothing is there to import (`source_not_found`, `no_records`), or the key was
                used for another import (`idempotency_key_reused`).
            InputError: the schema has transforms that cannot be done; the first rows cannot be read, or do
                not fit the dataset, or have nothing that they can be dealt out by (`invalid_division`).
            LimitExceeded: too many ranges (`too_many_ranges`).
        """
        check_dataset_name(dataset)
        source = open_source(request.source, self._allowed)
        if request.schema is not None:
            request = replace(request, schema=check_transforms(request.schema))
        import_id = secrets.token_hex(16) if key is None else id_of_key(check_idempotency_key(key))
        if key is not None and (found := self._find(dataset, import_id)) is not None:
            return self._take_up(dataset, found, request), False
        objects, form, passed_over = _choose_objects(source, request)

        def cut_one(item: SourceObject) -> list[Range]:
            with self._workspace(source) as (counted, workspace):
                pool, delimiter = self._datasets.pool, request.delimiter_of(item.name)
                parts = cut(counted, item, form, request.range_bytes, delimiter, workspace, pool)
                return list(islice(parts, MAX_RANGES + 1))

        ranges: list[Range] = []
        # Not in the pool: what cuts waits for what is read ahead there.
        with ThreadPoolExecutor(_CUTTERS, thread_name_prefix="cut") as cutters:
            calls = ((0, partial(cut_one, item)) for item in objects)
            for parts in run_ahead(calls, cutters, most=2 * _CUTTERS):
                ranges += parts
                if len(ranges) > MAX_RANGES:
                    raise LimitExceeded(
                        f"The import has more than {MAX_RANGES} ranges. Raise range_bytes, or import the "
                        "source in parts.",
                        code="too_many_ranges",
                    )
        self._settle_schema(dataset, source, request, form, ranges)
        plan = create_plan(
            self._datasets.open(dataset),
            import_id,
            request,
            form,
            ranges,
            num_objects=len(objects),
            passed_over=passed_over,
        )
        return self._take_up(dataset, plan, request), True

    def _find(self, dataset: str, import_id: str) -> ImportPlan | None:
        try:
            return find_plan(self._datasets.open(dataset), import_id)
        except NotFound:
            return None

    def _take_up(self, dataset: str, plan: ImportPlan, request: ImportRequest) -> str:
        """The id of an import that was planned, if it is the one that is asked for."""
        planned = replace(plan.request, on_error=request.on_error)
        if dump_json(planned.to_json()) != dump_json(request.to_json()):
            raise UnprocessableInput(
                "This idempotency key was used for another import. Use a new key.",
                code="idempotency_key_reused",
            )
        if request.on_error != plan.request.on_error == "stop":
            NoteBook(self._datasets.open(dataset), plan.import_id).skip()
        return plan.import_id

    def _settle_schema(
        self, dataset: str, source: Source, request: ImportRequest, form: FormName, ranges: Sequence[Range]
    ) -> None:
        """Give a dataset without a schema that of the first rows, so that no order of ranges changes it."""
        schema = self._find_schema(dataset, source, request, form, ranges)
        division = None if request.publish is None else request.publish.division
        if division is not None and not request.evolve:  # else later rows may bring the feature
            Dealer(division, schema)
        self._datasets.settle_schema(dataset, schema, evolve=request.evolve)

    def _find_schema(
        self, dataset: str, source: Source, request: ImportRequest, form: FormName, ranges: Sequence[Range]
    ) -> Schema:
        unreadable: InputError | None = None
        for part in ranges[:_LOOKED_AT]:
            append = request.append(dataset, form, part, key="schema", sequence=0)
            try:
                with self._body(source, form, part) as body:
                    schema = self._datasets.find_schema(append, body)
            except InputError as error:
                error.detail = f"{part.source.shown_name!a:.200}, from byte {part.start}: {error.detail}"
                if request.on_error == "stop":
                    raise
                unreadable = unreadable or error
            else:
                if schema is not None:
                    return schema
        raise unreadable or UnprocessableInput(
            f"The first objects of {request.shown_source!r} have no rows, from which the features would be "
            "known. Give a schema, or objects with rows.",
            code="no_records",
        )

    @contextmanager
    def _workspace(self, source: Source) -> Iterator[tuple[CountedSource, Workspace]]:
        counted = CountedSource(source)
        share = self._memory.share()
        amplification = Amplification(self._limits.max_amplification, lambda: counted.received)
        try:
            with Workspace(Budget(self._limits, share, amplification), self._spool) as workspace:
                yield counted, workspace
        finally:
            share.end()

    @contextmanager
    def _body(self, source: Source, form: FormName, part: Range) -> Iterator[AppendBody]:
        """The body of the append of a range."""
        with self._workspace(source) as (counted, workspace):
            body = open_range(counted, part, workspace, self._datasets.pool, is_tfrecord=form == "tfrecord")
            yield AppendBody(body, lambda: sha256(dump_json(part.to_json())).hexdigest(), workspace)

    def _open(self, dataset: Dataset, import_id: str) -> tuple[ImportPlan, Sequence[Range]]:
        """The plan, and its ranges."""
        key = dataset.layout.import_(import_id)
        known = self._plans.get(key)
        if known is not None:
            return known
        check_append_id(import_id)
        plan = open_plan(dataset, import_id)
        ranges = [part for page in plan.pages for part in read_page(dataset, page)]
        return self._plans.put(key, (plan, ranges), len(ranges))

    def follow(self, dataset: str, import_id: str) -> ImportStatus:
        """How far it is.

        Raises:
            NotFound: there is no such import (`import_not_found`).
        """
        opened = self._datasets.open(dataset)
        plan, ranges = self._open(opened, import_id)
        book = NoteBook(opened, import_id)
        return status_of(dataset, plan, ranges, book.read(), book)

    def cancel(self, dataset: str, import_id: str) -> ImportStatus:
        """End an import, unless it has ended. What was appended stays, and waits for a publication.

        Raises:
            NotFound: there is no such import (`import_not_found`).
            Conflict: its rows are being published already (`import_publishing`).
        """
        opened = self._datasets.open(dataset)
        self._open(opened, import_id)
        book = NoteBook(opened, import_id)
        if not book.decide("cancel") and book.ended() is None:
            raise Conflict(
                "All rows of the import are stored and are being published, so it cannot be cancelled any "
                "more. Wait for the version, or abort it.",
                code="import_publishing",
            )
        return self.follow(dataset, import_id)

    def may_read(self, dataset: str, import_id: str) -> bool:
        """Whether all that an import reads is allowed in this process.

        Raises:
            NotFound: there is no such import (`import_not_found`).
        """
        plan, ranges = self._open(self._datasets.open(dataset), import_id)
        listed = {part.source.name for part in ranges if "://" in part.source.name}
        allowed = self._allowed
        return allowed is None or all(is_allowed(url, allowed) for url in (plan.request.source, *listed))

    def tasks(self, dataset: str, import_id: str, *, index: int = 0, of: int = 1) -> list[Task]:
        """What is left to do: every `of`-th range, from the one with that index, then all that have failed.

        Raises:
            NotFound: there is no such import (`import_not_found`).
        """
        opened = self._datasets.open(dataset)
        plan, _ = self._open(opened, import_id)
        book = NoteBook(opened, import_id)
        if book.decision() is not None:
            return []
        notes = book.read()
        own = range(index, plan.num_ranges, of)
        return [
            Task(dataset, import_id, number, notes.attempts.get(number, 0))
            for number in (*own, *(number for number in sorted(notes.failed) if number not in own))
            if not notes.is_decided(number)
        ]

    def work(self, task: Task) -> Outcome:
        """Append one range; once it was appended, only say so.

        Raises:
            ShardsmithError: of the store; nothing is lost, and the same again goes on.
        """
        dataset = self._datasets.open(task.dataset)
        plan, ranges = self._open(dataset, task.import_id)
        part = ranges[task.index]
        book = NoteBook(dataset, task.import_id)
        if book.decision() is not None:
            return Outcome(task.index, "ended", part.num_bytes)
        attempt = task.attempt
        while True:
            outcome = self._try(dataset, plan, task.index, attempt, part, book)
            if outcome is not None:
                return outcome
            attempt += 1

    def _try(
        self, dataset: Dataset, plan: ImportPlan, index: int, attempt: int, part: Range, book: NoteBook
    ) -> Outcome | None:
        """One attempt; None if it never can be, and another has to."""
        key = plan.key_of(index, attempt)
        append_id = id_of_key(key)
        failure: FailureJson | None = None
        try:
            stored = self._append(dataset.name, plan, index, key, part)
        except InputError as error:
            failure = describe_failure(index, part, error)
            if plan.request.on_error == "stop" and not book.skips():
                book.failed(index, failure)
                return Outcome(index, "failed", part.num_bytes, failure=failure)
            # Taken first: another process may have stored the rows, or still be about to.
            slot = close_slot(dataset.store, dataset.layout, append_id)
            if not isinstance(slot, Dead):
                return self._note_done(book, index, part, slot)
        except Conflict as error:
            if error.code != "append_expired" or not _is_dead(dataset, append_id):
                raise
        else:
            return self._note_done(book, index, part, stored)
        if book.close(index, attempt, failure):
            return Outcome(index, "left", part.num_bytes, failure=failure)
        return None

    def _append(self, dataset: str, plan: ImportPlan, index: int, key: str, part: Range) -> AppendResult:
        append = plan.request.append(dataset, plan.form, part, key=key, sequence=index + 1)
        with self._body(open_source(plan.request.source, self._allowed), plan.form, part) as body:
            return self._datasets.append(append, body).result().stored

    def _note_done(self, book: NoteBook, index: int, part: Range, stored: AppendResult | Commit) -> Outcome:
        book.done(index, stored)
        return Outcome(index, "done", part.num_bytes, stored.num_records, stored.num_bytes)

    def write_shards(self, shards: UnwrittenShards) -> None:
        """As `Datasets.write_shards`."""
        self._datasets.write_shards(shards)

    def are_written(self, shards: UnwrittenShards) -> bool:
        """Whether no shard of that version is left to write.

        Raises:
            Conflict: its publication was given up (`publish_aborted`).
        """
        progress = self._datasets.follow(shards.dataset, shards.version)
        return isinstance(progress, Manifest) or progress.shards_done == progress.shards_total

    def finish(self, dataset: str, import_id: str, spread: Spread | None = None) -> ImportStatus:
        """Publish and end an import of which every range is decided; another is left as it is.

        Any number of processes may do so at a time.

        Args:
            spread: has several processes write the shards.

        Raises:
            InputError: the rows cannot be published as was asked for, which is noted.
            ShardsmithError: the publication failed; the same again goes on.
        """
        status = self.follow(dataset, import_id)
        if status.has_ended or not status.is_decided:
            return status
        book = NoteBook(self._datasets.open(dataset), import_id)

        def decide() -> None:
            if not book.decide("publish"):
                raise _Cancelled("The import was cancelled.")

        try:
            version = self._publish(dataset, status, decide, spread) if status.num_records else None
            decide()
            book.end(version)
        except InputError as error:
            book.refused(error)
            raise
        except _Cancelled:
            pass
        return self.follow(dataset, import_id)

    def _publish(
        self, dataset: str, status: ImportStatus, decide: Callable[[], None], spread: Spread | None
    ) -> str | None:
        options = status.plan.request.publish
        if options is None:
            return None
        keyed = options.with_key(status.plan.publish_key)
        while True:
            try:
                return self._datasets.publish(dataset, keyed, before_plan=decide, spread=spread).version
            except Conflict as error:
                if error.code == "nothing_to_publish":
                    # Others have published the rows meanwhile.
                    return self._published_by_others(dataset, status.plan)
                if error.code != "publish_in_progress":
                    raise
                pause(_AGAIN_S)

    def _published_by_others(self, dataset: str, plan: ImportPlan) -> str | None:
        notes = NoteBook(self._datasets.open(dataset), plan.import_id).read()
        keys = (plan.key_of(index, notes.attempts.get(index, 0)) for index in notes.done)
        return self._datasets.newest_with(dataset, map(id_of_key, keys))


def _is_dead(dataset: Dataset, append_id: str) -> bool:
    try:
        return isinstance(read_slot(dataset.store, dataset.layout, append_id), Dead)
    except ObjectNotFound:
        return False


def _is_hidden(name: str, folder: str) -> bool:
    """Whether a part of a name begins with `_` or `.`; a column's value (`_day=1`) does not count."""
    parts = path_of(name).removeprefix(folder).split("/")
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)


def _choose_objects(source: Source, request: ImportRequest) -> tuple[list[SourceObject], FormName, int]:
    """The objects to import by name, their format, and how many others there are.

    Names that begin with `_` or `.`, also of folders, are of what is not finished or no rows, as in Spark.
    A format that was said goes before the endings of names: where all of them tell others, all objects are
    taken, such as NDJSON in `.json`.
    """
    objects: list[SourceObject] = []
    passed_over = 0
    for item in source.list():
        # S3's consoles and Hadoop mark folders by empty objects.
        is_mark = not item.size and form_of(item.name) is None
        if is_mark or _is_hidden(item.name, source.folder):
            passed_over += 1
        else:
            objects.append(item)
        if len(objects) > MAX_OBJECTS:
            raise LimitExceeded(
                f"The source has more than {MAX_OBJECTS} objects. Import it in parts.", code="too_many_ranges"
            )
    if not objects:
        raise UnprocessableInput(
            f"All objects below {request.shown_source!r} are passed over: they are empty, or their names, or "
            "those of their folders, begin with _ or a dot. Name such a folder or object itself.",
            code="unknown_source_format",
        )
    forms = {form for item in objects if (form := form_of(item.name)) is not None}
    form = request.form
    if form is None:
        if len(forms) != 1:
            what = f"objects of several formats ({', '.join(sorted(forms))})" if forms else "no known ending"
            raise UnprocessableInput(
                f"The names below {request.shown_source!r} have {what}. Name the format, or a pattern such "
                "as *.parquet.",
                code="unknown_source_format",
            )
        (form,) = forms
    # Of those that do not tell by their names, the format was said.
    known = (form, None) if request.form is not None else (form,)
    chosen = [item for item in objects if form_of(item.name) in known] or objects
    return sorted(chosen, key=lambda item: item.name), form, passed_over + len(objects) - len(chosen)
