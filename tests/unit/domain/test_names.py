"""Names from URLs: what passes is one plain path segment, everything else is refused with its rule."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.names import (
    Version,
    check_append_id,
    check_dataset_name,
    check_file_name,
    check_idempotency_key,
    check_split_name,
    parse_version,
)
from app.errors import InputError, MalformedInput, UnprocessableInput

HOSTILE = [
    "",
    ".",
    "..",
    "../etc",
    "a/b",
    "a\\b",
    "%2e%2e",
    "a%2fb",
    "a\0",
    "a\n",
    "a\r\nb",
    "a b",
    "a#1",
    "a?b",
    'a"b',
    "\u0430bc",  # a Cyrillic letter
    "\uff41bc",  # a full-width letter
    "a\u0661",  # an Arabic digit
    "\ufb01le",  # a ligature
    "a" * 300,
    "\ud800",
]


@pytest.mark.parametrize("name", ["a", "mnist", "my-data_2", "0", "A" * 64])
def test_names_of_datasets_and_splits(name: str) -> None:
    assert check_dataset_name(name) == name
    assert check_split_name(name) == name


@pytest.mark.parametrize("name", [*HOSTILE, "_gen", "-a", "a.b", "a" * 65])
def test_no_name_of_a_dataset_or_split(name: str) -> None:
    with pytest.raises(MalformedInput, match="1 to 64 of") as caught:
        check_dataset_name(name)
    assert caught.value.code == "invalid_dataset_name"
    with pytest.raises(MalformedInput, match="1 to 64 of") as caught:
        check_split_name(name)
    assert caught.value.code == "invalid_split_name"


def test_split_named_all_is_refused() -> None:
    with pytest.raises(UnprocessableInput, match="TFDS") as caught:
        check_split_name("all")
    assert caught.value.code == "reserved_split_name"
    assert check_dataset_name("all") == "all"


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.0.0", Version(1, 0)), ("12.345.6", Version(12, 345, 6)), ("0.0.0", Version(0, 0))],
)
def test_versions(text: str, version: Version) -> None:
    assert parse_version(text) == version
    assert str(version) == text


@pytest.mark.parametrize(
    "text", [*HOSTILE, "1", "1.0", "1.0.0.0", "01.0.0", "1.0.-1", "1.0.0 ", "v1.0.0", "9999999999.0.0"]
)
def test_no_versions(text: str) -> None:
    with pytest.raises(MalformedInput, match=r"x\.y\.z") as caught:
        parse_version(text)
    assert caught.value.code == "invalid_version"


def test_versions_are_ordered_by_number() -> None:
    assert parse_version("1.9.0") < parse_version("1.10.0") < parse_version("2.0.0")


@pytest.mark.parametrize("name", ["features.json", "_index.json", "a-b-train.tfrecord-00000-of-00001"])
def test_names_of_files(name: str) -> None:
    assert check_file_name(name) == name


@pytest.mark.parametrize("name", [*HOSTILE, ".hidden", "-a", "a" * 256])
def test_no_name_of_a_file(name: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        check_file_name(name)
    assert caught.value.code == "invalid_file_name"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a", "a"),
        ("x" * 128, "x" * 128),
        ('"8e03978e-40d5-43dd-bc93-6894a57f9324"', "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ("..", ".."),  # only ever hashed, never a path
    ],
)
def test_idempotency_keys(text: str, key: str) -> None:
    assert check_idempotency_key(text) == key


@pytest.mark.parametrize("text", ["", '""', '"', '"a', 'a"', "a b", "é", "x" * 129, "a\n", "a/b"])
def test_no_idempotency_keys(text: str) -> None:
    with pytest.raises(MalformedInput, match="1 to 128") as caught:
        check_idempotency_key(text)
    assert caught.value.code == "invalid_idempotency_key"


def test_append_ids() -> None:
    assert check_append_id("0123456789abcdef" * 2) == "0123456789abcdef" * 2


@pytest.mark.parametrize("text", [*HOSTILE, "0123456789ABCDEF" * 2, "0" * 31, "0" * 33])
def test_no_append_ids(text: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        check_append_id(text)
    assert caught.value.code == "invalid_append_id"


@settings(deadline=None, max_examples=300)
@given(st.text(), st.sampled_from([check_dataset_name, check_split_name, check_file_name, parse_version]))
def test_whatever_passes_is_a_plain_segment(text: str, check: Callable[[str], object]) -> None:
    refused = None
    try:
        check(text)
    except InputError as error:
        refused = error.detail
    if refused is not None:
        assert refused.isascii()
        assert len(refused) < 1000
    else:
        assert text.isascii()
        assert text.isprintable()
        assert not set(text) & set("/\\%?#\"' ")
        assert text not in ("", ".", "..")
