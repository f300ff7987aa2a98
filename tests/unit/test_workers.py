"""The supervisor of workers, where processes cannot be had."""

import subprocess
import sys
import textwrap

#: Two workers that cannot be started as often as `missing` says. Once both listen, `on_listen` is called.
SUPERVISE = textwrap.dedent(
    """
    import os, signal, sys, threading, time
    from app import workers
    from app.runtime.processes.board import Board, new_board

    workers._FIRST_PAUSE_S = 0.1
    workers._HUNG_S = 2.0
    workers._STOOD_STILL_S = 1.0
    board = new_board(2)
    missing = {missing}
    WORK = (
        "import sys, time; from app.runtime.processes.board import Board\\n"
        "board = Board(int(sys.argv[1]), 2)\\n"
        "while not time.sleep(0.05): board.beat(int(sys.argv[2]), ready=True)"
    )

    def command(number):
        if missing[number]:
            missing[number] -= 1
            return ["/nowhere"]
        return [sys.executable, "-c", WORK, str(board), str(number)]

    def send(number):
        for process_id in started.process_ids.values():
            os.kill(process_id, number)

    def end():
        os.kill(os.getpid(), signal.SIGTERM)

    def stand_still():
        send(signal.SIGSTOP)
        time.sleep(3)
        threading.Timer(1, send, [signal.SIGCONT]).start()
        threading.Timer(4, end).start()

    started = workers.Workers(
        2,
        Board(board, 2),
        command,
        on_listen={on_listen},
        on_leave=lambda: None,
        ends_within_s=30,
    )
    sys.exit(started.run())
    """
)


def supervise(missing: list[int], on_listen: str = "end") -> "subprocess.CompletedProcess[str]":
    program = SUPERVISE.replace("{missing}", repr(missing)).replace("{on_listen}", on_listen)
    return subprocess.run(
        [sys.executable, "-c", program],
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


def test_workers_that_stood_still_together_with_their_supervisor_are_not_killed() -> None:
    ended = supervise([0, 0], "stand_still")
    assert (ended.returncode, ended.stderr) == (0, "")
