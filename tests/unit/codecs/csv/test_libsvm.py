"""LibSVM through the form table."""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.codecs.forms import RECORDS_CODECS, FormName
from app.codecs.options import RecordsEncodeOptions
from app.domain.limits import Limits
from app.runtime.budget import Budget
from tests.support.column_checks import check_batch
from tests.support.format_cases import (
    PIECES,
    Refusal,
    Rows,
    assert_rows,
    decode,
    read,
    records,
    schema_of,
    write,
)
from tests.support.peak_memory import peak_bytes

FORM: FormName = "libsvm"
SPARSE = {"dtype": "float32", "shape": [6], "kind": "sparse"}


def read_text(text: str | bytes, **options: Any) -> Rows | Refusal:
    return read(FORM, text.encode() if isinstance(text, str) else text, pieces=PIECES, **options)


def entries(*pairs: tuple[int, float]) -> dict[str, Any]:
    return {"values": [value for _, value in pairs], "indices": [[index] for index, _ in pairs]}


@pytest.mark.parametrize(
    ("text", "features", "rows"),
    [
        ("", [], []),
        (
            "+1 1:0.5\n-1 3:2 4:1e-05\n",
            ["int64", "sparse float64[5]"],
            [(1, [(1, 0.5)]), (-1, [(3, 2.0), (4, 1e-05)])],
        ),
        ("0.5 1:+3", ["float64", "sparse float64[2]"], [(0.5, [(1, 3.0)])]),
        (".5 1:5. 2:-inf", ["float64", "sparse float64[3]"], [(0.5, [(1, 5.0), (2, float("-inf"))])]),
        ("1\n2 0:1", ["int64", "sparse float64[1]"], [(1, []), (2, [(0, 1.0)])]),
        (
            "# a file\n\n1  7:1 \t3:2 # 9:9\r\n \n2#\n",
            ["int64", "sparse float64[8]"],
            [(1, [(7, 1.0), (3, 2.0)]), (2, [])],
        ),
        ("1 2:1 2:3", ["int64", "sparse float64[3]"], [(1, [(2, 1.0), (2, 3.0)])]),
    ],
)
def test_lines_are_labels_and_entries(text: str, features: list[str], rows: list[Any]) -> None:
    found = read_text(text)
    assert_rows(found, [{"label": label, "features": entries(*pairs)} for label, pairs in rows])
    assert isinstance(found, Rows)
    assert list(found.features.values()) == features
    assert found.left == 0


def test_queries_are_a_feature_that_rows_may_lack() -> None:
    found = read_text("2 qid:7 1:1\n1 qid:-8\n")
    assert_rows(
        found,
        [
            {"label": 2, "qid": 7, "features": entries((1, 1.0))},
            {"label": 1, "qid": -8, "features": entries()},
        ],
    )
    found = read_text("2 1:1\n1 qid:8\n")
    assert isinstance(found, Rows)
    assert found.features == {"label": "int64", "qid": "int64?", "features": "sparse float64[2]"}
    assert [row["qid"] for row in found.rows] == [None, 8]


def test_declared_features_have_names_of_their_own() -> None:
    schema = schema_of(x=SPARSE, y="bfloat16")
    found = read_text("1.5 5:-2\nNaN 0:Infinity", schema=schema)
    assert_rows(
        found, [{"x": entries((5, -2.0)), "y": 1.5}, {"x": entries((0, float("inf"))), "y": float("nan")}]
    )
    assert_rows(
        read_text("1 qid:2 5:-2", schema=schema, undeclared="drop"), [{"x": entries((5, -2.0)), "y": 1.0}]
    )


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (b"1\n1 2: 3", Refusal("invalid_libsvm", 1)),
        (b"1 2 :3", Refusal("invalid_libsvm", 0)),
        (b"1 2::3", Refusal("invalid_libsvm", 0)),
        (b"1\n\n:\n", Refusal("invalid_libsvm", 1)),
        (b"1 : \n2", Refusal("invalid_libsvm", 0)),
        (b"1 2", Refusal("invalid_libsvm", 0)),
        (b"1 2:", Refusal("invalid_libsvm", 0)),
        (b"1 2:3\n4:5", Refusal("invalid_libsvm", 1)),
        (b"1 2:\n3", Refusal("invalid_libsvm", 0)),
        (b":1", Refusal("invalid_libsvm", 0)),
        (b"1 2:3:4", Refusal("invalid_libsvm", 0)),
        (b"1\n1 a:2", Refusal("invalid_libsvm", 1)),
        (b"1 1.5:2", Refusal("invalid_libsvm", 0)),
        (b"1 -1:2", Refusal("invalid_libsvm", 0)),
        (b"1 9223372036854775807:2", Refusal("invalid_libsvm", 0)),
        (b"1 9223372036854775808:2", Refusal("invalid_libsvm", 0)),
        (b"1 1:2 qid:3", Refusal("invalid_libsvm", 0)),
        (b"1 qid:3 qid:3", Refusal("invalid_libsvm", 0)),
        (b"1\n1 2:\xc3\xbc", Refusal("invalid_libsvm", 1)),
        (b"\xef\xbb\xbf1", Refusal("invalid_libsvm", 0)),
        (b"a", Refusal("schema_conflict", 0, "label")),
        (b"++1", Refusal("schema_conflict", 0, "label")),
        (b"1,2 1:1", Refusal("schema_conflict", 0, "label")),
        (b"1\n1 2:3 4:x", Refusal("schema_conflict", 1, "features")),
        (b"1 2:1e999", Refusal("out_of_range", 0, "features")),
        (b"1 2:007", Refusal("schema_conflict", 0, "features")),
        (b"1 qid:1.5", Refusal("schema_conflict", 0, "qid")),
    ],
)
def test_malformed_line_is_refused_with_its_row(text: bytes, refusal: Refusal) -> None:
    assert read_text(text) == refusal


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("1\n2 5:1 6:1", Refusal("schema_conflict", 1, "x")),
        ("1\n2 qid:1", Refusal("schema_conflict", 1, "qid")),
        ("1.5", Refusal("inexact_integer", 0, "y")),
        ("1 1:1e39", Refusal("out_of_range", 0, "x")),
    ],
)
def test_rows_are_held_to_a_declared_schema(text: str, refusal: Refusal) -> None:
    assert read_text(text, schema=schema_of(x=SPARSE, y="int8")) == refusal


def test_the_first_thousand_rows_say_what_the_features_are() -> None:
    head = "1 1:1\n" * 1000
    for later, feature in (("1 2:1", "features"), ("1.5 1:1", "label"), ("1 qid:1", "qid")):
        assert read_text(head + later) == Refusal("schema_conflict", 1000, feature)
        found = read_text(head + later, infer="all")
        assert isinstance(found, Rows)
        assert len(found.rows) == 1001
    assert read_text("1 qid:1\n" * 1000 + "1") == Refusal("schema_conflict", 1000, "qid")


@pytest.mark.parametrize(
    ("features", "feature"),
    [
        ({"y": "int64"}, None),
        ({"x": SPARSE}, None),
        ({"y": "int64", "x": SPARSE, "z": "int64"}, "z"),
        ({"y": "text", "x": SPARSE}, "y"),
        ({"y": "bool", "x": SPARSE}, "y"),
        ({"y": {"dtype": "int64", "shape": [2]}, "x": SPARSE}, "y"),
        ({"y": "int64", "x": {**SPARSE, "shape": [2, 3]}}, "x"),
        ({"y": "int64", "x": {**SPARSE, "dtype": "text"}}, "x"),
    ],
)
def test_other_features_are_refused(features: dict[str, Any], feature: str | None) -> None:
    refusal = Refusal("not_expressible", feature=feature)
    assert read_text("1", schema=schema_of(**features)) == refusal
    assert write(FORM, records([], schema=schema_of(**features))) == refusal
    assert read_text("1", message="sequence_example") == Refusal("not_expressible")


def test_rows_are_written_one_a_line() -> None:
    schema = schema_of(x=SPARSE, qid={"dtype": "int64", "nullable": True}, y="float32")
    x = {"values": [0.1, -2], "indices": [[5], [0]], "dense_shape": [6]}
    empty = {"values": [], "indices": [], "dense_shape": [6]}
    rows = [{"x": x, "y": 1, "qid": 3}, {"x": empty, "y": -0.5}, {"x": x, "y": 1e-7, "qid": 4}]
    written = write(FORM, records(rows, schema=schema))
    assert written == b"1.0 qid:3 5:0.1 0:-2.0\n-0.5\n1e-7 qid:4 5:0.1 0:-2.0\n"
    assert write(FORM, records([], schema=schema)) == b""


@pytest.mark.parametrize(
    ("row", "refusal"),
    [
        ({"x": None, "y": 1}, Refusal("not_expressible", 1, "x")),
        ({"x": {"values": [], "indices": []}, "y": None}, Refusal("not_expressible", 1, "y")),
        ({"x": {"values": [], "indices": []}, "y": "NaN"}, Refusal("nonfinite_value", 1, "y")),
        ({"x": {"values": [1, "NaN"], "indices": [[1], [2]]}, "y": 1}, Refusal("nonfinite_value", 1, "x")),
    ],
)
def test_row_without_a_line_form_is_refused(row: dict[str, Any], refusal: Refusal) -> None:
    schema = schema_of(x={**SPARSE, "nullable": True}, y={"dtype": "float32", "nullable": True})
    rows = [{"x": {"values": [1], "indices": [[1]]}, "y": 1}, row]
    assert write(FORM, records(rows, schema=schema)) == refusal


def test_a_line_is_bounded() -> None:
    limits = Limits(max_record_bytes=2**20)
    line = b"1 " + b"1:1 " * 2**19
    assert read_text(line, limits=limits) == Refusal("record_too_large", offset=0)
    budget = Budget(limits)
    batches = [batch.num_rows for batch in decode(FORM, b"1 1:1\n" * 40_000, budget).batches]
    assert (sum(batches), max(batches), budget.remaining) == (40_000, 8192, limits.max_decoded_bytes)


def test_memory_is_charged_before_it_is_taken() -> None:
    body = b"1\n" * 2_000_000

    def draw() -> int:
        budget = Budget()
        found = decode(FORM, body, budget)
        for batch in found.batches:
            check_batch(batch, found.schema)
        return budget.peak

    charged = draw()
    assert peak_bytes(draw) <= charged < 80 * 2**20


def test_a_long_row_is_written_in_pieces() -> None:
    pairs = [(index, 0.5 * index) for index in range(10_000)]
    text = "".join(f" {index}:{value:g}" for index, value in pairs)
    schema = schema_of(label="int64", features=SPARSE | {"shape": [10_000]})
    body = f"7\n8{text}\n9 3:1\n".encode()
    written = write(FORM, decode(FORM, body, Budget(), schema=schema))
    assert isinstance(written, bytes)
    assert_rows(
        read(FORM, written, schema=schema),
        [
            {"label": 7, "features": entries()},
            {"label": 8, "features": entries(*pairs)},
            {"label": 9, "features": entries((3, 1.0))},
        ],
    )


def test_a_number_without_text_is_refused_in_its_row_however_long_rows_are() -> None:
    schema = schema_of(label="int64", features=SPARSE)
    body = b"7" + b" 1:2" * 9000 + b"\n8 2:NaN\n"
    refusal = write(FORM, decode(FORM, body, Budget(), schema=schema))
    assert isinstance(refusal, Refusal)
    assert (refusal.row, refusal.feature) == (1, "features")


def test_a_long_row_takes_little_memory_as_it_is_written() -> None:
    schema = schema_of(label="int64", features=SPARSE)
    rows = decode(FORM, b"7" + b" 1:2" * 150_000 + b"\n", Budget(), schema=schema)
    batches = list(rows.batches)

    def encode() -> None:
        codec = RECORDS_CODECS[FORM]
        assert codec.encode is not None
        for _ in codec.encode(replace(rows, batches=iter(batches)), RecordsEncodeOptions(), Budget()):
            pass

    assert peak_bytes(encode) < 4 * 2**20


def test_scikit_learn_reads_and_writes_the_same() -> None:
    # Here, since every process that collects tests would take two seconds to import it.
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file

    rng = np.random.default_rng(5)
    dense = np.where(rng.random((300, 40)) < 0.2, rng.normal(size=(300, 40)), 0)
    labels, queries = rng.integers(-3, 4, 300), rng.integers(0, 9, 300)
    sink = io.BytesIO()
    dump_svmlight_file(dense, labels, sink, zero_based=True, query_id=queries, comment="of a test")
    found = read(FORM, sink.getvalue(), infer="all")
    assert isinstance(found, Rows)
    for row, label, query, values in zip(found.rows, labels, queries, dense, strict=True):
        (places,) = np.nonzero(values)
        assert (row["label"], row["qid"]) == (label, query)
        assert row["features"]["indices"] == places[:, None].tolist()
        np.testing.assert_allclose(row["features"]["values"], values[places], rtol=1e-15)

    schema = schema_of(
        label="int64", qid="int64", features={"dtype": "float64", "shape": [40], "kind": "sparse"}
    )
    written = write(FORM, records(found.rows, schema=schema))
    assert isinstance(written, bytes)
    again, y, qid = load_svmlight_file(io.BytesIO(written), n_features=40, zero_based=True, query_id=True)
    np.testing.assert_array_equal(y, labels)
    np.testing.assert_array_equal(qid, queries)
    for row, values in zip(found.rows, again, strict=True):
        assert values.data.tolist() == row["features"]["values"]
