"""Datasets: rows appended durably, published as immutable versions of TFRecord shards, read back.

All state is on the object store, so that any number of replicas may serve it, and any of them may
die at any step. Three objects decide everything, each created at most once: the slot acknowledges
an append, the plan fixes what a version will hold, the manifest publishes it. So each acknowledged
append is in exactly one step from one version to the next, and a version is whole or invisible.
Writing is in `append` and `publish`, reading in `read`, maintenance in `collect` and `validate`, the names of
all objects in `objects.layout`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Literal, NotRequired

from typing_extensions import TypedDict

from ...codecs.columns import Records
from ...domain.limits import Limits
from ...domain.manifest import Manifest
from ...domain.names import check_append_id, parse_version
from ...domain.schema import Schema, SchemaJson
from ...domain.sharding.row_order import IN_ORDER, RowOrder
from ...errors import Conflict, CorruptData, NotFound, ShardsmithError, StorageUnavailable
from ...runtime.budget import Budget
from ...runtime.images import ImageCodecs
from ...runtime.memory import MemoryPool
from ...runtime.spool import Spool
from ...runtime.threads import Threads
from ...storage.object_store import ObjectNotFound, ObjectStore
from ...transforms.images.processes import ImageProcesses
from ...transforms.parse import check_transforms, resulting_schema
from ..deferred import completed, then
from .append.appends import Appends
from .append.request import AppendBody, AppendRequest
from .append.result import AppendResult
from .collect.collector import Collector
from .collect.leftover_versions import delete_version
from .collect.sweep import SweepReport
from .counting import count_collection, count_publication
from .objects.catalog import Catalog
from .objects.dataset import Backend, Dataset
from .objects.incarnation import DatasetOptions, Destination
from .objects.log import Aborted
from .objects.publish_options import PublishOptions
from .objects.slot import Commit, read_slot
from .objects.stored_json import dump_json
from .publications import Publications, Underway
from .publish.new_appends import NewAppends
from .publish.progress import Progress, progress_of
from .publish.publisher import Publisher, abort_version, write_shards
from .publish.room import Room
from .publish.unwritten import Spread, UnwrittenShards
from .publish.waiting import WaitingAppends, WaitingJson
from .read.overview import Published, Summary, read_history, summarize
from .read.reader import Reader
from .read.stored_file import StoredFile
from .read.stored_split import StoredSplit, read_mixture
from .read.tar import VersionTar
from .recent_appends import RecentAppends
from .unpublished_watch import UnpublishedWatch
from .validate.problems import ValidationReport
from .validate.tensorflow_check import check_with_tensorflow
from .validate.validator import Validator
from .version_statistics import Computing, VersionStatistics, VersionStatisticsJson

#: Requests to the store under way for listings and for reading ahead, over all requests of a replica.
_STORE_THREADS: Final = 16
#: Groups of small appends that are stored at a time. These threads wait for the others, never the reverse:
#: what runs in the store's threads waits for nothing but the store, so that they always come free.
_GROUP_THREADS: Final = 32
#: After so long a client hears that its publication goes on: many give up on a request after 60 s.
PUBLISH_WAIT_S: Final = 30.0
#: So many waiting appends are looked at to say of a dataset how much they are: a request to the store each.
_COUNTED_APPENDS: Final = 256


class DatasetJson(TypedDict):
    """A dataset as it is now; `latest_version` is null until something is published."""

    dataset: str
    generation: int
    schema: SchemaJson | None
    description: str
    keep_versions: int | None
    latest_version: str | None
    waiting: WaitingJson


class AppendStatusJson(TypedDict):
    """What became of an append; `version` is the one that holds it, or left it out."""

    dataset: str
    split: NotRequired[str]
    append_id: str
    num_records: NotRequired[int]
    num_bytes: NotRequired[int]
    state: Literal["acknowledged", "published", "excluded", "dead"]
    version: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer to an append.

    Attributes:
        stored: what was stored.
        published: the version that was asked for along with it, or that its publication goes on.
    """

    stored: AppendResult
    published: Manifest | Underway | None = None


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """A dataset as it is now.

    Attributes:
        latest_version: None until something is published.
        waiting: up to 256 of the appends that no version holds yet.
    """

    dataset: str
    generation: int
    schema: Schema | None
    options: DatasetOptions
    latest_version: str | None
    waiting: WaitingAppends

    def to_json(self) -> DatasetJson:
        return {
            "dataset": self.dataset,
            "generation": self.generation,
            "schema": None if self.schema is None else self.schema.to_json(),
            "description": self.options.description,
            "keep_versions": self.options.keep_versions,
            "latest_version": self.latest_version,
            "waiting": self.waiting.counts(),
        }


class Datasets:
    """The datasets on one object store. Safe to use from several threads; every call blocks.

    Any call may raise `MalformedInput` for a name that is not allowed and `StorageError` where the
    store fails; all but `create`, `schema`, `append` and `list` raise `NotFound` if the dataset is not
    there.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        limits: Limits,
        spool: Spool,
        memory: MemoryPool | None = None,
        images: ImageCodecs | None = None,
        publish_wait_s: float = PUBLISH_WAIT_S,
        executor: ThreadPoolExecutor | None = None,
        group_executor: ThreadPoolExecutor | None = None,
    ) -> None:
        """Wire the parts.

        Args:
            memory: what all requests may hold, on which publications draw; without bounds where it is not
                given.
            images: decodes and encodes images; made where it is not given.
            executor: runs the requests to the store that go side by side; made where it is not given.
            group_executor: stores groups of small appends; likewise.
        """
        pool = self.pool = executor or Threads(_STORE_THREADS, thread_name_prefix="store")
        groups = group_executor or ThreadPoolExecutor(_GROUP_THREADS, thread_name_prefix="group")
        self._catalog = Catalog(store, pool)
        self._backend = Backend(store, self._catalog, pool, spool)
        self._appends = Appends(self._backend, limits, groups, images or ImageProcesses())
        self._memory = memory or MemoryPool(sys.maxsize)
        self._publications = Publications(publish_wait_s, self._memory)
        self._statistics = VersionStatistics(publish_wait_s, self._memory)
        self._collector = Collector(self._backend)
        self._is_closed = False

    @property
    def num_publications(self) -> int:
        """Publications under way."""
        return self._publications.num_running

    def create(self, name: str, schema: Schema | None, options: DatasetOptions) -> tuple[DatasetInfo, bool]:
        """Create a dataset; the same again finds it. Also says whether it was created.

        Raises:
            Conflict: it exists with another schema or other options (`dataset_exists`).
            InputError: transforms that cannot be done.
        """
        if schema is not None:
            schema = resulting_schema(check_transforms(schema))
        incarnation, created = self._catalog.create(name, schema, options)
        return _describe(Dataset(self._backend, incarnation), created=created), created

    def get(self, name: str) -> DatasetInfo:
        """The dataset as it is now."""
        return _describe(self._backend.open(name))

    def delete(self, name: str) -> None:
        """Delete a dataset with all its versions. Created again, it begins at the next major version."""
        self._catalog.end(name)

    def schema(self, name: str) -> Schema | None:
        """The schema that rows for this dataset must have; None while there is none, or no dataset."""
        incarnation = self._catalog.find(name)
        return None if incarnation is None else self._catalog.schema(incarnation)

    def append(self, request: AppendRequest, body: AppendBody) -> Future[Appended]:
        """Store rows durably; then publish, if the request asks for that.

        All of the body is read before this returns. The answer may come a moment later, if the rows are
        stored together with those of others.

        Raises:
            ShardsmithError: at once or as the answer: as `Appends.store`, and as `publish`. If the
                publication failed after the append was acknowledged, the error carries `append_id`.
        """
        if request.publish is None:
            return then(self._appends.append(request, body), Appended)
        return completed(self._append_and_publish(request, body, request.publish))

    def append_decoded_together(
        self, request: AppendRequest, data: bytes
    ) -> Future[AppendResult | None] | None:
        """As `append`, for a small JSON body without a key: it is decoded together with those of others.

        None, now or as the answer, if `append` has to be asked; then nothing is stored.
        """
        return self._appends.append_decoded_together(request, data)

    def close(self) -> None:
        """Store the appends that wait to be decoded: the process ends, which cuts publications short."""
        self._is_closed = True
        self._appends.close()

    def find_schema(self, request: AppendRequest, body: AppendBody) -> Schema | None:
        """As `Appends.find_schema`."""
        return self._appends.find_schema(request, body)

    def settle_schema(self, dataset: str, schema: Schema, *, evolve: bool) -> None:
        """As `Appends.settle_schema`."""
        self._appends.settle_schema(dataset, schema, evolve=evolve)

    def open(self, name: str) -> Dataset:
        """The dataset itself, for what is built on appends."""
        return self._backend.open(name)

    def _append_and_publish(
        self, request: AppendRequest, body: AppendBody, options: PublishOptions
    ) -> Appended:
        with ExitStack() as resources:
            room: Room | None = None
            if request.key is None:
                # Before the rows are stored: sent again without a key, they would be stored twice.
                room = resources.enter_context(self._publications.reserve())
            destination = self._catalog.destination(request.dataset)
            stored = self._appends.store(request, body, destination)
            try:
                published = self.publish_within(
                    request.dataset, options, wants=stored.append_id, destination=destination, room=room
                )
            except ShardsmithError as error:
                error.extra["append_id"] = stored.append_id
                raise
            return Appended(stored, published)

    def get_append(self, name: str, append_id: str) -> AppendStatusJson:
        """What became of an append: `state` is acknowledged, dead, or, with `version`, published or excluded.

        Raises:
            NotFound: no such append (`append_not_found`).
        """
        check_append_id(append_id)
        dataset = self._backend.open(name)
        try:
            slot = read_slot(dataset.store, dataset.layout, append_id)
        except ObjectNotFound as error:
            raise NotFound(f"Dataset {name!r} has no append {append_id}.", code="append_not_found") from error
        if not isinstance(slot, Commit):
            return {"dataset": name, "append_id": append_id, "state": "dead"}
        fate = Reader(dataset).fate_of(append_id, slot.nonce)
        status: AppendStatusJson = {
            "dataset": name,
            "split": slot.split,
            "append_id": append_id,
            "num_records": slot.num_records,
            "num_bytes": slot.num_bytes,
            "state": "acknowledged" if fate is None else "excluded" if fate[1] else "published",
        }
        if fate is not None:
            status["version"] = fate[0]
        return status

    def waiting_appends(self, name: str, *, after: str = "", limit: int = 100) -> WaitingAppends:
        """Acknowledged appends that no version holds yet, by id.

        Args:
            after: an id; those behind it are listed.
            limit: how many are looked at; some may turn out to be dead.
        """
        if after:
            check_append_id(after)
        dataset = self._backend.open(name)
        return _waiting(dataset, Reader(dataset).latest(), after, limit)

    def publish(
        self,
        name: str,
        options: PublishOptions,
        *,
        wants: str | None = None,
        destination: Destination | None = None,
        before_plan: Callable[[], None] = lambda: None,
        on_plan: Callable[[str], None] = lambda _: None,
        room: Room | None = None,
        spread: Spread | None = None,
    ) -> Manifest:
        """Publish every acknowledged append as the next version.

        Args:
            wants: an append that must be in the version, or in an earlier one, which is then the
                answer. With it a publication in progress is helped along instead of refused.
            destination: where that append went.
            before_plan: called once nothing is against the version, and before it is fixed; what it raises
                leaves all as it was.
            on_plan: told the version as soon as it is fixed.
            room: what was reserved for it; taken now where it is not given.
            spread: has other processes write shards by `write_shards`.

        Raises:
            Conflict: another publication is in progress (`publish_in_progress`, with `version`), or
                begun by another release (`encoder_mismatch`); this one was given up by an operator
                (`publish_aborted`); there is nothing new (`nothing_to_publish`); the wanted append is
                gone with its dataset (`dataset_deleted`); one to be left out is published
                (`append_published`).
            NotFound: an append to be left out is not there (`append_not_found`).
            UnprocessableInput: the publish key was used with other options (`idempotency_key_reused`);
                rows cannot be dealt out as asked (`split_not_found`, `invalid_division`).
            LimitExceeded: more shards than the size of the records allows (`too_many_shards`).
            CorruptData: an acknowledged append cannot be read back; the version is aborted.
            Overloaded: there is no memory for it; nothing was done for this version.
        """
        backend = self._backend
        dataset = backend.open(name) if destination is None else backend.reopen(destination.layout)
        with Room(self._memory) if room is None else room.retain() as room:
            try:
                with count_publication(lambda: self._is_closed):
                    publisher = Publisher(dataset, room, spread)
                    manifest = publisher.publish(options, wants, before_plan, on_plan)
                backend.unpublished.changed.set()
                return manifest
            except (CorruptData, NotFound, StorageUnavailable):
                # Collection takes the files of a deleted dataset from under a publication.
                dataset.require_alive()
                raise

    def write_shards(self, shards: UnwrittenShards) -> None:
        """Write shards of a version that is being published, as far as they are still to be written.

        Any process may, also several the same ones; whoever began the publication, or takes it up, ends it.

        Raises:
            NotFound: no such version was begun (`version_not_found`).
            Conflict: another release began it (`encoder_mismatch`).
            StorageError: the store failed; the same again goes on.
            Overloaded: there is no memory for it.
        """
        with Room(self._memory) as room:
            write_shards(self._backend.open(shards.dataset), room, shards)

    def publish_within(
        self,
        name: str,
        options: PublishOptions,
        *,
        wants: str | None = None,
        destination: Destination | None = None,
        room: Room | None = None,
    ) -> Manifest | Underway:
        """As `publish`, but let go of the caller where it takes long; the same call again follows it.

        A call without publish key and wanted append follows what began with the same options and was
        let go of: the appends acknowledged since are not in that version.

        Raises:
            Overloaded: too many publications are under way (`too_many_publications`), or there is no memory.
        """
        layout = self._catalog.open(name).layout if destination is None else destination.layout
        request = (layout, options.publish_key, wants, dump_json(options.to_json()))
        return self._publications.run(
            request,
            lambda on_plan, taken: self.publish(
                name, options, wants=wants, destination=destination, on_plan=on_plan, room=taken
            ),
            dataset=name,
            exact=options.publish_key is not None or wants is not None,
            room=room,
        )

    def abort(self, name: str, version: str) -> str:
        """Give up a version that is being published; its appends are free again. Says why it was given up.

        Raises:
            NotFound: no such version was begun (`version_not_found`).
            Conflict: it is published (`version_published`).
        """
        return abort_version(self._backend.open(name), version)

    def versions(self, name: str) -> Sequence[str]:
        """Every published version, oldest first."""
        return Reader(self._backend.open(name)).versions()

    def manifest(self, name: str, version: str) -> Manifest:
        """The manifest of `version`, which is `x.y.z` or `latest`.

        Raises:
            NotFound: no such version (`version_not_found`).
        """
        return Reader(self._backend.open(name)).manifest(version)

    def follow(self, name: str, version: str) -> Manifest | Progress:
        """The manifest of `version`; or, as long as it is being published, how far that is.

        Raises:
            NotFound: no such version (`version_not_found`).
            Conflict: its publication was given up (`publish_aborted`).
        """
        dataset = self._backend.open(name)
        reader = Reader(dataset)
        try:
            return reader.manifest(version)
        except NotFound:
            n = 0 if version == "latest" else dataset.layout.number(parse_version(version))
            progress = progress_of(dataset, n) if n else None
            if progress is None:
                raise
        verdict = dataset.log.verdict(n)
        if isinstance(verdict, Aborted):
            raise Conflict(
                f"The publication of version {version} was given up: {verdict.reason} Its rows are free for "
                f"another one.",
                code="publish_aborted",
                extra={"version": version},
            )
        # Published meanwhile; or deleted, as is said once more.
        return progress if verdict is None else reader.manifest(version)

    def publications(self) -> Sequence[tuple[str, str | None]]:
        """The dataset and the version of each publication of this replica; None until that is fixed."""
        return self._publications.under_way()

    @property
    def recent_appends(self) -> RecentAppends:
        """What this process has acknowledged lately."""
        return self._backend.recent

    def newest_with(self, name: str, append_ids: Iterable[str]) -> str | None:
        """The last version that has published one of these appends; None where none is known to."""
        return Reader(self._backend.open(name)).newest_with(append_ids)

    def open_file(self, name: str, version: str, file: str) -> StoredFile:
        """A shard or side file that the manifest of `version` names.

        Raises:
            NotFound: it names no such file (`file_not_found`), or there is no such version.
            CorruptData: the store does not have it as the manifest says.
        """
        return Reader(self._backend.open(name)).open_file(version, file)

    def open_tar(self, name: str, version: str) -> VersionTar:
        """All files of `version` as one tar, below the folder `<dataset>/<version>`.

        Raises:
            NotFound: no such version (`version_not_found`).
        """
        return Reader(self._backend.open(name)).open_tar(version)

    def read_records(
        self,
        name: str,
        version: str,
        split: str,
        *,
        offset: int = 0,
        length: int | None = None,
        order: RowOrder = IN_ORDER,
        budget: Budget,
    ) -> Records:
        """Rows of a split, from `offset`, all of the rest unless `length` says fewer.

        Args:
            order: in which they come, and which share of them.

        Raises:
            NotFound: no such version or split (`version_not_found`, `split_not_found`).
            UnprocessableInput: a negative offset or length (`invalid_range`).
            CorruptData: the stored rows do not match their checksums; also as batches are drawn.
        """
        return self._open_split(name, version, split).read(offset, length, order, budget)

    def read_mixture(
        self, parts: Sequence[tuple[str, str, str, int]], *, order: RowOrder = IN_ORDER, budget: Budget
    ) -> Records:
        """Rows of several splits in turns, until one that has its turn has no more rows.

        Args:
            parts: dataset, version, split and weight of each: so many of its rows come in a round.
            order: in which each comes, and which share of the mixture.

        Raises:
            NotFound: no such dataset, version or split.
            UnprocessableInput: their features differ (`mixed_schemas`).
            CorruptData: the stored rows do not match their checksums; also as batches are drawn.
        """
        splits = [self._open_split(name, version, split) for name, version, split, _ in parts]
        return read_mixture(splits, [weight for *_, weight in parts], order, budget)

    def _open_split(self, name: str, version: str, split: str) -> StoredSplit:
        return Reader(self._backend.open(name)).open_split(version, split)

    def statistics(
        self, name: str, version: str, split: str, *, caller: str = "", wait_s: float | None = None
    ) -> VersionStatisticsJson | Computing:
        """The statistics of each feature of a split; or, while they are being found, how far that is.

        They are found by the first who asks, and kept beside the version.

        Args:
            caller: who has no more than half of what is found at a time.
            wait_s: how long they are waited for; None: as long as a publication.

        Raises:
            NotFound: no such version or split (`version_not_found`, `split_not_found`).
            Overloaded: there is no memory for it, or too much waits.
            CorruptData: the stored rows do not match their checksums.
        """
        return self._statistics.get(self._backend.open(name), version, split, caller, wait_s)

    def delete_version(self, name: str, version: str) -> None:
        """Delete a published version: it is found no more, and an hour later collection takes its bytes.

        Raises:
            NotFound: no such version (`version_not_found`).
            Conflict: it is the last one (`version_is_latest`).
        """
        dataset = self._backend.open(name)
        delete_version(dataset.store, dataset.layout, Reader(dataset).deletable(version))

    def validate(
        self, name: str, version: str, budget: Budget, *, with_tensorflow: bool = False
    ) -> ValidationReport:
        """Check every byte of a published version against all that is on record about it.

        Args:
            budget: the memory that it needs is taken from it before it begins.
            with_tensorflow: have TensorFlow read and parse the records instead (`check_with_tensorflow`).

        Raises:
            NotFound: no such version (`version_not_found`).
            Overloaded: there is no memory for it.
            UnprocessableInput: TensorFlow is not installed, or does not come to an end.
        """
        dataset = self._backend.open(name)
        n, manifest = Reader(dataset).find(version)
        if with_tensorflow:
            return check_with_tensorflow(dataset, n, manifest, budget)
        return Validator(dataset).validate(n, manifest, budget)

    def collect(
        self, name: str, *, dry_run: bool = False, stopped: Callable[[], bool] = lambda: False
    ) -> SweepReport:
        """Remove what no version and no append of the dataset needs any more, in all its lives.

        Args:
            dry_run: say what would go, and change nothing.
            stopped: asked now and then; once true, the run ends early.

        Raises:
            NotFound: there is no dataset, and nothing of a deleted one (`dataset_not_found`).
        """
        if dry_run:
            return self._collector.collect(name, dry_run=True, stopped=stopped)
        with count_collection() as counted:
            report = self._collector.collect(name, dry_run=False, stopped=stopped)
            counted.append(report)
        return report

    @property
    def oldest_unpublished_s(self) -> float:
        """Seconds since the oldest append in no version was acknowledged; see `unpublished_watch`."""
        return self._backend.unpublished.age_s

    def unpublished_watch(self) -> UnpublishedWatch:
        """What keeps `oldest_unpublished_s` true, once it is started; without it that is 0."""
        return UnpublishedWatch(self._backend)

    def collectable(self) -> Sequence[str]:
        """The names of all datasets of which there may be something to collect, also of those deleted."""
        return self._catalog.candidates()

    def summarize(self, names: Sequence[str]) -> Sequence[Summary]:
        """Each of these datasets in one line; one that is not there is left out."""
        return summarize(self._backend, names)

    def history(self, name: str, most: int) -> tuple[Sequence[Published], bool]:
        """The newest versions of a dataset, newest first, `most` of them; and whether there are older."""
        return read_history(self._backend.open(name), most)

    def list(self) -> Sequence[str]:
        """The names of all datasets, sorted."""
        return self._catalog.names()


def _waiting(dataset: Dataset, latest: int, after: str, limit: int, *, whole: bool = True) -> WaitingAppends:
    return NewAppends(dataset).page(dataset.log.seen(latest), after, limit, whole=whole)


def _describe(dataset: Dataset, *, created: bool = False) -> DatasetInfo:
    latest = Reader(dataset).latest()
    return DatasetInfo(
        dataset.name,
        dataset.layout.generation,
        dataset.schema(),
        dataset.options,
        str(dataset.layout.version(latest)) if latest else None,
        WaitingAppends() if created else _waiting(dataset, latest, "", _COUNTED_APPENDS, whole=False),
    )
