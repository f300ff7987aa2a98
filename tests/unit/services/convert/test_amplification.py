"""What rows may become, in proportion to the body that they come in."""

import io
from cProfile import Profile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.codecs import kernels
from app.codecs.forms import FormName
from app.codecs.options import RecordsDecodeOptions
from app.domain.dtypes import INT64
from app.domain.feature import Feature
from app.domain.schema import Message, Schema
from app.errors import LimitExceeded
from app.runtime.amplification import Amplification
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile, MemoryStream
from app.services.convert.records import decode_body
from tests.corpora.hostile_requests import INT64_ONE, example, lists, names
from tests.support.arrow_rows import as_arrow
from tests.support.tfrecord_frames import frame


def arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def drawn(form: FormName, body: bytes, ratio: int = 1100) -> int:
    """How many rows there are."""
    budget = Budget(amplification=Amplification(ratio, lambda: len(body)))
    source = MemoryFile(body) if form in ("parquet", "json") else MemoryStream(body)
    return sum(batch.num_rows for batch in decode_body(source, form, RecordsDecodeOptions(), budget).batches)


NAMED_AGAIN = pa.table(
    {"x": pa.DictionaryArray.from_arrays(np.zeros(300_000, "i1"), pa.array(["a" * 2**10]))}
)


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("arrow", arrow(NAMED_AGAIN)),
        ("parquet", parquet(NAMED_AGAIN)),
        ("parquet", parquet(pa.table({"x": np.zeros(10_000_000, "i1")}))),
        ("ndjson", b'{"x":' + b"9" * 18 + b"}\n" + b"{}\n" * 3_000_000),
    ],
    ids=["a long string in Arrow", "a long string in Parquet", "runs in Parquet", "empty rows"],
)
def test_rows_that_are_too_much_for_their_body_are_refused(form: FormName, body: bytes) -> None:
    with pytest.raises(LimitExceeded) as caught:
        drawn(form, body, ratio=5)
    assert caught.value.code == "amplification_exceeded"


@pytest.mark.parametrize(
    ("form", "body", "num_rows"),
    [
        ("arrow", arrow(pa.table({"x": pa.nulls(10**6, pa.float32())})), 10**6),
        ("parquet", parquet(pa.table({"x": np.zeros(2_000_000, np.float32)})), 2_000_000),
        ("ndjson", b'{"x":null,"y":1}\n' * 100_000, 100_000),
    ],
    ids=["nulls in Arrow", "zeros in Parquet", "nulls in NDJSON"],
)
def test_ordinary_bodies_are_not_refused(form: FormName, body: bytes, num_rows: int) -> None:
    assert drawn(form, body) == num_rows


def num_calls(profile: Profile) -> int:
    """Of functions in Python and in C."""
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("message", ["example", "sequence_example"])
def test_features_that_few_rows_have_cost_little_for_each_row(message: Message) -> None:
    """One record of many features, then empty ones: calls, since time depends on the machine."""
    first = example(dict.fromkeys(names(3000), INT64_ONE)) if message == "example" else lists(names(3000))
    body = frame(first) + frame(b"") * 8000
    options = RecordsDecodeOptions(infer="all", message=message)
    kernels.compile_all()  # whose loading would be profiled
    with Profile() as inference:
        records = decode_body(MemoryStream(body), "tfrecord", options, Budget())
    with Profile() as reading:
        num_columns = sum(len(batch.columns) for batch in records.batches)
    assert num_columns >= 3000 * 8000 // 87
    assert num_calls(inference) < 20 * 3000 + 8000
    assert num_calls(reading) < 200 * 3000 + 6 * num_columns


@pytest.mark.parametrize("message", ["example", "sequence_example"])
def test_too_many_cells_are_refused_before_the_first_is_decoded(message: Message) -> None:
    first = example(dict.fromkeys(names(3000), INT64_ONE)) if message == "example" else lists(names(3000))
    body = frame(first) + frame(b"") * 8000
    budget = Budget(amplification=Amplification(1, lambda: len(body)))
    with pytest.raises(LimitExceeded) as caught:
        decode_body(
            MemoryStream(body), "tfrecord", RecordsDecodeOptions(infer="all", message=message), budget
        )
    assert caught.value.code == "amplification_exceeded"


def test_lists_in_very_many_lists_count() -> None:
    body = b'{"x":' + b"[" * 90 + b"1,2" + b"]" * 90 + b"}\n"
    schema = Schema((Feature("x", INT64, (None,) * 90, "ragged"),))
    budget = Budget(amplification=Amplification(1100, lambda: len(body)))
    records = decode_body(MemoryStream(body), "ndjson", RecordsDecodeOptions(schema=schema), budget)
    assert [batch.num_rows for batch in as_arrow(records)] == [1]
