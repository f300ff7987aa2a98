from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.json.arrays import build_column
from app.codecs.json.cells import cell_texts, row_texts, slices
from app.codecs.json.texts import Texts
from app.codecs.json.values import Reading
from app.codecs.options import RecordsEncodeOptions
from app.codecs.records.columns import arrow_schema
from app.domain.dtypes import parse_feature_dtype
from app.domain.limits import MIB
from app.domain.schema import Feature, FeatureShape, Schema, default_encoding
from app.errors import InputError, UnprocessableInput
from tests.unit.codecs.records.kinds import rows_of, schemas

PLAIN = RecordsEncodeOptions()


def feature(name: str, shape: FeatureShape = (), label: str = "x") -> Feature:
    dtype = parse_feature_dtype(name)
    return Feature(label, dtype, shape, encoding=default_encoding(dtype, shape), nullable=True)


def items(texts: Texts) -> list[str]:
    return [texts[index] for index in range(len(texts))]


def texts(target: Feature, cells: list[Any], options: RecordsEncodeOptions = PLAIN) -> list[str]:
    return items(cell_texts(build_column(target, cells, Reading(), 0), target, options, 10))


CASES: list[tuple[Feature, list[Any]]] = [
    (feature("bool"), [True, None, False]),
    (feature("int8", (2, 2)), [[[1, 2], [3, 4]], None, [[5, 6], [7, 8]]]),
    (feature("float32", (2, 0)), [[[], []], None]),
    (feature("float64"), [None, 0.1, None]),
    (feature("bfloat16", (1,)), [[0.5], None]),
    (feature("complex64"), [[1.0, 2.0], None]),
    (feature("complex128", (2,)), [None, [[1.0, 2.0], [3.0, -0.5]]]),
    (feature("complex64", (None,)), [None, [[1.0, 2.0], [3.0, -0.5]], []]),
    (feature("text"), ["é", None, ""]),
    (feature("bytes", (1,)), [[{"b64": "/w=="}], None]),
    (feature("int64", (None,)), [[], None, [1, 2], [3]]),
    (feature("text", (None,)), [["a"], None, []]),
    (feature("int64", (None, 2)), [[[1, 2], [3, 4]], None, []]),
    (feature("int64", (2, None)), [[[1], [2]], [[], []], None]),
    (feature("int8", (None, None)), [[[1, 2]], None, [[3], [4]], []]),
]


@pytest.mark.parametrize(("target", "cells"), CASES, ids=lambda value: str(getattr(value, "shape", "")))
def test_cells_are_written_as_they_were_sent(target: Feature, cells: list[Any]) -> None:
    assert [json.loads(text) for text in texts(target, cells)] == cells


@pytest.mark.parametrize(("target", "cells"), CASES, ids=lambda value: str(getattr(value, "shape", "")))
def test_a_slice_writes_its_own_rows(target: Feature, cells: list[Any]) -> None:
    column = build_column(target, cells, Reading(), 0)
    for start in range(len(cells)):
        found = [json.loads(text) for text in items(cell_texts(column.slice(start, 2), target, PLAIN, 0))]
        assert found == cells[start : start + 2]


def test_nulls_alone() -> None:
    assert texts(feature("int8", (2,)), [None, None]) == ["null", "null"]
    assert texts(feature("int8", (None, None)), [None]) == ["null"]


def test_options_of_spelling() -> None:
    assert texts(feature("int64"), [1], replace(PLAIN, int64="string")) == ['"1"']
    assert texts(feature("float16"), ["NaN"], replace(PLAIN, nonfinite="null")) == ["null"]
    assert texts(feature("bytes"), ["a"], replace(PLAIN, text="utf8")) == ['"a"']
    assert texts(feature("text"), ["a"]) == ['"a"']


@pytest.mark.parametrize(
    ("target", "cells", "row"),
    [
        (feature("float32"), [None, 1.0, None, "NaN"], 13),
        (feature("float32", (2,)), [[1.0, 2.0], None, [1.0, "NaN"]], 12),
        (feature("float32", (None,)), [[], [1.0], None, ["NaN"]], 13),
    ],
)
def test_values_without_text_name_their_row(target: Feature, cells: list[Any], row: int) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        texts(target, cells, replace(PLAIN, nonfinite="error"))
    location = caught.value.location
    assert (caught.value.code, location.row, location.feature) == ("nonfinite_value", row, "x")


def test_text_that_is_none_is_refused() -> None:
    column = pa.array([b"a", b"\xff"], pa.binary())
    with pytest.raises(InputError) as caught:
        cell_texts(column, feature("text"), PLAIN, 0)
    assert (caught.value.code, caught.value.location.row) == ("invalid_utf8", 1)


def test_rows_are_objects_in_the_order_of_the_schema() -> None:
    schema = Schema((feature("int8", label='b"'), feature("text", label="a")))
    columns: list[pa.Array[Any]] = [pa.array([1, None], pa.int8()), pa.array([b"x", b"y"], pa.binary())]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))
    assert items(next(row_texts(batch, schema, PLAIN, 0))) == ['{"b\\"":1,"a":"x"}', '{"b\\"":null,"a":"y"}']


def test_slices_cover_the_batch_and_are_small() -> None:
    values = np.zeros((5000, 1000), np.float32)
    columns = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 1000)
    batch = pa.record_batch([columns], ["x"])
    starts, pieces = zip(*slices(batch), strict=True)
    assert sum(piece.num_rows for piece in pieces) == 5000
    assert starts[1] == pieces[0].num_rows
    assert all(piece.nbytes <= MIB for piece in pieces)
    assert list(slices(batch.slice(0, 0))) == []


def respelled(text: str) -> str:
    """As Python writes what it reads there, each float in the digits that it has."""
    value = json.loads(text, parse_float=lambda digits: f"<{digits}>")
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub('"<([-+.0-9e]*)>"', r"\1", written)


@settings(deadline=None, max_examples=50)
@given(
    case=schemas().flatmap(lambda schema: st.tuples(st.just(schema), rows_of(schema))),
    options=st.builds(
        RecordsEncodeOptions,
        nonfinite=st.sampled_from(["string", "null"]),
        int64=st.sampled_from(["number", "string"]),
        b64=st.sampled_from(["standard", "websafe"]),
    ),
)
def test_rows_are_what_python_would_write(
    case: tuple[Schema, list[dict[str, Any]]], options: RecordsEncodeOptions
) -> None:
    schema, rows = case
    columns = [build_column(feature, [row[feature.name] for row in rows], Reading(), 0) for feature in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))
    found = next(row_texts(batch, schema, options, 0, "\n"), None)
    if found is None:
        assert not rows
        return
    assert [respelled(text) for text in items(found)] == items(found)
    assert found.data.tobytes().decode() == "\n".join(items(found))
    for feature, column in zip(schema, columns, strict=True):
        cells = cell_texts(column, feature, options, 0)
        for row in range(len(rows)):
            assert items(cell_texts(column.slice(row, 1), feature, options, 0)) == [cells[row]]
            assert items(found)[row].count(f"{json.dumps(feature.name, ensure_ascii=False)}:{cells[row]}")
