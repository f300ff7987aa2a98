"""Conditional requests, as RFC 9110 has them."""

import pytest

from app.api.downloads.conditions import failed_condition, ranges_apply

ETAG = '"abc"'
DATE = "Sat, 21 Nov 2026 19:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"if-none-match": '"abc"'}, 304),
        ({"if-none-match": 'W/"abc"'}, 304),
        ({"if-none-match": '"x", W/"y" , "abc"'}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": '"x"'}, None),
        ({"if-none-match": "abc"}, None),
        ({"if-match": '"abc"'}, None),
        ({"if-match": '"x","abc"'}, None),
        ({"if-match": "*"}, None),
        ({"if-match": '"x"'}, 412),
        ({"if-match": 'W/"abc"'}, 412),
        ({"if-match": ""}, 412),
        ({"if-match": '"x"', "if-none-match": '"abc"'}, 412),
        ({"if-match": '"abc"', "if-none-match": '"abc"'}, 304),
        ({"if-modified-since": DATE}, None),
        ({"if-unmodified-since": DATE}, None),
    ],
)
def test_conditions_on_an_etag(headers: dict[str, str], status: int | None) -> None:
    assert failed_condition(headers, ETAG) == status


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, True),
        ({"if-range": '"abc"'}, True),
        ({"if-range": ' "abc" '}, True),
        ({"if-range": 'W/"abc"'}, False),
        ({"if-range": '"x"'}, False),
        ({"if-range": '"x", "abc"'}, False),
        ({"if-range": DATE}, False),
    ],
)
def test_a_range_holds_for_the_strong_etag_alone(headers: dict[str, str], expected: bool) -> None:
    assert ranges_apply(headers, ETAG) is expected
