"""Replicas of one store, restarted one after the other while rows arrive (row 57 of the faults)."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.service import Service, start

pytestmark = pytest.mark.campaign

WRITERS = 3
#: Appends that each writer has to have acknowledged at each stage.
APPENDS = 5
PATIENCE_S = 300


class Fleet:
    """Two replicas over one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = 0
        self.replicas = [self._start(), self._start()]

    def _start(self) -> Service:
        self._started += 1
        own = self._folder / str(self._started)
        own.mkdir()
        return start(own, SHARDSMITH_STORAGE_URL=(self._folder / "data").as_uri())

    def wait_until_ready(self) -> None:
        for replica in self.replicas:
            replica.wait_until_ready()

    def restart(self, number: int) -> None:
        """As a deployment does it: the new one is ready before the old one is told to end."""
        old, new = self.replicas[number], self._start()
        new.wait_until_ready()
        self.replicas[number] = new
        assert old.stop() == 0

    def kill(self) -> None:
        for replica in self.replicas:
            replica.kill()


class Writer(threading.Thread):
    """Appends one row after the other, each under a key, until it is acknowledged; at any replica."""

    def __init__(self, fleet: Fleet, number: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._fleet = fleet
        self._number = number
        self._over = over
        self.acknowledged: list[str] = []
        self.refused: list[str] = []

    def run(self) -> None:
        with httpx.Client(timeout=30) as client:
            for index in range(10**6):
                if self._over.is_set():
                    return
                self._append(client, f"{self._number}-{index}")

    def _append(self, client: httpx.Client, row: str) -> None:
        for attempt in range(10**6):
            replica = self._fleet.replicas[(self._number + attempt) % 2]
            try:
                answer = client.post(
                    f"{replica.url}/v1/datasets/rolled/records",
                    json=[{"id": row}],
                    headers={"Idempotency-Key": row},
                )
            except httpx.TransportError:
                continue
            if answer.status_code == 201:
                self.acknowledged.append(row)
                return
            # Ending, or the same is still done by the one that was asked before.
            if answer.status_code not in (409, 503) or "retry-after" not in answer.headers:
                self.refused.append(answer.text)
                return
            time.sleep(0.1)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    started = Fleet(tmp_path)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.kill()


def wait_for_appends(writers: list[Writer]) -> None:
    """Until each has as many more."""
    wanted = [len(writer.acknowledged) + APPENDS for writer in writers]
    deadline = time.monotonic() + PATIENCE_S
    while any(len(writer.acknowledged) < count for writer, count in zip(writers, wanted, strict=True)):
        assert time.monotonic() < deadline
        assert not any(writer.refused for writer in writers), [writer.refused for writer in writers]
        time.sleep(0.05)


def test_no_acknowledged_append_is_lost_by_a_rolling_restart(fleet: Fleet) -> None:
    over = threading.Event()
    writers = [Writer(fleet, number, over) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        wait_for_appends(writers)
        for number in range(2):
            fleet.restart(number)
            wait_for_appends(writers)
    finally:
        over.set()
        for writer in writers:
            writer.join()
    url = f"{fleet.replicas[0].url}/v1/datasets/rolled/versions"
    assert httpx.post(url, timeout=60).status_code == 201
    rows = httpx.get(f"{url}/latest/records", params={"split": "train", "to": "json"}, timeout=60).json()
    acknowledged = [row for writer in writers for row in writer.acknowledged]
    assert sorted(row["id"] for row in rows) == sorted(acknowledged)
    assert [writer.refused for writer in writers] == [[]] * WRITERS
