"""Incarnations of datasets: created once, ended once, never mixed up."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.domain.schema import Schema
from app.errors import Conflict, CorruptData, NotFound, SchemaConflict, StorageUnavailable
from app.services.datasets.objects.catalog import Catalog
from app.services.datasets.objects.incarnation import DatasetOptions, Destination
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.same_schema import require_same_message, require_same_schema
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.checksummed_json import sealed
from tests.support.faulty_store import FaultStore, Operation, When

X = Schema.from_json({"features": {"x": {"dtype": "int64"}}})
Y = Schema.from_json({"features": {"y": {"dtype": "int64"}}})
PLAIN = DatasetOptions()


@pytest.fixture
def store() -> ObstoreStore:
    return open_store("memory://")


def replica(store: ObstoreStore | FaultStore) -> Catalog:
    return Catalog(store, ThreadPoolExecutor(4))


@pytest.mark.parametrize("schema", [X, None])
def test_dataset_of_one_replica_is_found_by_another(store: ObstoreStore, schema: Schema | None) -> None:
    created, new = replica(store).create("d", schema, DatasetOptions("Text."))
    assert new
    assert created.layout == Layout("d", 1)
    found = replica(store).open("d")
    assert found == created
    assert (found.declared, found.options.description) == (schema, "Text.")


def test_the_same_again_is_the_same(store: ObstoreStore) -> None:
    first, _ = replica(store).create("d", X, PLAIN)
    assert replica(store).create("d", X, PLAIN) == (first, False)


@pytest.mark.parametrize(("schema", "options"), [(Y, PLAIN), (None, PLAIN), (X, DatasetOptions("Other."))])
def test_another_content_conflicts(
    store: ObstoreStore, schema: Schema | None, options: DatasetOptions
) -> None:
    replica(store).create("d", X, PLAIN)
    with pytest.raises(Conflict) as caught:
        replica(store).create("d", schema, options)
    assert caught.value.code == "dataset_exists"
    assert replica(store).open("d").declared == X


def test_the_schema_that_an_append_settled_counts_as_the_same(store: ObstoreStore) -> None:
    replica(store).create("d", None, PLAIN)
    replica(store).settle(Layout("d", 1), X)
    for schema in (None, X):
        assert replica(store).create("d", schema, PLAIN)[1] is False
    with pytest.raises(Conflict):
        replica(store).create("d", Y, PLAIN)


def test_settling_creates_the_dataset(store: ObstoreStore) -> None:
    replica(store).settle(Layout("d", 1), X)
    assert replica(store).open("d").declared == X


def test_of_two_first_schemas_one_is_settled(store: ObstoreStore) -> None:
    replica(store).create("d", None, PLAIN)
    slow, fast = replica(store), replica(store)
    assert slow.schema(slow.open("d")) is None
    fast.settle(Layout("d", 1), X)
    with pytest.raises(SchemaConflict, match="'y'"):
        slow.settle(Layout("d", 1), Y)
    assert slow.schema(slow.open("d")) == X


def test_of_a_schema_once_known_only_the_next_is_looked_for(store: ObstoreStore) -> None:
    counting = FaultStore(store)
    catalog = replica(counting)
    catalog.create("d", None, PLAIN)
    catalog.settle(Layout("d", 1), X)
    incarnation = catalog.open("d")
    catalog.schema(incarnation)
    counting.requests.clear()
    assert catalog.schema(catalog.open("d")) == X
    assert counting.requests == [("head", "d/_gen/1.end"), ("get", "d/_g1/schema/2.json")]


def test_a_dataset_that_ended_is_gone_for_everyone(store: ObstoreStore) -> None:
    one, other = replica(store), replica(store)
    one.create("d", X, PLAIN)
    other.open("d")
    one.end("d")
    for catalog in (one, other):
        assert catalog.find("d") is None
        with pytest.raises(NotFound) as caught:
            catalog.end("d")
        assert caught.value.code == "dataset_not_found"


def test_a_name_is_used_again_under_the_next_number(store: ObstoreStore) -> None:
    one, other = replica(store), replica(store)
    one.create("d", X, PLAIN)
    other.open("d")
    one.end("d")
    created, new = one.create("d", Y, PLAIN)
    assert (created.layout, new) == (Layout("d", 2), True)
    assert other.open("d") == created


def test_rows_for_a_dataset_that_was_replaced_are_refused(store: ObstoreStore) -> None:
    catalog = replica(store)
    catalog.create("d", X, PLAIN)
    before = catalog.destination("d")
    assert catalog.reopen(before.layout) == catalog.open("d")
    replica(store).end("d")
    for _ in range(2):
        with pytest.raises(Conflict) as caught:
            catalog.reopen(before.layout)
        assert caught.value.code == "dataset_deleted"
        replica(store).create("d", Y, PLAIN)
    assert catalog.destination("d") == Destination(Layout("d", 2), Y)


def test_a_destination_is_where_the_next_dataset_of_that_name_will_be(store: ObstoreStore) -> None:
    catalog = replica(store)
    assert catalog.destination("d") == Destination(Layout("d", 1), None)
    catalog.create("d", X, PLAIN)
    catalog.end("d")
    assert catalog.destination("d") == Destination(Layout("d", 2), None)


def test_a_dataset_declared_without_features_stays_so(store: ObstoreStore) -> None:
    catalog = replica(store)
    catalog.create("d", Schema(()), PLAIN)
    with pytest.raises(SchemaConflict):
        catalog.settle(Layout("d", 1), X)
    assert "d/_g1/schema/1.json" not in {info.key for info in store.list("")}


def test_the_order_of_features_makes_no_other_schema(store: ObstoreStore) -> None:
    one = Schema((*X, *Y))
    other = Schema((*Y, *X))
    catalog = replica(store)
    created, _ = catalog.create("d", one, PLAIN)
    assert catalog.create("d", other, PLAIN) == (created, False)
    catalog.settle(created.layout, other)
    assert catalog.schema(created) == one


def test_names_are_those_that_live(store: ObstoreStore) -> None:
    catalog = replica(store)
    for name in ("b", "a", "gone"):
        catalog.create(name, X, PLAIN)
    catalog.end("gone")
    store.put("not a dataset/x", b"")
    store.put("_probe/x", b"")
    store.put("stray/x", b"")
    assert catalog.names() == ["a", "b"]


def test_a_dataset_that_cannot_be_read_hides_no_other(store: ObstoreStore) -> None:
    catalog = replica(store)
    catalog.create("b", X, PLAIN)
    store.put("a/_gen/1.json", b"junk")
    assert catalog.names() == ["a", "b"]


def test_lost_response_to_a_creation_is_not_a_conflict(store: ObstoreStore) -> None:
    lost = iter([StorageUnavailable("dropped")])

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and when == "after":
            for error in lost:
                raise error

    _, new = replica(FaultStore(store, fault)).create("d", X, PLAIN)
    assert new


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"nonce":"x"}',
        sealed(b'{"nonce":"x"}'),
        sealed(b'{"schema":{},"options":{"description":""}}'),
        sealed(b'{"schema":null}'),
    ],
)
def test_a_damaged_incarnation_is_corrupt(store: ObstoreStore, data: bytes) -> None:
    store.put("d/_gen/1.json", data)
    with pytest.raises(CorruptData, match="d/_gen/1"):
        replica(store).find("d")


def test_schemas_are_the_same_in_any_order() -> None:
    one = Schema.from_json({"features": {"x": {"dtype": "int64"}, "y": {"dtype": "text"}}})
    other = Schema.from_json({"features": {"y": {"dtype": "text"}, "x": {"dtype": "int64"}}})
    require_same_schema(one, other)
    with pytest.raises(SchemaConflict, match="absent") as caught:
        require_same_schema(one, X)
    assert caught.value.location.feature == "y"
    assert caught.value.extra == {"schema": X.to_json()}


def test_rows_of_another_message_do_not_fit() -> None:
    with pytest.raises(SchemaConflict, match="sequence_examples"):
        require_same_schema(X.with_message("sequence_example"), X)
    require_same_message(None, X)
    require_same_message("example", X)
    with pytest.raises(SchemaConflict, match="those of the dataset are examples"):
        require_same_message("sequence_example", X)
