from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.json.tensor_body import read_tensors
from app.codecs.json.tensor_plain import read_plain
from app.codecs.json.tensors import decode
from app.codecs.json.text import parse_json
from app.codecs.options import TensorDecodeOptions
from app.domain.dtypes import DTYPES, FLOAT64
from app.domain.limits import Limits
from app.domain.tensor import NamedAny, Tensor
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile


def plain(text: bytes, limits: Limits | None = None, **options: Any) -> list[NamedAny] | None:
    budget = Budget(limits)
    found = read_plain(memoryview(text), TensorDecodeOptions(**options), budget)
    assert budget.remaining == budget.limits.max_decoded_bytes
    return found


def dense(named: NamedAny) -> Tensor:
    assert isinstance(named.tensor, Tensor)
    return named.tensor


def shown(tensors: list[NamedAny]) -> list[Any]:
    return [
        (named.name, dense(named).dtype.name, dense(named).shape, bytes(dense(named).values.tobytes()))
        if not dense(named).dtype.is_string
        else (named.name, dense(named).shape, dense(named).values.tolist())
        for named in tensors
    ]


def outcome(text: bytes, options: TensorDecodeOptions, *, fast: bool, limits: Limits | None = None) -> Any:
    budget = Budget(limits)
    try:
        if fast:
            return shown(decode(MemoryFile(text), options, budget))
        document = parse_json(memoryview(text), budget, bare_nonfinite=options.nonfinite == "bare")
        return shown(read_tensors(document.value, options, budget.limits))
    except InputError as error:
        return type(error), error.code, error.detail, error.location


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[1,2.5]", [(None, "float64", (2,), [1.0, 2.5])]),
        (b" [[1],[2]] \n", [(None, "int64", (2, 1), [1, 2])]),
        (b'{"data":[1,2]}', [(None, "int64", (2,), [1, 2])]),
        (
            b'{"dtype":"float32","shape":[2, 1],"data":[1,2]}',
            [(None, "float32", (2, 1), [1.0, 2.0])],
        ),
        (b'{"data":[1,2],"shape":[1,2],"dtype":"int8","name":"x"}', [("x", "int8", (1, 2), [1, 2])]),
        (
            b' { "name" : "x" , "datatype" : "FP64" , "shape" : [ 2 ] , "data" : [ 1 , 2 ] } ',
            [("x", "float64", (2,), [1.0, 2.0])],
        ),
        (b'{"instances":[[1],[2]],"signature_name":"s"}', [(None, "int64", (2, 1), [1, 2])]),
        (b'{"id":7,"inputs":[0.5]}', [(None, "float64", (1,), [0.5])]),
        (b'{"parameters":{},"data":[1]}', None),
        (b'{"name":"a\\n","data":[1]}', None),
        (b"[]", None),
        (b"5", None),
        (b'["a"]', None),
        (b"[true]", None),
        (b"[1,null]", None),
        (b'{"data":[]}', None),
        (b'{"data":1}', None),
        (b'{"dtype":"complex64","data":[1,2]}', None),
        (b'{"dtype":"int8","data":[300]}', None),
        (b'{"data":[1,2],"data":[3]}', None),
        (b'{"data":[1,2],"dat\\u0061":[3]}', None),
        (b'{"data":[1,2],"shape":[3]}', None),
        (b'{"data":[1,2],"x":1}', None),
        (b'{"instances":[1],"inputs":[1]}', None),
        (b'{"instances":[1]', None),
        (b"[1] [2]", None),
        (b"[1]]", None),
        (b"\xef\xbb\xbf[1]", None),
        (b"\x0b[1]", None),
        (b"[1]\x0b", None),
        (b"", None),
    ],
)
def test_the_plain_forms_are_read_and_others_are_not(text: bytes, expected: list[Any] | None) -> None:
    found = plain(text)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert [
        (n.name, dense(n).dtype.name, dense(n).shape, dense(n).values.tolist()) for n in found
    ] == expected


def test_what_the_query_declares_is_kept_to() -> None:
    found = plain(b"[1,2]", dtype=FLOAT64, shape=(2, 1))
    assert found is not None
    assert (dense(found[0]).dtype, dense(found[0]).shape) == (FLOAT64, (2, 1))
    assert plain(b"[1,2]", shape=(3,)) is None
    assert plain(b'{"dtype":"int8","data":[1]}', dtype=FLOAT64) is None


def test_a_text_over_the_budget_is_left_to_the_general_path() -> None:
    assert plain(b"[" + b"1," * 200 + b"1]", Limits(max_decoded_bytes=1000)) is None


NUMBERS = st.one_of(
    st.integers(-300, 300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-(2**65), 2**65),
)
ARRAYS: st.SearchStrategy[Any] = st.one_of(
    st.lists(NUMBERS, max_size=6),
    st.lists(st.lists(NUMBERS, min_size=2, max_size=2), max_size=4),
    st.lists(st.one_of(NUMBERS, st.booleans(), st.none(), st.just("NaN"), st.just([])), max_size=4),
)
NAMES = ("data", "instances", "inputs", "dtype", "shape", "name", "id", "x")
MEMBERS = st.one_of(
    ARRAYS, st.sampled_from([dtype.name for dtype in DTYPES.values()]), st.just([2]), st.integers(0, 3)
)
BODIES = st.one_of(
    ARRAYS,
    st.builds(lambda data, dtype: {"dtype": dtype, "data": data}, ARRAYS, st.sampled_from(list(DTYPES))),
    st.dictionaries(st.sampled_from(NAMES), MEMBERS, max_size=4),
)
OPTIONS = st.builds(
    TensorDecodeOptions,
    dtype=st.sampled_from([None, None, *DTYPES.values()]),
    shape=st.sampled_from([None, None, (2,), (1, 2)]),
    nonfinite=st.sampled_from(["error", "null", "bare"]),
)


@given(BODIES, OPTIONS, st.sampled_from([None, 1]))
@settings(deadline=None, max_examples=400)
def test_results_and_errors_are_those_of_the_general_path(
    body: Any, options: TensorDecodeOptions, indent: int | None
) -> None:
    text = json.dumps(body, indent=indent).encode()
    assert outcome(text, options, fast=True) == outcome(text, options, fast=False)


@given(
    BODIES,
    OPTIONS,
    st.lists(
        st.tuples(st.integers(0, 200), st.binary(max_size=2) | st.sampled_from(b'0123456789.e-+,[]{}": '))
    ),
)
@settings(deadline=None, max_examples=400)
def test_mutated_bytes_have_the_outcome_of_the_general_path(
    body: Any, options: TensorDecodeOptions, changes: list[tuple[int, bytes | int]]
) -> None:
    text = bytearray(json.dumps(body).encode())
    for position, change in changes:
        at = position % (len(text) + 1)
        text[at : at + 1] = bytes([change]) if isinstance(change, int) else change
    assert outcome(bytes(text), options, fast=True) == outcome(bytes(text), options, fast=False)


def test_nothing_but_the_tensors_stays_charged() -> None:
    budget = Budget()
    decode(MemoryFile(b'{"dtype":"float32","data":[1,2,3]}'), TensorDecodeOptions(), budget)
    assert Limits().max_decoded_bytes - budget.remaining == 12
