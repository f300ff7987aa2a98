"""FarmHash's fingerprint; values of TensorFlow's `to_hash_bucket_fast` with 2^63 - 1 buckets."""

import numpy as np
import pytest

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
