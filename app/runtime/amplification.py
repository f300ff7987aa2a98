"""The limit on how much a body may expand, in proportion to its bytes that have arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

from ..errors import LimitExceeded

#: Any body may expand to this size, however small it is.
ALLOWANCE_BYTES: Final = 64 * 1024 * 1024
#: The least that a row and a cell of a table count: even without a value they take time.
ROW_BYTES: Final = 16
CELL_BYTES: Final = 8

#: What is done with the bytes of a body. Each way is counted separately.
Way = Literal["inflated", "decoded", "stored", "answered"]


class Amplification:
    """Counts the bytes made from one body. Only one thread at a time may add to it.

    Args:
        ratio: most bytes that one byte of the body may become in each way.
        received: how many bytes of the body have arrived, as sent.
        allowance: bytes that any body may become, however small it is.
    """

    __slots__ = ("_allowance", "_made", "_ratio", "received")

    def __init__(self, ratio: int, received: Callable[[], int], *, allowance: int = ALLOWANCE_BYTES) -> None:
        self._ratio = ratio
        self.received = received
        self._allowance = allowance
        self._made: Counter[Way] = Counter()

    def anew(self) -> Amplification:
        """A new count with the same limit, for reading the same body again."""
        return Amplification(self._ratio, self.received, allowance=self._allowance)

    def add(self, way: Way, num_bytes: int, *, offset: int | None = None) -> None:
        """Count `num_bytes` more. Call it before they are made if their number is known.

        Raises:
            LimitExceeded: the body would become too much.
        """
        self.check(way, num_bytes, offset=offset)
        self._made[way] += num_bytes

    def check(self, way: Way, num_bytes: int, *, offset: int | None = None) -> None:
        """Check that `num_bytes` more may be made, without counting them.

        Args:
            offset: where in the input, for the error.

        Raises:
            LimitExceeded: the body would become too much (`compression_ratio_exceeded` where it is inflated,
                else `amplification_exceeded`).
        """
        made = self._made[way] + num_bytes
        if made > self._allowance and made > self._ratio * (received := self.received()):
            raise LimitExceeded(
                f"{received} bytes of a body would be at least {made} bytes {way}; {self._allowance} bytes "
                f"are allowed, or {self._ratio} times what was sent. Send it in smaller pieces, or written "
                "out: not compressed, and without names or values that stand for very many.",
                code="compression_ratio_exceeded" if way == "inflated" else "amplification_exceeded",
                offset=offset,
            )
