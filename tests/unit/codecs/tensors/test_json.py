from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.json.out import PIECE_BYTES
from app.codecs.json.tensors import decode, encode
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import DTYPES, STRING, DType
from app.domain.limits import Limits
from app.domain.tensor import NamedTensor, Tensor
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile
from tests.elements import element_bytes

FLAT = TensorEncodeOptions()
NESTED = TensorEncodeOptions(layout="nested")
OIP = TensorEncodeOptions(layout="oip")


def tensor(name: str, shape: tuple[int, ...], values: list[Any]) -> Tensor:
    dtype = DTYPES[name]
    array = np.empty(len(values), dtype.numpy)
    array[:] = values
    return Tensor(dtype, shape, array)


def read(text: bytes, budget: Budget | None = None, **options: Any) -> list[NamedTensor]:
    found = decode(MemoryFile(text), TensorDecodeOptions(**options), budget or Budget())
    return [NamedTensor(named.tensor, named.name) for named in found if isinstance(named.tensor, Tensor)]


def written(options: TensorEncodeOptions, *tensors: Tensor | NamedTensor) -> str:
    named = [item if isinstance(item, NamedTensor) else NamedTensor(item) for item in tensors]
    return b"".join(encode(named, options)).decode()


def refused(text: bytes, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text, **options)
    return caught.value


def comparable(tensor: Tensor) -> list[Any]:
    """The values; floats by their digits, which tell -0.0 from 0.0 and know NaN."""
    values = tensor.values
    if tensor.dtype.kind == "complex":
        values = values.view(f"<f{tensor.dtype.itemsize // 2}")
    if tensor.dtype.kind in ("complex", "float"):
        with np.errstate(invalid="ignore"):
            return list(map(repr, values.astype(np.float64).tolist()))
    found: list[Any] = values.tolist()
    return found


def same(one: Tensor, other: Tensor) -> bool:
    return (one.dtype, one.shape, comparable(one)) == (other.dtype, other.shape, comparable(other))


@pytest.mark.parametrize(
    ("named", "flat", "nested", "oip"),
    [
        (
            NamedTensor(tensor("float32", (2, 2), [0.1, 1, -0.0, np.nan])),
            '{"dtype":"float32","shape":[2,2],"data":[0.1,1.0,-0.0,"NaN"]}',
            '[[0.1,1.0],[-0.0,"NaN"]]',
            '{"name":"output_0","datatype":"FP32","shape":[2,2],"data":[0.1,1.0,-0.0,"NaN"]}',
        ),
        (
            NamedTensor(tensor("int64", (), [2**53 + 1]), 'é"'),
            '{"name":"é\\"","dtype":"int64","shape":[],"data":[9007199254740993]}',
            "9007199254740993",
            '{"name":"é\\"","datatype":"INT64","shape":[],"data":[9007199254740993]}',
        ),
        (
            NamedTensor(tensor("string", (2, 1), [b"a", b"\xff"])),
            '{"dtype":"string","shape":[2,1],"data":[{"b64":"YQ=="},{"b64":"/w=="}]}',
            '[[{"b64":"YQ=="}],[{"b64":"/w=="}]]',
            '{"name":"output_0","datatype":"BYTES","shape":[2,1],"data":[{"b64":"YQ=="},{"b64":"/w=="}]}',
        ),
        (
            NamedTensor(tensor("bool", (2, 0, 3), [])),
            '{"dtype":"bool","shape":[2,0,3],"data":[]}',
            "[[],[]]",
            '{"name":"output_0","datatype":"BOOL","shape":[2,0,3],"data":[]}',
        ),
    ],
)
def test_one_tensor_in_each_layout(named: NamedTensor, flat: str, nested: str, oip: str) -> None:
    assert (written(FLAT, named), written(NESTED, named), written(OIP, named)) == (flat, nested, oip)


def test_several_tensors_in_each_layout() -> None:
    one, two = tensor("int8", (1,), [1]), tensor("bool", (), [True])
    named = NamedTensor(one, "a"), NamedTensor(two, "b")
    assert json.loads(written(FLAT, *named)) == {
        "tensors": [
            {"name": "a", "dtype": "int8", "shape": [1], "data": [1]},
            {"name": "b", "dtype": "bool", "shape": [], "data": [True]},
        ]
    }
    assert json.loads(written(OIP, *named)) == {
        "outputs": [
            {"name": "a", "datatype": "INT8", "shape": [1], "data": [1]},
            {"name": "b", "datatype": "BOOL", "shape": [], "data": [True]},
        ]
    }
    assert written(NESTED, *named) == '{"outputs":{"a":[1],"b":true}}'
    assert written(NESTED, one, named[1]) == '{"tensors":[[1],true]}'
    assert written(FLAT) == '{"tensors":[]}'


def test_complex_numbers_are_pairs() -> None:
    value = tensor("complex64", (2,), [1, -1j])
    assert written(FLAT, value) == '{"dtype":"complex64","shape":[2],"data":[[1.0,0.0],[-0.0,-1.0]]}'
    assert written(NESTED, value) == "[[1.0,0.0],[-0.0,-1.0]]"
    with pytest.raises(UnprocessableInput) as caught:
        written(OIP, value)
    assert caught.value.code == "no_datatype"


def test_options_of_spelling() -> None:
    assert '"data":["1"]' in written(replace(FLAT, int64="string"), tensor("uint64", (1,), [1]))
    assert '"data":[null]' in written(replace(FLAT, nonfinite="null"), tensor("float64", (1,), [np.inf]))
    assert '"data":["é"]' in written(replace(FLAT, text="utf8"), tensor("string", (1,), ["é".encode()]))


def test_values_without_text_name_the_element() -> None:
    strings = tensor("string", (3,), [b"a" * PIECE_BYTES, b"b", b"\xff"])
    floats = tensor("float32", (9000,), [0.0] * 8999 + [np.nan])
    for value, options, code, index in [
        (strings, replace(FLAT, text="utf8"), "invalid_utf8", 2),
        (floats, replace(NESTED, nonfinite="error"), "nonfinite_value", 8999),
    ]:
        with pytest.raises(UnprocessableInput) as caught:
            written(options, NamedTensor(value, "x"))
        assert (caught.value.code, caught.value.location.feature) == (code, "x")
        assert caught.value.detail.startswith(f"Element {index} of 'x'")


def _tensors(dtypes: list[DType]) -> st.SearchStrategy[Tensor]:
    def of(dtype: DType, shape: tuple[int, ...]) -> st.SearchStrategy[Tensor]:
        count = int(np.prod(shape, dtype=int))
        if dtype.is_string:
            values = st.lists(st.binary(max_size=5), min_size=count, max_size=count)
            return values.map(lambda items: tensor("string", shape, items))
        content = st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)
        return content.map(
            lambda data: Tensor(dtype, shape, np.frombuffer(element_bytes(data, dtype), dtype.numpy))
        )

    shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
    return st.tuples(st.sampled_from(dtypes), shapes).flatmap(lambda pair: of(*pair))


@settings(deadline=None, max_examples=250)
@given(value=_tensors(list(DTYPES.values())), int64=st.sampled_from(["number", "string"]))
def test_flat_json_reads_back_the_same(value: Tensor, int64: Any) -> None:
    text = written(replace(FLAT, int64=int64), value)
    json.loads(text, parse_constant=pytest.fail)
    [named] = read(text.encode())
    assert same(named.tensor, value)


@settings(deadline=None, max_examples=100)
@given(value=_tensors([dtype for dtype in DTYPES.values() if dtype.oip is not None]))
def test_open_inference_json_reads_back_the_same(value: Tensor) -> None:
    [named] = read(written(OIP, NamedTensor(value, "x")).encode())
    assert named.name == "x"
    assert same(named.tensor, value)


@settings(deadline=None, max_examples=150)
@given(value=_tensors(list(DTYPES.values())))
def test_nested_json_reads_back_where_the_dtype_and_shape_are_declared(value: Tensor) -> None:
    text = written(NESTED, value)
    if 0 not in value.shape:
        expected = value.values.reshape(value.shape)
        assert np.array(json.loads(text), dtype=object).shape[: expected.ndim] == expected.shape
    [named] = read(text.encode(), dtype=value.dtype, shape=value.shape)
    assert same(named.tensor, value)


@settings(deadline=None, max_examples=50)
@given(values=st.lists(_tensors(list(DTYPES.values())), max_size=4))
def test_several_read_back_in_their_order(values: list[Tensor]) -> None:
    named = [NamedTensor(value, f"t{index}") for index, value in enumerate(values)]
    found = read(written(FLAT, *named).encode())
    assert [item.name for item in found] == [item.name for item in named]
    assert all(same(item.tensor, value) for item, value in zip(found, values, strict=True))


def test_pieces_are_bounded_whatever_the_values_are() -> None:
    values = [b"x", b"a" * (3 * PIECE_BYTES), b"", b"b" * PIECE_BYTES, b"c"]
    for options in (FLAT, NESTED):
        pieces = list(encode([NamedTensor(tensor("string", (5, 1), values))], options))
        assert max(map(len, pieces)) <= PIECE_BYTES
        [named] = read(b"".join(pieces), dtype=STRING, shape=(5, 1))
        assert named.tensor.values.tolist() == values


def test_long_tensors_are_cut_between_values() -> None:
    values = np.arange(3 * 8192 + 1, dtype=np.int64)
    value = Tensor(DTYPES["int64"], (len(values),), values)
    assert json.loads(written(NESTED, value)) == values.tolist()
    assert json.loads(written(FLAT, value))["data"] == values.tolist()


def test_only_the_tensors_stay_charged() -> None:
    budget = Budget()
    read(b'{"tensors": [[1.5, 2], ["abc"]]}', budget)
    assert Limits().max_decoded_bytes - budget.remaining == 16 + 3 + 41
    assert budget.peak > 100


def test_a_body_over_the_budget_is_refused() -> None:
    with pytest.raises(LimitExceeded) as caught:
        read(b"[" + b"1," * 100_000 + b"1]", Budget(Limits(max_decoded_bytes=10**6)))
    assert caught.value.code == "payload_too_large"


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        (b"[NaN]", "nonfinite_token", MalformedInput),
        (b"[Infinity]", "nonfinite_token", MalformedInput),
        (b"[1e400]", "out_of_range", UnprocessableInput),
        (b'{"dtype": "float64", "data": [-1e400]}', "out_of_range", UnprocessableInput),
        (b'{"dtype": "float32", "data": [1e39]}', "out_of_range", UnprocessableInput),
        (b"[9223372036854775808]", "out_of_range", UnprocessableInput),
        (b"[18446744073709551616, 1.0]", "out_of_range_or_exact", UnprocessableInput),
        (b"[9007199254740993, 1.0]", "inexact_integer", UnprocessableInput),
        (b'{"dtype": "float64", "data": [9007199254740993]}', "inexact_integer", UnprocessableInput),
        (b'{"dtype": "int8", "data": [300]}', "out_of_range", UnprocessableInput),
        (b'{"data": [1], "data": [2]}', "duplicate_key", MalformedInput),
        (b"[" * 100_000, "json_too_deep", LimitExceeded),
        (b"[" + b"1" * 5000 + b"]", "integer_too_large", UnprocessableInput),
        (b"[" + b"1" * 4000 + b"]", "out_of_range", UnprocessableInput),
        (b'["\\ud800"]', "lone_surrogate", MalformedInput),
        (b'["\xff"]', "invalid_utf8", MalformedInput),
        (b'["\x00"]', "invalid_json", MalformedInput),
        (b"[[1], [2, 3]]", "ragged", UnprocessableInput),
        (b"[true, 1]", "mixed_types", UnprocessableInput),
    ],
)
def test_faulty_bodies(text: bytes, code: str, kind: type[InputError]) -> None:
    if code == "out_of_range_or_exact":
        # 2^64 is a power of two, which a float32 holds.
        assert read(text)[0].tensor.values.tolist() == [2.0**64, 1.0]
        return
    error = refused(text)
    assert isinstance(error, kind)
    assert error.code == code
    assert (error.location.offset, error.location.pointer) != (None, None)


def test_nul_in_text_is_a_byte() -> None:
    assert read(b'["\\u0000"]')[0].tensor.values.tolist() == [b"\0"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b'{"dtype":"float64","data":[-0]}', "[-0.0]"),
        (b'{"dtype":"bfloat16","data":[[-0],[0]]}', "[-0.0, 0.0]"),
        (b"[-0, 1.5]", "[-0.0, 1.5]"),
        (b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[-0]}]}', "[-0.0]"),
        (b"[-0]", "[0]"),
        (b'{"dtype":"uint8","data":[-0]}', "[0]"),
        (b'{"dtype":"float32","shape":[-0],"data":[]}', "[]"),
    ],
)
def test_the_integer_token_of_a_negative_zero(text: bytes, values: str) -> None:
    [named] = read(text)
    assert str(named.tensor.values.tolist()) == values


def test_bare_tokens_are_read_when_asked_for() -> None:
    found = read(b"[NaN, -Infinity, 1]", nonfinite="bare")[0].tensor
    assert found.dtype.name == "float64"
    assert str(found.values.tolist()) == "[nan, -inf, 1.0]"
    assert refused(b"[1e400]", nonfinite="bare").code == "out_of_range"


BODY = b'{"tensors": [{"name": "a", "dtype": "float16", "shape": [2, 1], "data": [[1], [2]]}, {"b64": ""}]}'
POSITIONS, BYTES = st.integers(0, len(BODY) - 1), st.sampled_from(b'[]{}",:0x\x00\xff9.e-')


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(POSITIONS, BYTES), max_size=4))
def test_mutated_bodies_are_read_or_refused(mutations: list[tuple[int, int]]) -> None:
    text = bytearray(BODY)
    for position, byte in mutations:
        text[position] = byte
    code = None
    try:
        found = read(bytes(text))
    except InputError as error:
        code = error.code
    if code is None:
        assert len(found) == 2
    else:
        assert code not in {"invalid_input", "malformed_input", "unprocessable_input"}
