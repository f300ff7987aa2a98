"""Replicas as processes: started, killed, frozen, restarted."""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Mapping
from pathlib import Path

import httpx

from tests.campaign.failpoints import Failpoint
from tests.support.service import ROOT, free_port

__all__ = ["Fleet", "Replica"]

_READY_WITHIN_S = 400
_WATCH_S = 0.1
_LOOK_S = 2.0


class Replica:
    """One place in the fleet: a port, a folder, and the process that serves there now."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        (self._folder / "armed").mkdir(parents=True)
        self._armed = 0
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.starts = 0
        self.is_ready = False
        #: Whether it answered lately, as whatever spreads the load over replicas finds out.
        self.is_responsive = True
        self._environment = {
            **os.environ,
            **environment,
            "SHARDSMITH_HOST": "127.0.0.1",
            "SHARDSMITH_PORT": str(self.port),
            "SHARDSMITH_LOG_LEVEL": "warning",
        }
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    async def start(self) -> None:
        """Start it and wait until it is ready, or dead again."""
        self.starts += 1
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "tests.campaign.replica", str(self._folder)),
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        async with httpx.AsyncClient() as client, asyncio.timeout(_READY_WITHIN_S):
            while self.process.returncode is None and not self.is_ready:
                with contextlib.suppress(httpx.TransportError):
                    self.is_ready = (await client.get(f"{self.url}/readyz")).status_code == 200
                await asyncio.sleep(0 if self.is_ready else _WATCH_S)

    def arm(self, failpoint: Failpoint) -> None:
        """Set a failpoint; it strikes once."""
        self._armed += 1
        staged = self._folder / "staged"
        staged.write_text(failpoint.serialize(), encoding="ascii")
        staged.replace(self._folder / "armed" / str(self._armed))

    def disarm(self) -> None:
        """Take back all that have not struck."""
        for file in (self._folder / "armed").iterdir():
            file.unlink(missing_ok=True)

    def struck(self) -> list[Failpoint]:
        """The failpoints that struck, in order."""
        fired = self._folder / "fired"
        return list(map(Failpoint.parse, fired.read_text().splitlines())) if fired.exists() else []

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def look(self, client: httpx.AsyncClient) -> None:
        """See whether it answers."""
        try:
            await client.get(f"{self.url}/livez")
            self.is_responsive = True
        except httpx.TransportError:
            self.is_responsive = False

    async def wait(self) -> int:
        """Until the process has ended; its status."""
        status = await self.process.wait()
        self.is_ready = False
        return status

    async def stop(self) -> None:
        """End it at once."""
        self.signal(signal.SIGKILL)
        await self.wait()

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def last_traceback(self) -> str | None:
        """What its log says of the last defect it met."""
        _, found, rest = self.log().rpartition("Traceback")
        return found + rest if found else None


class Fleet:
    """Replicas that are started again whenever they die."""

    def __init__(self, folder: Path, environment: Mapping[str, str], skews: list[float]) -> None:
        self.replicas = [
            Replica(folder / f"replica-{i}", {**environment, "CAMPAIGN_CLOCK_S": str(skew)})
            for i, skew in enumerate(skews)
        ]
        self.killed: Counter[str] = Counter()
        self.complaints: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._rolling = asyncio.Lock()

    async def start(self) -> None:
        # The first compiles the kernels, should they not be.
        first, *others = self.replicas
        await first.start()
        await asyncio.gather(*(replica.start() for replica in others))
        for replica in self.replicas:
            self._begin(self._keep_up(replica))
            self._begin(self._thaw_at_failpoints(replica))
            self._begin(self._look_after(replica))

    async def stop(self) -> None:
        """End everything at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for replica in self.replicas:
            if replica.starts:
                await replica.stop()

    def choose(self, dice: random.Random) -> Replica:
        """Some replica that takes requests, as far as we know."""
        able = [replica for replica in self.replicas if replica.is_ready and replica.is_responsive]
        return dice.choice(able or self.replicas)

    def kill(self, replica: Replica) -> None:
        self.killed["SIGKILL at any moment"] += 1
        replica.signal(signal.SIGKILL)

    def freeze(self, replica: Replica, seconds: float) -> None:
        """Stop it, and let it run on later."""
        self.killed["frozen at any moment"] += 1
        replica.signal(signal.SIGSTOP)
        self._begin(self._thaw(replica, seconds))

    def roll(self) -> None:
        """Restart all, one after the other, as a deployment does."""
        self.killed["rolling restart"] += 1
        self._begin(self._roll())

    def kills(self) -> Counter[str]:
        """How often which step killed or froze, and what else did."""
        counted = Counter(self.killed)
        for replica in self.replicas:
            for point in replica.struck():
                counted[f"{point.action} {point.moment} {point.step}"] += 1
        return counted

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_up(self, replica: Replica) -> None:
        while True:
            status = await replica.wait()
            if status not in (0, -signal.SIGKILL):
                self.complaints.append(f"a replica ended with status {status}: {replica.log()[-2000:]}")
            await replica.start()

    async def _look_after(self, replica: Replica) -> None:
        async with httpx.AsyncClient(timeout=_LOOK_S) as client:
            while True:
                await asyncio.sleep(_LOOK_S)
                await replica.look(client)

    async def _thaw_at_failpoints(self, replica: Replica) -> None:
        known = 0
        while True:
            await asyncio.sleep(_WATCH_S)
            struck = replica.struck()
            if any(point.action == "freeze" for point in struck[known:]):
                self._begin(self._thaw(replica, 5))
            known = len(struck)

    async def _thaw(self, replica: Replica, seconds: float) -> None:
        process = replica.process
        try:
            await asyncio.sleep(seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)

    async def _roll(self) -> None:
        async with self._rolling:
            for replica in self.replicas:
                await self._until_ready(replica, replica.starts)
                starts = replica.starts
                replica.is_ready = False  # a load balancer asks it for work no more
                replica.signal(signal.SIGTERM)
                await self._until_ready(replica, starts + 1)

    async def _until_ready(self, replica: Replica, starts: int) -> None:
        while replica.starts < starts or not replica.is_ready:
            await asyncio.sleep(_WATCH_S)
