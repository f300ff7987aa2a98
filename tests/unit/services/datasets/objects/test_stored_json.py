"""Small JSON objects on the store, and the checksum with which those are sealed that nothing names."""

import time

import pytest

from app.errors import CorruptData
from app.services.datasets.objects.stored_json import (
    dump_json,
    load_json,
    open_json,
    read_again,
    seal_json,
)
from tests.support.checksummed_json import sealed
from tests.support.faulty_store import with_wrong_bit

VALUE = {"nonce": "x", "n": [1, None], "a": "é"}
SEALED = b'{"nonce":"x","n":[1,null],"a":"\\u00e9","crc32":"f550061e"}'


def test_the_form_is_compact_ascii_in_the_given_order() -> None:
    assert dump_json({"z": [1, None], "a": "é"}) == b'{"z":[1,null],"a":"\\u00e9"}'


def test_dumped_json_is_loaded() -> None:
    assert load_json(dump_json({"z": 2**63, "a": "é"}), "key") == {"z": 2**63, "a": "é"}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"1", b"\xff", b'{"a":1} x', b"[" * 100_000])
def test_anything_else_is_corrupt_and_named(data: bytes) -> None:
    with pytest.raises(CorruptData, match=r"d/_gen/1\.json"):
        load_json(data, "d/_gen/1.json")


def test_a_sealed_object_both_ways() -> None:
    assert seal_json(VALUE) == SEALED
    assert open_json(SEALED, "key") == VALUE


def test_every_wrong_bit_of_a_sealed_object_is_found() -> None:
    for bit in range(8 * len(SEALED)):
        with pytest.raises(CorruptData, match="key does not match its checksum"):
            open_json(with_wrong_bit(SEALED, bit), "key")


@pytest.mark.parametrize(
    "data",
    [
        *(SEALED[:size] for size in range(len(SEALED))),
        SEALED[1:],
        SEALED + b"\n",
        dump_json(VALUE),
        b"{}",
        b'{"nonce":"x","crc32":"00000000"}',
        SEALED.replace(b'","crc32"', b'", "crc32"'),
        SEALED[:-10] + SEALED[-10:-2].upper() + SEALED[-2:],
    ],
)
def test_truncated_or_unchecked_json_is_corrupt_data(data: bytes) -> None:
    with pytest.raises(CorruptData, match="key does not match its checksum"):
        open_json(data, "key")


@pytest.mark.parametrize("data", [b'{"a":}', b"[1,2}", b'{"a":1}{"b":2}', b"{}"])
def test_under_a_checksum_that_is_right_it_still_has_to_be_an_object(data: bytes) -> None:
    with pytest.raises(CorruptData, match="key"):
        open_json(sealed(data), "key")


class Reads:
    """What each further read finds, None for damage."""

    def __init__(self, *found: int | None) -> None:
        self._found = iter(found)
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        if (found := next(self._found)) is None:
            raise CorruptData(f"read {self.count}")
        return found


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.mark.parametrize(("found", "count"), [((7,), 1), ((None, 7), 2)])
def test_damage_is_read_once_more(found: tuple[int | None, ...], count: int, waits: list[float]) -> None:
    reads = Reads(*found)
    assert read_again(reads) == 7
    assert reads.count == count
    assert waits == [0.2] * (count - 1)


def test_damage_that_is_found_twice_is_believed(waits: list[float]) -> None:
    reads = Reads(None, None, 7)
    with pytest.raises(CorruptData, match="read 2"):
        read_again(reads)
    assert (reads.count, len(waits)) == (2, 1)


def test_nothing_but_damage_is_read_again(waits: list[float]) -> None:
    def read() -> int:
        waits.append(0)
        raise KeyError

    with pytest.raises(KeyError):
        read_again(read)
    assert waits == [0]
