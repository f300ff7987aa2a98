"""A store in memory, the same with faults, and a replica on it; a module that wants others has its own."""

import pytest

from app.storage.object_store import ObjectStore
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore


@pytest.fixture
def inner() -> ObstoreStore:
    return open_store("memory://")


@pytest.fixture
def store(inner: ObjectStore) -> FaultStore:
    return FaultStore(inner)


@pytest.fixture
def client(store: FaultStore) -> Client:
    return Client(store)
