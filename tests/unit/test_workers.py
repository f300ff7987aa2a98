"""The supervisor of workers, where processes cannot be had."""

import re
import subprocess
import sys
import textwrap

#: Two workers that cannot be started as often as `missing` says, and then hang before they listen as often as
#: `hung` says, while an hour passes in seconds. Once both listen, `on_listen` is called. It says how many had
#: to be replaced.
SUPERVISE = textwrap.dedent(
    """
    import os, signal, sys, threading, time
    from types import SimpleNamespace
    from app import workers
    from app.runtime.processes.board import Board, new_board

    workers._FIRST_PAUSE_S = 0.1
    workers._HUNG_S = 2.0
    workers._STOOD_STILL_S = 1.0
    board = new_board(2)
    missing, hung = {missing}, {hung}
    hangs, passed_s = False, 0.0
    WORK = (
        "import sys, time; from app.runtime.processes.board import Board\\n"
        "board = Board(int(sys.argv[1]), 2)\\n"
        "while not time.sleep(0.05): board.beat(int(sys.argv[2]), ready=True)"
    )

    def sleep(seconds):
        global passed_s
        passed_s += 0.5 if hangs else 0.0
        time.sleep(0.01 if hangs else seconds)

    workers.time = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s, sleep=sleep)

    def command(number):
        global hangs
        hangs = False
        if missing[number]:
            missing[number] -= 1
            return ["/nowhere"]
        if hung[number]:
            hung[number] -= 1
            hangs = True
            return [sys.executable, "-c", "import time; time.sleep(60)"]
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
    status = started.run()
    print(started.num_restarts, "replaced")
    sys.exit(status)
    """
)

NEVER_LISTENED = r"worker (\d) .* has not begun to listen for 120 s and is killed"


def supervise(
    missing: tuple[int, int] = (0, 0), hung: tuple[int, int] = (0, 0), on_listen: str = "end"
) -> "subprocess.CompletedProcess[str]":
    program = SUPERVISE.replace("{on_listen}", on_listen)
    for name, counts in (("{missing}", missing), ("{hung}", hung)):
        program = program.replace(name, repr(list(counts)))
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_worker_that_cannot_be_started_is_tried_again() -> None:
    ended = supervise(missing=(0, 2))
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("worker 1 cannot be started: No such file or directory") == 2
    assert ended.stdout == "2 replaced\n"


def test_a_worker_that_hangs_before_it_listens_is_replaced() -> None:
    ended = supervise(hung=(0, 1))
    assert ended.returncode == 0, ended.stderr
    assert re.findall(r"worker (\d) .* has not begun to listen for 120 s and is killed", ended.stderr) == [
        "1"
    ]
    assert ended.stdout == "1 replaced\n"


def test_the_service_does_not_start_if_its_first_worker_hangs() -> None:
    ended = supervise(hung=(1, 0))
    assert ended.returncode == 1
    assert re.findall(r"worker (\d) .* has not begun to listen for 120 s and is killed", ended.stderr) == [
        "0"
    ]


def test_the_service_does_not_start_without_a_first_worker() -> None:
    ended = supervise(missing=(1, 0))
    assert ended.returncode == 1
    assert ended.stderr.endswith("No process can be started for a worker: No such file or directory.\n")


def test_workers_that_stood_still_together_with_their_supervisor_are_not_killed() -> None:
    ended = supervise(on_listen="stand_still")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0 replaced\n", "")
