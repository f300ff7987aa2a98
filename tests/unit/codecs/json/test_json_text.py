"""What is strict JSON, and where a text goes wrong: documents that are read as a whole.

Through base64 in JSON: a text that is no list of messages is parsed as any other, and refused for that. Where
a text of tensors or rows is wrong, the same parser says so.
"""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.schemas.declared import parse_schema
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from tests.support.format_cases import Refusal, Rows, decode, read, read_tensors
from tests.support.peak_memory import peak_bytes


def encoded(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def fault(text: bytes | str, limits: Limits | None = None) -> Refusal | None:
    """What is wrong with a text, or None where it is strict JSON, though not of messages."""
    found = read("b64", encoded(text), limits=limits)
    assert isinstance(found, Refusal)
    return None if found.code == "ambiguous_json" else found


def refused(text: bytes | str, limits: Limits | None = None) -> Refusal:
    found = fault(text, limits)
    assert found is not None
    return found


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
)


@settings(deadline=None, max_examples=100)
@given(value=JSON_VALUES, ascii_only=st.booleans())
def test_output_of_the_standard_library_is_read(value: Any, ascii_only: bool) -> None:
    assert fault(json.dumps([0, value], ensure_ascii=ascii_only)) is None


@settings(deadline=None, max_examples=50)
@given(
    names=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), unique=True, max_size=4),
    dims=st.lists(st.integers(0, 2**20) | st.none(), max_size=3),
    ascii_only=st.booleans(),
)
def test_the_values_are_those_that_were_written(
    names: list[str], dims: list[int | None], ascii_only: bool
) -> None:
    value = {"features": {name: {"dtype": "int8", "shape": dims} for name in names}}
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse_schema(text).to_json() == Schema.from_json(value).to_json()


@pytest.mark.parametrize(
    ("text", "code", "offset"),
    [
        ("", "invalid_json", 0),
        (" \n", "invalid_json", 2),
        ("[1,]", "invalid_json", 3),
        ('[{"é": [1 , \n ]}]', "invalid_json", 15),
        ('[{"é": 1 ,\t}]', "invalid_json", 12),
        ("[1] x", "invalid_json", 4),
        ('"é" x', "invalid_json", 5),
        ("[01]", "invalid_json", 2),
        ('"a\x00b"', "invalid_json", 2),
        ('"a\tb"', "invalid_json", 2),
        ("\x00", "invalid_json", 0),
        ("[1, NaN]", "nonfinite_token", 4),
        ('["NaN \\" Infinity", -Infinity]', "nonfinite_token", 20),
        ('{"é": 1, "a": {"b": 1, "b": 2}}', "duplicate_key", 24),
        ('{"a": 1, "\\u0061": 2}', "duplicate_key", 9),
        ('{"a": "\\"a\\":", "a": 2}', "duplicate_key", 16),
        ('{"a": [1], "a": 2}', "duplicate_key", 11),
        ('[{"a": 1}, {"a": [{}], "b": 1, "b": 2}]', "duplicate_key", 31),
        ('["\\ud800"]', "lone_surrogate", 2),
        ('["\\udc00\\ud800"]', "lone_surrogate", 2),
        ('["é\\\\", "\\uD83D\\uDE00", "\\uDFFF"]', "lone_surrogate", 26),
        (b'["a\xff"]', "invalid_utf8", 3),
        (b'["\xed\xa0\x80"]', "invalid_utf8", 2),
        (b"\xef\xbb\xbf1", "byte_order_mark", 0),
        (b"\xff\xfe1\x00", "invalid_utf8", 0),
    ],
)
def test_malformed_text_is_refused_where_it_goes_wrong(text: str, code: str, offset: int) -> None:
    found = refused(text)
    assert (found.error, found.code, found.offset) == (MalformedInput, code, offset)
    tensors = read_tensors("json", encoded(text))
    assert isinstance(tensors, Refusal)
    assert (tensors.code, tensors.offset) == (code, offset)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("[1 , ]", "Not JSON: Expecting value."),
        ('{"a": 1 , }', "Not JSON: Expecting property name enclosed in double quotes."),
    ],
    ids=["array", "object"],
)
def test_trailing_comma_has_the_same_detail_on_each_python(text: str, detail: str) -> None:
    assert refused(text).detail == detail


def test_pairs_of_surrogates_escaped_backslashes_and_nuls_are_text() -> None:
    names = rb'"\ud83d\ude00"', rb'"\\ud800"', rb'"\u0000"'
    text = b'{"features":{%s}}' % b",".join(name + b':{"dtype":"int8"}' for name in names)
    assert parse_schema(text).names == ("\N{GRINNING FACE}", "\\ud800", "\0")


def test_a_negative_zero_is_a_number_and_hides_no_other_fault() -> None:
    assert fault("[-0, 0]") is None
    found = refused("[-0, " + "2" * 5000 + "]")
    assert (found.code, found.offset) == ("integer_too_large", 5)
    assert refused("[-0, -01]").code == "invalid_json"


def test_integers_of_thousands_of_digits_are_refused_with_their_place() -> None:
    error = refused('["' + "1" * 6000 + '", -' + "2" * 5000 + "]")
    assert (error.error, error.code, error.offset) == (UnprocessableInput, "integer_too_large", 6005)
    assert "5000 digits" in error.detail


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_is_bounded_exactly(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    limits = Limits(max_json_depth=20)
    assert fault(opening * 20 + "1" + closing * 20, limits) is None
    found = refused(opening * 21 + "1" + closing * 21, limits)
    assert (found.error, found.code, found.offset) == (LimitExceeded, "json_too_deep", 20 * len(opening))


def test_brackets_in_strings_do_not_nest() -> None:
    limits = Limits(max_json_depth=3)
    text = b'["[[[[\\"[[[[", "]]]]\\\\", {"{{{{{": []}]'
    assert fault(text, limits) is None
    assert refused('["]]]]]", [[[1]]]]', limits).code == "json_too_deep"


@pytest.mark.parametrize(
    ("text", "offset"),
    [('\\"[[[]]]', 4), ('[["\\"]][[["[[', 11), ('[[\\"[', 4), ('[["]["[[[]', 6)],
)
def test_depth_is_found_where_it_was_counted_in_text_that_is_not_json(text: str, offset: int) -> None:
    found = refused(text, Limits(max_json_depth=2))
    assert (found.code, found.offset) == ("json_too_deep", offset)


@settings(deadline=None, max_examples=50)
@given(text=st.text(alphabet='[]{}"\\a', max_size=40))
def test_any_text_of_brackets_quotes_and_escapes_is_read_or_refused(text: str) -> None:
    fault(text, Limits(max_json_depth=2))


def test_many_shallow_arrays_are_not_deep() -> None:
    assert (
        fault("[" + ",".join(["[[]]" + " " * 30] * 60_000) + "]") is None
    )  # 2 MiB, more than is measured at once


def test_depth_counts_across_the_blocks_it_is_measured_in() -> None:
    flat = "[]," * 600_000
    assert refused("[" + flat + "[" * 600 + "]" * 600 + "]").code == "json_too_deep"


@pytest.mark.parametrize("begin", range(2**20 - 12, 2**20 + 2))
def test_strings_and_escapes_span_the_blocks_that_depth_is_measured_in(begin: int) -> None:
    limits = Limits(max_json_depth=3)
    text = "[" + " " * (begin - 1) + '"[[[\\\\\\"[[[", "]"'
    assert fault(f"{text}, [[]]]", limits) is None
    assert refused(text + ", [[[]]]]", limits).code == "json_too_deep"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_a_hundred_thousand_levels_are_refused_in_any_thread(text: str) -> None:
    codes = []
    thread = threading.Thread(target=lambda: codes.append(refused(text).code))
    thread.start()
    thread.join()
    assert codes == ["json_too_deep"]


def test_more_levels_than_the_stack_holds_are_too_deep_though_the_limit_allows_them() -> None:
    # The parser of Python 3.11 takes a thousand of them, later ones take some ten thousand.
    levels = 100_000
    assert refused("[" * levels + "]" * levels, Limits(max_json_depth=levels)).code == "json_too_deep"


def test_a_body_over_the_budget_is_refused_before_it_is_parsed() -> None:
    text = b"[" + b"1," * 100_000 + b"1]"
    error = refused(text, Limits(max_decoded_bytes=1_000_000))
    assert (error.error, error.code) == (LimitExceeded, "payload_too_large")


@pytest.mark.parametrize(
    "text",
    [
        "[" + ",".join(["0.5"] * 50_000) + "]",
        "[" + ",".join(["[]"] * 50_000) + "]",
        "[" + ",".join(["{}"] * 50_000) + "]",
        "[" + ",".join(['{"a":1,"b":2.5,"c":[1]}'] * 20_000) + "]",
        "[" + ",".join(f'"{i:x}"' for i in range(50_000)) + "]",
        "[" + ",".join(f'"é{i:x}"' for i in range(50_000)) + "]",
        "{" + ",".join(f'"{i:x}":{i}' for i in range(50_000)) + "}",
        '"' + "a" * 500_000 + "\\ud83d\\ude00" + '"',
        '"' + "a" * 500_000 + "\N{GRINNING FACE}" + '"',
    ],
    ids=["floats", "lists", "dicts", "rows", "strings", "latin", "members", "escape", "wide"],
)
def test_the_charge_covers_what_parsing_takes(text: str) -> None:
    body, budget = text.encode(), Budget()

    def parse() -> None:
        with pytest.raises(InputError) as caught:
            decode("b64", body, budget)
        assert caught.value.code == "ambiguous_json"

    assert peak_bytes(parse) <= budget.peak


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (',"a":1,"a":1}', "duplicate_key"),
        (',"a":NaN}', "nonfinite_token"),
        (',"a":' + "9" * 5000 + "}", "integer_too_large"),
    ],
)
def test_fault_after_a_long_string_takes_little_memory(fault: str, code: str) -> None:
    text = ('{"x":"' + "\\n" * 500_000 + '"' + fault).encode()

    def parse() -> None:
        with pytest.raises(InputError) as caught:
            decode("b64", text)
        assert caught.value.code == code

    assert peak_bytes(parse) < 6 * len(text)


@settings(deadline=None, max_examples=300)
@given(text=st.text(alphabet='[]{}",:\\u01dDcC8é.eE-+ NaInfty\x00\ud800', max_size=40))
def test_only_listed_texts_are_refused_that_the_standard_library_reads(text: str) -> None:
    body = text.encode("utf-8", "surrogatepass")
    found = read("b64", body)
    code = None if isinstance(found, Rows) else found.code
    if code in {None, "ambiguous_json"}:
        json.loads(body.decode())
    elif code == "invalid_json":
        with pytest.raises(ValueError, match="char"):
            json.loads(body.decode())
    else:
        assert code in {"duplicate_key", "nonfinite_token", "lone_surrogate", "invalid_utf8"}


def test_large_texts_are_read_as_small_ones_are() -> None:
    numbers = "1, -2, 0.5, -1e400, 1e-7, 9223372036854775808"
    for padding in ("", " " * (4 << 20)):
        assert fault(f"[{numbers}{padding}]") is None
        assert refused("[" + "1" * 5000 + padding + "]").code == "integer_too_large"
