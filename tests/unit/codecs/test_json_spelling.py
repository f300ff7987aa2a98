from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.json.spelling import integer_texts, joined_values, strings_from, value_texts
from app.codecs.json.texts import Texts, joined, nested
from app.codecs.json.values import ItemError
from app.codecs.options import TensorEncodeOptions
from app.domain.dtypes import DTYPES, STRING, TEXT, DType

PLAIN = TensorEncodeOptions()


def tokens(values: Any, dtype: DType, options: TensorEncodeOptions) -> list[str]:
    texts = value_texts(strings_from(values) if dtype.is_string else values, dtype, options)
    return [texts[index] for index in range(len(texts))]


def spelled(name: str, values: Any, options: TensorEncodeOptions = PLAIN) -> list[str]:
    dtype = DTYPES[name]
    return tokens(values if dtype.is_string else np.array(values, dtype.numpy), dtype, options)


def test_literal_spellings() -> None:
    assert spelled("bool", [True, False]) == ["true", "false"]
    assert spelled("int8", [-128, 127]) == ["-128", "127"]
    assert spelled("uint64", [2**64 - 1]) == ["18446744073709551615"]
    assert spelled("float32", [0.1, 1, -0.0, 1e20, 1e-7, 2**24]) == [
        "0.1",
        "1.0",
        "-0.0",
        "1e+20",
        "1e-7",
        "16777216.0",
    ]
    assert spelled("float64", [0.1, 1 / 3, 5e-324]) == ["0.1", "0.3333333333333333", "5e-324"]
    assert spelled("float16", [0.1, 65504, 6e-8]) == ["0.099975586", "65504.0", "5.9604645e-8"]
    assert spelled("bfloat16", [0.1, 3.38e38]) == ["0.100097656", "3.3762391e+38"]
    assert spelled("complex64", [0.1 - 1j]) == ["[0.1,-1.0]"]
    assert spelled("string", [b"a", b"\xff"]) == ['{"b64":"YQ=="}', '{"b64":"/w=="}']


def test_64_bit_integers_alone_become_strings() -> None:
    options = replace(PLAIN, int64="string")
    assert spelled("int64", [2**53 + 1], options) == ['"9007199254740993"']
    assert spelled("uint64", [1], options) == ['"1"']
    assert spelled("int32", [1], options) == ["1"]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_nonfinite_values(name: str) -> None:
    values = [1, np.nan, -np.inf, np.inf]
    assert spelled(name, values)[1:] == ['"NaN"', '"-Infinity"', '"Infinity"']
    assert spelled(name, values, replace(PLAIN, nonfinite="null"))[1:] == ["null"] * 3
    with pytest.raises(ItemError) as caught:
        spelled(name, values, replace(PLAIN, nonfinite="error"))
    assert (caught.value.index, caught.value.code) == (1, "nonfinite_value")


def test_a_negative_nan_is_nan() -> None:
    bits = np.array([0xFFC00000], np.uint32).view(np.float32)
    assert tokens(bits, DTYPES["float32"], PLAIN) == ['"NaN"']


def test_nonfinite_parts_of_complex_numbers() -> None:
    assert spelled("complex64", [complex(np.nan, np.inf)]) == ['["NaN","Infinity"]']
    with pytest.raises(ItemError) as caught:
        spelled("complex128", [1, complex(0, np.nan)], replace(PLAIN, nonfinite="error"))
    assert caught.value.index == 1


def test_text_is_a_string_or_refused() -> None:
    assert tokens(['"é\n\0'.encode()], TEXT, PLAIN) == ['"\\"é\\n\\u0000"']
    assert tokens([b"a"], STRING, replace(PLAIN, text="utf8")) == ['"a"']
    with pytest.raises(ItemError) as caught:
        tokens([b"a", b"\xff"], TEXT, PLAIN)
    assert (caught.value.index, caught.value.code) == (1, "invalid_utf8")


def test_web_safe_base64_has_the_other_alphabet_and_no_padding() -> None:
    websafe = replace(PLAIN, b64="websafe")
    assert tokens([b"a", b"\xff\xef\xbe", b""], STRING, websafe) == [
        '{"b64":"YQ"}',
        '{"b64":"_---"}',
        '{"b64":""}',
    ]
    assert tokens([b"\xff\xef\xbe"], STRING, PLAIN) == ['{"b64":"/+++"}']


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_all_65536_halves_are_spelled_as_the_float32_that_they_are(name: str) -> None:
    dtype = DTYPES[name]
    values = np.arange(65_536, dtype=np.uint16).view(dtype.numpy)
    texts = tokens(values, dtype, PLAIN)
    finite = [index for index, text in enumerate(texts) if not text.startswith('"')]
    assert len(finite) == 65_536 - 2 * 2 ** (10 if name == "float16" else 7)
    read_back = np.array([json.loads(texts[index]) for index in finite])
    assert (read_back.astype(dtype.numpy).view(np.uint16) == finite).all()
    # A reader without a 16-bit float gets the same number, -0.0 included.
    with np.errstate(invalid="ignore"):
        widened = values.astype(np.float32)
    assert (read_back.astype(np.float32).view(np.uint32) == widened[finite].view(np.uint32)).all()
    assert texts == tokens(widened, DTYPES["float32"], PLAIN)


@settings(deadline=None, max_examples=100)
@given(bits=npst.arrays(np.uint32, st.integers(0, 50)))
def test_float32_reads_back_through_a_float64(bits: Any) -> None:
    values = bits.view(np.float32)
    texts = tokens(values, DTYPES["float32"], PLAIN)
    finite = values[np.isfinite(values)]
    parsed = [json.loads(text) for text in texts if not text.startswith('"')]
    assert all(type(value) is float for value in parsed)
    assert (np.array(parsed, np.float64).astype(np.float32).view(np.uint32) == finite.view(np.uint32)).all()


def test_a_float32_whose_shortest_digits_would_be_rounded_twice() -> None:
    # The known example: 7.038531e-26 as a float64 lies so near a midpoint that it rounds to a neighbour.
    value = np.array([0x15AE43FD], np.uint32).view(np.float32)
    assert np.float32(float("7.038531e-26")) != value[0]
    [text] = tokens(value, DTYPES["float32"], PLAIN)
    assert np.float32(json.loads(text)) == value[0]


@settings(deadline=None, max_examples=100)
@given(bits=npst.arrays(np.uint64, st.integers(0, 50)))
def test_float64_reads_back(bits: Any) -> None:
    values = bits.view(np.float64)
    finite = values[np.isfinite(values)]
    parsed = [json.loads(text) for text in tokens(finite, DTYPES["float64"], PLAIN)]
    assert (np.array(parsed, np.float64).view(np.uint64) == finite.view(np.uint64)).all()


def test_bfloat16_is_spelled_in_the_digits_of_a_float32() -> None:
    value = np.array([1 / 3], ml_dtypes.bfloat16)
    assert tokens(value, DTYPES["bfloat16"], PLAIN) == ["0.33398438"]


def items(texts: Texts) -> list[str]:
    return [texts[index] for index in range(len(texts))]


OPTIONS = st.builds(
    TensorEncodeOptions,
    nonfinite=st.sampled_from(["string", "null"]),
    int64=st.sampled_from(["number", "string"]),
    text=st.just("b64"),
    b64=st.sampled_from(["standard", "websafe"]),
)


@settings(deadline=None, max_examples=100)
@given(
    dtype=st.sampled_from([dtype for dtype in DTYPES.values() if dtype.itemsize in (1, 2, 4, 8, 16)]),
    shape=st.lists(st.integers(1, 3), max_size=3),
    count=st.integers(0, 4),
    options=OPTIONS,
    data=st.data(),
)
def test_arrays_of_numbers_are_the_numbers_in_arrays(
    dtype: DType, shape: list[int], count: int, options: TensorEncodeOptions, data: st.DataObject
) -> None:
    size = count * int(np.prod(shape, dtype=int))
    raw = data.draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    values: Any = np.frombuffer(raw, np.uint8)
    if dtype.kind == "bool":
        values = values & 1
    if dtype.is_narrow:
        values = values % 2
    values = values.view(dtype.numpy)
    apart = value_texts(values, dtype, options)
    together = value_texts(values, dtype, options, shape)
    assert items(together) == items(nested(apart, shape))
    for texts, dims in ((apart, ()), (together, shape)):
        assert bytes(joined_values(values, dtype, options, dims)) == bytes(joined(texts))


def test_words_stand_where_their_values_do() -> None:
    values = np.array([[1, np.nan], [-np.inf, 2], [np.inf, np.nan]], np.float64).reshape(-1)
    text = bytes(joined_values(values, DTYPES["float64"], PLAIN, (2,)))
    assert text == b'[1.0,"NaN"],["-Infinity",2.0],["Infinity","NaN"]'
    same = np.array([-np.inf, 0, -np.inf], np.float32)
    assert bytes(joined_values(same, DTYPES["float32"], PLAIN)) == b'"-Infinity",0.0,"-Infinity"'


def test_the_float32_that_would_be_rounded_twice_is_found_among_others() -> None:
    values = np.array([0x15AE43FD, 0x95AE43FD, 0x15AE43FE], np.uint32).view(np.float32)
    read = json.loads(b"[" + bytes(joined_values(values, DTYPES["float32"], PLAIN)) + b"]")
    assert (np.array(read, np.float64).astype(np.float32) == values).all()
    assert read[0] == float(values[0])


def test_more_dimensions_than_numpy_holds() -> None:
    shape = [1] * 200
    text = bytes(joined_values(np.array([7], np.int8), DTYPES["int8"], PLAIN, shape))
    assert text == b"[" * 200 + b"7" + b"]" * 200


def test_memory_that_is_not_aligned() -> None:
    values = np.frombuffer(b"\0" + np.array([0.5, 2], np.float32).tobytes(), np.uint8)[1:].view(np.float32)
    assert spelled("float32", [0.5, 2]) == tokens(values, DTYPES["float32"], PLAIN)


def test_a_byte_that_is_no_bool_is_true() -> None:
    assert tokens(np.array([0, 1, 7], np.uint8).view(np.bool_), DTYPES["bool"], PLAIN) == [
        "false",
        "true",
        "true",
    ]


def test_places_are_never_strings() -> None:
    assert items(integer_texts(np.array([1, 2**62], np.int64), (1,))) == ["[1]", "[4611686018427387904]"]
    assert items(integer_texts(np.empty(0, np.int64), (2,))) == []
