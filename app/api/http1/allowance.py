"""How slow a client may be: time that it earns by moving bytes."""

from __future__ import annotations

from math import inf
from typing import Final

NEVER: Final = inf


class Allowance:
    """A deadline that each byte moves on by `1 / rate` seconds, but never past `stall_s` from now.

    So a client has to keep the rate on average, may stop for a while where it was fast before, and never for
    longer than `stall_s`. The reckoning is that of Apache's mod_reqtimeout (`body=20,MinRate=500`). Times are
    those of the event loop, in seconds.

    Args:
        rate: bytes a second; 0 asks for none, and any byte gives `stall_s`.
    """

    __slots__ = ("_left", "_rate", "_stall_s", "due", "frozen")

    def __init__(self, rate: int, stall_s: float) -> None:
        self._rate = rate
        self._stall_s = stall_s
        #: Whether it is we who keep the client waiting; and what was left to it then.
        self.frozen = False
        self._left = 0.0
        #: When the client has been too slow.
        self.due = NEVER

    @property
    def idle(self) -> bool:
        """Whether nothing is asked of the client at all."""
        return self.due == NEVER and not self.frozen

    def start(self, now: float, grace_s: float) -> None:
        """Begin, with `grace_s` until the first bytes have to be there."""
        self.frozen = False
        self.due = now + (min(grace_s, self._stall_s) if self._rate else self._stall_s)

    def stop(self) -> None:
        """Nothing is asked of the client."""
        self.frozen = False
        self.due = NEVER

    def earn(self, num_bytes: int, now: float) -> None:
        """The client has moved so many bytes."""
        if not num_bytes:
            return
        if self.frozen:  # by these very bytes, which were more than we read at once
            self._left = self._prolong(self._left, num_bytes)
        elif self.due != NEVER:
            self.due = now + self._prolong(self.due - now, num_bytes)

    def _prolong(self, left: float, num_bytes: int) -> float:
        return min(left + num_bytes / self._rate, self._stall_s) if self._rate else self._stall_s

    def freeze(self, now: float) -> None:
        """It is we who keep the client waiting."""
        if self.due != NEVER:
            self.frozen, self._left, self.due = True, self.due - now, NEVER

    def thaw(self, now: float) -> None:
        """The client may go on."""
        if self.frozen:
            self.frozen, self.due = False, now + self._left
