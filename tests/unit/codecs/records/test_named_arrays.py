"""What the forms of named arrays have in common; test_npz.py holds the rest of it."""

from typing import Any

import numpy as np
import pytest

from app.codecs.containers.array import Array
from app.codecs.options import RecordsDecodeOptions
from app.codecs.records.columns import Records
from app.codecs.records.named_arrays import gather_arrays, records_from_arrays
from app.domain.dtypes import DTYPES
from app.domain.limits import Budget
from app.domain.schema import Schema
from app.errors import UnprocessableInput

KINDS = [
    {"dtype": "int64", "shape": [4], "kind": "sparse"},
    {"dtype": "int64", "shape": [2, None], "kind": "ragged"},
    {"dtype": "int64", "shape": [None, 2], "kind": "sequence"},
]


@pytest.mark.parametrize("feature", KINDS)
def test_one_array_is_no_sparse_ragged_or_sequence_feature(feature: dict[str, Any]) -> None:
    schema = Schema.from_json({"features": {"x": feature}})
    arrays = {"x": Array(DTYPES["int64"], (1, 4), np.zeros(4, "<i8"))}
    with pytest.raises(UnprocessableInput) as caught:
        records_from_arrays(arrays, RecordsDecodeOptions(schema=schema), Budget())
    assert (caught.value.code, caught.value.location.feature) == ("unsupported_kind", "x")
    with pytest.raises(UnprocessableInput) as caught:
        gather_arrays(Records(schema, iter([])), "NPZ", Budget())
    assert (caught.value.code, caught.value.location.feature) == ("not_expressible", "x")
