from __future__ import annotations

import numpy as np
import pytest

from app.codecs import kernels
from app.codecs.kernels import addresses

PLAIN = kernels.Kernels(lambda function: function)
SOURCE = np.arange(3000, dtype=np.int64).astype(np.uint8)


@pytest.mark.parametrize("size", [*range(70), 511, 512, 513, 1000])
def test_copies_of_every_size_are_exact(size: int) -> None:
    target = np.full(1100, 99, np.uint8)
    addresses.copy_from(target, 50, addresses.raw_address(SOURCE), SOURCE.size, 7, size)
    assert target[50 : 50 + size].tobytes() == SOURCE[7 : 7 + size].tobytes()
    assert (target[:50] == 99).all()
    assert (target[50 + size :] == 99).all()


@pytest.mark.parametrize(
    ("at", "begin", "size"),
    [
        (-1, 0, 1),
        (0, -1, 1),
        (0, 0, -1),
        (9, 0, 2),
        (0, 2999, 2),
        (0, 0, 2**62),
        (2**62, 0, 1),
        (0, 2**62, 1),
    ],
)
def test_copies_beyond_either_end_are_refused(at: int, begin: int, size: int) -> None:
    target = np.zeros(10, np.uint8)
    with pytest.raises(IndexError):
        addresses.copy_from(target, at, addresses.raw_address(SOURCE), SOURCE.size, begin, size)
    assert not target.any()


@pytest.mark.parametrize("kernel", [kernels.load(), PLAIN], ids=["compiled", "plain"])
def test_spans_are_gathered_and_their_bounds_checked(kernel: kernels.Kernels) -> None:
    kinds = np.ones(3, np.uint8)
    begins, ends = np.array([5, 100, 0]), np.array([5, 700, 3])
    out, offsets = np.zeros(603, np.uint8), np.zeros(4, np.int64)
    kernel.gather_spans(SOURCE, kinds, begins, ends, out, offsets)
    assert offsets.tolist() == [0, 0, 600, 603]
    assert out.tobytes() == SOURCE[100:700].tobytes() + SOURCE[:3].tobytes()
    for wrong in (np.array([2999]), np.array([-1])):
        with pytest.raises(IndexError):
            kernel.gather_spans(SOURCE, kinds[:1], wrong, wrong + 2, out, offsets)
    with pytest.raises(IndexError):
        kernel.gather_spans(SOURCE, kinds, begins, ends, out[:600], offsets)
