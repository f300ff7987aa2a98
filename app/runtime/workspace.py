"""What work on a body may use."""

from __future__ import annotations

from contextlib import ExitStack

from .budget import Budget
from .spool import Spool


class Workspace(ExitStack):
    """Memory and room on disk for one piece of work. What the work puts on this stack is closed at its end.

    Attributes:
        budget: the memory that it may hold.
        spool: room for what is too large for memory.
    """

    def __init__(self, budget: Budget, spool: Spool) -> None:
        super().__init__()
        self.budget = budget
        self.spool = spool
