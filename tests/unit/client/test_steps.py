"""Steps out of answers that end at any byte, with or without an error."""

import pickle
from typing import Any

import httpx
import numpy as np
import pytest

from app.client.connection import Answer, Connection
from app.client.steps import StepReader, Steps
from app.client.transport import BlockingTransport
from tests.unit.client.test_arrow import written

SIZE, NUM_STEPS = 3, 4
FEATURES = {"id": {"dtype": "int64"}, "name": {"dtype": "text"}}


class Body:
    """An answer whose end comes too early: as if it were the right one, or as an error."""

    status = 200
    headers = httpx.Headers()

    def __init__(self, data: bytes, *, breaks: bool) -> None:
        self._pieces = [data[begin : begin + 50] for begin in range(0, len(data), 50)]
        self._breaks = breaks

    async def next_piece(self) -> bytes | None:
        if not self._pieces and self._breaks:
            raise httpx.ReadError("broken")
        return self._pieces.pop(0) if self._pieces else None

    async def close(self) -> None:
        pass


class Service:
    """Has the rows 0, 1, ... of an epoch, and cuts its first answer."""

    def __init__(self, cut_at: int | None, *, breaks: bool) -> None:
        self.starts: list[int] = []
        self._cut_at, self._breaks = cut_at, breaks

    async def open_step(self, epoch: int, row: int) -> Answer:
        batches: list[dict[str, list[Any]]] = [
            {"id": list(ids), "name": [f"row {epoch} {i}" for i in ids]}
            for ids in (range(begin, begin + SIZE) for begin in range(row, SIZE * NUM_STEPS, SIZE))
        ]
        self.starts.append(row)
        cut_at, self._cut_at = self._cut_at, None
        return Answer(Body(written(FEATURES, batches)[:cut_at], breaks=self._breaks))


def reader(service: Service) -> StepReader:
    return StepReader(Connection(BlockingTransport(), "http://nowhere"), service.open_step, SIZE)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(_: BlockingTransport, seconds: float) -> None:
        assert seconds > 0

    monkeypatch.setattr(BlockingTransport, "sleep", sleep)


@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
def test_an_answer_that_is_cut_at_any_byte_loses_and_repeats_nothing(breaks: bool) -> None:
    data = written(FEATURES, [{"id": [0] * SIZE, "name": ["row 0 0"] * SIZE}] * NUM_STEPS)
    num_again = set()
    for cut_at in range(len(data)):
        service = Service(cut_at, breaks=breaks)
        steps = reader(service)
        batches = [steps.read(0, SIZE * step) for step in range(NUM_STEPS)]
        assert np.concatenate([batch["id"] for batch in batches]).tolist() == list(range(SIZE * NUM_STEPS))
        assert batches[-1]["name"].tolist() == [f"row 0 {i}" for i in range(SIZE * 3, SIZE * 4)]
        assert len(service.starts) <= 2
        num_again.add(service.starts[-1])
    # Each step was the one to go on with.
    assert num_again == {SIZE * step for step in range(NUM_STEPS)}


def test_steps_that_were_passed_over_are_kept() -> None:
    service = Service(None, breaks=False)
    steps = reader(service)
    assert [steps.read(0, SIZE * step)["id"][0] for step in (0, 3, 1, 2)] == [0, 9, 3, 6]
    assert service.starts == [0]
    assert steps.read(0, 0)["id"][0] == 0
    steps.read(0, SIZE * 2)
    steps.forget()
    steps.read(0, SIZE)
    assert service.starts == [0, 0, SIZE]


def test_a_copy_opens_an_answer_of_its_own() -> None:
    service = Service(None, breaks=False)
    steps = reader(service)
    steps.read(0, 0)
    copy = pickle.loads(pickle.dumps(steps))  # noqa: S301  # our own
    assert copy.read(0, SIZE)["id"][0] == steps.read(0, SIZE)["id"][0] == SIZE
    assert service.starts == [0]


@pytest.mark.parametrize("drop_remainder", [True, False])
def test_places_are_those_of_counting_one_by_one(drop_remainder: bool) -> None:
    steps = Steps(10, 4, drop_remainder)
    place, places = (0, 0), []
    for _ in range(9):
        places.append(place)
        epoch, row = place
        following = row + 4
        ended = following >= 10 or (drop_remainder and following + 4 > 10)
        place = (epoch + 1, 0) if ended else (epoch, following)
    for first in range(3):
        assert [steps.after(*places[first], count) for count in range(6)] == places[first : first + 6]
    assert steps.left(0) == (2 if drop_remainder else 3)
    for row in (0, 4, 8):
        shares = [steps.rows_of(row, worker, 4) for worker in range(4)]
        assert sum(shares) == min(4, 10 - row)
        assert max(shares) - min(shares) <= 1
