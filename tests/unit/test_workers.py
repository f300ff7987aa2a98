"""The supervisor of workers, where processes cannot be had."""

import subprocess
import sys
import textwrap

#: Two workers, of which the second cannot be started twice; once both listen, all end.
SUPERVISE = textwrap.dedent(
    """
    import os, signal, sys, time
    from app import workers
    from app.runtime.board import Board, new_board

    workers._FIRST_PAUSE_S = 0.1
    board = new_board(2)
    missing = {missing}
    WORK = (
        "import sys, time; from app.runtime.board import Board; "
        "Board(int(sys.argv[1]), 2).beat(int(sys.argv[2]), ready=True); time.sleep(60)"
    )

    def command(number):
        if missing[number]:
            missing[number] -= 1
            return ["/nowhere"]
        return [sys.executable, "-c", WORK, str(board), str(number)]

    started = workers.Workers(
        2,
        Board(board, 2),
        command,
        on_listen=lambda: os.kill(os.getpid(), signal.SIGTERM),
        on_leave=lambda: None,
        ends_within_s=30,
    )
    sys.exit(started.run())
    """
)


def supervise(missing: list[int]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", SUPERVISE.replace("{missing}", repr(missing))],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_worker_that_cannot_be_started_is_tried_again() -> None:
    ended = supervise([0, 2])
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("worker 1 cannot be started: No such file or directory") == 2


def test_the_service_does_not_start_without_a_first_worker() -> None:
    ended = supervise([1, 0])
    assert ended.returncode == 1
    assert ended.stderr.endswith("No process can be started for a worker: No such file or directory.\n")
