from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.json_out import PIECE_BYTES, b64_text, empty_text, gather, nest, quote, tokens
from app.codecs.json_values import ItemError
from app.codecs.options import TensorEncodeOptions
from app.domain.dtypes import DTYPES, STRING, TEXT
from app.errors import UnprocessableInput

PLAIN = TensorEncodeOptions()


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


@settings(deadline=None, max_examples=60)
@given(shape=npst.array_shapes(min_dims=0, max_dims=5, min_side=1, max_side=4), data=st.data())
def test_nest_can_be_cut_anywhere(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    texts = list(map(str, array.reshape(-1).tolist()))
    cut = data.draw(st.integers(0, len(texts)))
    pieces = nest(texts[:cut], shape) + nest(texts[cut:], shape, cut)
    assert json.loads(",".join(pieces)) == array.tolist()


def test_nest_repeats_its_shape() -> None:
    assert nest(["1", "2", "3", "4"], [2]) == ["[1", "2]", "[3", "4]"]


@pytest.mark.parametrize(("shape", "text"), [([0], "[]"), ([2, 0, 3], "[[],[]]"), ([0, 2**62], "[]")])
def test_empty_arrays(shape: list[int], text: str) -> None:
    assert empty_text(shape) == text


def test_empty_arrays_are_no_amplifier() -> None:
    started = time.perf_counter()
    for shape in ([2**40, 0], [1000, 1000, 0]):
        with pytest.raises(UnprocessableInput) as caught:
            empty_text(shape)
        assert caught.value.code == "shape_too_large"
    assert time.perf_counter() - started < 1


def test_gathered_pieces_are_bounded() -> None:
    parts = ["a", "é" * PIECE_BYTES, "b" * 10, "c" * (PIECE_BYTES - 1)]
    pieces = list(gather(parts))
    assert b"".join(pieces) == "".join(parts).encode()
    assert max(map(len, pieces)) == PIECE_BYTES
    assert list(gather([])) == []


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=20)))
def test_base64_over_the_seams_of_buffers(buffers: list[bytes]) -> None:
    data = b"".join(buffers)
    assert "".join(b64_text(buffers)) == base64.b64encode(data).decode()
    assert "".join(b64_text(buffers, "websafe")) == base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_base64_of_large_buffers_comes_in_pieces() -> None:
    data = np.random.default_rng(0).bytes(3 * PIECE_BYTES)
    pieces = list(b64_text([data[:7], data[7:]]))
    assert "".join(pieces) == base64.b64encode(data).decode()
    assert max(map(len, pieces)) <= PIECE_BYTES


def test_quoted_names_keep_their_characters() -> None:
    assert quote('é"\N{GRINNING FACE}') == '"é\\"\N{GRINNING FACE}"'


def test_bfloat16_is_spelled_in_the_digits_of_a_float32() -> None:
    value = np.array([1 / 3], ml_dtypes.bfloat16)
    assert tokens(value, DTYPES["bfloat16"], PLAIN) == ["0.33398438"]
