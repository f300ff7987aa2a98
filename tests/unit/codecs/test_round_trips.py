"""What is written of a TFRecord is read without a schema: the same values, or the difference is named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.forms import RECORDS_CODECS, FormName
from app.domain.rounded import RoundedFeatures
from tests.support.example_messages import example, file_of, floats, ints, strings
from tests.support.format_cases import Refusal, Rows, alike, decode, encode, read, write

FORMATS: Final = tuple(name for name, codec in RECORDS_CODECS.items() if codec.kinds)
_STRINGS: Final = st.binary(max_size=4) | st.sampled_from([b"", b"1", b"1.5", b"true", b"NaN", b'"'])
#: Values of a feature, and the message that holds a list of them.
KINDS: Final[dict[str, tuple[st.SearchStrategy[Any], Callable[..., bytes]]]] = {
    "floats": (st.floats(width=32), floats),
    "integers": (st.integers(-(2**63), 2**63 - 1), ints),
    "strings": (_STRINGS, strings),
}


@st.composite
def tfrecords(draw: st.DrawFn) -> bytes:
    """A file of a few rows, some of which lack a feature."""
    rows: list[dict[str, bytes]] = [{} for _ in range(draw(st.integers(1, 4)))]
    least, most = draw(st.sampled_from([(1, 1), (2, 2), (0, 3)]))
    for name in draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True)):
        values, message = KINDS[draw(st.sampled_from(sorted(KINDS)))]
        may_lack = draw(st.booleans())
        for row in rows:
            if not (may_lack and draw(st.booleans())):
                row[name] = message(*draw(st.lists(values, min_size=least, max_size=most)))
    return file_of(*map(example, rows))


def written_and_read(form: FormName, body: bytes, infer: str) -> tuple[bytes, tuple[str, ...]] | None:
    """The TFRecord of what the format has of this one, and the features that are named as dropped.

    None if the format says that it does not hold the rows.
    """
    content = write(form, decode("tfrecord", body, infer=infer))
    if isinstance(content, Refusal):
        assert content.code == "not_expressible"
        return None
    options: dict[str, Any] = {}
    if form == "oip":
        options["json_bytes"] = json.JSONDecoder().raw_decode(content.decode("latin-1"))[1]
    records = decode(form, content, **options)
    return encode("tfrecord", records), tuple(records.dropped)


def values_in(body: bytes, form: FormName, dropped: tuple[str, ...] = ()) -> list[list[tuple[str, Any]]]:
    """The features that each row has, in one order."""
    found = read("tfrecord", body)
    assert isinstance(found, Rows)
    rows = []
    for row in found.rows:
        names = {name: name.partition(".")[0] if form == "tar" else name for name in row}
        given = {name for name in row if row[name] is not None} - {*dropped, "__key__"}
        rows.append([(names[name], _comparable(row[name], form)) for name in sorted(given)])
    return rows


def _comparable(values: list[Any], form: FormName) -> list[Any]:
    """CSV has no types: text that is spelled like a number or a boolean is one."""
    return values if form != "csv" else [_spelled(value) for value in values]


def _spelled(value: Any) -> float | str:
    text = value.decode() if isinstance(value, bytes) else repr(value)
    if text in ("true", "false"):
        return float(text == "true")
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=60)
@given(body=tfrecords(), infer=st.sampled_from(["head", "all"]))
def test_text_of_a_tfrecord_is_read_back(form: FormName, body: bytes, infer: str) -> None:
    found = written_and_read(form, body, infer)
    if found is not None:
        again, dropped = found
        assert alike(values_in(again, form), values_in(body, form, dropped))


@pytest.mark.parametrize(
    "values",
    [
        [17031840768.0],  # whose shortest digits are 17031841000.0
        [-3.4e38, 1.0],
        [1.0, math.nan],
        [math.nan],
        [math.inf, -math.inf],
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_floats_of_a_tfrecord_survive_json(form: FormName, values: list[float]) -> None:
    body = file_of(example(x=floats(*values)))
    assert written_and_read(form, body, "head") == (body, ())


@pytest.mark.parametrize("value", [17031840768.0, -3.4e38, math.nan, -math.inf])
def test_floats_of_a_tfrecord_survive_csv(value: float) -> None:
    for other in (1.5, value):
        body = file_of(example(x=floats(value)), example(x=floats(other)))
        assert written_and_read("csv", body, "all") == (body, ())


def test_the_shortest_digits_of_a_large_float32_are_rounded_and_named() -> None:
    rounded = RoundedFeatures()
    encode("tfrecord", decode("ndjson", b'{"x":17031841000.0,"y":1.5}'), rounded=rounded)
    assert rounded.names == ["x"]


@pytest.mark.parametrize("number", ["17031841001.0", "123456789.0", "16777217.0", "1e300"])
def test_digits_that_a_large_float32_does_not_have_are_refused(number: str) -> None:
    found = write("tfrecord", decode("ndjson", f'{{"x":{number}}}'.encode()))
    assert found == Refusal("lossy_encoding", row=0, feature="x")
