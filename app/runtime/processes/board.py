"""What the workers of one service tell each other: numbers in memory that they share."""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from typing import Final

from ..tally import Tally
from .limited_process import open_shared

#: Of a row. Each is eight bytes, which are read and written at once.
_MEMORY, _SPOOL, _STATE, _BEAT = range(4)
_COLUMNS: Final = 4
_STARTING, _LISTENING, _READY = range(3)
#: Ten beats. A worker whose event loop has not turned for so long serves nobody at the moment.
_RECENT_S: Final = 10.0


def new_board(count: int) -> int:
    """A descriptor of a board for so many workers, with zeros alone; child processes inherit it."""
    with open_shared() as file:
        file.truncate(count * _COLUMNS * 8)
        board = os.dup(file.fileno())
    os.set_inheritable(board, True)
    return board


class Board:
    """A row for each worker, which that worker alone writes while it runs."""

    def __init__(self, descriptor: int, count: int) -> None:
        self._numbers = memoryview(mmap.mmap(descriptor, count * _COLUMNS * 8)).cast("Q")
        self._states = self._numbers[_STATE::_COLUMNS]
        self._beats = self._numbers[_BEAT::_COLUMNS]

    def memory(self, worker: int) -> Tally:
        """Memory for requests, as that worker counts it."""
        return Tally(self._numbers[_MEMORY::_COLUMNS], worker)

    def spool(self, worker: int) -> Tally:
        """Room on the spool, as that worker counts it."""
        return Tally(self._numbers[_SPOOL::_COLUMNS], worker)

    def clear(self, worker: int) -> None:
        """Begin anew for a worker that is about to start: what the one before it had taken is free."""
        for column in range(_COLUMNS):
            self._numbers[worker * _COLUMNS + column] = 0

    def beat(self, worker: int, *, ready: bool) -> None:
        """Note that the event loop of that worker turns, and whether it can serve."""
        self._states[worker] = _READY if ready else _LISTENING
        self._beats[worker] = time.monotonic_ns()

    def silent_s(self, worker: int) -> float | None:
        """Seconds since that worker last beat; None before it listens."""
        beat = self._beats[worker]
        return (time.monotonic_ns() - beat) / 1e9 if beat else None

    @property
    def num_listening(self) -> int:
        """Workers that have begun to listen."""
        return sum(state != _STARTING for state in self._states)

    @property
    def num_ready(self) -> int:
        """Workers that can serve, as they said a moment ago."""
        return sum(
            state == _READY and (self.silent_s(worker) or 0.0) < _RECENT_S
            for worker, state in enumerate(self._states)
        )


@dataclass(frozen=True, slots=True)
class Worker:
    """This process as one of several that serve from one port.

    Attributes:
        number: counted from 0.
        count: of all.
        parent: process that has started them.
        board: what it shares with the others.
    """

    number: int
    count: int
    parent: int
    board: Board

    @property
    def memory(self) -> Tally:
        """Memory for requests, of which all have one limit."""
        return self.board.memory(self.number)

    @property
    def spool(self) -> Tally:
        """Room on the spool, of which all have one limit."""
        return self.board.spool(self.number)
