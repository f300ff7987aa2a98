"""The bound on what a body may become, in proportion to the bytes of it that have arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

from ..errors import LimitExceeded

#: What any body may become, however small it is.
ALLOWANCE_BYTES: Final = 64 * 1024 * 1024
#: What a row and a cell of a table count at least: without a value they take no memory, but time.
ROW_BYTES: Final = 16
CELL_BYTES: Final = 8

#: What becomes of a body. Each is counted by itself.
Way = Literal["inflated", "decoded", "stored", "answered"]


class Amplification:
    """Counts what is made of one body. One thread at a time adds to it.

    Args:
        ratio: most bytes that one byte of the body may become in each way.
        received: how many bytes of the body have arrived, as sent.
        allowance: bytes that any body may become, however small it is.
    """

    __slots__ = ("_allowance", "_made", "_ratio", "_received")

    def __init__(self, ratio: int, received: Callable[[], int], *, allowance: int = ALLOWANCE_BYTES) -> None:
        self._ratio = ratio
        self._received = received
        self._allowance = allowance
        self._made: Counter[Way] = Counter()

    def anew(self) -> Amplification:
        """The same bound on the same body, which is read once more."""
        return Amplification(self._ratio, self._received, allowance=self._allowance)

    def add(self, way: Way, num_bytes: int, *, offset: int | None = None) -> None:
        """Count `num_bytes` more, before they are made where their number is known beforehand.

        Raises:
            LimitExceeded: as `check`.
        """
        self.check(way, num_bytes, offset=offset)
        self._made[way] += num_bytes

    def check(self, way: Way, num_bytes: int, *, offset: int | None = None) -> None:
        """Check that `num_bytes` more may be made, without counting them: that is done once they are.

        Args:
            offset: where in the input, for the error.

        Raises:
            LimitExceeded: the body would become too much (`compression_ratio_exceeded` where it is inflated,
                else `amplification_exceeded`).
        """
        made = self._made[way] + num_bytes
        if made > self._allowance and made > self._ratio * (received := self._received()):
            raise LimitExceeded(
                f"{received} bytes of a body would be at least {made} bytes {way}; {self._allowance} bytes "
                f"are allowed, or {self._ratio} times what was sent. Send it in smaller pieces, or written "
                "out: not compressed, and without names or values that stand for very many.",
                code="compression_ratio_exceeded" if way == "inflated" else "amplification_exceeded",
                offset=offset,
            )
