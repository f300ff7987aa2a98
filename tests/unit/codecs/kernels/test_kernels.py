from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from app.codecs import kernels
from app.codecs.kernels import crc32c
from app.codecs.kernels.messages import framing
from app.codecs.kernels.table import NAMES, FunctionT, Kernels
from tests.support.waiting import wait_for


def python(code: str, **environ: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environ},
    )
    return ran.stdout.strip()


def test_importing_the_kernels_imports_no_numba() -> None:
    code = (
        "import sys, app.codecs.messages.tfrecord; print('numba' in sys.modules, 'tensorflow' in sys.modules)"
    )
    assert python(code) == "False False"


def test_without_jit_the_plain_functions_are_the_kernels_and_numba_stays_away() -> None:
    code = (
        "import sys; from app.codecs import kernels; from app.codecs.kernels import crc32c;"
        "print(kernels.load().extend_crc is crc32c.extend_crc, 'numba' in sys.modules)"
    )
    assert python(code, NUMBA_DISABLE_JIT="1") == "True False"


def test_many_threads_load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[kernels.Kernels] = []
    monkeypatch.setattr(kernels, "_loaded", None)
    assert kernels.progress() == "the compiler is being imported"
    assert not kernels.are_compiled()

    def make() -> kernels.Kernels:
        made.append(kernels.Kernels(lambda function: function))
        return made[-1]

    monkeypatch.setattr(kernels, "_make", make)
    found: list[kernels.Kernels] = []
    threads = [threading.Thread(target=lambda: found.append(kernels.load())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert all(loaded is made[0] for loaded in found)


class Compiler:
    """Compiles nothing, says what it was given, and waits at `held` where that is given."""

    def __init__(self, held: str = "") -> None:
        self.compiled: list[str] = []
        self.holding = threading.Event()
        self.go_on = threading.Event()
        self._held = held

    def __call__(self, function: FunctionT, /) -> FunctionT:
        self.compiled.append(function.__name__)
        if function.__name__ == self._held:
            self.holding.set()
            assert self.go_on.wait(60)
        return function


def test_a_kernel_is_compiled_when_it_is_first_used() -> None:
    compiler = Compiler()
    table = Kernels(compiler)
    assert compiler.compiled == []
    assert table.extend_crc is table.extend_crc is crc32c.extend_crc
    assert compiler.compiled == ["extend_crc"]
    assert table.progress() == f"1 of {len(NAMES)} kernels are compiled"
    assert not table.are_compiled


@pytest.mark.parametrize("last_first", [False, True])
def test_all_are_compiled_once_and_in_order(last_first: bool) -> None:
    compiler = Compiler()
    table = Kernels(compiler)
    assert table.scan_frames is framing.scan_frames

    table.compile_all(last_first=last_first)

    rest = [name for name in NAMES if name != "scan_frames"]
    assert compiler.compiled == ["scan_frames", *(reversed(rest) if last_first else rest)]
    assert table.are_compiled


def test_requested_kernel_is_compiled_next() -> None:
    compiler = Compiler(held=NAMES[1])
    table = Kernels(compiler)
    everything = threading.Thread(target=table.compile_all)
    everything.start()
    assert compiler.holding.wait(60)
    asking = threading.Thread(target=lambda: getattr(table, NAMES[-1]))
    asking.start()
    wait_for(lambda: asking.ident in table._waiting)

    compiler.go_on.set()
    asking.join(60)
    everything.join(60)

    assert compiler.compiled == [*NAMES[:2], NAMES[-1], *NAMES[2:-1]]


def test_many_threads_that_want_one_kernel_compile_it_once() -> None:
    compiler = Compiler(held="extend_crc")
    table = Kernels(compiler)
    threads = [threading.Thread(target=lambda: table.extend_crc) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(table._waiting) == len(threads))
    compiler.go_on.set()
    for thread in threads:
        thread.join(60)
    assert compiler.compiled == ["extend_crc"]
