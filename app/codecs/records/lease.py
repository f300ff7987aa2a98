"""What a part of the work holds of a request's budget, given back together."""

from __future__ import annotations

from types import TracebackType

from ...runtime.budget import Budget


class TooLargeAtOnce(Exception):
    """Values that a few bytes stand for are more than `Lease.expands_to`: read fewer rows at a time."""


class Lease:
    """Charges to `budget` that end with the `with` block, or with `release`.

    Attributes:
        expands_to: most bytes that `expand` takes until `release`; None for no such bound.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.expands_to: int | None = None
        self._held = 0
        self._expanded = 0

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def charge(self, num_bytes: int, what: str) -> None:
        """As `Budget.charge`."""
        self.budget.charge(num_bytes, what)
        self._held += num_bytes

    def expand(self, num_bytes: int, what: str) -> None:
        """Charge values that the input does not hold one by one: a few bytes can stand for very many.

        Raises:
            TooLargeAtOnce: more than `expands_to`; nothing was charged.
            LimitExceeded: too much for the size of the body, or more than the budget.
        """
        self._expanded += num_bytes
        if self.expands_to is not None and self._expanded > self.expands_to:
            raise TooLargeAtOnce
        self.budget.check_amplification("decoded", self._expanded)
        self.charge(num_bytes, what)

    @property
    def held(self) -> int:
        """Bytes that are charged."""
        return self._held

    def adopt(self, remaining_before: int) -> None:
        """Take over what was charged to the budget itself since it had `remaining_before` bytes left."""
        self._held += remaining_before - self.budget.remaining

    def release(self) -> None:
        """Give back all of it."""
        self.budget.release(self._held)
        self._held = self._expanded = 0
