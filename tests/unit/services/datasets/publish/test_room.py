"""A publication takes its memory before it does anything, and is refused only while nothing is done."""

import pytest

from app.domain.limits import MIB
from app.errors import Overloaded
from app.runtime.memory import MemoryPool
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.publish.room import Room
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, keys
from tests.support.publish_plans import lay_down

LAYOUT = Layout("d", 1)
#: A record longer than a part of an append, so that it takes several pieces.
LONG = 20 * MIB


@pytest.fixture
def pool() -> MemoryPool:
    return MemoryPool(600 * MIB)


def taken(pool: MemoryPool) -> int:
    """What a publication takes at first; nothing else may have any yet."""
    with Room(pool):
        return pool.used


def test_a_room_grows_with_the_longest_record_and_ends_with_its_last_holder(pool: MemoryPool) -> None:
    least = taken(pool)
    room = Room(pool)
    for lengths in ([], [0, MIB], [2 * MIB, 0], [MIB]):
        room.require_for(lengths, shuffled=False)
    assert pool.used == least + 4 * MIB
    room.require_for([2 * MIB], shuffled=True)
    assert pool.used > least + 8 * MIB
    shuffled = pool.used
    room.require_for([2 * MIB], shuffled=True, reencoded=True)
    assert pool.used > shuffled + 16 * MIB
    room.retain()
    room.end()
    assert pool.used > least
    room.end()
    assert pool.used == 0


def test_a_small_pool_lets_one_publish(store: FaultStore) -> None:
    pool = MemoryPool(64 * MIB)
    client = Client(store, memory=pool)
    client.append([1], pad=LONG)
    client.publish()
    assert client.read() == [1]
    assert pool.used == 0


def test_without_memory_nothing_is_planned(store: FaultStore, pool: MemoryPool) -> None:
    client = Client(store, memory=pool)
    client.append([1])
    before = keys(store)
    others = [pool.share(), pool.share()]
    for other in others:
        other.reserve(250 * MIB)
    with pytest.raises(Overloaded, match="nothing was done"):
        client.publish()
    assert keys(store) == before
    others[0].end()
    assert client.publish().version == "1.0.0"


@pytest.mark.parametrize("divided", [False, True], ids=["whole", "divided"])
def test_without_memory_for_the_longest_record_nothing_is_planned(
    store: FaultStore, pool: MemoryPool, divided: bool
) -> None:
    client = Client(store, memory=pool)
    client.append([1], pad=LONG)
    before = keys(store)
    left = taken(pool) + LONG
    others = [pool.share(), pool.share()]
    others[0].reserve(300 * MIB)
    others[1].reserve(300 * MIB - left)
    options = PublishOptions(fractions={"test": "1"} if divided else None)
    with pytest.raises(Overloaded, match="nothing was done"):
        client.publish(options)
    assert keys(store) == before
    others[1].end()
    assert client.publish(options).version == "1.0.0"


def test_without_memory_a_plan_of_another_stays_as_it_is(store: FaultStore, pool: MemoryPool) -> None:
    client = Client(store, memory=pool)
    appended = client.append([1], pad=LONG)
    lay_down(client.datasets)
    before = keys(store)
    left = taken(pool) + LONG
    others = [pool.share(), pool.share()]
    for other in others:
        other.reserve((600 * MIB - left) // 2)
    with pytest.raises(Overloaded, match="nothing was done"):
        client.publish(wants=appended.append_id)
    assert keys(store) == before
    others[0].end()
    assert client.publish(wants=appended.append_id).version == "1.0.0"
