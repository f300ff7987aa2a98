"""Clients that append and publish, and what they may be told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from app.codecs.columns import Batch, Records
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.manifest import Manifest
from app.domain.schema import Schema
from app.errors import (
    Conflict,
    CorruptData,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    ShardsmithError,
    StorageError,
    StreamInterrupted,
    UnprocessableInput,
)
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from app.runtime.workspace import Workspace
from app.services.datasets.append.request import AppendBody, AppendRequest
from app.services.datasets.append.result import AppendResult
from app.services.datasets.datasets import Datasets
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publications import Underway
from tests.simulation.cluster import SPOOL, Answer, Client, Replica
from tests.simulation.ledger import Append, Version
from tests.simulation.scheduler import HOUR
from tests.support.dataset_rows import records

__all__ = ["PATIENCE_S", "Appending", "Publishing"]

#: A client gives up on an append after so long: its key is remembered for seven days.
PATIENCE_S: Final = 24 * HOUR
#: What a row takes once it is encoded.
ROW_BYTES: Final = 30


@dataclass(frozen=True, slots=True)
class PublishCall:
    """A publish, and what its client knows when it sends it."""

    dataset: str
    options: PublishOptions
    known: tuple[Append, ...]
    begun: float
    repeated: bool


class Publishing(Client):
    """Publishes a dataset now and then."""

    def run(self, dataset: str, times: int) -> None:
        for turn in range(times):
            self.pause(1.0, 10.0, 90.0, 4 * HOUR)
            options = self._options(dataset, turn)
            for attempt in range(3):
                if self.publish(dataset, options, repeated=attempt > 0 and options.publish_key is not None):
                    break
                self.pause(5.0, 70.0, 200.0)

    def _options(self, dataset: str, turn: int) -> PublishOptions:
        rng = self.rng
        shuffle, divide = rng.random() < 0.1, rng.random() < 0.1
        return PublishOptions(
            num_shards=(num_shards := rng.choice((None, None, 1, 2, 3))),
            shard_bytes=rng.choice((None, 64, 200)) if num_shards is None else None,
            compression=rng.choice(("none", "none", "none", "gzip", "zlib")),
            shuffle=shuffle,
            seed=turn if shuffle or divide else None,
            fractions={"train": "0.6", "test": "0.4"} if divide else None,
            by="x" if divide and rng.random() < 0.5 else None,
            base="none" if rng.random() < 0.1 else "latest",
            exclude=self._left_out(dataset) if rng.random() < 0.1 else (),
            publish_key=f"publish-{rng.getrandbits(32):08x}" if rng.random() < 0.4 else None,
        )

    def _left_out(self, dataset: str) -> tuple[str, ...]:
        known = [append for append in self.ledger.appends if append.dataset == dataset and append.answers]
        if not known:
            return ()
        append = self.rng.choice(known)
        append_id = append.answers[0].append_id
        self.ledger.left_out.add((dataset, append_id))
        return (append_id,)

    def publish(self, dataset: str, options: PublishOptions, *, repeated: bool) -> bool:
        """Whether there is no need to repeat it."""
        begun = self.scheduler.now
        known = tuple(
            append
            for append in self.ledger.appends
            if append.dataset == dataset and append.acknowledged is not None
        )
        call = PublishCall(dataset, options, known, begun, repeated)
        answer = self.ask(lambda datasets: datasets.publish(dataset, options))
        return self.judge(call, answer)

    def judge(self, call: PublishCall, answer: Answer[Manifest]) -> bool:
        error = answer.error
        deleted = self.ledger.may_be_deleted(call.dataset, call.begun)
        if answer.value is not None:
            version = self.ledger.version(call.dataset, answer.value.version)
            if version is None and not deleted:
                self.ledger.violate("answer", f"{answer.value.version} of {call.dataset} is not published")
            if version is not None and not call.repeated:
                self._require(call, version)
            return True
        if answer.lost:
            return False
        if isinstance(error, CorruptData) and not deleted:
            self.ledger.violate("answer", f"publish: {error.code}: {error.detail}")
        if isinstance(error, Conflict) and error.code == "nothing_to_publish":
            version = self.ledger.latest(call.dataset)
            self._require(call, version)
            return True
        if isinstance(error, UnprocessableInput) and error.code == "idempotency_key_reused":
            self.ledger.violate("answer", f"publish: {error.detail}")
        return isinstance(error, (NotFound, UnprocessableInput))

    def _require(self, call: PublishCall, version: Version | None) -> None:
        """An append acknowledged before the publish began is in that version or an earlier one."""
        total = {} if version is None else version.total
        for append in call.known:
            if self.ledger.is_left_out(append) or any(append.rows[0] in rows for rows in total.values()):
                continue
            if not self.ledger.may_be_deleted(append.dataset, append.begun):
                name = "no version" if version is None else version.name
                self.ledger.violate("lost", f"{append} is not in {name}, published after it")


class Appending(Publishing):
    """Appends rows, again under its key where that may be needed."""

    def run_appends(self, appends: list[Append]) -> None:
        replica = self.cluster.any() if self.rng.random() < 0.5 else None
        for append in appends:
            self.pause(0.1, 1.0, 30.0, 2 * HOUR)
            append.begun = self.scheduler.now
            for attempt in range(4):
                chosen = replica.alive() if replica is not None and attempt == 0 else self.cluster.any()
                if self.append(append, chosen, first=attempt == 0):
                    break
                if self.scheduler.now - append.begun > PATIENCE_S:
                    break
                self.pause(0.5, 5.0, 60.0, 2 * HOUR)

    def append(self, append: Append, replica: Replica, *, first: bool) -> bool:
        """One try; whether it was the last."""
        before = replica.acknowledged.get((append.dataset, append.split))
        publish = PublishOptions() if first and self.rng.random() < 0.1 else None
        interrupted = not self.scheduler.calm and self.rng.random() < 0.05
        begun = self.scheduler.now
        answer = self.ask(lambda datasets: self._send(datasets, append, publish, interrupted), replica)
        error = answer.error
        if answer.value is not None:
            result, manifest = answer.value
            self._acknowledge(append, result, replica, before)
            if manifest is not None:
                call = PublishCall(append.dataset, PublishOptions(), (append,), begun, repeated=False)
                self.judge(call, Answer(manifest))
            return True
        if error is not None and "append_id" in error.extra:  # stored, but not published
            append.acknowledged = self.scheduler.now
            return True
        if answer.lost or isinstance(error, OutcomeUnknown):
            append.unknown = True
            return append.key is None
        return self._refused(append, error)

    def _send(
        self, datasets: Datasets, append: Append, publish: PublishOptions | None, interrupted: bool
    ) -> tuple[AppendResult, Manifest | None]:
        request = AppendRequest(
            append.dataset,
            append.split,
            "json",
            RecordsDecodeOptions(),
            RecordsEncodeOptions(),
            key=append.key,
            publish=publish,
            sequence=append.sequence,
            evolve=append.padded is not None,
        )
        body = _Body(
            # Only its length counts: it says whether this is a small append.
            MemoryStream(bytes(ROW_BYTES * len(append.rows))),
            lambda: f"{append.split}:{append.rows}",
            Workspace(Budget(), SPOOL),
            append,
            interrupted,
        )
        future = datasets.append(request, body)
        self.scheduler.await_(future)
        appended = future.result()
        assert not isinstance(appended.published, Underway)
        return appended.stored, appended.published

    def _acknowledge(
        self, append: Append, result: AppendResult, replica: Replica, before: Append | None
    ) -> None:
        if append.acknowledged is None:
            append.acknowledged = self.scheduler.now
        if result.num_records != len(append.rows) or result.split != append.split:
            self.ledger.violate("answer", f"{append} was answered {result}")
        if any(result.append_id != earlier.append_id for earlier in append.answers):
            self.ledger.violate("answer", f"{append} was answered with another id")
        if not result.replayed and not append.unknown:
            append.sequel_of = before
            replica.acknowledged[append.dataset, append.split] = append
        append.answers.append(result)

    def _refused(self, append: Append, error: ShardsmithError | None) -> bool:
        if isinstance(error, Conflict) and error.code == "append_expired":
            append.refused = append.refused or "too late" in error.detail
            return append.refused
        if isinstance(error, UnprocessableInput) and error.code == "idempotency_key_reused":
            rivals = [other for other in self.ledger.appends if other.key == append.key]
            if len(rivals) < 2:
                self.ledger.violate("answer", f"{append} was told that its key was used")
            append.refused = True
            return True
        if isinstance(error, (Overloaded, StorageError, StreamInterrupted)):
            return False
        if isinstance(error, Conflict) and error.code == "append_in_progress":
            return False
        if isinstance(error, Conflict) and error.code == "dataset_deleted":
            if not self.ledger.may_be_deleted(append.dataset, append.begun):
                self.ledger.violate("answer", f"{append} was told that its dataset is deleted")
            return False
        if error is not None:
            self.ledger.violate("answer", f"{append}: {error.code}: {error.detail}")
        return True


@dataclass(frozen=True, slots=True)
class _Body(AppendBody):
    """A body whose rows need no parsing."""

    append: Append
    interrupted: bool

    def read_rows(self, request: AppendRequest, stored: Schema | None) -> Records:
        rows = records(self.append.rows, pad=3 if self.append.padded else None)
        return replace(rows, batches=_interrupted(rows.batches)) if self.interrupted else rows


def _interrupted(batches: Iterator[Batch]) -> Iterator[Batch]:
    yield next(batches)
    raise StreamInterrupted("The client went away.")
