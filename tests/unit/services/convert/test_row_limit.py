"""A body has no more rows than are allowed, in whatever form."""

import pytest

from app.codecs.options import RecordsDecodeOptions
from app.domain.limits import Limits
from app.errors import LimitExceeded
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from app.services.convert.records import decode_body
from tests.support.arrow_rows import as_arrow


def num_rows(max_rows: int) -> int:
    budget = Budget(Limits(max_rows=max_rows))
    records = decode_body(MemoryStream(b'{"x": 1}\n' * 5), "ndjson", RecordsDecodeOptions(), budget)
    return sum(batch.num_rows for batch in as_arrow(records))


def test_so_many_rows_are_taken() -> None:
    assert num_rows(5) == 5


def test_one_more_is_refused() -> None:
    with pytest.raises(LimitExceeded) as caught:
        num_rows(4)
    assert caught.value.code == "too_many_rows"
