"""Rows that widen the schema of their dataset: only where that was asked for, as far as it is sound."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from app.codecs.columns import MAX_BATCH_ROWS
from app.codecs.forms import FormName
from app.domain.schema import Schema
from app.errors import InputError, SchemaConflict
from app.runtime.budget import Budget
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.layout import Layout
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.arrow_rows import as_arrow
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore, Operation, When
from tests.unit.services.datasets.append.test_request import append

LAYOUT = Layout("d", 1)


def schema(**features: Any) -> Schema:
    members = {name: {"dtype": of} if isinstance(of, str) else of for name, of in features.items()}
    return Schema.from_json({"features": members})


def nullable(dtype: str, shape: list[int | None] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape or [], "nullable": True}


@pytest.fixture
def client(inner: ObstoreStore) -> Client:
    client = Client(inner)
    client.datasets.create("d", schema(x="float32"), DatasetOptions())
    append(client, b'[{"x": 1}]')
    return client


def rows(client: Client) -> list[dict[str, Any]]:
    client.publish()
    found = client.datasets.read_records("d", "latest", "train", budget=Budget())
    return [row for batch in as_arrow(found) for row in batch.to_pylist()]


def test_a_new_feature_is_added_and_the_old_one_read_as_declared(client: Client) -> None:
    append(client, b'[{"x": 2, "y": 3}]', evolve=True)
    assert client.datasets.schema("d") == schema(x="float32", y=nullable("int64"))
    append(client, b'[{"x": 3}]')
    assert rows(client) == [{"x": 1.0, "y": None}, {"x": 2.0, "y": 3}, {"x": 3.0, "y": None}]


def test_a_feature_that_a_row_lacks_becomes_nullable(client: Client) -> None:
    append(client, b'[{"x": 2}, {"y": 3}]', evolve=True)
    assert client.datasets.schema("d") == schema(x=nullable("float32"), y=nullable("int64"))
    assert rows(client) == [{"x": 1.0, "y": None}, {"x": 2.0, "y": None}, {"x": None, "y": 3}]


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_values_that_infer_otherwise_change_no_feature(client: Client, form: Any) -> None:
    body = b'{"x": "NaN", "y": 1}\n{"x": 4, "y": 2}'
    body = body if form == "ndjson" else b"[" + body.replace(b"\n", b",") + b"]"
    append(client, body, evolve=True, form=form)
    found = client.datasets.schema("d")
    assert found is not None
    assert found.by_name["x"] == schema(x="float32").by_name["x"]


def test_a_value_that_does_not_fit_is_refused_though_the_schema_may_widen(inner: ObstoreStore) -> None:
    client = Client(inner)
    client.datasets.create("d", schema(x="int8"), DatasetOptions())
    with pytest.raises(InputError):
        append(client, b'[{"x": 300}]', evolve=True)
    assert client.datasets.schema("d") == schema(x="int8")
    append(client, b'[{"x": 300}]', schema=schema(x="int16"), evolve=True)
    assert client.datasets.schema("d") == schema(x="int16")


def test_schema_in_the_body_widens_as_a_parameter_does(client: Client) -> None:
    body = b"""{"schema": {"features": {"x": {"dtype": "float32"}, "y": {"dtype": "int8"}}},
               "instances": [{"x": 1, "y": 5}]}"""
    with pytest.raises(SchemaConflict, match="evolve=widen"):
        append(client, body)
    append(client, body, evolve=True)
    assert client.datasets.schema("d") == schema(x="float32", y=nullable("int8"))
    append(client, body, evolve=True)
    assert len(rows(client)) == 3


def test_a_declared_length_becomes_unknown(inner: ObstoreStore) -> None:
    client = Client(inner)
    two, three = (schema(x={"dtype": "int64", "shape": [size]}) for size in (2, 3))
    append(client, b'[{"x": [1, 2]}]', schema=two)
    append(client, b'[{"x": [3, 4, 5]}]', schema=three, evolve=True)
    assert client.datasets.schema("d") == schema(x={"dtype": "int64", "shape": [None]})
    assert rows(client) == [{"x": [1, 2]}, {"x": [3, 4, 5]}]


def arrow_body(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch(columns)
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def test_a_column_that_arrow_calls_nullable_makes_nothing_nullable(client: Client) -> None:
    body = arrow_body(x=pa.array([2.0], pa.float32()), y=pa.array([b"a"]))
    append(client, body, form="arrow", evolve=True)
    assert client.datasets.schema("d") == schema(x="float32", y=nullable("bytes"))
    body = arrow_body(y=pa.array([b"b"]))
    append(client, body, form="arrow", evolve=True)
    assert client.datasets.schema("d") == schema(x=nullable("float32"), y=nullable("bytes"))


def test_csv_adds_a_column(client: Client) -> None:
    append(client, b"x,y\n2,a\n", form="csv", evolve=True)
    assert rows(client) == [{"x": 1.0, "y": None}, {"x": 2.0, "y": b"a"}]


def test_records_add_a_feature(client: Client, inner: ObstoreStore) -> None:
    source = Client(inner)
    append(client, b'[{"x": 2, "y": [3, 4]}]', evolve=True)
    client.publish()
    shard = source.datasets.manifest("d", "latest").splits["train"].shards[0].file
    data = inner.get(f"d/1.0.0/{shard}")
    other = Client(open_store("memory://"))
    append(other, b'[{"x": 0.5}]')
    append(other, data, form="tfrecord", evolve=True)
    assert other.datasets.schema("d") == schema(x="float32", y=nullable("int64", [None]))
    assert [row["x"] for row in rows(other)] == [0.5, 1.0, 2.0]


def test_a_body_larger_than_what_is_looked_at_is_read_whole(client: Client) -> None:
    lines = b"".join(b'{"x": %d, "y": %d}\n' % (i, i) for i in range(3 * MAX_BATCH_ROWS))
    append(client, lines, form="ndjson", evolve=True)
    assert [row["y"] for row in rows(client)] == [None, *range(3 * MAX_BATCH_ROWS)]


def test_feature_after_the_inferred_rows_is_refused(client: Client) -> None:
    lines = b'{"x": 1}\n' * 2000 + b'{"x": 1, "y": 1}\n'
    with pytest.raises(SchemaConflict):
        append(client, lines, form="ndjson", evolve=True)
    assert client.datasets.schema("d") == schema(x="float32")


@pytest.mark.parametrize("body", [b'[{"x": 1, "y": 2}, {"x": "no"}]', b'[{"x": 1, "y": [[1], 2]}]'])
def test_refused_rows_widen_nothing(client: Client, body: bytes) -> None:
    with pytest.raises(InputError):
        append(client, body, evolve=True)
    assert client.datasets.schema("d") == schema(x="float32")


def test_without_evolve_the_error_says_what_it_would_do(client: Client) -> None:
    with pytest.raises(SchemaConflict, match="evolve=widen"):
        append(client, b'[{"x": 1, "y": 2}]')
    with pytest.raises(SchemaConflict, match="evolve=widen"):
        append(client, b'[{"x": 1, "y": 2}]', schema=schema(x="float32", y="int64"))
    with pytest.raises(SchemaConflict, match="Not even") as caught:
        append(client, b'[{"x": 1}]', schema=schema(x="int64"))
    assert caught.value.location.feature == "x"
    assert client.datasets.schema("d") == schema(x="float32")


def test_rows_may_lack_nullable_features_in_every_form(client: Client) -> None:
    append(client, b'[{"x": 2, "y": 3}]', evolve=True)
    append(client, b'[{"x": 3}]')
    append(client, b'{"x": [4]}')
    append(client, b"x\n5\n", form="csv")
    append(client, arrow_body(x=pa.array([6.0], pa.float32())), form="arrow")
    assert [row["x"] for row in rows(client)] == [1, 2, 3, 4, 5, 6]


def test_of_two_that_widen_at_once_the_loser_widens_what_the_winner_left(
    client: Client, inner: ObstoreStore
) -> None:
    store = FaultStore(inner)

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and when == "before" and key == LAYOUT.schema(1):
            store.fault = None
            append(Client(inner), b'[{"x": 2, "z": "text"}]', evolve=True)

    store.fault = fault
    append(Client(store), b'[{"x": 3, "y": 3}]', evolve=True)
    assert client.datasets.schema("d") == schema(x="float32", z=nullable("text"), y=nullable("int64"))
    assert inner.get(LAYOUT.schema(2))
    assert [row["x"] for row in rows(client)] == [1.0, 2.0, 3.0]


def test_of_two_that_add_one_feature_in_two_kinds_one_is_refused(inner: ObstoreStore, client: Client) -> None:
    store = FaultStore(inner)

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "create" and when == "before" and key == LAYOUT.schema(1):
            store.fault = None
            append(Client(inner), b'[{"x": 2, "y": "text"}]', evolve=True)

    store.fault = fault
    with pytest.raises(SchemaConflict, match="'y'"):
        append(Client(store), b'[{"x": 3, "y": 3}]', evolve=True)
    assert [row["x"] for row in rows(client)] == [1.0, 2.0]


def test_steps_are_numbered_without_gaps(client: Client, inner: ObstoreStore) -> None:
    def widen(number: int) -> None:
        append(Client(inner), b'[{"x": 0, "f%d": 1}]' % number, key=f"k{number}", evolve=True)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(widen, range(12)))
    found = client.datasets.schema("d")
    assert found is not None
    assert sorted(found.names) == sorted(["x", *(f"f{number}" for number in range(12))])
    steps = sorted(int(info.key.rsplit("/", 1)[1][:-5]) for info in inner.list("d/_g1/schema"))
    assert steps == list(range(1, 13))


def test_a_publication_has_the_schema_of_all_that_it_lists(client: Client, inner: ObstoreStore) -> None:
    store = FaultStore(inner)
    other = Client(inner)

    def fault(when: When, operation: Operation, key: str) -> None:
        if operation == "list" and key == Layout("d", 1).all_slots and when == "before":
            store.fault = None
            append(other, b'[{"x": 2, "y": 3}]', key="late", evolve=True)

    slow = Client(store)
    slow.datasets.schema("d")
    store.fault = fault
    manifest = slow.publish()
    assert manifest.schema == schema(x="float32", y=nullable("int64"))


def test_a_key_replays_after_the_schema_was_widened(client: Client) -> None:
    first = append(client, b'[{"x": 2, "y": 3}]', key="k", evolve=True)
    append(client, b'[{"x": 2, "z": 3}]', evolve=True)
    again = append(client, b'[{"x": 2, "y": 3}]', key="k", evolve=True)
    assert again.stored == replace(first.stored, replayed=True)


def inferred(client: Client) -> set[str]:
    """The features that a replica with nothing in memory takes for inferred."""
    found = Client(client.store).datasets.schema("d")
    assert found is not None
    return {feature.name for feature in found if feature.inferred}


BODIES: dict[FormName, bytes] = {
    "json": b'[{"x": 1}]',
    "ndjson": b'{"x": 1}\n',
    "csv": b"x\n1\n",
    "arrow": arrow_body(x=pa.array([1])),
}


@pytest.mark.parametrize("form", BODIES)
def test_a_dataset_remembers_what_was_inferred(inner: ObstoreStore, form: FormName) -> None:
    client = Client(inner)
    append(client, BODIES[form], form=form)
    assert inferred(client) == (set() if form == "arrow" else {"x"})


def test_inferred_dtype_equals_the_declared_one(inner: ObstoreStore) -> None:
    client = Client(inner)
    append(client, b'[{"x": 1}]')
    append(client, b'[{"x": 2}]', schema=schema(x="int64"))
    assert inferred(client) == {"x"}


def test_declared_feature_is_not_marked_inferred(inner: ObstoreStore) -> None:
    client = Client(inner)
    body = b'{"schema": {"features": {"x": {"dtype": "int64"}}}, "instances": [{"x": 1}]}'
    append(client, body)
    assert inferred(client) == set()
    append(client, b'[{"x": 2, "y": 3}]', evolve=True)
    append(client, b'[{"x": 2, "y": 3, "z": 4}]', schema=schema(x="int64", y="int64", z="int8"), evolve=True)
    assert inferred(client) == {"y"}


def test_inferred_mark_is_internal(inner: ObstoreStore) -> None:
    client = Client(inner)
    append(client, b'[{"x": 1}]')
    manifest = client.publish()
    assert "inferred" not in str(client.datasets.get("d").to_json())
    assert "inferred" not in str(manifest.to_json())
    with pytest.raises(InputError, match="inferred"):
        schema(x={"dtype": "int64", "inferred": True})


def marks(client: Client) -> dict[str, Any]:
    """What the newest schema says of x, to a replica with nothing in memory."""
    found = Client(client.store).datasets.schema("d")
    assert found is not None
    told = found.by_name["x"].to_json(stored=True)
    return {
        name: value
        for name, value in told.items()
        if name not in ("kind", "encoding") and value not in (False, [])
    }


def values(client: Client) -> list[Any]:
    return [row["x"] for row in rows(client)]


@pytest.mark.parametrize(
    ("first", "then", "form"),
    [
        (b'[{"x": 1}, {"x": -16777216}]', b'[{"x": 2}, {"x": 1.5}]', "json"),
        (b'{"x": 1}\n{"x": -16777216}\n', b'{"x": 2}\n{"x": 1.5}\n', "ndjson"),
        (b'{"x": [1, -16777216]}', b'{"x": [2, 1.5]}', "json"),
        (b"x\n1\n-16777216\n", b"x\n2\n1.5\n", "csv"),
        (b"x\n1\n-16777216\n", b'[{"x": 2}, {"x": 1.5}]', "json"),
    ],
)
def test_an_inferred_integer_becomes_a_float(
    inner: ObstoreStore, first: bytes, then: bytes, form: FormName
) -> None:
    client = Client(inner)
    append(client, first, form="csv" if first.startswith(b"x") else form)
    with pytest.raises(InputError, match="evolve=widen it may become float32"):
        append(client, then, form=form) if form != "csv" else append(client, b'[{"x": 1.5}]')
    append(client, then, form=form, evolve=True)
    append(client, b'[{"x": 3}]', evolve=True)
    append(client, b'[{"x": 0.25}]')
    assert marks(client) == {"dtype": "float32", "inferred": True, "was_int64": True}
    assert values(client) == [1.0, -16777216.0, 2.0, 1.5, 3.0, 0.25]


def test_a_float_that_is_declared_widens_an_inferred_integer(inner: ObstoreStore) -> None:
    client = Client(inner)
    append(client, b'[{"x": 1}]')
    append(client, b'[{"x": 2}]', schema=schema(x="float32"), evolve=True)
    assert values(client) == [1.0, 2.0]


@pytest.mark.parametrize("large", [16777217, -16777217, 2**63 - 1, 2**40 + 1])
@pytest.mark.parametrize("known", [True, False])
def test_an_integer_that_float32_does_not_hold_stays_one(
    inner: ObstoreStore, large: int, known: bool
) -> None:
    client = Client(inner)
    if known:
        append(client, b'[{"x": 1}]')
    append(client, b'[{"x": %d}]' % large)
    assert marks(client) == {"dtype": "int64", "inferred": True, "beyond_float32": True}
    for evolve in (True, False):
        with pytest.raises(InputError, match=r"float32 does not hold all its integers.* new dataset"):
            append(client, b'[{"x": 1.5}]', evolve=evolve)
    with pytest.raises(SchemaConflict, match=r"float32 does not hold all its integers.* new dataset"):
        append(client, b'[{"x": 1}]', schema=schema(x="float32"), evolve=True)
    assert values(client) == [1] * known + [large]


LARGE = 2**24 + 1


@pytest.mark.parametrize(
    "cells",
    [
        [1, None, LARGE],
        [None, -LARGE],
        [[1, 2], None, [3, LARGE]],
        [[], None, [3, LARGE]],
        [[[1, 2], [3, 4]], [[1, 2], [3, LARGE]]],
        [[[1], []], None, [[2, LARGE]]],
    ],
)
def test_large_integer_is_found_at_any_position(inner: ObstoreStore, cells: list[Any]) -> None:
    append(Client(inner), json.dumps([{"x": cell} for cell in cells]).encode())
    assert marks(Client(inner))["beyond_float32"] is True


@pytest.mark.parametrize("exact", [*range(2**24 - 2, 2**24 + 1), *(1 << bit for bit in range(25, 63, 9))])
def test_an_integer_that_float32_holds_may_become_one(inner: ObstoreStore, exact: int) -> None:
    append(Client(inner), b'[{"x": %d}, {"x": %d}]' % (exact, -exact))
    assert "beyond_float32" not in marks(Client(inner))


@pytest.mark.parametrize("of", ["float32", "int32", {"dtype": "int64", "encoding": "raw"}])
def test_declared_integers_are_not_scanned(inner: ObstoreStore, of: Any) -> None:
    append(Client(inner), b'[{"x": 16777216}]', schema=schema(x=of))
    assert "beyond_float32" not in marks(Client(inner))


@pytest.mark.parametrize("exact", [2**24, -(2**63), 2**62, 3 * 2**40])
def test_large_integer_exact_in_float32_allows_widening(inner: ObstoreStore, exact: int) -> None:
    client = Client(inner)
    append(client, b'[{"x": %d}]' % exact)
    append(client, b'[{"x": 1.5}]', evolve=True)
    assert values(client) == [float(exact), 1.5]


def test_a_declared_integer_stays_one(inner: ObstoreStore) -> None:
    client = Client(inner)
    append(client, b'[{"x": 1}]', schema=schema(x="int64"))
    with pytest.raises(InputError, match=r"it was declared.* new dataset"):
        append(client, b'[{"x": 1.5}]', evolve=True)
    with pytest.raises(SchemaConflict, match="int64 stays int64"):
        append(client, b'[{"x": 1}]', schema=schema(x="float32"), evolve=True)
    append(client, b'[{"x": 16777217}]')
    assert marks(client) == {"dtype": "int64"}


def test_a_large_integer_is_found_in_every_feature_and_batch(inner: ObstoreStore) -> None:
    rows = [b'{"x": 1, "y": 1}'] * 20_000
    rows[7], rows[-7] = b'{"x": 16777217, "y": 1}', b'{"x": 1, "y": 16777217}'
    append(Client(inner), b"\n".join(rows), form="ndjson")
    found = Client(inner).datasets.schema("d")
    assert found is not None
    assert [feature.beyond_float32 for feature in found] == [True, True]


@pytest.mark.parametrize(
    ("first", "then", "shape", "read"),
    [
        ("[1, 2]", "[1, 2, 3]", [None], [[1, 2], [1, 2, 3]]),
        ("[1, 2]", "[]", [None], [[1, 2], []]),
        ("[0.5, 2]", "[1]", [None], [[0.5, 2], [1]]),
        ("[1, 2]", "[0.5]", [None], [[1, 2], [0.5]]),
        ("[[1, 2]]", "[[3, 4], [5, 6]]", [None, 2], [[1, 2], [3, 4, 5, 6]]),
        ('["a", "b"]', '["c"]', [None], [[b"a", b"b"], [b"c"]]),
        ("[16777217, 2]", "[1]", [None], [[16777217, 2], [1]]),
    ],
)
def test_an_inferred_length_becomes_unknown(
    inner: ObstoreStore, first: str, then: str, shape: list[int | None], read: list[Any]
) -> None:
    client = Client(inner)
    body = b'[{"x": %b}]' % then.encode()
    append(client, b'[{"x": %b}]' % first.encode())
    with pytest.raises(InputError, match="evolve=widen it may"):
        append(client, body)
    append(client, body, evolve=True)
    assert marks(client)["shape"] == shape
    assert values(client) == read


@pytest.mark.parametrize(
    ("first", "then"),
    [("[1, 2]", "3"), ("[1, 2]", "[[1, 2], [3]]"), ("1", "true"), ("1", '"a"'), ("0.5", '"a"')],
)
def test_other_changes_are_refused(inner: ObstoreStore, first: str, then: str) -> None:
    client = Client(inner)
    append(client, b'[{"x": %b}]' % first.encode())
    before = marks(client)
    with pytest.raises(InputError) as caught:
        append(client, b'[{"x": %b}]' % then.encode(), evolve=True)
    assert (caught.value.location.row, caught.value.location.feature) == (0, "x")
    assert marks(client) == before


def test_text_of_a_nonfinite_float_is_appended(
    inner: ObstoreStore,
) -> None:
    client = Client(inner)
    append(client, b'[{"x": [0.5, 1.5]}]')
    append(client, b'[{"x": ["Infinity", 1.5], "y": 1}]', evolve=True)
    assert values(client) == [[0.5, 1.5], [float("inf"), 1.5]]


def before_create(store: FaultStore, key: str, event: Callable[[], object]) -> None:
    """Have something happen just before the first create of what begins with `key`."""

    def fault(when: When, operation: Operation, created: str) -> None:
        if operation == "create" and when == "before" and created.startswith(key):
            store.fault = None
            event()

    store.fault = fault


SLOTS = LAYOUT.slot("0" * 32).rpartition("/0/")[0]


@pytest.mark.parametrize("key", [None, "k"])
def test_integers_that_are_stored_while_others_make_them_floats_are_published_as_floats(
    inner: ObstoreStore, key: str | None
) -> None:
    append(Client(inner), b'[{"x": 1}]')
    store = FaultStore(inner)
    before_create(store, SLOTS, lambda: append(Client(inner), b'[{"x": 0.5}]', evolve=True))
    append(Client(store), b'[{"x": 2}]', key=key)
    assert sorted(values(Client(inner))) == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_large_integer_that_comes_too_late_for_an_integer_is_refused(
    inner: ObstoreStore, key: str | None
) -> None:
    append(Client(inner), b'[{"x": 1}]')
    store = FaultStore(inner)
    before_create(store, LAYOUT.schema(1), lambda: append(Client(inner), b'[{"x": 0.5}]', evolve=True))
    with pytest.raises(InputError, match="float32"):
        append(Client(store), b'[{"x": 16777217}]', key=key)
    assert values(Client(inner)) == [1.0, 0.5]


def test_a_float_that_comes_after_a_large_integer_is_refused(inner: ObstoreStore) -> None:
    append(Client(inner), b'[{"x": 1}]')
    store = FaultStore(inner)
    before_create(store, LAYOUT.schema(1), lambda: append(Client(inner), b'[{"x": 16777217}]'))
    with pytest.raises(InputError, match="float32"):
        append(Client(store), b'[{"x": 0.5}]', evolve=True)
    assert values(Client(inner)) == [1, 16777217]


@pytest.mark.parametrize("declared", [True, False])
def test_of_two_that_create_a_dataset_the_large_integer_is_not_forgotten(
    inner: ObstoreStore, declared: bool
) -> None:
    store = FaultStore(inner)
    before_create(store, LAYOUT.incarnation, lambda: append(Client(inner), b'[{"x": 1}]'))
    append(Client(store), b'[{"x": 16777217}]', schema=schema(x="int64") if declared else None)
    with pytest.raises(InputError, match="float32"):
        append(Client(inner), b'[{"x": 0.5}]', evolve=True)
    assert values(Client(inner)) == [1, 16777217]


def test_a_large_integer_is_stored_though_others_have_added_a_feature(inner: ObstoreStore) -> None:
    append(Client(inner), b'[{"x": 1}]')
    store = FaultStore(inner)
    before_create(store, LAYOUT.schema(1), lambda: append(Client(inner), b'[{"x": 2, "y": 3}]', evolve=True))
    append(Client(store), b'[{"x": 16777217}]', key="k")
    assert marks(Client(inner))["beyond_float32"]
    assert sorted(values(Client(inner))) == [1, 2, 16777217]


def test_a_version_keeps_its_integers_when_the_next_one_has_floats(inner: ObstoreStore) -> None:
    client = Client(inner)
    append(client, b'[{"x": 1}]')
    assert values(client) == [1]
    files = {info.key: inner.get(info.key) for info in inner.list("d/1.0.0")}
    append(client, b'[{"x": 0.5}]', evolve=True)
    assert values(client) == [1.0, 0.5]
    assert {info.key: inner.get(info.key) for info in inner.list("d/1.0.0")} == files
    assert client.datasets.manifest("d", "1.0.0").schema == schema(x="int64")
    for version in ("1.0.0", "1.1.0"):
        assert client.datasets.validate("d", version, Budget()).problems.found == []


@pytest.mark.parametrize(("first", "late"), [(b"1", b"1.5"), (b"[1, 2]", b"[3]")])
def test_late_row_names_infer_all(inner: ObstoreStore, first: bytes, late: bytes) -> None:
    client = Client(inner)
    body = b'{"x": %b}\n' % first
    append(client, body, form="ndjson")
    with pytest.raises(InputError, match="the first 1000 rows: set infer=all"):
        append(client, body * 1000 + b'{"x": %b}\n' % late, form="ndjson", evolve=True)


def test_a_step_of_integers_stays_one(inner: ObstoreStore) -> None:
    client = Client(inner)
    body = b'[{"context": {}, "feature_lists": {"x": [%b]}}]'
    append(client, body % b"1", message="sequence_example")
    with pytest.raises(InputError, match=r"stays int64 in this dataset\. Append to a new dataset"):
        append(client, body % b"1.5", message="sequence_example", evolve=True)
