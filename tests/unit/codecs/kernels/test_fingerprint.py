"""FarmHash's fingerprint; values of TensorFlow's `to_hash_bucket_fast` with 2^63 - 1 buckets."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs import kernels
from app.codecs.columns import Strings

#: Size -> the fingerprint of bytes 0, 1, 2, ... modulo 2^63 - 1. A size on both sides of every branch.
KNOWN = {
    0: 1936946117179621456,
    1: 4494688008148699989,
    3: 1486536572171691163,
    4: 198155675784242497,
    7: 2513219638405408418,
    8: 3267946340606884761,
    16: 1080060857502750420,
    17: 4302810082142134045,
    32: 1917831512995979081,
    33: 7527044130840859215,
    64: 8468179876952591436,
    65: 5089956174350597567,
    128: 2037963038260878803,
    129: 5659797075620071487,
    300: 3055356305677081124,
}


@pytest.mark.parametrize("size", KNOWN)
def test_a_fingerprint(size: int) -> None:
    strings = Strings.pack([b"x", bytes(index % 256 for index in range(size)), b"yz"])
    hashes = np.empty(3, np.uint64)
    with np.errstate(over="ignore"):
        kernels.load().fingerprint_strings(strings.data, strings.offsets, hashes)
    assert int(hashes[1]) % (2**63 - 1) == KNOWN[size]


def grouped(strings: list[bytes], hashes: list[int], most: int) -> dict[bytes, int] | None:
    packed = Strings.pack(strings)
    slots = np.empty(1 << (2 * most).bit_length(), np.int64)
    first, counts = np.empty((2, most), np.int64)
    num_groups = kernels.load().group_strings(
        packed.data, packed.offsets, np.array(hashes, np.uint64), slots, first, counts
    )
    if num_groups < 0:
        return None
    places = first[:num_groups].tolist()
    assert places == sorted(places)
    return {strings[place]: count for place, count in zip(places, counts.tolist(), strict=False)}


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"12345678a", b"12345678b", b"", b"\0"])))
def test_equal_hashes_do_not_merge_strings(strings: list[bytes]) -> None:
    expected = Counter(strings)
    for hashes in ([7] * len(strings), [hash(each) & 0xFFFF for each in strings]):
        assert grouped(strings, hashes, len(strings) + 1) == expected


def test_more_groups_than_there_is_room_for() -> None:
    assert grouped([b"a", b"b", b"a"], [1, 2, 1], 2) == {b"a": 2, b"b": 1}
    assert grouped([b"a", b"b", b"c"], [1, 2, 3], 2) is None
