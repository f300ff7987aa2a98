"""What a part of the work holds of a request's budget, given back together."""

from __future__ import annotations

from types import TracebackType

from ...domain.limits import Budget

__all__ = ["Lease"]


class Lease:
    """Charges to `budget` that end with the `with` block, or with `release`."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._held = 0

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

    def adopt(self, remaining_before: int) -> None:
        """Take over what was charged to the budget itself since it had `remaining_before` bytes left."""
        self._held += remaining_before - self.budget.remaining

    def release(self) -> None:
        """Give back all of it."""
        self.budget.release(self._held)
        self._held = 0
