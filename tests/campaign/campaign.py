"""A campaign from start to judgement: stores, replicas, clients, and what befalls them."""

import asyncio
import contextlib
import hashlib
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.api.query.datasets import PublishVersionQuery
from tests.campaign.clients import Clients
from tests.campaign.failpoints import Failpoint
from tests.campaign.fault_rules import Rule
from tests.campaign.faults_by_name import FAULTS
from tests.campaign.fleet import Fleet, Replica
from tests.campaign.journal import Journal
from tests.campaign.oracle import Oracle
from tests.campaign.raw_store import Bucket, Folder, RawStore
from tests.campaign.script import (
    Arm,
    Collect,
    Freeze,
    Kill,
    Operation,
    Publish,
    Read,
    Roll,
    SetFaults,
    datasets_of,
    script,
)
from tests.campaign.tensorflow_reader import check_with_tensorflow
from tests.campaign.workload import AppendSpec, Dataset
from tests.support.service import ROOT

__all__ = ["S3", "Proxy", "Report", "run_campaign"]

#: By how much collectors take everything for older than it is: parts go after a day, slots after a week.
_DAY_S = 25 * 3600
_WEEK_S = 8 * 24 * 3600
#: Wall clocks of the replicas, in seconds off the right time.
_SKEWS_S = (0.0, 40.0, -3600.0)
_PROGRESS_S = 5.0
_COLLECT_TRIES = 10
_FROZEN_S = 5.0

Progress = Callable[[str], None]


@dataclass(frozen=True)
class S3:
    """An S3 store on which a bucket can be made."""

    endpoint: str
    access_key: str = "testkey"
    secret_key: str = "testsecret"  # noqa: S105 (of a store on loopback)

    def environment(self, endpoint: str) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }


@dataclass(frozen=True)
class Report:
    """What came out of a campaign."""

    violations: list[str]
    counted: dict[str, Any]


class Proxy:
    """The proxy before the store, a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, control: int) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{port}"
        self._control = httpx.AsyncClient(base_url=f"http://127.0.0.1:{control}", timeout=30)

    @classmethod
    async def start(cls, endpoint: str) -> "Proxy":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.campaign.fault_proxy", "--upstream", endpoint.removeprefix("http://")),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        port, control = map(int, (await process.stdout.readline()).split())
        return cls(process, port, control)

    async def set_rules(self, rules: Iterable[Rule], seed: object = 0) -> None:
        value = {"seed": seed, "rules": [rule.to_json() for rule in rules]}
        await self._control.put("/rules", json=value)

    async def set_faults(self, name: str, seed: object) -> None:
        await self.set_rules(FAULTS[name], seed)

    async def counters(self) -> dict[str, Any]:
        value: dict[str, Any] = (await self._control.get("/counters")).json()
        return value

    async def calm_down(self) -> None:
        """No faults from now on; back when all that was to come late has come."""
        await self.set_faults("calm", 0)
        while (await self.counters())["late"]:
            await asyncio.sleep(0.2)

    async def stop(self) -> None:
        await self._control.aclose()
        self._process.kill()
        await self._process.wait()


class Collector:
    """A service to which everything in the store is older than it is, for collections."""

    def __init__(self, folder: Path, environment: Mapping[str, str], age_s: float) -> None:
        self._replica = Replica(folder, {**environment, "CAMPAIGN_STORE_CLOCK_S": str(age_s)})
        self._lock = asyncio.Lock()
        self.answers: Counter[int] = Counter()

    async def collect(self, dataset: str, failpoint: Failpoint | None = None) -> bool:
        """Whether it was done in the end; it dies at the failpoint, should it come by."""
        async with self._lock, httpx.AsyncClient(timeout=300) as client:
            for _ in range(_COLLECT_TRIES):
                if not self._replica.is_ready:
                    await self._replica.start()
                if failpoint is not None:
                    self._replica.arm(failpoint)
                    failpoint = None
                status = await self._post(client, dataset)
                self.answers[status] += 1
                self._replica.disarm()
                if 200 <= status < 500:
                    return status == 200
        return False

    async def _post(self, client: httpx.AsyncClient, dataset: str) -> int:
        thawing = asyncio.create_task(self._thaw())
        try:
            answer = await client.post(f"{self._replica.url}/v1/datasets/{dataset}/collect")
        except httpx.TransportError:
            await self._replica.wait()
            return 0
        finally:
            thawing.cancel()
        return answer.status_code

    async def _thaw(self) -> None:
        """Let it run on a while after a failpoint froze it."""
        before = len(self._replica.struck())
        while len(self._replica.struck()) == before:
            await asyncio.sleep(0.2)
        await asyncio.sleep(_FROZEN_S)
        self._replica.signal(signal.SIGCONT)

    def struck(self) -> Counter[str]:
        """How often which step killed or froze it."""
        struck = self._replica.struck()
        return Counter(f"collector: {point.action} {point.moment} {point.step}" for point in struck)

    async def stop(self) -> None:
        if self._replica.starts:
            await self._replica.stop()


class _Campaign:
    """The clients at work, and the supervisor among them."""

    def __init__(
        self,
        seed: int,
        fleet: Fleet,
        proxy: Proxy | None,
        clients: Clients,
        collector: Collector,
        at_once: int,
    ) -> None:
        self._seed = seed
        self._at_once = at_once
        self._fleet = fleet
        self._proxy = proxy
        self._clients = clients
        self._collector = collector
        self._epoch = 0
        self.done = 0

    async def run(self, operations: Sequence[Operation]) -> None:
        """Everything in the script; the fleet is unharmed at the end."""
        left = iter(operations)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._at_once):
                group.create_task(self._work(left))
        if self._proxy is not None:
            await self._proxy.calm_down()

    async def _work(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            await self._do(operation)
            self.done += 1
        # The others come to their end in peace.
        for replica in self._fleet.replicas:
            replica.disarm()
        if self._proxy is not None:
            await self._proxy.set_faults("calm", 0)

    async def _do(self, operation: Operation) -> None:
        replicas = self._fleet.replicas
        match operation:
            case AppendSpec():
                await self._clients.append(operation)
            case Publish():
                await self._clients.publish(operation)
            case Read():
                await self._clients.read(operation)
            case Arm(replica, failpoint):
                replicas[replica].arm(failpoint)
            case Kill(replica):
                self._fleet.kill(replicas[replica])
            case Freeze(replica, seconds):
                self._fleet.freeze(replicas[replica], seconds)
            case Roll():
                self._fleet.roll()
            case Collect(dataset, failpoint):
                await self._collector.collect(dataset, failpoint)
            case SetFaults(name):
                self._epoch += 1
                if self._proxy is not None:
                    await self._proxy.set_faults(name, f"{self._seed}:{self._epoch}")


async def run_campaign(
    folder: Path,
    *,
    seed: int,
    appends: int,
    replicas: int,
    s3: S3 | None,
    at_once: int = 16,
    tensorflow: bool = False,
    progress: Progress = lambda _: None,
) -> Report:
    """One campaign.

    Args:
        at_once: how many clients work at a time.
        folder: gets the journal, the logs of all processes, and the local store where `s3` is None.
    """
    journal = Journal(folder / "journal.jsonl")
    datasets = datasets_of(appends, frozenset(PublishVersionQuery.model_fields))
    operations = list(script(seed, appends, replicas, datasets))
    progress(
        f"script {hashlib.sha256(repr(operations).encode()).hexdigest()[:16]}: {len(operations)} operations"
    )
    async with contextlib.AsyncExitStack() as resources:
        resources.callback(journal.close)
        proxy = None if s3 is None else await Proxy.start(s3.endpoint)
        if proxy is not None:
            resources.push_async_callback(proxy.stop)
        raw, store = _store(folder, seed, s3, proxy)
        fleet = Fleet(folder, store, [_SKEWS_S[i % len(_SKEWS_S)] for i in range(replicas)])
        resources.push_async_callback(fleet.stop)
        await fleet.start()
        clients = Clients(fleet, journal, datasets, seed)
        resources.push_async_callback(clients.close)
        for dataset in datasets.values():
            if dataset.is_declared:
                await clients.create(dataset)
        collector = Collector(folder / "collector", store, _DAY_S)
        resources.push_async_callback(collector.stop)
        campaign = _Campaign(seed, fleet, proxy, clients, collector, at_once)
        reporting = asyncio.create_task(_report(campaign, journal, fleet, len(operations), progress))
        try:
            await campaign.run(operations)
        finally:
            reporting.cancel()
        await fleet.stop()
        for complaint in fleet.complaints:
            journal.violation(complaint)
        if journal.violations:
            for traceback in filter(None, (replica.last_traceback() for replica in fleet.replicas)):
                journal.violation(f"the last traceback in a replica's log: {traceback}")
        progress("judging")
        checked = await _judge(folder, store, journal, raw, datasets, appends, collector, tensorflow)
        counted = {
            "appends": dict(journal.answers),
            "kills": dict(fleet.kills() + collector.struck()),
            **({} if proxy is None else await proxy.counters()),
            "checked": dict(checked),
            "collections": dict(collector.answers),
            "downloads that their digest belied": journal.damaged_downloads,
        }
        if not journal.violations:
            await asyncio.to_thread(raw.remove)
    return Report(journal.violations, counted)


def _store(folder: Path, seed: int, s3: S3 | None, proxy: Proxy | None) -> tuple[RawStore, dict[str, str]]:
    """The store, and how a service is told of it."""
    if s3 is None or proxy is None:
        root = folder / "store"
        root.mkdir()
        return Folder(root), {"SHARDSMITH_STORAGE_URL": root.as_uri()}
    name = f"campaign-{seed}-{int(time.time())}"
    bucket = Bucket(proxy.url, s3.access_key, s3.secret_key, name)
    return bucket, {"SHARDSMITH_STORAGE_URL": f"s3://{name}", **s3.environment(proxy.url)}


async def _judge(
    folder: Path,
    store: Mapping[str, str],
    journal: Journal,
    raw: RawStore,
    datasets: Mapping[str, Dataset],
    appends: int,
    collector: Collector,
    tensorflow: bool,
) -> Counter[str]:
    """What a replica that knows of nothing finds; then what is left after collection."""
    judge = Replica(folder / "judge", store)
    await judge.start()
    oracle = Oracle(judge.url, journal, raw)
    try:
        await asyncio.to_thread(oracle.judge, datasets, appends)
        if tensorflow:
            for violation in await asyncio.to_thread(check_with_tensorflow, oracle, raw):
                journal.violation(violation)
        await _collect(folder, store, journal, oracle, datasets, appends + len(datasets), collector)
    finally:
        oracle.close()
        await judge.stop()
    return oracle.counted


async def _collect(
    folder: Path,
    store: Mapping[str, str],
    journal: Journal,
    oracle: Oracle,
    datasets: Mapping[str, Dataset],
    first_index: int,
    collector: Collector,
) -> None:
    """What is left once everything is a day old, and then a week; versions stay as they are."""
    names = list(oracle.manifests)
    weekly = Collector(folder / "weekly", store, _WEEK_S)
    try:
        for each in (collector, weekly):
            for name in names:
                if not await each.collect(name):
                    journal.violation(f"{name} could not be collected")
            await asyncio.to_thread(oracle.check_collected, names, slots=each is collector)
        await asyncio.to_thread(oracle.check_unchanged, datasets)
        # What versions consumed is forgotten by now; none of it may come again.
        await asyncio.to_thread(oracle.judge, datasets, first_index, is_forgotten=True)
    finally:
        await weekly.stop()


async def _report(
    campaign: _Campaign, journal: Journal, fleet: Fleet, operations: int, progress: Progress
) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_S)
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(journal.answers.items()))
        kills = sum(fleet.kills().values())
        progress(
            f"{campaign.done} of {operations} operations; appends: {told}; "
            f"{kills} kills and the like; {len(journal.violations)} violations"
        )
