"""Trainings that are killed and go on with other numbers of workers see what one that was not killed sees."""

import random
from itertools import islice
from typing import Any

import pytest

from app.codecs.columns import in_batches
from app.domain.sharding.row_order import RowOrder
from app.runtime.budget import Budget
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish.shards import writer as shard_writer
from app.storage.obstore_store import open_store
from tests.support.arrow_rows import as_arrow
from tests.support.dataset_rows import Client

ROWS = 1000
#: The rows of another split, which has every fourth turn of a mixture.
OTHERS = range(ROWS, ROWS + 260)
MIXTURE = [("d", "latest", "train", 3), ("d", "latest", "test", 1)]


@pytest.fixture(scope="module")
def client() -> Client:
    """A version of some forty pieces, in three shards."""
    client = Client(open_store("memory://"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_writer, "PIECE_BYTES", 1000)
        client.append(range(ROWS))
        client.append(OTHERS, split="test")
        client.publish(PublishOptions(num_shards=3))
    return client


def steps(client: Client, mixed: bool, num_steps: int | None = None, **order: Any) -> list[list[Any]]:
    """The rows of each step of one worker; it is killed after `num_steps`."""
    rows = RowOrder(**order)
    if mixed:
        found = client.datasets.read_mixture(MIXTURE, order=rows, budget=Budget())
    else:
        found = client.datasets.read_records("d", "latest", "train", order=rows, budget=Budget())
    size = order["global_batch"] // order["num_workers"]
    batches = as_arrow(in_batches(found, size, Budget()))
    return [batch.column("x").to_pylist() for batch in islice(batches, num_steps)]


def check(client: Client, seed: int, *, mixed: bool) -> None:
    chance = random.Random(seed)
    order = {
        "shuffle_buffer": chance.choice([0, 1, 7, 100, 300, 5000]),
        "seed": seed,
        "epoch": chance.randrange(5),
        "global_batch": chance.choice([24, 48, 120]),
        "drop_remainder": True,
    }
    expected = steps(client, mixed, **order, num_workers=1)
    # Of the mixture, the end is the turn at which the other split has no more rows.
    assert len(expected) == (4 * len(OTHERS) if mixed else ROWS) // order["global_batch"]
    done: list[list[Any]] = []
    for num_workers in (1, 3, 2, 8):
        left = len(expected) - len(done)
        count = left if num_workers == 8 else chance.randrange(left + 1)
        start = len(done) * order["global_batch"]
        workers = [
            steps(client, mixed, count, **order, start=start, worker=worker, num_workers=num_workers)
            for worker in range(num_workers)
        ]
        done += [[row for part in parts for row in part] for parts in zip(*workers, strict=True)]
    assert done == expected
    rows = [row for step in done for row in step]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("mixed", [False, True], ids=["split", "mixture"])
@pytest.mark.parametrize("seed", range(20))
def test_a_training_goes_on_with_other_workers(client: Client, seed: int, mixed: bool) -> None:
    check(client, seed, mixed=mixed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mixed", [False, True], ids=["split", "mixture"])
def test_a_thousand_trainings_go_on_with_other_workers(client: Client, mixed: bool) -> None:
    for seed in range(1000):
        check(client, seed, mixed=mixed)
