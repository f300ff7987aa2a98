"""The memory that one request may hold, charged before every allocation."""

from __future__ import annotations

from collections.abc import Callable

from ..domain.limits import Limits
from ..errors import LimitExceeded
from .amplification import Amplification, Way
from .memory import MemoryShare


class Budget:
    """The bytes that one request may still hold in memory. Not shared between threads.

    Args:
        limits: the bounds on the request.
        share: its share of the memory of all requests; every charge takes from it.
        amplification: counts what the body of the request becomes; None without a body.
    """

    __slots__ = ("_amplification", "_limit", "_share", "_used", "limits", "peak", "spooled")

    def __init__(
        self,
        limits: Limits | None = None,
        share: MemoryShare | None = None,
        amplification: Amplification | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._amplification = amplification
        self._share = share
        self._limit = self.limits.max_decoded_bytes
        if share is not None:
            self._limit = min(self._limit, share.max_bytes)
        self._used = 0
        #: The largest number of bytes held at one time.
        self.peak = 0
        #: Bytes of a large body. They count as on the spool even where they are held in memory: how large an
        #: answer may be does not depend on how fast the body came.
        self.spooled = 0

    @property
    def remaining(self) -> int:
        """Bytes that can still be charged."""
        return self._limit - self._used

    @property
    def received(self) -> Callable[[], int]:
        """Tells how many bytes of the body have arrived, as sent; none without a body."""
        return int if self._amplification is None else self._amplification.received

    def anew(self, limits: Limits | None = None) -> Budget:
        """An unused budget of the same request.

        Args:
            limits: other ones than the request's.
        """
        amplification = None if self._amplification is None else self._amplification.anew()
        return Budget(limits or self.limits, self._share, amplification)

    def amplify(self, way: Way, num_bytes: int, *, offset: int | None = None) -> None:
        """Count bytes that the body becomes (`Amplification.add`).

        Raises:
            LimitExceeded: too much for its size.
        """
        if self._amplification is not None:
            self._amplification.add(way, num_bytes, offset=offset)

    def check_amplification(self, way: Way, num_bytes: int) -> None:
        """Check that the body may become `num_bytes` more, without counting them (`Amplification.check`).

        Raises:
            LimitExceeded: too much for its size.
        """
        if self._amplification is not None:
            self._amplification.check(way, num_bytes)

    def reserve(self, num_bytes: int) -> None:
        """Reserve memory from before work begins until it ends, for bytes that are read ahead, not decoded.

        Raises:
            Overloaded: there is no room; nothing was done.
        """
        if self._share is not None:
            self._share.reserve(num_bytes)

    def reserve_spare(self, num_bytes: int) -> bool:
        """Reserve memory that the request can do without, while a great deal is free; whether that is so."""
        return self._share is None or self._share.reserve_spare(num_bytes)

    def release_reserved(self, num_bytes: int) -> None:
        """Release bytes that were reserved before work has ended."""
        if self._share is not None:
            self._share.release_reserved(num_bytes)

    def require_not_given_up(self) -> None:
        """Stop work whose request was given up (`MemoryShare.require_not_given_up`)."""
        if self._share is not None:
            self._share.require_not_given_up()

    def charge(self, num_bytes: int, what: str, *, instead: str = "Send it in smaller pieces.") -> None:
        """Reserve `num_bytes` for `what`, before allocating them.

        Args:
            instead: what the client is to do if they are too many.

        Raises:
            LimitExceeded: more than the request may hold, or it has taken too long.
            Overloaded: more than other requests leave.
            StreamInterrupted: the request was given up.
        """
        if num_bytes > self._limit - self._used:
            raise LimitExceeded(
                f"{what} would take {num_bytes} bytes; this request may hold "
                f"{self._limit} bytes and holds {self._used}. {instead}",
                code="payload_too_large",
            )
        if self._share is not None:
            self._share.charge(num_bytes)
        self._used += num_bytes
        self.peak = max(self.peak, self._used)

    def exchange(self, held: int, needed: int, what: str) -> None:
        """Replace a charge of `held` bytes by one of `needed` bytes in one step.

        Releasing first and charging afterwards could wait for memory that this request still uses but no
        longer counts.

        Raises:
            LimitExceeded: more than the request may hold, or it has taken too long.
            Overloaded: more than other requests leave.
            StreamInterrupted: the request was given up.
        """
        if needed > held:
            self.charge(needed - held, what)
        else:
            self.release(held - needed)

    def release(self, num_bytes: int) -> None:
        """Release bytes that are no longer held."""
        num_bytes = min(num_bytes, self._used)
        self._used -= num_bytes
        if self._share is not None:
            self._share.release(num_bytes)
