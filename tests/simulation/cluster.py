"""The replicas of a run, which die and begin anew, and the clients that send them requests."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from app.domain.limits import Limits
from app.domain.manifest import Manifest
from app.errors import ShardsmithError
from app.runtime.spool import Spool
from app.services.datasets.datasets import Datasets
from app.services.datasets.objects.incarnation import Destination
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish.room import Room
from tests.simulation.ledger import Append, Ledger
from tests.simulation.scheduler import GreenletExecutor, Process, Scheduler, StepLimit
from tests.simulation.store import Connection, Faults
from tests.support.faulty_store import Killed

__all__ = ["SPOOL", "Answer", "Client", "Cluster", "Replica"]

ResultT = TypeVar("ResultT")

SPOOL: Final = Spool(None, 1 << 30)


class _Datasets(Datasets):
    """The service's own; but who asks for a publication waits for it, in no thread of its own."""

    def publish_within(
        self,
        name: str,
        options: PublishOptions,
        *,
        wants: str | None = None,
        destination: Destination | None = None,
        room: Room | None = None,
    ) -> Manifest:
        return self.publish(name, options, wants=wants, destination=destination, room=room)


@dataclass
class Replica:
    """A place where one process of the service runs after the other."""

    cluster: Cluster
    name: str
    skew: float
    lives: int = 0

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        cluster = self.cluster
        self.lives += 1
        self.process = Process(f"{self.name}{self.lives}", self.skew)
        connection = Connection(cluster.ledger.objects, cluster.scheduler, self.process, cluster.faults)
        self.datasets = _Datasets(
            connection,
            limits=Limits(),
            spool=SPOOL,
            executor=self._threads(),
            group_executor=self._threads(),
        )
        #: The append that was acknowledged last, by dataset and split.
        self.acknowledged: dict[tuple[str, str], Append] = {}

    def _threads(self) -> GreenletExecutor:
        return GreenletExecutor(self.cluster.scheduler, self.process, self.cluster.num_threads)

    def alive(self) -> Replica:
        if self.process.dead:
            self._begin()
        return self


@dataclass
class Cluster:
    """The replicas of a run, and what watches them."""

    scheduler: Scheduler
    ledger: Ledger
    faults: Faults
    num_threads: int = 16
    replicas: list[Replica] = field(default_factory=list)

    def start(self, name: str, skew: float) -> Replica:
        replica = Replica(self, name, skew)
        self.replicas.append(replica)
        return replica

    def any(self) -> Replica:
        rng = self.scheduler.rng
        return self.replicas[int(rng.random() * len(self.replicas))].alive()


@dataclass(frozen=True, slots=True)
class Answer(Generic[ResultT]):
    """What a client got: a value, an error, or nothing since the replica died."""

    value: ResultT | None = None
    error: ShardsmithError | None = None
    lost: bool = False

    @property
    def is_done(self) -> bool:
        return self.error is None and not self.lost


class Client:
    """Sends requests to replicas; each is served in this client's greenlet."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.ledger = cluster.ledger
        self.scheduler = cluster.scheduler
        self.rng = cluster.scheduler.rng

    def ask(self, call: Callable[[Datasets], ResultT], replica: Replica | None = None) -> Answer[ResultT]:
        """One request. An error that is not the service's own is a violation."""
        replica = replica or self.cluster.any()
        actor = self.scheduler.current
        try:
            if actor is not None:
                actor.process, actor.since = replica.process, self.scheduler.now
            value = call(replica.datasets)
            self.scheduler.step("answer", "")
            return Answer(value)
        except Killed:
            return Answer(lost=True)
        except StepLimit:
            raise
        except ShardsmithError as error:
            return Answer(error=error)
        except Exception as error:
            where = traceback.format_exc(limit=-6)
            self.ledger.violate("answer", f"{type(error).__name__}: {error}\n{where}")
            return Answer(error=ShardsmithError("a crash"))
        finally:
            if actor is not None:
                actor.process = None

    def pause(self, *choices: float) -> None:
        self.scheduler.sleep(self.rng.choice(choices) * self.rng.random())
