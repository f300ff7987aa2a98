"""What the forms of named arrays have in common; test_npz.py holds the rest of it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.codecs.arrays.array import Array
from app.codecs.arrays.named_arrays import gather_arrays, records_from_arrays
from app.codecs.options import RecordsDecodeOptions
from app.codecs.records.columns import Records
from app.domain.dtypes import DTYPES
from app.domain.schema import Schema
from app.errors import SchemaConflict, UnprocessableInput
from app.runtime.budget import Budget


def schema_of(feature: dict[str, Any]) -> Schema:
    return Schema.from_json({"features": {"x": feature}})


def test_one_array_is_no_sparse_feature() -> None:
    schema = schema_of({"dtype": "int64", "shape": [4], "kind": "sparse"})
    arrays = {"x": Array(DTYPES["int64"], (1, 4), np.zeros(4, "<i8"))}
    with pytest.raises(UnprocessableInput) as caught:
        records_from_arrays(arrays, RecordsDecodeOptions(schema=schema), Budget())
    assert (caught.value.code, caught.value.location.feature) == ("unsupported_kind", "x")


@pytest.mark.parametrize(
    "feature",
    [
        {"dtype": "int64", "shape": [4], "kind": "sparse"},
        {"dtype": "int64", "shape": [2, None], "kind": "ragged"},
        {"dtype": "int64", "shape": [None, None], "kind": "sequence"},
    ],
)
def test_what_may_vary_between_rows_has_no_array(feature: dict[str, Any]) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        gather_arrays(Records(schema_of(feature), iter([])), "NPZ", Budget())
    assert (caught.value.code, caught.value.location.feature) == ("not_expressible", "x")
    assert "in NPZ" in caught.value.detail


def test_a_context_is_that_of_the_message_asked_for() -> None:
    arrays = {"x": Array(DTYPES["int64"], (1,), np.zeros(1, "<i8"))}
    options = RecordsDecodeOptions(schema=schema_of({"dtype": "int64"}), message="sequence_example")
    assert records_from_arrays(arrays, options, Budget()).schema.message == "sequence_example"


@pytest.mark.parametrize("num_rows", [1, 3])
def test_rows_without_any_feature_would_lose_their_number(num_rows: int) -> None:
    structs: Any = pa.array([{}] * num_rows, pa.struct([]))
    rows = pa.RecordBatch.from_struct_array(structs)
    with pytest.raises(UnprocessableInput, match="without any feature") as caught:
        gather_arrays(Records(Schema(()), iter([rows])), "NPZ", Budget())
    assert caught.value.code == "not_expressible"
    assert gather_arrays(Records(Schema(()), iter([])), "NPZ", Budget()) == []


def test_an_undeclared_array_is_refused_with_what_to_do() -> None:
    arrays = {name: Array(DTYPES["int64"], (1,), np.zeros(1, "<i8")) for name in ("x", "y")}
    options = RecordsDecodeOptions(schema=schema_of({"dtype": "int64"}))
    with pytest.raises(SchemaConflict, match=r"\?undeclared=drop") as caught:
        records_from_arrays(arrays, options, Budget())
    assert caught.value.location.feature == "y"
