"""Batches of one size."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.columns import Batch, Records
from app.codecs.records.batching import in_batches
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import LimitExceeded
from app.runtime.budget import Budget
from tests.arrow_rows import as_arrow, from_arrow
from tests.rows import SCHEMA, records


def cut(sizes: list[int]) -> Records:
    """Rows 0, 1, ... in batches of these sizes."""
    whole = pa.record_batch([pa.array(range(sum(sizes)), pa.int64())], names=["x"])
    bounds = [sum(sizes[:i]) for i in range(len(sizes))]
    batches = [whole.slice(start, size) for start, size in zip(bounds, sizes, strict=True)]
    return from_arrow(SCHEMA, iter(batches), sum(sizes))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=10), st.integers(1, 15), st.booleans())
def test_rows_stay_in_order_in_batches_of_one_size(sizes: list[int], batch: int, drop: bool) -> None:
    budget = Budget()
    found = in_batches(cut(sizes), batch, budget, drop_remainder=drop)
    rows = [part.column("x").to_pylist() for part in as_arrow(found)]
    total = sum(sizes)
    kept = total - total % batch if drop else total
    assert [row for part in rows for row in part] == list(range(kept))
    assert all(len(part) == batch for part in rows[:-1])
    assert all(rows)
    assert found.num_rows == kept
    assert budget.remaining == Budget().remaining


def test_a_batch_beyond_the_budget_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="batch"):
        list(in_batches(records(range(9000)), 9000, Budget(Limits(max_decoded_bytes=50_000))).batches)


def test_rows_without_a_feature_keep_their_number() -> None:
    empty = Schema.from_json({"features": {}})
    batches = iter([Batch(3, ())] * 3)
    found = in_batches(Records(empty, batches), 4, Budget())
    assert [batch.num_rows for batch in as_arrow(found)] == [4, 4, 1]
