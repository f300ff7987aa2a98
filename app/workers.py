"""Several processes that serve from one port: who starts them, watches them, and ends them together."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final

from .errors import CannotStart
from .runtime.processes.board import Board

logger = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.1
#: A worker whose event loop has not turned for so long is killed, like a pod by the chart's liveness probe.
_HUNG_S: Final = 60.0
#: One that has not begun to listen after so long is killed, too, like a pod by the chart's startup probe.
_LISTENS_WITHIN_S: Final = 120.0
#: Where this process has not looked for so long, its container stood still (`docker pause`, or a platform
#: that takes the processor from idle containers), and silence says nothing.
_STOOD_STILL_S: Final = 2.0
#: A worker that ends soon after its start is started again after a pause, each twice as long as the last.
_SOON_S: Final = 60.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0


@dataclass
class _Worker:
    #: None while it does not run.
    process_id: int | None = None
    start_at: float = 0.0
    started_at: float = 0.0
    #: Because it hung: it may take a while to end.
    is_killed: bool = False
    pause_s: float = _FIRST_PAUSE_S


class Workers:
    """Runs so many processes until SIGTERM or SIGINT, which go on to all of them.

    The first is started alone: what is wrong with the settings ends it, and the start, with one message.
    So does the first if it hangs. Later, one that ends or hangs is replaced.

    Args:
        count: of processes.
        board: on which they tell of themselves.
        command: of the worker of a number, counted from 0.
        on_listen: called once all listen.
        on_leave: called when they are told to end.
        ends_within_s: what they have for that; those left then are killed.
    """

    def __init__(
        self,
        count: int,
        board: Board,
        command: Callable[[int], list[str]],
        *,
        on_listen: Callable[[], None],
        on_leave: Callable[[], None],
        ends_within_s: float,
    ) -> None:
        self._board = board
        self._command = command
        self._on_listen = on_listen
        self._on_leave = on_leave
        self._ends_within_s = ends_within_s
        self._workers = [_Worker() for _ in range(count)]
        self._signals: list[int] = []
        self._kill_at = float("inf")
        self._looked_at = self._judge_from = 0.0
        #: Whether one has listened, whether all have, and whether they have been told to end.
        self._one_listened = self._all_listened = self._leaving = False
        self._failed = False
        #: Workers that ended, hung or could not be started, each to be followed by another.
        self.num_restarts = 0

    @property
    def process_ids(self) -> dict[int, int]:
        """Of the workers that run, by their numbers."""
        ids = {number: worker.process_id for number, worker in enumerate(self._workers)}
        return {number: process_id for number, process_id in ids.items() if process_id is not None}

    def run(self) -> int:
        """Serve; the exit status is 0 if all have ended as they were told to.

        Raises:
            CannotStart: no process can be started.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        self._start(0)
        while self.process_ids or not self._leaving:
            time.sleep(_LOOK_EVERY_S)  # noqa: TID251  # no turn is held here
            self._reap()
            while self._signals:
                self._leave(self._signals.pop(0))
            if not self._leaving:
                self._look_after()
            elif time.monotonic() >= self._kill_at:
                self._kill_at = float("inf")
                self._failed = True
                self._send(signal.SIGKILL)
        return 1 if self._failed else 0

    def _note(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)

    def _start(self, number: int) -> None:
        self._board.clear(number)
        command = self._command(number)
        worker = self._workers[number]
        worker.started_at, worker.is_killed = time.monotonic(), False
        try:
            # A group of its own: a terminal sends Ctrl-C to the group, and a worker would get it twice.
            worker.process_id = os.posix_spawn(command[0], command, os.environ, setpgroup=0)
        except OSError as error:  # too many processes, or no memory for one more
            if not self._one_listened:
                raise CannotStart(f"No process can be started for a worker: {error.strerror}.") from error
            logger.error("worker %d cannot be started: %s", number, error.strerror)
            self._put_off(number)

    def _look_after(self) -> None:
        """Start what is missing, and kill what hangs."""
        now = time.monotonic()
        num_listening = self._board.num_listening
        self._one_listened |= num_listening > 0
        if not self._all_listened and num_listening == len(self._workers):
            self._all_listened = True
            self._on_listen()
        if now - self._looked_at > _STOOD_STILL_S:
            self._judge_from = now + _HUNG_S
        self._looked_at = now
        for number, worker in enumerate(self._workers):
            if worker.process_id is None:
                if self._one_listened and now >= worker.start_at:
                    self._start(number)
            elif now >= self._judge_from and not worker.is_killed:
                self._kill_if_it_hangs(number, worker.process_id)

    def _kill_if_it_hangs(self, number: int, process_id: int) -> None:
        worker, silent_s = self._workers[number], self._board.silent_s(number)
        if silent_s is None:
            worker.is_killed = time.monotonic() - worker.started_at > _LISTENS_WITHIN_S
            said = "begun to listen", _LISTENS_WITHIN_S
        else:
            worker.is_killed = silent_s > _HUNG_S
            said = "answered", _HUNG_S
        if worker.is_killed:
            logger.error(
                "worker %d (process %d) has not %s for %g s and is killed", number, process_id, *said
            )
            os.kill(process_id, signal.SIGKILL)

    def _reap(self) -> None:
        """Note which processes have ended; as the first process of a container, orphans' too."""
        while True:
            try:
                process_id, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process_id:
                return
            for number, running in self.process_ids.items():
                if running == process_id:
                    self._on_end(number, os.waitstatus_to_exitcode(status))

    def _on_end(self, number: int, status: int) -> None:
        worker = self._workers[number]
        self._one_listened |= self._board.num_listening > 0
        worker.process_id = None
        self._board.clear(number)
        if self._leaving:
            # Until it has set up what to do at a signal, one ends by it.
            self._failed |= status not in (0, -signal.SIGTERM, -signal.SIGINT)
            return
        if not self._one_listened:  # it has said why
            self._failed = True
            self._leave(signal.SIGTERM)
            return
        pause_s = self._put_off(number)
        logger.error("worker %d ended with status %d; another is started in %g s", number, status, pause_s)

    def _put_off(self, number: int) -> float:
        """Have a worker started after a pause, and say how many seconds that is."""
        self.num_restarts += 1
        worker, now = self._workers[number], time.monotonic()
        pause_s = worker.pause_s if now - worker.started_at < _SOON_S else _FIRST_PAUSE_S
        worker.start_at, worker.pause_s = now + pause_s, min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s

    def _leave(self, number: int) -> None:
        if not self._leaving:
            self._leaving = True
            self._kill_at = time.monotonic() + self._ends_within_s
            self._on_leave()
        self._send(number)

    def _send(self, number: int) -> None:
        for process_id in self.process_ids.values():
            os.kill(process_id, number)
