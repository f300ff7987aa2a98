from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.json import tensor_data as json_data
from app.codecs.json.tensor_data import data_texts, nested_ragged_texts
from app.codecs.options import TensorEncodeOptions
from app.domain.dtypes import DTYPES, STRING, dtype_from_numpy
from app.domain.tensor import RaggedTensor, Tensor, tensor_from_array
from app.errors import UnprocessableInput

PLAIN = TensorEncodeOptions()


def text_of(parts: Any) -> str:
    return b"".join(part.encode() if isinstance(part, str) else bytes(part) for part in parts).decode()


@settings(deadline=None, max_examples=50)
@given(
    shape=npst.array_shapes(min_dims=0, max_dims=5, min_side=1, max_side=4),
    dtype=st.sampled_from(["int8", "int64", "float32", "complex64", "bool"]),
    chunk=st.integers(1, 30),
    int64=st.sampled_from(["number", "string"]),
)
def test_numbers_are_the_same_however_many_are_spelled_at_a_time(
    shape: tuple[int, ...], dtype: str, chunk: int, int64: Any
) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 100).astype(DTYPES[dtype].numpy).reshape(shape)
    tensor = tensor_from_array(array, DTYPES[dtype])
    options = TensorEncodeOptions(int64=int64)
    for dims in (shape, (array.size,)):
        whole = text_of(data_texts(tensor, None, dims, options))
        if dtype in ("int8", "float32", "bool"):
            assert json.loads(whole) == array.reshape(dims).tolist()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_data, "_CHUNK_VALUES", chunk)
            assert text_of(data_texts(tensor, None, dims, options)) == whole


@settings(deadline=None, max_examples=50)
@given(
    shape=npst.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=3),
    piece=st.integers(1, 100),
    data=st.data(),
)
def test_strings_are_the_same_however_they_are_cut(
    shape: tuple[int, ...], piece: int, data: st.DataObject
) -> None:
    count = int(np.prod(shape, dtype=int))
    values = np.empty(count, object)
    values[:] = data.draw(st.lists(st.binary(max_size=6), min_size=count, max_size=count))
    expected = np.empty(count, object)
    expected[:] = [{"b64": base64.b64encode(value).decode()} for value in values]
    tensor = Tensor(STRING, shape, values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_data, "PIECE_BYTES", piece)
        found = text_of(data_texts(tensor, None, shape, PLAIN))
    assert json.loads(found) == expected.reshape(shape).tolist()


@settings(deadline=None, max_examples=50)
@given(
    rows=st.lists(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3), max_size=5),
    width=st.integers(0, 2),
    chunk=st.integers(1, 12),
)
def test_ragged_rows_are_the_same_however_many_are_written_at_a_time(
    rows: list[list[list[int]]], width: int, chunk: int
) -> None:
    inner = [row for rows in rows for row in rows]
    flat = np.array([number for row in inner for number in row], np.int64)
    values = tensor_from_array(np.repeat(flat[:, None], width, axis=1), DTYPES["int64"])
    splits = tuple(np.cumsum([0, *map(len, level)], dtype=np.int64) for level in (rows, inner))
    tensor = RaggedTensor(values, splits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_data, "_CHUNK_VALUES", chunk)
        found = text_of(nested_ragged_texts(tensor, None, PLAIN))
    assert json.loads(found) == [[[[number] * width for number in row] for row in rows] for rows in rows]


def test_a_ragged_value_without_text_is_named_by_its_index() -> None:
    values = tensor_from_array(np.array([1, 2, np.nan], np.float32), DTYPES["float32"])
    tensor = RaggedTensor(values, (np.array([0, 1, 3]),))
    with pytest.raises(UnprocessableInput) as caught:
        text_of(nested_ragged_texts(tensor, "r", TensorEncodeOptions(nonfinite="error")))
    assert caught.value.code == "nonfinite_value"
    assert caught.value.detail.startswith("Element 2 of 'r'")


def test_every_numpy_dtype_is_spelled() -> None:
    for code in "?bhiqBHIQefdFD":
        dtype = dtype_from_numpy(np.dtype(code))
        assert dtype is not None
        tensor = tensor_from_array(np.zeros(1, dtype.numpy), dtype)
        zero = {"bool": "false", "complex": "[0.0,0.0]", "float": "0.0"}.get(dtype.kind, "0")
        assert text_of(data_texts(tensor, None, (1,), PLAIN)) == f"[{zero}]"
