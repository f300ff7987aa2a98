from __future__ import annotations

import contextlib
import json
import math
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.json.text import NegativeZero, NonFinite, parse_json
from app.domain.limits import Limits
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from tests.memory import peak_bytes


def parse(text: bytes | str, **options: bool) -> Any:
    encoded = text.encode() if isinstance(text, str) else text
    return parse_json(encoded, Budget(), **options).value


def refused(text: bytes | str, limits: Limits | None = None) -> InputError:
    encoded = text.encode() if isinstance(text, str) else text
    with pytest.raises(InputError) as caught:
        parse_json(encoded, Budget(limits))
    return caught.value


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
def test_what_the_standard_library_writes_is_read_back(value: Any, ascii_only: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only)) == value


def test_integer_and_float_tokens_stay_apart() -> None:
    assert list(map(type, parse("[1, 1.0, 1e2, true]"))) == [int, float, float, bool]


@pytest.mark.parametrize("options", [{}, {"bare_nonfinite": True}], ids=["strict", "bare"])
def test_the_integer_token_of_a_negative_zero_is_told_apart(options: dict[str, bool]) -> None:
    values = parse('[-0, 0, -1, -0.0, 1e-0, "-0", [-0\n]]', **options)
    assert values == [0, 0, -1, 0.0, 1.0, "-0", [0]]
    assert list(map(type, values[:6])) == [NegativeZero, int, int, float, float, str]
    assert type(values[6][0]) is NegativeZero
    assert type(parse("-0", **options)) is NegativeZero
    assert type(parse("[-0.5, -1, 2e-07]", **options)[1]) is int


def test_a_negative_zero_hides_no_other_fault() -> None:
    error = refused("[-0, " + "2" * 5000 + "]")
    assert (error.code, error.location.offset) == ("integer_too_large", 5)
    assert refused("[-0, -01]").code == "invalid_json"


@pytest.mark.parametrize(
    ("text", "code", "offset"),
    [
        ("", "invalid_json", 0),
        (" \n", "invalid_json", 2),
        ("[1,]", "invalid_json", 3),
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
    error = refused(text)
    assert isinstance(error, MalformedInput)
    assert (error.code, error.location.offset) == (code, offset)


def test_pairs_of_surrogates_and_escaped_backslashes_are_text() -> None:
    assert parse('["\\ud83d\\ude00", "\\\\ud800"]') == ["\N{GRINNING FACE}", "\\ud800"]


def test_an_escaped_nul_is_a_character() -> None:
    assert parse('"a\\u0000"') == "a\0"


def test_integers_of_thousands_of_digits_are_refused_with_their_place() -> None:
    error = refused('["' + "1" * 6000 + '", -' + "2" * 5000 + "]")
    assert isinstance(error, UnprocessableInput)
    assert (error.code, error.location.offset) == ("integer_too_large", 6005)
    assert "5000 digits" in error.detail


def test_bare_tokens_are_told_from_overflow_when_asked_for() -> None:
    values = parse("[NaN, Infinity, -Infinity, 1e400]", bare_nonfinite=True)
    assert list(map(type, values)) == [NonFinite, NonFinite, NonFinite, float]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, math.inf]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_is_bounded_exactly(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    limits = Limits(max_json_depth=20)
    assert parse_json((opening * 20 + "1" + closing * 20).encode(), Budget(limits)).value
    error = refused(opening * 21 + "1" + closing * 21, limits)
    assert isinstance(error, LimitExceeded)
    assert (error.code, error.location.offset) == ("json_too_deep", 20 * len(opening))


def test_brackets_in_strings_are_no_nesting() -> None:
    limits = Limits(max_json_depth=3)
    text = b'["[[[[\\"[[[[", "]]]]\\\\", {"{{{{{": []}]'
    assert parse_json(text, Budget(limits)).value == ['[[[["[[[[', "]]]]\\", {"{{{{{": []}]
    assert refused('["]]]]]", [[[1]]]]', limits).code == "json_too_deep"


@pytest.mark.parametrize(
    ("text", "offset"),
    [('\\"[[[]]]', 4), ('[["\\"]][[["[[', 11), ('[[\\"[', 4), ('[["]["[[[]', 6)],
)
def test_depth_is_found_where_it_was_counted_in_text_that_is_not_json(text: str, offset: int) -> None:
    error = refused(text, Limits(max_json_depth=2))
    assert (error.code, error.location.offset) == ("json_too_deep", offset)


@settings(deadline=None, max_examples=50)
@given(text=st.text(alphabet='[]{}"\\a', max_size=40))
def test_any_text_of_brackets_quotes_and_escapes_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_json(text.encode(), Budget(Limits(max_json_depth=2)))


def test_many_shallow_arrays_are_not_deep() -> None:
    assert len(parse("[" + ",".join(["[[]]"] * 700_000) + "]")) == 700_000


def test_depth_counts_across_the_blocks_it_is_measured_in() -> None:
    flat = "[]," * 600_000
    assert refused("[" + flat + "[" * 600 + "]" * 600 + "]").code == "json_too_deep"


@pytest.mark.parametrize("begin", range(2**20 - 12, 2**20 + 2))
def test_strings_and_escapes_span_the_blocks_that_depth_is_measured_in(begin: int) -> None:
    limits = Limits(max_json_depth=3)
    text = "[" + " " * (begin - 1) + '"[[[\\\\\\"[[[", "]"'
    assert parse_json(f"{text}, [[]]]".encode(), Budget(limits)).value[2] == [[]]
    assert refused(text + ", [[[]]]]", limits).code == "json_too_deep"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_a_hundred_thousand_levels_are_refused_in_any_thread(text: str) -> None:
    codes = []
    thread = threading.Thread(target=lambda: codes.append(refused(text).code))
    thread.start()
    thread.join()
    assert codes == ["json_too_deep"]


def test_a_stack_that_is_nearly_used_up_is_no_crash() -> None:
    def called_from(depth: int) -> InputError:
        return called_from(depth - 1) if depth else refused("[" * 500 + "]" * 500)

    # pytest itself takes a hundred frames of the thousand; 500 more are too many for the parser.
    assert called_from(600).code == "json_too_deep"


def test_a_body_over_the_budget_is_refused_before_it_is_parsed() -> None:
    text = b"[" + b"1," * 100_000 + b"1]"
    error = refused(text, Limits(max_decoded_bytes=1_000_000))
    assert isinstance(error, LimitExceeded)
    assert error.code == "payload_too_large"


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
    encoded = text.encode()
    budget = Budget()
    documents = []
    peak = peak_bytes(lambda: documents.append(parse_json(memoryview(encoded), budget)))
    assert peak <= budget.peak
    assert budget.remaining == Limits().max_decoded_bytes - documents[0].num_bytes


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (',"a":1,"a":1}', "duplicate_key"),
        (',"a":NaN}', "nonfinite_token"),
        (',"a":' + "9" * 5000 + "}", "integer_too_large"),
    ],
)
def test_finding_a_fault_behind_a_long_string_takes_little(fault: str, code: str) -> None:
    text = ('{"x":"' + "\\n" * 500_000 + '"' + fault).encode()

    def parse() -> None:
        with pytest.raises(InputError) as caught:
            parse_json(text, Budget())
        assert caught.value.code == code

    assert peak_bytes(parse) < 6 * len(text)


@settings(deadline=None, max_examples=300)
@given(text=st.text(alphabet='[]{}",:\\u01dDcC8é.eE-+ NaInfty\x00\ud800', max_size=40))
def test_only_listed_texts_are_refused_that_the_standard_library_reads(text: str) -> None:
    code = None
    try:
        value = parse(text.encode("utf-8", "surrogatepass"))
    except InputError as error:
        code = error.code
    if code is None:
        assert json.loads(text) == value
    elif code == "invalid_json":
        with pytest.raises(ValueError, match="char"):
            json.loads(text)
    else:
        assert code in {"duplicate_key", "nonfinite_token", "lone_surrogate", "invalid_utf8"}


def test_large_texts_are_read_as_small_ones_are() -> None:
    numbers = "1, -2, 0.5, -1e400, 1e-7, 9223372036854775808"
    padded = parse(f"[{numbers}" + " " * (4 << 20) + "]")
    small = parse(f"[{numbers}]")
    assert (padded, [*map(type, padded)]) == (small, [*map(type, small)])
    assert refused("[" + "1" * 5000 + " " * (4 << 20) + "]").code == "integer_too_large"
