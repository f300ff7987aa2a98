"""No thread of the pool that asks the store waits for another one: so none can wait for ever, however few."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import pytest

from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import MemoryStream
from app.runtime.workspace import Workspace
from app.services.datasets.append.request import AppendBody, AppendRequest
from app.services.datasets.datasets import Appended, Datasets
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import open_store
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, Operation, When

ParamsT = ParamSpec("ParamsT")
ResultT = TypeVar("ResultT")

X = Schema.from_json({"features": {"x": {"dtype": "int64"}}})


class Leaf(ThreadPoolExecutor):
    """One thread, whose tasks must not give it another one: they could only wait for themselves."""

    def __init__(self) -> None:
        super().__init__(1)
        self.num_tasks = 0

    def submit(
        self, function: Callable[ParamsT, ResultT], /, *args: ParamsT.args, **kwargs: ParamsT.kwargs
    ) -> Future[ResultT]:
        assert threading.current_thread() not in self._threads, "a task that may wait for its own thread"
        self.num_tasks += 1
        return super().submit(function, *args, **kwargs)


class Replica(Client):
    """A replica with one thread for the store, and one for groups."""

    def __init__(self, store: FaultStore) -> None:
        super().__init__(store)
        self.leaf = Leaf()
        self.datasets = Datasets(
            store,
            limits=Limits(),
            spool=Spool(None, 1 << 30),
            executor=self.leaf,
            group_executor=ThreadPoolExecutor(1),
        )


@pytest.fixture
def store() -> FaultStore:
    return FaultStore(open_store("memory://"))


@pytest.fixture
def replica(store: FaultStore) -> Replica:
    return Replica(store)


def append(client: Client, rows: list[dict[str, Any]], *, evolve: bool = False) -> Future[Appended]:
    request = AppendRequest(
        dataset="d",
        split="train",
        form="json",
        key=None,
        decode=RecordsDecodeOptions(undeclared="error" if evolve else "drop"),
        encode=RecordsEncodeOptions(),
        evolve=evolve,
    )
    body = json.dumps(rows, separators=(",", ":")).encode()
    with Workspace(Budget(), Spool(None, MIB)) as workspace:
        arriving = AppendBody(MemoryStream(body), lambda: "digest", workspace)
        return client.datasets.append(request, arriving)


def test_a_member_that_is_read_again_in_the_thread_of_its_group_may_have_parts(
    replica: Replica, store: FaultStore
) -> None:
    replica.datasets.create("d", X, DatasetOptions())
    append(replica, [{"x": 1}]).result()

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "head" and key.endswith(".end"):
            store.fault = None
            append(Client(store), [{"x": 2, "y": [0.5] * 100_000}], evolve=True).result()

    store.fault = fault
    # By the schema that is remembered it is small, by that of then it is not.
    stored = append(replica, [{"x": 3, "y": [1] * 100_000}]).result(timeout=60)
    assert any("/parts/" in key for operation, key in store.requests if operation == "put")
    replica.publish()
    assert stored.stored.num_records == 1
    assert sorted(replica.read()) == [1, 2, 3]


@pytest.mark.parametrize(
    "options",
    [
        PublishOptions(),
        PublishOptions(num_shards=3, shuffle=True),
        PublishOptions(compression="gzip"),
        PublishOptions(fractions={"train": "0.5", "test": "0.5"}, by="x"),
    ],
    ids=["plain", "shuffled", "compressed", "divided"],
)
def test_every_way_through_the_store_does_with_one_thread(replica: Replica, options: PublishOptions) -> None:
    replica.append(range(3), pad=20 * MIB // 3)
    replica.append(range(3), pad=10, key="k")
    first = replica.publish()
    replica.append(range(4, 9), pad=MIB)
    version = replica.publish(options).version
    assert replica.leaf.num_tasks > 0
    assert replica.datasets.validate("d", version, Budget()).to_json()["valid"] is True
    assert len(replica.read(version)) + (len(replica.read(version, "test")) if options.fractions else 0) == 11
    replica.datasets.delete_version("d", first.version)
    assert replica.datasets.collect("d").num_failures == 0
    assert list(replica.datasets.versions("d")) == [version]
    assert list(replica.datasets.list()) == ["d"]
