"""Division: the hashes are for ever, the thresholds exact, the fractions well-formed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.sharding.division import Division, parse_fractions
from app.errors import InputError, MalformedInput, UnprocessableInput

ID = "0123456789abcdef0123456789abcdef"
HALVES = Division("train", {"train": "0.5", "test": "0.5"})


def splitmix64(state: int, count: int) -> list[int]:
    """As https://prng.di.unimi.it/splitmix64.c has it, in plain integers."""
    numbers = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        numbers.append(z ^ (z >> 31))
    return numbers


def test_the_reference_gives_the_published_numbers() -> None:
    assert splitmix64(1234567, 2) == [6457827717110365317, 3203168211198807973]


def test_a_row_has_this_hash_for_ever() -> None:
    assert HALVES.hash_rows(ID, 0, 3).tolist() == [
        6539061454195339271,
        9273381937548198437,
        11726347271261376400,
    ]
    assert Division("train", {"a": "1"}, seed=7).hash_rows(ID, 2, 1).tolist() == [6803578222289512940]


def test_a_value_has_this_hash_for_ever() -> None:
    integers = np.array([0, 1, 2**64 - 1], np.uint64)
    assert HALVES.hash_integers(integers).tolist() == [
        16947894774759223577,
        8317460700228329731,
        5114911937248483338,
    ]
    assert HALVES.hash_bytes([b"", b"user-1"]).tolist() == [9252980938793651960, 8576446630278955055]
    assert HALVES.hash_null().tolist() == [7628568756018356857]
    assert HALVES.hash_bytes([]).tolist() == []


@given(first=st.integers(0, 2**40), cut=st.integers(0, 20))
@settings(max_examples=50, deadline=None)
def test_a_row_has_the_same_hash_in_whatever_company(first: int, cut: int) -> None:
    whole = HALVES.hash_rows(ID, first, 20)
    parts = [HALVES.hash_rows(ID, first, cut), HALVES.hash_rows(ID, first + cut, 20 - cut)]
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_thresholds_are_exact() -> None:
    thirds = Division("train", {"a": "0.3", "b": "0.3", "c": "0.4"})
    at = -(-3 * 2**64 // 10)
    hashes = np.array([0, at - 1, at, 2**64 - 1], np.uint64)
    assert Fraction(at - 1, 2**64) < Fraction(3, 10) <= Fraction(at, 2**64)
    assert thirds.deal(hashes).tolist() == [0, 0, 1, 2]


def test_the_last_split_takes_the_rest() -> None:
    division = Division("train", {"a": "0.999999999", "b": "0.000000001"})
    assert division.deal(np.array([2**64 - 1], np.uint64)).tolist() == [1]
    assert Division("train", {"a": "1"}).deal(np.array([0, 2**64 - 1], np.uint64)).tolist() == [0, 0]


def test_rows_are_dealt_by_their_fractions() -> None:
    division = Division("train", {"train": "0.8", "val": "0.1", "test": "0.1"}, seed=3)
    counts = np.bincount(division.deal(division.hash_rows(ID, 0, 100_000)))
    assert np.abs(counts - [80_000, 10_000, 10_000]).max() < 400


def test_fractions_have_one_spelling() -> None:
    assert parse_fractions("train:0.80,test:.2") == {"train": "0.8", "test": "0.2"}
    assert parse_fractions("a:1.00") == {"a": "1"}


@pytest.mark.parametrize(
    "text",
    ["", "train", "train:", ":1", "a:0.5,a:0.5", "a:0,b:1", "a:0.0,b:1", "a:1e0", "a:-1", "a:0.0000000001",
     "a:2", "a:0.5,", "a:\u0661", "a:nan", "a:0.5:0.5", "a:0.5 ,b:0.5", "_a:1", "a/b:1"],
)  # fmt: skip
def test_malformed_fractions_are_refused(text: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        parse_fractions(text)
    assert caught.value.code in ("invalid_fractions", "invalid_split_name")


@pytest.mark.parametrize("text", ["a:0.5", "a:0.5,b:0.499999999", "a:0.9,b:0.2"])
def test_fractions_add_up_to_one(text: str) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        parse_fractions(text)
    assert caught.value.code == "fractions_not_one"


def test_the_number_of_splits_has_a_bound() -> None:
    assert len(parse_fractions(",".join(f"s{i}:0.01" for i in range(100)))) == 100
    with pytest.raises(InputError) as caught:
        parse_fractions(",".join(f"s{i}:0.001" for i in range(1000)))
    assert caught.value.code == "invalid_fractions"


def test_its_json_form() -> None:
    division = Division("train", {"b": "0.5", "a": "0.5"}, "user", 3)
    assert division.splits == ("b", "a")
    assert Division.from_json(division.to_json()) == division
