"""The supervisor of workers, where processes cannot be had, hang, or stand still; in virtual time."""

import subprocess
import sys
import textwrap

#: Two workers that cannot be started as often as `missing` says, and then never begin to listen as often as
#: `hung` says. They are processes that sleep, for which `sleep` tells the board that they live. A second
#: passes at each look of the supervisor, however long that takes. Once both listen, `on_listen` is called.
#: It says how many had to be replaced.
SUPERVISE = textwrap.dedent(
    """
    import os, shutil, signal, sys, time
    from types import SimpleNamespace
    from app import workers
    from app.runtime.processes import board as boards

    missing, hung = {missing}, {hung}
    now_s, silent, fallen_silent, later = 1000.0, set(), set(), []

    def sleep(seconds):
        global now_s
        now_s += seconds
        time.sleep(0.001)  # processes end meanwhile
        for number in started.process_ids.keys() - silent:
            board.beat(number, ready=True)
        while later and now_s >= later[0][0]:
            later.pop(0)[1]()

    workers._LOOK_EVERY_S = 1.0
    clock = SimpleNamespace(monotonic=lambda: now_s, monotonic_ns=lambda: int(now_s * 1e9), sleep=sleep)
    workers.time = boards.time = clock

    def command(number):
        if missing[number]:
            missing[number] -= 1
            return ["/nowhere"]
        if number in fallen_silent:  # so it is replaced
            end()
        silent.discard(number)
        if hung[number]:
            hung[number] -= 1
            silent.add(number)
        return [shutil.which("sleep"), "3600"]

    def end():
        os.kill(os.getpid(), signal.SIGTERM)

    def hang():
        def fall_silent():
            silent.add(1)
            fallen_silent.add(1)

        later.extend([(now_s, fall_silent), (now_s + 10_000, end)])

    def stand_still():
        def stop():
            global now_s
            silent.update([0, 1])
            now_s += 3600  # for the supervisor, too

        later.extend([(now_s, stop), (now_s + 3630, silent.clear), (now_s + 3800, end)])

    board = boards.Board(boards.new_board(2), 2)
    started = workers.Workers(
        2, board, command, on_listen={on_listen}, on_leave=lambda: None, ends_within_s=1e9
    )
    status = started.run()
    print(started.num_restarts, "replaced")
    sys.exit(status)
    """
)


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
        timeout=300,
    )


def test_a_worker_that_cannot_be_started_is_tried_again() -> None:
    ended = supervise(missing=(0, 2))
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("worker 1 cannot be started: No such file or directory") == 2
    assert ended.stdout == "2 replaced\n"


def test_a_worker_that_hangs_before_it_listens_is_replaced() -> None:
    ended = supervise(hung=(0, 1))
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("has not begun to listen for 120 s and is killed") == 1
    assert ended.stderr.startswith("worker 1 ")
    assert ended.stdout == "1 replaced\n"


def test_the_service_does_not_start_if_its_first_worker_hangs() -> None:
    ended = supervise(hung=(1, 0))
    assert ended.returncode == 1
    assert ended.stderr.count("has not begun to listen for 120 s and is killed") == 1
    assert ended.stderr.startswith("worker 0 ")


def test_the_service_does_not_start_without_a_first_worker() -> None:
    ended = supervise(missing=(1, 0))
    assert ended.returncode == 1
    assert ended.stderr.endswith("No process can be started for a worker: No such file or directory.\n")


def test_a_worker_that_hangs_after_it_listened_is_replaced() -> None:
    ended = supervise(on_listen="hang")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("has not answered for 60 s and is killed") == 1
    assert ended.stdout == "1 replaced\n"


def test_workers_that_stood_still_together_with_their_supervisor_are_not_killed() -> None:
    ended = supervise(on_listen="stand_still")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0 replaced\n", "")
