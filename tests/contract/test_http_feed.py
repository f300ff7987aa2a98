"""The client's feed against the service, over real sockets."""

import json
import pickle
import random
import select
import socket
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from app.client import ClientError, Unavailable
from app.client.connection import Patience
from app.client.errors import FeedError
from app.client.feed import Feed
from app.client.transport import BlockingTransport
from tests.support.service import Service

ROWS = 2000


@pytest.fixture(scope="module")
def name(client: httpx.Client) -> str:
    """A dataset of rows with their numbers, in three shards, and of another split."""
    name = f"d-{uuid.uuid4().hex[:8]}"
    append(client, name, range(ROWS))
    append(client, name, range(ROWS, ROWS + 300), split="validation")
    assert client.post(f"/v1/datasets/{name}/versions", params={"num_shards": 3}).status_code == 201
    return name


def append(client: httpx.Client, name: str, numbers: range, split: str = "train") -> None:
    lines = [json.dumps({"id": i, "x": [i + 0.5, -i], "name": f"row {i}"}) for i in numbers]
    answer = client.post(
        f"/v1/datasets/{name}/records",
        params={"split": split},
        headers={"Content-Type": "application/x-ndjson"},
        content="\n".join(lines).encode(),
    )
    assert answer.status_code == 201, answer.text


def feed(service: Service, name: str, **options: Any) -> Feed:
    return Feed(service.url, name, **{"global_batch": 48, "shuffle_buffer": 300, "seed": 7, **options})


def ids(batches: Any) -> list[int]:
    return [row for batch in batches for row in batch["id"].tolist()]


def test_an_epoch_is_all_rows_once_and_the_next_one_another_order(service: Service, name: str) -> None:
    with feed(service, name, drop_remainder=False) as rows:
        assert len(rows) == 42
        first = list(rows)
        second = list(rows)
    assert [len(batch["id"]) for batch in first] == [48] * 41 + [32]
    assert sorted(ids(first)) == sorted(ids(second)) == list(range(ROWS))
    assert ids(first) != ids(second)
    for batch in first:
        assert batch["x"].dtype == np.float32
        assert batch["x"].tolist() == [[i + 0.5, -i] for i in batch["id"].tolist()]
        assert batch["name"].tolist() == [f"row {i}" for i in batch["id"].tolist()]


def test_a_step_is_the_same_however_many_workers_there_are(service: Service, name: str) -> None:
    [alone] = [ids([batch]) for batch in [feed(service, name)[5]]]
    for workers in (2, 3, 8):
        together = []
        for worker in range(workers):
            with feed(service, name, worker=worker, num_workers=workers) as part:
                together += ids([part[5]])
        assert together == alone


@pytest.mark.parametrize("mix", [None, "train:5,validation:1"], ids=["split", "mixture"])
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_a_training_that_is_killed_goes_on_with_other_workers(
    service: Service, name: str, drop_remainder: bool, mix: str | None
) -> None:
    """1, then 3, 2 and 8 of them, across the end of an epoch; states go through JSON."""
    options = {"drop_remainder": drop_remainder, "mix": mix}
    with feed(service, name, **options) as whole:
        expected = [ids([batch]) for _ in range(2) for batch in whole]
    steps: list[list[int]] = []
    state = None
    random_ = random.Random(drop_remainder)
    for workers in (1, 3, 2, 8):
        left = len(expected) - len(steps)
        count = left if workers == 8 else random_.randrange(1, left // 2)
        of_workers = []
        for worker in range(workers):
            part = feed(service, name, worker=worker, num_workers=workers, **options)
            if state is not None:
                part.load_state_dict(state)
            of_workers.append(part)
        for _ in range(count):
            batches = [next(iter(part)) for part in of_workers]
            steps.append(ids(batches))
        states = [part.state_dict() for part in of_workers]
        assert all(other == states[0] for other in states)
        state = json.loads(json.dumps(states[0]))
        for part in of_workers:
            part.close()
    assert steps == expected


def test_a_state_says_what_was_trained_not_what_was_read_ahead(service: Service, name: str) -> None:
    with feed(service, name) as rows:
        ahead = [ids([batch]) for _, batch in zip(range(10), rows, strict=False)]
        state = rows.state_dict(steps_done=4)
        assert (state["epoch"], state["row"]) == (0, 4 * 48)
        assert rows.state_dict(steps_done=len(rows) + 2) | {"epoch": 1, "row": 96} == rows.state_dict(
            steps_done=len(rows) + 2
        )
        rows.load_state_dict(state)
        assert [ids([batch]) for _, batch in zip(range(6), rows, strict=False)] == ahead[4:]


def test_steps_are_found_at_random_and_ahead(service: Service, name: str) -> None:
    with feed(service, name) as rows:
        steps = [ids([batch]) for batch in rows]
        rows.start_epoch(0)
        for step in (3, 4, 5, 40, 0):
            assert ids([rows[step]]) == steps[step]
        assert ids([rows.ahead(2)]) == steps[2]
        assert rows.left() == len(rows) == 41
        with pytest.raises(IndexError):
            rows[41]
        copy = pickle.loads(pickle.dumps(rows))  # noqa: S301  # our own
        assert ids([copy[7]]) == steps[7]
        copy.close()


def test_threads_may_ask_for_steps_in_any_order(service: Service, name: str) -> None:
    with feed(service, name) as rows:
        steps = [ids([batch]) for batch in rows]
        rows.start_epoch(0)
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda step: ids([rows[step]]), range(len(rows)))) == steps
        order = [2, 0, 1, 5, 4, 3, 40, 6]
        assert [ids([rows[step]]) for step in order] == [steps[step] for step in order]


def test_a_feed_stays_with_its_version(service: Service, client: httpx.Client, name: str) -> None:
    copy = f"{name}-2"
    for number in range(2):
        body = [{"id": i} for i in range(100)]
        client.post(f"/v1/datasets/{copy}/records", json=body, headers={"Idempotency-Key": f"{number}"})
        assert client.post(f"/v1/datasets/{copy}/versions").status_code == 201
        if not number:
            old = feed(service, copy)
            state = old.state_dict()
    with feed(service, copy) as new:
        assert (old.version, old.steps.num_rows, new.steps.num_rows) == ("1.0.0", 100, 200)
        new.load_state_dict(state)
        assert (new.version, new.steps.num_rows) == ("1.0.0", 100)
        assert ids(new) == ids(old)
    old.close()


def test_a_mixture_has_its_shares_and_stays_with_its_versions(
    service: Service, client: httpx.Client, name: str
) -> None:
    other = f"{name}-3"
    mix = f"train:3,{other}@latest/train:1,validation:2"
    for number, count in enumerate((100, 50)):
        append(client, other, range(10_000 * (number + 1), 10_000 * (number + 1) + count))
        assert client.post(f"/v1/datasets/{other}/versions").status_code == 201
        if not number:
            old = feed(service, name, mix=mix, global_batch=12)
            batches = list(old)
            state = json.loads(json.dumps(old.state_dict(steps_done=7), sort_keys=True))
    # 100 rows of one in six: then that one has its turn, and has no more.
    assert len(batches) == len(old) == 50
    rows = np.array([batch["id"] for batch in batches])
    assert [((rows >= low) & (rows < high)).sum(axis=1).tolist() for low, high in
            ((0, ROWS), (ROWS, ROWS + 300), (10_000, 10_100))] == [[6] * 50, [4] * 50, [2] * 50]  # fmt: skip
    assert len(np.unique(rows)) == rows.size
    with feed(service, name, mix=mix, global_batch=12) as new:
        assert (old.mix, new.mix) == (mix.replace("latest", "1.0.0"), mix.replace("latest", "1.1.0"))
        assert len(new) == 75
        new.load_state_dict(state)
        assert (new.mix, len(new)) == (old.mix, 50)
        assert ids(new) == ids(batches[7:])
        with pytest.raises(FeedError, match=r"mix='train:3,.*this feed has 'train:4,"):
            feed(service, name, mix=mix.replace("train:3", "train:4")).load_state_dict(state)
        with pytest.raises(FeedError, match="split=None; this feed has 'train'"):
            feed(service, name).load_state_dict(state)
    old.close()


def test_values_go_through_transforms(service: Service, name: str) -> None:
    steps = {"x": [{"step": "scale", "factor": 2.0}]}
    with feed(service, name, transforms=steps) as scaled, feed(service, name) as plain:
        assert (scaled[3]["x"] == plain[3]["x"] * 2).all()
        with pytest.raises(FeedError, match="transforms"):
            scaled.load_state_dict(plain.state_dict())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"global_batch": 10, "num_workers": 4}, "multiple of num_workers"),
        ({"worker": 1}, "has no part"),
        ({"global_batch": 4000}, "less than a step"),
        ({"split": "test"}, "no split 'test'"),
        ({"mix": "train:1,test:1"}, "404 split_not_found: "),
        ({"mix": "train"}, "400 invalid_parameter: "),
        ({"mix": "train:1,nothing@latest/train:1"}, "404 dataset_not_found: "),
        ({"mix": "train:1", "split": "validation"}, "Leave one of them out"),
        ({"mix": "validation:1", "global_batch": 301}, "300 rows, less than a step"),
        ({"version": "7.0.0"}, "404 version_not_found: .*no published version"),
        ({"transforms": {"x": [{"step": "dance"}]}}, "400 invalid_transform: "),
        ({"seed": -1}, "400 invalid_parameter: .*seed"),
        ({"seed": 2**63}, "400 invalid_parameter: .*seed"),
        ({"shuffle_buffer": -1}, "400 invalid_parameter: .*shuffle_buffer"),
    ],
)
def test_unusable_feed_options_are_refused_at_once(
    service: Service, name: str, options: dict[str, Any], what: str
) -> None:
    with pytest.raises(ClientError, match=what):
        feed(service, name, **options)


def test_states_of_another_order_are_refused(service: Service, name: str) -> None:
    with feed(service, name) as rows:
        for change in (
            {"seed": 8},
            {"shuffle_buffer": 100},
            {"dataset": "other"},
            {"split": "test"},
            {"mix": "test:1"},
        ):
            with pytest.raises(FeedError, match=next(iter(change))):
                rows.load_state_dict(rows.state_dict() | change)
        with pytest.raises(FeedError, match="lacks epoch, row"):
            rows.load_state_dict({name: None for name in rows.state_dict() if name not in ("epoch", "row")})


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"epoch": None},
        {"epoch": "1"},
        {"epoch": 2**63},
        {"row": -48},
        {"row": 48.0},
        {"row": ROWS + 1},
        {"version": "7.0.0"},
        {"version": None},
        {"mix": {}},
    ],
)
def test_states_that_are_none_leave_the_feed_where_it_is(
    service: Service, name: str, change: dict[str, Any]
) -> None:
    with feed(service, name) as rows:
        first = next(iter(rows))
        state = rows.state_dict()
        with pytest.raises(ClientError):
            rows.load_state_dict(state | change)
        assert rows.state_dict() == state
        rows.start_epoch(0)
        assert ids([rows[0]]) == ids([first])


def test_a_version_that_cannot_be_fed_leaves_the_feed_with_its_own(
    service: Service, client: httpx.Client, name: str
) -> None:
    few = f"{name}-few"
    for number, count in enumerate((10, 100)):
        append(client, few, range(100 * number, 100 * number + count))
        assert client.post(f"/v1/datasets/{few}/versions").status_code == 201
    with feed(service, few) as rows:
        state = rows.state_dict()
        with pytest.raises(FeedError, match="10 rows, less than a step"):
            rows.load_state_dict(state | {"version": "1.0.0"})
        assert (rows.state_dict(), rows.steps.num_rows, len(list(rows))) == (state, 110, 2)


def test_negative_epoch_or_step_is_refused(service: Service, name: str) -> None:
    with feed(service, name) as rows:
        with pytest.raises(FeedError, match="no row 0 of epoch -1"):
            rows.start_epoch(-1)
        with pytest.raises(FeedError, match="-1 steps"):
            rows.state_dict(steps_done=-1)
        rows.start_epoch(2**63 - 2)
        assert len(list(rows)) == 41


def test_copies_begin_a_pass_where_that_of_another_one_has_ended(service: Service, name: str) -> None:
    """As a loader of PyTorch makes a process for each pass: memory is all that these share."""
    with feed(service, name) as rows:
        epochs = [[ids([batch]) for batch in rows] for _ in range(3)]
        rows.start_epoch(0)
        begin = np.zeros(2, np.int64)
        rows.share_begin(begin)

        def pass_in_a_copy(steps: int | None = None, state: dict[str, Any] | None = None) -> list[list[int]]:
            copy = pickle.loads(pickle.dumps(rows))  # noqa: S301  # our own
            copy.share_begin(begin)
            if state is not None:
                copy.load_state_dict(state)
            copy.begin_pass()
            with copy:
                return [ids([batch]) for batch in islice(copy, steps)]

        assert [pass_in_a_copy() for _ in range(2)] == epochs[:2]
        assert pass_in_a_copy(3) == epochs[2][:3]
        assert pass_in_a_copy() == epochs[2]
        assert rows.state_dict(steps_done=41 + 7) == rows.state_dict() | {"epoch": 1, "row": 7 * 48}
        rows.start_epoch(0)
        assert pass_in_a_copy() == epochs[0]
        assert pass_in_a_copy(state=rows.state_dict() | {"row": 96}) == epochs[0][2:]
        assert pass_in_a_copy() == epochs[1]


class Cutter:
    """Between a client and the service: each connection is cut after some bytes of answers, or refused."""

    def __init__(self, url: str, seed: int) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.num_cut = 0
        self.num_connections = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.num_connections += 1
            with client:
                # Mostly enough for the head and some batches; sometimes for nothing.
                self._pass_on(client, self._random.choice([0, 2000, 20_000, 40_000, 60_000]))

    def _pass_on(self, client: socket.socket, left: int) -> None:
        with socket.create_connection(self._target) as server:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(4096)
                    if not data:
                        return
                    if ready is client:
                        server.sendall(data)
                        continue
                    client.sendall(data[:left])
                    left -= len(data)
                    if left <= 0:
                        self.num_cut += 1
                        return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@contextmanager
def cut(service: Service, seed: int) -> Iterator[Cutter]:
    cutter = Cutter(service.url, seed)
    try:
        yield cutter
    finally:
        cutter.close()


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that tries again at once."""

    async def sleep(_: BlockingTransport, seconds: float) -> None:
        assert seconds > 0

    monkeypatch.setattr(BlockingTransport, "sleep", sleep)


@pytest.mark.usefixtures("no_waits")
def test_connections_that_break_lose_and_repeat_nothing(service: Service, name: str) -> None:
    with feed(service, name, global_batch=16) as whole:
        expected = ids(whole)
    with (
        cut(service, 1) as cutter,
        Feed(cutter.url, name, global_batch=16, shuffle_buffer=300, seed=7) as rows,
    ):
        assert ids(rows) == expected
    assert cutter.num_cut > 3


@pytest.mark.usefixtures("no_waits")
def test_a_service_that_is_gone_for_too_long_is_an_error(service: Service, name: str) -> None:
    with cut(service, 3) as cutter:
        rows = Feed(cutter.url, name, global_batch=16, patience_s=5.0)
    rows._connection.patience = Patience(0.0)
    with pytest.raises(Unavailable, match="has failed for 0 s"):
        next(iter(rows))
    rows.close()
