"""Tensors to JSON: layouts, spellings, pieces; and what is written is read back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.array import AnyTensor, Array, RaggedTensor, SparseTensor
from app.codecs.forms import TENSOR_CODECS
from app.codecs.options import TensorEncodeOptions
from app.domain.dtypes import BOOL, DTYPES, STRING, DType
from app.domain.limits import Limits
from app.errors import InputError
from app.runtime.budget import Budget
from tests.support.random_elements import element_bytes
from tests.unit.codecs.cases.tensors import (
    RAGGED,
    RAGGED_JSON,
    RAGGED_SHOWN,
    SPARSE,
    SPARSE_JSON,
    SPARSE_SHOWN,
    dense,
    ragged,
    read,
    show_dense,
)

JSON = TENSOR_CODECS["json"]
PIECE_BYTES = 256 * 1024
NOTHING = Budget(Limits(max_decoded_bytes=0))


def written(*tensors: AnyTensor, **options: Any) -> str:
    """Strict JSON in bounded pieces, which is the same when the elements arrive in pieces."""
    assert JSON.encode is not None
    pieces = [bytes(piece) for piece in JSON.encode(tensors, TensorEncodeOptions(**options), Budget())]
    assert max(map(len, pieces)) <= PIECE_BYTES
    text = b"".join(pieces)
    json.loads(text, parse_constant=pytest.fail)
    if all(isinstance(item, Array) and not item.dtype.is_string for item in tensors):
        arriving = [in_pieces(item, item.name) for item in tensors]
        assert b"".join(JSON.encode(arriving, TensorEncodeOptions(**options), NOTHING)) == text
    return text.decode()


def in_pieces(tensor: Any, name: str | None) -> Array:
    content = tensor.values.tobytes()
    step = max(7, len(content) // 50)
    pieces = (content[at : at + step] for at in range(0, len(content), step))
    return Array(tensor.dtype, tensor.shape, pieces, name)


@pytest.mark.parametrize(
    ("tensor", "name", "flat", "nested", "oip"),
    [
        (
            dense("float32", (2, 2), [0.1, 1, -0.0, np.nan]), None,
            '{"dtype":"float32","shape":[2,2],"data":[0.1,1.0,-0.0,"NaN"]}',
            '[[0.1,1.0],[-0.0,"NaN"]]',
            '{"name":"output_0","datatype":"FP32","shape":[2,2],"data":[0.1,1.0,-0.0,"NaN"]}',
        ),
        (
            dense("int64", (), [2**53 + 1]), 'é"\N{GRINNING FACE}',
            '{"name":"é\\"\N{GRINNING FACE}","dtype":"int64","shape":[],"data":[9007199254740993]}',
            "9007199254740993",
            '{"name":"é\\"\N{GRINNING FACE}","datatype":"INT64","shape":[],"data":[9007199254740993]}',
        ),
        (
            dense("string", (2, 1), [b"a", b"\xff"]), None,
            '{"dtype":"string","shape":[2,1],"data":[{"b64":"YQ=="},{"b64":"/w=="}]}',
            '[[{"b64":"YQ=="}],[{"b64":"/w=="}]]',
            '{"name":"output_0","datatype":"BYTES","shape":[2,1],"data":[{"b64":"YQ=="},{"b64":"/w=="}]}',
        ),
        (
            dense("bool", (2, 0, 3), []), None,
            '{"dtype":"bool","shape":[2,0,3],"data":[]}',
            "[[],[]]",
            '{"name":"output_0","datatype":"BOOL","shape":[2,0,3],"data":[]}',
        ),
        (
            dense("complex64", (2,), [1, -1j]), None,
            '{"dtype":"complex64","shape":[2],"data":[[1.0,0.0],[-0.0,-1.0]]}',
            "[[1.0,0.0],[-0.0,-1.0]]",
            None,
        ),
        (
            SPARSE, "x",
            '{"name":"x","dtype":"float32","values":[1.0,"NaN"],"indices":[[0,1],[2,3]],"dense_shape":[3,4]}',
            '{"dtype":"float32","values":[1.0,"NaN"],"indices":[[0,1],[2,3]],"dense_shape":[3,4]}',
            '{"outputs":[{"name":"x/indices","datatype":"INT64","shape":[2,2],"data":[0,1,2,3]},'
            '{"name":"x/values","datatype":"FP32","shape":[2],"data":[1.0,"NaN"]},'
            '{"name":"x/dense_shape","datatype":"INT64","shape":[2],"data":[3,4]}]}',
        ),
        (
            SparseTensor((), np.zeros((1, 0), np.int64), Array.of(np.array([7]), DTYPES["int64"])), None,
            '{"dtype":"int64","values":[7],"indices":[[]],"dense_shape":[]}',
            '{"dtype":"int64","values":[7],"indices":[[]],"dense_shape":[]}',
            '{"outputs":[{"name":"indices","datatype":"INT64","shape":[1,0],"data":[]},'
            '{"name":"values","datatype":"INT64","shape":[1],"data":[7]},'
            '{"name":"dense_shape","datatype":"INT64","shape":[0],"data":[]}]}',
        ),
        (
            ragged([[1, 2], [3, 4]], [0, 1, 1, 2]), "r",
            '{"name":"r","dtype":"int64","values":[[1,2],[3,4]],"row_splits":[[0,1,1,2]]}',
            "[[[1,2]],[],[[3,4]]]",
            '{"outputs":[{"name":"r/values","datatype":"INT64","shape":[2,2],"data":[1,2,3,4]},'
            '{"name":"r/row_splits_0","datatype":"INT64","shape":[4],"data":[0,1,1,2]}]}',
        ),
        (
            ragged(np.zeros((0, 2)), [0, 0]), None,
            '{"dtype":"int64","shape":[0, 2],"values":[],"row_splits":[[0,0]]}',
            "[[]]",
            '{"outputs":[{"name":"values","datatype":"INT64","shape":[0,2],"data":[]},'
            '{"name":"row_splits_0","datatype":"INT64","shape":[2],"data":[0,0]}]}',
        ),
        (
            ragged([1j, 2], [0, 0, 2], [0, 1, 2], dtype="complex64"), None,
            '{"dtype":"complex64","values":[[0.0,1.0],[2.0,0.0]],"row_splits":[[0,0,2],[0,1,2]]}',
            "[[],[[[0.0,1.0]],[[2.0,0.0]]]]",
            None,
        ),
        (ragged(np.zeros((2, 0)), [0, 2, 2]), None, None, "[[[],[]],[]]", None),
        (ragged([], [0]), None, None, "[]", None),
        (ragged(np.arange(8).reshape(2, 2, 2), [0, 2]), None, None, "[[[[0,1],[2,3]],[[4,5],[6,7]]]]", None),
    ],
)  # fmt: skip
def test_one_tensor_in_each_layout(
    tensor: AnyTensor, name: str | None, flat: str | None, nested: str, oip: str | None
) -> None:
    item = replace(tensor, name=name)
    if flat is not None:
        assert written(item) == flat
    assert written(item, layout="nested") == nested
    if oip is not None:
        assert written(item, layout="oip") == oip


def test_members_of_sparse_and_ragged_tensors_alone_and_among_several() -> None:
    cases: list[tuple[AnyTensor, Any, str]] = [
        (SPARSE, SPARSE_JSON, SPARSE_SHOWN),
        (RAGGED, RAGGED_JSON, RAGGED_SHOWN),
    ]
    for tensor, body, text in cases:
        assert json.loads(written(tensor)) == body
        assert read(json.dumps(body).encode()) == [text]
        other = {"name": "y", "dtype": "int64", "shape": [1], "data": [5]}
        both = {"tensors": [{"name": "x", **body}, other]}
        y = dense("int64", (1,), [5], "y")
        assert json.loads(written(replace(tensor, name="x"), y)) == both
        assert read(json.dumps(both).encode()) == [f"x: {text}", "y: int64[1] [5]"]
    for key in ("inputs", "columns"):
        text = json.dumps({key: {"a": SPARSE_JSON, "b": [1], "c": RAGGED_JSON}})
        assert read(text.encode()) == [f"a: {SPARSE_SHOWN}", "b: int64[1] [1]", f"c: {RAGGED_SHOWN}"]


def test_several_tensors_in_each_layout() -> None:
    one, two = dense("int8", (1,), [1], "a"), dense("bool", (), [True], "b")
    assert written(one, two) == (
        '{"tensors":[{"name":"a","dtype":"int8","shape":[1],"data":[1]},'
        '{"name":"b","dtype":"bool","shape":[],"data":[true]}]}'
    )
    assert written(one, two, layout="oip") == (
        '{"outputs":[{"name":"a","datatype":"INT8","shape":[1],"data":[1]},'
        '{"name":"b","datatype":"BOOL","shape":[],"data":[true]}]}'
    )
    assert written(one, two, layout="nested") == '{"outputs":{"a":[1],"b":true}}'
    assert written(replace(one, name=None), two, layout="nested") == '{"tensors":[[1],true]}'
    assert (
        written(replace(RAGGED, name="r"), two, layout="nested")
        == '{"outputs":{"r":[[1,2],[],[3]],"b":true}}'
    )
    assert written() == '{"tensors":[]}'


@pytest.mark.parametrize(
    ("dtype", "values", "options", "expected"),
    [
        ("bool", [True, False], {}, "true,false"),
        ("int8", [-128, 127], {}, "-128,127"),
        ("uint64", [2**64 - 1], {}, "18446744073709551615"),
        ("float32", [0.1, 1, -0.0, 1e20, 1e-7, 2**24], {}, "0.1,1.0,-0.0,1e+20,1e-7,16777216.0"),
        ("float64", [0.1, 1 / 3, 5e-324], {}, "0.1,0.3333333333333333,5e-324"),
        # A float of 16 bits has the digits of the float32 that it is: few readers have another.
        ("float16", [0.1, 65504, 6e-8], {}, "0.099975586,65504.0,5.9604645e-8"),
        ("bfloat16", [0.1, 3.38e38, 1 / 3], {}, "0.100097656,3.3762391e+38,0.33398438"),
        ("complex64", [0.1 - 1j], {}, "[0.1,-1.0]"),
        ("int64", [2**53 + 1, -1], {"int64": "string"}, '"9007199254740993","-1"'),
        ("uint64", [1], {"int64": "string"}, '"1"'),
        ("int32", [1], {"int64": "string"}, "1"),
        *[(name, [1, np.nan, -np.inf, np.inf], {}, '1.0,"NaN","-Infinity","Infinity"')
          for name in ("float16", "bfloat16", "float32", "float64")],
        ("float32", [-np.inf, 0, -np.inf], {}, '"-Infinity",0.0,"-Infinity"'),
        ("float16", [1, np.nan, -np.inf], {"nonfinite": "null"}, "1.0,null,null"),
        ("complex64", [complex(np.nan, np.inf)], {}, '["NaN","Infinity"]'),
        ("string", ['"é\n\0\x1f\x7f\\/'.encode(), b""], {"text": "utf8"},
         '"\\"é\\n\\u0000\\u001f\x7f\\\\/",""'),
        ("string", [b"a", b"\xff\xef\xbe", b""], {}, '{"b64":"YQ=="},{"b64":"/+++"},{"b64":""}'),
        ("string", [b"a", b"\xff\xef\xbe", b""], {"b64": "websafe"},
         '{"b64":"YQ"},{"b64":"_---"},{"b64":""}'),
    ],
)  # fmt: skip
def test_spellings(dtype: str, values: list[Any], options: dict[str, Any], expected: str) -> None:
    tensor = dense(dtype, (len(values),), values)
    head = f'{{"dtype":"{dtype}","shape":[{len(values)}],"data":'
    assert written(tensor, **options) == f"{head}[{expected}]}}"
    assert written(tensor, layout="nested", **options) == f"[{expected}]"


@pytest.mark.parametrize(
    ("tensor", "options", "code", "element"),
    [
        (dense("string", (3,), [b"a" * PIECE_BYTES, b"b", b"\xff"]), {"text": "utf8"}, "invalid_utf8", 2),
        (
            dense("float32", (20_000,), [0.0] * 19_999 + [np.nan]),
            {"nonfinite": "error"},
            "nonfinite_value",
            19_999,
        ),
        (dense("complex128", (2,), [1, complex(0, np.nan)]), {"nonfinite": "error"}, "nonfinite_value", 1),
        (SPARSE, {"nonfinite": "error"}, "nonfinite_value", 1),
        (ragged([1, 2, np.nan], [0, 1, 3], dtype="float32"), {"nonfinite": "error"}, "nonfinite_value", 2),
    ],
)
def test_a_value_without_text_names_its_element(
    tensor: AnyTensor, options: dict[str, Any], code: str, element: int
) -> None:
    for layout in ("flat", "nested"):
        with pytest.raises(InputError) as caught:
            written(replace(tensor, name="x"), layout=layout, **options)
        assert (caught.value.code, caught.value.location.feature) == (code, "x")
        assert caught.value.detail.startswith(f"Element {element} of 'x'")


def test_tensor_without_a_form_in_the_layout_is_refused() -> None:
    for tensor, layout, code in [
        (dense("complex64", (1,), [1]), "oip", "no_datatype"),
        (dense("int8", (2**40, 0), []), "nested", "shape_too_large"),
        (dense("int8", (1000, 1000, 0), []), "nested", "shape_too_large"),
    ]:
        with pytest.raises(InputError) as caught:
            written(replace(tensor, name="x"), layout=layout)
        assert caught.value.code == code
    assert written(dense("int8", (0, 2**62), []), layout="nested") == "[]"


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_all_65536_halves_are_spelled_as_the_float32_that_they_are(name: str) -> None:
    values = np.arange(65_536, dtype=np.uint16).view(DTYPES[name].numpy)
    with np.errstate(invalid="ignore"):
        widened = values.astype(np.float32)
    text = written(Array(DTYPES[name], values.shape, values), layout="nested")
    assert text == written(Array(DTYPES["float32"], values.shape, widened), layout="nested")
    found = read(text.encode(), dtype=name)
    assert found == [show_dense(Array(DTYPES[name], values.shape, values))]


@settings(deadline=None, max_examples=100)
@given(bits=npst.arrays(np.uint32, st.integers(1, 50)))
def test_float32_reads_back_through_a_float64(bits: Any) -> None:
    # The shortest digits of the first two round to a neighbour if they are read as a float64 first.
    values = np.concatenate([np.array([0x15AE43FD, 0x95AE43FD], np.uint32), bits]).view(np.float32)
    parsed = json.loads(
        written(Array(DTYPES["float32"], values.shape, values), layout="nested", nonfinite="null")
    )
    finite = np.isfinite(values)
    assert [type(item) is float for item in parsed] == finite.tolist()
    found = np.array([item for item in parsed if item is not None], np.float64).astype(np.float32)
    assert (found.view(np.uint32) == values[finite].view(np.uint32)).all()


def _dense_tensors(dtypes: list[DType]) -> st.SearchStrategy[Array]:
    def of(dtype: DType, shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
        count = int(np.prod(shape, dtype=int))
        if dtype.is_string:
            values = st.lists(st.binary(max_size=5), min_size=count, max_size=count)
            return values.map(lambda items: dense("string", shape, items))
        content = st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)
        return content.map(
            lambda data: Array(dtype, shape, np.frombuffer(element_bytes(data, dtype), dtype.numpy))
        )

    shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
    return st.tuples(st.sampled_from(dtypes), shapes).flatmap(lambda pair: of(*pair))


@settings(deadline=None, max_examples=200)
@given(
    values=st.lists(_dense_tensors(list(DTYPES.values())), max_size=3),
    int64=st.sampled_from(["number", "string"]),
)
def test_any_dense_tensors_read_back_the_same(values: list[Array], int64: Any) -> None:
    items = [replace(value, name=f"t{index}") for index, value in enumerate(values)]
    expected = [f"{item.name}: {show_dense(value)}" for item, value in zip(items, values, strict=True)]
    assert read(written(*items, int64=int64).encode()) == expected
    if items and all(value.dtype.oip is not None for value in values):
        assert read(written(*items, layout="oip", int64=int64).encode()) == expected
    for value in values:
        text = written(value, layout="nested", int64=int64)
        if 0 not in value.shape:
            assert np.array(json.loads(text), dtype=object).shape[: len(value.shape)] == value.shape
        assert read(text.encode(), dtype=value.dtype, shape=value.shape) == [show_dense(value)]


@settings(deadline=None, max_examples=50)
@given(
    rows=st.lists(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3), max_size=5),
    width=st.integers(0, 2),
)
def test_ragged_rows_are_nested_arrays_and_return(rows: list[list[list[int]]], width: int) -> None:
    inner = [row for rows in rows for row in rows]
    flat = np.array([number for row in inner for number in row], np.int64)
    values = Array.of(np.repeat(flat[:, None], width, axis=1), DTYPES["int64"])
    tensor = RaggedTensor(
        values, tuple(np.cumsum([0, *map(len, level)], dtype=np.int64) for level in (rows, inner))
    )
    nested = [[[[number] * width for number in row] for row in rows] for rows in rows]
    assert json.loads(written(tensor, layout="nested")) == nested
    splits = [splits.tolist() for splits in tensor.row_splits]
    assert read(written(tensor).encode()) == [f"{show_dense(values)} {splits}"]


@pytest.mark.parametrize(
    "shape", [(40_000,), (7, 5_000), (300, 100), (16_400, 2), (2, 16_400), (2, 1, 16_384)]
)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "string"])
def test_long_tensors_are_cut_between_values(shape: tuple[int, ...], dtype: str) -> None:
    array: Any = np.arange(np.prod(shape)) % 1000
    values = array.astype("S3").astype(object) if dtype == "string" else array.astype(DTYPES[dtype].numpy)
    numbers = {"bool": array != 0, "string": array.astype(str)}.get(dtype, array)
    tensor = Array.of(values.reshape(shape), DTYPES[dtype])
    assert json.loads(written(tensor, layout="nested", text="utf8")) == numbers.reshape(shape).tolist()
    assert json.loads(written(tensor, text="utf8"))["data"] == numbers.tolist()
    strings = numbers.astype(str) if dtype == "int64" else numbers
    found = json.loads(written(tensor, layout="nested", text="utf8", int64="string"))
    assert found == strings.reshape(shape).tolist()


def test_ragged_rows_of_all_sizes_are_cut_at_the_right_places() -> None:
    lengths = [*np.random.default_rng(0).integers(0, 50, 2000).tolist(), 40_000, 0, 1]
    tensor = ragged(np.arange(sum(lengths)), [0, *np.cumsum(lengths).tolist()])
    nested = json.loads(written(tensor, layout="nested"))
    assert list(map(len, nested)) == lengths
    assert [item for row in nested for item in row] == list(range(sum(lengths)))


def test_long_strings_leave_in_pieces() -> None:
    values = [b"x", b"a" * (3 * PIECE_BYTES), b"", b"b" * PIECE_BYTES, b"c"]
    for options in ({}, {"layout": "nested"}, {"b64": "websafe"}, {"text": "utf8"}):
        text = written(dense("string", (5, 1), values), **options)
        assert read(text.encode(), dtype=STRING, shape=(5, 1)) == [f"string[5, 1] {values}"]


def test_more_dimensions_than_numpy_holds() -> None:
    for dtype in ("int8", "complex64"):
        text = written(dense(dtype, (1,) * 200, [7]), layout="nested")
        assert text == "[" * 200 + {"int8": "7", "complex64": "[7.0,0.0]"}[dtype] + "]" * 200


def test_unaligned_memory_and_odd_bools_are_written() -> None:
    values = np.frombuffer(b"\0" + np.array([0.5, 2], np.float32).tobytes(), np.uint8)[1:].view(np.float32)
    assert written(Array(DTYPES["float32"], (2,), values), layout="nested") == "[0.5,2.0]"
    flags = np.array([0, 1, 7], np.uint8).view(np.bool_)
    assert written(Array(BOOL, (3,), flags), layout="nested") == "[false,true,true]"
